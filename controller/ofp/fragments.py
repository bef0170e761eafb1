"""Rules against DHCP, router and neighbour discovery in IP fragments (RFC 7113, section 3; docs/reference/openflow.md).

To rules all ports and types of a fragment are 0 (OFPC_FRAG_NORMAL). Actions still see those of a first fragment. So a
first fragment has its ports or its type copied to registers, and is looked up again. Where there is no whole header in
it Open vSwitch copies zeros. Without the first fragment no host puts a packet together, so later ones pass.
"""

from __future__ import annotations

from collections.abc import Iterator

from . import match as act
from .match import Match
from .pipeline import (
    ETH_TYPE_IPV4,
    ETH_TYPE_IPV6,
    NEIGHBOUR_ADVERTISEMENT,
    NEIGHBOUR_SOLICITATION,
    PROTOCOL_ICMPV6,
    PROTOCOL_UDP,
    REDIRECT,
    ROUTER_ADVERTISEMENT,
    ROUTER_SOLICITATION,
    Priority,
    Table,
)
from .rule import Rule

IS_UDP, IS_ICMPV6 = 0x1_0000, 0x2_0000
"""In register 4, above the source port or the type: which protocol it is of."""
DHCP_PORTS = (67, 68, 546, 547)
DISCOVERY = (
    ROUTER_SOLICITATION,
    ROUTER_ADVERTISEMENT,
    NEIGHBOUR_SOLICITATION,
    NEIGHBOUR_ADVERTISEMENT,
    REDIRECT,
)
"""Types that no host takes out of fragments, and no sound host puts into them (RFC 6980)."""
_AGAIN = act.Resubmit(Table.PORT)


def fragment_port_rules(number: int, *, serves_dhcp: bool = False) -> Iterator[Rule]:
    """For a port of hosts: first fragments are looked at, and packets whose headers have no end are dropped.

    ``serves_dhcp``: DHCP may come from here, in fragments, too.
    """
    types = (act.SetRegister4(IS_ICMPV6), act.Move(8, act.ICMPV6_TYPE, act.REGISTER_4), _AGAIN)
    yield _look(number, ETH_TYPE_IPV6, PROTOCOL_ICMPV6, types)
    ports = (act.Move(16, act.UDP_SRC, act.REGISTER_4), act.Move(16, act.UDP_DST, act.REGISTER_5))
    for eth_type in () if serves_dhcp else (ETH_TYPE_IPV4, ETH_TYPE_IPV6):
        yield _look(number, eth_type, PROTOCOL_UDP, (act.SetRegister4(IS_UDP), *ports, _AGAIN))
    # Open vSwitch gives up at an extension header that is cut: no protocol is known then.
    cut = Match(in_port=number, eth_type=ETH_TYPE_IPV6, ip_proto=0)
    yield Rule(Table.PORT, Priority.BAD_FRAGMENT, cut)


def _look(number: int, eth_type: int, protocol: int, actions: tuple[act.Action, ...]) -> Rule:
    match = Match(in_port=number, eth_type=eth_type, ip_proto=protocol, is_first_fragment=True, register_4=0)
    return Rule(Table.PORT, Priority.FRAGMENT, match, actions)


def bad_fragment_rules() -> Iterator[Rule]:
    """For a switch with such ports: the rules that drop bad fragments."""
    matches = [Match(register_4=IS_ICMPV6 + kind) for kind in (0, *DISCOVERY)]
    matches.append(Match(register_4=IS_UDP, register_5=0))
    for port in DHCP_PORTS:
        matches += Match(register_4=IS_UDP + port), Match(register_5=port)
    for match in matches:
        yield Rule(Table.PORT, Priority.BAD_FRAGMENT, match)
