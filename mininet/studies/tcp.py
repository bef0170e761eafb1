"""Live study ``tcp``: TCP over the multipath against one path, over the margin (EPFL thesis 9056, Figures 3.15, 3.16).

For each pair one network: one TCP connection (cubic) on the best single path of plain forwarding, then over the
multipath of a flow that is declared as TCP, with each margin in turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.core.network import Traffic as TrafficKind
from hyroads.controller.study.framework import Cdf, Plot, Progress, Result, Settings
from hyroads.controller.study.intervals import interval_of_share
from hyroads.controller.study.verdicts import Check, Kind, at_least
from hyroads.mininet.emulation import Emulation
from hyroads.mininet.traffic import Traffic

from .floor import EMPOWER, SCALE, SECOND, SP, Floor, Pair, Paths, hybrid_multipath, part_of, paths_mbps
from .measuring import Times, declared, pause, set_margins, times_of
from .rows import Measured, Row, Trial, measure_pairs, not_made_notes, rows_table, shortfalls

TITLE = "TCP over multipaths, over the margin, with real packets"
FIGURES = "thesis, Figures 3.15 and 3.16"
TIMES_S = (40.0, 3_500.0)

PAIRS, QUICK_PAIRS = 10, 1
MARGINS, QUICK_MARGINS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3), (0.0, 0.3)
WHOLE, QUICK = Times(30.0, 5.0), Times(5.0, 1.0)
PAYLOAD_SHARE = 1448 / 1530
"""TCP's payload of a byte of L2 payload."""
_ONE = "one path"
# Of what TCP over one path can carry; the multipath's own figure is what is studied.
_LEAST = 0.8


def run(settings: Settings, progress: Progress) -> Result:
    """Carry out the study."""
    times = times_of(settings, WHOLE, QUICK)
    margins = QUICK_MARGINS if settings.quick else MARGINS
    setting = f"{times}; margins {' '.join(f'{margin:g}' for margin in margins)}"
    trial_of, counts = partial(_trial, times=times, margins=margins), (PAIRS, QUICK_PAIRS)
    found = measure_pairs("live-tcp", setting, counts, trial_of, settings, progress, wanted=hybrid_multipath)
    rows, made = found.rows, found.made
    return Result(
        TITLE,
        f"{len(found.pairs)} pairs of office22_panels whose best multipath has several paths, capacities x {SCALE:g}, "
        f"ideal media; one connection of TCP cubic; {times} for each margin. Goodput. Seed {settings.seed}.",
        [rows_table(rows, _heads(margins), "Goodput, Mb/s")],
        _plots(made, margins),
        checks(rows, margins),
        [
            "The margin is what the allocation leaves free of every medium's time; acknowledgements take of it.",
            *not_made_notes(rows),
        ],
    )


def _trial(floor: Floor, number: int, pair: Pair, times: Times, margins: Sequence[float]) -> Trial:
    schemes = floor.schemes(pair)
    chosen = {name: schemes[name] for name in (EMPOWER, SP)}
    # Acknowledgements take plain routes, which must not use the channel of another scheme.
    network = part_of(floor.network, [path for paths in chosen.values() for path in paths], frozenset({SECOND}))
    work = partial(measure, pair=pair, paths=chosen[EMPOWER], single=chosen[SP], times=times, margins=margins)
    return Trial(number, network, work)


def measure(  # noqa: PLR0917 - bound by name
    emulation: Emulation, pair: Pair, paths: Paths, single: Paths, times: Times, margins: Sequence[float]
) -> Measured:
    """One path, then the multipath with each margin."""
    traffic = Traffic(emulation, *pair, lambda: None)
    one_mbps = traffic.tcp(times.measure_s, "cubic").mbps
    found: dict[str, float] = {}
    for margin in margins:
        set_margins(emulation, 0.0, margin)
        with declared(emulation, pair, paths, traffic=TrafficKind.TCP.value):
            pause(emulation, times.settle_s)
            found[f"{margin:g}"] = traffic.tcp(times.measure_s, "cubic").mbps
    theory = {_ONE: (one_mbps, paths_mbps(emulation.network, single) * PAYLOAD_SHARE)}
    theory |= {
        f"margin {margin:g}": (found[f"{margin:g}"], paths_mbps(emulation.network, paths, margin) * PAYLOAD_SHARE)
        for margin in margins
    }
    figures = {"pair": "-".join(pair), "one_mbps": one_mbps, "mbps": found}
    return Measured(figures, shortfalls(theory, _LEAST))


def _heads(margins: Sequence[float]) -> dict[str, Any]:
    def of(margin: float, figures: Mapping[str, Any]) -> float:
        return float(figures["mbps"][f"{margin:g}"])

    heads: dict[str, Any] = {"ends": lambda figures: figures["pair"], _ONE: lambda figures: figures["one_mbps"]}
    return heads | {f"margin {margin:g}": partial(of, margin) for margin in margins}


def gains(made: Sequence[Mapping[str, Any]], margin: float) -> NDArray[np.float64]:
    """Goodput over the multipath with this margin over that of one path, for each pair, float64[n]."""
    return np.array([each["mbps"][f"{margin:g}"] / max(each["one_mbps"], 1e-9) for each in made], dtype=np.float64)


def _plots(made: Sequence[Mapping[str, Any]], margins: Sequence[float]) -> list[Plot | Cdf]:
    lines = {each["pair"]: np.array([each["mbps"][f"{m:g}"] for m in margins], dtype=np.float64) for each in made}
    samples = {f"margin {margin:g}": gains(made, margin) for margin in margins}
    return [
        Plot("goodput", "Goodput over the margin (Figure 3.15)", "margin", "Mb/s", np.array(margins), lines),
        Cdf("gains", "Multipath over one path (Figure 3.16)", "ratio", samples, marks=((1.0, "one path"),)),
    ]


def checks(rows: Sequence[Row], margins: Sequence[float]) -> list[Check]:
    """Order only: whether the multipath gains with the largest margin."""
    made = [row.figures for row in rows if row.made]
    ahead = gains(made, margins[-1]) > 1.0
    share = float(ahead.mean())
    interval = interval_of_share(int(ahead.sum()), len(ahead))
    what = f"share of pairs in which the multipath gains with margin {margins[-1]:g}"
    why = "the rate of the multipath with that margin is below what one path carries without any: see the rows"
    # Of ten pairs that all gain no more can be said than that seven of ten do.
    return [
        Check(what, at_least(0.65), share, interval, Kind.PUBLISHED, "0.3 gains always", "" if share == 1.0 else why)
    ]
