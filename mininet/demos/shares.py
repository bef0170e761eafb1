"""Demo ``shares``: a slice keeps to its share of airtime while another wants it, and takes all that is idle.

Both flows are just as greedy. Research's slice has a share of a quarter; production's flow falls silent, without being
removed, and sends again.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from .checks import part_of
from .scenario import Scenario, offered_mbps
from .verdict import Stage

PRODUCTION, RESEARCH = "production", "research"
SHARE = 0.25
SETTINGS: dict[str, object] = {"slices": {RESEARCH: {"wifi": SHARE}}}
# That a flow sends less than it may is believed after half a second, and what it sent lately is kept for another.
SETTLE_S = 2.0


def run(stage: Stage) -> None:
    """Both, research alone, both."""
    flows = {flow.id: flow for flow in stage.declared.flows}
    most = stage.theory.optimum([flows[RESEARCH]]).rates_mbps[RESEARCH]
    both = {PRODUCTION: (1 - SHARE) * most, RESEARCH: SHARE * most}
    with Scenario(stage, list(flows.values())) as scene:
        stage.view.phase("two slices that both want all")
        scene.start_flow(PRODUCTION, offered_mbps(most))
        scene.begin_phase("both", scene.start_flow(RESEARCH, offered_mbps(most)), both)
        stage.pause(stage.hold_s)
        held, send = airtime(stage), partial(scene.load.set_rate, PRODUCTION)
        scene.play("production is silent", "research alone", {RESEARCH: most}, partial(send, 0.0))
        free = airtime(stage)
        scene.play("production sends again", "both again", both, partial(send, offered_mbps(most)))
    for phase in range(3):
        scene.judge(phase, SETTLE_S)
    for phase in (0, 2):
        mine, others = (scene.mean_in(phase, flow, SETTLE_S) for flow in (RESEARCH, PRODUCTION))
        words = f"{scene.span(phase)[0]}: research's part of what was delivered"
        stage.check(words, SHARE, part_of(mine, mine + others), "ratio", at_least=0.95, at_most=1.05)
    available = 1 - stage.emulation.margin()
    stage.check("both: airtime of research as told by REST", SHARE * available, held["airtime"], "ratio", 0.95, 1.05)
    measured = held["measured_airtime"] or 0.0
    stage.check("both: airtime of research as measured", SHARE * available, measured, "ratio", 0.85, 1.1)
    stage.check("both: research is held back, alone it is not", 1.0, held["held"] - free["held"], "", 1.0, 1.0)
    scene.write()


def airtime(stage: Stage) -> dict[str, Any]:
    """What the controller says of research's airtime."""
    slices = stage.emulation.rest.get("/measurements")["slices"]
    return next(each for each in slices if (each["slice"], each["technology"]) == (RESEARCH, "wifi"))
