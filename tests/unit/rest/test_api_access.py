"""Who may ask what: loopback names without tokens, roles with them; problem documents; the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import pytest
from flask.testing import FlaskClient

from hyroads.rest.api import create_app
from hyroads.rest.contract import IDENTITY, NotConfirmedError, NotFoundError, Token

ADMIN, VIEWER = "admin-token-0123456789", "viewer-token-0123456789"


class Network:
    """The smallest service that keeps flows."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, Any]] = {}

    def flow_ids(self) -> list[str]:
        return list(self.kept)

    def flows(self, flows: Sequence[str]) -> list[dict[str, Any]]:
        return [self.kept[flow] for flow in flows]

    def flow_pending(self, flow: str) -> list[str]:
        return ["switch a"] if self.flow(flow)["id"] == "slow" else []

    def removal_pending(self, flow: str) -> list[str]:
        return []

    def flow(self, flow: str) -> dict[str, Any]:
        if flow not in self.kept:
            raise NotFoundError(f"no flow {flow!r}")
        return self.kept[flow]

    def declare_flow(self, document: Mapping[str, Any], *, wait: bool) -> tuple[dict[str, Any], bool]:
        new = document["id"] not in self.kept
        self.kept[document["id"]] = dict(document)
        if wait and document["id"] == "slow":
            raise NotConfirmedError("flow slow", ["switch a"])
        return dict(document), new

    def remove_flow(self, flow: str, *, wait: bool) -> None:
        del self.kept[flow]

    def topology_version(self) -> str:
        return "1"

    def topology(self) -> dict[str, Any]:
        raise ZeroDivisionError("inner detail")

    def netjson(self) -> dict[str, Any]:
        return {"type": "NetworkGraph"}

    def measurements(self) -> dict[str, Any]:
        return {}

    def health(self) -> dict[str, Any]:
        return {"ok": True}


@pytest.fixture
def defects() -> list[str]:
    return []


def client(defects: list[str], *tokens: Token) -> FlaskClient:
    app = create_app(Network(), tokens, on_defect=lambda where, error: defects.append(str(error)))
    return app.test_client()


FLOW = {"id": "f", "from": "a", "to": "b"}


def test_without_tokens_only_loopback_names_are_answered(defects: list[str]) -> None:
    web = client(defects)
    for host in ("localhost", "127.0.0.1:8080", "[::1]:8080", "[::1]"):
        assert web.get("/api/v1/health", headers={"Host": host}).status_code == 200
    for host in ("evil.example", "127.0.0.1.evil.example:8080", "10.0.0.1"):
        assert web.get("/api/v1/health", headers={"Host": host}).status_code == 403


def test_roles(defects: list[str]) -> None:
    web = client(defects, Token("ops", ADMIN, "admin"), Token("wall", VIEWER, "viewer"))
    answer = web.get("/api/v1/flows")
    assert answer.status_code == 401 and answer.headers["WWW-Authenticate"] == "Bearer"
    assert answer.content_type == "application/problem+json"
    for header in (f"Bearer {ADMIN}x", f"Basic {ADMIN}", "Bearer", f"Bearer {ADMIN[:-1]}"):
        assert web.get("/api/v1/flows", headers={"Authorization": header}).status_code == 401
    viewer, admin = ({"Authorization": f"Bearer {token}"} for token in (VIEWER, ADMIN))
    assert web.get("/api/v1/flows", headers=viewer).status_code == 200
    assert web.post("/api/v1/flows", json=FLOW, headers=viewer).status_code == 403
    assert web.post("/api/v1/flows", json=FLOW, headers=admin).status_code == 201
    assert web.delete("/api/v1/flows/f", headers=admin).status_code == 204


def test_who_asks_from_inside_the_controller_has_a_role_too(defects: list[str]) -> None:
    web = client(defects, Token("ops", ADMIN, "admin"))
    for role, status in (("viewer", 403), ("application", 201)):
        inside = {IDENTITY: Token("plugin x", "", role)}
        assert web.post("/api/v1/flows", json=FLOW, environ_overrides=inside).status_code == status
    for header in (IDENTITY, "Hyroads-Identity", "HTTP_HYROADS.IDENTITY"):
        assert web.get("/api/v1/flows", headers={header: "admin"}).status_code == 401


def test_problems_say_what_and_where(defects: list[str]) -> None:
    web = client(defects)
    problem = web.post("/api/v1/flows", json={**FLOW, "colour": 1, "weight": "heavy"})
    assert problem.status_code == 422 and problem.content_type == "application/problem+json"
    assert set(problem.get_json()["errors"]) == {"colour", "weight"}
    assert web.post("/api/v1/flows", data="{", content_type="application/json").status_code == 400
    assert web.post("/api/v1/flows", data="id=f", content_type="text/plain").status_code == 415
    assert web.post("/api/v1/flows", json={**FLOW, "weight": "5"}).status_code == 422
    assert web.post("/api/v1/flows", data="[" * 60_000, content_type="application/json").status_code == 400
    chunked = {"Transfer-Encoding": "chunked"}
    assert web.post("/api/v1/flows", headers=chunked, content_type="application/json").status_code == 411
    assert web.get("/api/v1/flows/nothing").get_json()["status"] == 404
    assert web.get("/api/v1/flows?limmit=3").get_json()["errors"] == {"limmit": ["Unknown field."]}
    assert defects == []


@pytest.mark.parametrize("flow", ["a/b", "/", "//x/", "fl\u00fc\u00df 1", "%2F", "?x=1#y", ".."])
def test_every_id_has_an_address(defects: list[str], flow: str) -> None:
    web = client(defects)
    assert web.post("/api/v1/flows", json={**FLOW, "id": flow}).status_code == 201
    address = f"/api/v1/flows/{quote(flow, safe='')}"
    assert web.get(address).get_json()["id"] == flow
    assert web.delete(address).status_code == 204
    assert web.get("/api/v1/flows").get_json()["flows"] == [] == defects


def test_defect_is_told_and_hidden(defects: list[str]) -> None:
    answer = client(defects).get("/api/v1/topology")
    assert answer.status_code == 500 and "inner detail" not in answer.get_data(as_text=True)
    assert defects == ["inner detail"]


def test_openapi_document_names_every_path(defects: list[str]) -> None:
    document = client(defects).get("/api/v1/openapi.json").get_json()
    assert document["openapi"].startswith("3.1")
    paths = {path.replace("/api/v1", "") for path in document["paths"]}
    assert {"/flows", "/flows/{flow}", "/topology", "/measurements", "/health"} <= paths
    assert set(document["components"]["schemas"]) >= {"FlowDeclaration", "Flow", "Problem"}
