"""Traces of website accesses: synthetic ones and recorded ones, what one network sees of them, and how an observer who
learns tells the sites apart.

A trace is the times of the packets of both directions. A recorded trace is a file of lines ``SECONDS DIRECTION``, by
tabs or spaces: the direction is a number whose sign counts (above 0: from the client). A file ``SITE-ACCESS`` is an
access of a monitored site, a file ``NUMBER`` one of any other site.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .framework import StudyError

FloatArray = NDArray[np.float64]
Trace = tuple[FloatArray, FloatArray]
"""Times in seconds of the packets to the client and from it, float64[n] each, not falling."""

START_NOISE_S, SIZE_NOISE = 0.3, 0.3
PACKETS_PER_S = 1000.0
"""Mean rate within a burst."""
FEATURES = 50
MAX_FILES, MAX_BYTES, MAX_SECONDS = 1_000_000, 32 << 20, 1e6
_GRID_S = np.geomspace(0.1, 8.0, 12)
_NAME = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?(?:\.[a-z]{1,8})?")


@dataclass(frozen=True, slots=True)
class Accesses:
    """``monitored``: for each monitored site its accesses, equally many; ``others``: one access of each other site."""

    monitored: tuple[tuple[Trace, ...], ...]
    others: tuple[Trace, ...] = ()


@dataclass(frozen=True, slots=True)
class Site:
    """A synthetic site: the starts in seconds of its bursts, float64[n], and their packets down and up, [2, n]."""

    starts_s: FloatArray
    packets: FloatArray


def site(rng: np.random.Generator) -> Site:
    """4 to 16 bursts within 4 s; down 5 to 158 packets each, uniform in the logarithm, and 10 to 40 % of that up."""
    bursts = int(rng.integers(4, 17))
    down = np.round(10.0 ** rng.uniform(0.7, 2.2, bursts))
    up = np.maximum(1.0, np.round(down * rng.uniform(0.1, 0.4, bursts)))
    return Site(rng.uniform(0.0, 4.0, bursts), np.stack([down, up]))


def access(of: Site, rng: np.random.Generator) -> Trace:
    """An access: each burst late by half a normal distribution, and with another number of packets."""
    found = []
    for packets in of.packets:
        starts = of.starts_s + np.abs(rng.normal(0.0, START_NOISE_S, len(packets)))
        counts = np.maximum(1, np.round(packets * rng.normal(1.0, SIZE_NOISE, len(packets)))).astype(np.int64)
        steps = np.cumsum(rng.exponential(1.0 / PACKETS_PER_S, int(counts.sum())))
        first = np.cumsum(counts) - counts
        found.append(np.sort(np.repeat(starts - steps[first], counts) + steps))
    return found[0], found[1]


def synthetic(sites: int, accesses: int, others: int, seed: int) -> Accesses:
    """So many monitored sites with so many accesses each, and so many other sites with one each."""

    def of(number: int, count: int) -> tuple[Trace, ...]:
        rng = np.random.default_rng([seed, number])
        template = site(rng)
        return tuple(access(template, rng) for _ in range(count))

    monitored = tuple(of(number, accesses) for number in range(sites))
    return Accesses(monitored, tuple(of(sites + number, 1)[0] for number in range(others)))


def recorded(folder: Path) -> Accesses:
    """All traces of a folder; of each monitored site as many accesses as the one with the fewest has.

    :class:`StudyError` names the file, the line and what was expected there.
    """
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise StudyError(f"--traces {folder}: {error.strerror}") from error
    if len(names) > MAX_FILES:
        raise StudyError(f"--traces {folder}: expected at most {MAX_FILES} files")
    sites: dict[int, dict[int, Trace]] = {}
    others: dict[int, Trace] = {}
    for name in names:
        match = _NAME.fullmatch(name)
        if match is None:
            raise StudyError(f"--traces {folder / name}: expected files SITE-ACCESS and NUMBER, like 3-17 and 204")
        trace = _read(folder / name)
        if match[2] is None:
            others[int(match[1])] = trace
        else:
            sites.setdefault(int(match[1]), {})[int(match[2])] = trace
    fewest = min(map(len, sites.values()), default=0)
    if len(sites) < 2 or fewest < 3:
        raise StudyError(
            f"--traces {folder}: expected two sites or more with three accesses each or more (SITE-ACCESS)"
        )
    monitored = [tuple(of[number] for number in sorted(of))[:fewest] for _, of in sorted(sites.items())]
    return Accesses(tuple(monitored), tuple(others[number] for number in sorted(others)))


def _read(path: Path) -> Trace:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise StudyError(f"{path}: expected at most {MAX_BYTES >> 20} MiB")
        lines = path.read_bytes().decode("ascii", "replace").splitlines()
    except OSError as error:
        raise StudyError(f"{path}: {error.strerror}") from error
    times: tuple[list[float], list[float]] = ([], [])
    for number, line in enumerate(lines, start=1):
        words = line.split()
        try:
            at, direction = map(float, words)
        except ValueError:
            raise StudyError(f"{path}: line {number}: expected seconds and a direction, got {line[:40]!a}") from None
        if not 0.0 <= at <= MAX_SECONDS or not direction:
            raise StudyError(f"{path}: line {number}: expected a time of 0 or more and a direction that is not 0")
        if not abs(direction) < np.inf:
            raise StudyError(f"{path}: line {number}: expected a direction that is a number, got {words[1][:40]!a}")
        times[direction > 0].append(at)
    if not lines:
        raise StudyError(f"{path}: expected a packet or more, got an empty file")
    return np.sort(np.array(times[0])), np.sort(np.array(times[1]))


def features(seen: Trace) -> FloatArray:
    """What an observer makes of the packets that one network carried, float64[50].

    Numbers of packets (4), durations and the begin of each direction (4), gaps (mean, deviation, greatest, third
    quartile; both directions: 8), quartiles of times (6), packets until 12 times (24), packets in half a second (4).
    Times count from the first packet seen; numbers of packets are in logarithms.
    """
    first = min((times[0] for times in seen if len(times)), default=0.0)
    down, up = (times - first for times in seen)
    together = np.concatenate([down, up])
    total = len(together)
    found: list[ArrayLike] = [np.log1p([len(down), len(up), total]), [len(up) / max(total, 1)]]
    found.append([together.max() if total else 0.0, _length(down), _length(up), _start(down) - _start(up)])
    found += [_gaps(down), _gaps(up), _quartiles(down), _quartiles(up)]
    found += [np.log1p(np.searchsorted(times, _GRID_S)) for times in (down, up)]
    per_bin = np.bincount(np.minimum(together * 2.0, 1e4).astype(np.int64)) if total else np.zeros(1)
    found.append([per_bin.max(), per_bin.mean(), per_bin.std(), np.median(per_bin)])
    return np.concatenate(found).astype(np.float64)


def _start(times: FloatArray) -> float:
    return float(times[0]) if len(times) else 0.0


def _length(times: FloatArray) -> float:
    return float(times[-1] - times[0]) if len(times) else 0.0


def _gaps(times: FloatArray) -> FloatArray:
    if len(times) < 2:
        return np.zeros(4)
    gaps = times[1:] - times[:-1]
    return np.array([gaps.mean(), gaps.std(), gaps.max(), _quantiles(np.sort(gaps), (0.75,))[0]])


def _quartiles(times: FloatArray) -> FloatArray:
    return _quantiles(times, (0.25, 0.5, 0.75)) if len(times) else np.zeros(3)


def _quantiles(ordered: FloatArray, at: Sequence[float]) -> FloatArray:
    return ordered[[int(share * (len(ordered) - 1)) for share in at]]


@dataclass(frozen=True, slots=True)
class Told:
    """How an observer did: for each monitored site the share of its accesses that he tells, float64[sites]; the share
    of other sites that he takes for a monitored one, None without any; and the work of learning, rows that went
    through nodes of trees.
    """

    by_site: FloatArray
    false: float | None
    work: float


def observer(
    learned: FloatArray, labels: NDArray[np.int64], seen: FloatArray, of: NDArray[np.int64], *, trees: int, seed: int
) -> Told:
    """A random forest learns ``learned``, float64[n, 50], with site numbers ``labels``, int64[n] (-1: any other site),
    and tells the sites of ``seen``, float64[m, 50], whose true ones are ``of``, int64[m].

    Deterministic for a seed. :class:`StudyError` if scikit-learn is not installed.
    """
    try:
        from sklearn.ensemble import RandomForestClassifier
    except ImportError as error:
        raise StudyError("this study needs scikit-learn: pip install 'hyroads[study]'") from error
    forest = RandomForestClassifier(trees, random_state=seed, n_jobs=1)
    forest.fit(learned.astype(np.float32), labels)
    guessed = forest.predict(seen.astype(np.float32))
    sites = int(of.max()) + 1
    by_site = np.array([(guessed[of == number] == number).mean() for number in range(sites)])
    others = of < 0
    false = float((guessed[others] >= 0).mean()) if others.any() else None
    work = sum(float(each.tree_.weighted_n_node_samples.sum()) for each in forest.estimators_)
    return Told(by_site, false, work)
