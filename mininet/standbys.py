"""Several controllers of an emulated network from outside: which one leads, whom devices obey, what they have."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.model.pending_names import agent_name, switch_name
from hyroads.rest.client import Client, ClientError

from .control_sockets import EdgeClient
from .emulation import Emulation, controller_name, controller_ports
from .programs import Program, wait_until

# A controller that starts has its devices connected within a few seconds: they dial it again.
WARM_S = 40.0
POLL_S = 0.002
_ASK_S = 1.0


class Standbys:
    """The controllers of ``emulation`` by name, and what is asked of them and of the devices."""

    def __init__(self, emulation: Emulation) -> None:
        self.emulation = emulation
        self.programs = {controller_name(number): program for number, program in enumerate(emulation.controllers)}
        self.urls = dict(zip(self.programs, emulation.rest_urls, strict=True))

    def client(self, name: str, **more: Any) -> Client:
        """A client of one controller alone, which asks once."""
        return Client(self.urls[name], **{"tries": 1, "timeout_s": _ASK_S, **more})

    def anybody(self, **more: Any) -> Client:
        """A client as applications have: it goes on with another controller."""
        return Client(list(self.urls.values()), **more)

    def told(self, name: str) -> dict[str, Any] | None:
        """What a controller says of itself and the others; None if it does not answer."""
        with suppress(ClientError), self.client(name) as client:
            return client.get("/ha")
        return None

    def leader(self) -> str:
        """The name of the one that leads by its own word; EmulationError if nobody does for ten seconds."""
        found: list[str] = []

        def leads() -> bool:
            found[:] = [name for name in self.programs if (self.told(name) or {}).get("role") == "leader"]
            return len(found) == 1

        wait_until("one leader", leads, 10.0)
        return found[0]

    def wait_warm(self, timeout_s: float = WARM_S) -> None:
        """Waits until all controllers run, one leads, and each could at once."""
        self.emulation.wait_ready(timeout_s)

    # Devices

    def epoch(self) -> int:
        """The epoch that all agents obey: the least of those that they name."""
        return min(self._epoch_of(node) for node in self.emulation.agents())

    def _epoch_of(self, node: str) -> int:
        try:
            with EdgeClient(self.emulation.directory / f"edge-{node}.sock", timeout_s=_ASK_S) as agent:
                return int(agent.hello.get("epoch", 0))
        except HyroadsError:
            return 0

    def await_epoch(self, above: int, timeout_s: float) -> float:
        """The moment (CLOCK_MONOTONIC) from which all agents obey a greater epoch than ``above``."""
        wait_until(f"a leader after epoch {above}", lambda: self.epoch() > above, timeout_s, interval_s=POLL_S)
        return time.monotonic()

    def devices(self) -> dict[str, Any]:
        """What switches and agents have: rules, revisions, and the flows that agents send."""
        found: dict[str, Any] = {}
        for node in self.emulation.addressing.dpid:
            rules = self.emulation.node(node).dpctl("dump-flows", "--no-stats").splitlines()
            found[switch_name(node)] = sorted(rule.strip() for rule in rules if "cookie" in rule)
        for node in self.emulation.agents():
            agent = self.emulation.agent_report(node)
            found[agent_name(node)] = [agent["revision"], sorted(flow["number"] for flow in agent["ingress"])]
        return found

    # Faults

    def kill(self, name: str) -> float:
        """SIGKILL; returns when."""
        return self._signal(name, signal.SIGKILL)

    @contextmanager
    def frozen(self, name: str) -> Iterator[float]:
        """SIGSTOP, and SIGCONT at the end; gives when."""
        try:
            yield self._signal(name, signal.SIGSTOP)
        finally:
            self._signal(name, signal.SIGCONT)

    def _signal(self, name: str, number: signal.Signals) -> float:
        moment_s = time.monotonic()
        self.programs[name].kill(number)
        return moment_s

    @contextmanager
    def asked_unheard(self, name: str, body: bytes) -> Iterator[None]:
        """A frozen controller is asked for a flow, which it will only read when it goes on."""
        number = list(self.programs).index(name)
        head = "POST /api/v1/flows HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        with socket.create_connection(("127.0.0.1", controller_ports(number)["rest"]), timeout=_ASK_S) as connection:
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            yield

    def restart(self, name: str) -> Program:
        """Starts one that has ended."""
        self.programs[name].start()
        return self.programs[name]
