"""Rows of a live study: each is measured on an emulated network of its own, and kept in a file to go on from.

A row counts as made unless something went wrong, or fell short of theory while the machine was too slow to be believed
(``machine.py``). What is not made is measured again by the next run with the same file.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.network import Network
from hyroads.controller.core.planner import Plan
from hyroads.controller.study.framework import Cell, Progress, Settings, StudyError, Table
from hyroads.mininet.emulation import Emulation, EmulationOptions
from hyroads.mininet.isolation import EXIT_INTERRUPTED
from hyroads.mininet.programs import check_prerequisites
from hyroads.mininet.reference import TOO_SLOW, Reference
from hyroads.mininet.runner import RunOptions, run_network

from .floor import SCALE, Floor, Pair

FORMAT = 1
MOST_LINE_BYTES = 1 << 20
_FIELDS = frozenset({"format", "study", "setting", "number", "made", "why", "figures", "time_s"})


@dataclass(frozen=True, slots=True)
class Measured:
    """What was found on a network: numbers, texts, lists and dictionaries by name.

    ``short`` says in words what fell short of theory, empty if nothing did; only then the machine must be believed.
    """

    figures: Mapping[str, Any]
    short: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """One row to make: ``number`` counts from 1; ``measure`` is called in the network's own process."""

    number: int
    network: Network
    measure: Callable[[Emulation], Measured]
    options: EmulationOptions = field(default_factory=EmulationOptions)


@dataclass(frozen=True, slots=True)
class Row:
    """One row as it is kept. ``setting`` says what the figures depend on; ``why`` it was not made, if it was not."""

    study: str
    setting: str
    number: int
    made: bool
    figures: Mapping[str, Any]
    why: str = ""
    time_s: float = 0.0
    """When it was measured, seconds since 1970."""


