"""Learned hosts: :class:`HostTables` brings their rules to all switches, losing nothing but what was in flight.

    home       the switch where the host is now lets it in and delivers to it
    others     all others send its frames there; where it was before, frames that still come are sent after it
    cleaning   after a while nothing follows it any more from there
    done

The next step is taken when the switches of the last one have confirmed. A host that moves on meanwhile starts anew.

:class:`HostLayer` keeps one switch at what is wanted. A host that moves changes a handful of rules out of thousands,
dozens of times a second; comparing all that a switch shall do, as ``sessions`` does for the rest, would take longer
than the move. So hosts are compared one by one. One batch at a time is under way; what is wanted meanwhile goes with
the next one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from hyroads.controller.ofp import wire
from hyroads.controller.ofp.diff import Batch, Installed, batch_of, difference
from hyroads.controller.ofp.hosts import Barred, Here, HostIntent, There, claim_of, host_of, host_rules, source_of
from hyroads.controller.ofp.pipeline import Table
from hyroads.controller.ofp.readback import FlowStat
from hyroads.controller.ofp.rule import Rule, RuleKey
from hyroads.controller.ofp.vlan_tags import TagRules, with_tag_rules

FOLLOW_S = 0.5
MAX_BARRED_PER_NODE = 64
MAX_ARRIVALS = 8


class Switch(Protocol):
    """What is needed of ``SwitchSession``."""

    @property
    def ports(self) -> dict[str, int]:
        """Ports by name."""

    @property
    def hosts(self) -> HostLayer:
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


RETRY_REFUSED_S = 5.0
ANSWER_WITHIN_S = 5.0
MAX_PUNTED_PER_S = 200
"""Frames that a switch may send to the controller, and as many at once."""


@dataclass
class HostLayer:
    """``send`` queues bytes on the connection, ``next_xid`` reserves so many transaction ids and gives the first."""

    send: Callable[[bytes], bool]
    next_xid: Callable[[int], int]
    clock: Callable[[], float]
    report: Callable[[str], None]
    changed: Callable[[], None] = lambda: None
    """Told of every confirmation."""
    tags: TagRules | None = None
    may_send: Callable[[], bool] = lambda: True
    """Whether the switch takes changes; until it does what is wanted waits."""
    _installed: dict[str, dict[RuleKey, Installed]] = field(default_factory=lambda: defaultdict(dict))
    _wanted: dict[str, tuple[Rule, ...]] = field(default_factory=dict)
    _dirty: dict[str, None] = field(default_factory=dict)
    _unclaimed: dict[str, None] = field(default_factory=dict)
    """Hosts with rules from before of whom nobody has said yet where they are; nothing of theirs is taken away."""
    _refused: dict[str, float] = field(default_factory=dict)
    _sent: frozenset[str] = frozenset()
    _batch: Batch | None = None
    _deadline_s: float = 0.0
    _stats_xid: int | None = None
    _stats: list[FlowStat] = field(default_factory=list)
    _packets: dict[tuple[int, str], int] = field(default_factory=dict)

    # -- what the controller asks

    @property
    def rule_count(self) -> int:
        """Rules of learned hosts in the switch, as far as is known."""
        return sum(map(len, self._installed.values()))

    def start(self, rules: Iterable[Installed]) -> None:
        """What the switch has from before; and how many frames it may send to the controller from now on."""
        for rule in rules:
            self._installed[host_of(rule.match_fields) or ""][rule.key] = rule
        self._unclaimed = dict.fromkeys(self._installed)
        if self.may_send():
            self.begin()

    def begin(self) -> None:
        """The switch takes changes from now on."""
        self.send(wire.controller_meter(self.next_xid(1), MAX_PUNTED_PER_S))
        self.flush()

    def all_known(self, somewhere: Container[str]) -> None:
        """Hosts that are not ``somewhere`` by now are nowhere: what is left of them from before has to go. What others
        shall have here is yet to be said.
        """
        nowhere = [host for host in self._unclaimed if host not in somewhere]
        for host in nowhere:
            del self._unclaimed[host]
            self._dirty[host] = None

    def sources(self) -> list[tuple[int, str]]:
        """Port number and host of all that are let in by what is in the switch."""
        return [source for rule in self._rules() if (source := source_of(rule)) is not None]

    def claims(self) -> list[tuple[str, str]]:
        """Host and address of all claims that pass by what is in the switch."""
        return [claim for rule in self._rules() if (claim := claim_of(rule)) is not None]

    def _rules(self) -> Iterator[Installed]:
        return (rule for known in self._installed.values() for rule in known.values())

    def want(self, host: str, rules: tuple[Rule, ...]) -> None:
        """All rules of one host, sent with the next :meth:`flush`."""
        is_new = host in self._unclaimed
        self._unclaimed.pop(host, None)
        if is_new or self._wanted.get(host, ()) != rules:
            self._dirty[host] = None
            self._refused.pop(host, None)
        if rules:
            self._wanted[host] = rules
        else:
            self._wanted.pop(host, None)

    def carry(self, tags: TagRules | None) -> None:
        """How VLAN tags are treated from now on, in the rules of all hosts."""
        self.tags = tags
        self._dirty.update(dict.fromkeys(self._wanted))
        self.flush()

    def flush(self) -> None:
        """Send what is not in force yet, unless a batch is under way (then after it)."""
        if self._batch is not None or not self._dirty or not self.may_send():
            return
        hosts, self._dirty = self._dirty, {}
        wanted = with_tag_rules((rule for host in hosts for rule in self._wanted.get(host, ())), self.tags)
        installed = (rule for host in hosts for rule in self._installed.get(host, {}).values())
        change = difference(wanted, installed)
        if not change:
            return
        count = len(change.adds) + len(change.deletes)
        self._batch = batch = batch_of(change, self.next_xid(count + 2))
        self._sent = frozenset(hosts)
        self._deadline_s = self.clock() + ANSWER_WITHIN_S
        self.send(batch.data)

    def is_confirmed(self, host: str) -> bool:
        """Whether all that is wanted for a host is in force, and nothing else."""
        return host not in self._dirty and host not in self._sent and host not in self._refused

    def is_late(self) -> bool:
        """Whether the switch owes an answer for too long; also tries again what was refused."""
        now_s = self.clock()
        for host in [host for host, until_s in self._refused.items() if now_s > until_s]:
            del self._refused[host]
            self._dirty[host] = None
        self.flush()
        return self._batch is not None and now_s > self._deadline_s

    # -- what the switch says

    def on_barrier(self, xid: int) -> bool:
        """A barrier reply; False if it is not for us."""
        batch = self._batch
        if batch is None or not batch.on_barrier(xid):
            return False
        if batch.done:
            self._apply(batch)
            self.flush()
            self.changed()
        return True

    def on_error(self, xid: int, kind: int, code: int) -> bool:
        """An error; False if it is not for us."""
        return self._batch is not None and self._batch.on_error(xid, kind, code)

    def _apply(self, batch: Batch) -> None:
        self._batch, self._sent = None, frozenset()
        added, deleted = batch.in_force()
        for rule in added:
            self._installed[host_of(rule.match_fields) or ""][rule.key] = rule
        for rule in deleted:
            host = host_of(rule.match_fields) or ""
            known = self._installed.get(host, {})
            known.pop(rule.key, None)
            if not known:
                self._installed.pop(host, None)
        for refusal in batch.refusals:
            self.report(f"refused: {refusal}")
        for subject in batch.refused.values():
            self._refused[host_of(subject.match_fields) or ""] = self.clock() + RETRY_REFUSED_S

    # -- who speaks

    def ask_packets(self) -> None:
        """Ask how many frames each host that is let in has sent."""
        self._stats_xid, self._stats = self.next_xid(1), []
        self.send(wire.flow_stats_request(self._stats_xid, table=Table.PORT))

    def on_stats(self, xid: int, flows: Iterable[FlowStat], more: bool) -> list[tuple[int, str]] | None:
        """A part of the answer; with the last one, port and host of those who sent something since the last time."""
        if xid != self._stats_xid:
            return None
        self._stats += flows
        if more:
            return None
        self._stats_xid = None
        before, self._packets = self._packets, _packets(self._stats)
        return [source for source, count in self._packets.items() if count != before.get(source, 0)]


def _packets(stats: Iterable[FlowStat]) -> dict[tuple[int, str], int]:
    sources = ((source_of(s.rule), s.packets) for s in stats)
    return {source: packets for source, packets in sources if source is not None}
