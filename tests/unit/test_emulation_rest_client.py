"""The emulation's REST client: a flow that is not confirmed at once is waited for."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from hyroads.mininet import rest_client
from hyroads.mininet.programs import EmulationError
from hyroads.mininet.rest_client import RestClient

BEGUN = {"id": "9", "what": "declare flow f", "resource": "/api/v1/flows/f", "state": "pending", "pending": ["agent b"],
         "reason": None}  # fmt: skip
FLOW = {"id": "f", "state": "multipath"}


class Controller(HTTPServer):
    def __init__(self, *answers: tuple[int, Any]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = list(answers)
        self.asked: list[str] = []


class Handler(BaseHTTPRequestHandler):
    server: Controller

    def _any(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append(f"{self.command} {self.path}")
        status, document = self.server.answers.pop(0)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(document).encode())

    do_GET = do_POST = _any

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def controller() -> Iterator[Controller]:
    server = Controller()
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_a_flow_that_is_not_confirmed_at_once_is_waited_for(controller: Controller) -> None:
    controller.answers = [(202, BEGUN), (200, BEGUN), (200, {**BEGUN, "state": "confirmed"}), (200, FLOW)]
    assert RestClient(controller.server_port).add_flow({"id": "f"}) == FLOW
    assert controller.asked[1:] == ["GET /api/v1/operations/9"] * 2 + ["GET /api/v1/flows/f"]


def test_a_flow_that_fails_or_takes_too_long_is_an_error(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller.answers = [(202, BEGUN), (200, {**BEGUN, "state": "failed", "reason": "it was removed"})]
    with pytest.raises(EmulationError, match="it was removed"):
        RestClient(controller.server_port).add_flow({"id": "f"})
    monkeypatch.setattr(rest_client, "CONFIRMED_WITHIN_S", 0.0)
    controller.answers = [(202, BEGUN)]
    with pytest.raises(EmulationError, match="not confirmed by agent b"):
        RestClient(controller.server_port).add_flow({"id": "f"})


def test_a_confirmed_flow_is_answered_at_once(controller: Controller) -> None:
    controller.answers = [(201, FLOW)]
    assert RestClient(controller.server_port).add_flow({"id": "f"}) == FLOW
