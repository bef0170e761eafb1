"""Demo ``triangle``: the three-node hybrid network of the EMPoWER paper on real packets.

A PLC + WiFi gateway a, a PLC + WiFi extender b, a WiFi laptop c. The best single path carries 10 Mb/s; PLC + WiFi and
WiFi + WiFi together 16.67, because the second path uses the WiFi airtime that the first leaves. Theory is computed
from the network file by the planner.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from hyroads.controller.core.planner import Planner
from hyroads.mininet.programs import wait_until
from hyroads.mininet.traffic import DeliveryRecorder, Goodput, has_congestion_control
from hyroads.mininet.udp_load import L2_BYTES, PAYLOAD_BYTES
from hyroads.rest.client import ClientError

from .checks import Check
from .faults import run_faults
from .verdict import Stage

LONG_S = 60.0
# More than the multipath can carry, so that what arrives is what it carries.
OVERLOAD = 1.5
PLAIN_OVERLOAD = 1.1
# The shares of theory that the acceptance of this demo asks for.
UDP_AT_LEAST = 0.95
TCP_AT_LEAST = 0.85
SINGLE_AT_LEAST = 0.85
FLOW_TIMEOUT_S = 10.0
LEAST_UDP_S = 4.0


@dataclass(frozen=True)
class Theory:
    """What the planner says: Mb/s of L2 payload, for all airtime and for the share that the controller uses."""

    single_mbps: float
    multipath_mbps: float
    allocated_mbps: float


def run(stage: Stage) -> None:
    """The whole demo."""
    flow = stage.declared.flows[0]
    theory = compute_theory(stage, flow.source, flow.target)
    single_path(stage, flow.source, flow.target, theory)
    activate(stage)
    udp(stage, theory, stage.options.seconds, "UDP over the multipath")
    for algorithm in ("cubic", "bbr"):
        tcp(stage, theory, stage.options.seconds, algorithm)
    if stage.options.long:
        udp(stage, theory, LONG_S, f"UDP over the multipath, {LONG_S:.0f} s")
        tcp(stage, theory, LONG_S, "cubic", stable=True)
    if stage.options.faults:
        run_faults(stage, flow.source, flow.target, flow.id)


def compute_theory(stage: Stage, source: str, target: str) -> Theory:
    """The planner's figures for this network; the share that stays free is what the controller says it leaves."""
    planner = Planner(stage.declared, clients_relay=False)
    plan = planner.plan(source, target)
    margin = stage.emulation.margin()
    return Theory(
        plan.single_path.rate_mbps,
        plan.multipath.total_mbps,
        planner.plan(source, target, margin=margin).multipath.total_mbps,
    )


def single_path(stage: Stage, source: str, target: str, theory: Theory) -> None:
    """TCP before the flow is handed to the multipath: plain rules, best single path."""
    stage.view.phase("one TCP flow on the best single path")
    result, during = timed_tcp(stage, stage.options.seconds, "cubic")
    what, least, most = "TCP cubic on the single path", SINGLE_AT_LEAST, 1.0
    check = Check(what, theory.single_mbps, result.mbps, at_least=least, at_most=most, during=during, adapts=True)

    def plain_udp() -> Check:
        began_s = time.monotonic()
        found = stage.traffic(source, target).udp(stage.options.seconds, PLAIN_OVERLOAD * theory.single_mbps)
        mbps, until_s = found.mbps * L2_BYTES / PAYLOAD_BYTES, time.monotonic()
        return Check(f"{what}, UDP", theory.single_mbps, mbps, at_least=UDP_AT_LEAST, during=(began_s, until_s))

    stage.check_tcp(check, plain_udp)


def timed_tcp(stage: Stage, seconds: float, algorithm: str) -> tuple[Goodput, tuple[float, float]]:
    """One TCP connection of the first flow, and the span of CLOCK_MONOTONIC that it took."""
    flow, began_s = stage.declared.flows[0], time.monotonic()
    result = stage.traffic(flow.source, flow.target).tcp(seconds, algorithm)
    return result, (began_s, time.monotonic())


