"""A standby that misses the leader asks devices whether they hear it: a few at a time, however many there are."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from quiet_agent_server import Server

from hyroads.controller.agents.protocol import AGENT, RADIO, Hello, parse_line
from hyroads.controller.agents.sessions import Session
from hyroads.controller.app.standby import ASK_S, ASKED_AT_ONCE


class Rig:
    """A server with so many agents, and as many access points, that answer whatever :meth:`answer` is given."""

    def __init__(self, agents: int) -> None:
        self.now_s = 50.0
        self.heard: list[tuple[int, float]] = []
        self.epochs: list[tuple[int, str]] = []
        self.server = Server(lambda: self.now_s, epoch_seen=lambda epoch, who: self.epochs.append((epoch, who)))
        self.nodes: list[str] = []
        self.server.leader_asked = self.nodes.append
        self.server.leader_heard = lambda node, epoch, heard_s: self.heard.append((epoch, heard_s))
        self.sent: Counter[tuple[str, str]] = Counter()
        for known, role in ((self.server.sessions, AGENT), (self.server.radios, RADIO)):
            for number in range(agents):
                node = f"n{number}"
                known[node] = Session(Hello(node, "x", "boot", None, 0, role), "here", None, lambda: self.now_s)

    @property
    def sessions(self) -> list[Session]:
        return [*self.server.sessions.values(), *self.server.radios.values()]

    def asked(self) -> list[tuple[Session, dict[str, Any]]]:
        """What was said since the last time, and to whom."""
        said = []
        for session in self.sessions:
            while session._outbox.qsize():
                said.append((session, json.loads(session._outbox.get())))
        return said

    def answer(self, session: Session, seq: int, **more: object) -> None:
        line = json.dumps({"type": "pong", "seq": seq, **more}).encode()
        self.server._handlers[session.hello.role]["pong"](session, parse_line(line))


@pytest.mark.parametrize("agents", [10, 100, 500])
def test_what_is_asked_does_not_grow_with_the_network(agents: int) -> None:
    rig = Rig(agents)
    seconds = 1.0
    rounds = int(seconds / ASK_S)
    asked = []
    for _ in range(rounds):
        rig.server.ask_leader(ASKED_AT_ONCE)
        told = rig.asked()
        assert len(told) == ASKED_AT_ONCE and all(message["leader"] is True for _, message in told)
        asked += [session for session, _ in told]
    assert len(asked) == rounds * ASKED_AT_ONCE
    # Others each time, until all were asked.
    assert len(set(map(id, asked))) == min(len(rig.sessions), len(asked))
    assert max(Counter(map(id, asked)).values()) <= -(-len(asked) // len(rig.sessions))
    # What a device keeps of it is bounded, too.
    for _ in range(10 * agents):
        rig.server.ask_leader(ASKED_AT_ONCE)
        rig.asked()
        rig.now_s += ASK_S
    assert max(len(session._asked) for session in rig.sessions) <= 4


def test_access_points_tell_of_the_leader_as_agents_do() -> None:
    rig = Rig(1)
    rig.server.ask_leader(ASKED_AT_ONCE)
    (agent, first), (radios, second) = rig.asked()
    assert rig.nodes == ["n0", "n0"]
    asked_s, rig.now_s = rig.now_s, rig.now_s + 0.03
    rig.answer(radios, second["seq"], epoch=7, heard_ms=20)
    assert rig.heard == [(7, asked_s - 0.02)] and rig.epochs == [(7, "radios of n0")]
    rig.answer(agent, first["seq"], epoch=7, heard_ms=5)
    assert rig.heard[1] == (7, asked_s - 0.005) and len(rig.epochs) == 1
    # A second answer to the same question, one that nobody asked for, and one without a leader say nothing.
    rig.answer(agent, first["seq"], epoch=7, heard_ms=0)
    rig.answer(agent, 9999, epoch=7, heard_ms=0)
    rig.server.ask_leader(ASKED_AT_ONCE)
    (_, third), _ = rig.asked()
    rig.answer(agent, third["seq"], epoch=8)
    assert len(rig.heard) == 2 and rig.epochs[1:] == [(8, "agent n0")]
