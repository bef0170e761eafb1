"""A controller's resources ``slices`` and ``flowspace``: handed on to the slicer before it, with the principal's
token.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from controller_process import eventually
from flask.testing import FlaskClient
from slicer_lab import SlicerLab, slicer_lab

from hyroads.controller.api.views import slices_before
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.settings.controller import parse
from hyroads.controller.settings.rest import SlicerPlace
from hyroads.rest.api import create_app
from hyroads.rest.contract import Token
from hyroads.rest.slices import blueprints
from hyroads.slices.core.model import token_hash

ADMIN, ANN, VIEWER = (f"the token of {name} 0123456789" for name in ("ops", "ann", "wall"))
SLICES: list[dict[str, Any]] = [
    {"name": "lab", "owner_token_sha256": token_hash(ANN), "flowspace": [{"ports": ["p1"]}]},
    {"name": "red", "flowspace": [{"ports": ["p2"]}]},
]
TOKENS = [Token("ops", ADMIN, "admin"), Token("ann", ANN, "slice-owner"), Token("wall", VIEWER, "viewer")]


def controller(place: SlicerPlace | None) -> FlaskClient:
    return create_app(None, TOKENS, resources=blueprints(slices_before(place), switches=False)).test_client()


def ask(web: FlaskClient, token: str, method: str, path: str, document: Any = None) -> Any:
    headers = {"Authorization": f"Bearer {token}"}
    return web.open(f"/api/v1{path}", method=method, json=document, headers=headers)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[SlicerLab]:
    with slicer_lab(tmp_path, SLICES, api_tokens={"ops": {"token": ADMIN}}) as found:
        yield found


def test_the_slicer_answers_and_decides(lab: SlicerLab) -> None:
    web = controller(SlicerPlace(lab.url))
    assert {each["name"] for each in ask(web, ADMIN, "GET", "/slices").json["slices"]} == {"lab", "red", "production"}
    assert ask(web, ADMIN, "PUT", "/slices/blue", {}).json["added"] == ["blue"]
    assert ask(web, ADMIN, "POST", "/slices/blue/flowspace", {"ports": ["p3"]}).json["changed"] == ["blue"]
    assert [each["slice"] for each in ask(web, ANN, "GET", "/flowspace").json["flowspace"]] == ["lab"]
    assert {"name": "red"} in ask(web, ANN, "GET", "/slices").json["slices"]
    for method, path, status in (
        ("GET", "/slices/red", 403), ("DELETE", "/slices/red", 403), ("GET", "/slices/none", 404)
    ):  # fmt: skip
        answer = ask(web, ANN, method, path)
        assert (answer.status_code, answer.content_type) == (status, "application/problem+json"), path
    assert ask(web, ADMIN, "PUT", "/slices/new", {"flowspace": [{"ports": ["p2"]}]}).status_code == 409
    assert ask(web, VIEWER, "PUT", "/slices/new", {}).status_code == 403, "not even handed on"
    assert ask(web, VIEWER, "GET", "/slices").status_code == 401, "the slicer knows no such token"


def test_what_is_not_confirmed_is_an_operation_here_too(lab: SlicerLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hyroads.slices.server.slicer.CONFIRM_WITHIN_S", 0.1)
    switch = lab.switch(1)
    switch.hang()
    web = controller(SlicerPlace(lab.url))
    answer = ask(web, ADMIN, "POST", "/slices/red/flowspace", {"ports": ["p3"]})
    assert answer.status_code == 202 and answer.json["pending"] == ["switch 0x1"]
    switch.wake()
    path = answer.headers["Location"].removeprefix("/api/v1")
    assert eventually(lambda: ask(web, ADMIN, "GET", path).json["state"] == "confirmed")


def test_without_a_slicer_all_is_productions() -> None:
    web = controller(None)
    assert [each["name"] for each in ask(web, ADMIN, "GET", "/slices").json["slices"]] == ["production"]
    assert ask(web, ADMIN, "GET", "/slices/production").json["name"] == "production"
    assert ask(web, ADMIN, "GET", "/slices/red").status_code == 404
    assert ask(web, ADMIN, "GET", "/flowspace").json["flowspace"] == []
    refused = ask(web, ADMIN, "PUT", "/slices/red", {})
    assert refused.status_code == 409 and "setting slicer" in refused.json["detail"]


def test_a_slicer_that_is_gone() -> None:
    refused = ask(controller(SlicerPlace("http://127.0.0.1:1")), ADMIN, "GET", "/slices")
    assert refused.status_code == 503 and "slicer" in refused.json["detail"]


def test_tokens_go_no_further_than_this_machine_in_the_clear() -> None:
    def place(url: object) -> Any:
        return parse({"network": "n.yaml", "slicer": {"url": url}}, "here/c.yaml", {}).slicer

    assert place("http://127.0.0.1:8081") == SlicerPlace("http://127.0.0.1:8081")
    assert place("https://slicer.example:8081").url == "https://slicer.example:8081"
    for wrong in ("http://slicer.example:8081", "unix:/run/slicer", "https://a/b", 7, ""):
        with pytest.raises(ConfigError, match=r"slicer\.url"):
            place(wrong)
