"""Plans as the controller makes them, without its events: the network file's capacities, nothing measured."""

from __future__ import annotations

from hyroads.controller.control.live import Live
from hyroads.controller.control.loop import LiveLoop, LoopOptions
from hyroads.controller.control.reports import ReportBook
from hyroads.controller.control.source import ConfiguredSource
from hyroads.controller.core.addressing import Numbers
from hyroads.controller.model.plan import Options, Plan
from hyroads.controller.model.state import Fabric, State

NO_REPORTS = ReportBook(lambda: 0.0)


def live_of(fabric: Fabric, numbers: Numbers | None = None, margin: float = 0.05) -> Live:
    loop = LiveLoop(fabric.network, ConfiguredSource(fabric.network), LoopOptions(margin))
    return Live(fabric, numbers or Numbers(), Options(), loop)


def planned(fabric: Fabric, state: State, numbers: Numbers | None = None, margin: float = 0.05) -> Plan:
    return live_of(fabric, numbers, margin).replan(state, NO_REPORTS, 0.0)
