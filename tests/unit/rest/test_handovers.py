"""Handovers and n-casts over HTTP, on the services themselves."""

from __future__ import annotations

from typing import Any

import pytest
from flask.testing import FlaskClient
from handover_rig import Rig

from hyroads.rest import handovers, ncasts
from hyroads.rest.api import create_app

LTE = {"node": "x", "technology": "lte"}
BASE = "/api/v1"


class Web:
    def __init__(self) -> None:
        self.rig = Rig()
        self.defects: list[tuple[str, BaseException]] = []
        app = create_app(
            None,
            resources=[handovers.blueprint(self.rig.service), ncasts.blueprint(self.rig.ncasts)],
            on_defect=lambda where, error: self.defects.append((where, error)),
        )
        self.client: FlaskClient = app.test_client()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.client.open(BASE + path, method=method, json=body, base_url="http://localhost")
        assert not self.defects
        return answer


@pytest.fixture
def web() -> Web:
    return Web()


def test_a_handover_is_answered_when_its_flows_have_moved(web: Web) -> None:
    answer = web.ask("POST", "/handovers", {"client": "c", "to": LTE, "manager": "hard"})
    # It went by all places until its senders had confirmed that they go by this one alone.
    assert answer.status_code == 201 and answer.json["moved_after_s"] == pytest.approx(0.1) and answer.json["to"] == LTE
    assert answer.headers["Location"].endswith(answer.json["id"])
    web.rig.step()
    over = web.ask("GET", f"/handovers/{answer.json['id']}").json
    assert over["phase"] == "done" and over["over"] and over["moved_after_s"] == answer.json["moved_after_s"]
    assert web.ask("GET", "/handovers").json["handovers"] == [over]
    again = web.ask("POST", "/handovers", {"client": "c", "to": LTE})
    assert again.status_code == 409 and "already" in again.json["detail"]
    assert web.ask("DELETE", f"/handovers/{answer.json['id']}").status_code == 409


def test_one_that_fails_says_why(web: Web) -> None:
    answer = web.ask("POST", "/handovers", {"client": "c", "to": LTE, "timings": {"hold_s": 0.5}})
    assert answer.status_code == 201
    web.rig.after(0.6)
    document = web.ask("GET", f"/handovers/{answer.json['id']}").json
    assert document["phase"] == "failed" and "nothing came" in document["reason"]


def test_without_waiting_it_is_an_operation(web: Web) -> None:
    web.rig.link("xc-lte", False)
    answer = web.ask("POST", "/handovers?wait=false", {"client": "c", "to": LTE})
    assert answer.status_code == 202 and answer.json["state"] == "pending"
    name = answer.json["resource"].rsplit("/", 1)[-1]
    assert web.ask("DELETE", f"/handovers/{name}").json["phase"] == "failed"
    assert web.ask("GET", f"/operations/{answer.json['id']}").json["state"] == "failed"


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"client": "c"}, "to"),
        ({"client": "c", "to": {"node": "x"}}, "to.technology"),
        ({"client": "c", "to": LTE, "timings": {"hold_s": -1}}, "timings.hold_s"),
        ({"client": "c", "to": LTE, "timings": {"holds": 1}}, "timings.holds"),
        ({"client": "c", "to": LTE, "flows": []}, "flows"),
        ({"client": "c", "to": LTE, "manager": "best"}, "manager"),
        ({"client": "z", "to": LTE}, "client"),
    ],
)
def test_bad_requests_name_the_place(web: Web, body: dict[str, Any], place: str) -> None:
    answer = web.ask("POST", "/handovers", body)
    assert answer.status_code == 422 and place in answer.json["errors"]
    assert web.ask("GET", "/handovers").json["handovers"] == []


def test_nobody_knows_it(web: Web) -> None:
    for path in ("/handovers/x", "/ncasts/x"):
        for method in ("GET", "DELETE"):
            assert web.ask(method, path).status_code == 404


def test_ncast_over_http(web: Web) -> None:
    answer = web.ask("POST", "/ncasts", {"flow": "down", "copies": 3})
    assert answer.status_code == 201 and answer.json["phase"] == "copying"
    assert web.ask("GET", "/ncasts").json["ncasts"] == [answer.json]
    assert web.ask("POST", "/ncasts", {"flow": "down"}).status_code == 409
    assert web.ask("POST", "/ncasts", {"flow": "down", "copies": 9}).status_code == 422
    assert web.ask("DELETE", "/ncasts/down").status_code == 204  # markers do not come: after hold_s
    assert web.ask("GET", "/ncasts/down").status_code == 404
