"""Where packets were lost, and which program was kept from running then (``takeover.py``).

Each place that can lose a packet counts what it lost. Open vSwitch counts what it had no rule for
(``drop_action_of_pipeline``): that is a controller's doing, but the controller may have seen links fall silent because
a program that carries their frames had no processor. The witness tells that.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

from hyroads.controller.model.pending_names import agent_name
from hyroads.mininet.hybrid import datapath_type
from hyroads.mininet.probe import report
from hyroads.mininet.programs import run

_DROPS = re.compile(r"^(\S*drop\S*|\S*lost\S*)\s.*total: (\d+)$", re.MULTILINE)

Seen = tuple[float, str, str, str]
"""Milliseconds after the event, which controller, the kind of what it saw, and where."""


BRIDGE, NET, PORT = "hr-witness", "10.99.0", 5301
"""A bridge of its own, in the same Open vSwitch."""
INTERVAL_MS = 5.0
STARVED_MS = 100.0
"""Hello frames are missed after 140 ms."""


def lost_of(rows: list[dict[str, Any]]) -> str:
    """Packets lost of those sent, and apart those of runs whose witness was kept from running."""
    still = [row for row in rows if row["witness_ms"] < STARVED_MS]
    text = f"{sum(row['lost'] for row in still)} of {sum(row['sent'] for row in still)}"
    others = [row for row in rows if row["witness_ms"] >= STARVED_MS]
    if not others:
        return text
    lost, sent = sum(row["lost"] for row in others), sum(row["sent"] for row in others)
    return f"{text}, and {lost} of {sent} in {len(others)} runs in which the machine was too busy to forward"


class Witness:
    """A flow that no controller and no agent has to do with, through the same Open vSwitch: if it stands still, what
    forwards had no processor, links fall silent, and what is lost then says nothing of controllers.
    """

    def __init__(self, emulation: Any, ends: tuple[str, str]) -> None:
        self._emulation, self._ends = emulation, ends
        kind = ["set", "bridge", BRIDGE, f"datapath_type={datapath_type()}", "fail_mode=standalone"]
        run("ovs-vsctl", "--timeout=10", "add-br", BRIDGE, "--", *kind)
        for number, node in enumerate(ends, start=1):
            port, pid = f"{BRIDGE}{number}", str(emulation.node(node).pid)
            run("ip", "link", "add", port, "type", "veth", "peer", "name", BRIDGE, "netns", pid)
            run(*emulation.inside(node), "ip", "address", "add", f"{NET}.{number}/24", "dev", BRIDGE)
            # A switch in user space forwards what it gets: a checksum left to the hardware would never be filled in.
            run(*emulation.inside(node), "ethtool", "-K", BRIDGE, "tx", "off")
            run(*emulation.inside(node), "ip", "link", "set", BRIDGE, "up")
            run("ip", "link", "set", port, "up")
            run("ovs-vsctl", "--timeout=10", "add-port", BRIDGE, port)

    def start(self, first: Sequence[str], seconds: float) -> None:
        """Send from now on."""
        source, target = self._ends
        probe = [*first, sys.executable, "-m", "hyroads.mininet.probe"]
        for_s = ["--port", str(PORT), "--seconds"]
        receive = [*self._emulation.inside(target), *probe, "receive", *for_s, str(seconds + 2.0)]
        send = [*self._emulation.inside(source), *probe, "send", "--to", f"{NET}.2", *for_s, str(seconds)]
        send += ["--interval-ms", str(INTERVAL_MS), "--bytes", "100"]
        self._ended = [subprocess.Popen(each, stdout=subprocess.PIPE, text=True) for each in (receive, send)]

    def worst_ms(self) -> float:
        """The longest time without any arrival, from the first on to the last one; infinite if there were none."""
        arrivals, sent = (json.loads(each.communicate(timeout=120)[0]) for each in self._ended)
        times = [arrival.received_s for arrival in report(sent, arrivals).arrivals]
        return max((later - before) * 1e3 for before, later in pairwise(times)) if len(times) > 1 else inf


class Losses:
    """What was lost since this was made, by place; ``ends`` are the nodes of the sender and of the receiver."""

    def __init__(self, emulation: Any, ends: tuple[str, str]) -> None:
        self._emulation, self._ends = emulation, ends
        self._before, self._late_before = self._places(), self._late()
        self._waited_before = self._waited_s()

    def since(self) -> dict[str, int]:
        """Packets of any kind, by place; only places that lost some."""
        now = self._places()
        return {
            place: count - self._before.get(place, 0)
            for place, count in now.items()
            if count != self._before.get(place, 0)
        }

    def late_ms(self) -> dict[str, float]:
        """By how much wake-ups that were more than 20 ms late were late, together; only programs with such."""
        found = {who: (late - self._late_before[who]) * 1e3 for who, late in self._late().items()}
        return {who: late_ms for who, late_ms in found.items() if late_ms > 0}

    def waited_ms(self) -> float:
        """How long Open vSwitch, which forwards in one thread, could run and had no processor."""
        return (self._waited_s() - self._waited_before) * 1e3

    def _waited_s(self) -> float:
        return int(Path(f"/proc/{self._emulation.switch.daemon.pid}/schedstat").read_text().split()[1]) / 1e9

    def _late(self) -> dict[str, float]:
        agents = {agent_name(node): self._emulation.agent_report(node) for node in self._emulation.agents()}
        with self._emulation.shared.client() as client:
            medium = client.lateness().over_20_ms_s
        return {"medium": medium, **{who: report["woken_late"]["over_20_ms_s"] for who, report in agents.items()}}

    def _places(self) -> dict[str, int]:
        emulation, found = self._emulation, {}
        for node in emulation.agents():
            report = emulation.agent_report(node)
            found[f"queue of agent {node}"] = sum(flow["dropped"] for flow in report["ingress"])
            for what in ("overrun", "unknown_flow", "unclassified", "malformed"):
                found[f"{what} at agent {node}"] = report[what]
            for what in ("late", "stale"):
                found[f"{what} at agent {node}"] = sum(flow[what] for flow in report["egress"])
        with emulation.shared.client() as client:
            stats = client.stats()
        found |= {f"queue of link {name}": link.dropped for name, link in stats.links.items()}
        found |= {f"air of link {name}": link.lost for name, link in stats.links.items()}
        found |= {f"port {name}": port.refused + port.unknown for name, port in stats.ports.items()}
        for words, where in (((), ""), *((emulation.inside(node), f" of {node}") for node in self._ends)):
            for link in json.loads(run(*words, "ip", "-s", "-j", "link")):
                for way, counters in link.get("stats64", {}).items():
                    found[f"{link['ifname']}{where}, {way}"] = counters["dropped"]
        for node in self._ends:
            found |= {f"{what} of {node}": count for what, count in _sockets(emulation.node(node).pid).items()}
        found |= {
            f"Open vSwitch, {name}": int(count) for name, count in _DROPS.findall(run("ovs-appctl", "coverage/show"))
        }
        return found


def _sockets(pid: int) -> dict[str, int]:
    """What UDP sockets of a process's network namespace had no room for."""
    names, values = (
        line.split()[1:] for line in Path(f"/proc/{pid}/net/snmp").read_text().splitlines() if line.startswith("Udp:")
    )
    counts = dict(zip(names, map(int, values), strict=True))
    return {what: counts[what] for what in ("SndbufErrors", "RcvbufErrors")}
