"""Demo ``office``: 22 hybrid nodes, WiFi and two power lines, ten flows at once, on real bridges and agents.

Positions, capacities and flows are random with a fixed seed (``topologies.office22_panels``, the office floor of the
EMPoWER testbed). The controller only measures, with radios that err. Capacities are a part of the testbed's
(``--scale``), so that two cores carry all of it with time to spare: an emulation that starves proves nothing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hyroads.controller.core import topologies
from hyroads.controller.core.network import FlowSpec, Network
from hyroads.controller.core.optimum import JointOptimum
from hyroads.rest.client import ApiError

from .checks import DemoOptions
from .footprint import Footprint, cores, look, use
from .recording import INTERVAL_S
from .scenario import Scenario, offered_mbps
from .verdict import Stage

SEED = 6
FLOWS = 10
SCALE = 0.25
MINUTES = 1.0
AT_LEAST = 0.9
WORST_AT_LEAST = 0.88
SETTLE_S = 5.0
DISCOVERY_S = 20.0
DISCOVERED = 0.98
NOT_CONFIRMED = 504
# Offered, of the optimum with all airtime: none limits itself.
OVERLOAD = 1.3
# The verdict tells the first and the last stretch of the run, and the worst.
STRETCH_S = 60.0
SHORT_STRETCH_S = 5.0
# A run of minutes is recorded once a second, one of hours less often: the record stays within some ten megabytes.
SHORT_RUN_S = 120.0
LONG_INTERVAL_S = 1.0
MOST_SAMPLES = 7200.0
# Of all cores; beyond it, what is measured is the machine.
MOST_CPU = 0.75
MOST_LOST = 0.01
MOST_GROWTH = 1.25
MOST_LOG_MIB = 20.0


@dataclass(frozen=True)
class Account:
    """What the controller, the medium and /proc say at one moment."""

    slots: Mapping[str, Any]
    long_slots: int
    lost: int
    delivered: int
    footprint: Footprint


def network(how: DemoOptions) -> Network:
    """The office of the fixed seed, with its flows."""
    rng = random.Random(SEED)  # noqa: S311 - no secret
    office = topologies.office22_panels(rng, capacity_scale=how.scale or SCALE)
    ends: dict[tuple[str, str], None] = {}
    while len(ends) < FLOWS:
        source, target = rng.sample(list(office.nodes), 2)
        ends[source, target] = None
    flows = [FlowSpec(f"f{i}", source, target) for i, (source, target) in enumerate(ends, start=1)]
    return replace(office, flows=tuple(flows), name="office")


def run(stage: Stage) -> None:
    """Ten flows start and go on; what they get is compared with the exact optimum of the medium's true capacities."""
    flows = stage.declared.flows
    optimum, everything = stage.theory.optimum(flows), replace(stage.theory, margin=0.0).optimum(flows)
    length_s = 60 * (stage.options.minutes or MINUTES)
    with Scenario(stage, flows, interval_s=interval_s(length_s)) as scene:
        wait_discovered(stage)
        start_flows(stage, scene, everything)
        scene.begin_phase("all flows", time.monotonic(), optimum.rates_mbps)
        stage.view.phase(f"all flows at once: {SETTLE_S:.0f} s to settle, then {length_s / 60:g} min")
        stage.pause(SETTLE_S)
        before = account(stage)
        minutes(stage, scene, optimum, length_s, before)
        after = account(stage)
    judge_rates(stage, scene, optimum, everything)
    judge_stretches(stage, scene, optimum)
    judge_account(stage, before, after)
    scene.write()


def interval_s(length_s: float) -> float:
    """How often to look at twenty agents."""
    return max(4 * INTERVAL_S if length_s <= SHORT_RUN_S else LONG_INTERVAL_S, length_s / MOST_SAMPLES)


def wait_discovered(stage: Stage) -> None:
    """Until the controller has measured nearly all links, or for a while: then it goes with what it has."""
    stage.view.phase("the controller discovers the network")
    links = len(stage.declared.links)
    deadline_s = time.monotonic() + DISCOVERY_S
    known = 0
    while known < DISCOVERED * links and time.monotonic() < deadline_s:
        stage.pause(0.5)
        health = stage.emulation.rest.get("/health")
        known = int(health["slots"]["estimates"].get("good", 0)) if not health["pending"] else 0
    stage.view.note(f"{known} of {links} links measured")


def start_flows(stage: Stage, scene: Scenario, everything: JointOptimum) -> None:
    """One after the other, each with more traffic than it can get."""
    stage.view.phase(f"{FLOWS} flows start, one after the other")
    for number, flow in enumerate(scene.flows.values(), start=1):
        late = ""
        try:
            scene.start_flow(flow.id, offered_mbps(OVERLOAD * everything.rates_mbps[flow.id]))
        except ApiError as error:
            # Declared, but not confirmed by all in time: it is carried as soon as they have.
            if error.status != NOT_CONFIRMED:
                raise
            late = " (late)"
        stage.view.note(f"{number:2d} of {FLOWS}: {flow.id}, {flow.source} -> {flow.target}{late}")


