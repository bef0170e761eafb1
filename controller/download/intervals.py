"""A set of whole numbers as half-open intervals, for the bytes of a file that are there. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class Intervals:
    """Disjoint intervals ``[begin, end)`` in ascending order; neighbours that touch are one interval."""

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        # begin, end, begin, end, ...: strictly ascending.
        self._edges: list[int] = []
        for begin, end in pairs:
            self.add(begin, end)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._edges[::2], self._edges[1::2], strict=True)

    @property
    def total(self) -> int:
        """How many numbers are in the set."""
        return sum(self._edges[1::2]) - sum(self._edges[::2])

    def add(self, begin: int, end: int) -> None:
        """Put ``[begin, end)`` in."""
        if begin < end:
            first, last = bisect_left(self._edges, begin), bisect_right(self._edges, end)
            self._edges[first:last] = [begin] * (first % 2 == 0) + [end] * (last % 2 == 0)

    def remove(self, begin: int, end: int) -> None:
        """Take ``[begin, end)`` out."""
        if begin < end:
            first, last = bisect_left(self._edges, begin), bisect_right(self._edges, end)
            self._edges[first:last] = [begin] * (first % 2) + [end] * (last % 2)

    def covered_to(self, begin: int) -> int:
        """The end of the interval that holds ``begin``; ``begin`` itself if none does."""
        index = bisect_right(self._edges, begin)
        return self._edges[index] if index % 2 else begin

    def first_gap(self, begin: int, end: int) -> tuple[int, int] | None:
        """The first interval of ``[begin, end)`` that is not in the set; None if all of it is."""
        index = bisect_right(self._edges, begin)
        if index % 2:
            begin = self._edges[index]
            index += 1
        if begin >= end:
            return None
        return begin, min(end, self._edges[index]) if index < len(self._edges) else end
