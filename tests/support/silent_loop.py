"""An event loop on the triangle, whose time is the test's, with agents and switches that confirm nothing."""

from __future__ import annotations

from pathlib import Path

from silent_switch import SilentSwitch

from hyroads.controller.agents.protocol import Hello
from hyroads.controller.agents.sessions import Session
from hyroads.controller.core.addressing import Numbers
from hyroads.controller.files.documents import read_file
from hyroads.controller.framework.ryu_shim import Signal
from hyroads.controller.model.events import EventLog
from hyroads.controller.model.state import TopologyContext, initial
from hyroads.controller.runtime.event_loop import EventLoop
from hyroads.controller.settings.controller import Settings

TRIANGLE = Path(__file__).resolve().parents[2] / "mininet" / "networks" / "triangle.yaml"


class Socket:
    """Drops everything that is sent."""


class Rig:
    """An event loop whose time is the test's."""

    def __init__(self, settings: Settings) -> None:
        self.now_s = 100.0
        context = TopologyContext.of(read_file(TRIANGLE))
        self.event_loop = EventLoop(
            context,
            settings,
            initial(context),
            Numbers(),
            clock=lambda: self.now_s,
            events=EventLog(lambda: self.now_s, Signal()),
            save=lambda state, numbers: None,
        )
        self.agents = {node: self.agent(node) for node in ("a", "b")}
        self.switches = {node: self.switch(node, key) for key, node in enumerate(("a", "b"))}

    def agent(self, node: str) -> Session:
        session = Session(Hello(node, "x", node, None, 0), "test", Socket(), lambda: self.now_s)
        self.event_loop.agent_up(session)
        return session

    def switch(self, node: str, key: int) -> SilentSwitch:
        addressing = self.event_loop.context.addressing
        names = [name for (at, _), name in addressing.interface_name.items() if at == node]
        names += [addressing.access_port[node], addressing.agent_access_port[node], addressing.agent_network_port[node]]
        connection = SilentSwitch(addressing.dpid[node], names, key)
        self.event_loop.switch_up(connection)
        return connection

    def after(self, seconds: float) -> None:
        self.now_s += seconds
        # The part of the loop that looks at the time.
        self.event_loop._tick()

    def fault(self, link: str) -> str | None:
        state, context = self.event_loop.state, self.event_loop.context
        return state.link_fault(context, context.network.links[context.network.link_index[link]])
