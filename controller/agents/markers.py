"""Sequence markers of flows that are handed over or copied (docs/reference/dataplane.md, *Handovers and copies*). Pure.

An agent reports the first sequence number that it sent by new paths, and which numbers arrived by which path.
:class:`SequenceMarkers` stores them for those who wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .protocol import ProtocolError

NUMBERS = 2**32
MAX_FLOWS, MAX_PATHS = 1 << 16, 32


@dataclass(frozen=True, slots=True)
class PathMarkers:
    """What the last edge of a flow says of a path; None: nothing has come (or, of ``arrived``, it is not watched)."""

    id: int
    passed: int | None
    """Every number before it has come by this path, or never will."""
    arrived: int | None
    """The greatest number that a frame other than a pause brought by it since it is watched."""
    paused: bool


def has_reached(number: int | None, wanted: int) -> bool:
    """Whether ``number`` is ``wanted`` or one after it; numbers wrap."""
    return number is not None and (number - wanted) % NUMBERS < NUMBERS // 2


def parse_passed(message: Mapping[str, Any]) -> tuple[int, tuple[PathMarkers, ...]]:
    """Flow number and paths of a message ``passed``."""
    paths = message.get("paths")
    if not isinstance(paths, list) or len(paths) > MAX_PATHS or not all(isinstance(path, dict) for path in paths):
        raise ProtocolError(f"passed.paths is not a list of at most {MAX_PATHS} objects")
    markers = (
        PathMarkers(
            _number(path.get("id"), "path", 256),
            _optional(path.get("passed")),
            _optional(path.get("arrived")),
            path.get("paused") is True,
        )
        for path in paths
    )
    return _number(message.get("number"), "flow", MAX_FLOWS), tuple(markers)


def parse_first(message: Mapping[str, Any]) -> dict[int, int]:
    """``from`` of an ``ok``: flow number -> first number."""
    first = message.get("from") or {}
    if not isinstance(first, dict) or len(first) > MAX_FLOWS:
        raise ProtocolError("ok.from is not an object of flows")
    return {_flow(flow): _number(number, "from", NUMBERS) for flow, number in first.items()}


def _flow(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5):
        raise ProtocolError("ok.from: a flow is not a number")
    return _number(int(text), "flow", MAX_FLOWS)


def _optional(value: Any) -> int | None:
    return None if value is None else _number(value, "passed", NUMBERS)


def _number(value: Any, what: str, end: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < end:
        raise ProtocolError(f"{what}: not a whole number below {end}")
    return value


_Flow = tuple[str, int]
"""The node of an agent, and a flow's number."""


class SequenceMarkers:
    """Markers of the flows that somebody waits for; all others are left out. ``news`` is called when there are some."""

    def __init__(self, news: Callable[[], None] = lambda: None) -> None:
        self._news = news
        self._first: dict[_Flow, int] = {}
        self._markers: dict[_Flow, dict[int, PathMarkers]] = {}
        self._waiting: Counter[_Flow] = Counter()
        self._senders: dict[_Flow, str] = {}
        """First edges of the flows that somebody waits for, by last edge and number."""

    def first_numbers(self, node: str, first: Mapping[int, int]) -> None:
        """The agent of a flow's first edge changed its paths in use: flow number -> first number under the new ones.

        Told before the request that did it counts as answered.
        """
        self._first.update({(node, number): sequence for number, sequence in first.items()})
        self._news()

    def paths_passed(self, node: str, flow: int, paths: tuple[PathMarkers, ...]) -> None:
        """What has come by a flow's watched paths."""
        if self._take(node, flow, paths):
            self._news()

    def await_(self, node: str, number: int, sender: str) -> None:
        """From now on, markers of a flow at its last edge ``node`` count; earlier ones don't. ``sender`` is its first
        edge: what its reports say counts where it has told another controller alone.
        """
        self._markers[node, number] = {}
        self._senders[node, number] = sender
        self._waiting[node, number] += 1

    def forget(self, node: str, number: int) -> None:
        """One of those who waited does not any more."""
        self._waiting[node, number] -= 1
        if self._waiting[node, number] <= 0:
            del self._waiting[node, number]
            self._markers.pop((node, number), None)
            self._senders.pop((node, number), None)

    def of(self, node: str, number: int, path: int) -> PathMarkers:
        """The latest of a path at the last edge of its flow."""
        return self._markers.get((node, number), {}).get(path) or PathMarkers(path, None, None, paused=False)

    def first(self, node: str, number: int) -> int | None:
        """The first number at a flow's first edge since its paths in use last changed; None: none was told."""
        return self._first.get((node, number))

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for markers of any flow."""
        return bool(self._markers or self._senders)

    def reported(self, node: str, report: Mapping[str, Any]) -> bool:
        """An agent's report says again what was told at once; whether somebody waits for any of it."""
        sent = {number for (_, number), sender in self._senders.items() if sender == node}
        taken = [self._take_first(node, flow) for flow in (report["ingress"] if sent else ()) if flow["number"] in sent]
        if any(agent == node for agent, _ in self._markers):
            told = ((flow["number"], tuple(map(_markers, flow["paths"]))) for flow in report["egress"])
            taken += [self._take(node, *each) for each in told]
        return any(taken)

    def left(self, node: str) -> None:
        """An agent is gone: what it told is void."""
        self._first = {flow: number for flow, number in self._first.items() if flow[0] != node}
        self._markers = {flow: {} if flow[0] == node else markers for flow, markers in self._markers.items()}

    def _take_first(self, node: str, flow: Mapping[str, Any]) -> bool:
        known, first = (node, flow["number"]), flow["from"]
        if type(first) is not int or not 0 <= first < NUMBERS or self._first.get(known) == first:
            return False
        self._first[known] = first
        return True

    def _take(self, node: str, number: int, paths: tuple[PathMarkers, ...]) -> bool:
        markers = self._markers.get((node, number))
        if markers is None:
            return False
        markers.update({path.id: path for path in paths})
        return True


def _markers(path: Mapping[str, Any]) -> PathMarkers:
    return PathMarkers(path["id"], path["passed"], path["arrived"], paused=False)
