"""Which MPTCP connections are routed, as they come, are idle and go."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core.network import FlowSpec
from hyroads.controller.core.subflows import MptcpConnection, Subflow, TcpEnd
from hyroads.controller.model.state import DeclaredFlow, Origin
from hyroads.controller.services.mptcp_routes import (
    ACTIVE_MBPS,
    ENDED_S,
    IDLE_S,
    MOST_WAITING,
    ROUTE_AFTER_S,
    UNUSED_S,
    SubflowRoutes,
)

SERVER = TcpEnd("server", "10.0.0.9", 443)
MOST = 3


@dataclass
class State:
    flows: dict[str, DeclaredFlow] = field(default_factory=dict)


class Controller:
    """What the service needs of the controller, and connections that a test makes."""

    def __init__(self) -> None:
        self.now_s, self.settled, self.state, self.plans = 100.0, True, State(), 0
        self.groups: dict[str, MptcpConnection] = {}
        self.mbps: dict[str, float] = {}
        port: Any = self
        self.routes = SubflowRoutes(port, self.groups.get, self.mbps.get, clock=lambda: self.now_s, most=MOST)

    def change_flows(self, new: list[DeclaredFlow], gone: list[str]) -> None:
        self.plans += 1
        for flow in gone:
            assert self.state.flows.pop(flow).origin is Origin.MPTCP
        for flow in new:
            assert flow.spec.id not in self.state.flows
            self.state.flows[flow.spec.id] = flow

    def connection(self, token: int, *numbers: int) -> str:
        """It has subflows of these numbers; without any it is gone."""
        name = f"{token:08x}"
        subflows = (Subflow(n, TcpEnd(f"phone{n % 2}", f"10.0.{n}.1", 40_000 + token), SERVER) for n in numbers)
        self.groups.pop(name, None)
        if numbers:
            self.groups[name] = MptcpConnection(token, tuple(subflows))
        self.routes.changed(name)
        return name

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.routes.once()

    def routed(self) -> set[int]:
        ours = (flow for flow, had in self.state.flows.items() if had.origin is Origin.MPTCP)
        return {int(flow.split("-")[1], 16) for flow in ours}


def test_a_connection_that_lives_on_is_routed_until_it_goes() -> None:
    controller = Controller()
    controller.connection(1, 0, 1)
    controller.wait(ROUTE_AFTER_S / 2)
    assert controller.routed() == set() and controller.plans == 0
    controller.wait(ROUTE_AFTER_S)
    assert len(controller.state.flows) == 4 and controller.routed() == {1}
    controller.connection(1, 0, 1, 2)
    controller.wait(0.0)
    assert len(controller.state.flows) == 6 and controller.plans == 2
    controller.wait(1.0)
    assert controller.plans == 2, "nothing has changed"
    controller.connection(1, 0)
    controller.wait(0.0)
    assert {*controller.state.flows} == {"mptcp-00000001-0-up", "mptcp-00000001-0-down"}, "what is left stays"
    controller.connection(1)
    controller.wait(0.0)
    assert controller.state.flows == {}
    controller.connection(2, 0)
    controller.wait(1.0)
    assert controller.routed() == set(), "one subflow has nothing to be kept apart from"


def test_followers_hear_what_is_routed() -> None:
    controller, heard = Controller(), list[tuple[str, bool]]()
    controller.routes.followers.append(lambda name, routed: heard.append((name, routed)))
    name = controller.connection(1, 0, 1)
    controller.wait(ROUTE_AFTER_S / 2)
    assert heard == []
    controller.wait(ROUTE_AFTER_S)
    controller.connection(1, 0, 1, 2)
    controller.wait(0.0)
    controller.connection(1)
    controller.wait(0.0)
    controller.wait(1.0)
    assert heard == [(name, True), (name, True), (name, False)]


def test_connections_that_were_over_before_they_were_routed_take_no_room_for_long() -> None:
    controller = Controller()
    for token in range(MOST):
        controller.connection(token, 0, 1)
    controller.wait(ROUTE_AFTER_S)
    controller.connection(9, 0, 1)
    controller.wait(ROUTE_AFTER_S)
    assert controller.routed() == {0, 1, 2}
    controller.wait(UNUSED_S)
    assert 9 in controller.routed()


def test_a_connection_that_may_be_over_is_routed_again_with_its_next_subflow() -> None:
    controller = Controller()
    controller.connection(1, 0, 1)
    controller.wait(1.0)
    controller.wait(ENDED_S)
    assert controller.state.flows == {}
    controller.wait(1.0)
    assert controller.state.flows == {}
    controller.connection(1, 0, 1, 2)
    controller.wait(1.0)
    assert controller.routed() == {1}


def test_a_users_flow_of_the_same_id_stays() -> None:
    controller = Controller()
    mine = DeclaredFlow(FlowSpec("mptcp-00000001-0-up", "phone0", "server"), Origin.API)
    controller.state.flows[mine.spec.id] = mine
    name = controller.connection(1, 0, 1)
    controller.wait(1.0)
    assert len(controller.state.flows) == 4 and controller.state.flows[mine.spec.id] is mine
    controller.groups.pop(name)
    controller.routes.changed(name)
    controller.wait(0.0)
    assert controller.state.flows == {mine.spec.id: mine}


def test_new_connections_take_the_room_of_those_that_were_idle_longest() -> None:
    controller = Controller()
    for token in range(MOST):
        controller.connection(token, 0, 1)
        controller.wait(1.0)
    assert controller.routed() == {0, 1, 2}
    controller.mbps.update(dict.fromkeys(controller.state.flows, 2 * ACTIVE_MBPS))
    controller.wait(0.0)
    for flow in [flow for flow in controller.mbps if not flow.startswith("mptcp-00000000")]:
        # The connections differ in when they carried something last.
        controller.mbps[flow] = 0.0 if flow.startswith("mptcp-00000001") else controller.mbps[flow]
    controller.wait(0.25)
    controller.mbps.update(dict.fromkeys((f for f in controller.mbps if not f.startswith("mptcp-00000000")), 0.0))
    controller.connection(9, 0, 1)
    controller.wait(1.0)
    assert controller.routed() == {0, 1, 2}, "nobody was idle for long"
    controller.wait(IDLE_S)
    assert controller.routed() == {0, 2, 9}
    controller.wait(UNUSED_S)
    plans = controller.plans
    for _ in range(8):
        controller.wait(IDLE_S)
    assert controller.plans == plans, "idle ones do not take each other's place"
    controller.connection(2)
    controller.wait(1.0)
    assert controller.routed() == {0, 1, 9}


def test_nothing_is_planned_before_the_network_has_settled_and_few_wait() -> None:
    controller = Controller()
    controller.settled = False
    for token in range(2 * MOST_WAITING):
        controller.connection(token, 0, 1)
    controller.wait(1.0)
    assert controller.plans == 0 and len(controller.routes._waiting) == MOST_WAITING
    controller.settled = True
    controller.wait(0.0)
    assert controller.plans == 1 and controller.routed() == {2 * MOST_WAITING - 1 - n for n in range(MOST)}


@examples(100)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4), st.sampled_from([0.0, 0.3, 5.0, 20.0]))))
def test_flows_are_those_of_the_connections_that_there_are(events: list[tuple[int, int, float]]) -> None:
    controller = Controller()
    for token, subflows, seconds in events:
        controller.connection(token, *range(subflows))
        controller.wait(seconds)
        assert len(controller.routed()) <= MOST
        for flow, had in controller.state.flows.items():
            group = controller.groups[flow.split("-")[1]]
            assert had.spec.group is not None and int(flow.split("-")[2]) in {s.number for s in group.subflows}
        assert len(controller.state.flows) == sum(
            2 * len(controller.groups[f"{t:08x}"].subflows) for t in controller.routed()
        )
    controller.wait(ROUTE_AFTER_S)
    apart = [group for group in controller.groups.values() if len(group.subflows) > 1]
    assert min(MOST, len(apart)) <= len(controller.routed()) <= min(MOST, len(controller.groups))


def test_without_room_for_any_connections_are_only_known() -> None:
    controller = Controller()
    controller.routes._most = 0
    controller.connection(1, 0, 1)
    controller.wait(5.0)
    assert controller.plans == 0 and controller.routed() == set()


def test_the_next_controller_goes_on_with_what_is_routed() -> None:
    old, new, heard = Controller(), Controller(), list[tuple[str, bool]]()
    for token in (1, 2):
        old.connection(token, 0, 1)
        old.wait(ROUTE_AFTER_S)
    assert old.routes.routed == ("00000001", "00000002")
    new.groups.update(old.groups)
    new.state.flows.update(old.state.flows)
    new.routes.followers.append(lambda name, routed: heard.append((name, routed)))
    new.routes.become([*old.routes.routed, "gone"])
    assert heard == [("00000001", True), ("00000002", True)] and new.routes.routed == old.routes.routed
    # However long it has followed, idle connections have their time from now on.
    new.now_s += 10 * ENDED_S
    new.routes.lead()
    new.wait(UNUSED_S)
    new.wait(IDLE_S)
    assert new.plans == 0 and new.routed() == {1, 2}
    new.connection(1)
    new.wait(0.0)
    assert new.routed() == {2}
    new.wait(ENDED_S)
    assert new.routed() == set()
    # One that followed again, because another led, forgets what it had.
    heard.clear()
    new.routes.become(["00000002"])
    new.routes.become([])
    assert heard == [("00000002", True), ("00000002", False)] and new.routes.routed == ()
