"""Multi-homed clients over HTTP, on the service itself: what they confirm, refuse, and do not answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from hyroads.controller.agents.clients import ClientEvent, ClientReport, FlowReport, InterfaceReport, MptcpReport
from hyroads.controller.agents.protocol import Hello
from hyroads.controller.agents.sessions import GONE, NO_ANSWER, Answer
from hyroads.controller.services.clients.multihomed import EVENTS_BURST, MultihomedClients
from hyroads.rest import multihomed
from hyroads.rest.api import create_app

WLAN = InterfaceReport("wlan0", True, "192.0.2.1", False, 20.0, 4.5, 1.0, 3, 1.25, None)
VOICE = FlowReport(12, "voice", "wlan0", 0.5, 0.125, 2)
REPORT = ClientReport("full-speed", (WLAN,), (VOICE,), 1, (), (MptcpReport("a1", 2),), {"wlan0": 4.0})


class FakeSession:
    """Answers at once with ``problem``, or not at all."""

    def __init__(self, client: str = "laptop") -> None:
        self.node, self.hello = client, Hello(client, "test 1", "1", "secret", 0, "client")
        self.asked: list[dict[str, Any]] = []
        self.problem: str | None = None
        self.silent = False
        self.waiting: list[Answer] = []

    def request(self, document: Mapping[str, Any], answer: Answer, *, within_s: float) -> None:
        self.asked.append(dict(document))
        assert within_s > 0
        self.waiting.append(answer)
        if not self.silent:
            self.waiting.pop()(self.problem)


class Web:
    def __init__(self) -> None:
        self.now_s, self.step_s = 100.0, 0.001
        self.events: list[tuple[str, Mapping[str, Any]]] = []
        publish = lambda kind, document: self.events.append((kind, document))  # noqa: E731
        self.service = MultihomedClients(["laptop", "phone"], publish, self.clock, lambda: 1e9 + self.now_s)
        self.session: Any = FakeSession()
        self.app = create_app(None, resources=[multihomed.blueprint(self.service)])
        self.client = self.app.test_client()

    def clock(self) -> float:
        self.now_s += self.step_s
        return self.now_s

    def connect(self) -> None:
        self.service.client_up(self.session)
        self.service.client_report(self.session, REPORT)
        self.service.client_policy(self.session, {"interfaces": {"wlan0": {}}, "mode": "full-speed"})

    def ask(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        answer = self.client.open(f"/api/v1{path}", method=method, json=body, base_url="http://localhost")
        assert answer.status_code == status, answer.json
        return answer.json

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.events]


@pytest.fixture
def web() -> Web:
    return Web()


def test_what_a_client_tells_is_shown_with_its_age_and_stays_when_it_goes(web: Web) -> None:
    web.connect()
    web.now_s += 5.0
    shown = web.ask("GET", "/clients/laptop/interfaces")
    assert shown["connected"] and shown["mode"] == "full-speed" and 5.0 <= shown["reported_s"] < 5.1
    assert shown["interfaces"][0]["sent_mbps"] == 4.5
    connections = web.ask("GET", "/clients/laptop/connections")["connections"]
    assert [(each["kind"], each["flow"], each["subflows"]) for each in connections] == [
        ("flow", 12, None),
        ("mptcp", None, 2),
    ]
    assert web.ask("GET", "/clients/laptop/policy")["interfaces"] == {"wlan0": {}}
    web.service.client_down(web.session)
    assert not web.ask("GET", "/clients/laptop/interfaces")["connected"]
    assert web.kinds() == ["client.connected", "client.disconnected"]


def test_an_old_session_that_ends_is_not_the_end_of_a_new_one(web: Web) -> None:
    web.connect()
    newer: Any = FakeSession()
    web.service.client_up(newer)
    web.service.client_down(web.session)
    assert web.ask("GET", "/clients/laptop/interfaces")["connected"]


def test_connections_come_in_pages(web: Web) -> None:
    web.connect()
    flows = tuple(FlowReport(n, "rest", "wlan0", 1.0, 1.0, 0) for n in range(250))
    web.service.client_report(web.session, ClientReport("full-speed", (WLAN,), flows, 250))
    seen, following = [], "/clients/laptop/connections?limit=100"
    while following:
        page = web.ask("GET", following)
        seen += [each["flow"] for each in page["connections"]]
        following = (page["next"] or "").removeprefix("/api/v1")
    assert seen == list(range(250))


def test_unknown_clients_and_those_that_are_not_connected(web: Web) -> None:
    for path in ("policy", "interfaces", "connections", "migrations"):
        web.ask("GET", f"/clients/nobody/{path}", status=404)
        web.ask("GET", f"/clients/phone/{path}", status=200 if path == "migrations" else 409)
    for client, status in (("nobody", 404), ("phone", 409)):
        web.ask("PUT", f"/clients/{client}/policy", {"interfaces": {"wlan0": {}}}, status)
        web.ask("PATCH", f"/clients/{client}/policy", {"mode": "full-speed"}, status)
        web.ask("POST", f"/clients/{client}/migrations", {"flow": 1, "interface": "wlan0"}, status)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "policy", {}),
        ("PUT", "policy", {"interfaces": ["wlan0"]}),
        ("PUT", "policy", {"interfaces": {}, "mode": "fast"}),
        ("PATCH", "policy", {"mode": "fast"}),
        ("PATCH", "policy", {"mode": "full-speed", "colour": "red"}),
        ("PATCH", "policy", {"mode": "full-speed", "flow": "voice", "connection": "mptcp-a1b2c3d4"}),
        ("POST", "migrations", {"flow": "12", "interface": "wlan0"}),
        ("POST", "migrations", {"flow": -1, "interface": "wlan0"}),
        ("POST", "migrations", {"flow": 12}),
        ("POST", "migrations", {"flow": 12, "interface": ""}),
    ],
)
def test_malformed_requests_never_reach_the_client(web: Web, method: str, path: str, body: Any) -> None:
    web.connect()
    web.ask(method, f"/clients/laptop/{path}", body, 422)
    assert web.session.asked == []


def test_a_client_refuses_with_its_own_words(web: Web) -> None:
    web.connect()
    web.session.problem = "flows[1].weight: expected a weight above 0, got -4"
    problem = web.ask("PUT", "/clients/laptop/policy", {"interfaces": {"wlan0": {}}, "nonsense": 1}, 422)
    assert web.session.problem in problem["detail"] and problem["errors"].keys() == {"policy"}
    assert web.session.asked == [{"type": "client-policy", "policy": {"interfaces": {"wlan0": {}}, "nonsense": 1}}]
    web.session.problem = "unknown interface eth9, expected wlan0"
    problem = web.ask("POST", "/clients/laptop/migrations", {"flow": 12, "interface": "eth9"}, 422)
    assert "unknown interface eth9" in problem["detail"]
    assert web.ask("GET", "/clients/laptop/migrations")["migrations"] == []


def test_a_migration_is_answered_when_the_client_has_confirmed_it(web: Web) -> None:
    web.connect()
    moved = web.ask("POST", "/clients/laptop/migrations", {"flow": 12, "interface": "wwan0"}, 201)
    assert (moved["flow"], moved["name"], moved["from"], moved["interface"]) == (12, "voice", "wlan0", "wwan0")
    assert moved["asked"] and moved["took_s"] > 0
    # The client's own event tells of the same one.
    web.service.client_event(web.session, ClientEvent("flow_migrated", "wwan0", 12, None, "wlan0"))
    assert web.ask("GET", "/clients/laptop/migrations")["migrations"] == [moved]
    assert web.events[-1] == ("client.flow_migrated", {"client": "laptop", "interface": "wwan0", "flow": 12,
                              "name": "voice", "from": "wlan0", "took_s": moved["took_s"]})  # fmt: skip
    assert web.kinds().count("client.flow_migrated") == 1
    # An hour later that is another.
    web.now_s += 3600
    web.service.client_event(web.session, ClientEvent("flow_migrated", "wwan0", 12, None, "wlan0"))
    assert [each["asked"] for each in web.ask("GET", "/clients/laptop/migrations")["migrations"]] == [True, False]


def test_one_connection_of_mptcp_may_have_another_mode(web: Web) -> None:
    web.connect()
    body = {"mode": "cost-efficient", "connection": "mptcp-a1b2c3d4"}
    web.ask("PATCH", "/clients/laptop/policy", body)
    asked = {"type": "client-mode", "mode": "cost-efficient", "flow": None, "connection": "a1b2c3d4"}
    assert web.session.asked == [asked]


def test_a_client_that_does_not_answer_in_time_is_an_operation(web: Web) -> None:
    web.connect()
    web.session.silent, web.step_s = True, 1.0
    first = web.ask("POST", "/clients/laptop/migrations", {"flow": 12, "interface": "wwan0"}, 202)
    other = web.ask("PATCH", "/clients/laptop/policy?wait=false", {"mode": "cost-efficient"}, 202)
    assert first["pending"] == ["client laptop"] and other["state"] == "pending"
    moved, chosen = web.session.waiting
    moved(None)
    chosen("no waypoint")
    assert web.ask("GET", f"/operations/{first['id']}")["state"] == "confirmed"
    failed = web.ask("GET", f"/operations/{other['id']}")
    assert failed["state"] == "failed" and "no waypoint" in failed["reason"]


@pytest.mark.parametrize("problem", [GONE, NO_ANSWER])
def test_a_connection_that_ends_is_no_refusal(web: Web, problem: str) -> None:
    web.connect()
    web.session.problem = problem
    assert problem in web.ask("PATCH", "/clients/laptop/policy", {"mode": "full-speed"}, 409)["detail"]


def test_a_flood_of_events_is_bounded(web: Web) -> None:
    web.connect()
    for _ in range(int(EVENTS_BURST) + 2000):
        web.service.client_event(web.session, ClientEvent("interface_up", "wlan0"))
    assert web.kinds().count("client.interface_up") <= EVENTS_BURST + 60


def test_metrics_are_those_of_connected_clients_in_base_units(web: Web) -> None:
    def rendered() -> str:
        registry = CollectorRegistry()
        registry.register(type("Source", (), {"collect": lambda _: web.service.metrics(), "describe": lambda _: ()})())
        return generate_latest(registry).decode()

    web.connect()
    web.service.client_event(web.session, ClientEvent("flow_migrated", "wwan0", 12, "voice", "wlan0", 0.003))
    text = rendered()
    for line in (
        'hyroads_client_interface_bytes_per_second{client="laptop",direction="sent",interface="wlan0"} 562500.0',
        'hyroads_client_queue_packets{client="laptop",interface="wlan0"} 3.0',
        'hyroads_client_mptcp_subflows{client="laptop"} 2.0',
        'hyroads_fetch_bytes_per_second{client="laptop",interface="wlan0"} 500000.0',
        'hyroads_client_migration_seconds_bucket{client="laptop",le="0.005"} 1.0',
    ):
        assert line in text
    web.service.client_down(web.session)
    assert "queue_packets{" not in rendered() and 'migration_seconds_count{client="laptop"} 1.0' in rendered()
