"""A study repeated with several seeds: the mean of each figure and its interval over the repetitions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from .framework import AnyPlot, Bars, Cdf, Cell, Plot, Result, Table
from .intervals import NO_INTERVAL, interval_of_mean
from .verdicts import Check, Interval, Verdict


def combine(results: Sequence[Result], seeds: Sequence[int]) -> Result:
    """One result of those of several seeds, two or more.

    A number is the mean over the repetitions with its 95 % interval (Student's t), and so are lines and bars; values of
    distributions are put together. What has not the same rows in all repetitions is that of the first.
    """
    first = results[0]
    count = len(results)
    plots: list[AnyPlot] = [_plot([result.plots[number] for result in results]) for number in range(len(first.plots))]
    notes = [
        f"Figures are means over {count} repetitions with the seeds {seeds[0]} to {seeds[-1]}, with 95 % intervals "
        "by Student's t. The setting is that of the first repetition. A figure that some repetitions lack is the mean "
        "of those that have it. Each repetition has a report of its own in its folder.",
        *first.notes,
    ]
    return Result(
        first.title,
        f"{count} repetitions. {first.setting}",
        [_table([result.tables[number] for result in results]) for number in range(len(first.tables))],
        plots,
        [_check([result.checks[number] for result in results]) for number in range(len(first.checks))],
        notes,
    )


def mean_of(values: Sequence[float]) -> tuple[float, float]:
    """The mean of independent values, and how far the ends of its 95 % interval are from it (Student's t)."""
    known = np.array(values, dtype=np.float64)
    if len(known) < 2:
        return (float(known[0]) if len(known) else math.nan, math.nan)
    mean = float(known.mean())
    return mean, interval_of_mean(known)[1] - mean


def _is_number(cell: Cell) -> bool:
    return isinstance(cell, int | float)


def _table(tables: Sequence[Table]) -> Table:
    """Columns of numbers that differ become two: the mean, and the half width of its interval."""
    first = tables[0]
    if any(table.columns != first.columns or len(table.rows) != len(first.rows) for table in tables):
        return replace(first, title=f"{first.title} (first repetition)")
    heads: list[str] = []
    columns: list[list[Cell]] = []
    for number, head in enumerate(first.columns):
        cells = [[table.rows[i][number] for table in tables] for i in range(len(first.rows))]
        if all(len(set(row)) == 1 for row in cells):
            heads.append(head)
            columns.append([row[0] for row in cells])
            continue
        pairs = [_mean_cell(row) for row in cells]
        heads += [head, f"{head}, +-"]
        columns += [[mean for mean, _ in pairs], [half for _, half in pairs]]
    return replace(first, columns=tuple(heads), rows=tuple(zip(*columns, strict=True)))


def _mean_cell(cells: Sequence[Cell]) -> tuple[Cell, Cell]:
    known = [float(cell) for cell in cells if isinstance(cell, int | float)]
    if known and all(cell is None or _is_number(cell) for cell in cells):
        mean, half = mean_of(known)
        return mean, None if math.isnan(half) else half
    texts = dict.fromkeys(str(cell) for cell in cells if cell is not None)
    return (" / ".join(texts) or None), None


def _check(checks: Sequence[Check]) -> Check:
    """The mean of a figure against the same band; the verdict is that of its interval over the repetitions."""
    known = [float(check.measured) for check in checks if check.measured is not None]
    mean, _ = mean_of(known)
    found = [f"{sum(check.verdict is verdict for check in checks)} {verdict.value}" for verdict in Verdict]
    return replace(
        checks[0],
        band=replace(checks[0].band, words=f"{checks[0].wanted}: {', '.join(found)} of {len(checks)}"),
        measured=mean if known else None,
        interval=_interval(checks, known),
    )


def _interval(checks: Sequence[Check], known: Sequence[float]) -> Interval | None:
    """Student's over the repetitions. Where all have the same figure it has no width: then what their own hold.

    A figure that some repetition lacks may be anything.
    """
    if len(known) < len(checks):
        return NO_INTERVAL
    own = [check.interval for check in checks if check.interval is not None]
    if len(set(known)) == 1:
        return (min(low for low, _ in own), max(high for _, high in own)) if own else None
    return interval_of_mean(np.array(known, dtype=np.float64))


def _plot(plots: Sequence[AnyPlot]) -> AnyPlot:
    first = plots[0]
    match first:
        case Plot():
            lines = [each for each in plots if isinstance(each, Plot) and np.array_equal(each.x, first.x)]
            if len(lines) < len(plots) or any(each.lines.keys() != first.lines.keys() for each in lines):
                return replace(first, title=f"{first.title} (first repetition)")
            means = {label: _means([each.lines[label] for each in lines]) for label in first.lines}
            return replace(
                first,
                lines={label: mean for label, (mean, _) in means.items()},
                bands={label: ends for label, (_, ends) in means.items()},
            )
        case Bars():
            bars = [each for each in plots if isinstance(each, Bars) and each.groups == first.groups]
            if len(bars) < len(plots) or any(each.bars.keys() != first.bars.keys() for each in bars):
                return replace(first, title=f"{first.title} (first repetition)")
            means = {label: _means([each.bars[label] for each in bars]) for label in first.bars}
            return replace(
                first,
                bars={label: mean for label, (mean, _) in means.items()},
                intervals={label: ends for label, (_, ends) in means.items()},
            )
        case Cdf():
            found = [each for each in plots if isinstance(each, Cdf)]
            labels = dict.fromkeys(label for each in found for label in each.samples)
            joined = {
                label: np.concatenate([each.samples[label] for each in found if label in each.samples])
                for label in labels
            }
            return replace(first, samples=joined)


def _means(lines: Sequence[NDArray[np.float64]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The mean line, float64[n], and the ends of its interval, float64[2, n], over the lines that have a value."""
    pairs = [mean_of([value for value in column if not math.isnan(value)]) for column in zip(*lines, strict=True)]
    mean, half = (np.array(each, dtype=np.float64) for each in zip(*pairs, strict=True))
    return mean, np.array([mean - half, mean + half])
