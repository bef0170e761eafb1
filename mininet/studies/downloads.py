"""Live study ``downloads``: with and without congestion control (EPFL thesis 9056, Table 3.1).

Each pair has a network with its flow and that of the next pair, its rival. Real TCP (cubic). *None* is the same
multipath without control: no rates and no margin, frames split in proportion to what each path alone could carry.
Media are those of a testbed, with collisions. 2 GB are 200 MB here (50 MB beside the rival), and 25 MB are 2.5 MB: long
enough to be steady, and the ratio does not depend on it.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from hyroads.controller.core.network import FlowSpec, Network
from hyroads.controller.core.network import Traffic as TrafficKind
from hyroads.controller.core.planner import Plan
from hyroads.controller.study.framework import Bars, Progress, Result, Settings
from hyroads.controller.study.intervals import interval_of
from hyroads.controller.study.verdicts import Check, Kind, above
from hyroads.mininet.emulation import CSMA, Emulation, EmulationOptions
from hyroads.mininet.programs import wait_until

from .floor import EMPOWER, SCALE, SECOND, Floor, Pair, part_of
from .measuring import forget_metrics, without_control
from .rows import Measured, Row, Trial, measure_rows, not_made_notes, rows_table

TITLE = "Downloads with and without congestion control, with real packets"
FIGURES = "thesis, Table 3.1"
TIMES_S = (50.0, 3_000.0)

PAIRS, QUICK_PAIRS = 4, 1
QUICK_KINDS = ("tiny", "short")
PORT = 5401
CONTROL, NONE = "control", "none"
HYBRID, COMPETING = "hybrid", "competing"
SETTLE_S = 1.0


@dataclass(frozen=True)
class Download:
    """A line of the table: size, and the published seconds with and without control, of what."""

    bytes: int
    repeats: int
    published_s: tuple[float, float]
    rival: bool = False


DOWNLOADS = {
    "tiny": Download(100_000, 10, (0.128, 0.159)),
    "tiny+rival": Download(100_000, 20, (0.128, 0.159), rival=True),
    "short": Download(5_000_000, 4, (9.9, 13.3)),
    "short+rival": Download(5_000_000, 4, (9.9, 13.3), rival=True),
    "long": Download(200_000_000, 1, (333.0, 535.0)),
    "long+rival": Download(50_000_000, 1, (417.0, 581.0), rival=True),
}
OTHER = "its rival"
RIVAL = Download(2_500_000, 1, (65.0, 155.0))


class Bench:
    """Downloads on the running network."""

    def __init__(self, emulation: Emulation) -> None:
        self.emulation = emulation
        self.flows = {flow.id: flow for flow in emulation.network.flows}
        self.servers = {
            source: self._start(source, "serve", "--port", str(PORT))
            for source in {flow.source for flow in self.flows.values()}
        }
        forget_metrics(emulation)
        wait_until("multipaths", lambda: all(self._state(flow) == "multipath" for flow in self.flows), 10.0)
        time.sleep(SETTLE_S)

    def _state(self, flow: str) -> str:
        return str(self.emulation.rest.flow(flow)["state"])

    def _start(self, node: str, *words: str) -> subprocess.Popen[str]:
        command = [*self.emulation.inside(node), sys.executable, "-m", "hyroads.mininet.tcp_download", *words]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)

    def _get(self, flow: str, size: int, count: int, pause_s: float) -> subprocess.Popen[str]:
        spec = self.flows[flow]
        host = self.emulation.addressing.host_ip[spec.source]
        words = ("--from", host, "--port", str(PORT), "--bytes", str(size), "--count", str(count))
        return self._start(spec.target, "get", *words, "--pause", str(pause_s))

    def without_control(self) -> None:
        """The controller goes, and with it every limit; the flows keep their paths."""
        without_control(self.emulation, list(self.flows))

    def run(self, what: str) -> Iterator[tuple[str, float]]:
        """(what, seconds) of each download."""
        download = DOWNLOADS[what]
        rival = self._get(COMPETING, RIVAL.bytes, 0, 0.5) if download.rival else None
        time.sleep(SETTLE_S if rival else 0.0)
        main = self._get(HYBRID, download.bytes, download.repeats, 0.3)
        for line in main.communicate(timeout=150)[0].split():
            yield what, float(line)
        if rival is not None:
            rival.terminate()
            for line in rival.communicate(timeout=10)[0].split() if what == "long+rival" else ():
                yield OTHER, float(line)


def run(settings: Settings, progress: Progress) -> Result:
    """Carry out the study."""
    kinds = QUICK_KINDS if settings.quick else tuple(DOWNLOADS)
    floor, count = Floor(settings.seed), settings.runs or (QUICK_PAIRS if settings.quick else PAIRS)
    pairs = floor.pairs(count + 1, _relayed)
    trials = [
        Trial(k + 1, network_of(floor, pairs[k], pairs[k + 1]), partial(measure, kinds=kinds), _OPTIONS)
        for k in range(count)
    ]
    setting = f"seed {settings.seed}; {' '.join(kinds)}; x{SCALE:g}"
    rows = measure_rows("live-downloads", setting, trials, settings, progress)
    found = ratios(rows)
    return Result(
        TITLE,
        f"{count} pairs of office22_panels whose multipath has several paths, each with relays; capacities "
        f"x {SCALE:g}, media with collisions; TCP cubic. Seed {settings.seed}.",
        [rows_table(rows, _heads(kinds), "Median seconds, with control / without")],
        [_bars(found)],
        checks(found),
        [
            "Which stations and what other traffic the published rows had is not known, so only ratios compare.",
            *not_made_notes(rows),
        ],
    )


_OPTIONS = EmulationOptions(contention=CSMA)


def _relayed(plan: Plan) -> bool:
    """Whether the multipath has several paths, each with relays."""
    return len(plan.multipath.paths) > 1 and all(len(path) > 1 for path in plan.multipath.links)


def network_of(floor: Floor, hybrid: Pair, rival: Pair) -> Network:
    """The part of the floor where both flows are at home."""
    used = [path for pair in (hybrid, rival) for path in floor.schemes(pair)[EMPOWER]]
    flows = tuple(
        FlowSpec(name, *pair, traffic=TrafficKind.TCP) for name, pair in ((HYBRID, hybrid), (COMPETING, rival))
    )
    return replace(part_of(floor.network, used, frozenset({SECOND})), flows=flows, name="downloads")


def measure(emulation: Emulation, kinds: Sequence[str]) -> Measured:
    """All downloads of a pair: with control, then without. On a slow machine no row counts, whatever it says."""
    seconds: dict[str, dict[str, list[float]]] = {}
    bench = Bench(emulation)
    for mode in (CONTROL, NONE):
        if mode == NONE:
            bench.without_control()
        found: dict[str, list[float]] = defaultdict(list)
        for what in kinds:
            for name, took_s in bench.run(what):
                found[name].append(took_s)
        seconds[mode] = dict(found)
    figures = {"pair": "-".join((bench.flows[HYBRID].source, bench.flows[HYBRID].target)), "seconds": seconds}
    # Were only rows without a gain doubted, the others would tell too much of it.
    return Measured(figures, "there is no theory that downloads could be held against")


def _heads(kinds: Sequence[str]) -> dict[str, Any]:
    def of(what: str, figures: Mapping[str, Any]) -> str:
        both = [figures["seconds"][mode].get(what) for mode in (CONTROL, NONE)]
        return " / ".join("-" if not each else f"{statistics.median(each):.3g}" for each in both)

    return {"ends": lambda figures: figures["pair"], **{what: partial(of, what) for what in kinds}}


def ratios(rows: Sequence[Row]) -> dict[str, list[float]]:
    """By download: median seconds without control over those with it, of each pair that has both."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row.made:
            both = [row.figures["seconds"][mode] for mode in (CONTROL, NONE)]
            for what in both[0].keys() & both[1].keys():
                found.setdefault(what, []).append(statistics.median(both[1][what]) / statistics.median(both[0][what]))
    return {what: found[what] for what in (*DOWNLOADS, OTHER) if what in found}


def published(what: str) -> float:
    """The published ratio."""
    control_s, none_s = (DOWNLOADS.get(what) or RIVAL).published_s
    return none_s / control_s


def _bars(found: Mapping[str, Sequence[float]]) -> Bars:
    ours = np.array([statistics.median(values) for values in found.values()])
    bars = {"ours": ours, "published": np.array([published(what) for what in found])}
    return Bars("ratios", "Time without control over that with it (Table 3.1)", "", "ratio", tuple(found), bars)


def checks(found: Mapping[str, Sequence[float]]) -> list[Check]:
    """Order only: whether control shortens downloads."""
    made = []
    for what, values in found.items():
        median = float(statistics.median(values))
        interval = interval_of(np.array(values), lambda drawn: float(np.median(drawn)))
        words = f"{what}: time without control over that with it"
        made.append(Check(words, above(1.0), median, interval, Kind.PUBLISHED, f"{published(what):.2f}"))
    return made
