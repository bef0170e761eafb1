"""Rules of learned hosts in one switch: :class:`HostLayer` keeps it at what is wanted.

A host that moves changes a handful of rules out of thousands, dozens of times a second; comparing all that a switch
shall do, as ``sessions`` does for the rest, would take longer than the move. So hosts are compared one by one. One
batch at a time is under way; what is wanted meanwhile goes with the next one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from hyroads.controller.ofp import wire
from hyroads.controller.ofp.diff import Batch, Installed, batch_of, difference
from hyroads.controller.ofp.hosts import NO_HOST, claim_of, closed_port_of, held_port_of, host_of, source_of
from hyroads.controller.ofp.pipeline import Table
from hyroads.controller.ofp.readback import FlowStat
from hyroads.controller.ofp.rule import FULL_MASK, Rule, RuleKey
from hyroads.controller.ofp.vlan_tags import TagRules, with_tag_rules

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
    is_metered: bool = False
    """Whether it is known to have the meter of what it may send to the controller."""
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
    _dropped: dict[int, int] = field(default_factory=dict)
    _held_xid: int | None = None
    _held: dict[RuleKey, FlowStat] = field(default_factory=dict)

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
        if not self.is_metered:
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

    def remote(self) -> list[str]:
        """Hosts that are elsewhere, to which frames are sent by what is in the switch."""
        here = {mac for _, mac in self.sources()}
        forwards = {host_of(rule.match_fields) for rule in self._rules() if rule.table == Table.FORWARD}
        return [mac for mac in forwards if mac is not None and mac not in here]

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
        """Whether all that is wanted for a host is in force, and nothing else: no rules from before either."""
        waiting = (self._dirty, self._sent, self._refused, self._unclaimed)
        return not any(host in hosts for hosts in waiting)

    @property
    def is_in_force(self) -> bool:
        """Whether all that is wanted is in force, and no rules from before are left."""
        return self.is_idle and not self._unclaimed

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on its way, to be sent, or to be tried again."""
        return self._batch is None and not (self._dirty or self._refused)

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
        held = self._installed.get(NO_HOST, {})
        self._held = {key: stat for key, stat in self._held.items() if key in held}
        if held:
            self._held_xid = self.next_xid(1)
            ask = partial(wire.flow_stats_request, self._held_xid, cookie_mask=FULL_MASK)
            self.send(b"".join(ask(table=rule.table, cookie=rule.cookie) for rule in held.values()))

    def held_packets(self, number: int) -> int | None:
        """Frames that were dropped at a port that is held back, when it was last asked; None: it has not said."""
        told = [stat.packets for stat in self._held.values() if held_port_of(stat.rule) == number]
        return sum(told) if told else None

    def dropped_packets(self, number: int) -> int | None:
        """Frames of unknown sources that were dropped at a port under 802.1X, when it was last asked; None: unknown."""
        return self._dropped.get(number)

    def on_stats(self, xid: int, flows: Iterable[FlowStat], more: bool) -> list[tuple[int, str]] | None:
        """A part of the answer; with the last one, port and host of those who sent something since the last time."""
        if xid == self._held_xid:
            self._held.update((stat.rule.key, stat) for stat in flows)
        if xid != self._stats_xid:
            return None
        self._stats += flows
        if more:
            return None
        self._stats_xid = None
        before, self._packets = self._packets, _packets(self._stats)
        ports = ((closed_port_of(stat.rule), stat.packets) for stat in self._stats)
        self._dropped = {number: packets for number, packets in ports if number is not None}
        return [source for source, count in self._packets.items() if count != before.get(source, 0)]


def _packets(stats: Iterable[FlowStat]) -> dict[tuple[int, str], int]:
    sources = ((source_of(s.rule), s.packets) for s in stats)
    return {source: packets for source, packets in sources if source is not None}
