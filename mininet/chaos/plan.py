"""What is broken, when, and what that may cost: a pure function of network, minutes and seed.

A run takes all pairs of a group of parts and a kind of fault in a random order, again and again; of the group one part
is chosen. Each third event is a pair: two faults at once, at different parts. What may be lost is that of
docs/failures.md, for a machine that does other work, too.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.network import Network

MINUTE_S = 60.0
# Before the first event, and after each: the least time without any fault.
SETTLE_S, QUIET_S = 3.0, 1.0
PAIR_EACH = 3
# The second fault of a pair begins while the first lasts.
STAGGER_S = (0.0, 0.8)
ALL = float("inf")


class Kind(StrEnum):
    """What is done to a part."""

    KILL = "kill"
    STOP = "stop"
    """SIGSTOP, and SIGCONT later."""
    LAG = "lag"
    """Stopped for half of the time, a tenth of a second each: all that it says is late."""
    FULL = "disk full"
    READ_ONLY = "disk read-only"
    JUMP = "clock jump"
    CUT = "cut"
    DELAY = "delay"
    LOSE = "lose"


class Group(StrEnum):
    """Parts of a kind."""

    CONTROLLER = "controller"
    AGENT = "agent"
    SWITCHES = "ovs-vswitchd"
    DATABASE = "ovsdb-server"
    RADIOS = "radios"
    SNMPD = "snmpd"
    SLICER = "slicer"
    ETCD = "etcd"
    LINK = "link"
    CONTROL = "control link"
    """All connections of a kind: of switches, or of agents and radios, with controllers."""


@dataclass(frozen=True)
class Part:
    """What can be broken; ``name`` is that of a node, link, controller or port, or empty where there is one only."""

    group: Group
    name: str = ""

    def __str__(self) -> str:
        return f"{self.group} {self.name}".strip()


@dataclass(frozen=True)
class Fault:
    """One fault; ``amount`` is a delay in ms, a share of packets, or a jump in seconds, where the kind has one."""

    part: Part
    kind: Kind
    amount: float = 0.0

    def __str__(self) -> str:
        units = {
            Kind.DELAY: f" {self.amount:.0f} ms",
            Kind.LOSE: f" {self.amount:.0%}",
            Kind.JUMP: f" {self.amount:+.0f} s",
        }
        return f"{self.part}: {self.kind}{units.get(self.kind, '')}"


@dataclass(frozen=True)
class Event:
    """Faults that last ``hold_s`` together; the second begins ``stagger_s`` after the first."""

    number: int
    faults: tuple[Fault, ...]
    hold_s: float
    stagger_s: float = 0.0

    def __str__(self) -> str:
        return " + ".join(map(str, self.faults))


@dataclass(frozen=True)
class Allowance:
    """What an event may cost. Losses are seconds of a stream: lost packets times their interval.

    ``lost_s`` is for the time until all faults are over, ``ALL``: everything; ``lost_back_s`` from then until all is as
    before, which may take ``back_s``. ``ends`` are parts that may end.
    """

    lost_s: float
    lost_back_s: float
    back_s: float
    ends: frozenset[Part] = frozenset()


@dataclass(frozen=True)
class _Nature:
    """Of a kind at a group: how long it lasts (least, most), what it costs, and how long the plan expects it to take
    until all is as before.
    """

    hold_s: tuple[float, float]
    lost_s: float
    lost_back_s: float
    back_s: float
    usual_s: float
    blind: bool = False
    """Nobody adapts to another fault meanwhile."""
    ends: bool = False
    """The part may end of it, and is started again."""


# Figures of docs/failures.md, times three and half a second more. What is lost does not depend on how long it lasts.
_WAITS_S = 15.0
_DIAL_S = 30.0
_DISK = _Nature((2.0, 5.0), 0.5, 0.5, _WAITS_S, 1.5)
_CLOCK = _Nature((1.0, 3.0), 0.5, 0.5, _WAITS_S, 0.5)
_OVS_KILLED = _Nature((0.5, 1.5), ALL, 5.0, _DIAL_S, 6.0, blind=True)
NATURES: Mapping[tuple[Group, Kind], _Nature] = {
    (Group.CONTROLLER, Kind.KILL): _Nature((1.0, 5.0), 0.5, 0.5, _DIAL_S, 10.0, blind=True),
    (Group.CONTROLLER, Kind.STOP): _Nature((1.0, 6.0), 0.5, 0.5, _DIAL_S, 3.0, blind=True),
    (Group.CONTROLLER, Kind.LAG): _Nature((2.0, 5.0), 0.5, 0.5, _WAITS_S, 1.0, blind=True),
    (Group.CONTROLLER, Kind.FULL): _DISK,
    (Group.CONTROLLER, Kind.READ_ONLY): _DISK,
    (Group.CONTROLLER, Kind.JUMP): _CLOCK,
    (Group.AGENT, Kind.KILL): _Nature((0.5, 3.0), 0.6, 0.6, _WAITS_S, 1.5, blind=True),
    (Group.AGENT, Kind.STOP): _Nature((0.3, 3.0), 2.6, 0.6, _WAITS_S, 1.5, blind=True),
    (Group.AGENT, Kind.LAG): _Nature((2.0, 4.0), 2.6, 0.6, _WAITS_S, 1.5, blind=True),
    (Group.AGENT, Kind.FULL): _DISK,
    (Group.AGENT, Kind.JUMP): _CLOCK,
    (Group.SWITCHES, Kind.KILL): _OVS_KILLED,
    (Group.SWITCHES, Kind.STOP): _Nature((0.3, 2.0), ALL, 1.5, _DIAL_S, 3.0, blind=True),
    (Group.SWITCHES, Kind.LAG): _Nature((1.0, 3.0), ALL, 1.5, _DIAL_S, 2.0, blind=True),
    (Group.SWITCHES, Kind.JUMP): _CLOCK,
    # Open vSwitch in user space forwards nothing without its database, which it dials again after 1, 2, 4 ... 8 s.
    (Group.DATABASE, Kind.KILL): _Nature((0.5, 3.0), ALL, 9.0, _DIAL_S, 5.0, blind=True),
    (Group.DATABASE, Kind.STOP): _Nature((0.5, 4.0), 0.5, 0.5, _WAITS_S, 1.0),
    (Group.DATABASE, Kind.FULL): _DISK,
    (Group.DATABASE, Kind.JUMP): _CLOCK,
    (Group.RADIOS, Kind.KILL): _Nature((0.5, 3.0), 0.5, 0.5, _WAITS_S, 1.5),
    (Group.RADIOS, Kind.STOP): _Nature((0.5, 3.0), 0.5, 0.5, _WAITS_S, 1.0),
    (Group.RADIOS, Kind.LAG): _Nature((2.0, 4.0), 0.5, 0.5, _WAITS_S, 1.0),
    (Group.RADIOS, Kind.FULL): _DISK,
    (Group.RADIOS, Kind.JUMP): _CLOCK,
    (Group.SNMPD, Kind.KILL): _Nature((0.5, 3.0), 0.5, 0.5, _DIAL_S, 4.0),
    (Group.SNMPD, Kind.STOP): _Nature((0.5, 3.0), 0.5, 0.5, _DIAL_S, 2.0),
    (Group.SLICER, Kind.KILL): _Nature((0.5, 2.0), 0.5, 0.5, _DIAL_S, 8.0),
    (Group.SLICER, Kind.STOP): _Nature((0.5, 3.0), 0.5, 0.5, _DIAL_S, 2.0),
    (Group.SLICER, Kind.FULL): _DISK,
    (Group.SLICER, Kind.JUMP): _CLOCK,
    (Group.ETCD, Kind.KILL): _Nature((0.5, 3.0), 0.5, 0.5, _DIAL_S, 3.0),
    (Group.ETCD, Kind.STOP): _Nature((0.5, 3.0), 0.5, 0.5, _DIAL_S, 2.0),
    (Group.ETCD, Kind.FULL): _Nature((2.0, 4.0), 0.5, 0.5, _DIAL_S, 5.0, ends=True),
    (Group.LINK, Kind.CUT): _Nature((1.0, 4.0), 0.9, 0.5, 2 * _WAITS_S, 1.0),
    (Group.LINK, Kind.DELAY): _Nature((2.0, 4.0), 0.5, 0.5, _WAITS_S, 0.5),
    (Group.LINK, Kind.LOSE): _Nature((3.0, 5.0), 0.9, 0.5, 2 * _WAITS_S, 1.0),
    (Group.CONTROL, Kind.CUT): _Nature((1.0, 6.0), 2.6, 1.5, _DIAL_S, 4.0, blind=True),
    (Group.CONTROL, Kind.LOSE): _Nature((3.0, 5.0), 2.6, 1.5, _DIAL_S, 3.0, blind=True),
}
OPENFLOW, AGENTS = "of switches", "of agents"
# Links that have failed before are held down for up to 15 s of quiet (docs/failures.md, Flapping).
HELD_DOWN_S = 20.0
_DELAYS_MS, _SHARES = (20.0, 80.0), (0.05, 0.2)
_JUMPS_S = (-34_560_000.0, -86_400.0, -3_600.0, -5.0, 5.0, 3_600.0, 86_400.0, 34_560_000.0)


def parts_of(
    network: Network,
    *,
    controllers: int = 1,
    etcd: int = 0,
    radios: bool = True,
    snmp: bool = False,
    sliced: bool = False,
) -> tuple[Part, ...]:
    """All parts of an emulated network that can be broken.

    ``controllers`` and ``etcd`` are counts of processes; ``radios``, ``snmp`` and ``sliced`` say whether emulated
    radios, an snmpd per node and a slicer run. Links to plain clients are left out, because these have no other.
    """
    addressing = Addressing.of(network)
    agents = sorted(addressing.agents & addressing.dpid.keys())
    found = [Part(Group.CONTROLLER, f"c{number + 1}") for number in range(controllers)]
    found += [Part(Group.AGENT, node) for node in agents]
    found += [Part(Group.SWITCHES), Part(Group.DATABASE)]
    found += [Part(Group.RADIOS)] if radios else []
    found += [Part(Group.SNMPD, node) for node in sorted(addressing.dpid)] if snmp else []
    found += [Part(Group.SLICER)] if sliced else []
    found += [Part(Group.ETCD, f"etcd{number}") for number in range(etcd)]
    found += [Part(Group.LINK, link) for link in cuttable(network)]
    found += [Part(Group.CONTROL, OPENFLOW), Part(Group.CONTROL, AGENTS)]
    return tuple(found)


def cuttable(network: Network) -> list[str]:
    """Links between switches whose loss, both directions of them, leaves all switches connected."""
    switches = Addressing.of(network).dpid
    found = [link for link in network.links if link.source in switches and link.target in switches]
    return [link.id for link in found if link.source < link.target and connected(network, {link.id})]


def both_directions(network: Network, link: str) -> tuple[str, ...]:
    """A link and its reverse, if it has one."""
    this = next(each for each in network.links if each.id == link)
    ends = (this.target, this.source, this.technology)
    return (link, *(each.id for each in network.links if (each.source, each.target, each.technology) == ends))


def connected(network: Network, without: Collection[str]) -> bool:
    """Whether all switches still reach each other when links, and their reverses, are gone."""
    switches = Addressing.of(network).dpid.keys()
    gone = {each for link in without for each in both_directions(network, link)}
    left = [(link.source, link.target) for link in network.links if link.id not in gone]
    return all(_reached(switches, ends) == switches for ends in (left, [(target, source) for source, target in left]))


def _reached(nodes: Collection[str], ends: Sequence[tuple[str, str]]) -> Collection[str]:
    """The nodes that the first of them reaches over links with these ends, and it."""
    beside: dict[str, set[str]] = {node: set() for node in nodes}
    for source, target in ends:
        if source in beside and target in beside:
            beside[source].add(target)
    seen = set(list(beside)[:1])
    left = list(seen)
    while left:
        new = beside[left.pop()] - seen
        seen |= new
        left += new
    return seen


Way = tuple[Group, Kind]
"""A kind of fault at a group of parts."""


def ways(words: Sequence[str] = ()) -> tuple[Way, ...]:
    """All kinds of faults whose names, as ``ovsdb-server: kill``, contain one of some words; all without any."""
    return tuple(way for way in NATURES if not words or any(each in f"{way[0]}: {way[1]}" for each in words))


def plan(
    network: Network, minutes: float, seed: int, parts: Sequence[Part], among: Collection[Way] = tuple(NATURES)
) -> tuple[Event, ...]:
    """The events of a run of ``minutes`` on a network, the same for the same arguments; none if nothing fits.

    ``parts`` is what can be broken (:func:`parts_of`), ``among`` how.
    """
    rng = random.Random(f"{network.name} {minutes:g} {seed}")  # noqa: S311 - no secret
    deck = _deck(rng, parts, among)
    now_s = SETTLE_S
    events: list[Event] = []
    for first in deck:
        number = len(events) + 1
        faults = [first]
        if number % PAIR_EACH == 0:
            faults += _beside(faults[0], deck, network)
        natures = [NATURES[fault.part.group, fault.kind] for fault in faults]
        hold_s = round(max(rng.uniform(*nature.hold_s) for nature in natures), 1)
        stagger_s = round(rng.uniform(*STAGGER_S), 1) if len(faults) > 1 else 0.0
        now_s += hold_s + stagger_s + max(nature.usual_s for nature in natures) + QUIET_S
        if now_s > minutes * MINUTE_S:
            break
        events.append(Event(number, tuple(faults), hold_s, stagger_s))
    return tuple(events)


def _deck(rng: random.Random, parts: Sequence[Part], among: Collection[Way]) -> Iterator[Fault]:
    """Faults without end: all pairs of group and kind in a random order, then in another."""
    by_group: dict[Group, list[Part]] = {}
    for part in parts:
        by_group.setdefault(part.group, []).append(part)
    found = [way for way in NATURES if way[0] in by_group and way in among]
    while found:
        rng.shuffle(found)
        for group, kind in found:
            yield Fault(rng.choice(by_group[group]), kind, _amount(rng, kind))


def _amount(rng: random.Random, kind: Kind) -> float:
    if kind is Kind.JUMP:
        return rng.choice(_JUMPS_S)
    if kind is Kind.DELAY:
        return round(rng.uniform(*_DELAYS_MS))
    return round(rng.uniform(*_SHARES), 2) if kind is Kind.LOSE else 0.0


def _beside(first: Fault, deck: Iterator[Fault], network: Network) -> list[Fault]:
    """Another fault at another part, if one of the next few fits: two cuts may not part the network."""
    for _ in range(8):
        second = next(deck)
        cuts = {fault.part.name for fault in (first, second) if fault.part.group is Group.LINK}
        if second.part != first.part and connected(network, cuts):
            return [second]
    return []


def allowance(event: Event) -> Allowance:
    """What an event may cost, by docs/failures.md.

    Where one fault of a pair keeps the other from being noticed, all may be lost until both are over. Of a link that
    loses packets, three times its share may be: a path may have it more than once, and its reverse loses packets, too.
    """
    natures = [NATURES[fault.part.group, fault.kind] for fault in event.faults]
    lost_s = sum(nature.lost_s for nature in natures)
    lost_s += sum(
        3 * f.amount * event.hold_s for f in event.faults if f.part.group is Group.LINK and f.kind is Kind.LOSE
    )
    if len(natures) > 1 and any(nature.blind for nature in natures):
        lost_s = ALL
    return Allowance(
        lost_s,
        sum(nature.lost_back_s for nature in natures),
        max(nature.back_s for nature in natures) + HELD_DOWN_S,
        frozenset(f.part for f, nature in zip(event.faults, natures, strict=True) if nature.ends),
    )
