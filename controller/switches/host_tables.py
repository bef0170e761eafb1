"""Learned hosts: :class:`HostTables` brings their rules to all switches, losing nothing but what was in flight.

    home       the switch where the host is now lets it in and delivers to it
    others     all others send its frames there; where it was before, frames that still come are sent after it
    cleaning   after a while nothing follows it any more from there
    done

The next step is taken when the switches of the last one have confirmed. A host that moves on meanwhile starts anew.

Where rules are made on demand (``routes``), "others" are the switches that send to the host and those where it was, and
they are told once the routes to its new home are in force.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from hyroads.controller.ofp.hosts import (
    NO_HOST,
    Barred,
    Claims,
    Held,
    Here,
    HostIntent,
    There,
    host_rules,
)
from hyroads.controller.ofp.rule import Rule

from .host_layer import HostLayer

FOLLOW_S = 0.5
MAX_BARRED_PER_NODE = 64
MAX_ARRIVALS = 8
# A switch that is slow, or can't reach a host's new home, keeps the others waiting for so long.
ROUTES_WITHIN_S = 1.0


class Switch(Protocol):
    """What is needed of ``SwitchSession``."""

    @property
    def ports(self) -> dict[str, int]:
        """Ports by name."""

    @property
    def hosts(self) -> HostLayer:
        """Its learned hosts."""


class RouteHolder(Protocol):
    """Routes between switches that exist only while somebody holds them."""

    def hold(self, source: str, destination: str, holder: Hashable) -> None:
        """A node needs the route to another."""

    def release(self, source: str, destination: str, holder: Hashable) -> None:
        """It needs the route no longer."""

    def is_ready(self, source: str, destination: str) -> bool:
        """Whether the switches of a route have confirmed it."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A port of a node's switch; ``label`` leads to the node."""

    node: str
    port: str
    label: int
    hairpin: bool = False
    addresses: tuple[str, ...] = ()


class Step(Enum):
    """How far a host's rules have come."""

    HOME = "home"
    OTHERS = "others"
    CLEANING = "cleaning"
    DONE = "done"


@dataclass
class _Entry:
    spot: Spot
    step: Step = Step.HOME
    former: frozenset[str] = frozenset()
    clean_at_s: float = 0.0
    routes_until_s: float = 0.0
    arrived: list[Callable[[], None]] = field(default_factory=list)
    there: dict[tuple[bool, bool], tuple[Rule, ...]] = field(default_factory=dict)


