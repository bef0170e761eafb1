"""Reports that tell only what changed, put together with the whole one that they refer to
(docs/reference/dataplane.md, *Reports of what changed*). Pure; what comes from an agent is checked here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.native.messages import CHANGES, Told

from .protocol import MOST, ProtocolError, Report, parse_line

IndexArray = NDArray[np.intp]
WHOLE_MS = 2000
"""How often an agent tells everything."""
Names = tuple[Sequence[tuple[int, Sequence[int]]], Sequence[tuple[int, Sequence[int]]]]
"""Of both sides of a report: the numbers of flows, and the ids of the paths of each."""
_FIXED = frozenset({"type", "seq", "more", "woken_late"})
_SHAPES = count(1)


DECODED = (
    ("queued", "queued_bytes", "dropped"),
    ("sent_bytes", "sent_frames", "rate_mbps"),
    ("received_bytes", "received_frames", "delay_ms"),
    ("delivered_bytes", "delivered_frames", "lost"),
)
"""Counters that the library decodes, one column after the other: of flows at their ingress, of their paths, of paths at
their egress, of flows there (``whole.rs``).
"""


class WholeReport:
    """The last whole report of a session, and what a message ``changes`` makes of it.

    Each message says all that differs from the whole one, so that none depends on another.
    """

    def __init__(self) -> None:
        self._line: bytes | None = None
        self._report: Report | None = None
        self.up: Mapping[str, bool] = {}
        """Its links."""
        self._at: dict[str, dict[Any, int]] = {}
        self._path_at: dict[tuple[str, int], dict[Any, int]] = {}

    def take(self, report: Report) -> None:
        """A checked report came that nobody asked for. One in parts is none to refer to."""
        if report["seq"] is not None:
            return
        self._report = None if report["more"] else report
        self.up = {link["link"]: link["up"] for link in report["links"]}
        self._at = {side: _places(report[side], key) for side, key in _KEYS.items()}
        self._path_at.clear()

    @property
    def _whole(self) -> Report | None:
        if self._line is not None:
            self._report, self._line = parse_line(self._line), None
        return self._report

    def again(self, line: bytes) -> WholeReport:
        """The whole report of a line that the library has compared: it differs in counters alone."""
        new = WholeReport()
        new._line, new.up, new._at, new._path_at = line, self.up, self._at, self._path_at
        new.__dict__.update(columns=self.columns, shape=self.shape)
        return new

    @property
    def known_shape(self) -> int:
        """:attr:`shape` if somebody has asked for it; else 0."""
        found: int = self.__dict__.get("shape", 0)
        return found

    @cached_property
    def shape(self) -> int:
        """A number that only reports with these :attr:`names` have, greater than 0; 0 if there are none."""
        return 0 if self.columns is None else next(_SHAPES)

    @property
    def names(self) -> Names:
        """Of both sides the numbers of flows, and the ids of the paths of each; ProtocolError if there are none."""
        if self.columns is None:
            raise ProtocolError("changes: there is no whole report to refer to")
        return self.columns[0]

    @cached_property
    def columns(self) -> tuple[Names, NDArray[np.uint64], NDArray[np.float64]] | None:
        """What the library needs to decode changes: numbers and ids of both sides, the same as an array, and counters;
        None if there is no whole report, or one in which something has no number of its own.
        """
        if self._whole is None:
            return None
        sides = self._whole["ingress"], self._whole["egress"]
        ingress, egress = (
            [(flow["number"], [path["id"] for path in flow["paths"]]) for flow in side] for side in sides
        )
        names = ingress, egress
        numbers = [
            number
            for side in names
            for number in (len(side), *(each for flow, ids in side for each in (flow, len(ids), *ids)))
        ]
        if not all(type(number) is int and 0 <= number < 1 << 53 for number in numbers):
            return None
        sent, received = ([path for flow in side for path in flow["paths"]] for side in sides)
        rows = zip((sides[0], sent, received, sides[1]), DECODED, strict=True)
        values = [entry.get(key) for entries, keys in rows for key in keys for entry in entries]
        return names, np.array(numbers, dtype=np.uint64), np.array(values, dtype=float)

    def complete(self) -> Report:
        """All of it, parsed; :class:`ProtocolError` if there is none."""
        if self._whole is None:
            raise ProtocolError("changes: there is no whole report to refer to")
        return self._whole

    def changed(self, message: Mapping[str, Any]) -> tuple[Report, list[dict[str, Any]]]:
        """The report that a message ``changes`` stands for, and the links that it names; :class:`ProtocolError`."""
        whole = self._whole
        if whole is None:
            raise ProtocolError("changes: there is no whole report to refer to")
        report = {**whole, **_numbers(message, whole)}
        if report["time_s"] is None or type(message.get("time_s")) not in {int, float}:
            raise ProtocolError("changes: time_s is missing")
        for side in ("ingress", "egress"):
            if side in message:
                report[side] = self._side(side, whole[side], message[side])
        links: list[dict[str, Any]] = []
        if "links" in message:
            report["links"] = self._links(whole["links"], message["links"], links)
        return report, links

    def _side(self, side: str, flows: list[Report], told: Any) -> list[Report]:
        new = flows.copy()
        for entry in _objects(told, side):
            number = entry.get("number")
            at = _place(self._at[side], number)
            flow = {**flows[at], **_numbers(entry, flows[at])}
            if "paths" in entry:
                paths = flow["paths"] = flow["paths"].copy()
                places = self._paths(side, number, flows[at]["paths"])
                for path in _objects(entry["paths"], "paths"):
                    place = _place(places, path.get("id"))
                    paths[place] = {**paths[place], **_numbers(path, paths[place])}
            new[at] = flow
        return new

    def _paths(self, side: str, number: Any, paths: list[Report]) -> dict[Any, int]:
        key = (side, number)
        if key not in self._path_at:
            self._path_at[key] = _places(paths, "id")
        return self._path_at[key]

    def _links(self, links: list[Report], told: Any, named: list[Report]) -> list[Report]:
        new = links.copy()
        for entry in _objects(told, "links"):
            at = _place(self._at["links"], entry.get("link"))
            if type(entry.get("up")) is not bool:
                raise ProtocolError("changes: up is not true or false")
            new[at] = {**links[at], **_numbers(entry, {"last_heard_ms": None}), "up": entry["up"]}
            named.append(new[at])
        return new


class DecodedReport(Mapping[str, Any]):
    """A report of changes to a whole one, or that itself (``line`` is None): read from the line when somebody asks for
    more than its time.
    """

    __slots__ = ("_from", "_report", "time_s")

    def __init__(self, whole: WholeReport, line: bytes | None, time_s: float) -> None:
        self.time_s = time_s
        self._from: tuple[WholeReport, bytes | None] | None = (whole, line)
        self._report: Report = {"time_s": time_s, "more": False}

    @property
    def report(self) -> Report:
        """All of it."""
        if self._from is not None:
            whole, line = self._from
            self._report = whole.complete() if line is None else whole.changed(parse_line(line))[0]
            self._from = None
        return self._report

    def __getitem__(self, key: str) -> Any:
        """As of the report."""
        return self._report[key] if key in self._report else self.report[key]

    def __iter__(self) -> Iterator[str]:
        """As of the report."""
        return iter(self.report)

    def __len__(self) -> int:
        """As of the report."""
        return len(self.report)


class Decoded:
    """Numbers of several nodes, of each at most once. ``names[places[i]]`` is the i-th of these nodes. ``shapes[i]`` is
    a number that stands for what its numbers are about, 0 if that is not known: with the same number they are about the
    same, in the same order.

    The i-th came as event ``events[i]`` of ``told``. Whoever gives several of these gives the same ``names`` each time:
    what was found out of these need not be looked up again.
    """

    __slots__ = ("events", "first", "names", "places", "shapes", "times_s", "told", "values")

    def __init__(
        self, names: Sequence[str], places: IndexArray, shapes: NDArray[np.int64], told: Told, events: IndexArray
    ) -> None:
        self.names, self.places, self.shapes, self.told, self.events = names, places, shapes, told, events
        self.values: NDArray[np.float64] = told.values
        first = told.events["first"][events].astype(np.intp)
        self.times_s: NDArray[np.float64] = self.values[first]
        self.first: IndexArray = first + 1
        """Where in ``values`` the counters of each begin."""

    def __len__(self) -> int:
        """How many there are."""
        return len(self.places)

    @property
    def nodes(self) -> list[str]:
        """Whose they are."""
        names = self.names
        return [names[place] for place in self.places.tolist()]

    def node(self, i: int) -> str:
        """Whose the i-th is."""
        return self.names[int(self.places[i])]

    def numbers(self, i: int) -> NDArray[np.float64]:
        """The time of the i-th, and its counters."""
        return self.told.numbers(int(self.events[i]))


class DecodedReports(Decoded):
    """Reports of several agents, of each at most one, of which the library has decoded what each slot needs: their
    times, and the counters of ``WholeReport.columns``.

    ``wholes[i]`` is the whole report that the i-th refers to, ``shapes[i]`` is its ``WholeReport.shape``, or 0. It came
    as changes, or is that whole report itself.
    """

    __slots__ = ("wholes",)

    def __init__(
        self,
        names: Sequence[str],
        places: IndexArray,
        shapes: NDArray[np.int64],
        told: Told,
        events: IndexArray,
        *,
        wholes: NDArray[np.object_],
    ) -> None:
        super().__init__(names, places, shapes, told, events)
        self.wholes = wholes

    def some(self, which: IndexArray) -> DecodedReports:
        """Some of them alone."""
        columns = self.places[which], self.shapes[which], self.told, self.events[which]
        return DecodedReports(self.names, *columns, wholes=self.wholes[which])

    def report(self, i: int) -> DecodedReport:
        """One of them; all that it says is read from its line later."""
        event = int(self.events[i])
        line = self.told.line(event) if self.told.events[event]["kind"] == CHANGES else None
        return DecodedReport(self.wholes[i], line, float(self.times_s[i]))


_KEYS = {"ingress": "number", "egress": "number", "links": "link"}


def _places(entries: list[Report], key: str) -> dict[Any, int]:
    return {entry[key]: place for place, entry in enumerate(entries)}


def _place(places: dict[Any, int], name: Any) -> int:
    # True is 1, and what has no hash is no name.
    place = places.get(name) if type(name) is int or type(name) is str else None
    if place is None:
        raise ProtocolError("changes: something is named that the whole report does not have")
    return place


def _numbers(told: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Counters of an entry that are known; others are left out, as in whole reports."""
    found = {}
    for key, value in told.items():
        if key in known and type(known[key]) is not list and key not in _FIXED:
            if value is not None and (type(value) not in _NUMBERS or not -MOST <= value <= MOST):
                raise ProtocolError(f"changes: {key[:40]!a} is not a number")
            found[key] = value
    return found


_NUMBERS = (int, float)


def _objects(told: Any, key: str) -> list[dict[str, Any]]:
    if type(told) is not list or not all(type(entry) is dict for entry in told):
        raise ProtocolError(f"changes: {key} is not a list of objects")
    return told
