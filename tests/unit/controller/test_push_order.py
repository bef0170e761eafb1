"""Where something else is to be planned all the time, every switch is told in turn what it waits for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from hyroads.controller.control.update_order import Orders
from hyroads.controller.runtime.deployer import TOLD_AT_LEAST, Deployer
from hyroads.controller.switches.sessions import DesiredRules

NODES = [f"n{number:03d}" for number in range(4 * TOLD_AT_LEAST)]


class Switch:
    """One whose rules are others in each plan."""

    is_read = True

    def __init__(self) -> None:
        self.told = 0

    def want(self, desired: DesiredRules) -> bool:
        self.told += 1
        return True


def test_all_are_told_in_turn_though_each_push_is_overtaken() -> None:
    switches = {node: Switch() for node in NODES}
    registry = cast(Any, SimpleNamespace(sessions=switches))
    deployer = Deployer(cast(Any, None), cast(Any, None), registry, lambda: True)
    deployer._wanted = {node: DesiredRules(cast(Any, None), {}) for node in NODES}
    orders = Orders({}, dict.fromkeys(NODES, frozenset()))
    for _ in range(8):
        # The first ones have something new each time.
        deployer._untold |= set(NODES)
        deployer._push_switches(orders)
    assert {switch.told for switch in switches.values()} == {2}
