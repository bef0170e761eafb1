"""What agents read from ports: checked, in the state, in plans and events, and which ports are too small."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from hyroads.controller.agents.protocol import ProtocolError, parse_line, parse_ports
from hyroads.controller.control.live import Live
from hyroads.controller.control.loop import LiveLoop
from hyroads.controller.control.reports import ReportRegistry
from hyroads.controller.control.source import ConfiguredSource
from hyroads.controller.core.addressing import Numbers
from hyroads.controller.core.frame_sizes import LEAST_MTU, LINK_MTU, NEEDED_MTU
from hyroads.controller.core.netfile import load_text
from hyroads.controller.core.port_readings import PortReading, SmallPort, small_ports
from hyroads.controller.model.events import changes
from hyroads.controller.model.plan import Options
from hyroads.controller.model.state import DeclaredFlow, Origin, State, TopologyContext, initial, ports_read

BOXES = """
nodes: {gw: {role: gateway}, up: {role: ap}, attic: {role: ap}, tv: {role: client}}
links:
  - {id: gu-plc, from: gw, to: up, technology: plc, capacity_mbps: 10, both: true}
  - {id: gu-wifi, from: gw, to: up, technology: wifi, capacity_mbps: 15, both: true}
  - {id: ua-wifi, from: up, to: attic, technology: wifi, capacity_mbps: 30, both: true}
  - {id: at-air, from: attic, to: tv, technology: air, capacity_mbps: 30, both: true}
interference: {rule: technology}
flows: [{id: web, from: gw, to: attic}]
"""
MAC = "02:00:00:00:00:01"


@pytest.fixture
def context() -> TopologyContext:
    return TopologyContext.of(load_text(BOXES, "boxes"))


def port(name: str, mtu: int = 1500) -> PortReading:
    return PortReading(name, mtu, MAC)


def started(context: TopologyContext) -> State:
    return initial(context, [DeclaredFlow(flow, Origin.FILE) for flow in context.network.flows])


def test_message_is_read_and_bad_ones_are_refused() -> None:
    good = {"name": "gw-plc", "mtu": 1500, "mac": MAC}

    def parsed(*ports: object) -> tuple[PortReading, ...]:
        return parse_ports(parse_line(json.dumps({"type": "ports", "ports": ports}).encode()))

    assert parsed(good) == (port("gw-plc"),)
    bad = [{"mtu": 67}, {"mtu": 65_536}, {"mtu": True}, {"mac": "x"}, {"mac": None}, {"name": "n" * 16}, {"name": 7}]
    for other in bad:
        with pytest.raises(ProtocolError):
            parsed({**good, **other})
    for document in ([good] * 257, [7]):
        with pytest.raises(ProtocolError):
            parsed(*document)


def test_smallest_port_at_a_link_between_switches_bounds_all_links(context: TopologyContext) -> None:
    state = started(context)
    assert state.link_mtu(context) == LINK_MTU
    state = ports_read(state, context, "gw", [port("gw-plc"), port("gw-wifi", 2304), port("eth7", 100)])
    assert state.link_mtu(context) == 1500
    # Frames of plain clients have no labels in front.
    state = ports_read(state, context, "attic", [port("attic-air", 1400), port("attic-wifi", 2304)])
    assert state.link_mtu(context) == 1500
    state = ports_read(state, context, "up", [port("up-wifi", 1400)])
    assert state.link_mtu(context) == 1400
    # It comes back as it was, perhaps.
    assert ports_read(state, context, "up", []) is state
    assert ports_read(state, context, "up", [port("up-wifi", 1600)]).link_mtu(context) == 1500
    assert state.link_mtu(replace(context, link_mtu=1300)) == 1300


def test_small_ports_are_named_and_told_as_events(context: TopologyContext) -> None:
    before = started(context)
    small = ports_read(before, context, "gw", [port("gw-plc"), port("gw-wifi", NEEDED_MTU)])
    too_small = ports_read(small, context, "gw", [port("gw-plc", LEAST_MTU - 1)])
    large = ports_read(too_small, context, "gw", [port("gw-plc", NEEDED_MTU)])
    assert list(small_ports(small.readings)) == [SmallPort("gw", "gw-plc", 1500)]
    found = [list(changes(a, b)) for a, b in ((before, small), (small, too_small), (too_small, large))]
    assert [[kind for kind, _ in some] for some in found] == [["port.small"], ["port.small"], ["port.large"]]
    document = found[0][0][1]
    assert document == {
        "node": "gw", "port": "gw-plc", "mtu_bytes": 1500, "needed_bytes": NEEDED_MTU, "packet_bytes": 1482,
        "too_small": False,
    }  # fmt: skip
    assert found[1][0][1]["too_small"]
    assert not list(small_ports(large.readings))


def test_agents_and_switches_follow_the_mtu_and_everything_comes_back(context: TopologyContext) -> None:
    live = Live(context, Numbers(), Options(), LiveLoop(context.network, ConfiguredSource(context.network)))
    reports, state = ReportRegistry(lambda: 0.0), started(context)

    def planned(state: State) -> tuple[set[int], set[int], set[int | None]]:
        """MTU of agents, of paths; bytes of frames at switches."""
        plan = live.replan(state, reports, 0.0)
        media = {config.media.mtu for config in plan.agents.values() if config.media is not None}
        entries = plan.agents["gw"].ingress.values()
        paths = {path.mtu for entry in entries for path in entry.paths}
        return media, paths, {intent.most_frame_bytes for intent in live.network.intents.values()}

    assert planned(state) == ({LINK_MTU}, {LINK_MTU}, {None})
    revisions = {node: config.revision for node, config in live.in_force.agents.items()}
    ports = live.in_force.agents["up"].media
    assert ports is not None and sorted(ports.ports) == ["up-plc", "up-wifi"]
    small = ports_read(state, context, "up", [port("up-plc")])
    assert planned(small) == ({1500}, {1500}, {1496})
    assert all(config.revision != revisions[node] for node, config in live.in_force.agents.items())
    assert planned(ports_read(small, context, "up", [port("up-plc", 2304)])) == ({LINK_MTU}, {LINK_MTU}, {None})
    assert {node: config.revision for node, config in live.in_force.agents.items()} == revisions
