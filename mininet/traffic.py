"""Real traffic between nodes of an emulated network: iperf3, the stream of ``probe``, and what agents count."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .emulation import Emulation
from .probe import StreamReport, report
from .programs import EmulationError

TICK_S = 0.5
# After its time is up iperf3 still exchanges results with its server over the loaded network.
GRACE_S = 20.0
# More than any demo takes.
LOAD_S = 86_400
UDP_PAYLOAD_BYTES = 1400
Tick = Callable[[], None]


@dataclass(frozen=True)
class Goodput:
    """What arrived: ``mbps`` of payload (UDP or TCP) over the measured time, per-second figures where known."""

    mbps: float
    retransmits: int
    per_second_mbps: tuple[float, ...]
    rtt_ms: float | None = None
    """Mean round-trip time as the sender's TCP saw it, over all connections."""


def has_congestion_control(algorithm: str) -> bool:
    """Whether this kernel has a TCP congestion control, or a module of it that can be loaded."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, algorithm.encode())
        except FileNotFoundError:
            return False
    return True


class Traffic:
    """Runs traffic from ``source`` to ``target``; ``tick`` is called while it runs."""

    def __init__(self, emulation: Emulation, source: str, target: str, tick: Tick) -> None:
        self._emulation = emulation
        self._source = source
        self._target = target
        self._tick = tick
        self._address = emulation.addressing.host_ip[target]
        self._port = 5201

    def tcp(self, seconds: float, algorithm: str, connections: int = 1) -> Goodput:
        """TCP under a congestion control; goodput at the receiver after one second of start-up."""
        several = ["--parallel", str(connections)] if connections > 1 else []
        document = self._iperf(seconds, ["--omit", "1", "--congestion", algorithm, *several])
        end = document["end"]
        rtts_us = [stream["sender"].get("mean_rtt", 0) for stream in end["streams"]]
        return Goodput(
            mbps=end["sum_received"]["bits_per_second"] / 1e6,
            retransmits=end["sum_sent"].get("retransmits", 0),
            per_second_mbps=_intervals(document),
            rtt_ms=sum(rtts_us) / max(1, len(rtts_us)) / 1e3 or None,
        )

    def udp(self, seconds: float, offered_mbps: float, started: Callable[[], None] = lambda: None) -> Goodput:
        """UDP of constant rate; ``started`` is called when it has run for a second."""
        document = self._iperf(
            seconds, ["--udp", "--bitrate", f"{offered_mbps}M", "--length", str(UDP_PAYLOAD_BYTES)], started
        )
        # The receiver's own account: what the sender pushed into a full queue did not arrive.
        total = document["end"]["sum"]
        lost_share = total["lost_percent"] / 100
        return Goodput(
            mbps=total["bits_per_second"] / 1e6 * (1 - lost_share),
            retransmits=0,
            per_second_mbps=(),
        )

    def _iperf(self, seconds: float, arguments: list[str], started: Callable[[], None] = lambda: None) -> Any:
        self._port += 1
        port = ["--port", str(self._port)]
        server = self._popen(self._target, ["iperf3", "--server", "--one-off", *port], subprocess.DEVNULL)
        try:
            self._await_listening()
            client = self._popen(
                self._source,
                ["iperf3", "--client", self._address, *port, "--time", f"{seconds:.0f}", "--json", *arguments],
                subprocess.PIPE,
            )
            output = self._attend(client, seconds + GRACE_S, started)
        finally:
            server.kill()
            server.wait()
        try:
            document = json.loads(output)
        except ValueError as error:
            raise EmulationError(f"iperf3 from {self._source} to {self._target}: no result") from error
        if "error" in document:
            raise EmulationError(f"iperf3 from {self._source} to {self._target}: {document['error']}")
        return document

    def stream(self, seconds: float, interval_s: float, size: int, during: Callable[[], None]) -> StreamReport:
        """An accounted UDP stream; ``during`` runs while it does and should take less than ``seconds``."""
        python = [sys.executable, "-m", "hyroads.mininet.probe"]
        span = ["--seconds", str(seconds)]
        receiver = self._popen(self._target, [*python, "receive", "--seconds", str(seconds + 3.0)], subprocess.PIPE)
        time.sleep(0.7)
        size_of = ["--interval-ms", str(interval_s * 1000), "--bytes", str(size)]
        sender = self._popen(self._source, [*python, "send", "--to", self._address, *span, *size_of], subprocess.PIPE)
        try:
            time.sleep(0.7)
            during()
            sent, _ = sender.communicate(timeout=seconds + GRACE_S)
            arrivals, _ = receiver.communicate(timeout=GRACE_S)
        finally:
            for process in (sender, receiver):
                process.kill()
                process.wait()
        return report(json.loads(sent), json.loads(arrivals))

    @contextmanager
    def tcp_load(self, port: int, algorithm: str = "cubic") -> Iterator[None]:
        """One TCP connection to ``port`` of the target that takes what it can get, until this is left."""
        self._port = port
        quiet = subprocess.DEVNULL
        processes = [self._popen(self._target, ["iperf3", "--server", "--one-off", "--port", str(port)], quiet)]
        try:
            self._await_listening()
            client = ["iperf3", "--client", self._address, "--port", str(port), "--congestion", algorithm]
            processes.append(self._popen(self._source, [*client, "--time", str(LOAD_S)], quiet))
            yield
        finally:
            for process in reversed(processes):
                process.kill()
                process.wait()

    def _popen(self, node: str, command: list[str], stdout: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self._emulation.inside(node), *command],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def _await_listening(self) -> None:
        """Waits until the server's port shows in the target's own table of sockets."""
        wanted = f":{self._port:04X} "
        deadline_s = time.monotonic() + 5.0
        while time.monotonic() < deadline_s:
            for table in ("tcp", "tcp6"):
                with open(f"/proc/{self._emulation.node(self._target).pid}/net/{table}", encoding="ascii") as rows:  # noqa: PTH123
                    if wanted in rows.read():
                        return
            time.sleep(0.02)
        raise EmulationError(f"iperf3 on {self._target} does not listen")

    def _attend(self, process: subprocess.Popen[str], timeout_s: float, started: Callable[[], None]) -> str:
        """Ticks until the process ends; returns what it printed."""
        begin_s = time.monotonic()
        announced = False
        while True:
            try:
                output, _ = process.communicate(timeout=TICK_S)
                return output
            except subprocess.TimeoutExpired:
                pass
            if not announced and time.monotonic() - begin_s >= 1.0:
                announced = True
                started()
            if time.monotonic() - begin_s > timeout_s:
                process.kill()
                process.wait()
                raise EmulationError(f"no end of traffic from {self._source} to {self._target} in {timeout_s:.0f} s")
            self._emulation.check()
            self._tick()


def _intervals(document: Any) -> tuple[float, ...]:
    return tuple(i["sum"]["bits_per_second"] / 1e6 for i in document["intervals"] if not i["sum"]["omitted"])


class DeliveryRecorder:
    """Samples the received L2 payload of one multipath flow while traffic runs."""

    def __init__(self, emulation: Emulation, flow: str) -> None:
        self._emulation = emulation
        described = emulation.rest.flow(flow)
        self._number = described["number"]
        self._egress = described["egress"]
        if self._egress is None:
            raise EmulationError(f"flow {flow} has no last agent: it is {described['state']}")
        self._samples: list[tuple[float, int]] = []
        self._started = False

    def start(self) -> None:
        """From now on ``sample`` counts."""
        self._started = True
        self.sample()

    def sample(self) -> None:
        """Adds (agent's time, bytes received on all paths); nothing before ``start``."""
        if not self._started:
            return
        report = self._emulation.agent_report(self._egress)
        received = sum(
            path["received_bytes"]
            for flow in report["egress"]
            if flow["number"] == self._number
            for path in flow["paths"]
        )
        self._samples.append((report["time_s"], received))

    def rate_mbps(self, within_s: float) -> float:
        """Mean rate in Mb/s of L2 payload over the first ``within_s`` seconds after ``start``."""
        if not self._samples:
            raise EmulationError("no samples of the last agent: traffic did not start")
        first = self._samples[0]
        last = max(sample for sample in self._samples if sample[0] - first[0] <= within_s)
        if last[0] <= first[0]:
            raise EmulationError("too few samples of the last agent for a rate")
        return (last[1] - first[1]) * 8 / 1e6 / (last[0] - first[0])
