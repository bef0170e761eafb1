"""Networks on which flows learn: the controller plans with wrong capacities, the media have the true ones."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from hyroads.controller.control.arm_airtime import arm_rows, modelled_airtime
from hyroads.controller.core.interface_graph import link_ids
from hyroads.controller.core.network import Network
from hyroads.controller.core.planner import Planner
from hyroads.mininet.control_sockets import MediumClient
from hyroads.mininet.emulation import Emulation, EmulationOptions
from hyroads.mininet.programs import wait_until

from .floor import DEPTH, SECOND, Floor, Pair, part_of
from .measuring import FLOW, MARGIN

ARMS = 5
PLANNER_NOISE, BUSY_NOISE = 0.2, 0.2
"""Relative standard deviations: of the capacities that the controller plans with, and of busy times each second."""
_BANDIT_WITHIN_S = 15.0

Arm = tuple[tuple[str, ...], ...]
Truth = Mapping[str, float]
"""Link -> its capacity, Mb/s."""


def learning_trial(floor: Floor, pair: Pair) -> tuple[Network, Truth, EmulationOptions]:
    """The part of the floor that a pair's multipaths use, as the controller knows it; the true capacities, which
    :func:`set_medium` puts in force; and the options for a network on which flows learn.
    """
    believed = believed_floor(floor)
    plan = Planner(believed).plan(*pair, depth=DEPTH, arms=ARMS)
    network = part_of(believed, [link_ids(believed, path) for arm in plan.arms for path in arm.links])
    of_floor = floor.network.link_index
    truth = {link.id: floor.network.links[of_floor[link.id]].capacity_mbps for link in network.links}
    errors = {"busy_noise": BUSY_NOISE, "noise": 0.0, "hold_s": 1.0}
    return network, truth, EmulationOptions(settings={"margin": MARGIN}, radios=True, errors=errors)


def believed_floor(floor: Floor) -> Network:
    """The floor as the controller knows it: without the second channel, each capacity with an error of its own."""
    network = part_of(floor.network, [(link.id,) for link in floor.network.links], frozenset({SECOND}))
    rng = random.Random(f"{floor.seed}/believed")  # noqa: S311 - simulation
    errors = {link.id: max(0.3, 1.0 + rng.gauss(0.0, PLANNER_NOISE)) for link in network.links}
    return network.with_capacities({link.id: link.capacity_mbps * errors[link.id] for link in network.links})


def optimum_mbps(network: Network, arm: Sequence[Sequence[str]], truth: Truth) -> float:
    """What a multipath carries at most with these capacities and all airtime, Mb/s of L2 payload."""
    true = network.with_capacities(dict(truth))
    rows = arm_rows(true, tuple(tuple(path) for path in arm))
    return float(sum(modelled_airtime(rows, true).rates_mbps({})))


def set_medium(emulation: Emulation, capacities: Truth) -> None:
    """The true capacities from now on; links without any are down."""
    with MediumClient(emulation.shared.socket) as medium:
        for link, mbps in capacities.items():
            if mbps > 0:
                medium.set_link(link, capacity_mbps=mbps, up=True)
            else:
                medium.set_link(link, up=False)


def arms_of(emulation: Emulation) -> list[Arm]:
    """The flow's multipaths, the first choice of the plan first."""
    return [arm_of(arm) for arm in bandit_of(emulation)["arms"]]


def bandit_of(emulation: Emulation) -> Mapping[str, Any]:
    """What the controller tells of the flow's bandit; it has one as soon as it hears the radios."""
    found: dict[str, Any] = {}

    def told() -> bool:
        found.update(emulation.rest.flow(FLOW).get("bandit") or {})
        return bool(found.get("arms"))

    wait_until(f"bandit of flow {FLOW}", told, _BANDIT_WITHIN_S)
    return found


def arm_of(document: Mapping[str, Any]) -> Arm:
    """A multipath from the controller's document."""
    return tuple(tuple(path) for path in document["paths"])
