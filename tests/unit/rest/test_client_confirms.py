"""The REST client: a flow that is not confirmed at once is waited for."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from hyroads.rest.client import Client, NotConfirmedError

BEGUN = {"id": "9", "what": "declare flow f", "resource": "/api/v1/flows/f", "state": "pending", "pending": ["agent b"],
         "reason": None}  # fmt: skip
FLOW = {"id": "f", "state": "multipath"}


class Controller(ThreadingHTTPServer):
    # Who does not fit into the queue is asked to come again after a second.
    request_queue_size = 64

    def __init__(self, *answers: tuple[int, Any]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = list(answers)
        self.asked: list[str] = []


class Handler(BaseHTTPRequestHandler):
    server: Controller
    wbufsize = -1

    def _any(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append(f"{self.command} {self.path}")
        status, document = self.server.answers.pop(0)
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(document, str) else "application/json")
        self.end_headers()
        self.wfile.write((document if isinstance(document, str) else json.dumps(document)).encode())

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


def client(controller: Controller, confirm_s: float = 30.0) -> Client:
    return Client(f"http://127.0.0.1:{controller.server_port}", tries=1, confirm_s=confirm_s, keep_alive=False)


def test_a_flow_that_is_not_confirmed_at_once_is_waited_for(controller: Controller) -> None:
    controller.answers = [(202, BEGUN), (200, BEGUN), (200, {**BEGUN, "state": "confirmed"}), (200, FLOW)]
    assert client(controller).change("POST", "/flows", {"id": "f"}) == FLOW
    assert controller.asked[1:] == ["GET /api/v1/operations/9"] * 2 + ["GET /api/v1/flows/f"]


def test_a_flow_that_fails_or_takes_too_long_is_an_error(controller: Controller) -> None:
    controller.answers = [(202, BEGUN), (200, {**BEGUN, "state": "failed", "reason": "it was removed"})]
    with pytest.raises(NotConfirmedError, match="it was removed"):
        client(controller).change("POST", "/flows", {"id": "f"})
    controller.answers = [(202, BEGUN)]
    with pytest.raises(NotConfirmedError, match="not confirmed by agent b"):
        client(controller, confirm_s=0.0).change("POST", "/flows", {"id": "f"})


def test_a_confirmed_flow_is_answered_at_once(controller: Controller) -> None:
    controller.answers = [(201, FLOW)]
    assert client(controller).change("POST", "/flows", {"id": "f"}) == FLOW


def test_threads_share_a_client_that_keeps_no_connection(controller: Controller) -> None:
    controller.answers = [(200, FLOW)] * 40
    shared = client(controller)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: shared.flow("f"), range(40))) == [FLOW] * 40


def test_metrics_are_read_by_name_and_labels(controller: Controller) -> None:
    controller.answers = [(200, '# TYPE a counter\na_total 3\nb{le="0.1"} 0.5\n')]
    assert client(controller).metrics() == {"a_total": 3.0, 'b{le="0.1"}': 0.5}
