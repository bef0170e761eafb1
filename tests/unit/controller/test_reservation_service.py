"""Reservations over REST on the loop that keeps them: admission, refusal with its reason, what gives way."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from instant_saver import full_disk, instant_saver

from hyroads.controller.control.loop import LiveLoop, LoopOptions
from hyroads.controller.control.routes import FlowRoute
from hyroads.controller.control.sessions import LiveSession
from hyroads.controller.control.source import ConfiguredSource
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.multicast import Media
from hyroads.controller.core.multicast_session import Session, adapted
from hyroads.controller.core.netfile import load_text
from hyroads.controller.core.network import Policy
from hyroads.controller.core.services.sessions import SessionSpec, group_address
from hyroads.controller.services.reservations import (
    SHORT_FOR_S,
    NotAdmittedError,
    ReservationService,
)
from hyroads.rest import reservations
from hyroads.rest.api import create_app
from hyroads.rest.contract import ConflictError, NotConfirmedError, NotFoundError, NotSavedError, TooBusyError

NET = """
nodes: {a: {role: gateway}, b: {role: ap}, c: {role: ap}}
links:
  - {id: ab-wifi, from: a, to: b, technology: wifi, capacity_mbps: 20}
  - {id: cb-wifi, from: c, to: b, technology: wifi, capacity_mbps: 20}
  - {id: ca-wifi, from: c, to: a, technology: wifi, capacity_mbps: 20}
  - {id: ab-plc, from: a, to: b, technology: plc, capacity_mbps: 10}
interference: {rule: technology}
flows:
  - {id: wide, from: a, to: b, paths: [[ab-wifi], [ab-plc]]}
  - {id: narrow, from: c, to: b, paths: [[cb-wifi]]}
  - {id: third, from: c, to: a, paths: [[ca-wifi]]}
