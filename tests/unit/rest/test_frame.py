"""The frame of the API: idempotency keys, operations, pages, roles and limits."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import pytest
from flask import jsonify
from flask.testing import FlaskClient
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core import token_bucket
from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.token_bucket import Buckets, Limit
from hyroads.rest import access, operations
from hyroads.rest import resource as paging
from hyroads.rest.api import create_app
from hyroads.rest.contract import ConflictError, NotConfirmedError, NotFoundError, StoreAwayError, Token
from hyroads.rest.operations import accepted
from hyroads.rest.resource import Resource

FLOW = {"id": "f", "from": "a", "to": "b"}


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Flows:
    """The part of a service that has flows, with switches that confirm when told to."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, Any]] = {}
        self.declared = 0
        self.missing: list[str] = []
        self.refused: str | None = None

    def flow_ids(self) -> list[str]:
        return list(self.kept)

    def flows(self, flows: Sequence[str]) -> list[dict[str, Any]]:
        return [self.kept[flow] for flow in flows]

    def flow(self, flow: str) -> dict[str, Any]:
        if flow not in self.kept:
            raise NotFoundError(f"no flow {flow!r}")
        return self.kept[flow]

    def declare_flow(self, document: Mapping[str, Any], *, wait: bool) -> tuple[dict[str, Any], bool]:
        new = document["id"] not in self.kept
        if not new and self.kept[document["id"]] != document:
            raise ConflictError("exists")
        self.declared += 1
        self.kept[document["id"]] = dict(document)
        if wait and self.missing:
            raise NotConfirmedError("flow", self.missing)
        return dict(document), new

    def flow_pending(self, flow: str) -> list[str]:
        self.flow(flow)
        if self.refused is not None:
            raise StoreAwayError(self.refused)
        return self.missing

    def remove_flow(self, flow: str, *, wait: bool) -> None:
        self.flow(flow)
        del self.kept[flow]

    def removal_pending(self, flow: str) -> list[str]:
        if flow in self.kept:
            raise ConflictError("declared again")
        return self.missing


class Web:
    def __init__(self, *tokens: Token, resources: Sequence[Resource] = (), **more: Any) -> None:
        self.flows, self.clock = Flows(), Clock()
        self.defects: list[BaseException] = []
        app = create_app(
            self.flows,  # type: ignore[arg-type]
            tokens,
            resources=resources,
            clock=self.clock,
            on_defect=lambda where, error: self.defects.append(error),
            **more,
        )
        self.client: FlaskClient = app.test_client()

    def post(self, body: Any = FLOW, key: str | None = None, query: str = "", **headers: str) -> Any:
        given = {**headers, **({"Idempotency-Key": key} if key is not None else {})}
        return self.client.post(f"/api/v1/flows{query}", json=body, headers=given)


# -- idempotency


def test_a_key_does_a_thing_once() -> None:
    web = Web()
    first, again = web.post(key="k"), web.post(key="k")
    assert first.status_code == again.status_code == 201 and web.flows.declared == 1
    assert first.get_data() == again.get_data() and first.headers["Location"] == again.headers["Location"]
    assert "Idempotent-Replayed" not in first.headers and again.headers["Idempotent-Replayed"] == "true"
    other = web.post({**FLOW, "weight": 2.0}, key="k")
    assert other.status_code == 422 and web.post(key="k", query="?wait=false").status_code == 422
    assert web.post(key="other").status_code == 200


def test_what_failed_is_not_remembered() -> None:
    web = Web()
    web.post()
    refused = web.post({**FLOW, "weight": 2.0}, key="k")
    assert refused.status_code == 409
    web.client.delete("/api/v1/flows/f")
    assert web.post({**FLOW, "weight": 2.0}, key="k").status_code == 201
    assert web.post({"id": 3}, key="x").status_code == 422 and web.post(key="x").status_code == 409


