"""``hyroads study``: repeat a published experiment without a network; CSV, plots and a one-page report."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table

from hyroads.controller.study.framework import STUDIES, Progress, Result, Settings, StudyError, shown, study
from hyroads.controller.study.report import need_matplotlib, write

from .main import Command, argument

_MOST_RUNS = 1_000_000


def _run(args: argparse.Namespace) -> int:
    settings = _settings(args)
    if not args.no_plots:
        need_matplotlib()
    folder = args.out or Path("out") / f"study-{args.name}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StudyError(f"--out {folder}: {error.strerror}") from error
    with _progress(args.name) as progress:
        result = study(args.name).run(settings, progress)
    files = write(result, folder, plots=not args.no_plots)
    if args.json:
        print(json.dumps(document(args.name, result, files), indent=2))
    else:
        _print(result, files)
    return 0


def document(name: str, result: Result, files: list[Path]) -> dict[str, Any]:
    """The JSON document: tables as lists of cells, targets, and what was written."""
    return {
        "study": name,
        "title": result.title,
        "tables": [
            {"name": t.name, "columns": list(t.columns), "rows": [list(row) for row in t.rows]} for t in result.tables
        ],
        "checks": [{"what": c.what, "wanted": c.wanted, "measured": c.measured, "ok": c.ok} for c in result.checks],
        "files": [str(path) for path in files],
    }


def _settings(args: argparse.Namespace) -> Settings:
    for option, value, most in (("--runs", args.runs, _MOST_RUNS), ("--workers", args.workers, 256)):
        if value is not None and not 1 <= value <= most:
            raise StudyError(f"{option} must be between 1 and {most}, got {value}")
    if args.seed < 0:
        raise StudyError(f"--seed must not be negative, got {args.seed}")
    return Settings(args.runs, args.seed, args.quick, args.workers)


@contextmanager
def _progress(name: str) -> Iterator[Progress]:
    """A bar on stderr, drawn only on a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task(f"study {name}", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _print(result: Result, files: list[Path]) -> None:
    console = Console()
    for table in result.tables:
        drawn = Table(title=table.title, title_justify="left")
        for number, column in enumerate(table.columns):
            drawn.add_column(column, justify="left" if number == 0 else "right", no_wrap=True)
        for row in table.rows:
            drawn.add_row(*map(shown, row))
        console.print(drawn)
    for check in result.checks:
        mark = "[green]met [/green]" if check.ok else "[red]MISSED[/red]"
        console.print(f"{mark} {check.what}: {shown(check.measured)} (wanted: {check.wanted})", highlight=False)
    console.print(f"report: {files[0]}", highlight=False)


COMMAND = Command(
    "Repeat a published experiment by simulation, show all algorithms side by side, and write CSV files, plots "
    "(PNG, SVG) and a one-page report. The same seed gives the same figures on any number of workers.",
    _run,
    argument("name", choices=sorted(STUDIES), metavar="NAME", help=" | ".join(sorted(STUDIES))),
    argument("--runs", type=int, metavar="N", help="independent repetitions (default: the study's)"),
    argument("--seed", type=int, default=1, metavar="S", help="of all random numbers (default: %(default)s)"),
    argument("--out", type=Path, metavar="DIR", help="folder to write to (default: out/study-NAME)"),
    argument("--quick", action="store_true", help="fewer repetitions: coarse figures in seconds"),
    argument("--workers", type=int, metavar="W", default=os.cpu_count() or 1, help="processes (default: one per core)"),
    argument("--no-plots", action="store_true", help="no PNG and SVG; needs no Matplotlib"),
    argument("--json", action="store_true", help="print one JSON document instead of tables"),
)
