"""Hosts learned at access ports -> their rules on one switch (docs/reference/openflow.md, section 5).

They come and go by the dozen each second, so they are kept apart from the rules of an intent: by priorities of their
own. A rule names the label of the node where the host is and leaves the way there to table LABEL; so it depends on
nothing but that, and is the same on all switches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from ipaddress import ip_address

from . import match as act
from .diff import Installed
from .match import Match
from .pipeline import Priority, Table
from .rule import Rule
from .rules import any_claim_matches, claim_matches, router_matches, server_matches
from .sessions import behind
from .vlan_tags import TagRules, with_tag_rules

_LEARNED = frozenset(
    {
        Priority.LEARNED,
        Priority.LEARNED_VARIANT,
        Priority.LEARNED_HERE,
        Priority.LEARNED_SOURCE,
        Priority.BARRED_SOURCE,
        Priority.BARRED_SERVER,
        Priority.HELD,
    }
)
_OXM_IN_PORT, _OXM_ETH_DST, _OXM_ETH_SRC = 0x80000004, 0x80000606, 0x80000806
_OXM_ARP_SPA, _OXM_ND_TARGET = 0x80002C04, 0x80003E10
_OXM_MPLS_LABEL = 0x80004404


@dataclass(frozen=True, slots=True)
class Here:
    """The host is at own ``port``. ``hairpin``: others behind the same port are reached through the switch, as stations
    of an access point that isolates them are. It may claim ``addresses``.
    """

    mac: str
    port: str
    hairpin: bool = False
    addresses: tuple[str, ...] = ()

    def rules(self, ports: Mapping[str, int]) -> tuple[Rule, ...]:
        """None if the port is missing."""
        number = ports.get(self.port)
        if number is None:
            return ()
        rules: tuple[Rule, ...] = (
            Rule(Table.PORT, Priority.LEARNED_SOURCE, Match(in_port=number, eth_src=self.mac), goto=Table.CHECK),
            Rule(Table.FORWARD, Priority.LEARNED_HERE, Match(eth_dst=self.mac), goto=Table.DELIVER),
            Rule(Table.DELIVER, Priority.LEARNED, Match(eth_dst=self.mac), (act.Output(number),)),
        )
        if self.hairpin:
            match = Match(in_port=number, eth_dst=self.mac)
            rules += (Rule(Table.DELIVER, Priority.LEARNED_VARIANT, match, (act.Output(act.IN_PORT),)),)
        return rules + _claim_rules(number, self.mac, self.addresses)


@dataclass(frozen=True, slots=True)
class Claims:
    """A plain client of the network file at own medium ``port`` has learned ``addresses``, besides that of the file;
    everything else of it follows from the intent.
    """

    mac: str
    port: str
    addresses: tuple[str, ...]

    def rules(self, ports: Mapping[str, int]) -> tuple[Rule, ...]:
        """None if the port is missing."""
        number = ports.get(self.port)
        return () if number is None else _claim_rules(number, self.mac, self.addresses)


@dataclass(frozen=True, slots=True)
class There:
    """The host is at the node behind ``label``: frames of hosts here are sent there, if this switch ``sends``.
    ``follow``: it was here a moment ago, and frames that still come for it are sent after it.
    """

    mac: str
    label: int
    follow: bool = False
    sends: bool = True

    def rules(self, _ports: Mapping[str, int]) -> tuple[Rule, ...]:
        """No port is needed."""
        match, actions = Match(eth_dst=self.mac), (*behind(self.label), act.Resubmit(Table.LABEL))
        tables = (*((Table.FORWARD,) if self.sends else ()), *((Table.DELIVER,) if self.follow else ()))
        return tuple(Rule(table, Priority.LEARNED, match, actions) for table in tables)


class Serving(Enum):
    """As what somebody speaks."""

    DHCP = "DHCP server"
    ROUTER = "IPv6 router"


@dataclass(frozen=True, slots=True)
class Barred:
    """Somebody at own ``port`` uses the MAC of a host that is elsewhere; claims an ``ip`` of another; or speaks as what
    it must not be (``serving``). ``is_station``: it is a plain client of the network file.
    """

    mac: str
    port: str
    ip: str | None = None
    serving: Serving | None = None
    is_station: bool = False

    def rules(self, ports: Mapping[str, int]) -> tuple[Rule, ...]:
        """None if the port is missing."""
        number = ports.get(self.port)
        if number is None:
            return ()
        if self.serving is not None:
            matches = (server_matches if self.serving is Serving.DHCP else router_matches)(number, self.mac)
            table = Table.CHECK if self.is_station else Table.PORT
            return tuple(Rule(table, Priority.BARRED_SERVER, match) for match in matches)
        if self.ip is not None:
            claims = claim_matches(number, self.mac, self.ip)
            return tuple(Rule(Table.CHECK, Priority.BARRED_SOURCE, match) for match in claims)
        return (Rule(Table.PORT, Priority.BARRED_SOURCE, Match(in_port=number, eth_src=self.mac)),)


@dataclass(frozen=True, slots=True)
class Held:
    """Nobody new is let in at own ``port``, and no new claim passes; ``is_station``: at a medium port, where plain
    clients alone are let in anyway.
    """

    port: str
    is_station: bool = False

    @property
    def mac(self) -> str:
        """It is about no host; rules without one go by this name."""
        return NO_HOST

    def rules(self, ports: Mapping[str, int]) -> tuple[Rule, ...]:
        """None if the port is missing."""
        number = ports.get(self.port)
        if number is None:
            return ()
        claims = tuple(Rule(Table.CHECK, Priority.HELD, match) for match in any_claim_matches(number))
        return claims if self.is_station else (Rule(Table.PORT, Priority.HELD, Match(in_port=number)), *claims)


NO_HOST = ""
HostIntent = Here | There | Claims | Barred | Held


def _claim_rules(number: int, mac: str, addresses: Iterable[str]) -> tuple[Rule, ...]:
    claims = (match for ip in addresses for match in claim_matches(number, mac, ip))
    through = (act.Resubmit(Table.ACCESS),)
    return tuple(Rule(Table.CHECK, Priority.LEARNED_SOURCE, match, through) for match in claims)


def host_rules(
    intents: Iterable[HostIntent], ports: Mapping[str, int], tags: TagRules | None = None
) -> tuple[Rule, ...]:
    """The rules of hosts on a switch with these ports; ``tags`` is given in a network with a kernel datapath."""
    return with_tag_rules((rule for intent in intents for rule in intent.rules(ports)), tags)


def is_learned(priority: int) -> bool:
    """Whether a rule of ours with this priority is one of these."""
    return priority in _LEARNED


def host_of(match_fields: bytes) -> str | None:
    """The host that a rule of these is about."""
    return _address(match_fields, _OXM_ETH_SRC) or _address(match_fields, _OXM_ETH_DST)


def label_of(match_fields: bytes) -> int | None:
    """The label that a rule matches."""
    value = _field(match_fields, _OXM_MPLS_LABEL)
    return int.from_bytes(value, "big") if value is not None else None


def source_of(rule: Rule | Installed) -> tuple[int, str] | None:
    """Port number and host of a rule that lets the frames of a host in; None for other rules."""
    if rule.table != Table.PORT or rule.priority not in {Priority.LEARNED_SOURCE, Priority.CLIENT}:
        return None
    mac = _address(rule.match_fields, _OXM_ETH_SRC)
    port = _field(rule.match_fields, _OXM_IN_PORT)
    return (int.from_bytes(port, "big"), mac) if mac is not None and port is not None else None


def held_port_of(rule: Rule | Installed) -> int | None:
    """Number of the port that a rule holds back; None for other rules."""
    port = _field(rule.match_fields, _OXM_IN_PORT)
    is_one = rule.table in {Table.PORT, Table.CHECK} and rule.priority == Priority.HELD
    return int.from_bytes(port, "big") if is_one and port is not None else None


def closed_port_of(rule: Rule | Installed) -> int | None:
    """Number of the port at which a rule drops frames of unknown sources; None for other rules."""
    port = _field(rule.match_fields, _OXM_IN_PORT)
    is_one = (rule.table, rule.priority) == (Table.PORT, Priority.LABELLED) and len(rule.match_fields) == _PORT_ALONE
    return int.from_bytes(port, "big") if is_one and port is not None else None


_PORT_ALONE = 8
"""Bytes of a match of nothing but the port."""


def claim_of(rule: Rule | Installed) -> tuple[str, str] | None:
    """Host and address of a rule that lets a claim pass; None for other rules."""
    if (rule.table, rule.priority) != (Table.CHECK, Priority.LEARNED_SOURCE):
        return None
    mac, ip = _address(rule.match_fields, _OXM_ETH_SRC), _field(rule.match_fields, _OXM_ARP_SPA)
    if ip is None:
        ip = _field(rule.match_fields, _OXM_ND_TARGET)
    return None if mac is None or ip is None else (mac, str(ip_address(ip)))


def _address(fields: bytes, header: int) -> str | None:
    value = _field(fields, header)
    return value.hex(":") if value is not None and len(value) == 6 else None


def _field(fields: bytes, header: int) -> bytes | None:
    """The value of an OXM field."""
    offset, wanted = 0, header.to_bytes(4, "big")
    while offset + 4 <= len(fields):
        end = offset + 4 + fields[offset + 3]
        if fields.startswith(wanted, offset):
            return fields[offset + 4 : end]
        offset = end
    return None
