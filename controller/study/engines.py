"""Carries out the tasks of a study in this process or in several processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Processes:
    """As many processes as ``workers`` says; with one, everything stays in this process."""

    workers: int

    def outcomes(self, work: Callable[[Any], Any], tasks: Mapping[int, Any]) -> Iterator[tuple[int, Any]]:
        """The number of each task with its outcome, in the order in which they end; tasks begin in that of ``tasks``.

        Whoever closes this generator, or is interrupted in it, ends the processes with what they are at.
        """
        if self.workers <= 1 or len(tasks) <= 1:
            for number, task in tasks.items():
                yield number, work(task)
            return
        # Processes start anew: a fork would copy the thread that draws the progress bar in whatever state it is.
        context = multiprocessing.get_context("spawn")
        before = set(multiprocessing.active_children())
        pool = ProcessPoolExecutor(min(self.workers, len(tasks)), mp_context=context, initializer=_begin)
        done = False
        try:
            numbers = {pool.submit(work, task): number for number, task in tasks.items()}
            for future in as_completed(numbers):
                yield numbers[future], future.result()
            done = True
        finally:
            pool.shutdown(wait=done, cancel_futures=True)
            if not done:
                for process in set(multiprocessing.active_children()) - before:
                    process.terminate()


def _begin() -> None:
    """An interrupt is for the process that started this one, without which it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
