"""Hosts' frames that do not fit links between switches: the agent of the first switch gets them
(docs/reference/openflow.md, section 10).

Register 3 says of a frame in tables CLASSIFY and FORWARD: bit 0 its size was checked, bit 1 it is too large, bit 2 it
comes from the agent. A frame for a host at the same switch is never too large.
"""

from __future__ import annotations

from collections.abc import Iterator

from . import match as act
from .match import GROUP_ADDRESS, Match
from .pipeline import ETH_TYPE_IPV4, ETH_TYPE_IPV6, PROTOCOL_TCP, TCP_SYN, TO_FIT, Priority, Table
from .rule import Rule

CHECKED, IS_LARGE, IS_FITTED = 1, 3, 4
_LARGE_BIT = 1


def size_rules(most_frame_bytes: int, access: int, network: int) -> Iterator[Rule]:
    """``most_frame_bytes``: the largest frame of a host, with its Ethernet header, that fits all links behind a label.
    ``access`` and ``network`` are the numbers of the agent's ports.
    """
    to_agent = (
        act.Encap(act.PACKET_TYPE_MPLS),
        act.SetMplsLabel(TO_FIT),
        act.Encap(act.PACKET_TYPE_ETHERNET),
        act.Output(access),
    )
    check = (act.SetRegister3(CHECKED), act.CheckLarger(most_frame_bytes, _LARGE_BIT), act.Resubmit(Table.CLASSIFY))
    yield Rule(Table.CLASSIFY, Priority.SIZE, Match(register_3=0), check)
    # Frames of multicast sessions leave by CLASSIFY, all others by FORWARD.
    large_group = Match(register_3=IS_LARGE, eth_dst=GROUP_ADDRESS)
    yield Rule(Table.CLASSIFY, Priority.LARGE_GROUP, large_group, to_agent)
    yield Rule(Table.FORWARD, Priority.LARGE, Match(register_3=IS_LARGE), to_agent)
    for eth_type in (ETH_TYPE_IPV4, ETH_TYPE_IPV6):
        syn = Match(register_3=CHECKED, eth_type=eth_type, ip_proto=PROTOCOL_TCP, tcp_flags=TCP_SYN)
        yield Rule(Table.FORWARD, Priority.SYN_TO_FIT, syn, to_agent)
    # SYNs were copied to the controller when they came from their host: register 2.
    fitted = (act.SetRegister2(1), act.SetRegister3(IS_FITTED))
    yield Rule(Table.PORT, Priority.FITTED, Match(in_port=network), fitted, goto=Table.CLASSIFY)
