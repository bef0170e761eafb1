"""Models that are driven by long rows of random events, each run with weights of its own (swarm testing).

A run draws which kinds of events it has at all and how likely each is. So rows come about that equal weights almost
never give: nothing but answers, many deaths, no rule ever confirmed. Seeds begin at ``HYROADS_SEED``: 0 in the quick
profile (``make check``), another number in each ``make test``. A failure is made as short as it gets and names the
command that replays it.

Groce, Zhang, Eide, Chen, Regehr: "Swarm testing", ISSTA 2012.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from examples import scaled

Event = TypeVar("Event")

FIRST = "HYROADS_SEED"
RUNS = "HYROADS_RUNS"
MOST_TRIES = 600
"""Runs that are spent on making a failure shorter."""


def weights(rng: random.Random, kinds: Sequence[str], always: Sequence[str] = ()) -> dict[str, float]:
    """About two thirds of the kinds with weights from 1/8 to 8, and all of ``always``."""
    chosen = [kind for kind in kinds if kind in always or rng.random() < 0.65]
    return {kind: 2.0 ** rng.uniform(-3, 3) for kind in chosen or kinds}


def drawn(rng: random.Random, of: Mapping[str, float]) -> str:
    """One kind, by weight."""
    return rng.choices(list(of), list(of.values()))[0]


def events(rng: random.Random, kinds: Sequence[str], most: int, always: Sequence[str] = ()) -> list[tuple[str, int]]:
    """A row of events of one run: kinds by this run's weights, each with a number that chooses among what there is."""
    of = weights(rng, kinds, always)
    return [(drawn(rng, of), rng.randrange(1 << 30)) for _ in range(rng.randint(1, most))]


def swarm(count: int, draw: Callable[[random.Random], list[Event]], play: Callable[[int, list[Event]], None]) -> None:
    """Make the profile's share of ``count`` runs, or as many as ``HYROADS_RUNS`` says.

    ``draw`` gives the events of a run, ``play`` carries them out and raises AssertionError where something is wrong.
    It gets the seed of the run, too, for what else it draws.
    """
    first, runs = int(os.environ.get(FIRST, "0")), int(os.environ.get(RUNS, "0")) or scaled(count)
    for seed in range(first, first + runs):
        row = draw(random.Random(seed))
        problem = _problem(play, seed, row)
        if problem is not None:
            row, problem = _shorter(play, seed, row, problem)
            test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
            said = f"{type(problem).__name__}: {problem}\nafter {row}\nagain: {FIRST}={seed} {RUNS}=1 pytest '{test}'"
            raise AssertionError(said) from problem


def _problem(play: Callable[[int, list[Event]], None], seed: int, row: list[Event]) -> Exception | None:
    try:
        play(seed, list(row))
    except Exception as problem:  # noqa: BLE001 - whatever the code under test raises is a failure of the run
        return problem
    return None


def _shorter(
    play: Callable[[int, list[Event]], None], seed: int, row: list[Event], problem: Exception
) -> tuple[list[Event], Exception]:
    """The row without events that the failure does not need: parts are left out, then single events."""
    size, tries = len(row) // 2, 0
    while size and tries < MOST_TRIES:
        at = 0
        while at < len(row) and tries < MOST_TRIES:
            tries += 1
            less = row[:at] + row[at + size :]
            found = _problem(play, seed, less)
            if found is None:
                at += size
            else:
                row, problem = less, found
        size //= 2
    return row, problem
