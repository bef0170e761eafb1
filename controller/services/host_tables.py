"""Brings the rules of learned hosts to all switches, in an order that loses nothing but what was in flight.

    home       the switch where the host is now lets it in and delivers to it
    others     all others send its frames there; where it was before, frames that still come are sent after it
    cleaning   after a while nothing follows it any more from there
    done

The next step is taken when the switches of the last one have confirmed. A host that moves on meanwhile starts anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from hyroads.controller.ofp.hosts import Barred, Here, HostIntent, There, host_rules
from hyroads.controller.ofp.rule import Rule

FOLLOW_S = 0.5
MAX_BARRED_PER_NODE = 64
MAX_ARRIVALS = 8


class Hosts(Protocol):
    """What is needed of ``SwitchSession.hosts``."""

    def want(self, host: str, rules: tuple[Rule, ...]) -> None:
        """All rules of a host."""

    def flush(self) -> None:
        """Send the difference."""

    def is_confirmed(self, host: str) -> bool:
        """Whether they are in force."""


class Switch(Protocol):
    """What is needed of ``SwitchSession``."""

    @property
    def ports(self) -> dict[str, int]:
        """Ports by name."""

    @property
    def hosts(self) -> Hosts:
        """Its learned hosts."""


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
    arrived: list[Callable[[], None]] = field(default_factory=list)
    there: dict[bool, tuple[Rule, ...]] = field(default_factory=dict)


class HostTables:
    """``switches`` are those whose rules are known, by node."""

    def __init__(self, switches: Mapping[str, Switch], clock: Callable[[], float]) -> None:
        self._switches = switches
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._moving: dict[str, None] = {}
        self._barred: dict[str, dict[Barred, float]] = {}

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
        self._lift(spot.node, lambda bar: bar.mac == mac and not bar.serving and bar.ip in {None, *spot.addresses})
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
        self._entries[mac] = _Entry(spot, former=former, arrived=waiting)
        self._moving[mac] = None
        self._tell(mac, (spot.node,))

    def remove(self, mac: str) -> None:
        """A host is nowhere."""
        if self._entries.pop(mac, None) is not None:
            self._moving.pop(mac, None)
            self._tell(mac, self._switches)

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
        hosts = {**dict.fromkeys(self._entries), **dict.fromkeys(bar.mac for bar in self._barred.get(node, ()))}
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
        for switch in self._switches.values():
            switch.hosts.flush()

    def pending(self, mac: str) -> list[str]:
        """Switches that have not confirmed what is wanted of them for a host."""
        entry = self._entries.get(mac)
        if entry is not None and entry.step is Step.HOME:
            return [entry.spot.node]
        return [node for node, switch in self._switches.items() if not switch.hosts.is_confirmed(mac)]

    # -- inside

    def _step(self, mac: str, entry: _Entry, now_s: float) -> None:
        home = entry.spot.node
        if entry.step is Step.HOME:
            # Without an answer from home nothing is sent there: it might send it back.
            if home in self._switches and self._is_confirmed(mac, (home,)):
                entry.step, entry.clean_at_s = Step.OTHERS, now_s + FOLLOW_S
                self._tell(mac, (node for node in self._switches if node != home))
                calls, entry.arrived = entry.arrived, []
                for switch in self._switches.values():
                    switch.hosts.flush()
                for call in calls:
                    call()
        elif entry.step is Step.OTHERS:
            if self._is_confirmed(mac, self._switches) and (not entry.former or now_s >= entry.clean_at_s):
                former, entry.former = entry.former, frozenset()
                entry.step = Step.CLEANING
                self._tell(mac, former)
        elif self._is_confirmed(mac, self._switches):
            entry.step = Step.DONE
            del self._moving[mac]

    def _is_confirmed(self, mac: str, nodes: Iterable[str]) -> bool:
        return all(self._switches[node].hosts.is_confirmed(mac) for node in nodes)

    def _tell(self, mac: str, nodes: Iterable[str]) -> None:
        for node in nodes:
            switch = self._switches.get(node)
            if switch is not None:
                switch.hosts.want(mac, self._rules(mac, node, switch.ports))

    def _rules(self, mac: str, node: str, ports: Mapping[str, int]) -> tuple[Rule, ...]:
        entry = self._entries.get(mac)
        intents: list[HostIntent] = [barred for barred in self._barred.get(node, ()) if barred.mac == mac]
        if entry is None or entry.spot.node == node:
            if entry is not None:
                intents.append(Here(mac, entry.spot.port, entry.spot.hairpin, entry.spot.addresses))
            return host_rules(intents, ports)
        follow = node in entry.former
        if follow not in entry.there:
            entry.there[follow] = host_rules((There(mac, entry.spot.label, follow),), {})
        return host_rules(intents, ports) + entry.there[follow]
