"""All devices of a large network come back at once: they are read a few at a time, and nobody is cut off because the
controller was late.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest
from quiet_agent_server import Server
from silent_switch import SilentSwitch, reply

from hyroads.controller.agents.protocol import Hello
from hyroads.controller.agents.sessions import NO_ANSWER, REQUEST_WITHIN_S, Session
from hyroads.controller.core.topologies import campus
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.model.state import TopologyContext
from hyroads.controller.ofp import wire
from hyroads.controller.switches.server import PLACE_S, READ_AT_ONCE, SwitchRegistry
from hyroads.controller.switches.sessions import ANSWER_WITHIN_S, SwitchSession

CONTEXT = TopologyContext.of(campus(random.Random(1), 50))
NODES = list(CONTEXT.addressing.dpid)


class Switch(SilentSwitch):
    """One that may have said something that nobody has read."""

    unread = False

    def has_unread(self) -> bool:
        return self.unread


class Rig:
    """A registry of switches whose time is the test's."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.faults: list[str] = []
        counters: Counter[str] = Counter()
        self.registry = SwitchRegistry(
            CONTEXT, lambda: self.now_s, counters, lambda where, what: self.faults.append(where), lambda: None
        )
        self.switches = {node: Switch(CONTEXT.addressing.dpid[node]) for node in NODES}
        self.asked: dict[str, list[bytes]] = {}
        """In the order in which they were asked: what rules and groups they were asked for."""

    def connect(self) -> None:
        for switch in self.switches.values():
            self.registry.opened(switch)
        self.look()

    def look(self) -> list[str]:
        """Who is asked for rules now."""
        new = []
        for node, switch in self.switches.items():
            requests = [m for m in switch.take() if m[1] == wire.MULTIPART_REQUEST and m[9] in _CONTENTS]
            if requests:
                self.asked[node] = requests
                new.append(node)
        return new

    def answer(self, node: str) -> None:
        session, (rules, groups) = self.registry.sessions[node], self.asked[node]
        session.on_flow_stats(reply(rules))
        session.on_groups(reply(groups))
        assert session.is_read


_CONTENTS = {wire.MULTIPART_FLOW, wire.MULTIPART_GROUP_DESC}


def test_switches_are_read_a_few_at_a_time_in_the_order_in_which_they_came() -> None:
    rig = Rig()
    rig.connect()
    assert list(rig.asked) == NODES[:READ_AT_ONCE]
    for i, node in enumerate(NODES):
        rig.answer(node)
        rig.look()
        assert list(rig.asked) == NODES[: READ_AT_ONCE + i + 1]
    assert all(session.is_read for session in rig.registry.sessions.values())


def test_who_does_not_answer_or_goes_keeps_nobody_waiting() -> None:
    rig = Rig()
    rig.connect()
    rig.registry.closed(rig.switches[NODES[0]])
    assert rig.look() == [NODES[READ_AT_ONCE]]
    rig.now_s = PLACE_S / 2
    rig.registry.tick()
    assert rig.look() == []
    rig.now_s = PLACE_S + 0.01
    rig.registry.tick()
    assert rig.look() == NODES[READ_AT_ONCE + 1 : 2 * READ_AT_ONCE + 1]
    # It may still answer, and its time counts from when it was asked.
    rig.answer(NODES[1])
    rig.now_s = ANSWER_WITHIN_S + 0.01
    rig.registry.tick()
    closed = [node for node, switch in rig.switches.items() if switch.closed]
    assert closed == NODES[2 : READ_AT_ONCE + 1]


def test_a_switch_whose_answer_waits_to_be_read_is_not_late() -> None:
    rig = Rig()
    rig.connect()
    for switch in rig.switches.values():
        switch.unread = True
    rig.now_s = 10 * ANSWER_WITHIN_S
    rig.registry.tick()
    assert not any(switch.closed for switch in rig.switches.values()) and not rig.faults


def test_who_looks_at_switches_is_told_which_changed() -> None:
    rig = Rig()
    ours, others = rig.registry.watch(), rig.registry.watch()
    rig.connect()
    assert ours == set(NODES)
    ours.clear()
    first, second = NODES[:2]
    rig.answer(first)
    assert ours == {first}
    rig.registry.sessions[second].on_ports()
    assert ours == {first, second} and others == set(NODES)
    ours.clear()
    rig.registry.closed(rig.switches[first])
    assert ours == {first}
    ours.clear()
    rig.registry.tick()
    rig.registry.follow()
    assert ours == set(NODES) - {first}


