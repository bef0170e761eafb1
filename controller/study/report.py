"""Writes a result: one CSV file per table and plot, the plots as PNG and SVG, a one-page report in Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from hyroads.controller.study.framework import Cell, Plot, Result, StudyError, Table, shown
from hyroads.controller.study.plots import PLOT_SUFFIXES, draw


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
