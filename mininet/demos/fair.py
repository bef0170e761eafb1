"""Demo ``fair``: three flows share two interfaces by weight and preference, second by second (Yap's Figure 4.5).

Interfaces of 3 and 10 Mb/s; flow a (weight 1) accepts the first, b (weight 2) both, c (weight 1) the second. All send
more than they get; a ends, then b. Theory is the exact weighted max-min fair allocation.
"""

from __future__ import annotations

from collections.abc import Callable

from hyroads.mininet.client_stack import Uplink
from hyroads.mininet.stack_scenes import FIGURE_4_5_MBPS, fair_periods, fair_rules

from .checks import DemoOptions
from .stack_stage import StackStage, run_stack_demo

UPLINKS = [Uplink(mbps) for mbps in FIGURE_4_5_MBPS.values()]
TOLERANCE = 0.05


def run_alone(how: DemoOptions, name: str, say: Callable[[str], None]) -> int:
    """Runs the demo, prints the verdict, returns the exit status."""
    return run_stack_demo(_run, ("fair", name), how, UPLINKS, say)


def _run(stage: StackStage) -> None:
    with stage.stack(UPLINKS) as stack:
        stage.view.phase("three flows, then two, then one")
        stack.configure(fair_rules())
        stack.wait_alive()
        periods = fair_periods(stack, max(2, round(stage.hold_s)), stage.ticking(stack))
    rows = []
    for number, period in enumerate(periods):
        words = " and ".join(period.flows)
        for flow in period.flows:
            fair, seconds = period.fair_mbps[flow], period.seconds_mbps[flow]
            mean = sum(seconds) / len(seconds)
            stage.check(f"{words}: {flow}", fair, mean, "Mb/s", 1 - TOLERANCE, 1 + TOLERANCE)
            worst = max(seconds, key=lambda mbps: abs(mbps - fair))
            stage.check(f"{words}: {flow} in its worst second", fair, worst, "Mb/s", 1 - TOLERANCE, 1 + TOLERANCE)
            rows += [(number, second, flow, f"{fair:.4f}", f"{mbps:.4f}") for second, mbps in enumerate(seconds)]
    stage.write_csv("seconds.csv", ("period", "second", "flow", "fair_mbps", "measured_mbps"), rows)
