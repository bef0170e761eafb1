"""Changing the slices: the new model or a refusal, never something between.

The rule that keeps slices apart: *two flowspace rules of different slices with equal priority must not share a packet*,
on any port of any switch. With it, every packet has exactly one owner: that of the rule of highest priority. Different
priorities are how a slice is carved out of another, and production lies under all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import TypeVar

from .delegation import reasons
from .errors import ConflictError
from .match import ALL, describe, intersection
from .model import PRODUCTION, FlowspaceRule, Slice, SliceModel

T = TypeVar("T")

MAX_SLICES = 1000
MAX_MATCHES = 200_000
MAX_REASONS = 10


@dataclass(frozen=True, slots=True)
class ModelChange:
    """The names of slices that differ between two models."""

    added: frozenset[str]
    removed: frozenset[str]
    changed: frozenset[str]

    @property
    def names(self) -> frozenset[str]:
        """All slices that the change is about."""
        return self.added | self.removed | self.changed

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


def changed(model: SliceModel, put: Iterable[Slice] = (), remove: Iterable[str] = ()) -> tuple[SliceModel, ModelChange]:
    """The model with slices added or replaced and others removed, with their children, and what differs.

    :class:`ConflictError` names every pair of rules (the first ten) that would own the same packets, a slice to remove
    that is not there, or a limit of all slices together that is broken. The given model is never touched.
    """
    slices = dict(model.slices)
    for name in remove:
        if name not in model.slices or name == PRODUCTION:
            raise ConflictError(f"slice {name} can't be removed: expected one of the slices other than {PRODUCTION}")
        for child in model.family(name):
            slices.pop(child, None)
    slices |= {each.name: each for each in put}
    new = SliceModel(slices)
    difference = difference_of(model, new)
    check(new, difference.added | difference.changed)
    return new, difference


def difference_of(old: SliceModel, new: SliceModel) -> ModelChange:
    """Which slices differ; a slice that is the same object costs nothing to compare."""
    before, after = old.slices, new.slices
    # As tuples, whose items are compared by identity first.
    differing = {name for name, each in after.items() if name in before and (before[name],) != (each,)}
    return ModelChange(
        frozenset(after.keys() - before.keys()), frozenset(before.keys() - after.keys()), frozenset(differing)
    )


def check(model: SliceModel, names: Iterable[str]) -> None:
    """Raises :class:`ConflictError` if the named slices don't fit the others of the model."""
    if len(model.slices) > MAX_SLICES or model.matches > MAX_MATCHES:
        raise ConflictError(
            f"expected at most {MAX_SLICES} slices and {MAX_MATCHES} matches, "
            f"got {len(model.slices)} and {model.matches}"
        )
    _check_airtime(model)
    _check_queues(model)
    named = frozenset(names)
    found = list(islice(chain(conflicts(model, named), reasons(model, named)), MAX_REASONS))
    if found:
        raise ConflictError("; ".join(found))


def conflicts(model: SliceModel, names: frozenset[str]) -> Iterator[str]:
    """Every pair of rules of the named slices and any others that would own the same packets, and which ones."""
    done: set[str] = set()
    for name in sorted(names & model.slices.keys()):
        done.add(name)
        for other in model.slices.values():
            if other.name not in done:
                yield from _between(model.slices[name], other)


def _between(one: Slice, other: Slice) -> Iterator[str]:
    seen = set()
    for number, match, other_number, other_match in one.index.overlaps(other.index):
        rule, against = one.rules[number], other.rules[other_number]
        where = _meeting(rule, against)
        if where is None or (number, other_number) in seen:
            continue
        seen.add((number, other_number))
        packets = describe(intersection(match, other_match) or ALL)
        rules = f"slice {one.name}, {one.rule_name(number)} and slice {other.name}, {other.rule_name(other_number)}"
        yield f"{rules}: both have priority {rule.priority} and match {packets} {where}"


def _meeting(one: FlowspaceRule, other: FlowspaceRule) -> str | None:
    """Where both rules hold, in words; None if nowhere."""
    switches = _common(one.switches, other.switches)
    if switches is not None and not switches:
        return None
    where = "on every switch" if switches is None else f"on switch {min(switches):#x}"
    ports = _common(one.ports, other.ports)
    if ports is None:
        return where
    if ports:
        return f"{where}, port {min(ports, key=str)}"
    mine, theirs = one.ports or frozenset(), other.ports or frozenset()
    pair = _maybe_equal(mine, theirs) or _maybe_equal(theirs, mine)
    return pair and f"{where}, where port {pair[0]} may be port {pair[1]} (write both as names or both as numbers)"


def _common(one: frozenset[T] | None, other: frozenset[T] | None) -> frozenset[T] | None:
    """Intersection where None is everything."""
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _maybe_equal(names: frozenset[int | str], numbers: frozenset[int | str]) -> tuple[str, int] | None:
    """A name of one set and a number of the other: which port has the name is not known here."""
    name = min((port for port in names if isinstance(port, str)), default=None)
    number = min((port for port in numbers if isinstance(port, int)), default=None)
    return None if name is None or number is None else (name, number)


def _check_airtime(model: SliceModel) -> None:
    """Of those who have it from the operator: a child's share is a part of its parent's."""
    totals: dict[str, float] = {}
    for each in model.slices.values():
        if each.parent:
            continue
        for technology, share in each.limits.airtime_share.items():
            totals[technology] = totals.get(technology, 0.0) + share
    for technology, total in totals.items():
        if total > 1 + 1e-9:
            raise ConflictError(f"the airtime shares of {technology} add up to {total:.3g}, expected at most 1")


def _check_queues(model: SliceModel) -> None:
    """A queue that two slices share would hold both to one rate."""
    owners: dict[int, str] = {}
    for each in model.slices.values():
        queue = each.limits.queue
        if queue is not None and owners.setdefault(queue, each.name) != each.name:
            raise ConflictError(f"slice {owners[queue]} and slice {each.name} have the same queue {queue}")
