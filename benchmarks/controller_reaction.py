"""How fast the controller answers a cut link: from an agent's line ``link down`` to the ingress agent's new rates.

The real application in a process of its own, on the three-node network, over loopback TCP; both agents are scripted. No
root and no switches are needed. Run: python benchmarks/controller_reaction.py [repetitions]
"""

from __future__ import annotations

import json
import socket
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from queue import Empty, Queue
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from controller_process import ControllerProcess

TARGET_MS = 30.0


class Agent:
    """Answers everything at once; configurations and rates go to ``told`` with their time."""

    def __init__(self, node: str, port: int) -> None:
        self.told: Queue[tuple[float, dict[str, Any]]] = Queue()
        self._socket = self._dial(port)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.write({"type": "hello", "version": 1, "node": node, "program": "benchmark", "boot": "1", "token": None,
                    "revision": 0})  # fmt: skip
        threading.Thread(target=self._read, daemon=True).start()

    @staticmethod
    def _dial(port: int) -> socket.socket:
        for _ in range(100):
            try:
                return socket.create_connection(("127.0.0.1", port), timeout=1)
            except OSError:
                time.sleep(0.1)
        raise SystemExit("the controller did not start")

    def write(self, message: dict[str, Any]) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def _read(self) -> None:
        self._socket.settimeout(None)
        try:
            for line in self._socket.makefile("rb"):
                self._answer(time.perf_counter(), json.loads(line))
        except ConnectionError:
            return  # the controller was ended

    def _answer(self, now_s: float, message: dict[str, Any]) -> None:
        if message["type"] == "ping":
            self.write({"type": "pong", "seq": message["seq"]})
        elif message["type"] in ("config", "rates"):
            self.told.put((now_s, message))
            self.write({"type": "ok", "seq": message["seq"]})


def rest(told: Queue[tuple[float, dict[str, Any]]]) -> None:
    """Wait until nothing more comes."""
    while True:
        try:
            told.get(timeout=0.15)
        except Empty:
            return


def measure(repetitions: int, port: int) -> list[float]:
    agents = {node: Agent(node, port) for node in ("a", "b")}
    # What is said of links in the first second of an agent is not believed.
    time.sleep(1.5)
    times_ms = []
    for _ in range(repetitions):
        rest(agents["a"].told)
        cut_s = time.perf_counter()
        agents["b"].write({"type": "link", "link": "ab-plc", "up": False})
        told_s, message = agents["a"].told.get(timeout=5)
        paths = message["ingress"][0]["paths"]
        if [round(path["rate_mbps"], 2) for path in paths] != [9.5]:
            raise SystemExit(f"unexpected rates: {paths}")
        times_ms.append((told_s - cut_s) * 1e3)
        agents["b"].write({"type": "link", "link": "ab-plc", "up": True})
    return times_ms


def main() -> int:
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    # A link that fails five times a second would be left alone.
    settings = {"flap_damping": False, "timings": {}}
    with tempfile.TemporaryDirectory() as folder, ControllerProcess(Path(folder), settings) as controller:
        times_ms = measure(repetitions, controller.agents)
    times_ms.sort()
    print(f"{'link down -> new rates at the ingress agent':46} {'measured':>10} {'target':>10}")
    for name, value in (
        ("median of " + str(repetitions), statistics.median(times_ms)),
        ("95th percentile", times_ms[int(0.95 * (len(times_ms) - 1))]),
        ("worst", times_ms[-1]),
    ):
        print(f"{name:46} {value:7.1f} ms {'<= ' + str(int(TARGET_MS)):>7} ms")
    return 0 if statistics.median(times_ms) <= TARGET_MS else 1


if __name__ == "__main__":
    sys.exit(main())