"""


class World:
    """A loop without a margin, and what the service needs of an event loop."""

    def __init__(self) -> None:
        self.network = load_text(NET, "net")
        self.loop = LiveLoop(self.network, ConfiguredSource(self.network), LoopOptions(0.0, 0.0))
        self.routes = {flow.id: FlowRoute(flow, flow.source, flow.target, flow.paths) for flow in self.network.flows}
        self.now_s = 0.0
        self.events: list[tuple[str, dict]] = []
        self.sessions: dict[str, LiveSession] = {}
        self.rates: dict[tuple[str, str], float] = {}
        self.media = Media(self.network)
        self.promised: dict[str, float] = {}
        self.late: set[str] = set()
        """Agents that have not confirmed the rates of the last slot."""
        event_loop = SimpleNamespace(
            clock=lambda: self.now_s,
            context=SimpleNamespace(network=self.network),
            settled=True,
            leads=True,
            progress=SimpleNamespace(wait=lambda timeout_s: self.slot()),
            unconfirmed=lambda flows: [],
            rates_unconfirmed=lambda: set(self.late),
            plan=object(),
            live=self,
            saver=instant_saver()[0],
            wake=lambda: None,
            events=SimpleNamespace(publish=lambda kind, document: self.events.append((kind, document))),
        )
        self.event_loop = event_loop
        self.service = ReservationService(event_loop, self)
        self.loop.lay_out(self.network, self.routes)
        self.turn()

    @property
    def granted(self):
        return self.loop.granted

    @property
    def keeps_guarantees(self) -> bool:
        return self.loop.keeps_guarantees

    def slot(self) -> None:
        self.now_s += 0.1
        self.loop.turn(self.now_s)
        self.service.follow()

    def unconfirmed(self, session: str) -> set[str]:
        return set()

    def promise(self, rates_mbps) -> None:
        self.promised = dict(rates_mbps)

    def turn(self, **capacities: float) -> dict[str, float]:
        if capacities:
            self.network = self.network.with_capacities({k.replace("_", "-"): v for k, v in capacities.items()})
            self.loop.lay_out(self.network, self.routes)
        # Estimates follow a capacity over many samples; the file's come once, so they are told again and again.
        for _ in range(80 if capacities else 8):
            if capacities:
                self.loop._source = ConfiguredSource(self.network)
            self.slot()
        return {flow: sum(rates) for flow, rates in self.loop.rates.items()}

    def reserve(self, name: str, mbps: float, flow: str | None = None, session: str | None = None) -> dict:
        return self.service.reserve({"id": name, "flow": flow, "session": session, "rate_mbps": mbps})[0]

    def session(self, *nodes: str) -> None:
        spec = SessionSpec("talk", group_address("239.1.1.1"), ())
        session, lost = adapted(self.media, Session("talk"), nodes[:1], nodes)
        assert not lost
        self.sessions["talk"] = LiveSession(spec, session=session)


@pytest.fixture
def world() -> World:
    return World()


def test_a_reserved_flow_keeps_its_rate_while_others_share_the_rest(world: World) -> None:
    before = world.turn()
    assert before["narrow"] < 12
    assert world.reserve("r", 15.0, "narrow")["state"] == "kept"
    after = world.turn()
    assert after["narrow"] == pytest.approx(15.0, abs=1e-3) or after["narrow"] > 15.0
    assert after["third"] > 0 and after["wide"] > 0
    world.service.release("r")
    assert world.turn()["narrow"] == pytest.approx(before["narrow"], rel=0.03)


def test_what_does_not_fit_is_refused_with_what_is_missing_and_where(world: World) -> None:
    world.reserve("r", 15.0, "narrow")
    with pytest.raises(NotAdmittedError) as caught:
        world.reserve("s", 8.0, "third")
    assert caught.value.details["possible_mbps"] == pytest.approx(5.0)
    assert caught.value.details["missing_mbps"] == pytest.approx(3.0)
    (domain,) = caught.value.details["domains"]
    assert domain["technology"] == "wifi" and "ca-wifi" in domain["links"]
    assert "3 of 8 Mb/s are missing; no airtime is left on wifi" in str(caught.value)
    assert world.service.names() == ("r",)
    world.reserve("s", 5.0, "third")
    assert world.service.reserve({"id": "w", "flow": "wide", "rate_mbps": 10.0})[1]
    with pytest.raises(NotAdmittedError) as caught:
        world.service.change("w", {"rate_mbps": 10.5})
    assert {domain["technology"] for domain in caught.value.details["domains"]} == {"wifi", "plc"}
    assert world.service.document("w")["rate_mbps"] == 10.0


def test_later_promises_give_way_when_capacity_falls_and_that_is_told(world: World) -> None:
    world.reserve("first", 8.0, "narrow")
    world.reserve("second", 8.0, "third")
    world.turn()
    assert [kind for kind, _ in world.events] == ["reservation.made"] * 2
    rates = world.turn(cb_wifi=10.0, ca_wifi=10.0)
    assert rates["narrow"] >= 7.99
    assert rates["third"] == pytest.approx(2.0, abs=0.15)
    kind, told = world.events[-1]
    assert kind == "reservation.short" and told["id"] == "second" and told["given_mbps"] < 8.0
    second = world.service.document("second")
    assert second["state"] == "short" and second["given_mbps"] == pytest.approx(2.0, abs=0.15)
    assert world.service.document("first")["state"] == "kept"
    world.turn(cb_wifi=20.0, ca_wifi=20.0)
    assert world.events[-1] == ("reservation.kept", {"id": "second"})


def test_what_can_not_be_saved_is_not_promised(world: World) -> None:
    world.reserve("first", 8.0, "narrow")
    saver = world.event_loop.saver
    for ask in (
        lambda: world.reserve("second", 2.0, "third"),
        lambda: world.service.change("first", {"rate_mbps": 4.0}),
        lambda: world.service.release("first"),
    ):
        saver.save = full_disk
        for _ in range(2):
            with pytest.raises(NotSavedError):
                ask()
        saver.save = lambda: None
        saver.once()
        assert world.service.names() == ("first",) and world.service.document("first")["rate_mbps"] == 8.0
        assert world.turn()["narrow"] >= 7.99
    world.reserve("second", 2.0, "third")


def test_a_short_moment_is_no_news(world: World) -> None:
    world.reserve("r", 15.0, "narrow")
    world.turn()
    count = len(world.events)
    world.network = world.network.with_capacities({"cb-wifi": 10.0})
    world.loop._source = ConfiguredSource(world.network)
    for _ in range(round(SHORT_FOR_S / 0.1) - 1):
        world.now_s += 0.1
        world.loop.turn(world.now_s)
        world.service.follow()
    assert len(world.events) == count


def test_sessions_are_counted_and_may_reserve(world: World) -> None:
    world.session("c", "b")
    assert world.reserve("t", 4.0, session="talk")["state"] == "kept"
    assert world.promised == {"talk": 4.0}
    with pytest.raises(NotAdmittedError) as caught:
        world.reserve("n", 18.0, "narrow")
    assert caught.value.details["possible_mbps"] == pytest.approx(16.0)
    with pytest.raises(NotAdmittedError):
        world.service.change("t", {"rate_mbps": 21.0})
    assert world.service.change("t", {"rate_mbps": 20.0})["rate_mbps"] == 20.0
    world.rates = {("talk", "c"): 25.0}
    with pytest.raises(NotAdmittedError):
        world.reserve("n", 1.0, "narrow")


def test_what_cannot_be_reserved_says_why(world: World) -> None:
    with pytest.raises(ConfigError, match="no flow"):
        world.reserve("r", 1.0, "nothing")
    with pytest.raises(ConfigError, match="no session"):
        world.reserve("r", 1.0, session="nothing")
    with pytest.raises(ConfigError, match="either"):
        world.service.reserve({"id": "r", "rate_mbps": 1.0})
    single = replace(world.routes["narrow"], reason="its policy is single", paths=())
    learner = replace(world.routes["third"], spec=replace(world.routes["third"].spec, policy=Policy.HYMAB))
    world.loop.lay_out(world.network, {**world.routes, "narrow": single, "third": learner})
    with pytest.raises(ConflictError, match="its policy is single"):
        world.reserve("r", 1.0, "narrow")
    with pytest.raises(ConflictError, match="hymab"):
        world.reserve("r", 1.0, "third")
    world.reserve("r", 1.0, "wide")
    with pytest.raises(ConflictError, match="for the same"):
        world.reserve("s", 1.0, "wide")
    world.event_loop.settled = False
    with pytest.raises(TooBusyError):
        world.reserve("s", 1.0, "third")


def test_promises_survive_the_controller_in_their_order(world: World) -> None:
    world.reserve("z", 8.0, "narrow")
    world.reserve("a", 8.0, "third")
    saved, other = world.service.to_save(), World()
    assert [problem.place for problem in other.service.restore([*saved, {"id": "x"}, 3])] == ["flow", "id"]
    assert other.service.names() == ("z", "a")
    rates = other.turn(cb_wifi=10.0, ca_wifi=10.0)
    assert rates["narrow"] >= 7.99 and rates["third"] == pytest.approx(2.0, abs=0.15)


def test_what_a_flow_does_not_want_is_for_others(world: World) -> None:
    world.reserve("r", 15.0, "narrow")
    world.turn()
    problem = world.loop.state.problem
    allocator = world.loop._allocator
    demand = np.array([np.inf, 2.0, np.inf])
    found = allocator.allocate(problem.changed(demand_mbps=demand), None)
    assert found.flow_rates_mbps[1] == pytest.approx(2.0, rel=1e-3)
    assert not allocator.granted["narrow"].is_short


def test_rest(world: World) -> None:
    client, base = (
        create_app(None, resources=[reservations.blueprint(world.service)]).test_client(),
        "/api/v1/reservations",
    )
    body = {"id": "r/1", "flow": "narrow", "rate_mbps": 15}
    made = client.post(base, json=body)
    assert made.status_code == 201 and made.headers["Location"].endswith("/r%2F1")
    assert client.post(base, json=body).status_code == 200
    assert client.post(base, json={**body, "rate_mbps": 3}).status_code == 409
    full = client.post(base, json={"id": "s", "flow": "third", "rate_mbps": 8})
    assert full.status_code == 409 and full.get_json()["missing_mbps"] == pytest.approx(3.0)
    assert client.post(base, json={**body, "id": "t", "rate_mbps": 0}).status_code == 422
    assert client.post(base, json={**body, "id": "t", "rate_mbps": "5"}).status_code == 422
    assert client.patch(f"{base}/r%2F1", json={"rate_mbps": 12}).get_json()["rate_mbps"] == 12
    assert [one["id"] for one in client.get(base).get_json()["reservations"]] == ["r/1"]
    assert client.delete(f"{base}/r%2F1").status_code == 204
    assert client.get(f"{base}/r%2F1").status_code == 404
    with pytest.raises(NotFoundError):
        world.service.release("r/1")


def test_reservation_waits_for_agents_that_have_not_confirmed_its_rates(world: World) -> None:
    world.late = {"agent c"}
    with pytest.raises(NotConfirmedError):
        world.reserve("r", 8.0, "narrow")
    assert world.service.pending("r") == ["agent c"] and world.service.waits() == {"agent c"}
    assert world.service.document("r")["state"] == "activating"
    world.late = set()
    assert world.service.pending("r") == [] and world.service.document("r")["state"] == "kept"
