"""Demo ``two-flows``: a second flow over the same media halves the first, which gets all back when the second ends."""

from __future__ import annotations

from functools import partial

from .checks import part_of
from .scenario import Scenario, offered_mbps
from .verdict import Stage

FIRST, SECOND = "first", "second"


def run(stage: Stage) -> None:
    """One, two, one."""
    flows = {flow.id: flow for flow in stage.declared.flows}
    alone = stage.theory.optimum([flows[FIRST]]).rates_mbps
    both = stage.theory.optimum(list(flows.values())).rates_mbps
    with Scenario(stage, list(flows.values())) as scene:
        offered = offered_mbps(alone[FIRST])
        scene.play("one flow alone", "one flow", alone, partial(scene.start_flow, FIRST, offered))
        scene.play("a second flow starts", "two flows", both, partial(scene.start_flow, SECOND, offered))
        scene.play("the second flow stops", "one flow again", alone, partial(scene.stop_flow, SECOND))
    for phase in range(3):
        scene.judge(phase)
    first, second = (scene.mean_in(1, flow) for flow in (FIRST, SECOND))
    stage.check("two flows: first beside second", 1.0, part_of(first, second), "ratio", at_least=0.95, at_most=1.05)
    scene.write()
