"""``hyroads study``: repeat published experiments without a network; CSV, plots and a one-page report."""

from __future__ import annotations

import argparse
import difflib
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.study.carry_out import Carried, carry_out
from hyroads.controller.study.dask_engine import Tls, dask_workers
from hyroads.controller.study.drawing import need_matplotlib
from hyroads.controller.study.framework import STUDIES, Engine, Progress, Result, Settings, StudyError, shown, study
from hyroads.controller.study.report import ours, put, writable
from hyroads.controller.study.verdicts import Interval, Kind, Verdict, count, summary

from .main import Command, argument

ALL = "all"
LIVE = "live-"
"""Studies whose names begin so need root and minutes of real time: they are no part of ``all``."""
_MOST = {"--runs": 1_000_000, "--workers": 256, "--repeat": 1000}


def _run(args: argparse.Namespace) -> int:
    if args.list:
        return _list(args.json)
    names = _names(args.name)
    settings = _settings(args)
    if not args.no_plots:
        need_matplotlib()
    if args.name == ALL:
        return _run_all_studies(args, names, settings)
    folder = args.out or Path("out") / f"study-{args.name}"
    if args.name.startswith(LIVE):
        settings = replace(settings, rows=_rows(args, folder))
    with _bars(names, args.repeat) as bars, _engine(args) as engine:
        settings = replace(settings, engine=engine)
        carried = _carry_out(args, args.name, settings, folder, bars.of(args.name))
    carried.forget()
    if args.json:
        print(json.dumps(document(args.name, carried.result, carried.files), indent=2))
    else:
        _print(carried)
    return _status([carried])


MISSES_REFERENCE = 3
"""The exit status if a study misses our own reference."""


def _status(done: Iterable[Carried]) -> int:
    """Missed published figures and undecided checks are results; a missed reference is most likely a defect."""
    missed = sum(count(carried.result.checks, Kind.REFERENCE, Verdict.MISSED) for carried in done)
    return MISSES_REFERENCE if missed else 0


def _rows(args: argparse.Namespace, folder: Path) -> Path:
    """The file of a live study's rows; ``--fresh`` begins it anew."""
    path: Path = args.rows or folder / "rows.jsonl"
    if args.fresh:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise StudyError(f"--rows {path}: {error.strerror}") from error
    return path


def _run_all_studies(args: argparse.Namespace, names: Sequence[str], settings: Settings) -> int:
    """One study after the other, each into a folder of its own; whatever fails is said at the end."""
    out = args.out or Path("out") / "studies"
    writable(out)
    done: dict[str, Carried] = {}
    failed: dict[str, str] = {}
    with _bars(names, args.repeat) as bars, _engine(args) as engine:
        settings = replace(settings, engine=engine)
        for name in names:
            try:
                done[name] = _carry_out(args, name, settings, out / name, bars.of(name))
                words = summary(done[name].result.checks)
            except Exception as error:  # noqa: BLE001 - the others are carried out; it is shown, and the status tells
                failed[name] = str(error) if isinstance(error, HyroadsError) else f"{type(error).__name__}: {error}"
                words = f"FAILED: {failed[name]}"
            bars.finished(name)
            if not args.json:
                print(f"{name}: {words}", flush=True)
                for remark in done[name].remarks if name in done else ():
                    print(f"{name}: {remark}", flush=True)
    put({"report.md": _overview(done, failed).encode()}, out)
    if not failed:
        for carried in done.values():
            carried.forget()
    if args.json:
        documents = [document(name, carried.result, carried.files) for name, carried in done.items()]
        print(json.dumps({"studies": documents, "failed": failed}, indent=2))
    else:
        print(f"report: {out / 'report.md'}")
    return 1 if failed else _status(done.values())


@contextmanager
def _engine(args: argparse.Namespace) -> Iterator[Engine | None]:
    """What carries out tasks, if it is not this machine."""
    files = (args.dask_ca, args.dask_cert, args.dask_key)
    if args.dask is None:
        if any(files) or args.dask_insecure:
            raise StudyError("--dask-ca, --dask-cert, --dask-key and --dask-insecure need --dask")
        yield None
        return
    if any(files) and not all(files):
        raise StudyError("--dask-ca, --dask-cert and --dask-key belong together")
    with dask_workers(args.dask, Tls(*files) if all(files) else None, args.dask_insecure) as workers:
        yield workers


def _carry_out(args: argparse.Namespace, name: str, settings: Settings, folder: Path, progress: Progress) -> Carried:
    try:
        return carry_out(
            name, settings, folder, progress, plots=not args.no_plots, repeat=args.repeat, fresh=args.fresh
        )
    except KeyboardInterrupt:
        print(f"hyroads study: interrupted; the same command goes on with what is kept in {folder}", file=sys.stderr)
        raise


