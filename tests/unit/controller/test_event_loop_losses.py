"""What the event loop makes of connections that end: of an agent, of a switch, of both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from silent_loop import TRIANGLE, Rig

from hyroads.controller.core.network import FlowSpec
from hyroads.controller.model.state import DeclaredFlow, Origin, Presence
from hyroads.controller.runtime.event_loop import BOTH_GONE_S, SIGN_OF_LIFE_S
from hyroads.controller.runtime.garbage import Garbage
from hyroads.controller.settings.controller import load


@pytest.fixture(autouse=True)
def garbage_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that begins looks at all objects of the process, and here those are of all tests."""
    monkeypatch.setattr(Garbage, "begin", lambda self, now_s: None)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    file = tmp_path / "hyroads.yaml"
    file.write_text(f"network: {TRIANGLE}\n")
    yield Rig(load({"HYROADS_CONFIG": str(file)}))


def test_a_switch_without_connection_goes_on_for_its_grace_time(rig: Rig) -> None:
    rig.event_loop.switch_gone(rig.switches["b"])
    rig.after(rig.event_loop.settings.timings.switch_grace_s - 0.5)
    assert rig.fault("ab-plc") is None
    rig.after(1.0)
    assert rig.fault("ab-plc") == "switch lost"
    rig.switch("b", 7)
    assert rig.fault("ab-plc") is None


@pytest.mark.parametrize("first", ["agent", "switch"])
def test_a_node_without_agent_and_switch_has_lost_its_power(rig: Rig, first: str) -> None:
    order = [
        lambda: rig.event_loop.agent_down(rig.agents["b"]),
        lambda: rig.event_loop.switch_gone(rig.switches["b"]),
    ]
    for event in order if first == "agent" else reversed(order):
        event()
        rig.after(0.1)
    assert rig.fault("ab-plc") is None
    rig.after(BOTH_GONE_S)
    assert rig.fault("ab-plc") == "switch lost" and rig.fault("bc-wifi") == "switch lost"


def test_an_agent_that_is_back_at_once_was_only_restarted(rig: Rig) -> None:
    rig.event_loop.switch_gone(rig.switches["b"])
    rig.event_loop.agent_down(rig.agents["b"])
    rig.after(0.1)
    rig.agent("b")
    rig.after(BOTH_GONE_S + 1)
    assert rig.fault("ab-plc") is None and rig.event_loop.state.agents["b"] is Presence.UP


def test_a_switch_is_asked_when_its_agent_is_gone_and_loses_its_connection_if_it_says_nothing(rig: Rig) -> None:
    connection = rig.switches["b"]
    before = len(connection.sent)
    rig.event_loop.agent_down(rig.agents["b"])
    assert len(connection.sent) == before + 1
    rig.after(SIGN_OF_LIFE_S - 0.1)
    assert not connection.closed
    rig.after(0.2)
    assert connection.closed and not rig.switches["a"].closed
    rig.event_loop.switch_gone(connection)
    rig.after(BOTH_GONE_S + 0.1)
    assert rig.fault("ab-plc") == "switch lost"


def test_a_switch_that_answers_keeps_its_connection(rig: Rig) -> None:
    connection = rig.switches["b"]
    rig.event_loop.agent_down(rig.agents["b"])
    request = connection.sent[-1]
    # A multipart reply (type 19) of kind port statistics (4) with no ports, and the request's number.
    reply = request[:1] + bytes([19]) + (16).to_bytes(2, "big") + request[4:8] + (4).to_bytes(2, "big") + bytes(6)
    rig.event_loop.switches["b"].on_port_stats(reply)
    rig.after(SIGN_OF_LIFE_S + 0.1)
    assert not connection.closed and rig.fault("ab-plc") is None


def test_nothing_is_planned_for_each_device_that_comes_back(rig: Rig) -> None:
    """Before the controller is settled nothing is deployed: one plan, by which it measures, is enough."""
    event_loop = rig.event_loop
    assert not event_loop.settled
    event_loop._plan_if_changed()
    for node, session in rig.agents.items():
        event_loop.agent_down(session)
        event_loop._plan_if_changed()
        rig.agent(node)
        event_loop._plan_if_changed()
    assert event_loop.counters["plans"] == 1
    # What somebody asks for is planned at once.
    event_loop.declare(DeclaredFlow(FlowSpec("f", "a", "c"), Origin.API))
    assert event_loop.counters["plans"] == 2


def test_a_push_goes_on_while_switches_confirm_and_ends_if_something_else_is_to_be_planned(rig: Rig) -> None:
    event_loop = rig.event_loop
    event_loop._is_large = True
    event_loop._plan_if_changed()
    event_loop._tried_version = event_loop.state.version
    event_loop.wake(now=True)
    assert not event_loop._is_overtaken()
    event_loop.agent_down(rig.agents["a"])
    assert event_loop._is_overtaken()
