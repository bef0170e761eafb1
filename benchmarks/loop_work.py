"""CPU time of the controller's loop in a campus, without sockets (tests/support/campus_loop.py): python
benchmarks/loop_work.py NODES FLOWS [--repeat N].

Of a slot, of a declared flow and of a cut link until all of it is in force: milliseconds on the loop's thread, median /
worst, and the longest stretch in which nothing else has its turn. What is planned in a thread of its own is not in it.
"""

from __future__ import annotations

import os

# Before numpy is imported: the figures are for one core.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import gc
import logging
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.runtime.event_loop import STEP_S, EventLoop

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from campus_loop import CampusLoop

SLOTS = 20


class Stretches:
    """The longest time on this thread between two moments at which others may run."""

    def __init__(self, campus: CampusLoop) -> None:
        self.longest_s = 0.0
        self._since_s = time.thread_time()
        for name in ("sleep", "in_thread"):
            setattr(shim, name, self._around(getattr(shim, name)))
        campus.loop.live._in_thread, campus.loop.live._pause = shim.in_thread, lambda: shim.sleep(0)
        # Each turn of the loop begins with this.
        setattr(campus.loop, "_tick", self._around(campus.loop._tick, counts=True))  # noqa: B010
        setattr(campus.loop, "_slot", self._slot(campus.loop._slot))  # noqa: B010
        setattr(campus.loop, "_is_overtaken", self._overtaken(campus.loop))  # noqa: B010
        campus.loop._deployer.is_overtaken = campus.loop._is_overtaken
        setattr(campus, "_answer", partial(self._answer, campus))  # noqa: B010

    def _around(self, function: Callable[..., Any], *, counts: bool = False) -> Callable[..., Any]:
        def around(*arguments: Any) -> Any:
            self.end()
            if counts:
                return function(*arguments)
            result = function(*arguments)
            self.begin()
            return result

        return around

    def _slot(self, slot: Callable[[], None]) -> Callable[[], None]:
        def around() -> None:
            # What agents told before it is not the controller's work.
            self.begin()
            slot()
            self.end()

        return around

    def _answer(self, campus: CampusLoop) -> None:
        """Each message of a device comes by itself."""
        while campus.answers:
            self.end()
            campus.answers.popleft()()
        self.end()

    def _overtaken(self, loop: EventLoop) -> Callable[[], bool]:
        is_overtaken = loop._is_overtaken

        def around() -> bool:
            # The time of the test stands still meanwhile.
            is_due = time.thread_time() >= self._since_s + STEP_S
            loop._paused_s = -math.inf if is_due else math.inf
            return is_overtaken()

        return around

    def begin(self) -> None:
        """Here it goes on."""
        self._since_s = time.thread_time()

    def end(self) -> None:
        """Others may run."""
        self.longest_s = max(self.longest_s, time.thread_time() - self._since_s)
        self.begin()


def shown(seconds: list[float]) -> str:
    return f"{1e3 * statistics.median(seconds):.1f} / {1e3 * max(seconds):.1f}"


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nodes", type=int)
    parser.add_argument("flows", type=int)
    parser.add_argument("--repeat", type=int, default=5)
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    took: dict[str, list[float]] = {}
    longest: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        campus = CampusLoop(Path(folder), asked.nodes, asked.flows)
        campus.settle()
        gc.collect()
        gc.freeze()
        gc.disable()
        stretches = Stretches(campus)

        def run(what: str, work: Callable[[], float]) -> None:
            stretches.longest_s = 0.0
            stretches.begin()
            took.setdefault(what, []).append(work())
            stretches.end()
            longest.setdefault(what, []).append(stretches.longest_s)

        for _ in range(SLOTS):
            run("slot", campus.slot)
        for spec in campus.specs(asked.repeat, random.Random(3), "new", 30_000):
            run("declare", lambda: campus.declare(spec))  # noqa: B023
            run("slot after a declare", campus.slot)
        rng = random.Random(4)
        for _ in range(asked.repeat):
            link = rng.choice(campus.used())
            run("cut", lambda: campus.cut(link))  # noqa: B023
            run("slot after a cut", campus.slot)
            campus.slot()
            run("heal", lambda: campus.cut(link, up=True))  # noqa: B023
            run("slot after a heal", campus.slot)
            for _ in range(10):
                campus.slot()
    for what, times in took.items():
        stretch = f", longest {shown(longest[what])} ms"
        print(f"{asked.nodes} nodes, {asked.flows} flows, {what}: {shown(times)} ms{stretch}")


if __name__ == "__main__":
    main()
