"""Which subflows end because of FIN and RST, and which do not."""

from __future__ import annotations

import sys
from pathlib import Path

import mptcp_frames as frames
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_mptcp_service import ADDRESSING, B, P, Q, World, packet_in

from hyroads.controller.core.mptcp_connections import Connection, Subflow
from hyroads.controller.core.subflows import flow_of
from hyroads.controller.ofp import match as act
from hyroads.controller.ofp.access import END_METER, SYN_COOKIES, Entry, is_access
from hyroads.controller.ofp.pipeline import Priority
from hyroads.controller.services.mptcp import COPIES
from hyroads.controller.services.mptcp_ends import ACTIVE_MBPS, METER, OPEN_S, SILENT_S, SubflowEnds


class Ends:
    """A connection with two subflows: of p at node a, and of q at node b, to b's own host."""

    def __init__(self) -> None:
        self.world = world = World()
        world.connect()
        world.join()
        world.later(0.1)
        self.mbps: dict[str, float | None] = {}
        service = world.service
        self.ends = SubflowEnds(service.port, service.table, self.mbps.get, lambda: world.now_s)
        [self.name] = service.names()
        self.ends.follow(self.name, True)
        for subflow in self.subflows:
            self.carry(subflow, 5.0)

    @property
    def connection(self) -> Connection:
        return self.world.service.table.connections[self.name]

    @property
    def subflows(self) -> list[Subflow]:
        return [*self.connection.subflows.values()]

    def carry(self, subflow: Subflow, mbps: float | None) -> None:
        for direction in ("up", "down"):
            self.mbps[flow_of(self.connection.token, subflow.number, direction)] = mbps

    def copies(self, node: str) -> dict[str, Entry]:
        wanted = self.world.switches[node].access._wanted
        return {name: entry for name, entry in wanted.items() if name.startswith(f"{METER} ")}

    def send(self, node: str, port: int, subflow: Subflow, side: str) -> None:
        """A switch copies a segment that the rules of this end of a subflow match."""
        name = f"{METER} {self.name} {subflow.number} {side}"
        cookie = next(iter(self.ends.entries(node)[name].rules)).cookie
        assert self.ends.owns(cookie) and cookie not in SYN_COOKIES
        self.ends.packet_in(self.world.switches[node], packet_in(frames.CAPABLE, port, cookie), cookie)

    def later(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.25)):
            self.world.now_s += 0.25
            self.ends.once()


def test_each_end_of_a_routed_subflow_is_watched_at_its_own_edge() -> None:
    ends = Ends()
    near, far = ends.copies("a"), ends.copies("b")
    assert len(near) == 1 and len(far) == 3 and ends.ends.count == 2
    rules = [rule for entry in (*near.values(), *far.values()) for rule in entry.rules]
    assert len({rule.cookie for rule in rules}) == 8 and {rule.match.tcp_flags for rule in rules} == {1, 4}
    assert {rule.match.eth_src for rule in rules} == {P, Q, B}
    for rule in rules:
        assert is_access(rule.table, rule.priority) and rule.priority == Priority.END_COPY
        assert rule.actions == (act.ToController(128, END_METER), act.SetRegister2(1), act.Resubmit(rule.table))
        assert None not in (rule.match.ipv4_src, rule.match.ipv4_dst, rule.match.tcp_src, rule.match.tcp_dst)
    # A switch that connects anew gets them, and the meter, which no rule ends.
    entries = ends.ends.entries("b")
    assert {name: entries[name] for name in far} == far and entries[METER].meter is not None
    ends.ends.follow(ends.name, False)
    assert not ends.copies("a") and not ends.copies("b") and [*ends.ends.entries("b")] == [METER]
    assert not ends.ends._by_cookie and not ends.ends._watched


def test_a_subflow_that_is_silent_after_its_fin_is_over() -> None:
    ends = Ends()
    first, second = ends.subflows
    ends.send("a", 2, first, "up")
    assert not ends.copies("a"), "the first copy is the last"
    ends.later(2.0)
    assert ends.subflows == [first, second], "it still carries something"
    ends.carry(first, ACTIVE_MBPS / 2)
    ends.later(SILENT_S)
    assert ends.subflows == [second]
    ends.ends.follow(ends.name, True)
    assert ends.ends.count == 1 and not ends.ends._ended
    # A reset, of the other end.
    ends.send("b", 1, second, "down")
    ends.carry(second, 0.0)
    ends.later(SILENT_S)
    assert ends.name not in ends.world.service.table.connections


def test_a_subflow_that_goes_on_stays_and_its_next_fin_counts() -> None:
    ends = Ends()
    first, second = ends.subflows
    ends.send("a", 2, first, "up")
    ends.later(OPEN_S)
    assert ends.copies("a"), "watched again"
    ends.carry(first, 0.0)
    ends.later(5 * OPEN_S)
    assert ends.subflows == [first, second], "silence alone is no end"
    ends.send("a", 2, first, "up")
    ends.later(SILENT_S)
    assert ends.subflows == [second]


@pytest.mark.parametrize(("node", "port"), [("a", 1), ("b", 2), ("a", 77)])
def test_an_end_from_elsewhere_ends_nothing(node: str, port: int) -> None:
    ends = Ends()
    first, second = ends.subflows
    name = f"{METER} {ends.name} {first.number} up"
    cookie = ends.copies("a")[name].rules[1].cookie
    ends.carry(first, 0.0)
    ends.ends.packet_in(ends.world.switches[node], packet_in(frames.CAPABLE, port, cookie), cookie)
    assert not ends.ends.owns(cookie) and not ends.copies("a"), "nobody can go on with it"
    ends.later(2 * OPEN_S)
    assert ends.subflows == [first, second]


def test_what_nobody_measures_is_not_ended() -> None:
    ends = Ends()
    first, second = ends.subflows
    ends.carry(first, None)
    ends.send("a", 2, first, "up")
    ends.later(OPEN_S - 0.25)
    assert ends.subflows == [first, second]
    ends.carry(first, 0.0)
    ends.later(0.25)
    assert ends.subflows == [second]


def test_a_subflow_that_was_replaced_is_watched_anew_and_strangers_are_not() -> None:
    ends = Ends()
    table = ends.world.service.table
    first, second = ends.subflows
    ends.send("a", 2, first, "up")
    table.end(first.key)
    ends.world.syn(frames.join(b"server-k"), port=2000)
    ends.world.answer(frames.join_answer(), P, "10.9.0.1", 2000)
    ends.ends.follow(ends.name, True)
    third = ends.subflows[-1]
    assert ends.subflows == [second, third] and ends.ends.count == 2 and not ends.ends._ended
    assert [*ends.copies("a")] == [f"{METER} {ends.name} {third.number} up"]
    # The interface of no node of the network file has no routes, and no rules.
    assert "02:aa:00:00:00:01" not in ADDRESSING.host_mac.values()


def test_a_switch_that_refuses_copies_is_not_asked() -> None:
    ends = Ends()
    ends.ends.follow(ends.name, False)
    ends.world.switches["b"].access.refused.add(COPIES)
    ends.ends.follow(ends.name, True)
    assert ends.copies("a") and not ends.copies("b")
