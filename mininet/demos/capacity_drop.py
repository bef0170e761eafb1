"""Demo ``capacity-drop``: a power line loses three quarters of its capacity, and nobody tells the controller.

First a flow with the model-based policy: its rates follow the capacities of the network file, so it goes on sending
what the power line no longer carries. Then, the line restored, the same flow with HyMAB: it knows only busy times, sees
that too little arrives, probes, and moves to a better multipath.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hyroads.controller.control.arm_airtime import arm_rows, modelled_airtime
from hyroads.controller.core.network import FlowSpec, Network, Policy
from hyroads.controller.files.documents import read_file
from hyroads.mininet.control_sockets import MediumClient
from hyroads.mininet.programs import EmulationError
from hyroads.mininet.run_directory import find_network

from .checks import DemoOptions, part_of
from .scenario import Scenario, offered_mbps
from .verdict import Stage

MODEL, BANDIT = "empower", "hymab"
LINK, LEFT = "ab-plc", 0.25
BETTER_WITHIN_S = 15.0
# How long HyMAB learns before the drop, in phases, and what counts of it: the mean of the last. After the drop, to see
# the new multipath at work.
LEARNING_PHASES, LEARNED_PHASES = 6, 3
AFTER_S = 20.0
SAMPLE_S = 0.25
# What must be carried: probes of the first seconds cost much, later ones little.
LEAST_MODEL, LEAST_LEARNING, LEAST_AFTER = 0.95, 0.8, 0.8
GAIN = 1.2

Arm = tuple[tuple[str, ...], ...]


def network(_how: DemoOptions) -> Network:
    """The network file of this demo; the same flow with two policies, one after the other."""
    found = read_file(find_network("diamond"))
    (flow,) = found.flows
    flows = (replace(flow, id=MODEL, policy=Policy.THROUGHPUT), replace(flow, id=BANDIT, policy=Policy.HYMAB))
    return replace(found, flows=flows)


def run(stage: Stage) -> None:
    """Model: before, after; HyMAB: learning, after."""
    model, bandit = stage.declared.flows
    hold_s = stage.hold_s
    whole = {name: stage.declared.links[stage.declared.link_index[name]].capacity_mbps for name in (LINK, f"{LINK}~")}
    lost = {name: LEFT * mbps for name, mbps in whole.items()}
    best = stage.theory.optimum([model]).rates_mbps[MODEL]
    left = stage.theory.with_capacities(lost).optimum([model]).rates_mbps[MODEL]
    with Scenario(stage, [model, bandit]) as scene:
        begin(scene, model, best, "model: all of the power line")
        stage.pause(hold_s)
        drop(scene, MODEL, lost, left, "model: a quarter is left")
        stage.pause(hold_s)
        scene.stop_flow(MODEL)
        set_capacities(stage, whole)
        begin(scene, bandit, best, "HyMAB: all of the power line")
        stage.pause(hold_s * LEARNING_PHASES)
        before = arm_in_use(stage)
        dropped_s = drop(scene, BANDIT, lost, left, "HyMAB: a quarter is left")
        arms = watch(stage, max(AFTER_S, 2 * hold_s))
    judge(stage, scene, hold_s)
    judge_move(stage, before, [(at_s - dropped_s, arm) for at_s, arm in arms], lost)
    scene.write()


def begin(scene: Scenario, flow: FlowSpec, best_mbps: float, title: str) -> None:
    """Traffic and flow at once."""
    scene.stage.view.phase(title)
    began_s = scene.load.set_rate(flow.id, offered_mbps(best_mbps))
    scene.stage.declare(flow, policy=flow.policy.value)
    scene.begin_phase(title, began_s, {flow.id: best_mbps})


def drop(scene: Scenario, flow: str, lost: Mapping[str, float], left_mbps: float, title: str) -> float:
    """The capacity goes; returns when."""
    scene.stage.view.phase(title)
    set_capacities(scene.stage, lost)
    dropped_s = time.monotonic()
    scene.begin_phase(title, dropped_s, {flow: left_mbps})
    return dropped_s


def set_capacities(stage: Stage, capacity_mbps: Mapping[str, float]) -> None:
    """Changes the medium; the controller is not told."""
    with MediumClient(stage.emulation.shared.socket) as medium:
        for link, mbps in capacity_mbps.items():
            medium.set_link(link, capacity_mbps=mbps)


def arm_in_use(stage: Stage) -> Arm:
    """The multipath that the bandit sends on."""
    known = stage.emulation.rest.flow(BANDIT)["bandit"]
    if known is None or known["arm"] is None:
        raise EmulationError(f"flow {BANDIT} has no multipath: an agent or a link of its paths is lost")
    return tuple(tuple(path) for path in known["arms"][known["arm"]]["paths"])


def watch(stage: Stage, seconds: float) -> list[tuple[float, Arm]]:
    """The multipaths in use over a time, with the moments."""
    found, until_s = [], time.monotonic() + seconds
    while time.monotonic() < until_s:
        stage.pause(SAMPLE_S)
        found.append((time.monotonic(), arm_in_use(stage)))
    return found


def worth_mbps(stage: Stage, arm: Arm, capacity_mbps: Mapping[str, float]) -> float:
    """The optimum of a multipath with these capacities."""
    changed = stage.declared.with_capacities(capacity_mbps)
    return sum(modelled_airtime(arm_rows(changed, arm), changed).rates_mbps({}))


def judge(stage: Stage, scene: Scenario, hold_s: float) -> None:
    """What both carried, beside the optimum over all multipaths."""
    settle_s = {0: 1.0, 1: 1.0, 2: hold_s * (LEARNING_PHASES - LEARNED_PHASES), 3: BETTER_WITHIN_S}
    carried = []
    for number, phase in enumerate(scene.phases):
        ((flow, best_mbps),) = phase.targets.items()
        carried.append(scene.mean_in(number, flow, settle_s[number]))
        least = (LEAST_MODEL, None, LEAST_LEARNING, LEAST_AFTER)[number]
        during = scene.moments(number, settle_s[number])
        what = f"{phase.title}: carried"
        learns = flow == BANDIT
        stage.check(what, best_mbps, carried[-1], at_least=least, at_most=1.02, during=during, adapts=learns)
    stage.check("after the drop: HyMAB beside the model", GAIN, part_of(carried[3], carried[1]), "times", at_least=1.0)


def judge_move(stage: Stage, before: Arm, after: Sequence[tuple[float, Arm]], lost: Mapping[str, float]) -> None:
    """How soon a better multipath was in use for good."""
    worth = {arm: worth_mbps(stage, arm, lost) for arm in {arm for _, arm in after} | {before}}
    worse = [after_s for after_s, arm in after if worth[arm] <= worth[before] * 1.01]
    words = "after the drop: a better multipath is in use"
    stage.check(words, BETTER_WITHIN_S, max(worse, default=0.0) + SAMPLE_S, "s", at_most=1.0)
    best_mbps = max(worth.values())
    stage.check("  what it can carry, beside the best", best_mbps, worth[after[-1][1]], at_least=0.95)