def test_a_switch_that_owes_an_answer_is_looked_at_each_time_and_all_others_each_second() -> None:
    rig = Rig()
    rig.connect()
    while rest := [node for node in rig.asked if not rig.registry.sessions[node].is_read]:
        for node in rest:
            rig.answer(node)
        rig.look()
    looked_at: list[str] = []
    for node, session in rig.registry.sessions.items():
        tick = session.tick
        session.tick = lambda node=node, tick=tick: (looked_at.append(node), tick())[1]  # type: ignore[method-assign]
    rig.now_s = 10.0
    rig.registry.tick()
    assert sorted(looked_at) == sorted(NODES)
    looked_at.clear()
    rig.now_s += 0.2
    rig.registry.tick()
    assert not looked_at
    rig.registry.sessions[NODES[3]].ask_sign_of_life(0.3)
    rig.registry.tick()
    rig.now_s += 0.4
    rig.registry.tick()
    assert looked_at == [NODES[3]] * 2 and rig.switches[NODES[3]].closed
    # What nobody tells of is seen each second.
    rig.registry.sessions[NODES[5]].hosts._dirty["02:aa:00:00:00:01"] = None
    looked_at.clear()
    rig.now_s += 0.8
    rig.registry.tick()
    assert sorted(looked_at) == sorted(NODES)


class Agents:
    """A server with one session, over real sockets."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.server = Server(lambda: self.now_s)
        self.here, self.there = shim.socket_pair()
        self.session = Session(Hello("a", "x", "a", None, 0), "test", self.here, lambda: self.now_s)

    def look_after(self) -> None:
        self.server._look_after(self.session, 0.2, self.now_s)


@pytest.fixture
def agents() -> Iterator[Agents]:
    made = Agents()
    yield made
    made.here.close()
    made.there.close()


def test_an_agent_that_spoke_is_not_silent_while_nobody_reads(agents: Agents) -> None:
    problems: list[str | None] = []
    agents.session.request({"type": "config"}, problems.append)
    agents.there.sendall(b'{"type":"ok","seq":1}\n')
    agents.now_s = REQUEST_WITHIN_S + 60.0
    agents.look_after()
    assert not agents.session.closed and not problems
    # Heard of a moment ago, and the answer is among what was not read yet.
    agents.session.heard_s = agents.now_s
    agents.look_after()
    assert not problems
    agents.here.recv(100)
    agents.look_after()
    assert problems == [NO_ANSWER] and not agents.session.closed
    agents.now_s += 1.0
    agents.look_after()
    assert agents.session.closed


WHOLE, CHANGES = b'{"type":"report","seq":null}', b'{"type":"changes","time_s":%d}'


def test_of_reports_that_came_together_the_newest_is_enough(agents: Agents) -> None:
    lines = [CHANGES % 1, WHOLE, CHANGES % 2, CHANGES % 3, b'{"type":"link"}', CHANGES % 4, CHANGES % 5]
    agents.server._take_all(agents.session, iter(lines))
    assert agents.server.taken == [CHANGES % 1, WHOLE, CHANGES % 3, b'{"type":"link"}', CHANGES % 5]


def test_while_all_come_back_reports_of_what_changed_are_read_now_and_then(agents: Agents) -> None:
    agents.server.listener.is_starting = True
    for i in range(30):
        agents.now_s = 0.1 * i
        agents.server._take_all(agents.session, iter([CHANGES % i, b'{"type":"ok"}']))
    assert agents.server.taken.count(b'{"type":"ok"}') == 30
    assert 5 <= len(agents.server.taken) - 30 <= 7
    assert agents.session.heard_s == pytest.approx(2.9)


def test_a_session_is_read_at_once_where_it_is_alone() -> None:
    session = SwitchSession("a", SilentSwitch(1, []), lambda: 0.0, lambda _: None, lambda: None)
    session.start()
    assert [m[9] for m in session.connection.take()][2:] == [wire.MULTIPART_FLOW, wire.MULTIPART_GROUP_DESC]
