"""Access rules, and copies of SYNs and of ends -> rules and meters of a switch (docs/reference/openflow.md, 7 and 8).

Access rules lie in table ACCESS, in three bands of priorities: rules that name no control protocol at the bottom, above
them what lets ARP, neighbour discovery and DHCP pass, and at the top rules that name these by their exact fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from hyroads.controller.core.access_rules import AccessRule, Action
from hyroads.controller.core.mptcp import SNAP_BYTES

from . import match as act
from . import wire
from .match import Match
from .pipeline import ETH_TYPE_ARP, ETH_TYPE_IPV4, ETH_TYPE_IPV6, PROTOCOL_ICMPV6, PROTOCOL_UDP, Priority, Table
from .rule import Rule

LOWEST, PROTECTED, EXACT = 100, 10_000, 20_000
"""The first priority of each band; below LOWEST is the table's own last rule."""
_RANK = {Action.ALLOW: 0, Action.LIMIT: 1, Action.DENY: 2}
METER_FIRST, METERS = 0x4800, 256
"""Numbers of the meters that are ours."""
BURST_S, LEAST_BURST_KBIT = 0.1, 600
"""What may pass at once: so much of the rate, at least the largest packet that a host hands to its interface."""
ENTER: tuple[act.Action, ...] = (act.Resubmit(Table.CLASSIFY),)
_IPV6_FRAGMENT = 44
_ROUTER_SOLICITATION, _NEIGHBOUR_ADVERTISEMENT = 133, 136
_DHCP = ((ETH_TYPE_IPV4, 67), (ETH_TYPE_IPV4, 68), (ETH_TYPE_IPV6, 546), (ETH_TYPE_IPV6, 547))


@dataclass(frozen=True, slots=True)
class Meter:
    """Frames beyond ``rate_kbps`` are dropped; whole Ethernet frames count. Or those beyond ``packets_per_s``."""

    number: int
    rate_kbps: int = 0
    packets_per_s: int = 0

    config: bytes = field(init=False, repr=False, compare=False)
    """How a switch that has it describes it."""
    messages: tuple[bytes, bytes] = field(init=False, repr=False, compare=False)
    """Bodies that add it and change it: one of the two is refused, because it is there, or is not."""

    def __post_init__(self) -> None:
        rate, burst = self.rate_kbps, max(round(self.rate_kbps * BURST_S), LEAST_BURST_KBIT)
        if self.packets_per_s:
            rate = burst = self.packets_per_s
        make = partial(wire.meter_mod_body, number=self.number, rate=rate, burst=burst)
        both = (wire.METER_ADD, wire.METER_MODIFY)
        messages = tuple(make(one, in_packets=bool(self.packets_per_s)) for one in both)
        object.__setattr__(self, "messages", messages)
        object.__setattr__(self, "config", wire.meter_config(messages[0]))


@dataclass(frozen=True, slots=True)
class Entry:
    """What one access rule is on a switch."""

    rules: tuple[Rule, ...]
    meter: Meter | None = None
    optional: bool = False
    """A switch may refuse it: that is no fault, and it is not asked again."""


def entry_of(rule: AccessRule, sender: str | None, receiver: str | None, meter: int | None) -> Entry:
    """``sender`` and ``receiver`` are the MAC addresses of its client and of whom it names with ``to``; ``meter`` is
    the number of its own meter, if it limits.

    What denies or limits also takes the fragments that may belong to what it matches; what allows takes none of them.
    """
    match = Match(eth_src=sender, eth_dst=receiver, **dict(rule.match))  # type: ignore[arg-type]
    offset = len(_RANK) * rule.priority + _RANK[rule.action]
    priority = (EXACT if rule.names_control else LOWEST) + offset
    if rule.action is Action.ALLOW:
        return Entry((Rule(Table.ACCESS, priority, match, ENTER),))
    # No fragment shows that it is DHCP, so fragments are always decided in the lowest band.
    places = dict.fromkeys(_fragments(match), LOWEST + offset) | {match: priority}
    if rule.action is Action.DENY:
        return Entry(tuple(Rule(Table.ACCESS, place, each) for each, place in places.items()))
    if meter is None or rule.rate_mbps is None:
        return Entry((Rule(Table.ACCESS, priority, match, ENTER),))
    rules = tuple(Rule(Table.ACCESS, place, each, ENTER, meter=meter) for each, place in places.items())
    return Entry(rules, Meter(meter, max(1, round(rule.rate_mbps * 1000))))


