"""How much faster a study's tasks are on two Dask workers than on one: both on this machine, a process each.

    python benchmarks/study_dask.py [--tasks 16]

Tasks are the random clients of ``hyroads study fairness --quick``. Connecting and the first task of each worker, which
imports what it needs, are not counted. Needs two processors that nobody else uses.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from dask_cluster import cluster

from hyroads.controller.study.dask_engine import dask_workers
from hyroads.controller.study.fairness import QUICK_DURATION_S, worst_errors
from hyroads.controller.study.framework import Settings, run_all


def measured(workers: int, tasks: int) -> tuple[float, list[list[float]]]:
    """Seconds for all tasks, and what they gave."""
    with (
        tempfile.TemporaryDirectory() as folder,
        cluster(workers, Path(folder)) as found,
        dask_workers(found.address) as engine,
    ):
        while len(engine.workers()) < workers:
            time.sleep(0.1)
        settings = Settings(engine=engine)
        run_all(worst_errors, [(0, i, 0.1) for i in range(4 * workers)], settings, lambda done, total: None)
        began = time.monotonic()
        every = [(1, i, QUICK_DURATION_S) for i in range(tasks)]
        outcomes = run_all(worst_errors, every, settings, lambda done, total: None)
        return time.monotonic() - began, outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=16)
    tasks = parser.parse_args().tasks
    one_s, one = measured(1, tasks)
    two_s, two = measured(2, tasks)
    assert one == two
    print(f"{tasks} tasks: one worker {one_s:.1f} s, two workers {two_s:.1f} s, {one_s / two_s:.2f} times as fast")


if __name__ == "__main__":
    main()
