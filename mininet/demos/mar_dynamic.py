"""Demo ``mar-dynamic``: a client walks past seven access points and back while it uploads over MPTCP.

The access points stand in a row, each with a wire of its own and both bands. Rates fall with distance, and access
points beyond reach are gone. The policy ``placement`` moves the client's two radios. Published for layer-2 managers
and MPTCP (Cereijo, UC3M, 2016): up to 3 s off-line on the way, often both radios at one access point.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hyroads.controller.core.netfile import parse
from hyroads.controller.core.network import ClientMode, Network
from hyroads.controller.core.placement import place_radios, rate_of
from hyroads.mininet.mptcp_traffic import MptcpUpload

from . import recording
from .checks import DemoOptions
from .recording import Panel
from .verdict import Stage

CLIENT, SERVER = "c", "s"
ACCESS_POINTS, APART_M = 7, 20.0
# Band: Mb/s beside an access point, and where nothing is left of it.
BANDS = {"wifi2": (40.0, 36.0), "wifi5": (50.0, 26.0)}
LEAST_MBPS = 2.0
WIRE_MBPS = 1000.0
STEP_S, BIN_S = 0.5, 0.05
GAIN = 0.1
# Where a segment is lost in a full queue, nothing comes out of the connection for as long as the queue is.
QUEUE_MS = 25
SETTINGS: dict[str, object] = {
    "queue_ms": QUEUE_MS,
    "policies": ["placement"],
    "placement": {"mode": "full-speed", "gain": GAIN, "hold_s": 0.0, "stay_s": 1.0},
    "timings": {"hello_interval_ms": 10, "hello_dead_ms": 40},
}
OFFLINE_S = 0.2
# From the moment when others are better until the radios are there: the policy looks once a second, and ahead.
MOVES_WITHIN_S = 1.5


def mbps_at(band: str, distance_m: float) -> float:
    """The rate of a band at a distance; 0 beyond reach."""
    best_mbps, reach_m = BANDS[band]
    rate_mbps = best_mbps * (1.0 - (distance_m / reach_m) ** 2)
    return rate_mbps if rate_mbps >= LEAST_MBPS else 0.0


def network(_how: DemoOptions) -> Network:
    """The row, as it is where the walk begins."""
    aps = [f"a{number}" for number in range(1, ACCESS_POINTS + 1)]
    links: list[dict[str, Any]] = [
        {"id": f"s-{ap}", "from": SERVER, "to": ap, "technology": f"ethernet-{ap}", "capacity_mbps": WIRE_MBPS}
        for ap in aps
    ]
    links += [
        {"id": f"{ap}-{band}", "from": ap, "to": CLIENT, "technology": band, "capacity_mbps": BANDS[band][0]}
        for ap in aps
        for band in BANDS
    ]
    nodes: dict[str, dict[str, Any]] = {SERVER: {"role": "gateway"}, **{ap: {"role": "ap"} for ap in aps}}
    nodes[CLIENT] = {"role": "client", "agent": True}
    flows = [{"id": "up", "from": CLIENT, "to": SERVER}, {"id": "down", "from": SERVER, "to": CLIENT}]
    document = {
        "name": "mar-dynamic",
        "nodes": nodes,
        "links": [{**link, "both": True} for link in links],
        "interference": {"rule": "technology"},
        "flows": [{**flow, "traffic": "tcp"} for flow in flows],
    }
    return parse(document, "mar-dynamic")


@dataclass(frozen=True)
class Step:
    """A moment of the walk: where the client is, where its radios are, what that gives and what the best would."""

    at_s: float
    position_m: float
    places: tuple[tuple[str, str], ...]
    now_mbps: float
    best_mbps: float

    @property
    def is_crowded(self) -> bool:
        """Whether both radios are at one access point while others would give more."""
        nodes = [node for _, node in self.places]
        return len(nodes) > len(set(nodes)) and self.best_mbps >= (1 + GAIN) * self.now_mbps


def run(stage: Stage) -> None:
    """There and back, then the verdict."""
    reachable(stage, 0.0)
    for flow in stage.declared.flows:
        stage.declare(flow)
    with MptcpUpload(stage.emulation, CLIENT, SERVER) as upload:
        stage.pause(3.0)
        steps = walk(stage)
    judge(stage, upload, steps)
    write(stage, upload, steps)


def walk(stage: Stage) -> list[Step]:
    """``--seconds`` there and back, a step each half second."""
    stage.view.phase("a walk past seven access points, and back")
    length_m, duration_s = APART_M * (ACCESS_POINTS - 1), stage.options.seconds
    began_s, steps = time.monotonic(), list[Step]()
    while (gone_s := time.monotonic() - began_s) < duration_s:
        position_m = length_m * (1.0 - abs(1.0 - 2.0 * gone_s / duration_s))
        live = reachable(stage, position_m)
        steps.append(look(stage, live, position_m))
        stage.pause(max(0.0, began_s + STEP_S * len(steps) - time.monotonic()))
    return steps


def reachable(stage: Stage, position_m: float) -> Network:
    """Sets the rates of all radio links by distance; returns the network as it is then."""
    rates = {}
    for link in stage.declared.links:
        ap = link.source if link.target == CLIENT else link.target
        if link.technology in BANDS:
            distance_m = abs(position_m - APART_M * (int(ap[1:]) - 1))
            rates[link.id] = mbps_at(link.technology, distance_m)
    with stage.emulation.shared.client() as medium:
        for link_id, rate_mbps in rates.items():
            medium.set_link(link_id, up=rate_mbps > 0, **({"capacity_mbps": rate_mbps} if rate_mbps else {}))
    return stage.declared.with_capacities(rates)


def look(stage: Stage, live: Network, position_m: float) -> Step:
    """Where the flow's paths are, beside the best placement."""
    links = {path["links"][0] for path in stage.emulation.rest.flow("up")["multipath"]}
    first = [live.links[live.link_index[link]] for link in sorted(links)]
    places = tuple((link.technology, link.target) for link in first)
    now_mbps = rate_of(live, CLIENT, SERVER, ClientMode.FULL_SPEED, dict(places)) if places else 0.0
    best_mbps = place_radios(live, CLIENT, SERVER, ClientMode.FULL_SPEED).total_mbps
    return Step(time.monotonic(), position_m, places, now_mbps, best_mbps)