def _overview(done: dict[str, Carried], failed: dict[str, str]) -> str:
    lines = ["# Studies", "", "| study | repeats | checks |", "|---|---|---|"]
    for name, carried in done.items():
        lines.append(f"| [{name}]({name}/report.md) | {study(name).FIGURES} | {summary(carried.result.checks)} |")
    lines += [f"| {name} | {study(name).FIGURES} | failed |" for name in failed]
    return "\n".join(lines) + "\n"


def document(name: str, result: Result, files: Sequence[Path]) -> dict[str, Any]:
    """The JSON document: tables as lists of cells, targets, and what was written."""
    return {
        "study": name,
        "title": result.title,
        "figures": study(name).FIGURES,
        "tables": [
            {"name": t.name, "columns": list(t.columns), "rows": [list(row) for row in t.rows]} for t in result.tables
        ],
        "checks": [
            {
                "what": check.what,
                "published": check.published,
                "wanted": check.wanted,
                "measured": check.measured,
                "interval": _finite(check.interval),
                "kind": check.kind.value,
                "verdict": check.verdict.value,
                "why": check.why,
            }
            for check in result.checks
        ],
        "files": [str(path) for path in files],
    }


def _finite(interval: Interval | None) -> list[float | None] | None:
    """The ends of an interval; JSON has no infinite numbers, so those are null."""
    return None if interval is None else [end if math.isfinite(end) else None for end in interval]


