"""The counters of agents' last two reports as columns: what all paths carried and all flows offered in a slot follows
from them in a few operations on arrays, and not entry by entry. Pure.

A report fills the rows of its agent, one per path and one per flow of each side. As long as it tells of the same flows
and paths as the one before, as nearly all do, its values just replace those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.agents.changes import DecodedReports, Names, WholeReport
from hyroads.controller.core.ragged import Ragged

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]
Entry = Mapping[str, Any]

# A queue counts as a backlog from so many frames on, and if it takes so long to send: less is the burst of a pacer.
BACKLOG_FRAMES = 4
BACKLOG_S = 0.01
FULL_FRAME_BYTES = 1500.0
# Transfers are made of full frames. Smaller ones are acknowledgements (54 to 150 bytes), speech, requests.
SMALL_FRAME_BYTES = 256.0

_SIDES = ("ingress", "egress")
_LEAST_ROWS = 64


@dataclass(eq=False)
class Side:
    """Where the rows of one side of an agent's reports are by now, and what they are about, which stays."""

    numbers: list[int]
    paths: list[list[int]]
    flow_at: int
    path_at: int
    path_count: int

    @cached_property
    def row_of(self) -> dict[int, int]:
        """Flow number -> row of the flow, from ``flow_at`` on; of several entries the last counts."""
        return {number: row for row, number in enumerate(self.numbers)}

    @cached_property
    def path_row_of(self) -> dict[tuple[int, int], int]:
        """(flow number, path id) -> row of the path, from ``path_at`` on; of several entries of one flow the first
        counts.
        """
        found: dict[tuple[int, int], int] = {}
        at = 0
        for i, (number, ids) in enumerate(zip(self.numbers, self.paths, strict=True)):
            if self.row_of[number] == i:
                for row, path in enumerate(ids, start=at):
                    found.setdefault((number, path), row)
            at += len(ids)
        return found


def _in_both(new: Mapping[Any, int], old: Mapping[Any, int]) -> tuple[IndexArray, IndexArray]:
    """The rows of what both have, in each."""
    keys = new.keys() & old.keys()
    return tuple(np.array([of[key] for key in keys], dtype=np.intp) for of in (new, old))  # type: ignore[return-value]


def _are_of(sides: Mapping[str, Side], names: Names) -> bool:
    """Whether the rows of an agent are those of a report."""
    return all(
        side in sides
        and sides[side].numbers == [number for number, _ in told]
        and sides[side].paths == [ids for _, ids in told]
        for side, told in zip(_SIDES, names, strict=True)
    )


_OF_FLOWS = {
    "ingress": ("queued", "queued_bytes", "dropped"),
    "egress": ("delivered_bytes", "delivered_frames", "lost"),
}
_OF_PATHS = {"ingress": ("bytes", "frames", "rate"), "egress": ("bytes", "frames", "delay_ms")}
_COUNTERS = {"ingress": ("sent_bytes", "sent_frames", "rate_mbps"),
             "egress": ("received_bytes", "received_frames", "delay_ms")}  # fmt: skip
"""By side: columns of flows and paths that decoded reports have (``changes.DECODED``), and what agents call the latter.
"""


class _Table:
    """Columns of equal length; rows are given out in runs, and all move when there is no room."""

    def __init__(self, **columns: float) -> None:
        self._empty = columns
        self._made(_LEAST_ROWS)
        self.used = 0

    def _made(self, size: int) -> None:
        self._all = np.repeat(np.array(list(self._empty.values())), size)
        self.values = dict(zip(self._empty, self._all.reshape(len(self._empty), size), strict=True))

    def place(self, name: str) -> int:
        """Where a column begins in all of the values."""
        return list(self._empty).index(name) * len(self.values[name])

    def put(self, places: IndexArray, values: FloatArray) -> None:
        """Other values at some places (:meth:`place` and a row)."""
        self._all[places] = values

    def __getitem__(self, name: str) -> FloatArray:
        return self.values[name]

    def has_room(self, count: int) -> bool:
        """Whether so many rows are left."""
        return self.used + count <= len(next(iter(self.values.values())))

    def moved(self, runs: Sequence[tuple[int, int]], spare: int) -> list[int]:
        """Keep these runs (first row, number of rows) alone, with room for so many more; gives their new first rows."""
        rows = np.concatenate([np.arange(at, at + count) for at, count in runs]) if runs else np.zeros(0, dtype=int)
        old = self.values
        self._made(max(_LEAST_ROWS, 2 * (len(rows) + spare)))
        for name, column in self.values.items():
            column[: len(rows)] = old[name][rows]
        self.used = len(rows)
        bounds = np.cumsum([0, *(count for _, count in runs)])
        return [int(first) for first in bounds[:-1]]

    def taken(self, count: int) -> int:
        """The first of so many fresh rows."""
        at, self.used = self.used, self.used + count
        for name, empty in self._empty.items():
            self.values[name][at : self.used] = empty
        return at


