"""Demo ``reservation``: a flow keeps what it was promised when another starts; nobody is promised what is not there.

The network is that of ``two-flows``. The first flow reserves most of what it gets alone; the second, just as greedy,
has to do with the rest, and may not reserve more than that. Without the reservation both get half.
"""

from __future__ import annotations

from functools import partial

from hyroads.rest.client import ApiError

from .scenario import Scenario, offered_mbps
from .two_flows import FIRST, SECOND
from .verdict import Stage

NETWORK = "two-flows"
SHARE = 0.8
TOO_MUCH = 0.5


def run(stage: Stage) -> None:
    """One with a reservation, two, two without."""
    flows = {flow.id: flow for flow in stage.declared.flows}
    alone = stage.theory.optimum([flows[FIRST]]).rates_mbps
    both = stage.theory.optimum(list(flows.values())).rates_mbps
    promised = SHARE * alone[FIRST]
    with Scenario(stage, list(flows.values())) as scene:
        stage.view.phase("one flow, which reserves most of what it gets")
        scene.begin_phase("one flow", scene.start_flow(FIRST, offered_mbps(alone[FIRST])), alone)
        reserve(stage, "mine", FIRST, promised)
        stage.pause(stage.hold_s)
        expected_mbps = {FIRST: promised, SECOND: alone[FIRST] - promised}
        begin = partial(scene.start_flow, SECOND, offered_mbps(alone[FIRST]))
        scene.play("a second flow starts", "two flows", expected_mbps, begin)
        refused(stage, TOO_MUCH * alone[FIRST], expected_mbps[SECOND])
        stage.view.phase("the reservation is released")
        began_s = scene.load.set_rate(SECOND, offered_mbps(alone[FIRST]))
        stage.emulation.rest.request("DELETE", "/reservations/mine")
        scene.begin_phase("without reservation", began_s, both)
        stage.pause(stage.hold_s)
    for phase in range(3):
        scene.judge(phase)
    scene.write()


def reserve(stage: Stage, name: str, flow: str, mbps: float) -> None:
    """Asks for a least rate; ApiError if it is refused."""
    stage.emulation.rest.request("POST", "/reservations", {"id": name, "flow": flow, "rate_mbps": mbps})


def refused(stage: Stage, mbps: float, possible_mbps: float) -> None:
    """Whether more than there is is refused, for the right reason."""
    try:
        reserve(stage, "more", SECOND, mbps)
        missing_mbps = 0.0
    except ApiError as error:
        missing_mbps = float(error.problem.get("missing_mbps", 0.0))
    words = f"two flows: missing of {mbps:.1f} Mb/s that the second asks for"
    stage.check(words, mbps - possible_mbps, missing_mbps, at_least=0.98, at_most=1.02)
