"""Study ``bandit-dynamic``: how fast policies recover after two of five multipaths changed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from hyroads.controller.core.bandit.baselines import Rand, Rexp3, rexp3_gamma
from hyroads.controller.core.bandit.hymab import Hymab
from hyroads.controller.core.bandit.hymab_plus import HymabPlus
from hyroads.controller.core.bandit.policy import FloatArray

from .bandit import difference, ratio_of
from .contenders import ARMS, Contender, Course, courses, first_trial
from .framework import Bars, Cell, Plot, Progress, Result, Settings, Table
from .verdicts import Band, Check, Interval, Kind, at_least, at_most

TITLE = "Recovering after a change of capacities"
FIGURES = "thesis, Figures 4.3 and 4.4"
TIMES_S = (19.0, 400.0)

RUNS, QUICK_RUNS = 500, 200
CHANGE, QUICK_CHANGE = 25_000, 2000
AFTER, QUICK_AFTER = 4000, 2000
BEFORE_SHOWN = 300
LEVEL = 0.85
TARGET_TRIALS = 150
REXP3_SETTINGS = ((0.05, 300), (0.05, 3000), (0.1, 300))  # gamma, batch
STAGE_2_EPS = (0.05, 0.1, 0.2)
BATCHES, QUICK_BATCHES = (5, 20, 50, 100, 200, 500, 1000), (5, 100, 1000)
EPS_MIN = (0.02, 0.05, 0.1)
WINDOWS: Mapping[str, int | None] = {"all": None, "last 10": 10}

REFERENCE: Mapping[str, str] = {"hymab": "~800", "rexp3 all": ">= 2900", "rexp3 last 10": "150..185"}


def published(window: str, eps: float, batch: int) -> str:
    """The name of Rexp3 as published: it chooses the arm, stage 2 probes with probability ``eps``."""
    return f"stage-1 rexp3 {window} ({eps:g}, {batch})"


def fixed(eps_min: float) -> str:
    """The name of HyMAB with an eps_min that no measurement moves."""
    return f"hymab, eps_min {eps_min:g}"


def contenders(change: int, after: int, batches: Sequence[int]) -> list[Contender]:
    """All policies of the study; Rexp3 in several settings, of which the best counts."""
    trials = change + after
    result = [
        Contender("hymab", Hymab(), trials),
        Contender("hymab+", HymabPlus(), trials),
        Contender("rand", Rand(), trials),
        *(Contender(fixed(eps), Hymab(eps_min_quiet=eps, eps_min_alert=eps), trials) for eps in EPS_MIN),
    ]
    for name, window in WINDOWS.items():
        family = f"rexp3 {name}"
        result += [
            Contender(f"{family} ({g:g}, {batch})", Rexp3(g, batch, window), trials, family)
            for g, batch in REXP3_SETTINGS
        ]
        result += [
            Contender(
                published(name, eps, batch),
                Rexp3(rexp3_gamma(ARMS, batch), batch, window, eps=eps),
                trials,
                f"stage-1 {family}",
            )
            for eps in STAGE_2_EPS
            for batch in batches
        ]
    return result


def run(settings: Settings, progress: Progress) -> Result:
    """Carry out the study; ``runs`` is the number of flows."""
    runs = settings.runs or (QUICK_RUNS if settings.quick else RUNS)
    change, after = (QUICK_CHANGE, QUICK_AFTER) if settings.quick else (CHANGE, AFTER)
    batches = QUICK_BATCHES if settings.quick else BATCHES
    taking_part = contenders(change, after, batches)
    found = courses(taking_part, settings, runs, progress, change)
    return Result(
        TITLE,
        f"{runs} flows with 5 arms each, true rates uniform in [0.5, 1]; after {change} trials two random arms get new "
        "rates, uniform in [0, 1]. Everything else is as in the static study: noise of 20 %, probing delivers a "
        f"quarter of the estimate. Rates are relative to the best arm at the time. Seed {settings.seed}.",
        [_table(taking_part, found, change)],
        [*_bars(found, change, batches), _plot(found, change)],
        checks(found, change),
        [
            "*Ref.* figures are those of an independent reproduction of the thesis's study. HyMAB as published "
            "needs three measurements of an arm that it rarely probes; Rexp3 recovers quickly only when it averages "
            "the last ten measurements, and pays for constant exploration before and after. HyMAB+ probes less than "
            "half as often, but the arm in use at even intervals, and checks a suspicion at once.",
            "*rexp3 (gamma, batch)* probes with probability gamma; *stage-1 rexp3 (eps, batch)* is as published: it "
            "chooses the arm, with the gamma of its theory for the batch, and stage 2 probes with probability eps. "
            "Batches count trials, so one of 5 trials has hardly a probe and its choice is uniform.",
            "The curve of a policy that levels off close to 85 % crosses that line late and by chance: its figure "
            "varies with seed and number of runs much more than the others do.",
        ],
    )


def recovery(course: Course, change: int) -> int | None:
    """Trials after the change until the mean rate is 85 % of the new optimum."""
    return first_trial(course.delivered[change:], LEVEL)


def ends(course: Course, change: int) -> Interval:
    """The 95 % interval of :func:`recovery`."""
    return course.interval_of_trial(first_trial, LEVEL, change)


def best_of(family: str, found: Mapping[str, Course], change: int) -> str:
    """The setting of a family that recovers first."""
    names = [name for name in found if name.startswith(f"{family} (")]
    return min(names, key=lambda name: recovery(found[name], change) or 10**9)


def checks(found: Mapping[str, Course], change: int) -> list[Check]:
    """HyMAB and Rexp3 as in the reference; HyMAB+ recovers within the target, before windowed Rexp3, and is no worse
    than HyMAB before the change.
    """
    plain, plus = found["hymab"], found["hymab+"]
    trials, span = recovery(plus, change), ends(plus, change)
    beside, beside_ends = _beside(plus, found[best_of("rexp3 last 10", found, change)], change)
    more = _before(plus.delivered, change) - _before(plain.delivered, change)
    return [
        *_reference_checks(found, change),
        Check("hymab+: trials to 85 %", at_most(TARGET_TRIALS), trials, span),
        Check("hymab+: trials to 85 %, beside windowed Rexp3's", at_most(1.0), beside, beside_ends),
        Check(
            "hymab+: rate before the change less HyMAB's",
            at_least(0.0),
            more,
            difference(lambda curve: _before(curve, change), plus, plain),
        ),
    ]


def _beside(one: Course, other: Course, change: int) -> tuple[float | None, Interval]:
    """Trials to 85 % of one course over those of another."""
    return ratio_of(*((recovery(each, change) or math.inf, ends(each, change)) for each in (one, other)))


_WHY_FLAT = "Curves are flat near 85 %: where they cross it varies by hundreds of trials with seed and number of flows."
_WHY_REXP3 = "The published Rexp3 averages all measurements; with the last ten, as HyMAB has them, it recovers sooner."


def _reference_checks(found: Mapping[str, Course], change: int) -> list[Check]:
    result = []
    # With fewer trials before it a change is another one: means of all measurements move sooner.
    is_known = change >= CHANGE
    for what, name, low, high in (
        ("hymab", "hymab", 760.0, 840.0),
        ("rexp3 last 10, best", best_of("rexp3 last 10", found, change), 142.0, 195.0),
        ("rexp3 all, best", best_of("rexp3 all", found, change), 2755.0, math.inf),
    )[: 3 * is_known]:
        course = found[name]
        wanted = f"{low:.0f} to {high:.0f}" if math.isfinite(high) else f"{low:.0f} or more"
        trials, span = recovery(course, change), ends(course, change)
        result.append(Check(f"{what}: trials to 85 %", Band(low, high, wanted), trials, span, why=_WHY_FLAT))
    for window, is_before in (("all", True), ("last 10", False)):
        rival = found[best_of(f"stage-1 rexp3 {window}", found, change)]
        ratio, span = _beside(rival, found["hymab"], change)
        what = f"rexp3 in stage 1, {window}, best: trials to 85 %, beside HyMAB's"
        band, kind = (at_least(1.0), Kind.PUBLISHED) if is_before else (at_most(1.0), Kind.REFERENCE)
        result.append(Check(what, band, ratio, span, kind, "HyMAB before Rexp3", "" if is_before else _WHY_REXP3))
    return result


def _before(curve: FloatArray, change: int) -> float:
    """Mean rate in the 1000 trials before the change."""
    return float(curve[max(0, change - 1000) : change].mean())


def _table(taking_part: Sequence[Contender], found: Mapping[str, Course], change: int) -> Table:
    rows = [_row(contender.name, found[contender.name], change) for contender in taking_part]
    for stage in ("", "stage-1 "):
        for window in WINDOWS:
            family = f"{stage}rexp3 {window}"
            rows.append(_row(f"{family}, best", found[best_of(family, found, change)], change))
    heads = ("policy", "to 85 %", "ref.", "before", "after", "probed")
    title = (
        "Trials to 85 % of the new optimum; rate in 1000 trials before and after the change; "
        "share of trials probed. Rexp3 (gamma, batch), in stage 1 (eps, batch)"
    )
    return Table("summary", title, heads, tuple(rows))


def _row(name: str, course: Course, change: int) -> tuple[Cell, ...]:
    known = REFERENCE.get(name.removesuffix(", best"))
    after = float(course.delivered[change : change + 1000].mean())
    probed = float(course.probed[max(0, change - 1000) : change].mean())
    return (name, recovery(course, change), known, _before(course.delivered, change), after, probed)


def _bars(found: Mapping[str, Course], change: int, batches: Sequence[int]) -> list[Bars]:
    """Trials to 85 % by batch and eps, one plot for each window; HyMAB's as marks."""
    marks = tuple((float(recovery(found[name], change) or math.nan), name) for name in ("hymab", "hymab+", fixed(0.05)))
    marks = tuple((height, name) for height, name in marks if math.isfinite(height))
    plots = []
    for window in WINDOWS:
        of = {eps: [found[published(window, eps, batch)] for batch in batches] for eps in STAGE_2_EPS}
        heights = {f"eps {eps:g}": np.array([recovery(c, change) or math.nan for c in row]) for eps, row in of.items()}
        spans = {f"eps {eps:g}": np.array([ends(course, change) for course in row]).T for eps, row in of.items()}
        finite = {name: np.where(np.isfinite(span), span, math.nan) for name, span in spans.items()}
        name, title = (
            f"by-batch-{window.replace(' ', '-')}",
            f"Trials to 85 % after the change: Rexp3 in stage 1, {window}",
        )
        groups = tuple(map(str, batches))
        plots.append(
            Bars(name, title, "batch, trials", "trials", groups, heights, finite, logarithmic=True, marks=marks)
        )
    return plots


def _plot(found: Mapping[str, Course], change: int) -> Plot:
    best = [best_of(family, found, change) for family in ("rexp3 last 10", "rexp3 all", "stage-1 rexp3 all")]
    at = np.arange(-BEFORE_SHOWN, 1000, 5)
    # Means of five trials, so that the step at 0 stays sharp.
    span = slice(change - BEFORE_SHOWN, change + 1000)
    names = ("hymab", "hymab+", "rand", *best)
    lines = {name: found[name].delivered[span].reshape(-1, 5).mean(axis=1) for name in names}
    x, marks = at.astype(np.float64), ((LEVEL, "85 %"),)
    return Plot("curves", TITLE, "trials after the change", "rate / optimum", x, lines, marks=marks)
