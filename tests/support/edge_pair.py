"""Two edge agents back to back over two paths, each in a network namespace of its own: for tests and benchmarks.

`a` and `b` have the agent's access TAP `acc` as their network interface (no switch), and two paths `p1` and `p2`: veth
pairs, or links of the shared-medium emulator with a capacity and a delay. A third veth pair, `direct`, is there to
compare with.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from control_clients import AgentControl, connected

from hyroads.mininet.programs import EmulationError, Program, Scope, find_program, run, wait_until

FORWARD, BACK = 16, 17
PATH_MTU = 1700
SIDES = ("a", "b")


@dataclass(frozen=True)
class EmulatedPath:
    """A path through the shared-medium emulator; Mb/s at L2 payload."""

    capacity_mbps: float
    delay_ms: float


def path_mac(side: str, path: int) -> str:
    """MAC address of a path's interface."""
    return f"02:00:0{path}:00:00:0{SIDES.index(side) + 1}"


class EdgePair(Scope):
    """Namespaces, links and agents while the context lasts; `name` begins the namespaces' names."""

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        paths: Sequence[EmulatedPath] = (),
        options: Sequence[str] = (),
        programs: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """``programs`` has the command that starts the agent of a side, where it is not the one that was built here."""
        super().__init__()
        self.folder = folder
        self._programs = programs or {}
        self._name = name
        self._paths = paths
        self._options = options
        self._agents: dict[str, Program] = {}

    def namespace(self, side: str) -> str:
        """Namespace of a side."""
        return f"{self._name}-{side}"

    def _build(self) -> None:
        for side in SIDES:
            run("ip", "netns", "add", self.namespace(side))
            self._stack.callback(run, "ip", "netns", "del", self.namespace(side))
            self.ip(side, "link", "set", "lo", "up")
        self._veth("direct")
        for number, side in enumerate(SIDES, 1):
            self.ip(side, "addr", "add", f"10.9.0.{number}/24", "dev", "direct")
        if self._paths:
            self._start_medium()
        else:
            self._veth("p1")
            self._veth("p2")
        for side in SIDES:
            self.start_agent(side)
        for side in SIDES:
            # Receivers listen before anybody sends, as the controller sees to it: nothing is lost at the beginning.
            self.configure(side, (0.0, 0.0))
        for number, side in enumerate(SIDES, 1):
            self.configure(side)
            self.ip(side, "addr", "add", f"10.8.0.{number}/24", "dev", "acc")
            self.ip(side, "addr", "add", f"fd08::{number}/64", "dev", "acc", "nodad")

    def _veth(self, name: str) -> None:
        a, b = (self.namespace(side) for side in SIDES)
        run("ip", "link", "add", name, "netns", a, "type", "veth", "peer", "name", name, "netns", b)
        for side in SIDES:
            if name != "direct":
                self.ip(side, "link", "set", name, "mtu", str(PATH_MTU), "address", path_mac(side, int(name[1])))
            self.ip(side, "link", "set", name, "up")

    def _start_medium(self) -> None:
        ports, links = [], []
        for number, path in enumerate(self._paths, 1):
            for side, other in (("a", "b"), ("b", "a")):
                port = f"{side}{number}"
                # The emulator opens its TAP in the namespace under the port's name.
                mac = path_mac(side, number)
                ports.append({"name": port, "netns": self.namespace(side), "mac": mac, "technology": port})
                link = {"from": port, "to": f"{other}{number}", "up": True, "loss": 0.0}
                rate = {"capacity_mbps": path.capacity_mbps, "delay_ms": path.delay_ms}
                links.append({"id": f"{side}-{number}", **link, **rate})
        config = {
            "options": {"queue_frames": 200, "mtu": PATH_MTU},
            "ports": ports,
            "links": links,
            "conflicts": {"pairs": []},
        }
        file = self.folder / "medium.json"
        file.write_text(json.dumps(config))
        socket = self.folder / "medium.sock"
        command = [find_program("hyroads-medium"), "--config", str(file), "--socket", str(socket), "--realtime"]
        medium = Program("hyroads-medium", command, self.folder / "medium.log", bound_to_parent=True)
        self._run_until_left(medium, socket, 5)

    def interface(self, side: str, path: int) -> str:
        """Name of a path's interface."""
        return f"{side}{path}" if self._paths else f"p{path}"

    def network(self, side: str) -> str:
        """What the agent of a side has as its network side."""
        return f"packet:{self.interface(side, 1)}"

    def start_agent(self, side: str, *extra: str) -> None:
        """Starts (again) the agent of a side, without a configuration."""
        options = ["--node", side, "--access", "tap:acc", "--network", self.network(side)]
        options += ["--control", str(self.control(side)), *self._options, *extra]
        program = self._programs.get(side) or [find_program("hyroads-edge")]
        command = ["ip", "netns", "exec", self.namespace(side), *program, *options]
        log = self.folder / f"{side}.log"
        agent = Program(f"agent {side}", command, log, bound_to_parent=True)
        agent.start()
        self._agents[side] = agent
        self._stack.callback(agent.stop)
        connected(AgentControl, self.control(side)).close()

    def stop_agent(self, side: str, number: int = signal.SIGTERM) -> str:
        """Ends the agent of a side by a signal and says how it ended."""
        program = self._agents[side]
        program.kill(number)
        wait_until(f"end of agent {side}", lambda: not program.alive, 3)
        return program.failure()

    def agent(self, side: str) -> Program:
        """The agent of a side."""
        return self._agents[side]

    def control(self, side: str) -> Path:
        """Control socket of a side's agent."""
        return self.folder / f"{side}.sock"

    def client(self, side: str) -> AgentControl:
        """A new connection to a side's agent."""
        return AgentControl(self.control(side))

    def config(self, side: str, rates: Sequence[float | None] = (None, None), **egress: Any) -> dict[str, Any]:
        """The configuration of a side: one flow out over both paths, the other flow in."""
        out, back = (FORWARD, BACK) if side == "a" else (BACK, FORWARD)
        other = "b" if side == "a" else "a"
        paths = [
            {
                "id": number,
                "rate_mbps": rate,
                "mtu": PATH_MTU,
                "interface": self.interface(side, number),
                "dst_mac": path_mac(other, number),
            }
            for number, rate in enumerate(rates, 1)
        ]
        return {
            "revision": 1,
            "ingress": [{"number": out, "default": True, "paths": paths}],
            "egress": [{"number": back, "paths": [1, 2], **egress}],
        }

    def configure(self, side: str, rates: Sequence[float | None] = (None, None), **egress: Any) -> None:
        """Gives a side its configuration."""
        with self.client(side) as client:
            client.configure(self.config(side, rates, **egress))

    def ip(self, side: str, *arguments: str) -> str:
        """`ip` in the namespace of a side."""
        return run("ip", "-n", self.namespace(side), *arguments)

    def run(self, side: str, *command: str, timeout_s: float = 20.0) -> str:
        """Output of a command in the namespace of a side."""
        return run("ip", "netns", "exec", self.namespace(side), *command, timeout_s=timeout_s)

    def iperf_server(self, side: str = "b") -> None:
        """Starts iperf3's server on a side."""
        server = ["ip", "netns", "exec", self.namespace(side), "iperf3", "-s"]
        program = Program("iperf3", server, self.folder / "iperf3.log", bound_to_parent=True)
        program.start()
        self._stack.callback(program.stop)
        wait_until("iperf3", lambda: ":5201" in self.run(side, "ss", "-ltn"), 5)

    def tcp_mbps(self, target: str, seconds: float, algorithm: str = "cubic") -> float:
        """Goodput of one TCP flow from `a` to an address of `b`, after one second of start-up."""
        options = ["-c", target, "-t", f"{seconds:g}", "-O", "1", "-C", algorithm, "-J"]
        for pause_s in (1.0, 3.0, 0.0):
            document = json.loads(self.run("a", "iperf3", *options, timeout_s=seconds + 20))
            if "error" not in document:
                return float(document["end"]["sum_received"]["bits_per_second"]) / 1e6
            # The server is busy until the last test's connections, on a path with losses, have ended.
            time.sleep(pause_s)
        raise EmulationError(f"iperf3 to {target}: {document['error']}")

    def ping_ms(self, target: str, count: int = 50, interval_s: float = 0.01) -> list[float]:
        """Round-trip times from `a` in ms."""
        text = self.run("a", "ping", "-n", "-c", str(count), "-i", f"{interval_s:g}", target, timeout_s=60)
        return [float(line.split("time=")[1].split()[0]) for line in text.splitlines() if "time=" in line]
