"""Study ``utility``: how near the schemes come to the greatest utility of two or three flows at once."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from hyroads.controller.core.interface_graph import FloatArray
from hyroads.controller.core.network import Network

from . import networks
from .controlled import Case, Setting, draw
from .framework import AnyPlot, Cdf, Cell, Progress, Result, Settings, Table, run_by_kind
from .intervals import interval_of
from .schemes import WITHOUT_CONTROL, Scheme
from .slots import without_control_mbps
from .verdicts import Check, Kind, above, at_least

TITLE = "Utility of several flows"
FIGURES = "thesis, Figure 3.7; paper, Figure 7"
TIMES_S = (17.0, 310.0)

RUNS, QUICK_RUNS = 500, 20
KINDS: Mapping[str, Callable[[random.Random], Network]] = {
    "residential": networks.residential,
    "enterprise 50x30": networks.enterprise,
    "enterprise 100x60": partial(networks.enterprise, width_m=100.0, height_m=60.0, panels=2),
}
FLOWS = (2, 3)
"""How many flows networks have, in turn."""
SHOWN = (Scheme.CONS, Scheme.EMPOWER, Scheme.MP_2BP, Scheme.MP_WP, Scheme.SP, Scheme.MP_WITHOUT)
WITHOUT_SLOTS = 5000


@dataclass(frozen=True, slots=True)
class Task:
    """Network ``number`` of a kind."""

    kind: str
    seed: int
    number: int


Ratios = Mapping[Scheme, float]
"""Utility of each scheme as a share of that of ``optimal``."""


def run(settings: Settings, progress: Progress) -> Result:
    """Carry out the study."""
    runs = settings.runs or (QUICK_RUNS if settings.quick else RUNS)
    tasks = {kind: [Task(kind, settings.seed, number) for number in range(runs)] for kind in KINDS}
    found = run_by_kind(ratios_of, tasks, settings, progress)
    return Result(
        TITLE,
        f"{runs} random networks of each kind with two or three flows in turn. Utility is the sum of log(1 + x) over "
        "the flows, x in Mb/s, as a share of the greatest one that any schedule of links allows. Rates are those of "
        f"the exact optimum of each scheme; without control they are from {WITHOUT_SLOTS} slots. Seed {settings.seed}.",
        [_table(found)],
        [*_plots(found)],
        checks(found),
        [
            "*cons*: all paths at once within the airtime of every link. *MP-2bp*: the two shortest paths. *MP-W+P*: "
            "the shortest path over WiFi and that over the power line. Ends without a route are drawn anew.",
        ],
    )


def ratios_of(task: Task) -> Ratios:
    """All schemes on one network."""
    setting = Setting(task.kind, KINDS[task.kind], FLOWS[task.number % len(FLOWS)])
    case = draw(setting, task.seed, task.number)
    best = case.schemes.utility(Scheme.OPTIMAL, case.flows)
    rng = np.random.default_rng([task.seed, list(KINDS).index(task.kind), task.number])
    return {scheme: _utility(case, scheme, rng) / best for scheme in SHOWN}


def _utility(case: Case, scheme: Scheme, rng: np.random.Generator) -> float:
    if scheme not in WITHOUT_CONTROL:
        return case.schemes.utility(scheme, case.flows)
    rates = without_control_mbps(case.network, case.all_paths, rng, WITHOUT_SLOTS)
    flow_of = np.repeat(np.arange(len(case.flows)), [len(paths) for paths in case.paths])
    return float(np.log1p(np.bincount(flow_of, rates, minlength=len(case.flows))).sum())


def ratios_to(found: Sequence[Ratios], scheme: Scheme) -> FloatArray:
    """Of all networks the share of one scheme, float64[n]."""
    return np.array([ratios[scheme] for ratios in found])


def _table(found: Mapping[str, Sequence[Ratios]]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for kind, ratios in found.items():
        for scheme in SHOWN:
            values = ratios_to(ratios, scheme)
            figures = (float(values.mean()), *np.quantile(values, (0.5, 0.1, 0.0)).tolist())
            rows.append((kind, str(scheme), *figures, float((values >= 0.99).mean())))
    heads = ("networks", "scheme", "mean", "median", "10 %", "least", "share within 1 %")
    return Table("utility", "Utility as a share of the optimum's", heads, tuple(rows))


def _plots(found: Mapping[str, Sequence[Ratios]]) -> list[AnyPlot]:
    return [
        Cdf(
            f"utility-{kind.replace(' ', '-')}",
            f"Utility as a share of the optimum's, {kind}",
            "U / U optimal",
            {str(scheme): ratios_to(ratios, scheme) for scheme in SHOWN},
        )
        for kind, ratios in found.items()
    ]


def checks(found: Mapping[str, Sequence[Ratios]]) -> list[Check]:
    """EMPoWER is near cons and above the two best paths."""
    made = []
    for kind, ratios in found.items():
        ours, cons = ratios_to(ratios, Scheme.EMPOWER), ratios_to(ratios, Scheme.CONS)
        near = ours / cons
        made.append(
            Check(
                f"{kind}: mean of U_EMPoWER / U_cons",
                at_least(0.95),
                float(near.mean()),
                interval_of(near),
                Kind.PUBLISHED,
                "near cons",
            )
        )
        for scheme in (Scheme.MP_2BP, Scheme.SP, Scheme.MP_WITHOUT):
            ahead = ours - ratios_to(ratios, scheme)
            is_published = scheme is Scheme.MP_2BP
            made.append(
                Check(
                    f"{kind}: mean of U_EMPoWER / U_optimal less that of {scheme}",
                    above(0.0),
                    float(ahead.mean()),
                    interval_of(ahead),
                    Kind.PUBLISHED if is_published else Kind.REFERENCE,
                    "above 2bp" if is_published else "",
                )
            )
    return made