class HostTables:
    """``switches`` are those whose rules are known, by node, and ``nodes`` all that have a switch. Without ``routes``
    all switches know all hosts.
    """

    def __init__(self, switches: Mapping[str, Switch], clock: Callable[[], float], nodes: Iterable[str] = ()) -> None:
        self._switches, self._nodes = switches, tuple(nodes)
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._moving: dict[str, None] = {}
        self._unsent: dict[str, None] = {}
        """Nodes whose switches were told of something that they may not have been sent."""
        self._barred: dict[str, dict[Barred, float]] = {}
        self._stations: dict[str, tuple[str, Claims]] = {}
        """Plain clients of the network file that have learned addresses: node, and what is known there of them."""
        self._held_ports: dict[str, dict[str, Held]] = {}
        self._shut_out: dict[str, dict[str, Barred]] = {}
        """Plain clients that are not authenticated, by node."""
        self._admitted: dict[tuple[str, str], list[Callable[[], None]]] = {}
        self.routes: RouteHolder | None = None
        self.are_all_known = False
        """Whether all hosts are placed that switches let in before we began."""
        self._users: dict[str, set[str]] = {}
        self._held: dict[str, set[tuple[str, str]]] = {}
        self._told: dict[str, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, mac: object) -> bool:
        """Whether a host is somewhere."""
        return mac in self._entries

    def spot_of(self, mac: str) -> Spot | None:
        """Where a host's frames are sent."""
        entry = self._entries.get(mac)
        return entry.spot if entry is not None else None

    def place(self, mac: str, spot: Spot, arrived: Callable[[], None] | None = None) -> None:
        """A host is at a place; ``arrived`` is called once it is let in there and the others were told."""
        old = self._entries.get(mac)
        waiting = [arrived] if arrived is not None else []
        self.admit(spot.node, mac, spot.addresses)
        if old is not None and old.spot == spot:
            self._tell(mac, (spot.node,))
            if old.step is Step.DONE:
                for call in waiting:
                    call()
            elif len(old.arrived) < MAX_ARRIVALS:
                old.arrived += waiting
            return
        former = (old.former | {old.spot.node}) - {spot.node} if old is not None else frozenset()
        if old is not None and old.spot.node == spot.node:
            waiting = (old.arrived + waiting)[:MAX_ARRIVALS]
        self._entries[mac] = _Entry(
            spot, former=former, arrived=waiting, routes_until_s=self._clock() + ROUTES_WITHIN_S
        )
        self._moving[mac] = None
        self._hold(mac, {*self._users.get(mac, ()), *former}, spot.node)
        self._tell(mac, (spot.node,))

    def place_station(self, node: str, claims: Claims, arrived: Callable[[], None] | None = None) -> None:
        """A plain client of the network file is at a node, and has these addresses besides that of the file;
        ``arrived`` is called once its switch has confirmed that.
        """
        mac = claims.mac
        self.admit(node, mac, claims.addresses)
        old = self._stations.get(mac)
        self._stations[mac] = (node, claims)
        if old is not None and old[0] != node:
            self._tell(mac, (old[0],))
        self._tell(mac, (node,))
        waiting = self._admitted.setdefault((node, mac), [])
        if arrived is not None and len(waiting) < MAX_ARRIVALS:
            waiting.append(arrived)

    def has_station(self, mac: str) -> bool:
        """Whether a plain client has been placed."""
        return mac in self._stations

    def remove_station(self, mac: str) -> None:
        """A plain client is nowhere."""
        old = self._stations.pop(mac, None)
        if old is not None:
            self._tell(mac, (old[0],))

    def known_at(self, node: str) -> frozenset[str]:
        """Hosts of whom a node's switch has rules, or shall have."""
        stations = (mac for mac, (at, _) in self._stations.items() if at == node)
        return frozenset((*self._entries, *stations, *self._shut_out.get(node, ())))

    def all_known(self, node: str) -> None:
        """Everybody has said by now where they are: rules of others, from before, have to go from a node's switch."""
        switch = self._switches.get(node)
        if switch is not None:
            switch.hosts.all_known(self.known_at(node))
            self._unsent[node] = None

    def admit(self, node: str, mac: str, addresses: Iterable[str] = ()) -> None:
        """A host may be at a node, and have these addresses: it is not barred for that any more."""
        allowed = {None, *addresses}
        self._lift(node, lambda bar: bar.mac == mac and bar.serving is None and bar.ip in allowed)

    def remove(self, mac: str) -> None:
        """A host is nowhere."""
        if mac in self._entries:
            concerned = self._concerned(mac)
            del self._entries[mac]
            self._moving.pop(mac, None)
            self._tell(mac, concerned)
            self._release(mac, set())

    # -- who sends to whom, where rules are made on demand

    def use(self, node: str, mac: str) -> None:
        """Hosts at a node send to a host; the route there is in force."""
        self._users.setdefault(mac, set()).add(node)
        entry = self._entries.get(mac)
        if entry is None:
            return
        self._hold(mac, {node}, entry.spot.node)
        if entry.step is not Step.HOME:
            self._tell(mac, (node,))

    def unuse(self, node: str, mac: str) -> None:
        """They do so no longer."""
        users = self._users.get(mac, set())
        users.discard(node)
        if not users:
            self._users.pop(mac, None)
        entry = self._entries.get(mac)
        if entry is None or node in entry.former:
            return
        self._tell(mac, (node,))
        if entry.step is Step.DONE:
            self._release(mac, self._wanted_routes(mac, entry))

    def adopt(self, node: str, mac: str) -> None:
        """A switch has a rule from before that sends to a host, wherever that is."""
        self._users.setdefault(mac, set()).add(node)
        if mac in self._entries:
            self._hold(mac, {node}, self._entries[mac].spot.node)

    def _hold(self, mac: str, sources: Iterable[str], destination: str) -> None:
        if self.routes is not None:
            for source in sources:
                if source != destination:
                    self.routes.hold(source, destination, mac)
                    self._held.setdefault(mac, set()).add((source, destination))

    def _release(self, mac: str, but: set[tuple[str, str]]) -> None:
        """All routes to where a host was that are not among these."""
        held = self._held.get(mac)
        if self.routes is not None and held is not None:
            for source, destination in held - but:
                self.routes.release(source, destination, mac)
            held &= but
            if not held:
                del self._held[mac]

    def _wanted_routes(self, mac: str, entry: _Entry) -> set[tuple[str, str]]:
        return {(node, entry.spot.node) for node in self._users.get(mac, ()) if node != entry.spot.node}

    def _concerned(self, mac: str) -> Iterable[str]:
        """Nodes whose switches have rules of a host, or shall have."""
        if self.routes is None:
            return self._switches
        entry = self._entries[mac]
        return {entry.spot.node, *entry.former, *self._users.get(mac, ())}

    # -- rules

    def hold(self, node: str, held: Held) -> None:
        """Nobody new is let in at a port of a node's switch."""
        self._held_ports.setdefault(node, {})[held.port] = held
        self._tell(NO_HOST, (node,))

    def release(self, node: str, port: str) -> None:
        """They are again."""
        if self._held_ports.get(node, {}).pop(port, None) is not None:
            self._tell(NO_HOST, (node,))

    def shut_out(self, node: str, barred: Barred, *, shut: bool) -> None:
        """Drop what a plain client sends at a node until it is let in again."""
        known = self._shut_out.setdefault(node, {})
        if shut:
            known[barred.mac] = barred
        elif known.pop(barred.mac, None) is None:
            return
        self._tell(barred.mac, (node,))

    def bar(self, node: str, barred: Barred, for_s: float) -> None:
        """Drop this at a node for a while; it has only so many such rules."""
        bars = self._barred.setdefault(node, {})
        if barred in bars or len(bars) < MAX_BARRED_PER_NODE:
            bars[barred] = self._clock() + for_s
            self._tell(barred.mac, (node,))

    def _lift(self, node: str, which: Callable[[Barred], bool]) -> None:
        bars = self._barred.get(node, {})
        for barred in [barred for barred in bars if which(barred)]:
            del bars[barred]
            self._tell(barred.mac, (node,))

    def switch_ready(self, node: str) -> None:
        """A switch connected, or its ports have changed: it is told of all."""
        known = self._entries if self.routes is None else self._told.get(node, {})
        stations = (mac for mac, (at, _) in self._stations.items() if at == node)
        barred = [*(bar.mac for bar in self._barred.get(node, ())), *self._shut_out.get(node, ())]
        if self._held_ports.get(node):
            self._tell(NO_HOST, (node,))
        hosts = {**dict.fromkeys(known), **dict.fromkeys(stations), **dict.fromkeys(barred)}
        for mac in hosts:
            self._tell(mac, (node,))

    def advance(self) -> None:
        """Take the steps that confirmations and time allow, and send what follows from them."""
        now_s = self._clock()
        for node, bars in self._barred.items():
            over = {barred for barred, until_s in bars.items() if now_s > until_s}
            if over:
                self._lift(node, over.__contains__)
        for mac in list(self._moving):
            self._step(mac, self._entries[mac], now_s)
        self._flush()
        for node, mac in [key for key in self._admitted if self._is_confirmed(key[1], (key[0],))]:
            for call in self._admitted.pop((node, mac)):
                call()

    def pending(self, mac: str) -> list[str]:
        """Switches that have not confirmed their part of a host. One that is away forwards by its old rules, and counts
        until it is back.
        """
        entry = self._entries.get(mac)
        if entry is not None and entry.step is Step.HOME:
            return [entry.spot.node]
        of_all = entry is None or self.routes is None
        nodes = {*self._switches, *self._nodes} if of_all else set(self._concerned(mac))
        return sorted(node for node in nodes if node not in self._switches or not self._is_confirmed(mac, (node,)))

    def _step(self, mac: str, entry: _Entry, now_s: float) -> None:
        home = entry.spot.node
        if entry.step is Step.HOME:
            # Without an answer from home nothing is sent there: it might send it back.
            if home in self._switches and self._is_confirmed(mac, (home,)) and self._may_lead(mac, entry, now_s):
                entry.step, entry.clean_at_s = Step.OTHERS, now_s + FOLLOW_S
                self._tell(mac, [node for node in self._concerned(mac) if node != home])
                calls, entry.arrived = entry.arrived, []
                self._flush()
                for call in calls:
                    call()
        elif entry.step is Step.OTHERS:
            if self._is_confirmed(mac, self._concerned(mac)) and (not entry.former or now_s >= entry.clean_at_s):
                former, entry.former = entry.former, frozenset()
                entry.step = Step.CLEANING
                self._tell(mac, former)
        elif self._is_confirmed(mac, self._concerned(mac)):
            entry.step = Step.DONE
            del self._moving[mac]
            self._release(mac, self._wanted_routes(mac, entry))

    def _may_lead(self, mac: str, entry: _Entry, now_s: float) -> bool:
        """Whether routes lead to a host's home, from where frames are to be sent there."""
        if self.routes is None or now_s >= entry.routes_until_s:
            return True
        home = entry.spot.node
        return all(node == home or self.routes.is_ready(node, home) for node in self._concerned(mac))

    def _is_confirmed(self, mac: str, nodes: Iterable[str]) -> bool:
        known = (self._switches[node] for node in nodes if node in self._switches)
        return all(switch.hosts.is_confirmed(mac) for switch in known)

    def _tell(self, mac: str, nodes: Iterable[str]) -> None:
        for node in nodes:
            self._note_told(mac, node)
            switch = self._switches.get(node)
            if switch is not None:
                switch.hosts.want(mac, self._rules(mac, node, switch.ports))
                self._unsent[node] = None

    def _flush(self) -> None:
        """Send what switches were told of. One that awaits an answer, or takes no changes yet, sends it then."""
        unsent, self._unsent = self._unsent, {}
        for node in unsent:
            switch = self._switches.get(node)
            if switch is not None:
                switch.hosts.flush()

    def _note_told(self, mac: str, node: str) -> None:
        """Which hosts a switch has rules of, for when it connects again."""
        if self.routes is not None:
            told = self._told.setdefault(node, {})
            told.pop(mac, None)
            if mac in self._entries and node in self._concerned(mac):
                told[mac] = None

    def _rules(self, mac: str, node: str, ports: Mapping[str, int]) -> tuple[Rule, ...]:
        if mac == NO_HOST:
            return host_rules(self._held_ports.get(node, {}).values(), ports)
        entry, station = self._entries.get(mac), self._stations.get(mac)
        intents: list[HostIntent] = [barred for barred in self._barred.get(node, ()) if barred.mac == mac]
        shut = self._shut_out.get(node, {}).get(mac)
        if shut is not None and shut not in intents:
            intents.append(shut)
        if station is not None and station[0] == node:
            intents.append(station[1])
        if entry is None or entry.spot.node == node:
            if entry is not None:
                intents.append(Here(mac, entry.spot.port, entry.spot.hairpin, entry.spot.addresses))
            return host_rules(intents, ports)
        follow, sends = node in entry.former, self.routes is None or node in self._users.get(mac, ())
        if (follow, sends) not in entry.there:
            entry.there[follow, sends] = host_rules((There(mac, entry.spot.label, follow, sends),), {})
        return host_rules(intents, ports) + entry.there[follow, sends]