def minutes(stage: Stage, scene: Scenario, optimum: JointOptimum, length_s: float, before: Account) -> None:
    """Lets traffic run, and says each minute how it goes."""
    start_s = time.monotonic()
    while (left_s := start_s + length_s - time.monotonic()) > 0:
        stage.pause(min(left_s, STRETCH_S))
        now_s = time.monotonic() - scene.recording.start_s
        rates = rates_of(scene, max(scene.phases[0].start_s + SETTLE_S, now_s - STRETCH_S), now_s)
        shares = [optimum.utility_of(rates) / optimum.utility, sum(rates.values()) / sum(optimum.rates_mbps.values())]
        missed = slots(stage)["missed"] - before.slots["missed"]
        words = f"utility {shares[0]:.1%}, throughput {shares[1]:.1%} of theory, slots missed: {missed}"
        stage.view.note(f"{(time.monotonic() - start_s) / 60:5.1f} of {length_s / 60:g} min: {words}")


def rates_of(scene: Scenario, from_s: float, to_s: float) -> dict[str, float]:
    """Delivered rates of all flows in a span."""
    return {flow: scene.recording.mean_delivered(flow, from_s, to_s) for flow in scene.flows}


def slots(stage: Stage) -> dict[str, Any]:
    """The controller's own account of its slots."""
    found: dict[str, Any] = stage.emulation.rest.get("/health")["slots"]
    return found


def long_slots(stage: Stage) -> int:
    """How many slots have taken longer than 100 ms so far."""
    metrics = stage.emulation.rest.metrics()
    return int(metrics["hyroads_slot_seconds_count"] - metrics['hyroads_slot_seconds_bucket{le="0.1"}'])


def account(stage: Stage) -> Account:
    """All accounts of now."""
    flows = stage.emulation.rest.measurements()["flows"]
    lost, delivered = (sum(flow[key] or 0 for flow in flows) for key in ("lost", "delivered_frames"))
    return Account(slots(stage), long_slots(stage), lost, delivered, look(stage.emulation))


# The verdict


def judge_rates(stage: Stage, scene: Scenario, optimum: JointOptimum, everything: JointOptimum) -> None:
    """Utility and throughput of the whole run beside the optimum with the margin and that of all airtime."""
    rates = {flow: scene.mean_in(0, flow, SETTLE_S) for flow in scene.flows}
    total_mbps = sum(rates.values())
    for words, best in (("", optimum), (", no margin", everything)):
        utility = best.utility_of(rates)
        stage.check(f"steady state: utility, sum of log(1 + x){words}", best.utility, utility, "", AT_LEAST, 1.02)
        best_mbps = sum(best.rates_mbps.values())
        what, during = f"steady state: throughput{words}", scene.moments(0, SETTLE_S)
        stage.check(what, best_mbps, total_mbps, "Mb/s", AT_LEAST, 1.1, during)
    for flow, theory_mbps in optimum.rates_mbps.items():
        stage.view.note(f"     {flow}: {rates[flow]:6.2f} of {theory_mbps:6.2f} Mb/s")


def judge_stretches(stage: Stage, scene: Scenario, optimum: JointOptimum) -> None:
    """The first stretch, the last one and the worst of all."""
    _, start_s, end_s = scene.span(0)
    first_s = start_s + SETTLE_S
    stretch_s = STRETCH_S if end_s - first_s >= 2 * STRETCH_S else SHORT_STRETCH_S
    count = max(1, int((end_s - first_s) / stretch_s))
    spans = [(first_s + i * stretch_s, min(end_s, first_s + (i + 1) * stretch_s)) for i in range(count)]
    utilities = [optimum.utility_of(rates_of(scene, *span)) for span in spans]
    named = {"first": utilities[0], "last": utilities[-1], "worst": min(utilities)}
    for words, utility in named.items():
        least = WORST_AT_LEAST if words == "worst" else AT_LEAST
        stage.check(f"  utility of its {words} {stretch_s:.0f} s", optimum.utility, utility, "", least, 1.03)


def judge_account(stage: Stage, before: Account, after: Account) -> None:
    """Slots, lost packets, processor, memory, logs: limits instead of theory."""
    run = int(after.slots["count"] - before.slots["count"])
    missed = int(after.slots["missed"] - before.slots["missed"])
    stage.check(f"slots missed, of {run}", 0, missed, "", at_most=1.0)
    stage.check("slots that took longer than 100 ms", 0, after.long_slots - before.long_slots, "", None, 1.0)
    p50_ms, p99_ms = (after.slots[key] or 0.0 for key in ("p50_ms", "p99_ms"))
    stage.view.note(
        f"     half of the slots took at most {p50_ms:.0f} ms, 99 % {p99_ms:.0f} ms, "
        f"the longest since the controller started {after.slots['max_ms'] or 0.0:.0f} ms"
    )
    arrived, lost = after.delivered - before.delivered, after.lost - before.lost
    share = lost / max(1, arrived + lost)
    stage.check(f"lost of {arrived + lost} packets (limit)", 100 * MOST_LOST, 100 * share, "%", None, 1.0)
    used = use(before.footprint, after.footprint)
    words = f"CPU of the emulation, of {cores()} cores (limit)"
    stage.check(words, 100 * MOST_CPU, 100 * used.own, "%", None, 1.0)
    stage.view.note(f"     CPU of the whole machine: {used.machine:.0%} of {cores()} cores")
    for kind, first_mib in before.footprint.resident_mib.items():
        last_mib = after.footprint.resident_mib[kind]
        stage.check(f"memory, {kind}: last beside first", first_mib, last_mib, "MiB", None, MOST_GROWTH)
    log_mib = after.footprint.log_bytes / 2**20
    stage.check("logs (limit)", MOST_LOG_MIB, log_mib, "MiB", None, 1.0)
