"""Rows of the verdict about the power line: traffic of other people on it, and learning from each kind of busy time."""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hyroads.mininet.programs import EmulationError, wait_until

from .power_line import RunningLine
from .three_boxes import ATTIC, CONTROLLER, FLOW, GATEWAY, HOSTS, LAPTOP, PLC, SERVER, Setup, iperf_server
from .verdict import Wanted

SHARE = 0.5
"""Of the line's time, which the network next door occupies."""
SEEN = Wanted("foreign traffic of half the power line: seen after", "s", at_most=2.0)
EXACT = Wanted("foreign traffic of half the power line: its share as seen is off by", "points", at_most=10.0)
YIELDS = Wanted("foreign traffic of half the power line: rate of the flow there, share of before", "", at_most=0.6)
LEARNED = "HyMAB by {}, share of the best multipath after {:g} s"
SOURCES: Mapping[str, tuple[Mapping[str, bool], float]] = {
    "sniffer": ({}, 60.0),
    "counters": ({"sniffer": False}, 60.0),
    "none": ({"qualcomm": False}, 120.0),
}
"""How busy time is known -> what adapters do then, and how long HyMAB may learn."""
_LEARNED_AT_LEAST = 0.9
_BEFORE_S, _BESIDE_S = 4.0, 8.0
_LAST_S = 15.0
_TOLERANCE = 0.1
_SOURCE_WITHIN_S = 20.0
_ANSWER_WITHIN_S = 20.0
_FILL_S = 1.0
_PAYLOAD_BYTES, _OFFERED_MBPS = 1400, 60.0
"""UDP payload that is not cut into pieces on a multipath, and more than all media carry."""
_WATCH = """
import json, os, ssl, sys, time, urllib.request
trust = ssl.create_default_context(cafile=os.environ["HYROADS_CA"])
headers = {"Authorization": "Bearer " + open(os.environ["HYROADS_TOKEN_FILE"]).read().strip()}
def get(what):
    request = urllib.request.Request(os.environ["HYROADS_URL"] + "/api/v1/" + what, headers=headers)
    with urllib.request.urlopen(request, timeout=5, context=trust) as answer:
        return json.load(answer)
until_s = time.monotonic() + float(sys.argv[1])
while time.monotonic() < until_s:
    print(json.dumps([time.monotonic(), get("measurements"), get("flows/" + sys.argv[2])]))
    time.sleep(0.2)
"""

Figures = Iterator[tuple[Wanted, Callable[[], float]]]


@dataclass(frozen=True)
class Seen:
    """What the controller said at a time of the monotonic clock, which all boxes share.

    ``external`` is the share of the power line's time that is not ours, as the gateway hears it, ``line_mbps`` the rate
    of the flow there, ``carried_mbps`` what of the flow arrived (None: not known), ``probing`` whether it is a probe,
    ``busy_source`` how the gateway knows busy time of its power line (None: not at all).
    """

    time_s: float
    external: float
    line_mbps: float
    carried_mbps: float | None
    probing: bool
    busy_source: str | None


def foreign_rows(setup: Setup) -> Figures:
    """Rows of a flow that fills all media, beside a network next door that begins to send."""
    measured: list[tuple[float, list[Seen]]] = []

    def measure() -> tuple[float, list[Seen]]:
        if not measured:
            raise EmulationError("the flow beside foreign traffic was not measured")
        return measured[0]

    def seen_after() -> float:
        measured.append(_beside_foreign_traffic(setup, setup.lab.power_lines[PLC]))
        began_s, samples = measure()
        return _seen_after(began_s, samples)

    yield SEEN, seen_after
    yield EXACT, lambda: _off_by(*measure())
    yield YIELDS, lambda: _share_left(*measure())


def _seen_after(began_s: float, samples: list[Seen]) -> float:
    times = [s.time_s for s in samples if s.time_s >= began_s and abs(s.external - SHARE) <= _TOLERANCE]
    if not times:
        raise EmulationError("foreign traffic was not seen")
    return times[0] - began_s


def _off_by(began_s: float, samples: list[Seen]) -> float:
    """Points between the share that is there and the one that was seen in the second half of the time."""
    late = [s.external for s in samples if s.time_s >= began_s + _BESIDE_S / 2]
    return 100 * abs(statistics.fmean(late) - SHARE)


def _share_left(began_s: float, samples: list[Seen]) -> float:
    """Share of the flow's rate on the power line that is left in the second half of the time."""
    before = statistics.fmean(s.line_mbps for s in samples if s.time_s < began_s)
    return statistics.fmean(s.line_mbps for s in samples if s.time_s >= began_s + _BESIDE_S / 2) / before


