"""The slices of a network as immutable data. Reading them from files: ``slicefile``; changing them: ``change``.

Rules of a slice that overlap given matches are found by tuple space search (Srinivasan, Suri, Varghese: "Packet
classification using tuple space search", SIGCOMM 1999), asking for overlap instead of membership. Matches are grouped
by priority and mask. For a query with mask m and a group with mask g, a match overlaps exactly if its value under m & g
is that of the query, so each group has a dictionary by value under m & g, made when first asked for. Real rules have
few masks. An index stays with its immutable slice, so a change costs little more than the rules that changed.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from hashlib import sha256
from types import MappingProxyType

from hyroads.controller.core import network

from .match import ALL, TernaryMatch


class Group:
    """Matches with one priority and mask, each with the number of its rule."""

    def __init__(self, mask: int) -> None:
        self.mask = mask
        self.values: list[int] = []
        self.rules: list[int] = []
        self._tables: dict[int, dict[int, list[int]]] = {}

    def table(self, common: int) -> dict[int, list[int]]:
        """The positions of matches by their value under ``common``."""
        found = self._tables.get(common)
        if found is None:
            found = self._tables[common] = {}
            for position, value in enumerate(self.values):
                found.setdefault(value & common, []).append(position)
        return found

    def match(self, position: int) -> TernaryMatch:
        """The match at a position."""
        return TernaryMatch(self.values[position], self.mask)


class OverlapIndex:
    """The matches of one slice by priority and mask."""

    def __init__(self, entries: Iterable[tuple[int, TernaryMatch, int]]) -> None:
        """``entries`` are (priority, match, number of the rule)."""
        self.groups: dict[int, dict[int, Group]] = {}
        for priority, match, rule in entries:
            masks = self.groups.setdefault(priority, {})
            group = masks.get(match.mask)
            if group is None:
                group = masks[match.mask] = Group(match.mask)
            group.values.append(match.value)
            group.rules.append(rule)

    def overlaps(self, other: OverlapIndex) -> Iterator[tuple[int, TernaryMatch, int, TernaryMatch]]:
        """(rule, match, rule of other, match of other) of all pairs with equal priority that share a header."""
        for priority in self.groups.keys() & other.groups.keys():
            for mine in self.groups[priority].values():
                for theirs in other.groups[priority].values():
                    yield from _pairs(mine, theirs)

    def overlapping(self, priority: int, match: TernaryMatch) -> Iterator[tuple[int, TernaryMatch]]:
        """(rule, match) of this priority that share a header with a match."""
        for group in self.groups.get(priority, {}).values():
            common = group.mask & match.mask
            for position in group.table(common).get(match.value & common, ()):
                yield group.rules[position], group.match(position)


def _pairs(mine: Group, theirs: Group) -> Iterator[tuple[int, TernaryMatch, int, TernaryMatch]]:
    common = mine.mask & theirs.mask
    table = theirs.table(common)
    for position, value in enumerate(mine.values):
        for other in table.get(value & common, ()):
            yield mine.rules[position], mine.match(position), theirs.rules[other], theirs.match(other)


PRODUCTION = network.PRODUCTION
"""The slice that owns every packet which no flowspace rule gives to another."""

LOWEST_PRIORITY, HIGHEST_PRIORITY = 1, 60_000
"""Priorities of flowspace rules; below them is production, above them are the slicer's own rules."""

OPT_IN_LEVELS = 5
"""The rules of a user who has joined a slice have the priority of its ``OptIn`` and the next four."""


class Permission(Enum):
    """What the controllers and the owner of a slice may do."""

    READ = "read"
    """See ports, rules and statistics of the slice."""
    WRITE = "write"
    """Change rules, groups and meters, and send packets."""
    DELEGATE = "delegate"
    """Give parts of the flowspace to slices of its own."""


@dataclass(frozen=True, slots=True)
class Controller:
    """Where the slicer connects to for a slice."""

    host: str
    port: int = 6653
    tls: bool = False

    def __str__(self) -> str:
        """As written in a file."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tls' if self.tls else 'tcp'}:{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Ssid:
    """A wireless network of a slice: one virtual interface on each access point of its topology."""

    name: str
    security: str = "open"
    passphrase_file: str | None = None
    radius: str | None = None
    """The group of RADIUS servers of the access points that authenticate its stations (802.1X)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a slice may use; None is no limit of its own."""

    rate_in_mbps: float | None = None
    """From the slice's hosts into the network, per switch, by meter."""
    rate_out_mbps: float | None = None
    """Out of each port of a switch, by ``queue``; so are the next two."""
    rate_out_least_mbps: float | None = None
    """What its queue gets when a port is busy."""
    dscp: int | None = None
    """What IP packets are marked with as they leave."""
    queue: int | None = None
    """The slice's queue at every port (``queues``); None: whatever a port does without."""
    airtime_share: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """By technology: the part of each domain's airtime that the slice gets when others want it too."""
    packet_ins_per_s: float = 1000.0
    flow_mods_per_s: float = 5000.0
    tables: int = 8
    """Tables of its block on each switch."""
    flow_entries: int = 10_000
    """Per switch."""
    groups: int = 1000
    meters: int = 100


@dataclass(frozen=True, slots=True)
class FlowspaceRule:
    """Packets that match and come in at these ports of these switches belong to the slice."""

    matches: tuple[TernaryMatch, ...]
    """The union of these; none has in_port or metadata."""
    priority: int = 100
    switches: frozenset[int] | None = None
    """Datapath ids; None is every switch."""
    ports: frozenset[int | str] | None = None
    """Numbers or names of ports; None is every port."""
    name: str = ""

    def on(self, dpid: int) -> bool:
        """Whether the rule holds on a switch."""
        return self.switches is None or dpid in self.switches


