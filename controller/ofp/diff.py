"""Wanted against installed rules -> the flow-mods that lead from one to the other without a gap in forwarding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hyroads.controller.ofp import wire
from hyroads.controller.ofp.cookie import FULL_MASK, is_ours
from hyroads.controller.ofp.errors import OpenFlowError
from hyroads.controller.ofp.group import GroupDelete, GroupEntry
from hyroads.controller.ofp.group import is_ours as is_our_group
from hyroads.controller.ofp.pipeline import ADD_ORDER
from hyroads.controller.ofp.rule import Rule, RuleKey

_POSITION: Mapping[int, int] = {table: i for i, table in enumerate(ADD_ORDER)}


@dataclass(frozen=True, slots=True)
class Installed:
    """A rule as a switch reports it: table, priority, match fields as on the wire, cookie."""

    table: int
    priority: int
    match_fields: bytes
    cookie: int

    @property
    def key(self) -> RuleKey:
        """What the switch tells rules apart by; the fields are sorted, for switches may report them in any order."""
        return (self.table, self.priority, wire.canonical_fields(self.match_fields))

    @property
    def delete_body(self) -> bytes:
        """The strict flow-mod that deletes this rule, and only if it still has this cookie."""
        return wire.flow_mod_body(
            wire.DELETE_STRICT,
            self.table,
            self.priority,
            self.match_fields,
            cookie=self.cookie,
            cookie_mask=FULL_MASK,
        )


@dataclass(frozen=True)
class Change:
    """What to send: first all of ``adds`` (new rules and overwritten ones), then all of ``deletes``; groups that rules
    refer to come before the rules and go after them.
    """

    adds: tuple[Rule, ...] = ()
    deletes: tuple[Installed, ...] = ()
    group_adds: tuple[GroupEntry, ...] = ()
    group_deletes: tuple[GroupDelete, ...] = ()
    conflicts: tuple[Rule, ...] = ()
    """Wanted rules that are left out because a rule of somebody else has their table, priority and match."""

    def __bool__(self) -> bool:
        return bool(self.adds or self.deletes or self.group_adds or self.group_deletes)


def as_installed(rules: Iterable[Rule]) -> tuple[Installed, ...]:
    """What a switch reports once ``rules`` are in it."""
    return tuple(Installed(rule.table, rule.priority, rule.match_fields, rule.cookie) for rule in rules)


def difference(
    wanted: Iterable[Rule],
    installed: Iterable[Installed],
    groups: Iterable[GroupEntry] = (),
    installed_groups: Iterable[int] = (),
) -> Change:
    """The smallest change from ``installed`` to ``wanted``; rules without our mark are left alone.

    A rule with the same table, priority and match but other actions is overwritten by one flow-mod, which Open vSwitch
    does atomically. Adds start at the end of the pipeline and deletes at its beginning, so a packet never meets a
    rule that leads to a place not ready yet. Raises OpenFlowError if two wanted rules have the same key but differ.
    """
    by_key = _by_key(wanted)
    ours: dict[RuleKey, Installed] = {}
    foreign: set[RuleKey] = set()
    for rule in installed:
        if is_ours(rule.cookie):
            ours[rule.key] = rule
        else:
            foreign.add(rule.key)
    present = {(rule.table, rule.priority, rule.cookie) for rule in ours.values()}
    changed = [rule for rule in by_key.values() if (rule.table, rule.priority, rule.cookie) not in present]
    adds = [rule for rule in changed if rule.key not in foreign]
    conflicts = [rule for rule in changed if rule.key in foreign]
    cookies = {rule.cookie for rule in by_key.values()}
    deletes = [rule for key, rule in ours.items() if rule.cookie not in cookies and key not in by_key]
    adds.sort(key=lambda rule: (_POSITION.get(rule.table, -1), -rule.priority))
    deletes.sort(key=lambda rule: (-_POSITION.get(rule.table, -1), rule.priority))
    there, needed = set(installed_groups), {group.id: group for group in groups}
    return Change(
        tuple(adds),
        tuple(deletes),
        tuple(group for number, group in needed.items() if number not in there),
        tuple(GroupDelete(number) for number in sorted(there) if number not in needed and is_our_group(number)),
        tuple(conflicts),
    )


def _by_key(rules: Iterable[Rule]) -> dict[RuleKey, Rule]:
    found: dict[RuleKey, Rule] = {}
    for rule in rules:
        other = found.setdefault(rule.key, rule)
        if other.cookie != rule.cookie:
            raise OpenFlowError(
                f"table {rule.table}: two rules with priority {rule.priority} and the same match {rule.match}: "
                f"{other.actions} and {rule.actions}"
            )
    return found
