"""Carries out independent tasks on several processes; the results do not depend on how many."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

from hyroads.controller.study.framework import Progress

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
