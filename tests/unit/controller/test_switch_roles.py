"""Roles at switches: who leads is master, nothing is sent before the switch says so, and a refusal is no fault."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator

import pytest
from silent_switch import SilentSwitch, reply, xid_of

from hyroads.controller.core.netfile import parse
from hyroads.controller.model.state import TopologyContext
from hyroads.controller.ofp import wire
from hyroads.controller.ofp.intents import SwitchIntent
from hyroads.controller.switches.roles import NO_GENERATION, Role, parse_role_reply, role_request
from hyroads.controller.switches.server import SwitchRegistry
from hyroads.controller.switches.sessions import DesiredRules

CONTEXT = TopologyContext.of(
    parse(
        {
            "nodes": {"a": {"role": "ap"}, "b": {"role": "ap"}},
            "links": [{"id": "ab", "from": "a", "to": "b", "technology": "plc", "capacity_mbps": 10, "both": True}],
            "interference": {"rule": "technology"},
        },
        "x",
    )
)
CHANGES = {wire.FLOW_MOD, wire.GROUP_MOD, wire.METER_MOD, wire.PORT_MOD, wire.PACKET_OUT, wire.SET_CONFIG}
WANTED = DesiredRules(SwitchIntent("a", 1, 100, 101), {})


class RoleSwitch(SilentSwitch):
    """A switch with roles, which several controllers share: ``shared`` has its generation and who is master."""

    def __init__(self, key: int, shared: dict[str, int | None]) -> None:
        super().__init__(CONTEXT.addressing.dpid["a"], ["a-plc"], key)
        self.shared = shared
        self.role = Role.EQUAL
        self.refused = 0
        self.carried_out = 0

    def answers(self) -> Iterator[bytes]:
        """What it says to all that was sent since the last time."""
        for message in self.take():
            kind, xid = message[1], xid_of(message)
            if kind == wire.ROLE_REQUEST:
                yield self._role(message, xid)
            elif kind in CHANGES:
                if self.shared["master"] == self.key or self.role is Role.EQUAL:
                    self.carried_out += 1
                else:
                    self.refused += 1
                    yield wire.message(struct.pack("!HH", 1, 10) + message[:64], xid, wire.ERROR)
            elif kind == wire.BARRIER_REQUEST:
                yield wire.message(b"", xid, wire.BARRIER_REPLY)
            elif kind == wire.MULTIPART_REQUEST:
                yield reply(message, bytes(16) if message[9] == wire.MULTIPART_METER_FEATURES else b"")

    def _role(self, message: bytes, xid: int) -> bytes:
        _, asked, generation = parse_role_reply(message)
        known = self.shared["generation"]
        if asked in (Role.MASTER, Role.SLAVE):
            if known is not None and generation < known:
                return wire.message(struct.pack("!HH", 11, 0) + message, xid, wire.ERROR)
            self.shared["generation"] = generation
            self.role = Role(asked)
        if asked == Role.MASTER:
            self.shared["master"] = self.key
        elif self.role is Role.MASTER and self.shared["master"] != self.key:
            self.role = Role.SLAVE
        told = self.shared["generation"]
        body = struct.pack("!I4xQ", self.role, NO_GENERATION if told is None else told)
        return wire.message(body, xid, wire.ROLE_REPLY)


class Controller:
    """A registry with one connection to the shared switch."""

    def __init__(self, key: int, shared: dict[str, int | None]) -> None:
        self.counters: Counter[str] = Counter()
        self.faults: list[str] = []
        self.seen: list[tuple[int, str]] = []
        self.switch = RoleSwitch(key, shared)
        self.registry = SwitchRegistry(
            CONTEXT,
            lambda: 0.0,
            self.counters,
            lambda where, what: self.faults.append(f"{where}: {what}"),
            lambda: None,
            greater_epoch_seen=lambda epoch, who: self.seen.append((epoch, who)),
        )

    def connect(self) -> None:
        self.registry.opened(self.switch)  # type: ignore[arg-type]

    @property
    def session(self):
        return self.registry.sessions["a"]

    def turn(self) -> list[int]:
        """Everything that was sent is answered, until nothing more is; the kinds of messages that were sent."""
        kinds: list[int] = []
        while self.switch.sent:
            kinds += [message[1] for message in self.switch.sent]
            for answer in list(self.switch.answers()):
                self._hear(answer)
        return kinds

    def _hear(self, answer: bytes) -> None:
        session, kind = self.session, answer[1]
        if kind == wire.ROLE_REPLY:
            session.on_role(answer)
        elif kind == wire.ERROR:
            session.on_error(answer)
        elif kind == wire.BARRIER_REPLY:
            session.on_barrier(xid_of(answer))
        elif answer[9] == wire.MULTIPART_FLOW:
            session.on_flow_stats(answer)
        elif answer[9] == wire.MULTIPART_GROUP_DESC:
            session.on_groups(answer)
        elif answer[9] == wire.MULTIPART_METER_CONFIG:
            session.on_meter(answer)
        else:
            session.on_meter_features(answer)

    def push(self) -> list[int]:
        self.session.want(WANTED)
        return self.turn()


@pytest.fixture
def shared() -> dict[str, int | None]:
    return {"generation": None, "master": None}


def test_with_one_controller_no_role_is_asked_for(shared: dict[str, int | None]) -> None:
    alone = Controller(1, shared)
    alone.connect()
    assert wire.ROLE_REQUEST not in alone.turn() + alone.push()
    assert alone.session.synced and alone.switch.carried_out > 0


def test_a_leader_asks_first_and_changes_nothing_before_the_answer(shared: dict[str, int | None]) -> None:
    leader = Controller(1, shared)
    leader.registry.lead(1)
    leader.connect()
    first, *rest = leader.switch.take()
    assert first[1] == wire.ROLE_REQUEST and parse_role_reply(first)[1:] == (Role.MASTER, 1)
    for request in rest[2:]:
        leader._hear(reply(request))
    leader.session.want(WANTED)
    assert leader.session.is_read and not CHANGES & {message[1] for message in leader.switch.take()}
    leader._hear(wire.message(struct.pack("!I4xQ", Role.MASTER, 1), xid_of(first), wire.ROLE_REPLY))
    assert wire.FLOW_MOD in leader.turn() and leader.session.synced


def test_a_follower_reads_and_sends_nothing_that_changes(shared: dict[str, int | None]) -> None:
    follower = Controller(2, shared)
    follower.registry.follow()
    follower.connect()
    sent = follower.turn() + follower.push()
    assert not CHANGES & set(sent) and follower.session.is_read
    assert follower.switch.role is Role.SLAVE and not follower.faults


def test_who_is_overtaken_changes_nothing_and_says_so_without_a_fault(shared: dict[str, int | None]) -> None:
    old, new = Controller(1, shared), Controller(2, shared)
    old.registry.lead(1)
    new.registry.follow()
    for each in (old, new):
        each.connect()
        each.turn()
        each.push()
    carried_out = old.switch.carried_out
    new.registry.lead(2)
    new.turn()
    assert new.session.may_change
    # The old one was frozen and believes that it still leads.
    old.session.want(DesiredRules(SwitchIntent("a", 1, 102, 103), {}))
    old.turn()
    assert old.switch.carried_out == carried_out and old.switch.refused > 0
    assert old.counters["refused_as_slave"] == old.switch.refused
    assert old.seen == [(2, "switch a")] and not old.faults and not old.session.may_change
    # It asks for a generation that is older now, as one that connects again would.
    old.registry.lead(1)
    old.turn()
    old.push()
    assert old.switch.carried_out == carried_out and not old.session.may_change and not old.faults
    old.registry.follow()
    old.turn()
    assert old.switch.role is Role.SLAVE and new.session.may_change


def test_leading_again_does_not_take_old_answers_for_its_own(shared: dict[str, int | None]) -> None:
    leader = Controller(1, shared)
    leader.registry.lead(1)
    leader.connect()
    late = list(leader.switch.answers())
    leader.registry.lead(2)
    for answer in late:
        leader._hear(answer)
    assert not leader.session.is_read and not leader.session.may_change
    leader.turn()
    assert leader.session.is_read and leader.session.may_change


def test_a_switch_that_knows_no_roles_is_led_nevertheless_with_a_fault(shared: dict[str, int | None]) -> None:
    leader = Controller(1, shared)
    leader.registry.lead(1)
    leader.connect()
    first, *rest = leader.switch.take()
    leader._hear(wire.message(struct.pack("!HH", 1, 1) + first, xid_of(first), wire.ERROR))
    for request in rest[2:]:
        leader._hear(reply(request))
    assert leader.session.may_change and any("roles" in fault for fault in leader.faults)
    assert role_request(7, Role.SLAVE, 9)[1] == wire.ROLE_REQUEST
