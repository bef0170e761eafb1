"""Writes a result: a CSV file per table and plot, a report in Markdown, plots (by Matplotlib, the extra ``study``)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path

from .framework import Cell, Plot, Result, StudyError, Table, shown

PLOT_SUFFIXES = (".png", ".svg")
_SIZE_INCHES = (8.0, 4.5)
_DPI = 140


def need_matplotlib() -> None:
    """Raises ``StudyError`` if plots can't be drawn; asked before a study runs, not after minutes of work."""
    if find_spec("matplotlib") is None:
        raise StudyError("plots need Matplotlib: pip install 'hyroads[study]', or give --no-plots")


def draw(plot: Plot, folder: Path) -> list[Path]:
    """Draw ``plot`` into ``folder`` as PNG and SVG."""
    need_matplotlib()
    # The figure is made without pyplot: no global state, no window system.
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    axes = figure.add_subplot()
    for number, (label, values) in enumerate(plot.lines.items()):
        axes.plot(plot.x, values, label=label, linewidth=1.2, color=f"C{number % 10}", zorder=3)
    for height, text in plot.marks:
        axes.axhline(height, color="0.6", linewidth=0.8, linestyle="--")
        axes.annotate(text, (0.01, height), xycoords=("axes fraction", "data"), ha="left", va="bottom", color="0.4")
    if plot.logarithmic:
        axes.set_xscale("log")
    axes.set(title=plot.title, xlabel=plot.x_label, ylabel=plot.y_label)
    axes.margins(x=0)
    axes.grid(alpha=0.25)
    axes.legend(fontsize="small", loc="lower right")
    files = [folder / f"{plot.name}{suffix}" for suffix in PLOT_SUFFIXES]
    for path in files:
        # Without a date the same study gives the same files.
        figure.savefig(path, dpi=_DPI, metadata={"Date": None} if path.suffix == ".svg" else None)
    return files


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


def _series(plot: Plot) -> tuple[list[str], list[list[float]]]:
    columns = [plot.x, *plot.lines.values()]
    return [plot.x_label, *plot.lines], [[float(f"{column[i]:.6g}") for column in columns] for i in range(len(plot.x))]


def _write_csv(path: Path, heads: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Path:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows(["" if cell is None else cell for cell in row] for row in rows)
    path.write_text(text.getvalue(), encoding="utf-8")
    return path
