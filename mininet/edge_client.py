"""Client of the control socket of `hyroads-edge`, the edge agent (docs/reference/dataplane.md, section 2).

Synchronous: one request, its answer. What the agent says by itself (links, pings, regular reports) is kept in `events`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from hyroads.controller.core.errors import HyroadsError
from hyroads.mininet.line_socket import LineClient

MAX_LINE_BYTES = 2 << 20


class EdgeError(HyroadsError):
    """The agent refused a request, or could not be reached."""


class EdgeClient(LineClient):
    """A connection to a running agent; usable as a context manager. `hello` is the agent's greeting."""

    what = "agent"
    failure = EdgeError
    max_line_bytes = MAX_LINE_BYTES

    def _greet(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._sequence = 0
        self.hello = self._read()

    def request(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Sends a message with the next number and gives its answer; raises EdgeError if the agent refuses it."""
        self._sequence += 1
        self._write({**message, "seq": self._sequence})
        answer = self._answer()
        if answer["type"] == "error":
            raise self._problem(answer["message"])
        return answer

    def configure(self, config: Mapping[str, Any]) -> dict[int, int]:
        """Makes this the agent's whole configuration (without `type` and `seq`).

        Gives the first number under the new paths of each flow whose paths in use changed.
        """
        return _first(self.request({"type": "config", **config}))

    def set_rates(
        self, rates: Mapping[int, Mapping[int, float | None]], fill: Mapping[int, Mapping[int, float]] | None = None
    ) -> dict[int, int]:
        """New rates in Mb/s at L2 payload, by flow number and path id; None is unshaped. `fill` is sent at least.

        Gives what `configure` gives.
        """
        return _first(self.request({"type": "rates", "rates": _texts(rates), "fill": _texts(fill or {})}))

    def reset_counters(self) -> None:
        """Sets all counters to zero."""
        self.request({"type": "reset-counters"})

    def stats(self) -> dict[str, Any]:
        """A report of all flows; the parts of a long one are put together."""
        report = self.request({"type": "stats"})
        part = report
        while part["more"]:
            part = self._answer()
            for key in ("ingress", "egress", "links"):
                report[key] += part[key]
        return report

    def subscribe(self, report_ms: int = 0, ping_ms: int = 0) -> None:
        """Asks for events (links going down or up), and for regular reports and pings if not 0."""
        self._write({"type": "welcome", "version": 1, "report_ms": report_ms, "ping_ms": ping_ms})

    def wait_event(self, kind: str, wait_s: float = 5.0) -> dict[str, Any]:
        """The next event of a type; raises EdgeError if there is none within `wait_s`."""
        deadline_s = time.monotonic() + wait_s
        while True:
            for at, event in enumerate(self.events):
                if event["type"] == kind:
                    return self.events.pop(at)
            if time.monotonic() >= deadline_s:
                raise self._problem(f"no {kind} within {wait_s:g} s")
            self.events.append(self._read())

    def _answer(self) -> dict[str, Any]:
        while True:
            message = self._read()
            if message.get("seq") == self._sequence and message["type"] in {"ok", "error", "report", "pong"}:
                return message
            self.events.append(message)

    def _write(self, message: Mapping[str, Any]) -> None:
        try:
            self._lines.write(json.dumps(message, separators=(",", ":")).encode())
        except OSError as error:
            raise self._problem(error) from error

    def _read(self) -> dict[str, Any]:
        try:
            message = json.loads(self._lines.read())
        except OSError as error:
            raise self._problem(error) from error
        if not isinstance(message, dict) or "type" not in message:
            raise self._problem("expected an object with a type")
        return message


def _first(answer: Mapping[str, Any]) -> dict[int, int]:
    return {int(flow): number for flow, number in answer.get("from", {}).items()}


def _texts(flows: Mapping[int, Mapping[int, Any]]) -> dict[str, dict[str, Any]]:
    return {str(flow): {str(path): value for path, value in paths.items()} for flow, paths in flows.items()}