class RowsFile:
    """A file of rows, one JSON object a line; a context manager that holds it against other commands.

    Rows of several studies and settings may share one file. ``StudyError`` names the line that is no row. A last line
    that is not whole was being written when a run was killed: it is dropped. Without a path nothing is kept.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._rows: dict[tuple[str, str, int], Row] = {}
        self._descriptor = -1

    def __enter__(self) -> Self:
        if self.path is None:
            return self
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._read()
        except BlockingIOError as error:
            self.__exit__(None, None, None)
            raise StudyError(f"{self.path}: another command writes rows to it") from error
        except OSError as error:
            self.__exit__(None, None, None)
            raise StudyError(f"{self.path}: {error.strerror}") from error
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def made(self, study: str, setting: str, number: int) -> Row | None:
        """The row of that trial, if one was made."""
        row = self._rows.get((study, setting, number))
        return row if row is not None and row.made else None

    def add(self, row: Row) -> None:
        """Keep it; it is on the disk when this returns."""
        self._rows[row.study, row.setting, row.number] = row
        if self._descriptor >= 0:
            line = json.dumps({"format": FORMAT, **asdict(row)}, allow_nan=False) + "\n"
            os.write(self._descriptor, line.encode())
            os.fsync(self._descriptor)

    def _read(self) -> None:
        assert self.path is not None  # noqa: S101 - entered with one
        content = self.path.read_bytes()
        whole = content.rfind(b"\n") + 1
        for number, line in enumerate(content[:whole].splitlines(), start=1):
            row = _parsed(line, f"{self.path}, line {number}")
            self._rows[row.study, row.setting, row.number] = row
        os.ftruncate(self._descriptor, whole)
        os.lseek(self._descriptor, whole, os.SEEK_SET)


def _parsed(line: bytes, where: str) -> Row:
    """A row from its line; ``StudyError`` says where and what is wrong."""
    try:
        if len(line) > MOST_LINE_BYTES:
            raise ValueError("too long")
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise StudyError(f"{where}: expected a row of a live study ({error})") from error
    if not isinstance(document, dict) or set(document) != _FIELDS or document["format"] != FORMAT:
        raise StudyError(f"{where}: expected a row of a live study, format {FORMAT}")
    kinds = {"study": str, "setting": str, "number": int, "made": bool, "why": str, "figures": dict, "time_s": float}
    for name, kind in kinds.items():
        if not isinstance(document[name], kind):
            raise StudyError(f"{where}: {name}: expected {kind.__name__}")
    return Row(**{name: document[name] for name in kinds})


def measure_rows(
    study: str, setting: str, trials: Sequence[Trial], settings: Settings, progress: Progress
) -> list[Row]:
    """The rows of all trials, in order: those that the file of the settings has, and the others measured now.

    ``setting`` says all that the figures depend on besides study and number. One network runs at a time. An error in
    one of them leaves its row not made, and the others go on; ``StudyError`` if then no row is made at all.
    """
    check_prerequisites()
    rows = []
    with _signals_interrupt(), RowsFile(settings.rows) as file:
        progress(0, len(trials))
        for done, trial in enumerate(trials, start=1):
            row = file.made(study, setting, trial.number)
            if row is None:
                row = _measured(study, setting, trial)
                file.add(row)
                _tell(row, len(trials))
            rows.append(row)
            progress(done, len(trials))
    if not any(row.made for row in rows):
        raise StudyError(f"{study}: no row was made; the first one: {rows[0].why}" if rows else f"{study}: no trials")
    return rows


@dataclass(frozen=True, slots=True)
class PairRows:
    """A row for each of the ``pairs`` of a floor, in order."""

    floor: Floor
    pairs: Sequence[Pair]
    rows: Sequence[Row]

    @property
    def made(self) -> list[Mapping[str, Any]]:
        """The figures of the rows that were made."""
        return [row.figures for row in self.rows if row.made]


def measure_pairs(  # noqa: PLR0917 - bound by name where it matters
    study: str,
    setting: str,
    counts: tuple[int, int],
    trial_of: Callable[[Floor, int, Pair], Trial],
    settings: Settings,
    progress: Progress,
    *,
    wanted: Callable[[Plan], bool] = lambda _: True,
) -> PairRows:
    """Rows of random pairs of the office floor of the seed, whose plan is as ``wanted``.

    ``counts`` is how many there are by default: of a whole run, and of a quick one. ``trial_of`` makes the trial of a
    pair from the floor, its number and itself; ``setting`` need not name seed and scale.
    """
    whole, quick = counts
    floor = Floor(settings.seed)
    pairs = floor.pairs(settings.runs or (quick if settings.quick else whole), wanted)
    trials = [trial_of(floor, number, pair) for number, pair in enumerate(pairs, start=1)]
    of_rows = f"seed {settings.seed}; {setting}; x{SCALE:g}"
    return PairRows(floor, pairs, measure_rows(study, of_rows, trials, settings, progress))


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """While this is entered, SIGTERM and SIGHUP do what Ctrl-C does, so that what is entered is left in order."""
    if threading.current_thread() is not threading.main_thread():
        # Only there Python handles signals.
        yield
        return

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(row: Row, count: int) -> None:
    words = "made" if row.made else f"not made: {row.why}"
    print(f"{row.study}: row {row.number} of {count} {words}", file=sys.stderr, flush=True)


def _measured(study: str, setting: str, trial: Trial) -> Row:
    """Measure one row on its network; an interruption ends the study as Ctrl-C does."""
    with tempfile.TemporaryDirectory(prefix="hyroads-live-") as folder:
        path = Path(folder) / "row.json"

        def body(emulation: Emulation) -> int:
            path.write_text(json.dumps(_outcome(emulation, trial), allow_nan=False), encoding="utf-8")
            return 0

        options = RunOptions(publish=0, emulation=trial.options)
        status = run_network(trial.network, study, body, options, lambda _: None)
        if status == EXIT_INTERRUPTED:
            raise KeyboardInterrupt
        document: dict[str, Any] = {"figures": {}, "why": f"its network ended with status {status}"}
        if status == 0:
            document = json.loads(path.read_text(encoding="utf-8"))
    why = str(document["why"])
    return Row(study, setting, trial.number, not why, document["figures"], why, time.time())


def _outcome(emulation: Emulation, trial: Trial) -> dict[str, Any]:
    """In the network's process: its figures, and why they don't count if they don't."""
    with Reference(emulation.directory, realtime=emulation.options.realtime) as reference:
        try:
            found = trial.measure(emulation)
            emulation.check()
            short = found.short
        except HyroadsError as error:
            found, short = Measured({}), str(error)
            if not reference.lane().why_slow:
                return {"figures": {}, "why": short}
    slow = reference.lane().why_slow
    return {"figures": dict(found.figures), "why": f"{short}; {TOO_SLOW}, {slow}" if short and slow else ""}


def shortfalls(carried: Mapping[str, tuple[float, float]], least: float) -> str:
    """What carried less than the share ``least`` of theory, in words; by name: measured and theory in Mb/s."""
    return ", ".join(
        f"{name} carried {measured:.1f} of {theory:.1f} Mb/s"
        for name, (measured, theory) in carried.items()
        if measured < least * theory
    )


def rows_table(
    rows: Sequence[Row], heads: Mapping[str, Callable[[Mapping[str, Any]], Cell]], title: str, first: str = "pair"
) -> Table:
    """A table of all rows; ``heads`` says how each column follows from a row's figures. Rows not made have dashes."""
    cells: list[tuple[Cell, ...]] = []
    for row in rows:
        found = [of(row.figures) for of in heads.values()] if row.made else [None] * len(heads)
        cells.append((row.number, *found, "" if row.made else "not made"))
    return Table("rows", title, (first, *heads, "remark"), tuple(cells))


def not_made_notes(rows: Sequence[Row]) -> list[str]:
    """How many rows do not count, and why."""
    left_out = [row for row in rows if not row.made]
    if not left_out:
        return []
    whys = "; ".join(f"{row.number}: {row.why}" for row in left_out[:5])
    more = f"; and {len(left_out) - 5} more" if len(left_out) > 5 else ""
    return [f"{len(left_out)} of {len(rows)} rows were not made and count nowhere ({whys}{more})."]
