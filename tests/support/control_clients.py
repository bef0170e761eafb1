"""What only tests and benchmarks ask of agents and of the medium, beside what `mininet/control_sockets.py` does."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from hyroads.mininet.control_sockets import EdgeClient, LineClient, MediumClient, MediumStats

Connection = TypeVar("Connection", bound=LineClient)


def connected(kind: type[Connection], path: str | Path, wait_s: float = 10.0) -> Connection:
    """A connection to a program that is just starting; raises if it does not answer within ``wait_s``."""
    deadline_s = time.monotonic() + wait_s
    while True:
        client = None
        try:
            client = kind(path)
            if isinstance(client, MediumControl):
                client.ping()
            return client
        except kind.failure:
            if client is not None:
                client.close()
            if time.monotonic() >= deadline_s:
                raise
            time.sleep(0.02)


def rate_mbps(stats: MediumStats, link: str) -> float:
    """Mean L2 payload rate that arrived over a link since the last reset."""
    return stats.links[link].bytes * 8e-6 / stats.elapsed_s if stats.elapsed_s > 0 else 0.0


class MediumControl(MediumClient):
    """A connection to the emulator, with all that may be asked of it."""

    def ping(self) -> None:
        """Return once the emulator has answered."""
        self._request({"op": "ping"})

    def reset(self) -> None:
        """Start all counters anew."""
        self._request({"op": "reset"})

    def set_uplink(self, port: str, to: str | None) -> None:
        """Send everything from `port` to the port `to`; None: by destination address."""
        self._request({"op": "uplink", "port": port, "to": to})


class AgentControl(EdgeClient):
    """A connection to an agent, with all that may be asked of it."""

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


def _first(answer: Mapping[str, Any]) -> dict[int, int]:
    return {int(flow): number for flow, number in answer.get("from", {}).items()}


def _texts(flows: Mapping[int, Mapping[int, Any]]) -> dict[str, dict[str, Any]]:
    return {str(flow): {str(path): value for path, value in paths.items()} for flow, paths in flows.items()}