def judge(stage: Stage, upload: MptcpUpload, steps: Sequence[Step]) -> None:
    """Off-line is every bin of 50 ms in which nothing arrived."""
    begin_s, end_s = steps[0].at_s, steps[-1].at_s
    _, mbps = bins(upload, begin_s, end_s)
    stage.check("off-line in total", OFFLINE_S, float((mbps == 0).sum()) * BIN_S, "s", at_most=1.0)
    crowded_s = longest_crowded_s(steps)
    stage.check("both radios at one while others give more", MOVES_WITHIN_S, crowded_s, "s", at_most=1.0)
    best_mbps = sum(step.best_mbps for step in steps) / len(steps)
    stage.check("goodput beside the best placement", best_mbps, upload.mbps(begin_s, end_s), at_least=0.6, adapts=True)


def longest_crowded_s(steps: Sequence[Step]) -> float:
    """The longest time in a row in which both radios were at one access point while others would have given more."""
    longest_s, since_s = 0.0, None
    for step in steps:
        since_s = (step.at_s if since_s is None else since_s) if step.is_crowded else None
        longest_s = max(longest_s, 0.0 if since_s is None else step.at_s - since_s)
    return longest_s


def bins(upload: MptcpUpload, begin_s: float, end_s: float) -> tuple[recording.FloatArray, recording.FloatArray]:
    """Beginnings of bins of 50 ms, and what arrived in each in Mb/s."""
    counts = np.zeros(int((end_s - begin_s) / BIN_S))
    for at_s, length in upload.arrivals:
        number = int((at_s - begin_s) / BIN_S)
        if 0 <= number < len(counts):
            counts[number] += length
    starts = np.asarray(np.arange(len(counts)) * BIN_S, dtype=np.float64)
    return starts, counts * 8e-6 / BIN_S


def write(stage: Stage, upload: MptcpUpload, steps: Sequence[Step]) -> None:
    """The bins, the steps and a plot."""
    begin_s = steps[0].at_s
    times, mbps = bins(upload, begin_s, steps[-1].at_s)
    rates = ((f"{at_s:.2f}", f"{rate:.3f}") for at_s, rate in zip(times, mbps, strict=True))
    stage.write_csv("bins.csv", ["time_s", "mbps"], rates)
    rows = (
        (
            f"{step.at_s - begin_s:.2f}",
            f"{step.position_m:.1f}",
            " ".join("/".join(place) for place in step.places),
            f"{step.now_mbps:.3f}",
            f"{step.best_mbps:.3f}",
        )
        for step in steps
    )
    stage.write_csv("steps.csv", ["time_s", "position_m", "places", "now_mbps", "best_mbps"], rows)
    if recording.can_draw():
        moments = np.array([step.at_s - begin_s for step in steps], dtype=np.float64)
        best = np.array([step.best_mbps for step in steps], dtype=np.float64)
        shown = {"upload over MPTCP": (times, mbps), "best placement": (moments, best)}
        panel = Panel("received, 50 ms bins", "Mb/s", shown)
        stage.files += recording.draw(stage.folder, stage.name, [panel], {})
