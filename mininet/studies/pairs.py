"""Live study ``pairs``: what schemes carry between pairs of the office floor (EPFL thesis 9056, Figures 3.12, 3.14).

For each pair one network: EMPoWER, SP, SP-WiFi, mWiFi and 2bp one after the other with control, more UDP than fits;
then SP without control, offered more by steps, of which the most that arrives counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.study.framework import Cdf, Progress, Result, Settings
from hyroads.controller.study.intervals import interval_of_share
from hyroads.controller.study.verdicts import Check, Kind, above, at_least
from hyroads.mininet.emulation import Emulation, EmulationOptions
from hyroads.mininet.udp_load import UdpLoad

from .floor import EMPOWER, MWIFI, SCALE, SP, SP_WIFI, TWO_BEST, Floor, Pair, Paths, part_of, paths_mbps
from .measuring import (
    FLOW,
    IP_SHARE,
    LEAST,
    MARGIN,
    OVERLOAD,
    Load,
    Times,
    declare,
    times_of,
    without_control,
)
from .rows import Measured, Row, Trial, measure_pairs, not_made_notes, rows_table, shortfalls

TITLE = "Schemes between pairs of the office floor, with real packets"
FIGURES = "thesis, Figures 3.12 and 3.14"
TIMES_S = (55.0, 15_000.0)

PAIRS, QUICK_PAIRS = 50, 1
WHOLE, QUICK = Times(30.0, 5.0), Times(3.0, 1.5)
STEP_MBPS, STEP_S, QUICK_STEP_S = 1.0 * SCALE, 2.0, 0.4
STEPS = "SP by steps"
SHOWN = (EMPOWER, SP, SP_WIFI, MWIFI, TWO_BEST, STEPS)
# Steps begin at so much of what the path can carry and end beyond it.
_FROM, _TO = 0.5, 1.25
_EVEN = 0.97
"""Rates this near count as equal."""


def run(settings: Settings, progress: Progress) -> Result:
    """Carry out the study."""
    times = times_of(settings, WHOLE, QUICK)
    step_s = QUICK_STEP_S if settings.quick else STEP_S
    setting = f"{times}; margin {MARGIN:g}; steps {STEP_MBPS:g} Mb/s, {step_s:g} s"
    trial_of = partial(_trial, times=times, step_s=step_s)
    found = measure_pairs("live-pairs", setting, (PAIRS, QUICK_PAIRS), trial_of, settings, progress)
    rows, made = found.rows, found.made
    return Result(
        TITLE,
        f"{len(found.pairs)} pairs of office22_panels, capacities x {SCALE:g}, ideal media; UDP of 1400 bytes, "
        f"{OVERLOAD:g} times what fits; {times} for each scheme; margin {MARGIN:g}. {STEPS}: without control, "
        f"{STEP_MBPS:g} Mb/s more each {step_s:g} s. Mb/s are those of IP packets at the target. Seed {settings.seed}.",
        [rows_table(rows, _heads(), "What each scheme carries, Mb/s")],
        _plots(made),
        checks(rows),
        [
            "mWiFi has a second WiFi channel with the capacities of the first, and no power lines.",
            f"The published steps are 1 Mb/s; capacities and steps are {SCALE:g} of the published ones here.",
            *not_made_notes(rows),
        ],
    )


def _trial(floor: Floor, number: int, pair: Pair, times: Times, step_s: float) -> Trial:
    schemes = floor.schemes(pair)
    network = part_of(floor.network, [path for paths in schemes.values() for path in paths])
    options = EmulationOptions(settings={"margin": MARGIN})
    return Trial(number, network, partial(measure, pair=pair, schemes=schemes, times=times, step_s=step_s), options)


def measure(emulation: Emulation, pair: Pair, schemes: Mapping[str, Paths], times: Times, step_s: float) -> Measured:
    """All schemes of a pair, the one without control last."""
    carried: dict[str, float] = {}
    theory: dict[str, float] = {}
    with UdpLoad(emulation) as udp:
        udp.open(FLOW, *pair)
        load = Load(emulation, udp, pair)
        for scheme, paths in schemes.items():
            most_mbps = paths_mbps(emulation.network, paths)
            theory[scheme] = most_mbps * (1.0 - MARGIN) * IP_SHARE
            carried[scheme] = load.carried_mbps(paths, OVERLOAD * most_mbps, times)
        most_mbps = paths_mbps(emulation.network, schemes[SP])
        # Nobody is there to remove the flow afterwards.
        declare(emulation, pair, schemes[SP])
        without_control(emulation, [FLOW])
        offers = np.arange(max(STEP_MBPS, _FROM * most_mbps), _TO * most_mbps, STEP_MBPS)
        carried[STEPS] = load.best_of_steps_mbps(offers.tolist(), step_s)
        theory[STEPS] = most_mbps * IP_SHARE
    figures = {
        "pair": "-".join(pair),
        "mbps": carried,
        "theory_mbps": theory,
        "paths": {scheme: ["+".join(path) for path in paths] for scheme, paths in schemes.items()},
    }
    return Measured(figures, shortfalls({name: (carried[name], theory[name]) for name in carried}, LEAST))


def _heads() -> dict[str, Any]:
    def of(scheme: str, figures: Mapping[str, Any]) -> float | None:
        return figures["mbps"].get(scheme)  # type: ignore[no-any-return]

    return {"ends": lambda figures: figures["pair"], **{scheme: partial(of, scheme) for scheme in SHOWN}}


def ratios(made: Sequence[Mapping[str, Any]], scheme: str) -> NDArray[np.float64]:
    """What EMPoWER carries over what a scheme does, for each pair, float64[n]; infinite where that has no route."""
    found = []
    for figures in made:
        mbps = figures["mbps"]
        other = mbps.get(scheme, 0.0)
        found.append(mbps[EMPOWER] / other if other > 0 else np.inf)
    return np.array(found, dtype=np.float64)


def _plots(made: Sequence[Mapping[str, Any]]) -> list[Cdf]:
    rates = {
        scheme: np.array([figures["mbps"].get(scheme, 0.0) for figures in made], dtype=np.float64) for scheme in SHOWN
    }
    over = {f"over {scheme}": ratios(made, scheme) for scheme in SHOWN[1:]}
    return [
        Cdf("rates", "What each scheme carries (Figure 3.12)", "Mb/s", rates),
        Cdf(
            "ratios",
            "EMPoWER over each scheme (Figures 3.12, 3.14)",
            "ratio",
            over,
            logarithmic=True,
            marks=((1.0, ""),),
        ),
    ]


def checks(rows: Sequence[Row]) -> list[Check]:
    """Shares and order only: how often EMPoWER is ahead."""
    made = [row.figures for row in rows if row.made]
    found = []
    for scheme, published, least, why in (
        (MWIFI, "75 %, up to 10x", 0.5, _why_mwifi),
        (STEPS, "60 %, up to 2.7x", 0.5, _why_steps),
    ):
        ahead = ratios(made, scheme) > 1.0
        share = float(ahead.mean())
        found.append(
            Check(
                f"share of pairs in which EMPoWER carries more than {scheme}",
                above(least, f"more than {least:g}"),
                share,
                interval_of_share(int(ahead.sum()), len(ahead)),
                Kind.PUBLISHED,
                published,
                why(made) if share <= least else "",
            )
        )
    for scheme in (SP, SP_WIFI, TWO_BEST):
        level = ratios(made, scheme) >= _EVEN
        share = float(level.mean())
        what = f"share of pairs in which EMPoWER carries as much as {scheme} or more (within {1 - _EVEN:.0%})"
        found.append(Check(what, at_least(0.9), share, interval_of_share(int(level.sum()), len(level))))
    return found


def _why_mwifi(made: Sequence[Mapping[str, Any]]) -> str:
    """It is the floor, not the packets: the exact optima say the same."""
    theory = [figures["theory_mbps"] for figures in made]
    ahead = sum(each[EMPOWER] > each.get(MWIFI, 0.0) for each in theory)
    twice = [each[MWIFI] / each[SP_WIFI] for each in theory if MWIFI in each and SP_WIFI in each]
    times = f", {np.mean(twice):.2f} times what SP-WiFi carries" if twice else ""
    return (
        f"exact optima without packets put EMPoWER ahead in {ahead} of the same {len(theory)} pairs. mWiFi's second "
        f"channel has the capacities of the first and shares no airtime with it{times}, so EMPoWER is ahead only where "
        "power lines add more than a whole WiFi channel does: mostly over three hops of WiFi and more, hardly over "
        "one. On this floor the links of both have 15 Mb/s on average, and more than half of the pairs are one or two "
        "hops of WiFi apart; what the walls of the published floor left of WiFi is not known"
    )


def _why_steps(made: Sequence[Mapping[str, Any]]) -> str:
    single = sum(len(figures["paths"][EMPOWER]) == 1 for figures in made)
    return (
        f"in {single} of {len(made)} pairs the best multipath is one path, and the control leaves {MARGIN:.0%} of the "
        "airtime free, which the steps do not"
    )
