"""A small client of the controller's REST interface, for the emulation's own use."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping
from typing import Any

from .programs import EmulationError

BASE = "/api/v1"
MAX_ANSWER_BYTES = 16 << 20
CONFIRMED_WITHIN_S = 30.0


class RestClient:
    """Requests to one controller; every failure is an EmulationError with the problem's own words."""

    def __init__(self, port: int = 8080, host: str = "127.0.0.1", timeout_s: float = 10.0) -> None:
        self._address = (host, port)
        self._timeout_s = timeout_s

    def request(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
        """The decoded answer (None if empty); raises EmulationError on any status of 400 and more."""
        status, text = self._exchange(method, BASE + path, body)
        try:
            document = json.loads(text) if text else None
        except ValueError as error:
            raise EmulationError(f"controller: {method} {path}: {error}") from error
        if status >= 400:
            detail = document.get("detail") if isinstance(document, dict) else None
            raise EmulationError(f"controller: {method} {path}: {status} {detail or ''}".rstrip())
        return document

    def metrics(self) -> dict[str, float]:
        """Prometheus' metrics: name with labels -> value."""
        status, text = self._exchange("GET", "/metrics")
        if status >= 400:
            raise EmulationError(f"controller: GET /metrics: {status}")
        rows = (line.rpartition(" ") for line in text.decode().splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in rows}

    def _exchange(self, method: str, path: str, body: Mapping[str, object] | None = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(*self._address, timeout=self._timeout_s)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, response.read(MAX_ANSWER_BYTES)
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise EmulationError(f"controller: {method} {path}: {error}") from error
        finally:
            connection.close()

    def healthy(self) -> bool:
        """Whether the controller answers and misses nothing."""
        try:
            return bool(self.request("GET", "/health")["ok"])
        except EmulationError:
            return False

    def flow(self, flow: str) -> dict[str, Any]:
        """One flow."""
        answer: dict[str, Any] = self.request("GET", f"/flows/{flow}")
        return answer

    def add_flow(self, flow: Mapping[str, object]) -> dict[str, Any]:
        """Declares a flow and waits until it is in force."""
        answer: dict[str, Any] = self.request("POST", "/flows", flow)
        if "resource" not in answer:
            return answer
        # A busy machine: what was accepted is an operation until it is confirmed.
        deadline_s = time.monotonic() + CONFIRMED_WITHIN_S
        while answer["state"] == "pending" and time.monotonic() < deadline_s:
            time.sleep(0.1)
            answer = self.request("GET", f"/operations/{answer['id']}")
        if answer["state"] != "confirmed":
            waiting = ", ".join(answer["pending"])
            raise EmulationError(f"controller: {answer['what']}: {answer['reason'] or f'not confirmed by {waiting}'}")
        return self.flow(str(flow["id"]))

    def measurements(self) -> dict[str, Any]:
        """The latest reports of the agents."""
        answer: dict[str, Any] = self.request("GET", "/measurements")
        return answer