def _beside_foreign_traffic(setup: Setup, line: RunningLine) -> tuple[float, list[Seen]]:
    """When the network next door began to send, and what the controller said before and after."""
    with _filled(setup), _watched(setup, _BEFORE_S + _BESIDE_S) as watch:
        time.sleep(_BEFORE_S)
        began_s = time.monotonic()
        with line.traffic_next_door(SHARE):
            return began_s, watch()


def learning_rows(setup: Setup) -> Figures:
    """Rows of HyMAB with busy time known in each way, beside the best multipath of a plain flow."""
    best: list[float] = []

    def learned(source: str) -> float:
        if not best:
            best.append(_carried(setup, 2 * _BEFORE_S))
        features, seconds = SOURCES[source]
        setup.lab.power_lines[PLC].plug_in(**features)
        _wait_for_source(setup, source)
        return _learned(setup, seconds) / best[0]

    for source, (_, seconds) in SOURCES.items():
        wanted = Wanted(LEARNED.format(source, seconds), "", at_least=_LEARNED_AT_LEAST)
        yield wanted, lambda source=source: learned(source)  # type: ignore[misc]


def _learned(setup: Setup, seconds: float) -> float:
    """Mb/s of a flow with HyMAB that arrive between its probes, in the last seconds of its time."""
    controller = setup.box[CONTROLLER]
    setup.remove()
    controller.type(f"hyroads flows add {FLOW} {GATEWAY} {ATTIC} --policy hymab")
    try:
        return _carried(setup, seconds)
    finally:
        setup.remove()
        setup.declare()


def _carried(setup: Setup, seconds: float) -> float:
    """Median of what arrives of the flow in the last seconds, but for probes."""
    last_s = min(_LAST_S, seconds / 2)
    with _filled(setup):
        time.sleep(seconds - last_s)
        with _watched(setup, last_s) as watch:
            rates = [s.carried_mbps for s in watch() if not s.probing and s.carried_mbps is not None]
    if not rates:
        raise EmulationError("nothing is known of what arrived between probes")
    return statistics.median(rates)


def _wait_for_source(setup: Setup, source: str) -> None:
    """Until the gateway knows busy time of its power line in one way."""

    def is_there() -> bool:
        with _watched(setup, 0.1) as watch:
            return all(seen.busy_source == source for seen in watch())

    wait_until(f"busy time by {source}", is_there, _SOURCE_WITHIN_S, interval_s=0.5)


@contextmanager
def _filled(setup: Setup) -> Iterator[None]:
    """Inside this the server offers the laptop more than all media carry."""
    server, laptop = setup.box[SERVER], setup.box[LAPTOP]
    iperf_server(laptop)
    load = f"iperf3 -u -c {HOSTS[LAPTOP][1]} -l {_PAYLOAD_BYTES} -b {_OFFERED_MBPS}M -t 0"
    server.type(f"systemd-run --quiet --collect --unit=iperf3-load {load}")
    try:
        time.sleep(_FILL_S)
        yield
    finally:
        server.run("systemctl", "stop", "iperf3-load")
        laptop.run("systemctl", "stop", "iperf3-lab")


@contextmanager
def _watched(setup: Setup, seconds: float) -> Iterator[Callable[[], list[Seen]]]:
    """What the controller says from now on; the function waits until the time is over."""
    watcher = subprocess.Popen(
        setup.box[CONTROLLER].command("python3", "-c", _WATCH, f"{seconds:g}", FLOW),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip

    def samples() -> list[Seen]:
        output, errors = watcher.communicate(timeout=seconds + _ANSWER_WITHIN_S)
        found = [seen_in(*json.loads(line)) for line in output.splitlines()]
        if not found:
            raise EmulationError(f"the controller says nothing: {errors.strip().splitlines()[-1:]}")
        return found

    try:
        yield samples
    finally:
        watcher.kill()
        watcher.wait()


def seen_in(time_s: float, measurements: Mapping[str, Any], flow: Mapping[str, Any]) -> Seen:
    """What ``GET /measurements`` and ``GET /flows/ID`` say of the power line at the gateway, and of the flow."""
    interfaces = [i for i in measurements["interfaces"] if (i["node"], i["technology"]) == (GATEWAY, PLC)]
    radios = [i for r in measurements.get("radios", ()) if r["node"] == GATEWAY for i in r["interfaces"]]
    counted = [f["delivered_mbps"] for f in measurements["flows"] if f["id"] == FLOW]
    paths = [path for path in flow["multipath"] if any(link.rstrip("~").endswith(f"-{PLC}") for link in path["links"])]
    bandit = flow.get("bandit") or {}
    return Seen(
        time_s,
        interfaces[0]["external"] if interfaces else 0.0,
        sum(path["rate_mbps"] or 0.0 for path in paths),
        counted[0] if counted else None,
        bandit.get("probing") is not None,
        next((i["busy_source"] for i in radios if i["technology"] == PLC), None),
    )
