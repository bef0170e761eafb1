"""Server-sent events: what a stream says, who is let go, and how many may listen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask, g
from flask_smorest import Api

from hyroads.controller.model.events import Event, EventLog
from hyroads.rest.events import _stream, blueprint
from hyroads.rest.resource import register


class Bell:
    """Time passes at once; what shall happen meanwhile is given."""

    def __init__(self) -> None:
        self.meanwhile: list[Any] = []

    def notify(self) -> None:
        pass

    def wait(self, timeout_s: float) -> bool:
        if self.meanwhile:
            self.meanwhile.pop(0)()
            return True
        return False


class Web:
    def __init__(self, max_events: int = 100, **options: Any) -> None:
        self.bell = Bell()
        self.log = EventLog(lambda: 1.0, self.bell, max_events=max_events)
        app = Flask("test")
        app.config.update(API_TITLE="t", API_VERSION="1", OPENAPI_VERSION="3.1.0")
        Api(app).register_blueprint(blueprint(self.log, **options))
        register(app, lambda where, error: pytest.fail(f"{where}: {error}"))
        self.client = app.test_client()

    def get(self, query: str = "", last: int | str | None = None) -> Any:
        headers = {} if last is None else {"Last-Event-ID": str(last)}
        return self.client.get(f"/api/v1/events{query}", headers=headers)


def parsed(text: str) -> list[tuple[int, str, dict[str, Any]]]:
    found = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":") and line)
        if "data" in lines:
            found.append((int(lines["id"]), lines["event"], json.loads(lines["data"])))
    return found


def chunks(answer: Any) -> Iterator[str]:
    return (chunk.decode() for chunk in answer.response)


def test_kept_events_filtered_by_kind() -> None:
    web = Web()
    for kind in ("link.down", "linkage.up", "link.up", "agent.up"):
        web.log.publish(kind, {"x": kind})
    everything = parsed(web.get("?follow=false").get_data(as_text=True))
    assert [kind for _, kind, _ in everything] == ["link.down", "linkage.up", "link.up", "agent.up"]
    assert everything[0][2] == {"time_s": 1.0, "x": "link.down"}
    some = parsed(web.get("?follow=false&kinds=link,agent.up").get_data(as_text=True))
    assert [kind for _, kind, _ in some] == ["link.down", "link.up", "agent.up"]
    after = parsed(web.get("?follow=false", last=everything[1][0]).get_data(as_text=True))
    assert [kind for _, kind, _ in after] == ["link.up", "agent.up"]


def test_nobody_listens_where_nobody_may() -> None:
    assert Web(max_listeners=0).get().status_code == 503


def test_a_token_with_many_listeners_gives_a_place_to_one_with_few() -> None:
    web = Web(max_listeners=4)
    asks = [""]
    web.client.application.before_request(lambda: setattr(g, "principal", asks[0]))
    asks[0] = "viewer"
    viewers = [web.get() for _ in range(4)]
    streams = [chunks(answer) for answer in viewers]
    assert web.get().status_code == 503, "its own many are no reason to end one"
    asks[0] = "admin"
    admins = [web.get() for _ in range(2)]
    assert [answer.status_code for answer in admins] == [200, 200]
    assert web.get().status_code == 503, "two and two are fair"
    for stream in streams[:2]:
        next(stream)
        told = next(stream)
        assert "event: dropped" in told
        assert "id:" not in told, "the reader comes back to what it has got"
        with pytest.raises(StopIteration):
            next(stream)
    assert "listening" in next(streams[2])
    asks[0] = "viewer"
    assert web.get().status_code == 503


def test_a_listener_hears_what_happens_and_a_heartbeat() -> None:
    web = Web()
    web.log.publish("old.news", {})
    web.bell.meanwhile.append(lambda: web.log.publish("link.up", {"link": "l"}))
    stream = chunks(web.get())
    assert next(stream) == f"id: {web.log.last}\n: listening\n\n"
    number, kind, document = parsed(next(stream))[0]
    assert (number, kind, document["link"]) == (web.log.last, "link.up", "l")
    assert next(stream) == f"id: {web.log.last}\n: alive\n\n"


def test_who_is_too_slow_is_told_and_let_go() -> None:
    web = Web(max_events=10)
    stream = chunks(web.get())
    next(stream)
    web.log.publish("link.up", {})
    assert parsed(next(stream))[0][1] == "link.up"
    place = web.log.last
    for _ in range(20):
        web.log.publish("link.down", {})
    assert [(number, kind) for number, kind, _ in parsed(next(stream))] == [(place, "dropped")]
    assert list(stream) == []
    back = parsed(web.get("?follow=false", last=place).get_data(as_text=True))
    assert [kind for _, kind, _ in back] == ["missed"] + ["link.down"] * 10


def test_ids_of_the_future_and_nonsense() -> None:
    web = Web()
    web.log.publish("link.up", {})
    future = parsed(web.get("?follow=false", last=10**17).get_data(as_text=True))
    assert [kind for _, kind, _ in future] == ["missed", "link.up"]
    for nonsense in ("x", "-1", "1" * 19, "\u00b3"):
        assert web.get("?follow=false", last=nonsense).status_code == 400


def test_listeners_are_bounded_and_places_come_back() -> None:
    web = Web(max_listeners=2)
    first, second = web.get(), web.get()
    refused = web.get()
    assert refused.status_code == 503 and refused.headers["Retry-After"]
    first.close()
    first.close()
    third = web.get()
    assert third.status_code == 200 and web.get().status_code == 503
    second.close()
    third.close()
    assert web.get("?follow=false").status_code == 200


def test_a_reader_may_have_heard_more_than_one_of_several_controllers() -> None:
    bell = Bell()
    log = EventLog(lambda: 1.0, bell, several=True)
    log.follow()
    log.mirror(Event(1_000_000_001, 1.0, "link.down", {"link": "ab"}))
    bell.meanwhile = [
        lambda: log.mirror(Event(1_000_000_002, 1.0, "link.up", {"link": "ab"})),
        lambda: log.mirror(Event(2_000_000_000, 1.0, "ha.leads", {"name": "b"})),
    ]
    found = parsed("".join(_stream(log, 1_000_000_002, lambda event: True, None)))
    assert found == []
    found = parsed("".join(_stream(log, 1_000_000_005, lambda event: True, None)))
    assert [kind for _, kind, _ in found] == ["ha.leads"]
    found = parsed("".join(_stream(log, 3_000_000_000, lambda event: True, None)))
    assert [kind for _, kind, _ in found] == ["missed", "link.down", "link.up", "ha.leads"]
