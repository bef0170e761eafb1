"""Plans as the controller makes them, without its events: the network file's capacities, nothing measured."""

from __future__ import annotations

from hyroads.controller.control.live import Live
from hyroads.controller.control.loop import LiveLoop, LoopOptions
from hyroads.controller.control.reports import ReportRegistry
from hyroads.controller.control.source import ConfiguredSource
from hyroads.controller.core.addressing import Numbers
from hyroads.controller.model.plan import Options, Plan
from hyroads.controller.model.state import State, TopologyContext

NO_REPORTS = ReportRegistry(lambda: 0.0)


def live_of(context: TopologyContext, numbers: Numbers | None = None, margin: float = 0.05) -> Live:
    loop = LiveLoop(context.network, ConfiguredSource(context.network), LoopOptions(margin))
    return Live(context, numbers or Numbers(), Options(), loop)


def planned(context: TopologyContext, state: State, numbers: Numbers | None = None, margin: float = 0.05) -> Plan:
    return live_of(context, numbers, margin).replan(state, NO_REPORTS, 0.0)
