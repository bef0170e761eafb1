"""The process of all scripted devices of a campus, from outside: those in Rust (``dataplane/examples``), or those in
Python (``scripted_campus``), which are late where there are hundreds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import scripted_campus
from controller_process import ROOT, ControllerProcess
from scripted_devices import factory_address

from hyroads.controller.core.addressing import Addressing, Labels
from hyroads.controller.files.documents import read_file

CRATE = ROOT / "dataplane"
MOST_LATE_P99_MS = 5.0
"""Devices that report later than this are no measure of a controller."""


@dataclass(frozen=True, slots=True)
class Air:
    """``noise``: in each reading half of the rows differ by 1 to 3 dB, and their rates by up to 5 %. ``moving``: the
    probability of each row to take another rate and signal.
    """

    noise: bool = True
    moving: float = 0.0


STILL = Air(noise=False)


class Devices:
    """The process of all scripted devices, in Python."""

    def __init__(
        self,
        network: Path,
        *controllers: ControllerProcess,
        radios: bool,
        air: Air = STILL,
        arrivals: bool = True,
    ) -> None:
        openflow, agents = (str(one.openflow) for one in controllers), (str(one.agents) for one in controllers)
        ports = ["--openflow", *openflow, "--agents", *agents]
        command = [sys.executable, scripted_campus.__file__, str(network), *ports]
        command += [] if radios else ["--no-radios"]
        command += [] if arrivals else ["--no-arrivals"]
        command += [] if air == STILL else ["--moving", str(air.moving)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def lateness(self) -> dict[str, Any] | None:
        """How late reports were since the last call; None: not known."""
        return None

    def _send(self, line: str) -> None:
        assert self.process.stdin is not None
        print(line, file=self.process.stdin, flush=True)

    def ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """The answer to a request."""
        assert self.process.stdout is not None
        self._send(json.dumps({"op": operation, **arguments}))
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        assert "error" not in answer, answer["error"]
        return answer

    def close(self) -> None:
        """Ends the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


class CompiledDevices(Devices):
    """The process of all scripted devices, in Rust. Equal seeds give equal air."""

    def __init__(
        self,
        network: Path,
        *controllers: ControllerProcess,
        radios: bool,
        air: Air = STILL,
        arrivals: bool = True,
        seed: int = 1,
    ) -> None:
        command = [compiled()]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ports = {"openflow": [one.openflow for one in controllers], "agents": [one.agents for one in controllers]}
        more = {"seed": seed, "air": asdict(air), "arrivals": arrivals, "radios": radios}
        self._send(json.dumps({**more, **ports, **script(network)}))

    def lateness(self) -> dict[str, Any]:
        """Reports since the last call, and how much later than they were due they went out, in ms."""
        return self.ask("lateness")

    def set_air(self, air: Air) -> None:
        """From now on the air is another one."""
        self.ask("air", **asdict(air))


def compiled() -> str:
    """The program of compiled devices, which is built if it is not there or its source has changed."""
    build = ["cargo", "build", "--release", "--locked", "--quiet", "--example", "scripted_campus"]
    subprocess.run(build, cwd=CRATE, check=True)
    return str(CRATE / os.environ.get("CARGO_TARGET_DIR", "target") / "release" / "examples" / "scripted_campus")


def script(network: Path) -> dict[str, Any]:
    """Nodes and links of a network file, as compiled devices know them."""
    read = read_file(network)
    addressing = Addressing.of(read)
    label = Labels.of(read, addressing).link

    def address(node: str, technology: str) -> str:
        if node not in addressing.dpid:
            return addressing.host_mac[node]
        port = addressing.port_names(node).index(addressing.interface_name[node, technology])
        return factory_address(addressing.dpid[node], port + 1).hex(":")

    heard: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for link in read.links:
        row = {"mac": address(link.target, link.technology), "tx_mbps": round(link.capacity_mbps, 3)}
        heard.setdefault((link.source, link.technology), []).append(row)

    def media(node: str) -> list[dict[str, Any]]:
        return [{"technology": k, "rows": heard.get((node, k), [])} for k in addressing.technologies(node)]

    nodes = [
        {"node": node, "dpid": dpid, "ports": addressing.port_names(node), "agent": node in addressing.agents,
         "media": media(node)}
        for node, dpid in addressing.dpid.items()
    ]  # fmt: skip
    return {
        "nodes": nodes,
        "links": [{"link": link.id, "label": label[link.id], "target": link.target} for link in read.links],
    }


def verdict(lateness: dict[str, dict[str, Any] | None]) -> str:
    """Whether figures are to be believed, by how late the devices were in each part of a run."""
    if None in lateness.values():
        return "not believed: these devices do not say how late they were"
    late = {part: each["p99_ms"] for part, each in lateness.items() if each and each["p99_ms"] > MOST_LATE_P99_MS}
    if late:
        parts = ", ".join(f"{p99_ms:.1f} ms ({part})" for part, p99_ms in late.items())
        return f"not believed: p99 of the devices' lateness is {parts}, and {MOST_LATE_P99_MS:g} ms are allowed"
    return "believed"
