"""Study ``busy-time``: busy time over rate, of single frames and of batches; links that contend, together (Lemma 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .framework import AnyPlot, Cell, Plot, Progress, Result, Settings, Table, run_all
from .intervals import interval_of
from .verdicts import Check, Kind, about, at_least, at_most, near

TITLE = "Busy time over rate"
FIGURES = "thesis, Figures 2.2 to 2.8 and Lemma 1"
TIMES_S = (4.0, 11.0)

RUNS = 50
RUN_S, QUICK_RUN_S, WARM_UP_S = 20.0, 5.0, 0.5
_NEVER_S = 1e9
FRAME_BITS = 1500 * 8
ACCESS_S = 194e-6
MOST_FRAMES, MOST_S = 64, 4e-3
BESIDE, BESIDE_SHARE = 2, 0.2
SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
LEMMA_SHARES = (0.3, 0.6, 0.8, 0.9, 0.95, 1.05, 1.2, 1.5)
TOLERANCE = 0.05
# A curve is bent if what a Mb/s costs at a low rate is so many times what it costs at capacity.
BENT = 1.5
FULL = 0.9

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Medium:
    """A technology: Mb/s within an access, and how many frames a batch has."""

    name: str
    rate_mbps: float
    batch: int


WIFI, PLC = Medium("WiFi", 100.0, 100), Medium("PLC", 80.0, 200)
# Mb/s within an access of the links of Lemma 1.
LEMMA: dict[int, tuple[float, ...]] = {2: (100.0, 50.0), 3: (100.0, 50.0, 25.0)}


def frame_s(rate_mbps: float) -> float:
    """Time of a frame of 1500 bytes within an access, s."""
    return FRAME_BITS / (rate_mbps * 1e6)


def most_frames(rate_mbps: float) -> int:
    """Frames of the longest access: 64, or as many as 4 ms have room for."""
    return max(1, min(MOST_FRAMES, int(MOST_S / frame_s(rate_mbps) + 1e-9)))


def capacity_mbps(rate_mbps: float) -> float:
    """c = 1 / d of a link that always has frames: of the longest accesses, one after the other."""
    frames = most_frames(rate_mbps)
    return frames * FRAME_BITS / (ACCESS_S + frames * frame_s(rate_mbps)) / 1e6


@dataclass(frozen=True, eq=False)
class Senders:
    """Senders of one domain: Mb/s within an access [S], frames of a batch [S], and offered Mb/s, float64[rows, S]."""

    rate_mbps: tuple[float, ...]
    batch: tuple[int, ...]
    offered_mbps: FloatArray


def simulate(senders: Senders, duration_s: float, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Busy time of the domain, float64[rows], and Mb/s that each sender carried, float64[rows, S].

    Each sender gets a batch at even intervals, from a random time on. Whenever the medium is free one of the senders
    that have frames, each as likely, takes it with as many frames as an access has room for. All rows advance access by
    access side by side. They are measured after ``WARM_UP_S``, for ``duration_s``.
    """
    rows, count = senders.offered_mbps.shape
    batch = np.array(senders.batch)
    most = np.array([most_frames(rate) for rate in senders.rate_mbps])
    each_s = np.array([frame_s(rate) for rate in senders.rate_mbps])
    is_silent = senders.offered_mbps <= 0
    gap_s = batch * FRAME_BITS / 1e6 / np.where(is_silent, 1.0, senders.offered_mbps)
    next_s = np.where(is_silent, _NEVER_S, gap_s * rng.random((rows, count)))
    now_s, busy_s, every = np.zeros(rows), np.zeros(rows), np.arange(rows)
    queued, carried = np.zeros((rows, count), dtype=np.int64), np.zeros((rows, count), dtype=np.int64)
    while True:
        is_idle = queued.sum(axis=1) == 0
        now_s = np.where(is_idle, np.maximum(now_s, next_s.min(axis=1)), now_s)
        # A hair later, so that rounding never leaves the batch that was waited for.
        came = np.maximum(np.floor((now_s[:, None] - next_s) / gap_s + 1.0 + 1e-9), 0.0)
        queued += batch * came.astype(np.int64)
        next_s += came * gap_s
        if now_s.min() >= WARM_UP_S + duration_s:
            break
        turn = np.where(queued > 0, rng.random((rows, count)), -1.0).argmax(axis=1)
        frames = np.minimum(queued[every, turn], most[turn])
        lasts_s = np.where(frames > 0, ACCESS_S + frames * each_s[turn], 0.0)
        queued[every, turn] -= frames
        is_measured = (now_s >= WARM_UP_S) & (now_s < WARM_UP_S + duration_s)
        carried[every, turn] += np.where(is_measured, frames, 0)
        busy_s += np.where(is_measured, lasts_s, 0.0)
        now_s = now_s + lasts_s
    rates: FloatArray = carried.astype(np.float64) * (FRAME_BITS / 1e6 / duration_s)
    return np.minimum(busy_s / duration_s, 1.0), rates


