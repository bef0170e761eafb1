"""What takes long runs in a process of its own, so that all other pages go on: plans, and pictures for print."""

from __future__ import annotations

import asyncio
import io
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from datetime import UTC, datetime
from typing import Any, TypeVar

from hyroads.controller.core.errors import HyroadsError

from .views.flow import Graph

WITHIN_S = 60.0
T = TypeVar("T")
_STROKES = {"solid": "-", "dashed": "--", "dotted": ":"}


class Worker:
    """One process, one piece of work at a time; one that takes too long is ended with its process."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._lock = asyncio.Lock()

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """The result of a function that can be named; HyroadsError if it takes over a minute."""
        async with self._lock:
            if self._pool is None:
                self._pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
            work = self._pool.submit(function, *arguments)
            try:
                return await asyncio.wait_for(asyncio.wrap_future(work), WITHIN_S)
            except TimeoutError as error:
                self.stop()
                raise HyroadsError(f"it takes longer than {WITHIN_S:.0f} s") from error
            except BrokenProcessPool as error:
                self.stop()
                raise HyroadsError("the process for it has ended") from error

    def stop(self) -> None:
        """End the process, whatever it does."""
        pool, self._pool = self._pool, None
        if pool is not None:
            for process in list((pool._processes or {}).values()):
                process.kill()
            pool.shutdown(wait=False, cancel_futures=True)


def picture(title: str, graphs: Sequence[Graph], form: str) -> bytes:
    """Graphs as ``svg`` or ``pdf``, one below the other; HyroadsError without matplotlib."""
    try:
        from matplotlib.backends.backend_pdf import FigureCanvasPdf
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError as error:
        raise HyroadsError(f"{error.name}: not installed: pip install 'hyroads[dashboard]'") from error
    figure = Figure(figsize=(8.0, 2.4 * len(graphs) + 0.4), layout="constrained")
    (FigureCanvasPdf if form == "pdf" else FigureCanvasSVG)(figure)
    figure.suptitle(_plain(title))
    found = figure.subplots(len(graphs), 1, sharex=True, squeeze=False)
    for axes, graph in zip(found[:, 0], graphs, strict=True):
        for curve in graph.curves:
            times = [datetime.fromtimestamp(time_s, UTC) for time_s, _ in curve.points]
            values = [float("nan") if value is None else value for _, value in curve.points]
            axes.plot(times, values, color=curve.colour, linestyle=_STROKES[curve.dash], label=_plain(curve.name))
        axes.set_title(graph.title, loc="left", fontsize="medium")
        axes.set_ylabel(graph.unit)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        if graph.curves:
            axes.legend(fontsize="small", loc="upper left")
    found[-1, 0].set_xlabel("time (UTC)")
    file = io.BytesIO()
    figure.savefig(file, format=form)
    return file.getvalue()


def _plain(text: str) -> str:
    """Nothing of it is taken for formulas, and a curve whose name begins with ``_`` is in the legend."""
    return ("" if not text.startswith("_") else "\u200b") + text.replace("$", r"\$")
