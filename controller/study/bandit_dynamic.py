"""Study ``bandit-dynamic``: how fast policies recover after two of five multipaths changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hyroads.controller.core.bandit.baselines import Rand, Rexp3
from hyroads.controller.core.bandit.hymab import Hymab
from hyroads.controller.core.bandit.hymab_plus import HymabPlus

from .contenders import Contender, Course, courses, first_trial
from .framework import Cell, Check, Plot, Progress, Result, Settings, Table

TITLE = "Recovering after a change of capacities"
FIGURES = "thesis, Figures 4.3 and 4.4"

RUNS, QUICK_RUNS = 500, 200
CHANGE, QUICK_CHANGE = 25_000, 3000
AFTER = 4000
BEFORE_SHOWN = 300
LEVEL = 0.85
TARGET_TRIALS = 150
REXP3_SETTINGS = ((0.05, 300), (0.05, 3000), (0.1, 300))  # gamma, batch

REFERENCE: Mapping[str, str] = {"hymab": "~800", "rexp3 all": ">= 2900", "rexp3 last 10": "150..185"}


def contenders(change: int) -> list[Contender]:
    """All policies of the study; Rexp3 in several settings, of which the best counts."""
    trials = change + AFTER
    result = [
        Contender("hymab", Hymab(), trials),
        Contender("hymab+", HymabPlus(), trials),
        Contender("rand", Rand(), trials),
    ]
    for family, window in (("rexp3 last 10", 10), ("rexp3 all", None)):
        result += [
            Contender(f"{family} ({g:g}, {batch})", Rexp3(g, batch, window), trials, family)
            for g, batch in REXP3_SETTINGS
        ]
    return result


def run(settings: Settings, progress: Progress) -> Result:
    """Carry out the study."""
    runs = settings.runs or (QUICK_RUNS if settings.quick else RUNS)
    change = QUICK_CHANGE if settings.quick else CHANGE
    taking_part = contenders(change)
    found = courses(taking_part, settings, runs, progress, change)
    return Result(
        TITLE,
        f"{runs} flows with 5 arms each, true rates uniform in [0.5, 1]; after {change} trials two random arms get new "
        "rates, uniform in [0, 1]. Everything else is as in the static study: noise of 20 %, probing delivers a "
        f"quarter of the estimate. Rates are relative to the best arm at the time. Seed {settings.seed}.",
        [_table(taking_part, found, change)],
        [_plot(found, change)],
        checks(found, change),
        [
            "*Ref.* figures are those of an independent reproduction of the thesis's study. HyMAB as published "
            "needs three measurements of an arm that it rarely probes; Rexp3 recovers quickly only when it averages "
            "the last ten measurements, and pays for constant exploration before and after. HyMAB+ probes less than "
            "half as often, but the arm in use at even intervals, and checks a suspicion at once.",
            "The curve of a policy that levels off close to 85 % crosses that line late and by chance: its figure "
            "varies with seed and number of runs much more than the others do.",
        ],
    )


def recovery(course: Course, change: int) -> int | None:
    """Trials after the change until the mean rate is 85 % of the new optimum."""
    return first_trial(course.delivered[change:], LEVEL)


def best_of(family: str, found: Mapping[str, Course], change: int) -> str:
    """The setting of a family that recovers first."""
    names = [name for name in found if name.startswith(f"{family} (")]
    return min(names, key=lambda name: recovery(found[name], change) or 10**9)


def checks(found: Mapping[str, Course], change: int) -> list[Check]:
    """HyMAB+ recovers within the target, before windowed Rexp3, and is no worse than HyMAB before the change."""
    plus, best = recovery(found["hymab+"], change), best_of("rexp3 last 10", found, change)
    rival = recovery(found[best], change)
    before = [_before(found[name], change) for name in ("hymab", "hymab+")]
    return [
        Check("hymab+: trials to 85 %", f"at most {TARGET_TRIALS}", plus, plus is not None and plus <= TARGET_TRIALS),
        Check(
            "hymab+: trials to 85 %",
            f"below windowed Rexp3's {rival}",
            plus,
            plus is not None and (rival is None or plus < rival),
        ),
        Check("hymab+: rate before the change", f"at least HyMAB's {before[0]:.3f}", before[1], before[1] >= before[0]),
    ]


def _before(course: Course, change: int) -> float:
    """Mean rate in the 1000 trials before the change."""
    return float(course.delivered[max(0, change - 1000) : change].mean())


def _table(taking_part: Sequence[Contender], found: Mapping[str, Course], change: int) -> Table:
    rows = [_row(contender.name, found[contender.name], change) for contender in taking_part]
    for family in ("rexp3 last 10", "rexp3 all"):
        best = best_of(family, found, change)
        rows.append(_row(f"{family}, best", found[best], change))
    heads = ("policy", "to 85 %", "ref.", "before", "after", "probed")
    title = (
        "Trials to 85 % of the new optimum; rate in 1000 trials before and after the change; "
        "share of trials probed. Rexp3 (gamma, batch)"
    )
    return Table("summary", title, heads, tuple(rows))


def _row(name: str, course: Course, change: int) -> tuple[Cell, ...]:
    known = REFERENCE.get(name.removesuffix(", best"))
    after = float(course.delivered[change : change + 1000].mean())
    probed = float(course.probed[max(0, change - 1000) : change].mean())
    return (name, recovery(course, change), known, _before(course, change), after, probed)


def _plot(found: Mapping[str, Course], change: int) -> Plot:
    best = [best_of(family, found, change) for family in ("rexp3 last 10", "rexp3 all")]
    at = np.arange(-BEFORE_SHOWN, 1000, 5)
    # Means of five trials, so that the step at 0 stays sharp.
    span = slice(change - BEFORE_SHOWN, change + 1000)
    lines = {
        name: found[name].delivered[span].reshape(-1, 5).mean(axis=1) for name in ("hymab", "hymab+", "rand", *best)
    }
    x, marks = at.astype(np.float64), ((LEVEL, "85 %"),)
    return Plot("curves", TITLE, "trials after the change", "rate / optimum", x, lines, marks=marks)