def test_keys_belong_to_a_token_and_expire() -> None:
    tokens = [Token(name, f"{name}-0123456789abcdef", "admin") for name in ("one", "two")]
    web = Web(*tokens)
    one, two = ({"Authorization": f"Bearer {token.token}"} for token in tokens)
    assert web.post(key="k", **one).status_code == 201
    assert web.post({**FLOW, "id": "g"}, key="k", **two).status_code == 201
    assert web.post({**FLOW, "id": "g"}, key="k", **one).status_code == 422
    web.clock.now_s += operations.REPLY_LIFETIME_S + 1
    assert web.post({**FLOW, "id": "h"}, key="k", **one).status_code == 201


@pytest.mark.parametrize("key", ["", "x" * 129, "a\tb", "\u00fc"])
def test_keys_are_bounded(key: str) -> None:
    assert Web().post(key=key).status_code == 400


def test_a_request_under_way_is_not_begun_again() -> None:
    web = Web()
    seen: list[int] = []
    declare = web.flows.declare_flow

    def slow(document: Mapping[str, Any], *, wait: bool) -> tuple[dict[str, Any], bool]:
        if not seen:
            seen.append(0)
            seen.append(web.post(key="k").status_code)
        return declare(document, wait=wait)

    web.flows.declare_flow = slow  # type: ignore[method-assign]
    assert web.post(key="k").status_code == 201 and seen == [0, 409] and web.flows.declared == 1


def test_the_store_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "MAX_REPLIES", 3)
    web = Web()
    for number in range(5):
        assert web.post({**FLOW, "id": f"f{number}"}, key=f"k{number}").status_code == 201
    assert web.post({**FLOW, "id": "f4"}, key="k4").headers.get("Idempotent-Replayed")
    assert web.post({**FLOW, "id": "f0"}, key="k0").status_code == 200
    monkeypatch.setattr(operations, "MAX_REPLIES_BYTES", 10)
    assert web.post({**FLOW, "id": "g"}, key="g").status_code == 201
    assert web.post({**FLOW, "id": "g"}, key="g").status_code == 200


def test_keys_of_one_token_do_not_evict_those_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """In number and in bytes."""
    monkeypatch.setattr(operations, "MAX_REPLIES", 40)
    monkeypatch.setattr(operations, "MAX_REPLIES_BYTES", 4000)
    tokens = [Token(name, f"{name}-0123456789abcdef", "admin") for name in ("one", "two")]
    web = Web(*tokens)
    one, two = ({"Authorization": f"Bearer {token.token}"} for token in tokens)
    assert web.post(key="mine", **one).status_code == 201
    for number in range(50):
        assert web.post({**FLOW, "id": f"f{number}"}, key=f"k{number}", **two).status_code == 201
    again = web.post(key="mine", **one)
    assert again.status_code == 201 and again.headers["Idempotent-Replayed"] == "true" and web.flows.declared == 51
    # The oldest of the token that sent too many are forgotten.
    assert web.post({**FLOW, "id": "f0"}, key="k0", **two).status_code == 200


# -- operations


def test_an_operation_comes_to_an_end_and_stays_there() -> None:
    web = Web()
    web.flows.missing = ["switch a"]
    answer = web.post(query="?wait=false")
    assert answer.status_code == 202 and answer.get_json()["resource"] == "/api/v1/flows/f"
    address = answer.headers["Location"]
    assert address == f"/api/v1/operations/{answer.get_json()['id']}"
    pending = web.client.get(address).get_json()
    assert (pending["state"], pending["pending"], pending["finished_s"]) == ("pending", ["switch a"], None)
    web.flows.missing = []
    assert web.client.get(address).get_json()["state"] == "confirmed"
    web.flows.missing = ["switch a"]
    done = web.client.get(address).get_json()
    assert done["state"] == "confirmed" and done["pending"] == [] and done["finished_s"] == web.clock.now_s
    assert [one["id"] for one in web.client.get("/api/v1/operations").get_json()["operations"]] == [done["id"]]
    assert web.client.get("/api/v1/operations/0000").status_code == 404