def _fragments(match: Match) -> Iterator[Match]:
    """The fragments that may belong to packets of ``match``, as Open vSwitch shows them to rules (OFPC_FRAG_NORMAL):
    all ports are 0, and a later fragment of IPv6 has the protocol of its fragment header.
    """
    tcp, udp = ((getattr(match, f"{name}_src"), getattr(match, f"{name}_dst")) for name in ("tcp", "udp"))
    if tcp != (None, None):
        yield replace(match, tcp_src=0, tcp_dst=0)
    if udp != (None, None):
        yield replace(match, udp_src=0, udp_dst=0)
    if match.eth_type == ETH_TYPE_IPV6 and match.ip_proto is not None:
        yield replace(match, ip_proto=_IPV6_FRAGMENT, tcp_src=None, tcp_dst=None, udp_src=None, udp_dst=None)


def _protected() -> Iterator[Match]:
    """ARP, neighbour and router discovery, DHCP."""
    yield Match(eth_type=ETH_TYPE_ARP)
    for kind in range(_ROUTER_SOLICITATION, _NEIGHBOUR_ADVERTISEMENT + 1):
        yield Match(eth_type=ETH_TYPE_IPV6, ip_proto=PROTOCOL_ICMPV6, icmpv6_type=kind)
    for eth_type, port in _DHCP:
        yield Match(eth_type=eth_type, ip_proto=PROTOCOL_UDP, udp_dst=port)


PROTECTION = Entry(tuple(Rule(Table.ACCESS, PROTECTED, match, ENTER) for match in _protected()))
"""On each switch that has any access rule."""


def is_access(table: int, priority: int) -> bool:
    """Whether a rule of ours at this place belongs to an access rule, copies SYNs, or meters what a port sends to the
    controller.
    """
    if table in {Table.PORT, Table.CHECK}:
        return priority in _OF_PORTS
    if table == Table.ACCESS:
        return priority >= LOWEST
    # The rules above them see to sizes of frames (``sizes``), and are the switch's own.
    return table == Table.CLASSIFY and Priority.SYN_COPY <= priority < Priority.SIZE


SYN_METER = METER_FIRST + METERS
END_METER = SYN_METER + 1
PORT_METER_FIRST, PORT_METERS = END_METER + 1, 32
"""Of what one port may send to the controller (``port_meters``)."""
LAST_METER = PORT_METER_FIRST + PORT_METERS - 1
_OF_PORTS = frozenset(
    {Priority.METERED, Priority.METERED_ANSWER, Priority.METERED_SERVER, Priority.METERED_AUTHENTICATION}
)
_FIN, _SYN, _RST, _TCP, _COPIED = 0x01, 0x02, 0x04, 6, 1


def syn_copy(packets_per_s: int) -> Entry:
    """TCP segments with SYN that enter here: their first bytes go to the controller, so many a second at most.

    The segment itself takes its way whatever becomes of the copy. It is looked up in the same table again, and a
    register says that it was here: so no other rule has to know of this, and no table is needed for it.
    """
    copy = act.ToController(SNAP_BYTES, SYN_METER)
    return Entry(
        tuple(_syn_rules(Priority.SYN_COPY, None, (copy,))), Meter(SYN_METER, packets_per_s=packets_per_s), True
    )


def syn_no_copy(mac: str) -> Entry:
    """Nothing of a host is copied."""
    return Entry(tuple(_syn_rules(Priority.SYN_NO_COPY, mac, ())), optional=True)


def _syn_rules(priority: Priority, mac: str | None, copy: tuple[act.Action, ...]) -> Iterator[Rule]:
    for eth_type in (ETH_TYPE_IPV4, ETH_TYPE_IPV6):
        match = Match(eth_src=mac, eth_type=eth_type, ip_proto=_TCP, tcp_flags=_SYN, register_2=0)
        yield Rule(Table.CLASSIFY, priority, match, (*copy, act.SetRegister2(_COPIED), act.Resubmit(Table.CLASSIFY)))


def end_meter(packets_per_s: int) -> Entry:
    """The meter of all copies of :func:`end_copy`."""
    return Entry((), Meter(END_METER, packets_per_s=packets_per_s), True)


def end_copy(mac: str, ends: Match) -> Entry:
    """Segments with FIN or RST that one end of a subflow sends and that enter here: their first bytes go to the
    controller, and they go on. ``ends`` has the addresses and ports.
    """
    actions = (act.ToController(SNAP_BYTES, END_METER), act.SetRegister2(_COPIED), act.Resubmit(Table.CLASSIFY))
    matches = (replace(ends, eth_src=mac, ip_proto=_TCP, tcp_flags=flag, register_2=0) for flag in (_FIN, _RST))
    return Entry(tuple(Rule(Table.CLASSIFY, Priority.END_COPY, match, actions) for match in matches), optional=True)


SYN_COOKIES = frozenset(rule.cookie for rule in syn_copy(1).rules)
"""Of packet-ins that these rules cause; they do not depend on the rate."""
