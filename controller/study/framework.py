"""What a study is: settings in, a result out; how it is drawn and written is the same for all studies.

A study's module has ``TITLE: str`` and ``run(settings, progress) -> Result``. It draws nothing and writes nothing, and
is imported only when it is run. Its tasks are independent; the results do not depend on how many processes there are.
"""

from __future__ import annotations

import importlib
import multiprocessing
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.core.errors import HyroadsError

Cell = str | float | int | None
Progress = Callable[[int, int], None]


class StudyError(HyroadsError):
    """A study could not be run or written."""


@dataclass(frozen=True, slots=True)
class Settings:
    """``runs``: independent repetitions, None for the study's default; ``quick``: a coarse result in seconds."""

    runs: int | None = None
    seed: int = 1
    quick: bool = False
    workers: int = 1


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under headings; numbers are kept exact here and rounded when shown."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True)
class Plot:
    """Lines over a common axis; ``marks`` are horizontal lines with a label, ``logarithmic`` is about the x axis."""

    name: str
    title: str
    x_label: str
    y_label: str
    x: NDArray[np.float64]
    lines: Mapping[str, NDArray[np.float64]]
    logarithmic: bool = False
    marks: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """One figure against what is wanted of it."""

    what: str
    wanted: str
    measured: float | int | None
    ok: bool


@dataclass(frozen=True, slots=True)
class Result:
    """All that a study found. ``setting`` says in words what was simulated, ``notes`` what to make of it."""

    title: str
    setting: str
    tables: Sequence[Table]
    plots: Sequence[Plot]
    checks: Sequence[Check]
    notes: Sequence[str]


class Study(Protocol):
    """What the module of a study offers."""

    TITLE: str

    def run(self, settings: Settings, progress: Progress) -> Result:
        """Carry it out; ``progress(done, total)`` is called now and then."""


def shown(cell: Cell) -> str:
    """A cell as it is printed: three digits after the point, a dash for what does not exist."""
    if cell is None:
        return "-"
    return f"{cell:.3f}" if isinstance(cell, float) else str(cell)


STUDIES: dict[str, str] = {
    "bandit": "hyroads.controller.study.bandit",
    "bandit-dynamic": "hyroads.controller.study.bandit_dynamic",
    "fairness": "hyroads.controller.study.fairness",
}


def study(name: str) -> Study:
    """The study of that name, a key of ``STUDIES``."""
    return cast(Study, importlib.import_module(STUDIES[name]))


Task = TypeVar("Task")
Outcome = TypeVar("Outcome")


def run_all(work: Callable[[Task], Outcome], tasks: Sequence[Task], workers: int, progress: Progress) -> list[Outcome]:
    """``work(task)`` for every task, in order; ``work`` is a function of a module and tasks can be pickled.

    ``progress(done, total)`` is called after each. With one worker everything stays in this process.
    """
    progress(0, len(tasks))
    if workers <= 1:
        results = []
        for done, task in enumerate(tasks, start=1):
            results.append(work(task))
            progress(done, len(tasks))
        return results
    # Processes start anew: a fork would copy the thread that draws the progress bar in whatever state it is.
    # An interrupt is for this process, which then drops what is waiting.
    context, ignore = multiprocessing.get_context("spawn"), (signal.SIGINT, signal.SIG_IGN)
    with ProcessPoolExecutor(workers, mp_context=context, initializer=signal.signal, initargs=ignore) as pool:
        futures = [pool.submit(work, task) for task in tasks]
        try:
            for done, _ in enumerate(as_completed(futures), start=1):
                progress(done, len(tasks))
            return [future.result() for future in futures]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
