"""Which numbers of a flow an agent has sent and received by which path, as the protocol tells it
(docs/reference/dataplane.md, *Handovers and copies*). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from hyroads.controller.agent_protocol import ProtocolError

NUMBERS = 2**32
MAX_FLOWS, MAX_PATHS = 1 << 16, 32


@dataclass(frozen=True, slots=True)
class PathMarks:
    """What the last edge of a flow says of a path; None: nothing has come (or, of ``arrived``, it is not watched)."""

    id: int
    passed: int | None
    """Every number before it has come by this path, or never will."""
    arrived: int | None
    """The greatest number that a frame other than a pause brought by it since it is watched."""
    paused: bool


class MarkerListener(Protocol):
    """Who wants to know, at once."""

    def first_numbers(self, node: str, first: Mapping[int, int]) -> None:
        """The agent of a flow's first edge changed its paths in use: flow number -> first number under the new ones.

        Told before the request that did it counts as answered.
        """

    def paths_passed(self, node: str, flow: int, paths: tuple[PathMarks, ...]) -> None:
        """The agent of a flow's last edge says where its watched paths are."""


def has_reached(number: int | None, wanted: int) -> bool:
    """Whether ``number`` is ``wanted`` or one after it; numbers wrap."""
    return number is not None and (number - wanted) % NUMBERS < NUMBERS // 2


def parse_passed(message: Mapping[str, Any]) -> tuple[int, tuple[PathMarks, ...]]:
    """Flow number and paths of a message ``passed``."""
    paths = message.get("paths")
    if not isinstance(paths, list) or len(paths) > MAX_PATHS or not all(isinstance(path, dict) for path in paths):
        raise ProtocolError(f"passed.paths is not a list of at most {MAX_PATHS} objects")
    marks = (
        PathMarks(
            _number(path.get("id"), "path", 256),
            _optional(path.get("passed")),
            _optional(path.get("arrived")),
            path.get("paused") is True,
        )
        for path in paths
    )
    return _number(message.get("number"), "flow", MAX_FLOWS), tuple(marks)


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