def activate(stage: Stage) -> None:
    """Hands the flow to the multipath over REST."""
    flow = stage.declared.flows[0]
    stage.view.phase(f"flow {flow.id} is handed to the multipath (POST /flows)")
    body = {"id": flow.id, "from": flow.source, "to": flow.target, "utility": flow.utility, "weight": flow.weight}
    stage.emulation.rest.change("POST", "/flows", body)
    await_multipath(stage, flow.id)


def await_multipath(stage: Stage, flow: str, timeout_s: float = FLOW_TIMEOUT_S) -> None:
    """Waits until the controller says that the flow's packets take the multipath."""

    def active() -> bool:
        try:
            return bool(stage.emulation.rest.flow(flow)["state"] == "multipath")
        except ClientError:
            # A controller that has just been started does not answer yet.
            return False

    wait_until(f"multipath of flow {flow}", active, timeout_s, interval_s=0.05)


def udp(stage: Stage, theory: Theory, seconds: float, what: str) -> None:
    """More UDP than fits: what arrives is the capacity, in L2 payload as capacities and rates are counted."""
    stage.view.phase(what)
    what, offered_mbps = f"{what} (L2 payload)", theory.multipath_mbps * OVERLOAD
    stage.add(udp_check(stage, what, theory.allocated_mbps, offered_mbps, seconds))


def udp_check(stage: Stage, what: str, allocated_mbps: float, offered_mbps: float, seconds: float) -> Check:
    """The check of UDP over the multipath of the first flow: Mb/s of L2 payload that arrive of ``allocated_mbps``."""
    flow, started_s = stage.declared.flows[0], [time.monotonic()]
    recorder = DeliveryRecorder(stage.emulation, flow.id)

    def start() -> None:
        started_s.append(time.monotonic())
        recorder.start()

    result = stage.traffic(flow.source, flow.target, recorder.sample).udp(seconds, offered_mbps, start)
    during = started_s[-1], started_s[-1] + seconds - 1.0
    stage.view.note(f"     of {what} UDP payload: {result.mbps:.2f} Mb/s")
    measured = recorder.rate_mbps(seconds - 1.0)
    return Check(what, allocated_mbps, measured, at_least=UDP_AT_LEAST, at_most=1.02, during=during)


def tcp(stage: Stage, theory: Theory, seconds: float, algorithm: str, *, stable: bool = False) -> None:
    """One TCP flow over the multipath; goodput as the application sees it."""
    what = f"TCP {algorithm} over the multipath" + (f", {seconds:.0f} s" if stable else "")
    if not has_congestion_control(algorithm):
        stage.skip(what, f"this kernel has no TCP congestion control {algorithm}")
        return
    stage.view.phase(what)
    result, during = timed_tcp(stage, seconds, algorithm)
    whole_mbps, least = theory.multipath_mbps, TCP_AT_LEAST
    check = Check(what, whole_mbps, result.mbps, at_least=least, at_most=1.0, during=during, adapts=True)
    stage.check_tcp(check, udp_beside(stage, what, theory.allocated_mbps))
    if stable:
        windows = ten_second_means(result.per_second_mbps)
        worst_mbps = min(windows, default=0.0)
        stage.check("  its worst ten seconds", whole_mbps, worst_mbps, at_least=0.8, during=during, adapts=True)


def udp_beside(stage: Stage, what: str, allocated_mbps: float) -> Callable[[], Check]:
    """Measures UDP in place of TCP over the multipath of the first flow, when it is called."""
    offered_mbps, seconds = allocated_mbps * PLAIN_OVERLOAD, max(LEAST_UDP_S, stage.options.seconds)
    return lambda: udp_check(stage, f"{what}, UDP", allocated_mbps, offered_mbps, seconds)


def ten_second_means(per_second_mbps: tuple[float, ...]) -> list[float]:
    """Means over consecutive windows of ten seconds (of all of it, if it is shorter)."""
    size = max(1, min(10, len(per_second_mbps)))
    starts = range(0, len(per_second_mbps) - size + 1, size)
    return [sum(per_second_mbps[start : start + size]) / size for start in starts]
