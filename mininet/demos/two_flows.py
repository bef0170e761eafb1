"""Demo ``two-flows``: a second flow over the same media halves the first, which gets all back when the second ends."""

from __future__ import annotations

from hyroads.controller.core.network import Network
from hyroads.controller.files.documents import read_file
from hyroads.mininet.run_directory import find_network

from .scenario import Scenario, offered_mbps
from .verdict import Check, DemoOptions, Stage, part_of

FIRST, SECOND = "first", "second"
LONG_FACTOR = 4


def network(_how: DemoOptions) -> Network:
    """The network file of this demo."""
    return read_file(find_network("two-flows"))


def run(stage: Stage) -> None:
    """One, two, one."""
    flows = {flow.id: flow for flow in stage.declared.flows}
    alone = stage.theory.optimum([flows[FIRST]]).rates_mbps
    both = stage.theory.optimum(list(flows.values())).rates_mbps
    hold_s = stage.options.seconds * (LONG_FACTOR if stage.options.long else 1)
    with Scenario(stage, list(flows.values())) as scene:
        stage.view.phase("one flow alone")
        scene.begin_phase("one flow", scene.start_flow(FIRST, offered_mbps(alone[FIRST])), alone)
        stage.pause(hold_s)
        stage.view.phase("a second flow starts")
        scene.begin_phase("two flows", scene.start_flow(SECOND, offered_mbps(alone[FIRST])), both)
        stage.pause(hold_s)
        stage.view.phase("the second flow stops")
        scene.begin_phase("one flow again", scene.stop_flow(SECOND), alone)
        stage.pause(hold_s)
    for phase in range(3):
        scene.judge(phase)
    first, second = (scene.mean_in(1, flow) for flow in (FIRST, SECOND))
    stage.add(
        Check("two flows: first beside second", 1.0, part_of(first, second), "ratio", at_least=0.95, at_most=1.05)
    )
    scene.write()
