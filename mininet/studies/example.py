"""Live study ``example``: a flow over WiFi and power line, alone and beside a WiFi flow (EPFL thesis 9056, Fig. 3.11).

Path 1 goes by WiFi of 20 Mb/s and on by power line of 40, path 2 by one hop of power line of 18. Together they carry
29 Mb/s: path 1 is full at 20, which leaves half of the power line's time, so half of 18, to path 2.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.core.netfile import parse
from hyroads.controller.core.network import Network
from hyroads.controller.study.framework import Cell, Plot, Progress, Result, Settings
from hyroads.controller.study.intervals import interval_of
from hyroads.controller.study.verdicts import Band, Check, Kind, at_least, at_most
from hyroads.mininet.emulation import Emulation, EmulationOptions
from hyroads.mininet.programs import EmulationError
from hyroads.mininet.udp_load import UdpLoad

from .floor import paths_mbps
from .measuring import FLOW, IP_SHARE, LEAST, MARGIN, OVERLOAD, Load, Times, declared, path_bytes, times_of
from .rows import Measured, Row, Trial, measure_rows, not_made_notes, rows_table, shortfalls

TITLE = "A flow over two media, alone and beside a flow over one of them, with real packets"
FIGURES = "thesis, Figure 3.11"
TIMES_S = (35.0, 180.0)

WHOLE, QUICK = Times(30.0, 5.0), Times(3.0, 2.0)
SAMPLE_S = 0.5
Means = NDArray[np.float64]
WIFI_PATH, PLC_PATH = ("ab-wifi", "bc-plc"), ("ac-plc",)
ENDS, BESIDE, BESIDE_ENDS = ("a", "c"), "beside", ("d", "b")
PHASES = ("alone", "beside a WiFi flow", "alone again")
DOCUMENT: dict[str, Any] = {
    "nodes": {"a": {"role": "gateway"}, **{node: {"role": "ap"} for node in "bcd"}},
    "links": [
        {"id": "ab-wifi", "from": "a", "to": "b", "technology": "wifi", "capacity_mbps": 20, "both": True},
        {"id": "bc-plc", "from": "b", "to": "c", "technology": "plc", "capacity_mbps": 40, "both": True},
        {"id": "ac-plc", "from": "a", "to": "c", "technology": "plc", "capacity_mbps": 18, "both": True},
        {"id": "db-wifi", "from": "d", "to": "b", "technology": "wifi", "capacity_mbps": 20, "both": True},
    ],
    "interference": {"rule": "technology"},
}


def network() -> Network:
    """The network of the figure; the flow beside goes one hop, from d to b."""
    return parse(DOCUMENT, "live-example")


def run(settings: Settings, progress: Progress) -> Result:
    """Carry out the study."""
    times, count = times_of(settings, WHOLE, QUICK), settings.runs or 1
    options = EmulationOptions(settings={"margin": MARGIN})
    trials = [Trial(number, network(), partial(measure, times=times), options) for number in range(1, count + 1)]
    rows = measure_rows("live-example", f"seed {settings.seed}; {times}; margin {MARGIN:g}", trials, settings, progress)
    made = [row for row in rows if row.made]
    return Result(
        TITLE,
        f"Path 1: WiFi of 20 Mb/s, then power line of 40; path 2: power line of 18. UDP, {OVERLOAD:g} times what fits; "
        f"{times} each: path 1 only, both, both beside a one-hop WiFi flow, both again. Margin {MARGIN:g}.",
        [rows_table(rows, _heads(), "What arrives over each path, Mb/s", "run")],
        [_plot(made[0])],
        checks(made),
        not_made_notes(rows),
    )


def measure(emulation: Emulation, times: Times) -> Measured:
    """Path 1 only, then the three phases."""
    with UdpLoad(emulation) as load:
        load.open(FLOW, *ENDS)
        load.open(BESIDE, *BESIDE_ENDS)
        single = Load(emulation, load, ENDS).carried_mbps((WIFI_PATH,), OVERLOAD * 20.0, times)
        with declared(emulation, ENDS, (WIFI_PATH, PLC_PATH)):
            load.set_rate(FLOW, OVERLOAD * 29.0)
            watch = _Watch(emulation, times)
            watch.phase()
            with ExitStack() as other:
                other.enter_context(declared(emulation, BESIDE_ENDS, (), BESIDE))
                load.set_rate(BESIDE, OVERLOAD * 20.0)
                watch.phase()
                load.set_rate(BESIDE, 0.0)
            watch.phase()
    best_mbps = paths_mbps(emulation.network, (WIFI_PATH, PLC_PATH)) * (1 - MARGIN)
    theory = {"path 1 only": (single, 20.0 * (1 - MARGIN) * IP_SHARE)}
    theory |= {PHASES[k]: (sum(watch.means[k].values()), best_mbps) for k in (0, 2)}
    theory[PHASES[1]] = (sum(watch.means[1].values()), 18.0 * (1 - MARGIN))
    figures = {
        # As of the phases: L2 payload of the paths.
        "single_mbps": single / IP_SHARE,
        "phases": watch.means,
        "begins_s": watch.begins_s,
        "samples": watch.samples,
    }
    return Measured(figures, shortfalls(theory, LEAST))


class _Watch:
    """Samples of what each path brings, and means of the phases once they have settled: Mb/s of L2 payload."""

    def __init__(self, emulation: Emulation, times: Times) -> None:
        self._emulation, self._times = emulation, times
        self._start_s = time.monotonic()
        self.samples: list[list[float]] = []
        self.means: list[dict[str, float]] = []
        self.begins_s: list[float] = []

    def phase(self) -> None:
        """One phase, that begins now."""
        began_s = before_s = time.monotonic()
        self.begins_s.append(began_s - self._start_s)
        settled: tuple[float, dict[str, int]] | None = None
        before = path_bytes(self._emulation, FLOW)
        while before_s < began_s + self._times.settle_s + self._times.measure_s:
            time.sleep(SAMPLE_S)
            now_s, now = time.monotonic(), path_bytes(self._emulation, FLOW)
            rates = _rates(before, now, now_s - before_s)
            self.samples.append([now_s - self._start_s, rates["1"], rates["2"]])
            before_s, before = now_s, now
            if settled is None and now_s >= began_s + self._times.settle_s:
                settled = (now_s, now)
        if settled is None or before_s <= settled[0]:
            raise EmulationError("too few samples of the paths")
        self.means.append(_rates(settled[1], before, before_s - settled[0]))


def _rates(before: Mapping[str, int], now: Mapping[str, int], seconds: float) -> dict[str, float]:
    """By path, 1 and 2."""
    names = {"1": "+".join(WIFI_PATH), "2": "+".join(PLC_PATH)}
    return {short: (now.get(name, 0) - before.get(name, 0)) * 8e-6 / seconds for short, name in names.items()}


def _heads() -> dict[str, Any]:
    def mean(phase: int, path: str, figures: Mapping[str, Any]) -> Cell:
        return float(figures["phases"][phase][path])

    heads: dict[str, Any] = {"only 1": lambda figures: figures["single_mbps"]}
    for phase, title in enumerate(("alone", "beside", "again")):
        heads |= {f"{path} {title}": partial(mean, phase, path) for path in "12"}
    return heads


def _plot(row: Row) -> Plot:
    samples = np.array(row.figures["samples"], dtype=np.float64)
    lines = {"path 1 (WiFi, power line)": samples[:, 1], "path 2 (power line)": samples[:, 2]}
    lines["both"] = samples[:, 1] + samples[:, 2]
    return Plot(
        "rates", "A flow alone, beside a WiFi flow, alone (Figure 3.11)", "time, s", "Mb/s", samples[:, 0], lines
    )


def checks(made: Sequence[Row]) -> list[Check]:
    """Shares only, of the means over all runs."""
    # Mb/s of each run: path 1 only; then both paths, path 1 beside the other flow, and both once that has ended.
    rows = np.array(
        [
            [
                row.figures["single_mbps"],
                *(
                    row.figures["phases"][phase][path]
                    for phase, path in ((0, "1"), (0, "2"), (1, "1"), (2, "1"), (2, "2"))
                ),
            ]
            for row in made
        ],
        dtype=np.float64,
    )
    wanted: tuple[tuple[str, Band, Callable[[Means], float], str], ...] = (
        ("gain of both paths over path 1 only", Band(0.3, 0.6, "0.3 to 0.6"), _gain, "+45 % (29 against 20)"),
        ("path 2 beside path 1, of what it can carry", Band(0.4, 0.6, "0.4 to 0.6"), _second, "half"),
        ("path 1 beside a WiFi flow, of before", at_most(0.03), _left, "leaves WiFi wholly"),
        ("both paths once that has ended, of before", at_least(0.9), _back, "returns"),
    )
    return [
        Check(what, band, figure(rows), interval_of(rows, figure), Kind.PUBLISHED, published)
        for what, band, figure, published in wanted
    ]


def _gain(rows: Means) -> float:
    single, first, second, *_ = rows.mean(axis=0)
    return float((first + second) / single - 1.0)


def _second(rows: Means) -> float:
    return float(rows[:, 2].mean() / (18.0 * (1 - MARGIN)))


def _left(rows: Means) -> float:
    return float(rows[:, 3].mean() / max(rows[:, 1].mean(), 1e-9))


def _back(rows: Means) -> float:
    _, first, second, _, *back = rows.mean(axis=0)
    return float(sum(back) / (first + second))
