"""Demo ``competing``: a hybrid flow makes room for a flow that has WiFi only, and comes back when that has gone.

Gateway a and extender b have PLC and WiFi, c has WiFi only. The hybrid flow a -> b uses both technologies; while the
one-hop WiFi flow c -> b runs, proportional fairness gives WiFi to it alone, because a -> b has a power line of its own.
"""

from __future__ import annotations

from functools import partial

from .scenario import Scenario, offered_mbps
from .verdict import Stage

HYBRID, COMPETING = "hybrid", "competing"
LEFT = 0.03


def run(stage: Stage) -> None:
    """Alone, together, alone."""
    flows = {flow.id: flow for flow in stage.declared.flows}
    alone = stage.theory.optimum([flows[HYBRID]]).rates_mbps
    together = stage.theory.optimum(list(flows.values())).rates_mbps
    with Scenario(stage, list(flows.values())) as scene:
        begin = partial(scene.start_flow, HYBRID, offered_mbps(alone[HYBRID]))
        scene.play("the hybrid flow alone", "alone", alone, begin)
        begin = partial(scene.start_flow, COMPETING, offered_mbps(together[COMPETING]))
        scene.play("a one-hop WiFi flow starts", "competing", together, begin)
        scene.play("the WiFi flow stops", "alone again", alone, partial(scene.stop_flow, COMPETING))
    for phase in range(3):
        scene.judge(phase)
    wifi_share(stage, scene)
    scene.write()


def wifi_share(stage: Stage, scene: Scenario) -> None:
    """Whether the hybrid flow left WiFi while the other ran, and had its share of it before and after."""
    for number, phase in enumerate(scene.phases):
        measured = scene.share_in(number, HYBRID, "wifi")
        words = f"{phase.title}: share of the hybrid flow that takes WiFi"
        planned = stage.theory.optimum([scene.flows[flow] for flow in phase.targets]).technology_share(HYBRID, "wifi")
        if planned > LEFT:
            stage.check(words, planned, measured, "", at_least=0.9, at_most=1.1)
        else:
            stage.check(words, LEFT, measured, "", at_most=1.0)
