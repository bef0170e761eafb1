"""What holds for every route of the application, those included that are added later: the routes are walked.

The resources stand on parts that must not be reached: what is refused here is refused before anything is looked up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from every_resource import Reached, application
from flask import Flask
from werkzeug.routing import Rule

from hyroads.controller.services.plugins.requests import Requests
from hyroads.rest.access import READS
from hyroads.rest.contract import Token

ADMIN = {"Authorization": "Bearer admin-token-0123456789"}
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
PLACES = {"dpid": "00000000000000ff", "switch": "0xff", "slice": "research", "box": "b827eb-41c0a1"}


APP, APP_WITH_TOKENS = application(), application(Token("ops", "admin-token-0123456789", "admin"))


def address(rule: Rule) -> str:
    """Of something that may be there; an id that needs care."""

    def part(found: re.Match[str]) -> str:
        kind, _, name = found[1].rpartition(":")
        return PLACES.get(kind, "7" if rule.rule.startswith("/stats") else f"{name}%2Fparticipants")

    return re.sub(r"<([^>]+)>", part, rule.rule)


RULES = {rule.rule: address(rule) for rule in APP.url_map.iter_rules()}
ALLOWED = {place: {method for rule in APP.url_map.iter_rules() if rule.rule == place for method in rule.methods or ()}
           for place in RULES}  # fmt: skip
CALLS = [(RULES[place], method) for place in RULES for method in METHODS if method in ALLOWED[place]]
UNSAFE = [call for call in CALLS if call[1] not in READS]


def test_the_walk_goes_everywhere() -> None:
    assert len(RULES) > 60 and len(UNSAFE) > 25
    names = {place.split("/")[3] for place in RULES if place.startswith("/api/v1/")}
    assert names >= {
        "flows", "clients", "handovers", "ncasts", "sessions", "reservations", "access-rules", "plugins",
        "slices", "reload", "links",
    }  # fmt: skip


FOREIGN = [
    {"Origin": "http://evil.example"}, {"Origin": "https://localhost.evil.example"}, {"Origin": "null"},
    {"Origin": "http://localhost:81"}, {"Origin": "http://127.0.0.1"}, {"Origin": ""}, {"Origin": "http://"},
    {"Origin": "file://localhost"}, {"Origin": "http://localhost, http://evil.example"},
    {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost"},
]  # fmt: skip


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
@pytest.mark.parametrize("app", [APP, APP_WITH_TOKENS], ids=["without tokens", "with tokens"])
def test_no_endpoint_changes_anything_for_a_page_from_elsewhere(app: Flask, headers: dict[str, str]) -> None:
    for place, method in UNSAFE:
        for body in ({"json": {}}, {"data": b"", "content_type": "text/plain"}):
            answer = app.test_client().open(place, method=method, headers={**ADMIN, **headers}, **body)
            assert answer.status_code == 403, (place, method, answer.status)
            assert "web page" in answer.get_json()["detail"]


OWN = [{}, {"Origin": "http://localhost"}, {"Origin": "https://LOCALHOST"}, {"Sec-Fetch-Site": "same-origin"},
       {"Sec-Fetch-Site": "none"}]  # fmt: skip


@pytest.mark.parametrize("headers", OWN, ids=str)
def test_our_own_page_and_programs_get_through(headers: dict[str, str]) -> None:
    with pytest.raises(Reached):
        APP.test_client().post("/api/v1/plugins/x/enable", headers=headers)
    with pytest.raises(Reached):
        APP.test_client().get("/api/v1/plugins", headers={"Origin": "http://evil.example"})


def test_a_method_that_an_address_lacks_is_told_with_those_that_it_has() -> None:
    for place, at in RULES.items():
        for method in (*METHODS, "TRACE", "PROPFIND"):
            if method in ALLOWED[place]:
                continue
            answer = APP.test_client().open(at, method=method, json={} if method != "GET" else None)
            assert answer.status_code == 405, (at, method, answer.status)
            assert answer.content_type == "application/problem+json"
            assert set(answer.headers["Allow"].split(", ")) == ALLOWED[place], (at, method)


ADDRESSES = {
    "/api/v1/sessions/a%2Fparticipants%2Fb": ("DELETE", "remove"),
    "/api/v1/sessions/a/participants/b": ("DELETE", "leave"),
    "/api/v1/sessions/a/participants/b%2Fc": ("DELETE", "leave"),
    "/api/v1/sessions/a%2Fparticipants": ("GET", "document"),
    "/api/v1/flows/%252F%25": ("GET", "flow"),
    "/api/v1/clients/a%2Ftransition": ("GET", "document"),
}


@pytest.mark.parametrize("place", ADDRESSES)
def test_an_id_with_a_slash_is_no_other_resource(place: str) -> None:
    """Over HTTP, and from inside the controller."""
    method, reached = ADDRESSES[place]
    inside = Requests()
    inside.use(APP)
    with pytest.raises(Reached, match=f"^{reached}$"):
        APP.test_client().open(place, method=method)
    with pytest.raises(Reached, match=f"^{reached}$"):
        inside.ask(Token("plugin x", "", "admin"), method, place.removeprefix("/api/v1"))
    assert APP.test_client().get("/api/v1/flows/a/b").status_code == 404


def with_body() -> Iterator[tuple[str, str]]:
    """Whose requests have a body, as the document says."""
    document = APP.test_client().get("/api/v1/openapi.json").get_json()
    templates = {re.sub(r"<(?:[^:>]+:)?([^>]+)>", r"{\1}", place): at for place, at in RULES.items()}
    for place, operations in document["paths"].items():
        for method, operation in operations.items():
            if isinstance(operation, dict) and operation.get("requestBody", {}).get("required"):
                yield templates[place], method.upper()


BODIES = sorted(with_body())


def test_a_request_that_lacks_its_body_is_told_so() -> None:
    assert len(BODIES) > 10 and any(place.startswith("/api/v1/clients/") for place, _ in BODIES)
    for place, method in BODIES:
        for nothing in ({}, {"data": b"", "content_type": "application/json"}):
            answer = APP.test_client().open(place, method=method, **nothing)
            assert (answer.status_code, answer.get_json()["detail"]) == (400, "expected a body: a JSON object")
        for wrong in (b"null", b"[]", b"1", b'"x"', b"true"):
            answer = APP.test_client().open(place, method=method, data=wrong, content_type="application/json")
            assert answer.status_code == 422, (place, method, wrong, answer.status)


def test_only_ryus_filters_may_be_left_out() -> None:
    known = {(place, method) for place, method in UNSAFE if method in ("POST", "PUT", "PATCH")} - set(BODIES)
    assert {place for place, _ in known if place.startswith("/stats/")} == {"/stats/flow/7", "/stats/aggregateflow/7"}
    with pytest.raises(Reached):
        APP.test_client().post("/stats/flow/7")


HOSTILE = [b"9" * 4301, b"-" + b"9" * 4301, b"9" * 301, b"1e999", b"NaN", b'"\\ud800"', b'"\xed\xa0\x80"', b'"\xff"',
           b"[" * 60_000, b"{", b'"x"'.decode().encode("utf-16")]  # fmt: skip


def test_json_that_nobody_can_work_with_is_refused_everywhere() -> None:
    """Whether or not an endpoint wants a body, and wherever in it."""
    for place, method in UNSAFE:
        for value in HOSTILE:
            for body in (value, b'{"id": %b}' % value, b'{"match": {"a": [%b]}}' % value):
                answer = APP.test_client().open(place, method=method, data=body, content_type="application/json")
                assert answer.status_code == 400, (place, method, body[:40], answer.status)
                assert answer.content_type == "application/problem+json"


def test_numbers_and_characters_of_addresses_are_read_as_carefully() -> None:
    long = "9" * 5000
    for query in (f"limit={long}", f"cursor={long}", "cursor=%ED%A0%80", f"shortest={long}", "limit=%ED%A0%80"):
        for place in ("/api/v1/operations", "/api/v1/paths", "/api/v1/events"):
            answer = APP.test_client().get(f"{place}?{query}")
            assert answer.status_code == 422, (place, query[:20], answer.status)
    for place in (f"/stats/port/7/{long}", f"/stats/flow/{long}", f"/stats/flow/0x{long}"):
        assert APP.test_client().get(place).status_code == 422
