"""The service of access rules: who may make which, where they are installed, when they end
(docs/reference/access-rules.md).
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any

from hyroads.controller.core.access_rules import (
    MOST_FOR_APPLICATIONS,
    AccessRule,
    Action,
    Right,
    expiry,
    overlap,
    parse_rule,
)
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.model.pending_names import switch_name
from hyroads.controller.ofp.access import METER_FIRST, METERS, PROTECTION, Entry, entry_of
from hyroads.controller.runtime.faults import wait_until
from hyroads.controller.runtime.saver import Change
from hyroads.controller.switches.sessions import SwitchSession
from hyroads.rest.contract import (
    OPERATOR,
    ConflictError,
    Document,
    ForbiddenError,
    NotConfirmedError,
    NotFoundError,
    Token,
    TooBusyError,
)

from .port import ControllerPort, changed_since, pending_as_known

LOG = logging.getLogger("hyroads.access")
MAX_RULES = 1024
CONFIRM_S = 5.0
DEFAULT_PRIORITY, DEFAULT_ADMIN_PRIORITY = 100, MOST_FOR_APPLICATIONS + 1
_LOCAL = "local"
"""The owner that version 0.3 saved for rules made without tokens."""
_PROTECTION = ""


@dataclass(eq=False)
class AccessRuleService:
    """One per controller. ``tokens`` are those of the settings, ``guarded`` says whether access ports let in only hosts
    that the controller has placed there, ``clock`` gives Unix time in seconds.
    """

    port: ControllerPort
    _: KW_ONLY
    tokens: Sequence[Token]
    guarded: bool
    clock: Callable[[], float]
    changed_nodes: set[str] | None = None
    """As of ``changed_since``."""

    def __post_init__(self) -> None:
        self._rules: dict[str, AccessRule] = {}
        self._meters: dict[str, int] = {}
        """Number of its meter, by rule."""
        self._ends: list[tuple[float, str]] = []
        self.others: list[Callable[[str], Mapping[str, Entry]]] = []
        """Entries that other services want at a node, by names that no access rule has (they begin with NUL)."""
        self._ready: dict[str, SwitchSession] = {}
        self._had: dict[str, frozenset[str]] = {}
        """By node whose switch is away: the names of which it may have rules."""
        self._macs = self.port.context.addressing.host_mac
        self._node_of = {mac: node for node, mac in self._macs.items()}

    # -- the state file

    def restore(self, documents: object) -> list[ConfigError]:
        """Take in the rules of an earlier controller; returns what is wrong with them. What has expired is left out."""
        problems: list[ConfigError] = []
        for index, document in enumerate(documents if isinstance(documents, list) else ()):
            where = f"services.access_rules[{index}]"
            number = document.get("meter") if isinstance(document, Mapping) else None
            fields = {k: v for k, v in document.items() if k != "meter"} if isinstance(document, Mapping) else document
            try:
                rule = parse_rule(fields, "state file", self._macs)
            except ConfigError as error:
                problems.append(ConfigError("state file", f"{where}.{error.place}", error.problem))
                continue
            if rule.is_over(self.clock()):
                continue
            if not rule.owner or (rule.by_admin and rule.owner == _LOCAL):
                rule = replace(rule, owner=OPERATOR)
            if rule.id in self._rules or len(self._rules) >= MAX_RULES:
                problems.append(
                    ConfigError("state file", where, f"expected {MAX_RULES} rules at most, of different ids")
                )
                continue
            self._rules[rule.id] = rule
            self._note_end(rule)
            if rule.action is Action.LIMIT:
                free = type(number) is int and 0 <= number < METERS and number not in self._meters.values()
                self._meters[rule.id] = number if free and isinstance(number, int) else self._free_meter()
        return problems

    def become(self, documents: object) -> list[ConfigError]:
        """Rules are those that another controller, which leads, has saved; what is wrong with some of them."""
        self._rules, self._meters, self._ends = {}, {}, []
        problems = self.restore(documents)
        # All switches are told of all again.
        self._ready, self._had = {}, {}
        if self.changed_nodes is not None:
            self.changed_nodes.update(self.port.switches)
        return problems

    def to_save(self) -> list[Document]:
        """What :meth:`restore` needs."""
        return [{**rule.document(), "meter": self._meters.get(name)} for name, rule in self._rules.items()]

    def owner(self, name: str) -> str | None:
        """Name of the token that owns a rule; None: there is none of this id."""
        rule = self._rules.get(name)
        return None if rule is None else rule.owner

    # -- rest.access_rules.AccessRules

    def names(self) -> Sequence[str]:
        """Ids of all rules, in the order in which they were made."""
        return tuple(self._rules)

    def documents(self, names: Sequence[str]) -> list[Document]:
        """The rules of these ids; unknown ids are left out."""
        return [self.document(name) for name in names if name in self._rules]

    def document(self, name: str) -> Document:
        """The rule of this id; NotFoundError."""
        rule = self._get(name)
        switches = partial(self._switches, rule)
        pending = pending_as_known(self.port, partial(self.pending, name), switches)
        state = "activating" if pending else "active"
        left_s = None if rule.expires_s is None else max(0.0, rule.expires_s - self.clock())
        document = rule.document()
        del document["by_admin"]
        more = {"expires_in_s": left_s, "state": state if self._is_entitled(rule) else "suspended", "pending": pending}
        return {**document, **more}

    def make(self, document: Mapping[str, Any], who: Token, *, wait: bool) -> tuple[Document, bool]:
        """The rule, made if it is new, and whether it is. ConfigError, ForbiddenError, ConflictError, TooBusyError,
        NotConfirmedError.
        """
        default = DEFAULT_ADMIN_PRIORITY if who.role == "admin" else DEFAULT_PRIORITY
        ends_s = expiry(document, "request", self.clock())
        fields = {"priority": default, **document, "expires_s": ends_s}
        fields.pop("expires_in_s", None)
        mine = {"owner": who.name or OPERATOR, "by_admin": who.role == "admin"}
        new = parse_rule({**fields, **mine}, "request", self._macs)
        known = self._rules.get(new.id)
        if known is not None:
            if known != new:
                raise ConflictError(f"access rule {new.id!r} exists with other content")
            self._confirm(new.id, wait=wait)
            return self.document(new.id), False
        self._check(new, who)
        self._change(new.id, new)
        LOG.info("access rule %s of %s: %s", new.id, new.owner, new.action.value)
        self.port.events.publish("access_rule.made", _told(new))
        self._confirm(new.id, wait=wait)
        return self.document(new.id), True

    def change(self, name: str, document: Mapping[str, Any], who: Token, *, wait: bool) -> Document:
        """Change rate, priority or end of a rule; errors as of :meth:`make`, and NotFoundError."""
        old = self._get(name)
        fields = {**old.document(), **{k: v for k, v in document.items() if k in ("rate_mbps", "priority")}}
        if "expires_s" in document or "expires_in_s" in document:
            fields["expires_s"] = expiry(document, "request", self.clock())
        new = parse_rule(fields, "request", self._macs)
        if new != old:
            # It stays a rule of its owner, and the owner needs the right to it.
            owner = next((token for token in self.tokens if token.name == old.owner), who)
            self._check(new, who if who.role == "admin" else owner)
            self._change(name, new)
            self.port.events.publish("access_rule.changed", _told(new))
        self._confirm(name, wait=wait)
        return self.document(name)

    def remove(self, name: str, *, wait: bool) -> None:
        """End a rule; NotFoundError, NotConfirmedError."""
        self._get(name)
        self._change(name, None)
        self.port.events.publish("access_rule.removed", {"id": name, "reason": "asked for"})
        self._confirm(name, wait=wait)

    def pending(self, name: str) -> list[str]:
        """Switches that have not confirmed their part of a rule. One that is away forwards by the rules that it has, so
        it counts until it is back, however long that takes.
        """
        rule = self._rules.get(name)
        nodes = self._nodes(rule) if rule is not None else frozenset(self.port.context.own_switches)
        return sorted(switch_name(node) for node in nodes if not self._has_confirmed(node, name, is_over=rule is None))

    def _switches(self, rule: AccessRule) -> set[str]:
        """Switches that carry out a rule, as of :meth:`pending`."""
        return {switch_name(node) for node in self._nodes(rule)}

    def waits(self) -> set[str]:
        """Connected switches that have not confirmed the rules of now."""
        ready = {node for node, session in self._ready.items() if session is self.port.switches.get(node)}
        return {switch_name(node) for node in self.port.switches if node not in ready} if self._rules else set()

    def _has_confirmed(self, node: str, name: str, *, is_over: bool) -> bool:
        session = self._ready.get(node)
        if session is not None and session is self.port.switches.get(node):
            return session.access.is_confirmed(name)
        if not is_over:
            return False
        # A switch that has not been read since the start may have any rule.
        had = self._had.get(node) if session is None else session.access.names
        return had is not None and name not in had

    # -- who may

    def use(self, tokens: Sequence[Token]) -> None:
        """Other tokens from now on. Rules of owners who have lost the right to them are suspended."""
        self.tokens = tokens
        for session in self._ready.values():
            session.access.want_all(self._entries(session.node))

    def _right(self, owner: Token) -> Right:
        if owner.role == "admin":
            return Right()
        macs = (self._macs.get(client, client) for client in owner.clients)
        return Right(frozenset(macs), owner.access_rules)

    def _is_entitled(self, rule: AccessRule) -> bool:
        """Whether the owner of a rule still has a right to it."""
        if rule.by_admin:
            return True
        owner = next((token for token in self.tokens if token.name == rule.owner), None)
        return owner is not None and not self._right(owner).problem(rule, self._mac(rule.client))

    def _check(self, new: AccessRule, who: Token) -> None:
        """Whether somebody may make a rule, or change one to it."""
        right = self._right(who)
        problem = right.problem(new, self._mac(new.client))
        if problem:
            raise ForbiddenError(problem)
        others = [rule for name, rule in self._rules.items() if name != new.id]
        if right.most_rules is not None and sum(rule.owner == new.owner for rule in others) >= right.most_rules:
            raise TooBusyError(f"{new.owner} has {right.most_rules} rules already, as many as it may have")
        if len(others) >= MAX_RULES:
            raise TooBusyError(f"there are {MAX_RULES} access rules already")
        if new.action is Action.LIMIT:
            self._check_limit(new, [rule for rule in others if rule.action is Action.LIMIT])
        self.port.saver.check()

    def _check_limit(self, new: AccessRule, others: Sequence[AccessRule]) -> None:
        """A frame passes one meter: which one must not be left to chance."""
        if len(others) >= METERS:
            raise TooBusyError(f"there are {METERS} limits already")
        new = self._by_address(new)
        for other in others:
            if other.priority == new.priority and overlap(self._by_address(other), new):
                raise ConflictError(f"limit {other.id!r} has the same priority, and some frames match both")

    def _by_address(self, rule: AccessRule) -> AccessRule:
        return replace(rule, client=self._mac(rule.client), to=self._mac(rule.to))

    def _get(self, name: str) -> AccessRule:
        rule = self._rules.get(name)
        if rule is None:
            raise NotFoundError(f"no access rule {name[:64]!r}")
        return rule

    # -- what is wanted of switches

    def _change(self, name: str, new: AccessRule | None) -> None:
        """Set a rule (None: remove it) and tell switches; returns once that is saved."""
        self.port.saver.check()
        before, meter = self._rules.get(name), self._meters.get(name)
        change: Change = self.port.saver.change(f"access rule {name}", partial(self._put, name, before, meter))
        self._put(name, new, meter)
        self.port.saver.wait(change)

    def _put(self, name: str, rule: AccessRule | None, meter: int | None) -> None:
        """``meter`` is the number that it had, if it had one."""
        had_rules, old = bool(self._rules), self._rules.get(name)
        self._meters.pop(name, None)
        if rule is None:
            self._rules.pop(name, None)
        else:
            if rule.action is Action.LIMIT:
                self._meters[name] = self._free_meter() if meter is None else meter
            self._rules[name] = rule
            self._note_end(rule)
        everywhere = had_rules != bool(self._rules)
        nodes = {node for each in (old, rule) if each is not None for node in self._nodes(each)}
        for node, session in self._ready.items():
            if everywhere:
                session.access.want(_PROTECTION, PROTECTION if self._rules else None)
            if node in nodes:
                session.access.want(name, self._entry(rule) if rule is not None else None)
            session.access.flush()

    def _entry(self, rule: AccessRule) -> Entry | None:
        if not self._is_entitled(rule):
            return None
        number = self._meters.get(rule.id)
        meter = None if number is None else METER_FIRST + number
        return entry_of(rule, self._mac(rule.client), self._mac(rule.to), meter)

    def _entries(self, node: str) -> dict[str, Entry]:
        """All that is wanted of a switch."""
        found = {rule.id: self._entry(rule) for rule in self._rules.values() if node in self._nodes(rule)}
        entries = {name: entry for name, entry in found.items() if entry is not None}
        for wanted in self.others:
            entries.update(wanted(node))
        return {_PROTECTION: PROTECTION, **entries} if self._rules else entries

    def _nodes(self, rule: AccessRule) -> frozenset[str]:
        """The switches at which frames of a rule can enter. A client may move among them at any time."""
        addressing = self.port.context.addressing
        node = self._node_of.get(self._mac(rule.client) or "")
        if node is None or not self.guarded:
            return frozenset(self.port.context.own_switches)
        if addressing.has_switch(node):
            return frozenset((node,))
        return frozenset(each.node for each in addressing.attachments.get(node, ()))

    def _mac(self, host: str | None) -> str | None:
        return None if host is None else self._macs.get(host, host)

    def _free_meter(self) -> int:
        used = set(self._meters.values())
        return next(number for number in range(METERS + 1) if number not in used)

    def _confirm(self, name: str, *, wait: bool) -> None:
        within_s = CONFIRM_S if wait else 0.0
        done = wait_until(lambda: not self.pending(name), within_s, self.port.clock, self.port.progress)
        if wait and not done:
            raise NotConfirmedError(f"access rule {name}", self.pending(name))

    # -- as time passes

    def follow(self) -> None:
        """Called whenever the event loop turns: switches that came are told of all, and what has expired ends."""
        switches = self.port.switches
        for node in changed_since(self.changed_nodes, self._ready, switches):
            session = switches.get(node)
            if node in self._ready and self._ready[node] is not session:
                self._had[node] = self._ready.pop(node).access.names
            if session is not None and session.is_read and node not in self._ready:
                self._ready[node] = session
                session.access.want_all(self._entries(node))
        self._end(self._expired())

    def _expired(self) -> Iterator[str]:
        now_s = self.clock()
        while self._ends and self._ends[0][0] <= now_s:
            _, name = heapq.heappop(self._ends)
            rule = self._rules.get(name)
            # An end that was put off is in the heap once more.
            if rule is not None and rule.is_over(now_s):
                yield name

    def _end(self, names: Iterable[str]) -> None:
        for name in names:
            self._put(name, None, None)
            self.port.note_unsaved()
            LOG.info("access rule %s has expired", name)
            self.port.events.publish("access_rule.removed", {"id": name, "reason": "expired"})

    def _note_end(self, rule: AccessRule) -> None:
        if rule.expires_s is not None:
            heapq.heappush(self._ends, (rule.expires_s, rule.id))


def _told(rule: AccessRule) -> Document:
    """A rule as events tell of it."""
    document = rule.document()
    del document["by_admin"]
    return document