@dataclass(frozen=True, slots=True)
class OptIn:
    """A slice that users may join: which users, and which part of their traffic."""

    open: bool = True
    """Whether users may join now. Those who have joined stay in a slice that closes."""
    users: frozenset[str] | None = None
    """The users who may be in it; None is every user."""
    matches: tuple[TernaryMatch, ...] = (ALL,)
    """Of a user's own traffic only what belongs to one of these."""
    priority: int = 50
    """Of the lowest of a user's rules (:data:`OPT_IN_LEVELS`); by default below the rules of slices."""
    switches: frozenset[int] | None = None
    ports: frozenset[int | str] | None = None
    most_users: int = 100

    def admits(self, user: str) -> bool:
        """Whether a user may be in the slice."""
        return self.users is None or user in self.users

    def rules(self) -> tuple[FlowspaceRule, ...]:
        """All that users could ever bring into the slice, as rules: each level with all the traffic."""
        return tuple(
            FlowspaceRule(self.matches, self.priority + level, self.switches, self.ports)
            for level in range(OPT_IN_LEVELS)
        )


@dataclass(frozen=True, slots=True)
class Member:
    """A user who has joined a slice (``opt_in``)."""

    user: str
    asked: tuple[TernaryMatch, ...]
    """Of the user's own traffic only what belongs to one of these."""
    rules: tuple[FlowspaceRule, ...]
    """The user's own traffic in the slice."""


@dataclass(frozen=True)
class Slice:
    """One tenant of the network."""

    name: str
    flowspace: tuple[FlowspaceRule, ...] = ()
    controllers: tuple[Controller, ...] = ()
    owner_token_sha256: str = ""
    """Empty: only the operator may use the slice's REST resources."""
    permissions: frozenset[Permission] = frozenset({Permission.READ, Permission.WRITE})
    limits: Limits = Limits()
    ssids: tuple[Ssid, ...] = ()
    parent: str = ""
    """The slice that gave it this part of its own flowspace (``delegation``); empty: the operator did."""
    opt_in: OptIn | None = None
    """None: no user may join it."""
    members: tuple[Member, ...] = ()

    @cached_property
    def declared(self) -> Slice:
        """The slice without its users."""
        return replace(self, members=()) if self.members else self

    @cached_property
    def rules(self) -> tuple[FlowspaceRule, ...]:
        """All that is the slice's: its flowspace, then what its users have brought."""
        return (*self.flowspace, *(rule for member in self.members for rule in member.rules))

    def rule_name(self, number: int) -> str:
        """What a rule is called in a refusal: ``rule 3``, or ``user ann``."""
        after = number - len(self.flowspace)
        for member in self.members:
            if 0 <= after < len(member.rules):
                return f"user {member.user}"
            after -= len(member.rules)
        return f"rule {number}"

    @cached_property
    def index(self) -> OverlapIndex:
        """All rules, indexed for the search of conflicts."""
        return OverlapIndex(
            (rule.priority, match, number) for number, rule in enumerate(self.rules) for match in rule.matches
        )

    def switches(self, known: frozenset[int]) -> frozenset[int]:
        """The switches, of those known, where the slice owns something, or will when users join; all for production."""
        if self.name == PRODUCTION:
            return known
        rules = (*self.flowspace, *(self.opt_in.rules()[:1] if self.opt_in is not None else ()))
        return frozenset(dpid for dpid in known if any(rule.on(dpid) for rule in rules))

    def owned_by(self, token_sha256: str) -> bool:
        """Whether a token with this hash is the owner's; takes the same time for every wrong one."""
        return bool(self.owner_token_sha256) and hmac.compare_digest(self.owner_token_sha256, token_sha256)


@dataclass(frozen=True)
class SliceModel:
    """All slices by name; production is always one of them. Made by ``change.changed`` or ``slicefile``."""

    slices: Mapping[str, Slice]

    def __post_init__(self) -> None:
        """Freezes the mapping and adds production where it is not declared."""
        slices = dict(self.slices)
        slices.setdefault(PRODUCTION, Slice(PRODUCTION))
        object.__setattr__(self, "slices", MappingProxyType(slices))

    @cached_property
    def matches(self) -> int:
        """How many matches all flowspace rules have together."""
        return sum(len(rule.matches) for each in self.slices.values() for rule in each.rules)

    @cached_property
    def declared(self) -> SliceModel:
        """The slices without their users."""
        if not any(each.members for each in self.slices.values()):
            return self
        return SliceModel({name: each.declared for name, each in self.slices.items()})

    @cached_property
    def children(self) -> Mapping[str, tuple[Slice, ...]]:
        """The slices that a slice has given parts of its flowspace, by its name."""
        found: dict[str, tuple[Slice, ...]] = {}
        for each in self.slices.values():
            if each.parent:
                found[each.parent] = (*found.get(each.parent, ()), each)
        return MappingProxyType(found)

    def family(self, name: str) -> frozenset[str]:
        """A slice, its children and theirs."""
        found, waiting = {name}, [name]
        while waiting:
            new = {child.name for child in self.children.get(waiting.pop(), ())} - found
            found |= new
            waiting += new
        return frozenset(found)


EMPTY = SliceModel({})
"""Only production: one controller has the whole network."""


def token_hash(token: str) -> str:
    """What is kept of an owner's token: SHA-256 in hexadecimal. Tokens are long and random, so no salt is needed."""
    return sha256(token.encode()).hexdigest()