class ReportColumns:
    """Rows of all agents that report. ``version`` grows when flows or paths get other rows."""

    def __init__(self) -> None:
        self.version = 0
        self._sides: dict[str, dict[str, Side]] = {}
        self._number_of: dict[str, int] = {}
        self._numbered: tuple[Sequence[str], IndexArray] = ((), np.zeros(0, dtype=np.intp))
        self._elapsed_s, self._taken_s = np.zeros(1), np.zeros(1)
        self._shapes = np.zeros(1, dtype=np.int64)
        """By number of an agent: what those decoded reports are about (``WholeReport.shape``) whose rows are known."""
        nothing = np.zeros(0, dtype=np.intp)
        self._known_numbers: tuple[int, tuple[IndexArray, IndexArray, IndexArray]] = (-1, (nothing, nothing, nothing))
        # By number of an agent, as long as it has rows: these, and the places of decoded columns in all values.
        self._path_rows, self._flow_rows = Ragged(np.intp), Ragged(np.intp)
        self._of_begun, self._of_paths, self._of_ended = (Ragged(np.intp) for _ in range(3))
        nan = float("nan")
        self._paths = _Table(bytes=nan, bytes_before=nan, frames=nan, frames_before=nan, rate=nan, rate_before=nan,
                             delay_ms=nan, flow=0.0, node=0.0)  # fmt: skip
        self._flows = _Table(queued=nan, queued_bytes=nan, dropped=nan, dropped_before=nan, has_before=0.0,
                             allowed_before=nan, most_allowed_before=nan,
                             delivered_bytes=nan, delivered_frames=nan, lost=nan, node=0.0)  # fmt: skip

    def take(self, node: str, report: Entry, before: Entry | None, taken_s: float, *, follows: bool) -> None:
        """A report, and the one that its growth is counted from. ``follows``: that is the one taken last."""
        elapsed_s = float(report["time_s"] - before["time_s"]) if before is not None else 0.0
        number = self.number(node)
        self._taken_s[number], self._elapsed_s[number] = taken_s, elapsed_s
        for side in _SIDES:
            self._take_side(node, side, report, before, follows=follows)

    def take_decoded(
        self,
        reports: DecodedReports,
        befores_s: FloatArray,
        before: Callable[[int], Entry | None],
        taken_s: float,
        follows: NDArray[np.bool_],
    ) -> None:
        """Decoded reports of several agents. ``befores_s[i]`` is the time of the report that the growth of the i-th is
        counted from, nan if there is none; that is ``before(i)``. ``follows[i]``: that is the one taken last. What is
        done for each by itself, is of few.
        """
        numbers = self.numbers(reports.names)[reports.places]
        if not self._has_rows(reports, numbers).all():
            is_new = ~self._has_rows(reports, numbers, find=True)
            for i in np.flatnonzero(is_new).tolist():
                self.take(reports.node(i), reports.report(i), before(i), taken_s, follows=bool(follows[i]))
            some = np.flatnonzero(~is_new)
            reports, numbers, befores_s, follows = reports.some(some), numbers[some], befores_s[some], follows[some]
            # Those may have moved all rows.
            self._has_rows(reports, numbers, find=True)
        self._taken_s[numbers] = taken_s
        self._elapsed_s[numbers] = np.where(np.isnan(befores_s), 0.0, reports.times_s - befores_s)
        self._put(numbers, reports, follows)

    def __len__(self) -> int:
        """How many agents have a number."""
        return len(self._number_of)

    def number(self, node: str) -> int:
        """Of an agent, always the same."""
        number = self._number_of.setdefault(node, len(self._number_of))
        if number >= len(self._taken_s):
            more = np.zeros(number + 1)
            self._taken_s, self._elapsed_s = np.append(self._taken_s, more), np.append(self._elapsed_s, more)
            self._shapes = np.append(self._shapes, np.zeros(number + 1, dtype=np.int64))
        return number

    def numbers(self, names: Sequence[str]) -> IndexArray:
        """Of agents, in the order of their names."""
        if self._numbered[0] is not names:
            self._numbered = names, np.array([self.number(name) for name in names], dtype=np.intp)
        return self._numbered[1]

    def _has_rows(self, reports: DecodedReports, numbers: IndexArray, *, find: bool = False) -> NDArray[np.bool_]:
        """Whether the rows of agents are known to be those of decoded reports; if they are not, ``find`` compares."""
        has_rows: NDArray[np.bool_] = (reports.shapes > 0) & (self._shapes[numbers] == reports.shapes)
        if find:
            for i in np.flatnonzero(~has_rows).tolist():
                has_rows[i] = self._find_rows(reports.node(i), reports.wholes[i])
        return has_rows

    def _find_rows(self, node: str, whole: WholeReport) -> bool:
        """Whether an agent's rows are those of decoded reports that refer to a whole one."""
        sides = self._sides.get(node)
        if sides is None or not _are_of(sides, whole.names):
            return False
        number = self.number(node)
        self._shapes[number] = whole.shape
        sending, receiving = sides["ingress"], sides["egress"]
        sent, received = (np.arange(side.path_at, side.path_at + side.path_count) for side in (sending, receiving))
        own, others = (np.arange(side.flow_at, side.flow_at + len(side.numbers)) for side in (sending, receiving))
        self._path_rows.put(number, np.concatenate([sent, received]))
        self._flow_rows.put(number, np.concatenate([own, others]))
        flows, paths = self._flows.place, self._paths.place
        begun = [flows(name) + own for name in _OF_FLOWS["ingress"]]
        ended = [flows(name) + others for name in _OF_FLOWS["egress"]]
        both = ("ingress", sent), ("egress", received)
        of_paths = [paths(name) + rows for at, rows in both for name in _OF_PATHS[at]]
        self._of_begun.put(number, np.concatenate(begun))
        self._of_paths.put(number, np.concatenate(of_paths))
        self._of_ended.put(number, np.concatenate(ended))
        return True

    def _put(self, numbers: IndexArray, reports: DecodedReports, follows: NDArray[np.bool_]) -> None:
        follow = numbers[follows]
        self._pass_on(self._path_rows.of(follow)[1], self._flow_rows.of(follow)[1])
        values, first = reports.values, reports.first
        parts = (self._of_begun, self._flows), (self._of_paths, self._paths), (self._of_ended, self._flows)
        for at, table in parts:
            of, within, found = at.items(numbers)
            table.put(found, values[first[of] + within])
            first = first + at.lengths(numbers)

    def _take_side(
        self,
        node: str,
        side: str,
        report: Entry,
        before: Entry | None,
        *,
        follows: bool,
    ) -> None:
        sides = self._sides.setdefault(node, {})
        flows, known = report[side], sides.get(side)
        numbers = [flow["number"] for flow in flows]
        paths = [[path["id"] for path in flow["paths"]] for flow in flows]
        if known is None or known.numbers != numbers or known.paths != paths:
            number = self.number(node)
            self._shapes[number] = 0
            old, known = known, self._placed(number, numbers, paths)
            sides[side] = known
            self._fill(known, side, flows)
            if old is not None and follows:
                self._carry_over(old, known, side)
            else:
                self._fill_before(known, side, before)
            return
        if follows:
            rows = np.arange(known.path_at, known.path_at + known.path_count)
            self._pass_on(rows, np.arange(known.flow_at, known.flow_at + len(known.numbers)))
        self._fill(known, side, flows)

    def forget(self, node: str) -> None:
        """An agent is gone."""
        if self._sides.pop(node, None) is not None:
            self._shapes[self.number(node)] = 0
            self.version += 1

    def _placed(self, node: int, numbers: list[int], paths: list[list[int]]) -> Side:
        self.version += 1
        count = sum(len(ids) for ids in paths)
        if not (self._paths.has_room(count) and self._flows.has_room(len(numbers))):
            self._move(count, len(numbers))
        found = Side(numbers, paths, self._flows.taken(len(numbers)), self._paths.taken(count), count)
        flow_rows = np.repeat(np.arange(len(numbers)), [len(ids) for ids in paths]) + found.flow_at
        self._paths["flow"][found.path_at : found.path_at + count] = flow_rows
        self._paths["node"][found.path_at : found.path_at + count] = node
        self._flows["node"][found.flow_at : found.flow_at + len(numbers)] = node
        return found

    def _move(self, paths: int, flows: int) -> None:
        self._shapes[:] = 0
        sides = [side for of in self._sides.values() for side in of.values()]
        first_flows = self._flows.moved([(side.flow_at, len(side.numbers)) for side in sides], flows)
        first_paths = self._paths.moved([(side.path_at, side.path_count) for side in sides], paths)
        for side, flow_at, path_at in zip(sides, first_flows, first_paths, strict=True):
            rows = slice(path_at, path_at + side.path_count)
            self._paths["flow"][rows] += flow_at - side.flow_at
            side.flow_at, side.path_at = flow_at, path_at

    def _pass_on(self, rows: IndexArray, flows: IndexArray) -> None:
        """What was the last is the one before."""
        for name in ("bytes", "frames", "rate"):
            self._paths[f"{name}_before"][rows] = self._paths[name][rows]
        self._flows["dropped_before"][flows] = self._flows["dropped"][flows]
        self._flows["has_before"][flows] = 1.0
        self._flows["allowed_before"][flows] = self._flows["most_allowed_before"][flows] = np.nan

    def _fill(self, side: Side, name: str, flows: Sequence[Entry]) -> None:
        rows, own = (
            slice(at, at + n) for at, n in ((side.path_at, side.path_count), (side.flow_at, len(side.numbers)))
        )
        entries = [path for flow in flows for path in flow["paths"]]
        for column, counter in zip(_OF_PATHS[name], _COUNTERS[name], strict=True):
            self._paths[column][rows] = [path.get(counter) for path in entries]
        for column in _OF_FLOWS[name]:
            self._flows[column][own] = [flow.get(column) for flow in flows]

    def _fill_before(self, side: Side, name: str, before: Entry | None) -> None:
        """Where other flows or paths are told of: what the same ones had, by number and id."""
        old = {flow["number"]: flow for flow in before[name]} if before is not None else {}
        octets, frames, _ = _COUNTERS[name]
        for number, ids in zip(side.numbers, side.paths, strict=True):
            entry = old.get(number)
            if entry is None:
                continue
            # Of several paths with one id the first counts.
            known = {path["id"]: path for path in reversed(entry["paths"])}
            for path in ids:
                row = side.path_row_of.get((number, path))
                if row is not None and path in known:
                    self._paths["bytes_before"][side.path_at + row] = _number(known[path].get(octets))
                    self._paths["frames_before"][side.path_at + row] = _number(known[path].get(frames))
            if name == "ingress":
                rates = [path.get("rate_mbps") or 0.0 for path in entry["paths"]] or [0.0]
                row = side.flow_at + side.row_of[number]
                self._flows["dropped_before"][row] = _number(entry.get("dropped"))
                self._flows["has_before"][row] = 1.0
                self._flows["allowed_before"][row] = float(sum(rates))
                self._flows["most_allowed_before"][row] = float(max(rates))

    def _carry_over(self, old: Side, new: Side, name: str) -> None:
        """As :meth:`_fill_before` where the report before is what the old rows are about: nobody has to read it."""
        rows, olds = _in_both(new.path_row_of, old.path_row_of)
        for column in ("bytes", "frames"):
            self._paths[f"{column}_before"][new.path_at + rows] = self._paths[column][old.path_at + olds]
        if name == "egress":
            return
        rates = np.nan_to_num(self._paths["rate"][old.path_at : old.path_at + old.path_count], nan=0.0)
        of_path = np.repeat(np.arange(len(old.numbers)), [len(ids) for ids in old.paths])
        allowed, most = np.bincount(of_path, rates, minlength=len(old.numbers)), np.zeros(len(old.numbers))
        np.maximum.at(most, of_path, rates)
        rows, olds = _in_both(new.row_of, old.row_of)
        own, values = new.flow_at + rows, self._flows.values
        values["dropped_before"][own] = values["dropped"][old.flow_at + olds]
        values["has_before"][own] = 1.0
        values["allowed_before"][own], values["most_allowed_before"][own] = allowed[olds], most[olds]

    # -- what is asked of them

    def of_paths(self, rows: IndexArray, names: Sequence[str]) -> list[FloatArray]:
        """Some columns of path rows as they are now; nan where there is no row (-1)."""
        return [_at(self._paths[name], rows) for name in names]

    def of_flows(self, rows: IndexArray, names: Sequence[str]) -> list[FloatArray]:
        """The same of flow rows."""
        return [_at(self._flows[name], rows) for name in names]

    def sides(self, side: str) -> Mapping[str | None, Side]:
        """The rows of one side of all agents that have reported; those that are about something else are another
        object.
        """
        return {node: of[side] for node, of in self._sides.items() if side in of}

    def begins(self, sides: Mapping[str | None, Side]) -> tuple[IndexArray, IndexArray]:
        """By number of an agent: where its rows of flows and of paths begin; 0 if it has none."""
        flows, paths = np.zeros(len(self), dtype=np.intp), np.zeros(len(self), dtype=np.intp)
        at = [self.number(node or "") for node in sides]
        flows[at] = [side.flow_at for side in sides.values()]
        paths[at] = [side.path_at for side in sides.values()]
        return flows, paths

    @property
    def _numbers(self) -> tuple[IndexArray, IndexArray, IndexArray]:
        """Of each path row its agent and its flow row, and of each flow row its agent."""
        if self._known_numbers[0] != self.version:
            paths, flows = self._paths, self._flows
            found = (paths["node"], paths["flow"], flows["node"])
            self._known_numbers = self.version, tuple(each.astype(np.intp) for each in found)  # type: ignore[assignment]
        return self._known_numbers[1]

    def _is_fresh(self, now_s: float, max_age_s: float) -> NDArray[np.bool_]:
        return ~(now_s - self._taken_s > max_age_s)

    def _grown(self, column: str) -> tuple[FloatArray, FloatArray]:
        """By path row: the growth of a counter of bytes in Mb/s, and as it is; nan where it is not known."""
        elapsed_s = self._elapsed_s[self._numbers[0]]
        grown = self._paths[column] - self._paths[f"{column}_before"]
        with np.errstate(invalid="ignore", divide="ignore"):
            grown = np.where((elapsed_s > 0) & (grown >= 0), grown, np.nan)
            return grown * 8e-6 / elapsed_s, grown

    def sums(self, values: FloatArray) -> FloatArray:
        """By flow row: the sum over its paths, those that are not known left out."""
        known = np.where(np.isnan(values), 0.0, values)
        found = np.bincount(self._numbers[1], known, minlength=len(self._flows["node"]))
        return found.astype(float, copy=False)

    def greatest(self, values: FloatArray) -> FloatArray:
        """By flow row: the greatest over its paths, 0 without any."""
        found = np.zeros(len(self._flows["node"]))
        np.maximum.at(found, self._numbers[1], np.where(np.isnan(values), 0.0, values))
        return found

    def offers(self, now_s: float, max_age_s: float) -> Offered:
        """What all flows offered, by flow row; those that copy apart."""
        flows = self._flows
        of_path, _, of_flow = self._numbers
        is_fresh = self._is_fresh(now_s, max_age_s)
        fresh = is_fresh[of_flow]
        mbps, grown_bytes = self._grown("bytes")
        _, grown_frames = self._grown("frames")
        is_known = (self.sums(~np.isnan(mbps)) > 0) & (flows["has_before"] > 0) & fresh
        frames = self.sums(grown_frames)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean_bytes = np.where(frames > 0, self.sums(grown_bytes) / frames, np.nan)
        queued = np.nan_to_num(flows["queued"], nan=0.0)
        has_queue = queued > 0
        queued = np.where(has_queue, queued, 0.0)
        # Older agents don't say how large what waits is; of what was sent 0 bytes a frame says nothing.
        with np.errstate(invalid="ignore", divide="ignore"):
            waiting_bytes = np.where(np.isnan(flows["queued_bytes"]), FULL_FRAME_BYTES, flows["queued_bytes"] / queued)
        sent_bytes = np.where(np.isnan(mean_bytes) | (mean_bytes == 0), FULL_FRAME_BYTES, mean_bytes)
        frame_bytes = np.where(has_queue, waiting_bytes, sent_bytes)
        dropped = np.maximum(
            0.0, np.nan_to_num(flows["dropped"], nan=0.0) - np.nan_to_num(flows["dropped_before"], nan=0.0)
        )
        elapsed_s, recent_mbps = self._elapsed_s[of_flow], np.where(is_fresh[of_path], mbps, np.nan)
        return Offered(self, mbps, recent_mbps, is_known, mean_bytes, queued, frame_bytes, dropped, elapsed_s, fresh)