def test_what_is_not_confirmed_in_time_becomes_an_operation() -> None:
    web = Web()
    web.flows.missing = ["agent b"]
    answer = web.post()
    assert answer.status_code == 202 and answer.get_json()["pending"] == ["agent b"]
    web.client.delete("/api/v1/flows/f")
    failed = web.client.get(answer.headers["Location"]).get_json()
    assert failed["state"] == "failed" and "no flow" in failed["reason"]


def test_removals_are_operations_too() -> None:
    web = Web()
    web.post()
    web.flows.missing = ["switch a"]
    answer = web.client.delete("/api/v1/flows/f?wait=false")
    assert answer.status_code == 202 and answer.get_json()["state"] == "pending"
    web.flows.missing = []
    web.post()
    assert web.client.get(answer.headers["Location"]).get_json()["state"] == "failed"


def test_of_several_controllers_none_accepts_what_is_not_saved() -> None:
    web, steps = Web(saved=lambda: steps.append("saved")), []
    web.flows.missing = ["etcd"]
    assert web.post(query="?wait=false").status_code == 202 and steps == ["saved"]
    web.flows.refused = "etcd does not answer; it was taken back"
    for answer in (web.post({**FLOW, "id": "g"}, query="?wait=false", key="k"), web.post({**FLOW, "id": "h"})):
        assert answer.status_code == 503 and answer.headers["Retry-After"] == "1"
        assert "taken back" in answer.get_json()["detail"]
    assert len(web.client.get("/api/v1/operations").get_json()["operations"]) == 1
    web.flows.refused = None
    # The key is free again.
    assert web.post({**FLOW, "id": "g"}, query="?wait=false", key="k").status_code == 202

    def away() -> None:
        raise StoreAwayError("etcd does not answer: what was asked for may be saved or not")

    web = Web(saved=away)
    assert web.post(query="?wait=false").status_code == 503


def test_operations_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "MAX_OPERATIONS", 3)
    web = Web()
    addresses = [web.post(query="?wait=false").headers["Location"] for _ in range(5)]
    assert [web.client.get(address).status_code for address in addresses] == [404, 404, 200, 200, 200]


def test_other_resources_answer_with_operations() -> None:
    things = Resource("things", url_prefix="/api/v1/things")

    def refuse() -> list[str]:
        raise HyroadsError("the client refused")

    @things.post("")
    def begin() -> Any:
        return accepted("begin", None, refuse)

    answer = Web(resources=[things]).client.post("/api/v1/things")
    assert answer.status_code == 202 and answer.get_json()["reason"] == "the client refused"


# -- pages


def listed(web: Web, limit: int, between: Callable[[int], None] = lambda number: None) -> list[str]:
    address: str | None = f"/api/v1/flows?limit={limit}"
    seen: list[str] = []
    number = 0
    while address is not None:
        answer = web.client.get(address)
        assert answer.status_code == 200, answer.get_json()
        document = answer.get_json()
        assert len(document["flows"]) <= limit and (document["next"] is None or document["flows"])
        assert document["next"] is None or f"<{document['next']}>" in answer.headers["Link"]
        seen += [flow["id"] for flow in document["flows"]]
        address = document["next"]
        between(number)
        number += 1
        assert number < 200
    return seen


@pytest.fixture(scope="module")
def web() -> Web:
    """One for all examples: making it takes longer than asking it."""
    return Web()


@given(st.lists(st.text("ab/ü ", min_size=1, max_size=4), unique=True, max_size=30), st.integers(1, 12))
def test_pages_together_are_the_list(web: Web, ids: list[str], limit: int) -> None:
    web.flows.kept = {one: {"id": one} for one in ids}
    assert listed(web, limit) == ids


