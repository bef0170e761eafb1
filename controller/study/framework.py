"""What a study is: settings in, a result out; how it is drawn and written is the same for all studies.

A study's module has ``TITLE``, ``FIGURES``, ``TIMES_S`` and ``run(settings, progress) -> Result``. It draws nothing and
writes nothing, and is imported only when it is run. Its tasks are independent; the results do not depend on how many
processes or machines there are, nor on whether some of them were done by an earlier run (``run_all``).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.core.errors import HyroadsError

from .verdicts import Check

Cell = str | float | int | None
Progress = Callable[[int, int], None]


class StudyError(HyroadsError):
    """A study could not be run or written."""


Task = TypeVar("Task")
Kind = TypeVar("Kind", str, int)
Outcome = TypeVar("Outcome")


class Engine(Protocol):
    """What carries out tasks: this process, several (``engines.py``), or other machines (``dask_engine.py``)."""

    def outcomes(self, work: Callable[[Any], Any], tasks: Mapping[int, Any]) -> Iterator[tuple[int, Any]]:
        """The number of each task with what ``work`` makes of it, in the order in which they end.

        A generator: closing it ends what still runs. An error of ``work`` is raised here.
        """


class Store(Protocol):
    """Where the outcomes of finished tasks are kept, so that an interrupted study can go on (``task_store.py``)."""

    def begin(self, work: Callable[[Any], Any], count: int) -> dict[int, Any]:
        """The outcomes that an earlier run has left of the next ``count`` tasks, by the number of the task."""

    def add(self, number: int, outcome: Any) -> None:
        """Keep the outcome of one of the tasks of the last ``begin``."""


@dataclass(frozen=True, slots=True)
class Settings:
    """``runs``: independent repetitions, None for the study's default; ``quick``: a coarse result in seconds.

    ``traces`` is a folder of recorded traces, for the studies that can read some. ``workers`` is the number of
    processes of this machine, unless there is an ``engine``. Neither these two nor ``store`` change any result.
    ``rows`` is the file in which live studies keep what they measured, and from which they go on; None: none.
    """

    runs: int | None = None
    seed: int = 1
    quick: bool = False
    workers: int = 1
    traces: Path | None = None
    rows: Path | None = field(default=None, compare=False, repr=False)
    engine: Engine | None = field(default=None, compare=False, repr=False)
    store: Store | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under headings; numbers are kept exact here and rounded when shown."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True)
class Plot:
    """Lines over a common axis; ``marks`` are horizontal lines with a label.

    ``logarithmic`` is about the x axis, ``logarithmic_y`` about the y axis. ``bands`` has for some of the lines the
    ends of an interval, float64[2, points]: the lower ones first. A line has NaN where it has no value.
    """

    name: str
    title: str
    x_label: str
    y_label: str
    x: NDArray[np.float64]
    lines: Mapping[str, NDArray[np.float64]]
    logarithmic: bool = False
    marks: tuple[tuple[float, str], ...] = ()
    logarithmic_y: bool = False
    bands: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cdf:
    """Empirical distributions: for each label its values, float64[n], in any order; infinite ones count, NaN do not."""

    name: str
    title: str
    x_label: str
    samples: Mapping[str, NDArray[np.float64]]
    logarithmic: bool = False
    marks: tuple[tuple[float, str], ...] = ()
    """Vertical lines: where, and their label."""


@dataclass(frozen=True, slots=True)
class Bars:
    """Groups of bars side by side: ``bars`` has for each label a height per group, float64[groups].

    ``intervals`` has for some of them the ends of an interval, float64[2, groups]: the lower ones first.
    """

    name: str
    title: str
    x_label: str
    y_label: str
    groups: tuple[str, ...]
    bars: Mapping[str, NDArray[np.float64]]
    intervals: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    logarithmic: bool = False
    marks: tuple[tuple[float, str], ...] = ()


AnyPlot = Plot | Cdf | Bars


@dataclass(frozen=True, slots=True)
class Result:
    """All that a study found. ``setting`` says in words what was simulated, ``notes`` what to make of it."""

    title: str
    setting: str
    tables: Sequence[Table]
    plots: Sequence[AnyPlot]
    checks: Sequence[Check]
    notes: Sequence[str]


class Study(Protocol):
    """What the module of a study offers.

    ``FIGURES`` says which published figures it repeats, as in ``"thesis, Figures 3.2 to 3.4; paper, Figures 4 to 6"``,
    ``TIMES_S`` how long it takes on two processors, in seconds: with ``quick`` and without, as measured.
    """

    TITLE: str
    FIGURES: str
    TIMES_S: tuple[float, float]

    def run(self, settings: Settings, progress: Progress) -> Result:
        """Carry it out; ``progress(done, total)`` is called now and then."""


def shown(cell: Cell) -> str:
    """A cell as it is printed: three digits after the point, a dash for what does not exist."""
    if cell is None:
        return "-"
    return f"{cell:.3f}" if isinstance(cell, float) else str(cell)


STUDIES: dict[str, str] = {
    "arms": "hyroads.controller.study.arms",
    "bandit": "hyroads.controller.study.bandit",
    "bandit-dynamic": "hyroads.controller.study.bandit_dynamic",
    "busy-time": "hyroads.controller.study.busy_time",
    "convergence": "hyroads.controller.study.convergence",
    "fairness": "hyroads.controller.study.fairness",
    "latency": "hyroads.controller.study.latency",
    "mesh": "hyroads.controller.study.mesh",
    "paths": "hyroads.controller.study.paths",
    "privacy": "hyroads.controller.study.privacy",
    "queues": "hyroads.controller.study.queues",
    "routing": "hyroads.controller.study.routing",
    "utility": "hyroads.controller.study.utility",
    # Real packets (root); they are above all layers of the controller, and imported by their names alone.
    "live-bandit": "hyroads.mininet.studies.bandit",
    "live-downloads": "hyroads.mininet.studies.downloads",
    "live-example": "hyroads.mininet.studies.example",
    "live-loading": "hyroads.mininet.studies.loading",
    "live-mptcp": "hyroads.mininet.studies.mptcp",
    "live-pairs": "hyroads.mininet.studies.pairs",
    "live-tcp": "hyroads.mininet.studies.tcp",
}


def study(name: str) -> Study:
    """The study of that name, a key of ``STUDIES``."""
    return cast(Study, importlib.import_module(STUDIES[name]))


def run_all(
    work: Callable[[Task], Outcome], tasks: Sequence[Task], settings: Settings, progress: Progress
) -> list[Outcome]:
    """``work(task)`` for every task, in order; ``work`` is a function of a module and tasks can be pickled.

    ``progress(done, total)`` is called after each. With one worker everything stays in this process. Where the
    settings keep outcomes, what ``work`` returns is made of numbers, texts, arrays, tuples, lists, dictionaries, and of
    dataclasses, named tuples and enumerations that its annotations name; other outcomes are worked out again.
    """
    from .engines import Processes

    engine = settings.engine or Processes(settings.workers)
    found: dict[int, Outcome] = {} if settings.store is None else settings.store.begin(work, len(tasks))
    progress(len(found), len(tasks))
    waiting = {number: task for number, task in enumerate(tasks) if number not in found}
    if waiting:
        with closing(cast(Any, engine.outcomes(work, waiting))) as outcomes:
            for number, outcome in outcomes:
                found[number] = outcome
                if settings.store is not None:
                    settings.store.add(number, outcome)
                progress(len(found), len(tasks))
    return [found[number] for number in range(len(tasks))]


def run_by_kind(
    work: Callable[[Task], Outcome], tasks: Mapping[Kind, Sequence[Task]], settings: Settings, progress: Progress
) -> dict[Kind, list[Outcome]]:
    """As :func:`run_all`, for tasks of several kinds, one kind after the other: the outcomes of each kind, in order."""
    every = [task for group in tasks.values() for task in group]
    outcomes = iter(run_all(work, every, settings, progress))
    return {kind: [next(outcomes) for _ in group] for kind, group in tasks.items()}