@dataclass(frozen=True)
class Offered:
    """By flow row what offers are made of. By path row, ``mbps`` is what was carried between the two reports, nan where
    that is not known, and ``recent_mbps`` the same, nan also where it is too old.
    """

    columns: ReportColumns
    mbps: FloatArray
    recent_mbps: FloatArray
    is_known: NDArray[np.bool_]
    mean_bytes: FloatArray
    queued: FloatArray
    frame_bytes: FloatArray
    dropped: FloatArray
    elapsed_s: FloatArray
    is_fresh: NDArray[np.bool_]

    def of(
        self, rows: IndexArray, copies: NDArray[np.bool_]
    ) -> tuple[FloatArray, FloatArray, NDArray[np.bool_], FloatArray]:
        """Of some flow rows: sent, allowed, whether they have a backlog, offered (nan: not known)."""
        sent, before, now = self._together(self.columns.sums, "allowed_before")
        if copies.any():
            most = self._together(self.columns.greatest, "most_allowed_before")
            sent, before, now = (
                np.where(copies, m[rows], s[rows]) for s, m in zip((sent, before, now), most, strict=True)
            )
        else:
            sent, before, now = sent[rows], before[rows], now[rows]
        queued, frame_bytes, dropped = self.queued[rows], self.frame_bytes[rows], self.dropped[rows]
        waits = (queued >= BACKLOG_FRAMES) & (queued * frame_bytes * 8e-6 > BACKLOG_S * now)
        with np.errstate(invalid="ignore", divide="ignore"):
            offered = sent + (queued + dropped) * frame_bytes * 8e-6 / self.elapsed_s[rows]
        offered = np.where(frame_bytes < SMALL_FRAME_BYTES, offered, np.nan)
        return sent, np.minimum(before, now), waits | (dropped > 0), offered

    def _together(
        self, join: Callable[[FloatArray], FloatArray], before_column: str
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """What was sent, what was allowed before, and what is allowed now."""
        paths, of_old = self.columns._paths, self.columns._flows[before_column]
        before = np.where(np.isnan(of_old), join(paths["rate_before"]), of_old)
        return join(self.mbps), before, join(paths["rate"])


def _at(column: FloatArray, rows: IndexArray) -> FloatArray:
    return np.where(rows >= 0, column[rows], np.nan)


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)
