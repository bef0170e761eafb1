"""Steady UDP load on many flows of an emulated network from one process, started and stopped within milliseconds.

    python -m hyroads.mininet.udp_load          requests as lines of JSON on stdin, one line of answer each

    {"open": "f1", "source": "/proc/7/ns/net", "target": "/proc/9/ns/net", "to": "10.0.0.2", "port": 5401,
     "bytes": 1400}
    {"rate": "f1", "mbps": 20.0}                Mb/s of UDP payload; 0 stops it

Ten iperf3 processes would cost more than what they load. Sinks are sockets that nobody reads: the kernel drops what
does not fit, so that arriving packets cost nothing more; what arrived is counted by agents, medium and interfaces.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from .emulation import Emulation
from .isolation import udp_socket_in
from .programs import EmulationError

TICK_S = 0.002
# After a pause of the machine no more than this is made up for: a burst is no steady load.
MAX_ARREARS_S = 0.02
FIRST_PORT = 5401
PAYLOAD_BYTES = 1400
# With the headers of UDP and IPv4: what a plain frame costs on a link.
L2_BYTES = PAYLOAD_BYTES + 28
SINK_BUFFER_BYTES = 4096


class TrafficProcess:
    """A process that sends between hosts of an emulated network; a context manager. ``module`` takes requests as lines
    of JSON and gives one line of answer each, with an ``error`` if it could not; ``what`` names it in errors.
    """

    def __init__(self, emulation: Emulation, module: str, what: str) -> None:
        self._emulation, self._what = emulation, what
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def ends(self, source: str, target: str) -> dict[str, str]:
        """Of a request: the namespaces of two hosts, and the address to send to."""
        namespaces = (f"/proc/{self._emulation.node(node).pid}/ns/net" for node in (source, target))
        return dict(zip(("source", "target"), namespaces, strict=True), to=self._emulation.addressing.host_ip[target])

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer; EmulationError if there is none, or an error."""
        assert self._process.stdin is not None and self._process.stdout is not None  # noqa: S101 - made with pipes
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        except (OSError, ValueError) as error:
            raise EmulationError(f"{self._what} ended: {error}") from error
        if "error" in answer:
            raise EmulationError(f"{self._what}: {answer['error']}")
        return answer


class UdpLoad(TrafficProcess):
    """The process, as the demos use it."""

    def __init__(self, emulation: Emulation) -> None:
        super().__init__(emulation, "hyroads.mininet.udp_load", "UDP load")
        self._ports: dict[str, int] = {}

    def open(self, flow: str, source: str, target: str) -> None:
        """Prepares packets from the host of ``source`` to that of ``target``, all with one UDP port of their own."""
        port = self._ports.setdefault(flow, FIRST_PORT + len(self._ports))
        self.ask({"open": flow, **self.ends(source, target), "port": port, "bytes": PAYLOAD_BYTES})

    def set_rate(self, flow: str, mbps: float) -> float:
        """Sends so much from now on; returns the moment (seconds of CLOCK_MONOTONIC) at which it was asked for."""
        asked_s = time.monotonic()
        self.ask({"rate": flow, "mbps": mbps})
        return asked_s


@dataclass
class _Sender:
    """One flow in the process; ``credit_bytes`` is what is due."""

    outlet: socket.socket
    sink: socket.socket
    packet: bytes
    bytes_per_s: float = 0.0
    credit_bytes: float = 0.0

    def pay(self, elapsed_s: float) -> None:
        self.credit_bytes += self.bytes_per_s * min(elapsed_s, MAX_ARREARS_S)
        while self.credit_bytes >= len(self.packet):
            self.credit_bytes -= len(self.packet)
            # No route yet or no room: that packet is lost, as on any host.
            with contextlib.suppress(OSError):
                self.outlet.send(self.packet)


class _Worker:
    def __init__(self) -> None:
        self.senders: dict[str, _Sender] = {}
        self.commands = {"open": self.open, "rate": self.rate}

    def open(self, request: dict[str, Any]) -> None:
        sink = udp_socket_in(Path(request["target"]))
        sink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SINK_BUFFER_BYTES)
        sink.bind(("0.0.0.0", request["port"]))  # noqa: S104 - inside a node's own namespace
        source = udp_socket_in(Path(request["source"]))
        source.connect((request["to"], request["port"]))
        source.setblocking(False)
        self.senders[request["open"]] = _Sender(source, sink, bytes(request["bytes"]))

    def rate(self, request: dict[str, Any]) -> None:
        self.senders[request["rate"]].bytes_per_s = request["mbps"] * 1e6 / 8

    def answer(self, line: str) -> dict[str, Any]:
        try:
            request = json.loads(line)
            command = next(name for name in self.commands if name in request)
            self.commands[command](request)
            return {"ok": True}
        except (OSError, KeyError, ValueError, StopIteration) as error:
            return {"ok": False, "error": str(error)}

    def run(self) -> None:
        """Until stdin is closed."""
        before_s = time.monotonic()
        while True:
            busy = any(sender.bytes_per_s for sender in self.senders.values())
            if select.select([sys.stdin], [], [], TICK_S if busy else None)[0]:
                line = sys.stdin.readline()
                if not line:
                    return
                print(json.dumps(self.answer(line)), flush=True)
            now_s = time.monotonic()
            for sender in self.senders.values():
                sender.pay(now_s - before_s)
            before_s = now_s


if __name__ == "__main__":
    _Worker().run()
