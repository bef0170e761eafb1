"""The access rules of one switch: sends what changed, and knows what is in force (docs/reference/openflow.md)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from hyroads.controller.ofp import wire
from hyroads.controller.ofp.access import LAST_METER, METER_FIRST, Entry, Meter
from hyroads.controller.ofp.diff import Installed, as_installed
from hyroads.controller.ofp.rule import Rule, RuleKey

LOG = logging.getLogger("hyroads.access")
ANSWER_WITHIN_S = 5.0
RETRY_REFUSED_S = 5.0


@dataclass
class _Batch:
    """``subjects``: what a transaction id is about: a rule, or the meter of one; None: it may be refused."""

    first_xid: int
    last_xid: int
    subjects: Mapping[int, Rule | Installed | Meter | None]
    names: frozenset[str]
    deadline_s: float
    refused: list[Rule | Installed | Meter] = field(default_factory=list)


@dataclass
class AccessLayer:
    """``send`` queues bytes on the connection, ``next_xid`` reserves so many transaction ids and gives the first.

    Entries have names. Nothing is sent before both the switch was read (:meth:`start`) and all that is wanted of it is
    known (:meth:`want_all`): until then what an earlier controller installed stays.
    """

    send: Callable[[bytes], bool]
    next_xid: Callable[[int], int]
    clock: Callable[[], float]
    report: Callable[[str], None]
    changed: Callable[[], None] = lambda: None
    may_send: Callable[[], bool] = lambda: True
    """Whether the switch takes changes; until it does what is wanted waits."""
    _installed: dict[RuleKey, Installed] = field(default_factory=dict)
    _wanted: dict[str, Entry] = field(default_factory=dict)
    _by_key: dict[RuleKey, dict[str, Rule]] = field(default_factory=dict)
    _keys: dict[RuleKey, None] = field(default_factory=dict)
    _meters: dict[int, Meter] = field(default_factory=dict)
    """Meters that the switch has, as far as is known."""
    _there: dict[int, bytes] | None = None
    """How the switch describes those that it had when it connected; None: it has not said."""
    _stale: dict[int, None] = field(default_factory=dict)
    _dirty: dict[str, None] = field(default_factory=dict)
    _refused: dict[str, float] = field(default_factory=dict)
    _left_over: set[RuleKey] = field(default_factory=set)
    """Rules of an earlier session that no entry wants and that are not confirmed to be gone."""
    _batch: _Batch | None = None
    _is_read: bool = False
    is_told: bool = False
    refused: set[str] = field(default_factory=set)
    """Optional entries that this switch has refused: they are not asked of it again."""

    # -- what the controller asks

    @property
    def rule_count(self) -> int:
        """Rules of access rules in the switch, as far as is known."""
        return len(self._installed)

    def start(self, rules: Iterable[Installed]) -> None:
        """What the switch has from before."""
        self._installed = {rule.key: rule for rule in rules}
        self._is_read = True

    def meters_are(self, there: Mapping[int, bytes]) -> None:
        """What the switch's meters do, as it describes them, by number."""
        self._there = {**(self._there or {}), **there}

    def want_all(self, entries: Mapping[str, Entry]) -> None:
        """All entries of this switch; whatever else is there goes."""
        for name in [*self._wanted.keys() - entries.keys()]:
            self._set(name, None)
        for name, entry in entries.items():
            self._set(name, entry)
        if not self.is_told:
            # Numbers of an earlier controller's meters can't be told from the rules that use them.
            used = {entry.meter.number for entry in entries.values() if entry.meter is not None}
            numbers = range(METER_FIRST, LAST_METER + 1)
            there = numbers if self._there is None else [n for n in self._there if n in numbers]
            self._stale.update(dict.fromkeys(n for n in there if n not in used))
            self._keys.update(dict.fromkeys(self._installed))
            self._left_over = {key for key in self._installed if key not in self._by_key}
        self.is_told = True
        self.flush()

    def want(self, name: str, entry: Entry | None) -> None:
        """Another entry of a name, or none; sent with the next :meth:`flush`."""
        if self._wanted.get(name) != entry:
            self._set(name, entry)

    def _set(self, name: str, entry: Entry | None) -> None:
        old = self._wanted.pop(name, None)
        for rule in old.rules if old is not None else ():
            users = self._by_key[rule.key]
            del users[name]
            if not users:
                del self._by_key[rule.key]
            self._keys[rule.key] = None
        if old is not None and old.meter is not None:
            self._stale[old.meter.number] = None
        self._dirty[name] = None
        self._refused.pop(name, None)
        if entry is None or name in self.refused:
            return
        self._wanted[name] = entry
        for rule in entry.rules:
            self._by_key.setdefault(rule.key, {})[name] = rule
            self._left_over.discard(rule.key)
            self._keys[rule.key] = None

    def flush(self) -> None:
        """Send what is not in force yet, unless a batch is under way (then after it)."""
        ready = self._is_read and self.is_told and self.may_send()
        if self._batch is not None or not ready or not (self._dirty or self._keys):
            return
        names, self._dirty = self._dirty, {}
        keys, self._keys = self._keys, {}
        steps = [*self._meter_steps(names), *self._rule_steps(keys), *self._stale_steps()]
        if not steps:
            self.changed()
            return
        first = self.next_xid(len(steps) + 1)
        last = first + len(steps)
        parts = [wire.message(body, first + i, kind) for i, (kind, body, _) in enumerate(steps)]
        subjects = {first + i: subject for i, (_, _, subject) in enumerate(steps)}
        self._batch = _Batch(first, last, subjects, frozenset(names), self.clock() + ANSWER_WITHIN_S)
        self.send(b"".join(parts) + wire.barrier_request(last))

    def _meter_steps(self, names: Iterable[str]) -> list[tuple[int, bytes, Meter | None]]:
        steps: list[tuple[int, bytes, Meter | None]] = []
        for name in names:
            entry = self._wanted.get(name)
            meter = entry.meter if entry is not None else None
            if meter is None:
                continue
            self._stale.pop(meter.number, None)
            there = self._there.pop(meter.number, None) if self._there else None
            if self._meters.get(meter.number) != meter and there == meter.config:
                self._meters[meter.number] = meter
            elif self._meters.get(meter.number) != meter:
                add, change = meter.messages
                # The one finds it there, or the other does not; what is left is the rate that is wanted.
                steps += [(wire.METER_MOD, add, None), (wire.METER_MOD, change, meter)]
                self._meters[meter.number] = meter
        return steps

    def _rule_steps(self, keys: Iterable[RuleKey]) -> list[tuple[int, bytes, Rule | Installed]]:
        adds: list[Rule] = []
        deletes: list[Installed] = []
        for key in keys:
            there = self._installed.get(key)
            users = self._by_key.get(key)
            if users:
                # Rules of several owners may say the same; which of them is installed makes no difference.
                rule = users[min(users)]
                if there is None or there.cookie != rule.cookie:
                    adds.append(rule)
            elif there is not None:
                deletes.append(there)
        adds.sort(key=lambda rule: -rule.priority)
        deletes.sort(key=lambda rule: rule.priority)
        return [
            *((wire.FLOW_MOD, rule.add_body, rule) for rule in adds),
            *((wire.FLOW_MOD, rule.delete_body, rule) for rule in deletes),
        ]

    def _stale_steps(self) -> list[tuple[int, bytes, None]]:
        stale, self._stale = self._stale, {}
        for number in stale:
            self._meters.pop(number, None)
        return [(wire.METER_MOD, wire.meter_mod_body(wire.METER_DELETE, number), None) for number in stale]

    def is_confirmed(self, name: str) -> bool:
        """Whether what is wanted of a name is in force, and nothing else of it. Which name a rule of an earlier session
        had is not known, so none is confirmed before all of those are gone.
        """
        sent = self._batch.names if self._batch is not None else ()
        is_known = self.is_told and not self._left_over
        return is_known and name not in self._dirty and name not in sent and name not in self._refused

    @property
    def names(self) -> frozenset[str]:
        """Names of which the switch may have rules."""
        sent = self._batch.names if self._batch is not None else ()
        return frozenset((*self._wanted, *self._dirty, *sent, *self._refused))

    @property
    def is_in_force(self) -> bool:
        """Whether all that is wanted is in force, and nothing else."""
        return self.is_idle and not self._left_over

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on its way, to be sent, or to be tried again."""
        return self._batch is None and not (self._dirty or self._keys or self._refused)

    def is_late(self) -> bool:
        """Whether the switch owes an answer for too long; also tries again what was refused."""
        now_s = self.clock()
        for name in [name for name, until_s in self._refused.items() if now_s > until_s]:
            del self._refused[name]
            self._dirty[name] = None
            entry = self._wanted.get(name)
            if entry is not None:
                self._keys.update(dict.fromkeys(rule.key for rule in entry.rules))
        self.flush()
        return self._batch is not None and now_s > self._batch.deadline_s

    # -- what the switch says

    def on_error(self, xid: int, kind: int, code: int) -> bool:
        """An error; False if it is not for us."""
        batch = self._batch
        if batch is None or xid not in batch.subjects:
            return False
        subject = batch.subjects[xid]
        if subject is not None:
            batch.refused.append(subject)
            what = f"refused an access rule: {type(subject).__name__.lower()}, error type {kind} code {code}"
            if self._is_optional(batch, subject):
                LOG.info("%s, which it may", what)
            else:
                self.report(what)
        return True

    def _is_optional(self, batch: _Batch, subject: Rule | Installed | Meter) -> bool:
        entries = [entry for name in batch.names if (entry := self._wanted.get(name)) is not None]
        return any(entry.optional and (subject == entry.meter or subject in entry.rules) for entry in entries)

    def on_barrier(self, xid: int) -> bool:
        """A barrier reply; False if it is not for us."""
        batch = self._batch
        if batch is None or xid != batch.last_xid:
            return False
        self._batch = None
        self._apply(batch)
        self.flush()
        self.changed()
        return True

    def _apply(self, batch: _Batch) -> None:
        refused = [subject.key for subject in batch.refused if not isinstance(subject, Meter)]
        for subject in batch.subjects.values():
            if isinstance(subject, Rule) and subject.key not in refused:
                self._installed[subject.key] = as_installed((subject,))[0]
            elif isinstance(subject, Installed) and subject.key not in refused:
                self._installed.pop(subject.key, None)
                self._left_over.discard(subject.key)
        numbers = [subject.number for subject in batch.refused if isinstance(subject, Meter)]
        for number in numbers:
            self._meters.pop(number, None)
        until_s = self.clock() + RETRY_REFUSED_S
        for name in batch.names:
            entry = self._wanted.get(name)
            if entry is None:
                continue
            is_without = entry.meter is not None and entry.meter.number in numbers
            if not is_without and not any(rule.key in refused for rule in entry.rules):
                continue
            if entry.optional:
                self.refused.add(name)
                self._set(name, None)
            else:
                self._refused[name] = until_s
