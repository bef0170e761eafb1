"""``GET /live``, its events, and the ETag of the topology, over a service that is a log of versions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flask import Flask
from flask_smorest import Api

from hyroads.controller.model.events import EventLog
from hyroads.controller.model.live_document import LiveLog
from hyroads.rest import events, live
from hyroads.rest.api import create_app
from hyroads.rest.contract import Token
from hyroads.rest.live import COLUMNS, SOURCES, LiveSchema, LiveText, text_of


class Network:
    """The parts of the controller that are asked here."""

    def __init__(self) -> None:
        self.log, self.version, self.built = LiveLog(1000), 1, 0
        self.log.update({"links": {"ab": [1, 10, 4.2, 42, 5, 50, 0]}})

    def live(self, since: int | None = None) -> LiveText:
        told = self.log.since(since)
        head = {
            "from": told.since, "version": told.version, "complete": told.since is None, "reason": told.reason,
            "age_s": 0.0, "topology_version": self.version, "slot": {"count": 1, "missed": 0, "slot_ms": 100.0},
            "gone": dict(told.gone),
        }  # fmt: skip
        parts = {
            name: {one: f"{json.dumps(one)}:{json.dumps(row)}" for one, row in told.changed.get(name, {}).items()}
            for name in ("links", "flows", "paths", "clients", "slices")
        }
        return LiveText(told.version, text_of(head, parts))

    def topology_version(self) -> str:
        return f"7-{self.version}"

    def topology(self) -> dict[str, Any]:
        self.built += 1
        return {"version": self.version}

    def netjson(self) -> dict[str, Any]:
        return {"type": "NetworkGraph"}

    def __getattr__(self, name: str) -> Any:
        def ask(*_: object, **__: object) -> Any:
            raise AssertionError(f"{name} is not asked")

        return ask


def web(network: Network, *tokens: Token) -> Any:
    service: Any = network
    return create_app(service, tokens, resources=[live.blueprint(network)]).test_client()


def test_everything_then_what_changed() -> None:
    network = Network()
    client = web(network)
    first = client.get("/api/v1/live")
    document = first.get_json()
    assert first.status_code == 200 and document["complete"] and document["reason"] == "first"
    assert document["from"] is None and list(document["links"]) == ["ab"]
    assert not LiveSchema().validate(document), "the answer is what the schema says"
    network.log.update({"links": {"ab": [0, 10, 0, 0, 0, 0, 0], "bc": [1, 10, 0, 0, 0, 0, 0]}})
    second = client.get(f"/api/v1/live?since={document['version']}").get_json()
    assert (second["from"], second["version"]) == (document["version"], document["version"] + 1)
    assert second["links"].keys() == {"ab", "bc"} and not second["complete"]
    third = client.get(f"/api/v1/live?since={second['version']}").get_json()
    assert not third["links"] and third["version"] == second["version"]


@pytest.mark.parametrize("since", ["-1", "x", "1.5", "", "1e3", "9007199254740992", "1&since=x&more=1"])
def test_what_is_no_version_is_refused_with_one_error(since: str) -> None:
    answer = web(Network()).get(f"/api/v1/live?since={since}")
    assert answer.status_code == 400 and answer.content_type == "application/problem+json"
    assert len(answer.get_json()["errors"]) == 1


def test_who_may_read_the_topology_may_read_this_and_nobody_else() -> None:
    client = web(Network(), Token("seer", "viewer-token-0123456789", "viewer"))
    for place in ("/api/v1/live", "/api/v1/topology"):
        assert client.get(place).status_code == 401
        assert client.get(place, headers={"Authorization": "Bearer viewer-token-0123456789"}).status_code == 200
        assert client.post(place, headers={"Authorization": "Bearer viewer-token-0123456789"}).status_code in (403, 405)


def test_all_fields_are_described_and_the_operation_has_an_example() -> None:
    document = web(Network()).get("/api/v1/openapi.json").get_json()
    answer = document["paths"]["/api/v1/live"]["get"]["responses"]["200"]["content"]["application/json"]
    example = answer.get("example") or next(iter(answer["examples"].values()))["value"]
    assert not LiveSchema().validate(example)
    assert all(len(row) == len(COLUMNS["links"]) for row in example["links"].values())
    assert example["links"]["ab-wifi"][-1] < len(SOURCES)
    for name in ("Live", "Slot", "LiveColumns"):
        fields = document["components"]["schemas"][name]["properties"]
        assert all("description" in field or "allOf" in field for field in fields.values()), name


class Time:
    """Waiting takes the time that it says."""

    now_s = 50.0

    def notify(self) -> None:
        pass

    def wait(self, timeout_s: float) -> bool:
        self.now_s += timeout_s
        return False

    def __call__(self) -> float:
        return self.now_s


def stream(network: Network, query: str) -> tuple[EventLog, Time, Any]:
    time = Time()
    log, app = EventLog(lambda: 1.0, time), Flask("test")
    app.config.update(API_TITLE="t", API_VERSION="1", OPENAPI_VERSION="3.1.0")
    Api(app).register_blueprint(events.blueprint(log, live=network.live, clock=time))
    answer = app.test_client().get(f"/api/v1/events{query}")
    return log, time, (chunk.decode() for chunk in answer.response)


def data(chunk: str) -> Any:
    return json.loads(chunk.split("data: ", 1)[1])


def test_the_event_comes_once_a_second_with_what_changed_and_takes_no_place_in_the_log() -> None:
    network = Network()
    log, time, chunks = stream(network, "?kinds=live,link")
    assert next(chunks).endswith(": listening\n\n")
    first = next(chunks)
    assert first.startswith(f"id: {log.last}\nevent: live\n") and data(first)["complete"]
    began_s = time.now_s
    network.log.update({"links": {"ab": [0, 10, 0, 0, 0, 0, 0]}})
    log.publish("link.down", {"link": "ab"})
    assert "event: link.down" in next(chunks)
    second = next(chunks)
    assert data(second)["links"] == {"ab": [0, 10, 0, 0, 0, 0, 0]} and data(second)["from"] == data(first)["version"]
    assert time.now_s - began_s == pytest.approx(1.0, abs=0.05)
    assert not data(next(chunks))["links"] and time.now_s - began_s == pytest.approx(2.0, abs=0.05)
    assert len(log.since(0)) == 1


def test_who_does_not_ask_for_the_event_does_not_get_it() -> None:
    for query in ("", "?kinds=link"):
        log, _, chunks = stream(Network(), query)
        next(chunks)
        log.publish("link.up", {"link": "ab"})
        assert "link.up" in next(chunks) and ": alive" in next(chunks)


def test_a_topology_that_is_known_is_neither_made_nor_sent_again() -> None:
    network = Network()
    client = web(network)
    first = client.get("/api/v1/topology")
    tag = first.headers["ETag"]
    assert first.status_code == 200 and tag.startswith('W/"')
    again = client.get("/api/v1/topology", headers={"If-None-Match": tag})
    assert (again.status_code, again.data, again.headers["ETag"], network.built) == (304, b"", tag, 1)
    other = client.get("/api/v1/topology?format=netjson", headers={"If-None-Match": tag})
    assert other.status_code == 200 and other.headers["ETag"] != tag
    network.version += 1
    newer = client.get("/api/v1/topology", headers={"If-None-Match": tag})
    assert newer.status_code == 200 and newer.headers["ETag"] != tag and network.built == 2
