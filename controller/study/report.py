"""Writes a result: a CSV file for each table and plot, the plots, a CSV file of the checks, a report in Markdown."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hyroads.controller.core.csv_text import csv_text

from .drawing import SUFFIXES, draw, steps_of
from .framework import AnyPlot, Bars, Cdf, Cell, Plot, Result, StudyError, Table, shown
from .verdicts import Check, Verdict, summary

REPORT, CHECKS = "report.md", "checks.csv"
LEAST_ROOM_MB = 20
"""A study needs so much free space in its folder before it begins."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The ``command`` that makes the result again, and the published ``figures`` that it repeats."""

    command: str = ""
    figures: str = ""


def writable(folder: Path) -> None:
    """Make the folder; ``StudyError`` if nothing can be written there, or there is hardly any room."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
        free_mb = shutil.disk_usage(folder).free / 1e6
    except OSError as error:
        raise StudyError(f"{folder}: {error.strerror}") from error
    if free_mb < LEAST_ROOM_MB:
        raise StudyError(f"{folder}: {free_mb:.1f} MB are free, a study needs {LEAST_ROOM_MB}")


def write(result: Result, folder: Path, plots: bool, origin: Origin | None = None) -> list[Path]:
    """Write everything into ``folder`` (made if missing) and return the files, the report first.

    Each file appears whole, under its name, once all of them have been written; an error leaves those as they were that
    an earlier run has left.
    """
    contents: dict[str, bytes] = {REPORT: markdown(result, plots, origin or Origin()).encode()}
    for table in result.tables:
        contents[f"{table.name}.csv"] = _csv(table.columns, table.rows)
    if result.checks:
        contents[CHECKS] = _csv(_CHECK_COLUMNS, map(_check_row, result.checks))
    for plot in result.plots:
        contents[f"{plot.name}.csv"] = _csv(*_series(plot))
        if plots:
            contents |= {f"{plot.name}{suffix}": data for suffix, data in draw(plot).items()}
    return put(contents, folder)


def put(contents: Mapping[str, bytes], folder: Path) -> list[Path]:
    """Files of a folder, by name: all are written under other names first, and none is if there is an error."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".new-") as beside:
            for name, data in contents.items():
                Path(beside, name).write_bytes(data)
            # The report is the last: it tells of the others.
            for name in reversed(list(contents)):
                Path(beside, name).replace(folder / name)
    except OSError as error:
        raise StudyError(f"{folder}: {error.strerror}") from error
    return [folder / name for name in contents]


def markdown(result: Result, plots: bool, origin: Origin) -> str:
    """The one-page report."""
    parts = [f"# {result.title}"]
    parts += [f"Repeats: {origin.figures}."] if origin.figures else []
    parts += [f"Made by `{origin.command}`."] if origin.command else []
    parts.append(result.setting)
    if result.checks:
        parts += [
            "## Published and ours",
            f"Checks: {summary(result.checks)}.",
            markdown_table(table_of_checks(result.checks)),
        ]
        missed = [check for check in result.checks if check.verdict is Verdict.MISSED]
        # A figure may be missed twice, as published and by our reference.
        differing = [*dict.fromkeys(f"- {check.what}: {check.why}" for check in missed if check.why)]
        parts += ["Where ours differs:", "\n".join(differing)] if differing else []
    parts += ["## Results"] if result.tables or result.plots else []
    for table in result.tables:
        parts += [f"**{table.title}**", markdown_table(table)]
    for plot in result.plots:
        others = ", ".join(f"[{suffix[1:].upper()}]({plot.name}{suffix})" for suffix in (".pdf", ".svg", ".csv"))
        picture = f"![{plot.title}]({plot.name}{SUFFIXES[0]})\n\n*{plot.title}*: {others}"
        parts.append(picture if plots else f"{plot.title}: {plot.name}.csv")
    parts += ["## Notes", *result.notes] if result.notes else []
    return "\n\n".join(parts) + "\n"


def table_of_checks(checks: Sequence[Check]) -> Table:
    """What was published, what we have found, and what is wanted of it."""
    rows = [
        (
            check.what,
            check.published or None,
            ours(check),
            check.kind.value,
            check.wanted,
            f"**{check.verdict.value}**" if check.verdict is Verdict.MISSED else check.verdict.value,
        )
        for check in checks
    ]
    heads = ("figure", "published", "ours (95 % interval)", "check of", "wanted", "verdict")
    return Table("", "", heads, tuple(rows))


def ours(check: Check) -> str:
    """Our figure with its interval, as it is printed."""
    figure = shown(check.measured)
    if check.interval is None or any(map(math.isnan, check.interval)):
        return figure
    if not any(map(math.isfinite, check.interval)):
        return f"{figure} (too few runs for an interval)"
    low, high = (f"{end:.3f}" for end in check.interval)
    return f"{figure} ({low} to {high})"


_CHECK_COLUMNS = ("figure", "published", "ours", "from", "to", "kind", "wanted", "verdict", "why")


def _check_row(check: Check) -> tuple[Cell, ...]:
    low, high = check.interval or (math.nan, math.nan)
    measured = check.measured
    figure = _digits(measured) if isinstance(measured, float) else measured
    ends = (_digits(low), _digits(high))
    said = (check.kind.value, check.wanted, check.verdict.value, check.why)
    return (check.what, check.published, figure, *ends, *said)


def markdown_table(table: Table) -> str:
    """Columns of numbers are aligned to the right."""
    numbers = [all(not isinstance(row[i], str) for row in table.rows) for i in range(len(table.columns))]
    lines = [_line(table.columns), _line("---:" if number else "---" for number in numbers)]
    lines += [_line(shown(cell) for cell in row) for row in table.rows]
    return "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _series(plot: AnyPlot) -> tuple[list[str], list[list[Cell]]]:
    """The columns of a plot's CSV file and its rows."""
    match plot:
        case Plot():
            named = [(plot.x_label, plot.x)]
            for label, line in plot.lines.items():
                named += _with_ends(label, line, plot.bands)
            return [name for name, _ in named], [
                [_digits(column[i]) for _, column in named] for i in range(len(plot.x))
            ]
        case Cdf():
            pairs = [
                (label, *pair) for label, each in plot.samples.items() for pair in zip(*steps_of(each), strict=True)
            ]
            return ["of", plot.x_label, "share"], [[label, _digits(x), _digits(share)] for label, x, share in pairs]
        case Bars():
            named = []
            for label, heights in plot.bars.items():
                named += _with_ends(label, heights, plot.intervals)
            return [plot.x_label, *(name for name, _ in named)], [
                [group, *(_digits(column[i]) for _, column in named)] for i, group in enumerate(plot.groups)
            ]


def _with_ends(label: str, values: np.ndarray, intervals: Mapping[str, np.ndarray]) -> list[tuple[str, np.ndarray]]:
    """A column and, if there is an interval, those of its ends."""
    ends = intervals.get(label)
    if ends is None:
        return [(label, values)]
    return [(label, values), (f"{label}, from", ends[0]), (f"{label}, to", ends[1])]


def _digits(value: float) -> Cell:
    """Six digits, nothing where there is no value."""
    return None if np.isnan(value) else float(f"{value:.6g}")


def _csv(heads: Sequence[str], rows: Iterable[Sequence[Cell]]) -> bytes:
    return csv_text(heads, rows).encode()
