"""Rules of switches and configurations of agents contain the addresses that boxes report, and change with them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from answering_loop import NODES, AnsweringLoop

from hyroads.controller.agents.frame_keys import FrameKeys
from hyroads.controller.core.port_readings import PortReading

FACTORY, OTHER = "b8:27:eb:41:c0:a1", "b8:27:eb:41:c0:ff"


@pytest.fixture
def loop(tmp_path_factory: pytest.TempPathFactory) -> AnsweringLoop:
    return AnsweringLoop(tmp_path_factory.mktemp("loop"))


def contain(loop: AnsweringLoop, mac: str) -> set[str]:
    """Devices whose rules or expected hello frames contain an address."""
    raw = bytes.fromhex(mac.replace(":", ""))
    found = {f"switch {node}" for node, s in loop.switches.items() if any(raw in entry for entry in s.rules.values())}
    hellos = {node: json.dumps(agent.config.get("hello")) for node, agent in loop.agents.items()}
    return found | {f"agent {node}" for node, hello in hellos.items() if mac in hello}


def agent_reports(loop: AnsweringLoop, node: str, **ports: str) -> None:
    session = loop.agents[node].session
    assert session is not None
    readings = [PortReading(name.replace("_", "-"), 1600, mac) for name, mac in ports.items()]
    loop.loop.agent_ports(session, readings)
    loop.settle()


def test_rules_and_hello_frames_follow_an_address_that_an_agent_reports(loop: AnsweringLoop) -> None:
    name = loop.context.addressing.interface_mac["b", "ethernet"]
    near = contain(loop, name)
    assert near == {"switch a", "switch b", "agent a"}
    for mac, before in ((FACTORY, name), (OTHER, FACTORY)):
        rules = {node: dict(switch.rules) for node, switch in loop.switches.items()}
        sent = {node: session.counters.flow_mods for node, session in loop.loop.switches.items()}
        revisions = {node: agent.revision for node, agent in loop.agents.items()}
        agent_reports(loop, "b", b_ethernet=mac)
        assert contain(loop, mac) == near
        assert contain(loop, before) == set()
        for node in "cd":
            assert loop.loop.switches[node].counters.flow_mods == sent[node]
        assert {node for node, agent in loop.agents.items() if agent.revision != revisions[node]} <= {"a", "b"}
        # Only rules with the address are sent; most of a switch's rules have none of that interface.
        kept = rules["a"].items() & loop.switches["a"].rules.items()
        assert loop.loop.switches["a"].counters.flow_mods - sent["a"] <= 2 * (len(rules["a"]) - len(kept))
        assert loop.ask("GET", "/health")[1]["ok"]


def test_a_switch_reports_the_addresses_of_its_ports_when_it_connects(loop: AnsweringLoop) -> None:
    loop.macs["d"] = {"d-ethernet": FACTORY, "d-host": OTHER, "d-wifi2": "00:00:00:00:00:00"}
    loop.leave(["switch d"])
    loop.come(["switch d"])
    loop.settle()
    assert contain(loop, FACTORY) == {"switch a", "switch d", "agent a"}
    assert contain(loop, OTHER) == set()
    assert contain(loop, loop.context.addressing.interface_mac["d", "wifi2"]) >= {"switch d"}


def test_one_address_of_two_boxes_is_one_fault_in_health(loop: AnsweringLoop) -> None:
    agent_reports(loop, "b", b_ethernet=FACTORY)
    agent_reports(loop, "d", d_ethernet=FACTORY)
    health = loop.ask("GET", "/health")[1]
    assert not health["ok"]
    holders = [{"node": node, "technology": "ethernet"} for node in "bd"]
    assert health["shared_addresses"] == [{"mac": FACTORY, "holders": holders}]
    agent_reports(loop, "d", d_ethernet=OTHER)
    health = loop.ask("GET", "/health")[1]
    assert health["ok"] and health["shared_addresses"] == []


def test_sealed_hello_frames_carry_reported_addresses(loop: AnsweringLoop) -> None:
    keys = loop.loop.keys
    keys.use("5e" * 32)
    for agent in loop.agents.values():
        assert agent.session is not None
        keys.heard(replace(agent.session.hello, seals=True))
    plan = loop.loop.plan
    assert plan is not None
    before = {node: keys.revision(node, plan.agents[node]) for node in NODES if node in plan.agents}
    agent_reports(loop, "b", b_ethernet=FACTORY)
    after = {node: keys.revision(node, plan.agents[node]) for node in before}
    assert {node for node in before if after[node] != before[node]} == {"a", "b"}
    # Another controller with the same reports gives the same revisions.
    other = FrameKeys(loop.context.addressing.interface_mac, keys._wall_s)
    other.use("5e" * 32)
    other.use_addresses(loop.loop.addresses.now, NODES)
    for agent in loop.agents.values():
        assert agent.session is not None
        other.heard(replace(agent.session.hello, seals=True))
    assert {node: other.revision(node, plan.agents[node]) for node in before} == after
