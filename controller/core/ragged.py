"""Arrays of different lengths, by number, side by side in one: those of many numbers are gathered without a loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

IndexArray = NDArray[np.intp]


def places(first: IndexArray, count: IndexArray) -> IndexArray:
    """The places ``first[i], first[i] + 1, ...``, ``count[i]`` of them, for one i after the other."""
    ends = np.cumsum(count)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(first - ends + count, count) + np.arange(total)


class Ragged:
    """By number (0, 1, ...) as many arrays of one length as there are ``types``. Each number has its own length, 0 as
    long as nothing was :meth:`put`.
    """

    def __init__(self, *types: DTypeLike) -> None:
        self._first, self._count = np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp)
        self._columns = [np.zeros(0, dtype=kind) for kind in types]
        self._used = 0

    def put(self, number: int, *arrays: NDArray[Any]) -> None:
        """The arrays of a number, in the place of those before."""
        count = len(arrays[0])
        if number >= len(self._count):
            more = np.zeros(number + 1, dtype=np.intp)
            self._first, self._count = np.append(self._first, more), np.append(self._count, more)
        if count != self._count[number]:
            if self._used + count > len(self._columns[0]):
                self._make_room(number, count)
            self._first[number], self._count[number] = self._used, count
            self._used += count
        at = slice(self._first[number], self._first[number] + count)
        for column, array in zip(self._columns, arrays, strict=True):
            column[at] = array

    def _make_room(self, number: int, count: int) -> None:
        """Leave out what is not used any more, also of a number that will have ``count``."""
        self._count[number] = 0
        _, *columns = self.of(np.arange(len(self._count)))
        self._first = np.cumsum(self._count) - self._count
        self._used = len(columns[0])
        spare = self._used + count + len(self._count)
        self._columns = [np.append(column, np.zeros(spare, dtype=column.dtype)) for column in columns]

    def lengths(self, numbers: IndexArray) -> IndexArray:
        """How long the arrays of some numbers are."""
        return self._count[numbers]

    def items(self, numbers: IndexArray) -> tuple[NDArray[Any], ...]:
        """Item by item of some numbers: of which of them it is (0, 1, ...), which one it is there, and the arrays."""
        first, count = self._first[numbers], self._count[numbers]
        at, of = places(first, count), np.repeat(np.arange(len(count)), count)
        return of, at - first[of], *(column[at] for column in self._columns)

    def of(self, numbers: IndexArray | Sequence[int]) -> tuple[NDArray[Any], ...]:
        """How long the arrays of some numbers are, and then these, one number after the other."""
        count = self._count[numbers]
        at = places(self._first[numbers], count)
        return count, *(column[at] for column in self._columns)
