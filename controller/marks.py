"""What agents tell of flows that are handed over: the first number under new paths, and what has come by which. Pure.

It is the agents' server's :class:`~hyroads.controller.agent_markers.MarkerListener`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from hyroads.controller.agent_markers import PathMarks

_Flow = tuple[str, int]
"""The node of an agent, and a flow's number."""


class Marks:
    """Marks of the flows that somebody waits for; all others are left out. ``news`` is called when there are some."""

    def __init__(self, news: Callable[[], None] = lambda: None) -> None:
        self._news = news
        self._first: dict[_Flow, int] = {}
        self._marks: dict[_Flow, dict[int, PathMarks]] = {}
        self._waiting: Counter[_Flow] = Counter()

    # -- agent_markers.MarkerListener

    def first_numbers(self, node: str, first: Mapping[int, int]) -> None:
        """An agent's flows use other paths from these numbers on."""
        self._first.update({(node, number): sequence for number, sequence in first.items()})
        self._news()

    def paths_passed(self, node: str, flow: int, paths: tuple[PathMarks, ...]) -> None:
        """What has come by a flow's watched paths."""
        if self._take(node, flow, paths):
            self._news()

    # -- those who wait

    def await_(self, node: str, number: int) -> None:
        """From now on, marks of a flow at its last edge count; earlier ones don't."""
        self._marks[node, number] = {}
        self._waiting[node, number] += 1

    def forget(self, node: str, number: int) -> None:
        """One of those who waited does not any more."""
        self._waiting[node, number] -= 1
        if self._waiting[node, number] <= 0:
            del self._waiting[node, number]
            self._marks.pop((node, number), None)

    def of(self, node: str, number: int, path: int) -> PathMarks:
        """The latest of a path at the last edge of its flow."""
        return self._marks.get((node, number), {}).get(path) or PathMarks(path, None, None, paused=False)

    def first(self, node: str, number: int) -> int | None:
        """The first number at a flow's first edge since its paths in use last changed; None: none was told."""
        return self._first.get((node, number))

    def reported(self, node: str, report: Mapping[str, Any]) -> bool:
        """An agent's report says again what was told at once; whether somebody waits for any of it."""
        if not self._marks:
            return False
        taken = [self._take(node, flow["number"], tuple(map(_marks, flow["paths"]))) for flow in report["egress"]]
        return any(taken)

    def left(self, node: str) -> None:
        """An agent is gone: what it told is void."""
        self._first = {flow: number for flow, number in self._first.items() if flow[0] != node}
        self._marks = {flow: {} if flow[0] == node else marks for flow, marks in self._marks.items()}

    def _take(self, node: str, number: int, paths: tuple[PathMarks, ...]) -> bool:
        marks = self._marks.get((node, number))
        if marks is None:
            return False
        marks.update({path.id: path for path in paths})
        return True


def _marks(path: Mapping[str, Any]) -> PathMarks:
    return PathMarks(path["id"], path["passed"], path["arrived"], paused=False)
