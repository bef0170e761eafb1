"""Writes a result: a CSV file per table and plot, a report in Markdown, plots (by Matplotlib, the extra ``study``)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .framework import AnyPlot, Bars, Cdf, Cell, Plot, Result, StudyError, Table, shown

PLOT_SUFFIXES = (".png", ".svg")
_SIZE_INCHES = (8.0, 4.5)
_DPI = 140


def need_matplotlib() -> None:
    """Raises ``StudyError`` if plots can't be drawn; asked before a study runs, not after minutes of work."""
    if find_spec("matplotlib") is None:
        raise StudyError("plots need Matplotlib: pip install 'hyroads[study]', or give --no-plots")


def draw(plot: AnyPlot, folder: Path) -> list[Path]:
    """Draw ``plot`` into ``folder`` as PNG and SVG."""
    need_matplotlib()
    # The figure is made without pyplot: no global state, no window system.
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    axes = figure.add_subplot()
    match plot:
        case Plot():
            _draw_lines(plot, axes)
        case Cdf():
            _draw_cdf(plot, axes)
        case Bars():
            _draw_bars(plot, axes)
    axes.set(title=plot.title)
    axes.grid(alpha=0.25)
    axes.legend(fontsize="small", loc="best")
    files = [folder / f"{plot.name}{suffix}" for suffix in PLOT_SUFFIXES]
    for path in files:
        # Without a date the same study gives the same files.
        figure.savefig(path, dpi=_DPI, metadata={"Date": None} if path.suffix == ".svg" else None)
    return files


def _draw_lines(plot: Plot, axes: Any) -> None:
    for number, (label, values) in enumerate(plot.lines.items()):
        axes.plot(plot.x, values, label=label, linewidth=1.2, color=f"C{number % 10}", zorder=3)
        if label in plot.bands:
            axes.fill_between(plot.x, *plot.bands[label], color=f"C{number % 10}", alpha=0.2, linewidth=0)
    _horizontal_marks(plot.marks, axes)
    if plot.logarithmic:
        axes.set_xscale("log")
    if plot.logarithmic_y:
        axes.set_yscale("log")
    axes.set(xlabel=plot.x_label, ylabel=plot.y_label)
    axes.margins(x=0)


def _draw_cdf(plot: Cdf, axes: Any) -> None:
    for label, values in plot.samples.items():
        x, share = steps_of(values)
        finite = np.isfinite(x)
        axes.step(x[finite], share[finite], where="post", label=label, linewidth=1.2, zorder=3)
    for at, text in plot.marks:
        axes.axvline(at, color="0.6", linewidth=0.8, linestyle="--")
        axes.annotate(text, (at, 0.01), xycoords=("data", "axes fraction"), rotation=90, va="bottom", color="0.4")
    if plot.logarithmic:
        axes.set_xscale("log")
    axes.set(xlabel=plot.x_label, ylabel="share of runs", ylim=(0.0, 1.0))


def _draw_bars(plot: Bars, axes: Any) -> None:
    width = 0.8 / len(plot.bars)
    middle = np.arange(len(plot.groups), dtype=np.float64)
    for number, (label, heights) in enumerate(plot.bars.items()):
        at = middle + (number - (len(plot.bars) - 1) / 2) * width
        ends = plot.intervals.get(label)
        errors = None if ends is None else np.maximum(np.abs(ends - heights), 0.0)
        axes.bar(at, heights, width, label=label, yerr=errors, capsize=2, zorder=3)
    _horizontal_marks(plot.marks, axes)
    if plot.logarithmic:
        axes.set_yscale("log")
    axes.set(xlabel=plot.x_label, ylabel=plot.y_label, xticks=middle, xticklabels=plot.groups)


def _horizontal_marks(marks: Iterable[tuple[float, str]], axes: Any) -> None:
    for height, text in marks:
        axes.axhline(height, color="0.6", linewidth=0.8, linestyle="--")
        axes.annotate(text, (0.01, height), xycoords=("axes fraction", "data"), ha="left", va="bottom", color="0.4")


def steps_of(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The sorted values without NaN, float64[n], and the share of all that is at most as large, float64[n]."""
    known = np.sort(values[~np.isnan(values)])
    return known, np.arange(1, len(known) + 1) / max(1, len(known))


def write(result: Result, folder: Path, plots: bool) -> list[Path]:
    """Write everything into ``folder`` (made if missing) and return the files, the report first."""
    report = folder / "report.md"
    files = [report]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for table in result.tables:
            files.append(_write_csv(folder / f"{table.name}.csv", table.columns, table.rows))
        for plot in result.plots:
            files.append(_write_csv(folder / f"{plot.name}.csv", *_series(plot)))
            if plots:
                files += draw(plot, folder)
        report.write_text(markdown(result, plots), encoding="utf-8")
    except OSError as error:
        raise StudyError(f"{error.filename or folder}: {error.strerror}") from error
    return files


def markdown(result: Result, plots: bool) -> str:
    """The one-page report."""
    parts = [f"# {result.title}", result.setting]
    for table in result.tables:
        parts += [f"**{table.title}**", markdown_table(table)]
    if result.checks:
        rows = tuple((c.what, c.wanted, c.measured, "yes" if c.ok else "**no**") for c in result.checks)
        parts += ["**Targets**", markdown_table(Table("", "", ("figure", "wanted", "measured", "met"), rows))]
    for plot in result.plots:
        parts.append(f"![{plot.title}]({plot.name}{PLOT_SUFFIXES[0]})" if plots else f"{plot.title}: {plot.name}.csv")
    parts += result.notes
    return "\n\n".join(parts) + "\n"


def markdown_table(table: Table) -> str:
    """Columns of numbers are aligned to the right."""
    numbers = [all(not isinstance(row[i], str) for row in table.rows) for i in range(len(table.columns))]
    lines = [_line(table.columns), _line("---:" if number else "---" for number in numbers)]
    lines += [_line(shown(cell).replace("|", "\\|") for cell in row) for row in table.rows]
    return "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _series(plot: AnyPlot) -> tuple[list[str], list[list[Cell]]]:
    rows: list[list[Cell]]
    match plot:
        case Plot():
            columns = [plot.x, *plot.lines.values()]
            return [plot.x_label, *plot.lines], [[_digits(column[i]) for column in columns] for i in range(len(plot.x))]
        case Cdf():
            pairs = [
                (label, *pair) for label, each in plot.samples.items() for pair in zip(*steps_of(each), strict=True)
            ]
            return ["of", plot.x_label, "share"], [[label, _digits(x), _digits(share)] for label, x, share in pairs]
        case Bars():
            heads: list[str] = [plot.x_label]
            rows = [[group] for group in plot.groups]
            for label, heights in plot.bars.items():
                ends = plot.intervals.get(label)
                columns = [heights] if ends is None else [heights, *ends]
                heads += [label] if ends is None else [label, f"{label}, from", f"{label}, to"]
                for i, row in enumerate(rows):
                    row += [_digits(column[i]) for column in columns]
            return heads, rows


def _digits(value: float) -> Cell:
    """Six digits, nothing where there is no value."""
    return None if np.isnan(value) else float(f"{value:.6g}")


def _write_csv(path: Path, heads: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Path:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows(["" if cell is None else cell for cell in row] for row in rows)
    path.write_text(text.getvalue(), encoding="utf-8")
    return path