def _names(name: str | None) -> list[str]:
    """The studies that are meant by that word."""
    if name is None:
        raise StudyError("no study given; --list shows all studies")
    if name == ALL:
        return [each for each in STUDIES if not each.startswith(LIVE)]
    if name in STUDIES:
        return [name]
    close = difflib.get_close_matches(name, [*STUDIES, ALL], n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    raise StudyError(f"unknown study {name[:40]!a}{hint}; studies are {', '.join(STUDIES)} and {ALL}")


def _settings(args: argparse.Namespace) -> Settings:
    for option, value in (("--runs", args.runs), ("--workers", args.workers), ("--repeat", args.repeat)):
        if value is not None and not 1 <= value <= _MOST[option]:
            raise StudyError(f"{option} must be between 1 and {_MOST[option]}, got {value}")
    if args.seed < 0:
        raise StudyError(f"--seed must not be negative, got {args.seed}")
    if args.rows is not None and not (args.name or "").startswith(LIVE):
        raise StudyError(f"--rows is for live studies ({LIVE}...)")
    if args.traces is not None and not (args.traces.is_dir() and os.access(args.traces, os.R_OK | os.X_OK)):
        raise StudyError(f"--traces {args.traces}: expected a folder that can be read")
    return Settings(args.runs, args.seed, args.quick, args.workers, args.traces)


def _list(as_json: bool) -> int:
    """All studies: name, the published figures, and how long they take."""
    rows = []
    for name in STUDIES:
        module = study(name)
        times: tuple[float | None, float | None] = getattr(module, "TIMES_S", (None, None))
        rows.append((name, module.TITLE, module.FIGURES, *times))
    if as_json:
        heads = ("name", "title", "figures", "quick_s", "full_s")
        print(json.dumps([dict(zip(heads, row, strict=True)) for row in rows], indent=2))
        return 0
    drawn = Table(box=None, pad_edge=False)
    drawn.add_column("study", no_wrap=True)
    drawn.add_column("figures", overflow="fold")
    drawn.add_column("--quick", justify="right", no_wrap=True)
    drawn.add_column("full", justify="right", no_wrap=True)
    for name, _, figures, quick_s, full_s in rows:
        drawn.add_row(name, figures, _time(quick_s), _time(full_s))
    Console().print(drawn)
    return 0


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


class _Bars:
    """The bars on stderr: one for the study that runs, and with several studies one for all of them."""

    def __init__(self, bar: Bar, names: Sequence[str], repeat: int) -> None:
        self._bar = bar
        self._repeat = repeat
        # What a study takes of the whole, as far as that is known.
        self._weights = dict.fromkeys(names, 1.0)
        if len(names) > 1:
            self._weights = {name: float(getattr(study(name), "TIMES_S", (1.0,))[0]) for name in names}
        self._all: TaskID | None = bar.add_task("all studies", total=1000) if len(names) > 1 else None
        self._done = 0.0
        self._one: TaskID | None = None

    def of(self, name: str) -> Progress:
        """A new bar for this study, in the place of that of the study before."""
        if self._one is not None:
            self._bar.remove_task(self._one)
        self._one = one = self._bar.add_task(f"study {name}", total=None)
        repetition = 0

        def progress(done: int, total: int) -> None:
            nonlocal repetition
            if done == 0 and self._repeat > 1:
                repetition += 1
                self._bar.reset(one, description=f"study {name} ({min(repetition, self._repeat)})")
            self._bar.update(one, completed=done, total=total)
            if self._all is not None and self._repeat == 1:
                self._show(self._done + self._weights[name] * done / max(1, total))

        return progress

    def finished(self, name: str) -> None:
        """This study has ended, well or not."""
        self._done += self._weights[name]
        self._show(self._done)

    def _show(self, done: float) -> None:
        if self._all is not None:
            self._bar.update(self._all, completed=round(1000 * done / sum(self._weights.values())))


@contextmanager
def _bars(names: Sequence[str], repeat: int) -> Iterator[_Bars]:
    """Bars with the remaining time, drawn only on a terminal. Live studies print a line a row instead: their networks
    are forked, which a thread that draws must not see.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(file=sys.stderr)
    quiet = not console.is_terminal or any(name.startswith(LIVE) for name in names)
    with Bar(*columns, console=console, transient=True, disable=quiet) as bar:
        yield _Bars(bar, names, repeat)


_WIDE = 200
"""Columns of what is printed to a file or a pipe: whoever reads it there wants whole cells."""


_MARKS = {
    Verdict.MET: "[green]met      [/green]",
    Verdict.MISSED: "[red]MISSED   [/red]",
    Verdict.UNDECIDED: "[yellow]undecided[/yellow]",
}


def _print(carried: Carried) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDE)
    for table in carried.result.tables:
        drawn = Table(title=table.title, title_justify="left")
        for number, column in enumerate(table.columns):
            drawn.add_column(column, justify="left" if number == 0 else "right", no_wrap=True)
        for row in table.rows:
            drawn.add_row(*map(shown, row))
        console.print(drawn)
    for check in carried.result.checks:
        mark = _MARKS[check.verdict]
        published = f"; published: {check.published}" if check.published else ""
        wanted = f"{check.kind.value}, wanted: {check.wanted}{published}"
        console.print(f"{mark} {check.what}: {ours(check)} ({wanted})", highlight=False)
    if carried.result.checks:
        console.print(f"checks: {summary(carried.result.checks)}", highlight=False)
    for remark in carried.remarks:
        console.print(remark, highlight=False, markup=False)
    console.print(f"report: {carried.files[0]}", highlight=False)


COMMAND = Command(
    "Repeat a published experiment by simulation, show all algorithms side by side, and write CSV files, plots "
    "(PNG, SVG, PDF) and a one-page report of what was published and what we find. The same seed gives the same files "
    "on any number of workers. An interrupted study goes on with the same command. Exit status: 0, 1 if one of all "
    "studies failed, 2 on bad input, 3 if a check against our own reference is missed. A published figure that is "
    "missed and an undecided check leave it 0.",
    _run,
    argument("name", nargs="?", metavar="NAME", help=f"{' | '.join(STUDIES)} | {ALL}: one after the other"),
    argument("--list", action="store_true", help="all studies: the published figures, and how long they take"),
    argument("--runs", type=int, metavar="N", help="independent repetitions (default: the study's)"),
    argument("--seed", type=int, default=1, metavar="S", help="of all random numbers (default: %(default)s)"),
    argument(
        "--repeat",
        type=int,
        default=1,
        metavar="K",
        help="carry it out with K seeds from S on; figures are means with 95 %% intervals over them",
    ),
    argument(
        "--out", type=Path, metavar="DIR", help="folder to write to (default: out/study-NAME; of all: out/studies)"
    ),
    argument("--quick", action="store_true", help="fewer repetitions: coarse figures in seconds"),
    argument("--traces", type=Path, metavar="DIR", help="recorded traces, for the studies that can read some"),
    argument(
        "--rows",
        type=Path,
        metavar="FILE",
        help="rows of a live study: those that are there are not measured again (default: rows.jsonl in --out)",
    ),
    argument("--workers", type=int, metavar="W", default=os.cpu_count() or 1, help="processes (default: one per core)"),
    argument("--dask", metavar="ADDRESS", help="carry tasks out on a Dask cluster: tls://HOST:PORT of its scheduler"),
    argument("--dask-ca", type=Path, metavar="FILE", help="certificate of the authority of the cluster (PEM)"),
    argument("--dask-cert", type=Path, metavar="FILE", help="certificate of this command"),
    argument("--dask-key", type=Path, metavar="FILE", help="its key, mode 0600"),
    argument("--dask-insecure", action="store_true", help="let tcp:// leave this machine, for all to read and change"),
    argument("--fresh", action="store_true", help="take nothing from an interrupted run: begin anew"),
    argument("--no-plots", action="store_true", help="no PNG, SVG and PDF; needs no Matplotlib"),
    argument("--json", action="store_true", help="print one JSON document instead of tables"),
)