@given(st.data(), st.integers(5, 30), st.integers(3, 8))
def test_items_that_stay_are_seen_once_whatever_comes_and_one_goes_at_a_time(
    web: Web, data: st.DataObject, count: int, limit: int
) -> None:
    web.flows.kept = {f"f{number}": {"id": f"f{number}"} for number in range(count)}
    start = set(web.flows.kept)

    def between(number: int) -> None:
        web.flows.kept.pop(data.draw(st.sampled_from([*web.flows.kept, "nothing"])), None)
        web.flows.kept[f"new{number}"] = {"id": f"new{number}"}
        if number > 40:
            web.flows.kept.clear()

    seen = listed(web, limit, between)
    assert len(seen) == len(set(seen))
    assert start & set(web.flows.kept) <= set(seen)


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=x", "cursor=x", "cursor=W10", "cursor=WyJhIl0", "cursor="]
)
def test_wrong_pages_are_refused(query: str) -> None:
    answer = Web().client.get(f"/api/v1/flows?{query}")
    assert answer.status_code == 422 and set(answer.get_json()["errors"]) <= {"limit", "cursor"}


@given(st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=4)))
def test_any_cursor_is_answered(web: Web, value: Any) -> None:
    web.flows.kept = {"f": {"id": "f"}}
    cursor = base64.urlsafe_b64encode(json.dumps(value).encode()).decode()
    assert web.client.get("/api/v1/flows", query_string={"cursor": cursor}).status_code in (200, 422)
    assert web.defects == []


def test_next_keeps_the_other_parameters() -> None:
    things = Resource("things", url_prefix="/api/v1/things")

    @things.get("")
    def some() -> Any:
        return paging.pages("things", [{"id": "a"}, {"id": "b"}], {"limit": 1, "cursor": None})

    address = Web(resources=[things]).client.get("/api/v1/things?kind=x%26y&limit=1").get_json()["next"]
    assert urlsplit(address).query.startswith("kind=x%26y&limit=1&cursor=")


# -- roles and limits

TOKENS = [Token(role, f"{role}-0123456789abcdef", role) for role in access.WRITES]


RESOURCES = (
    "handovers", "ncasts", "sessions", "reservations", "access-rules", "slices", "flowspace", "plugins", "links",
)  # fmt: skip


def everything() -> list[Resource]:
    """A resource of each name that matters, which may be read and changed."""
    found = []
    for name in RESOURCES:
        resource = Resource(f"test-{name}", url_prefix=f"/api/v1/{name}/test")
        resource.route("", methods=["GET", "POST", "PUT", "DELETE"])(lambda: jsonify({}))
        found.append(resource)
    return found


ALLOWED = {
    "admin": {"flows", *RESOURCES},
    "application": {"flows", "handovers", "ncasts", "sessions", "reservations", "access-rules"},
    "slice-owner": {"slices", "flowspace", "opt-ins"},
    "user": {"opt-ins"},
    "viewer": set(),
}


@pytest.mark.parametrize("role", access.WRITES)
def test_roles_change_what_they_may_and_read_everything(role: str) -> None:
    web = Web(*TOKENS, resources=everything())
    principal = {"Authorization": f"Bearer {role}-0123456789abcdef"}
    for name in ALLOWED["admin"]:
        address = f"/api/v1/{name}" if name == "flows" else f"/api/v1/{name}/test"
        assert web.client.get(address, headers=principal).status_code == 200
        refused = name not in ALLOWED[role]
        for method in ("POST", "DELETE", "PUT"):
            answer = web.client.open(address, method=method, headers=principal)
            assert (answer.status_code == 403) == refused, (role, name, method)
    assert web.client.post("/stats/flow/1", headers=principal).status_code == 404


def test_the_document_and_its_page_need_no_token() -> None:
    web = Web(*TOKENS)
    assert web.client.get("/api/v1/openapi.json").status_code == 200
    assert web.client.get("/api/v1/flows").status_code == 401
    assert web.client.get("/metrics").status_code == 401


