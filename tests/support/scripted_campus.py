"""Every switch, agent and radio of a network, scripted, in one process: for a real controller, without packets.

Switches keep the rules, groups and meters that they are given, and tell them when they are asked. Agents carry what
their flows' rates allow, without loss, and report it; radios tell of a medium that is half busy. As a program it dials
one or more controllers and takes one JSON request a line:
``python scripted_campus.py NETWORK --openflow PORT ... --agents PORT ...``.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import json
import os
import selectors
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hyroads.controller.core.addressing import Addressing, Labels
from hyroads.controller.core.network import Network
from hyroads.controller.files.documents import read_file

sys.path.insert(0, str(Path(__file__).resolve().parent))
from scripted_devices import Agent, Line, Radio, Switch, factory_address

REDIAL_S = 0.5
# A controller that does not lead is told so often.
STANDBY_S = 1.0


class Campus:
    """All devices of a network; :meth:`run` until whoever started this process says that it ends. ``moving``: the air
    is noisy, with this probability of a row that moves (``noisy_air``); None: it is at rest. ``arrivals``: agents
    report what arrives by each path.
    """

    def __init__(
        self,
        network: Network,
        openflow: Sequence[int],
        agents: Sequence[int],
        *,
        radios: bool = True,
        moving: float | None = None,
        arrivals: bool = True,
    ) -> None:
        self.moving, self.arrivals = moving, arrivals
        self.network, self.openflow, self.agents_ports = network, openflow, agents
        self.addressing = Addressing.of(network)
        self._label = Labels.of(network, self.addressing).link
        self.selector = selectors.DefaultSelector()
        self.counts: dict[str, int] = defaultdict(int)
        self.lost = 0
        self.carried_bytes: dict[tuple[int, int], float] = defaultdict(float)
        self._outgoing: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
        for link in network.links:
            self._outgoing[link.source, link.technology].append(self._heard(link))
        self.switches = {node: Switch(self, node) for node in self.addressing.dpid}
        self.agents = {node: Agent(self, node) for node in sorted(self.addressing.agents)}
        self.radios = {node: Radio(self, node) for node in self.addressing.dpid} if radios else {}
        self._cut: tuple[float, int, set[tuple[str, int]]] | None = None
        self._cut_ms: float | None = None
        self._asked = bytearray()

    def _heard(self, link: Any) -> dict[str, Any]:
        """A row of a radio's report: the far end of a link."""
        mac = self._address(link.target, link.technology)
        return {"mac": mac, "tx_mbps": round(link.capacity_mbps, 3), "rx_mbps": None, "loss": 0.0, "signal_dbm": -50,
                "last_heard_ms": 5}  # fmt: skip

    def _address(self, node: str, technology: str) -> str:
        if node not in self.addressing.dpid:
            return self.addressing.host_mac[node]
        port = self.addressing.port_names(node).index(self.addressing.interface_name[node, technology])
        return factory_address(self.addressing.dpid[node], port + 1).hex(":")

    def neighbours(self, node: str, technology: str) -> list[dict[str, Any]]:
        """What the radio of a node hears."""
        return self._outgoing[node, technology]

    # -- a cut, and how long until no agent sends by the link any more

    def cut(self, link: str, *, up: bool) -> None:
        """A link falls silent, or is heard again: its far end says so."""
        label = self._label[link]
        users = {
            (agent.node, number)
            for agent in self.agents.values()
            for number, rates in agent.ingress.items()
            for path, rate in rates.items()
            if rate > 0 and label in agent.labels[number, path]
        }
        self._cut, self._cut_ms = (time.monotonic(), label, users), None
        self.agents[self.network.links[self.network.link_index[link]].target].link(link, up=up)

    def told(self, agent: Agent) -> None:
        """An agent has a new configuration or new rates."""
        if self._cut is None:
            return
        began_s, label, users = self._cut
        for number, rates in agent.ingress.items():
            if all(rate == 0 or label not in agent.labels[number, path] for path, rate in rates.items()):
                users.discard((agent.node, number))
        if not users and self._cut_ms is None:
            self._cut_ms = 1e3 * (time.monotonic() - began_s)

    # -- requests of the process that started this one

    def _answer(self, line: bytes) -> dict[str, Any]:
        request = json.loads(line)
        operation = request["op"]
        if operation == "cut":
            self.cut(request["link"], up=request.get("up", False))
        elif operation == "used":
            return {"links": self._used()}
        elif operation == "cut-ms":
            waiting = len(self._cut[2]) if self._cut else 0
            return {"ms": self._cut_ms, "flows_on_it": waiting}
        elif operation == "cpu":
            return {"cpu_s": time.process_time()}
        rules = [len(switch.rules) for switch in self.switches.values()]
        configured = sum(bool(agent.revision) for agent in self.agents.values())
        totals = {"rules_most": max(rules), "rules_total": sum(rules), "configured": configured}
        return {"counts": dict(self.counts), "lost_connections": self.lost, **totals}

    def _used(self) -> list[str]:
        """Links that flows use now, on the air."""
        name_of = {label: link for link, label in self._label.items()}
        used = {
            name_of[label]
            for agent in self.agents.values()
            for (number, path), labels in agent.labels.items()
            if agent.ingress.get(number, {}).get(path, 0.0) > 0
            for label in labels & name_of.keys()
        }
        return sorted(used)

    def _take_requests(self) -> bool:
        data = os.read(0, 1 << 16)
        if not data:
            return False
        *lines, rest = (self._asked + data).split(b"\n")
        self._asked = bytearray(rest)
        for line in lines:
            print(json.dumps(self._answer(line)), flush=True)
        return True

    # -- the loop

    def run(self) -> None:
        """Dial, report as often as the controller asks for, and dial again whoever lost the connection."""
        self.selector.register(0, selectors.EVENT_READ, None)
        devices = [*self.switches.values(), *self.agents.values(), *self.radios.values()]
        lines = [device.lines[n] for n in range(len(self.openflow)) for device in devices]
        now_s = time.monotonic()
        due: list[tuple[float, int, Line]] = [(now_s + i * 2e-3, i, line) for i, line in enumerate(lines)]
        heapq.heapify(due)
        while True:
            wait_s = max(0.0, due[0][0] - time.monotonic())
            for key, mask in self.selector.select(wait_s):
                if key.data is not None:
                    key.data.on_event(mask)
                elif not self._take_requests():
                    return
            now_s = time.monotonic()
            for _ in range(200):
                if due[0][0] > now_s:
                    break
                at_s, i, line = heapq.heappop(due)
                heapq.heappush(due, (self._next_s(line, max(at_s, now_s - line.report_s)), i, line))

    @staticmethod
    def _next_s(line: Line, now_s: float) -> float:
        """Dial or report; when this is due again."""
        if line.peer is None or not line.peer.is_open:
            line.dial()
            return now_s + REDIAL_S
        if isinstance(line.device, Switch):
            return now_s + REDIAL_S
        if line.is_welcome:
            line.device.report(line)
        return now_s + (line.report_s if line.leads else STANDBY_S)


def main() -> int:
    """Until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("network")
    parser.add_argument("--openflow", type=int, nargs="+", required=True, help="a port of each controller")
    parser.add_argument("--agents", type=int, nargs="+", required=True)
    parser.add_argument("--no-radios", action="store_true")
    parser.add_argument("--no-arrivals", action="store_true")
    parser.add_argument("--moving", type=float, help="noisy air, with this probability of a row that moves")
    asked = parser.parse_args()
    gc.disable()
    network, radios = read_file(asked.network), not asked.no_radios
    Campus(
        network, asked.openflow, asked.agents, radios=radios, moving=asked.moving, arrivals=not asked.no_arrivals
    ).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
