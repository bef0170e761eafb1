"""Mappings that are never changed: others are made of them, and what two of them differ in is found fast. Pure.

With thousands of flows it costs half a millisecond to compare all of them, and each change asks for it a dozen times.
:func:`patched` therefore notes what it changed, and :func:`differing` looks there first.

Python's collector of cyclic garbage leaves these mappings out: it would walk through each of them three times, 10 ms
for what one change of one flow makes. None can be part of a cycle, as its values were there before it and it is not
changed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import compress, count
from operator import is_not
from typing import Any, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

_MOST_STEPS, _MOST_CHANGED = 32, 512
"""So many mappings that a patched one was made from it can be compared with, by noted changes of so many keys."""
_NUMBERS = count(1)
_leave_out = ctypes.pythonapi.PyObject_GC_UnTrack
_leave_out.argtypes, _leave_out.restype = [ctypes.py_object], None


class _Patched(dict[Key, Value]):
    """``steps`` are the numbers of the mappings that this one was made from, one of another, the first one first; with
    each the keys that the next one may have other values of.
    """

    __slots__ = ("number", "steps")

    def __init__(self, items: Mapping[Key, Value], steps: tuple[tuple[int, Collection[Key]], ...]) -> None:
        super().__init__(items)
        self.number, self.steps = next(_NUMBERS), steps

    def changed_since(self, number: int) -> set[Key] | None:
        """Keys that may have other values since the mapping of that number; None if that is not known, or many."""
        found: set[Key] = set()
        for at, keys in reversed(self.steps):
            found.update(keys)
            if len(found) > _MOST_CHANGED:
                break
            if at == number:
                return found
        return None


@dataclass(frozen=True, eq=False)
class ObjectsById:
    """A list of objects as a mapping by their ids, which is never changed."""

    of: Mapping[str, Any]


def patched(base: Mapping[Key, Value], changes: Mapping[Key, Value], gone: Iterable[Key] = ()) -> Mapping[Key, Value]:
    """A mapping with some values changed or added, and without the keys ``gone`` that are not among these; ``base``
    itself if that is the same. Keys of ``base`` keep their places, others come last. Neither may be changed afterwards.
    """
    changed = {key: value for key, value in changes.items() if key not in base or base[key] is not value}
    missing = [key for key in gone if key in base and key not in changes]
    if not changed and not missing:
        return base
    made = _Patched(base, _steps_from(base, (*changed, *missing)))
    for key in missing:
        del made[key]
    made.update(changed)
    _leave_out(made)
    return made


def in_order_of(
    order: Mapping[Key, object], base: Mapping[Key, Value], changed: Collection[Key], fresh: Mapping[Key, Value]
) -> Mapping[Key, Value]:
    """As :func:`patched`, with ``fresh`` values and without other ``changed`` keys; keys are in the order of ``order``,
    which has all of them.
    """
    made = patched(base, fresh, changed)
    keys = list(filter(made.__contains__, order))
    return made if keys == list(made) else {key: made[key] for key in keys}


def ordered(some: Collection[Key], order: Iterable[Key]) -> Collection[Key]:
    """Some keys, which ``order`` has, as they are there; of one alone nobody has to look."""
    return some if len(some) < 2 else [key for key in order if key in some]


def _steps_from(base: Mapping[Key, Value], keys: Collection[Key]) -> tuple[tuple[int, Collection[Key]], ...]:
    if not isinstance(base, _Patched) or len(keys) > _MOST_CHANGED:
        return ()
    return (*base.steps[1 - _MOST_STEPS :], (base.number, keys))


def differing(before: Mapping[Key, object], after: Mapping[Key, object]) -> set[Key]:
    """Keys that only one of two mappings has, or of which they have different objects, equal or not."""
    if before is after:
        return set()
    if isinstance(before, _Patched) and isinstance(after, _Patched):
        noted = after.changed_since(before.number)
        if noted is not None:
            missing = object()
            return {key for key in noted if before.get(key, missing) is not after.get(key, missing)}
    # In compiled code from end to end.
    found = set(compress(after, map(is_not, map(before.get, after), after.values())))
    if len(before) + len(found) > len(after):
        found |= {key for key in before if key not in after}
    return found