def test_too_many_requests_are_refused_for_each_token() -> None:
    web = Web(*TOKENS, limit=Limit(per_s=1e-3, burst=3))
    admin, viewer = ({"Authorization": f"Bearer {role}-0123456789abcdef"} for role in ("admin", "viewer"))
    assert [web.client.get("/api/v1/flows", headers=admin).status_code for _ in range(4)] == [200, 200, 200, 429]
    answer = web.client.get("/api/v1/flows", headers=admin)
    assert int(answer.headers["Retry-After"]) >= 1 and answer.content_type == "application/problem+json"
    assert web.client.get("/api/v1/flows", headers=viewer).status_code == 200


def test_strangers_may_not_guess_for_long() -> None:
    web = Web(*TOKENS)
    wrong = {"Authorization": "Bearer x"}
    assert {web.client.get("/api/v1/flows", headers=wrong).status_code for _ in range(100)} == {401, 429}
    right = {"Authorization": "Bearer admin-0123456789abcdef"}
    assert web.client.get("/api/v1/flows", headers=right).status_code == 200


@given(st.lists(st.floats(0, 5), min_size=1, max_size=200), st.floats(0.5, 50), st.floats(1, 20))
def test_a_bucket_lets_through_what_its_rate_allows(gaps_s: list[float], per_s: float, burst: float) -> None:
    buckets, now_s, through = Buckets(Limit(per_s, burst)), 0.0, 0
    for gap_s in gaps_s:
        now_s += gap_s
        wait_s = buckets.take("x", now_s)
        through += not wait_s
        assert through <= burst + per_s * now_s + 1e-6
        if wait_s:
            assert Buckets(Limit(per_s, burst)).take("y", now_s) == 0.0
            # Who waits as long as it was told gets through.
            now_s += wait_s * (1 + 1e-9) + 1e-9
            assert buckets.take("x", now_s) == 0.0
            through += 1


def test_buckets_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_bucket, "MAX_BUCKETS", 2)
    buckets = Buckets(Limit(1e-3, 1))
    assert [buckets.take(name, 0.0) > 0 for name in ("a", "b", "b", "a", "c", "b")] == [
        False, False, True, True, False, False,
    ]  # fmt: skip


# -- document and page


def test_the_document_says_what_holds_for_all_endpoints() -> None:
    document = Web().client.get("/api/v1/openapi.json").get_json()
    declare = document["paths"]["/api/v1/flows"]["post"]
    assert {"201", "202", "409", "401", "403", "413", "415", "422", "429"} <= set(declare["responses"])
    assert list(declare["responses"]["422"]["content"]) == ["application/problem+json"]
    assert {"name": "Idempotency-Key", "in": "header"}.items() <= declare["parameters"][-1].items()
    assert "default" not in declare["responses"]
    names = [operation["operationId"] for path in document["paths"].values() for operation in path.values()
             if isinstance(operation, dict)]  # fmt: skip
    assert len(names) == len(set(names)) > 10


def test_the_page_needs_nothing_from_elsewhere() -> None:
    page = Web().client.get("/api/v1/docs")
    text = page.get_data(as_text=True)
    assert page.status_code == 200
    assert "http://" not in text and "https://" not in text
    assert {"default-src 'none'", "script-src 'self'"} <= set(page.headers["Content-Security-Policy"].split("; "))
    parts = re.findall(r'(?:src|href)="([^"]+)"', text)
    assert len(parts) == 4
    for part in parts:
        answer = Web().client.get(f"/api/v1/{part}")
        assert answer.status_code == 200 and len(answer.data) > 50, part
    assert "openapi.json" in Web().client.get("/api/v1/docs/start.js").get_data(as_text=True)
    for other in ("swagger-ui.js", "../docs.py", "..%2f__init__.py", "LICENSE"):
        assert Web().client.get(f"/api/v1/docs/{other}").status_code == 404
