"""Demo ``hercules``: one address over any interfaces, through a waypoint (Yap, "Using all networks around us",
Stanford 2013, chapter 2).

A running upload goes from a slow network to a fast one and back, each interface dies once under it, eight more are
plugged in one by one, an interface dies with a full queue above it, and an urgent packet waits behind fifty full ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from hyroads.mininet.client_stack import ClientStack, Uplink
from hyroads.mininet.stack_scenes import (
    GOODPUT,
    PACKET_BITS,
    deaths,
    lost_at_death,
    migrations,
    urgent_delays_s,
    urgent_rules,
)
from hyroads.mininet.stack_traffic import Transfer

from .checks import DemoOptions
from .stack_stage import StackStage, run_stack_demo

# 40 ms there and back, and next to nothing, as WiMAX and WiFi.
NETWORKS = [Uplink(15, delay_ms=20), Uplink(20)]
MORE_MBPS = (7, 6, 5, 5, 4, 3, 3, 2)
DYING = [Uplink(5, delay_ms=50), Uplink(10)]
RTT_MS = 100.0
URGENT_MBPS = 10.0
MOVES, DEATHS, URGENT = 2, 2, 10
# Of the goodput of all ten interfaces; a healthy client has 0.97.
ALL_TEN = 0.93
GAP_MS, ORDER_MS, OUTAGE_GAP_MS = 60.0, 5.0, 200.0


def run_alone(how: DemoOptions, name: str, say: Callable[[str], None]) -> int:
    """Runs the demo, prints the verdict, returns the exit status."""
    return run_stack_demo(_run, ("hercules", name), how, NETWORKS, say)


def _run(stage: StackStage) -> None:
    with stage.stack(NETWORKS) as stack:
        stack.configure()
        stack.wait_alive()
        _migrate(stage, stack)
        _outages(stage, stack)
        _ten_interfaces(stage, stack)
    with stage.stack(DYING) as stack:
        stack.configure()
        stack.wait_alive()
        _deaths(stage, stack)
        _urgent(stage, stack)


def _migrate(stage: StackStage, stack: ClientStack) -> None:
    stage.view.phase("an upload goes from 15 Mb/s and 40 ms to 20 Mb/s, and back")
    found = migrations(stack, "server", MOVES, max(1.0, stage.hold_s / 4), stage.ticking(stack))
    stage.check("migrations: bytes lost, doubled or changed", 0, abs(found.missing_bytes) + (not found.exact), "", 1, 1)
    gap_ms, order_ms = (1e3 * max(getattr(move, name) for move in found.moves) for name in ("gap_s", "order_s"))
    stage.check("migrations: longest pause", GAP_MS, gap_ms, "ms", at_most=1.0)
    stage.check("migrations: from the order to the last packet", ORDER_MS, order_ms, "ms", at_most=1.0)
    stage.check("migrations: goodput beside none", 1.0, found.goodput_ratio, "ratio", at_least=0.98)


def _outages(stage: StackStage, stack: ClientStack) -> None:
    tick = stage.ticking(stack)
    with Transfer(stack) as transfer:
        tick(1.0)
        began_s = time.monotonic()
        for number in (0, 1):
            stage.view.phase(f"if{number} is off")
            stack.set_carrier(number, up=False)
            tick(max(1.0, stage.hold_s / 4))
            stack.set_carrier(number, up=True)
            stack.wait_alive()
        gap_ms = 1e3 * transfer.longest_gap_s(began_s, time.monotonic())
        transfer.finish()
    stage.check("each interface off: bytes lost or changed", 0, float(not transfer.exact), "", 1, 1)
    stage.check("each interface off: longest pause", OUTAGE_GAP_MS, gap_ms, "ms", at_most=1.0)


def _ten_interfaces(stage: StackStage, stack: ClientStack) -> None:
    stage.view.phase("eight more interfaces are plugged in, one by one")
    tick = stage.ticking(stack)

    def use_all() -> None:
        stack.configure([{"name": "all", "interfaces": stack.names, "via": "waypoint", "spread": "packet"}])

    use_all()
    with Transfer(stack) as transfer:
        for mbps in MORE_MBPS:
            tick(0.3)
            stack.plug(Uplink(mbps))
            use_all()
        stack.wait_alive()
        tick(2.5)
        from_s = time.monotonic()
        tick(max(2.0, stage.hold_s / 3))
        during = from_s, time.monotonic()
        measured = transfer.mbps(*during)
        transfer.finish()
    rates = [uplink.rate_mbps or 0.0 for uplink in stack.uplinks]
    stage.check(
        "ten interfaces: one connection", GOODPUT * sum(rates), measured, "Mb/s", ALL_TEN, None, during, adapts=True
    )
    stage.check("ten interfaces: times the fastest", 3.0, measured / (GOODPUT * max(rates)), "", at_least=1.0)
    stage.check("ten interfaces: bytes lost or changed", 0, float(not transfer.exact), "", 1, 1)


def _deaths(stage: StackStage, stack: ClientStack) -> None:
    stage.view.phase("an interface of 5 Mb/s and 100 ms dies under an upload")
    tick = stage.ticking(stack)
    found = deaths(stack, DEATHS, tick)
    stage.check("interface dies: segments lost at the sender", 0, max(death.lost for death in found), "", 1, 1)
    stage.check("interface dies: longest pause", RTT_MS, 1e3 * max(death.gap_s for death in found), "ms", at_most=1.0)
    stage.check("interface dies: packets lost of a stream", 0, lost_at_death(stack, 4.0, tick), "", 1, 1)


def _urgent(stage: StackStage, stack: ClientStack) -> None:
    stage.view.phase("an urgent packet behind 50 full ones at 10 Mb/s")
    stack.configure(urgent_rules("if1"))
    stack.wait_alive()
    packet_ms = PACKET_BITS / URGENT_MBPS / 1e3
    delays_ms = [1e3 * delay_s for delay_s in urgent_delays_s(stack, URGENT)]
    stage.check("urgent packet: waits (median)", 3 * packet_ms, median(delays_ms), "ms", at_most=1.0)