@dataclass(frozen=True, slots=True)
class Setup:
    """One curve: the medium, whether frames come in batches, and whether two others send."""

    medium: Medium
    in_batches: bool
    is_beside: bool

    @property
    def label(self) -> str:
        """For tables and plots."""
        frames = f"batches of {self.medium.batch}" if self.in_batches else "single frames"
        return f"{frames}, {'beside 2' if self.is_beside else 'alone'}"


SETUPS = tuple(Setup(m, batches, beside) for m in (WIFI, PLC) for beside in (False, True) for batches in (False, True))
Task = tuple[int, int, int, float]


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """Busy time of every run at every share of the capacity, float64[runs, shares], and rates, [runs, shares, S]."""

    busy: FloatArray
    carried_mbps: FloatArray


def course(task: Task) -> Course:
    """A setup: of a seed, its place (those of Lemma 1 after ``SETUPS``), the number of runs, and seconds each."""
    seed, number, runs, duration_s = task
    rng = np.random.default_rng([seed, number])
    if number < len(SETUPS):
        setup, shares = SETUPS[number], np.array(SHARES)
        capacity, own = capacity_mbps(setup.medium.rate_mbps), setup.medium.batch if setup.in_batches else 1
        others = BESIDE if setup.is_beside else 0
        rates, batches = (setup.medium.rate_mbps,) * (1 + others), (own, *(setup.medium.batch,) * others)
        offered = np.full((len(shares), 1 + others), BESIDE_SHARE * capacity)
        offered[:, 0] = shares * capacity
    else:
        rates, shares = list(LEMMA.values())[number - len(SETUPS)], np.array(LEMMA_SHARES)
        batches = (WIFI.batch,) * len(rates)
        offered = np.repeat(shares[:, None] * together_mbps(rates), len(rates), axis=1)
    busy, carried = simulate(Senders(rates, batches, np.tile(offered, (runs, 1))), duration_s, rng)
    return Course(busy.reshape(runs, -1), carried.reshape(runs, len(shares), -1))


def together_mbps(rates_mbps: Sequence[float]) -> float:
    """R = 1 / sum d: what links that all contend can carry at most each at the same time (Lemma 1)."""
    return 1.0 / sum(1.0 / capacity_mbps(rate) for rate in rates_mbps)


def run(settings: Settings, progress: Progress) -> Result:
    """Carry out the study."""
    runs, duration_s = settings.runs or RUNS, QUICK_RUN_S if settings.quick else RUN_S
    tasks: list[Task] = [(settings.seed, number, runs, duration_s) for number in range(len(SETUPS) + len(LEMMA))]
    found = run_all(course, tasks, settings, progress)
    curves = dict(zip(SETUPS, found[: len(SETUPS)], strict=True))
    lemma = dict(zip(LEMMA, found[len(SETUPS) :], strict=True))
    limits = ", ".join(f"{m.name} {m.rate_mbps:g} Mb/s, c = {capacity_mbps(m.rate_mbps):.1f}" for m in (WIFI, PLC))
    return Result(
        TITLE,
        f"Frames of 1500 bytes; an access to the medium costs {1e6 * ACCESS_S:g} us and its frames, at most "
        f"{MOST_FRAMES} or {1e3 * MOST_S:g} ms of them ({limits}). Frames or batches come at even intervals; the two "
        f"others offer {BESIDE_SHARE:g} c each, in batches. {runs} runs of {duration_s:g} s a rate. "
        f"Seed {settings.seed}.",
        [_table(curves), _lemma_table(lemma)],
        plots(curves, lemma),
        checks(curves, lemma),
        [
            "A frame that is sent alone pays for an access of its own, so at low rates busy time rises several times "
            "as fast as d. The medium is busy all the time long before the capacity is reached: from then on frames "
            "wait and share accesses. Busy time at a low rate of single frames says nothing about the capacity.",
            "Frames that come in batches share accesses at any rate: busy time is straight, with slope d but for the "
            "last access of a batch, which is not full.",
            "Beside others frames wait for the medium and so share accesses; single frames then cost less than alone, "
            "by how much depends on what the others do.",
            "The rates within an access are our choice; those of the published measurements are not known to us.",
        ],
    )


def costs(setup: Setup, found: Course) -> FloatArray:
    """What a Mb/s adds to the busy time, relative to d, float64[runs, shares]; without the share 0."""
    silent = found.busy[:, SHARES.index(0.0)].mean()
    offered = np.array(SHARES[1:])  # the offered rate times d
    relative: FloatArray = (found.busy[:, 1:] - silent) / offered
    return relative


