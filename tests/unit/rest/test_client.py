"""The Python client against servers that lose answers, refuse, are busy, or are no controller at all."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from scripted_rest import hangs_up, problem, says, serving

from hyroads.rest import client as module
from hyroads.rest.client import ApiError, Client, ClientError, NotConfirmedError


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    # The client's alone: threads that other tests left behind sleep by the real one.
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=slept.append, monotonic=time.monotonic))
    return slept


def test_a_lost_answer_is_asked_for_again_with_the_same_key() -> None:
    with serving(hangs_up, says(201, {"id": "f"})) as server, Client(server.url) as client:
        assert client.declare_flow("f", "a", "b") == {"id": "f"}
    keys = [headers["Idempotency-Key"] for _, _, headers, _ in server.asked]
    assert len(keys) == 2 and keys[0] == keys[1]
    assert server.asked[0][3] == server.asked[1][3]


def test_keys_differ() -> None:
    with serving(says(201, {}), says(201, {})) as server, Client(server.url) as client:
        client.declare_flow("f", "a", "b")
        client.declare_flow("g", "a", "b")
    assert len({headers["Idempotency-Key"] for _, _, headers, _ in server.asked}) == 2


def test_a_removal_whose_answer_was_lost_is_done() -> None:
    with serving(hangs_up, problem(404)) as server, Client(server.url) as client:
        client.remove_flow("f")
    with serving(problem(404)) as server, Client(server.url) as client, pytest.raises(ApiError):
        client.remove_flow("f")


def test_busy_controllers_are_asked_later(no_pauses: list[float]) -> None:
    busy = [says(status, {}, Retry_After="2") for status in (429, 503, 409)]
    with serving(*busy, says(200, {"ok": True})) as server, Client(server.url) as client:
        assert client.health() == {"ok": True}
    assert no_pauses == [2.0] * 3
    with serving(*busy, says(429, {"detail": "still"})) as server, Client(server.url) as client:
        with pytest.raises(ApiError) as refused:
            client.health()
        assert refused.value.status == 429


def test_refusals_are_errors_with_their_places() -> None:
    with serving(problem(422, errors={"to": ["unknown"]})) as server, Client(server.url) as client:
        with pytest.raises(ApiError) as refused:
            client.declare_flow("f", "a", "x")
        assert refused.value.status == 422 and refused.value.errors == {"to": ["unknown"]}
        assert str(refused.value) == "no (422)"


def test_operations_are_followed_to_their_end() -> None:
    operation = {"id": "1", "what": "w", "state": "pending", "pending": ["switch a"], "reason": None}
    begun = {**operation, "resource": "/api/v1/flows/f"}
    done = {**begun, "state": "confirmed", "pending": []}
    acts = says(202, begun), says(200, begun), says(200, done), says(200, {"id": "f"})
    with serving(*acts) as server, Client(server.url) as client:
        assert client.declare_flow("f", "a", "b") == {"id": "f"}
    assert [path for _, path, _, _ in server.asked][1:] == ["/api/v1/operations/1"] * 2 + ["/api/v1/flows/f"]
    failed = {**begun, "state": "failed", "reason": "was removed", "pending": []}
    removed = pytest.raises(NotConfirmedError, match="was removed")
    with serving(says(202, begun), says(200, failed)) as server, Client(server.url) as client, removed:
        client.declare_flow("f", "a", "b")
    with serving(says(202, begun)) as server, Client(server.url) as client:
        assert client.declare_flow("f", "a", "b", wait=False)["state"] == "pending"
    assert server.asked[0][1].endswith("/flows?wait=false")
    late = pytest.raises(NotConfirmedError, match="switch a")
    with serving(says(202, begun)) as server, Client(server.url, confirm_s=0.0) as client, late:
        client.declare_flow("f", "a", "b")


def test_lists_are_read_to_their_end() -> None:
    pages = says(200, {"flows": [{"id": "a"}], "next": "/api/v1/flows?cursor=x"}), says(200, {"flows": [{"id": "b"}]})
    with serving(*pages) as server, Client(server.url) as client:
        assert [flow["id"] for flow in client.flows()] == ["a", "b"]
    assert server.asked[1][1] == "/api/v1/flows?cursor=x"


@pytest.mark.parametrize("text", [b"<html>", b"[" * 100_000, b"\xff"])
def test_who_is_no_controller_is_an_error(text: bytes) -> None:
    acts = [says(200, text, "application/json; charset=utf-8")] * 4
    with serving(*acts) as server, Client(server.url) as client, pytest.raises(ClientError):
        client.health()


def test_nobody_there() -> None:
    with Client("http://127.0.0.1:9") as client, pytest.raises(ClientError, match=r"(?i)refused"):
        client.health()


@pytest.mark.parametrize(
    "url", ["", "localhost:8080", "ftp://x", "http://", "http://x:99999", "http://x/api", "http://x?y"]
)
def test_urls_are_checked(url: str) -> None:
    with pytest.raises(ClientError):
        Client(url)


def event(number: int, kind: str) -> bytes:
    return f'id: {number}\nevent: {kind}\ndata: {{"n": {number}}}\n\n'.encode()


def test_events_go_on_where_they_were_lost() -> None:
    first = b": listening\n\n" + event(5, "link.up") + b"id: 7\n: alive\n\n" + event(8, "link.down")[:-1]
    stream = "text/event-stream"
    acts = says(200, first, stream), hangs_up, says(200, event(9, "link.up") + event(9, "dropped"), stream)
    with serving(*acts) as server, Client(server.url, "secret") as client:
        events = client.events("link")
        assert [next(events) for _ in range(2)] == [
            module.Event(5, "link.up", {"n": 5}),
            module.Event(9, "link.up", {"n": 9}),
        ]
    asked = [(path, headers.get("Last-Event-ID"), headers["Authorization"]) for _, path, headers, _ in server.asked]
    assert asked == [("/api/v1/events?kinds=link", last, "Bearer secret") for last in (None, "7", "7")]


def test_a_stream_that_is_lost_before_its_first_event_goes_on_from_where_it_began() -> None:
    stream = "text/event-stream"
    acts = says(200, b"id: 7\n: listening\n\n", stream), hangs_up, says(200, event(9, "link.up"), stream)
    with serving(*acts) as server, Client(server.url) as client:
        events = client.events()
        # Whatever happens from here on is told.
        assert [headers.get("Last-Event-ID") for _, _, headers, _ in server.asked] == [None]
        assert next(events).id == 9
    assert [headers.get("Last-Event-ID") for _, _, headers, _ in server.asked] == [None, "7", "7"]


def test_a_refused_stream_is_an_error() -> None:
    with serving(problem(401)) as server, Client(server.url) as client, pytest.raises(ApiError):
        next(client.events())


def test_ids_may_hold_anything() -> None:
    with serving(says(200, {})) as server, Client(server.url) as client:
        client.flow("a/b ?#%")
    assert server.asked[0][1] == "/api/v1/flows/a%2Fb%20%3F%23%25"