def _free(setup: Setup) -> list[int]:
    """The shares, counted without 0, at which the medium would not be full if a Mb/s cost d."""
    taken = BESIDE * BESIDE_SHARE if setup.is_beside else 0.0
    return [index for index, share in enumerate(SHARES[1:]) if taken + share <= FULL + 1e-9]


def _table(curves: dict[Setup, Course]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for setup, found in curves.items():
        relative = costs(setup, found).mean(axis=0)
        for index, share in enumerate(SHARES):
            cost = None if index == 0 else float(relative[index - 1])
            carried = float(found.carried_mbps[:, index, 0].mean())
            busy = float(found.busy[:, index].mean())
            rows.append((setup.medium.name, setup.label, share, carried, busy, cost))
    heads = ("medium", "frames", "offered / c", "carried, Mb/s", "busy time", "cost of a Mb/s / d")
    return Table("busy-time", "Busy time of the domain", heads, tuple(rows))


def _worst(carried: FloatArray) -> float:
    """What the link that carries least carries on average; of float64[runs, links]."""
    return float(carried.mean(axis=0).min())


def _least(found: Course, rates: Sequence[float]) -> FloatArray:
    """The same relative to R, at every share: float64[shares]."""
    limit = together_mbps(rates)
    return np.array([_worst(found.carried_mbps[:, index]) / limit for index in range(len(LEMMA_SHARES))])


def _lemma_table(lemma: dict[int, Course]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for links, found in lemma.items():
        limit, least = together_mbps(LEMMA[links]), _least(found, LEMMA[links])
        for index, share in enumerate(LEMMA_SHARES):
            rows.append((links, limit, share, float(least[index]), float(found.busy[:, index].mean())))
    heads = ("links", "R, Mb/s", "offered by each / R", "carried by the worst / R", "busy time")
    return Table("lemma-1", "Links that contend, all at one rate (Lemma 1)", heads, tuple(rows))


def plots(curves: dict[Setup, Course], lemma: dict[int, Course]) -> list[AnyPlot]:
    """Busy time over rate of each medium, and Lemma 1."""
    result: list[AnyPlot] = []
    for medium in (WIFI, PLC):
        x = np.array(SHARES) * capacity_mbps(medium.rate_mbps)
        lines: dict[str, FloatArray] = {"rate x d": np.array(SHARES)}
        bands = {}
        for setup, found in curves.items():
            if setup.medium is medium:
                lines[setup.label] = found.busy.mean(axis=0)
                bands[setup.label] = np.array([interval_of(column) for column in found.busy.T]).T
        title = f"Busy time over rate, {medium.name}"
        result.append(Plot(medium.name.lower(), title, "offered, Mb/s", "busy time", x, lines, bands=bands))
    least = {f"{links} links": _least(found, LEMMA[links]) for links, found in lemma.items()}
    axes = ("offered by each link / R", "carried by the worst link / R")
    result.append(Plot("lemma-1", "Links that contend (Lemma 1)", *axes, np.array(LEMMA_SHARES), least))
    return result


def checks(curves: dict[Setup, Course], lemma: dict[int, Course]) -> list[Check]:
    """Busy time is straight with batches, bent without; links that contend carry R each, and no more."""
    result = []
    for setup, found in curves.items():
        relative, name = costs(setup, found), f"{setup.medium.name}, {setup.label}"
        free = relative[:, _free(setup)]
        if setup.in_batches:
            mean = free.mean(axis=0)
            worst = int(np.abs(mean - 1.0).argmax())
            interval = interval_of(free[:, worst])
            what = f"{name}: cost of a Mb/s / d, furthest from 1"
            band = near(1.0, TOLERANCE)
            result.append(Check(what, band, float(mean[worst]), interval, Kind.PUBLISHED, "straight"))
        else:
            # Where the medium is still free, against the capacity, at which a Mb/s costs d.
            first = free[:, 0]
            what = f"{name}: cost of a Mb/s / d, at a tenth of c"
            measured, band = float(first.mean()), at_least(BENT)
            result.append(Check(what, band, measured, interval_of(first), Kind.PUBLISHED, "not straight"))
    for links, found in lemma.items():
        least, limit, name = _least(found, LEMMA[links]), together_mbps(LEMMA[links]), f"Lemma 1, {links} links"
        below, most = LEMMA_SHARES.index(0.95), int(least.argmax())
        at = float(least[below])
        ends = [interval_of(found.carried_mbps[:, index] / limit, _worst) for index in (below, most)]
        what = f"{name}: the worst carries of R, 0.95 offered"
        result.append(Check(what, about(0.95, TOLERANCE), at, ends[0], Kind.PUBLISHED, "all carry R"))
        what, peak = f"{name}: most that the worst carries of R", float(least[most])
        result.append(Check(what, at_most(1.01), peak, ends[1], Kind.PUBLISHED, "none carries more"))
    return result
