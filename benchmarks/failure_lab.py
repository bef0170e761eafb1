"""What can fail in an emulated network, how it is broken and mended, and who notices (``failures.py``)."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hyroads.mininet.access_points import write_private
from hyroads.mininet.emulation import Emulation
from hyroads.mininet.programs import EmulationError, run
from hyroads.rest.client import Client, ClientError

PACKET_BYTES = 1200
REST_TIMEOUT_S = 2.0
# Two ways from a to d, over b or over c, each with a wire of its own beside the shared WiFi.
DIAMOND = {
    "name": "diamond",
    "nodes": {"a": {"role": "gateway"}, "b": {"role": "ap"}, "c": {"role": "ap"}, "d": {"role": "ap"}},
    "links": [
        {"id": "ab", "from": "a", "to": "b", "technology": "plc", "capacity_mbps": 30, "both": True},
        {"id": "bd", "from": "b", "to": "d", "technology": "wifi", "capacity_mbps": 30, "both": True},
        {"id": "ac", "from": "a", "to": "c", "technology": "wifi", "capacity_mbps": 40, "both": True},
        {"id": "cd", "from": "c", "to": "d", "technology": "plc2", "capacity_mbps": 20, "both": True},
    ],
    "interference": {"rule": "technology"},
    "flows": [{"id": "f1", "from": "a", "to": "d"}],
}


class Lab:
    """A running network, its one flow, and what can be broken."""

    def __init__(self, emulation: Emulation) -> None:
        self.emulation = emulation
        self.rest = Client(timeout_s=REST_TIMEOUT_S, tries=1, keep_alive=False)
        (self.flow,) = emulation.network.flows
        self.before: dict = {}
        self.carried: dict[str, int] = {}
        self.garbage: subprocess.Popen | None = None

    def get(self, what):
        return self.rest.get(f"/{what}")

    def links(self, links, *, up):
        for link in links:
            self.emulation.shared.set_link(link, up=up)

    def links_of(self, node):
        return [link.id for link in self.emulation.network.links if node in (link.source, link.target)]

    def shows(self, link, reason=None):
        """Whether the controller takes a link of the emulated network to be down."""
        found = next(each for each in self.emulation.network.links if each.id == link)
        ends = (found.source, found.target, found.technology)
        row = next(r for r in self.get("topology")["links"] if (r["from"], r["to"], r["technology"]) == ends)
        return not row["up"] and reason in (None, row["reason"])

    def agent_up(self, node):
        row = next(row for row in self.get("topology")["nodes"] if row["id"] == node)
        return row["agent"]["up"]

    def connected(self, node):
        return next(row for row in self.get("health")["switches"] if row["node"] == node)["connected"]

    def radios(self, flag):
        return all(flag in row["flags"] for row in self.get("measurements")["radios"])

    def via(self, word):
        rows = [i for radio in self.get("measurements")["radios"] for i in radio["interfaces"]]
        return all(row["via"] == word for row in rows)

    def target(self, node):
        return next(row for row in self.get("measurements")["snmp"] if row["target"] == node)

    def radio_flags(self, node):
        return next(row for row in self.get("measurements")["radios"] if row["node"] == node)["flags"]

    def snmpd(self, node):
        return self.emulation.snmp.programs[node]

    def pass_persist(self, node):
        """The program that a node's snmpd runs."""
        number = self.emulation.addressing.node_number[node]
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if b"--pass-persist" in words and any(f"agent-{number}.json".encode() in word for word in words):
                    return int(entry.name)
        raise EmulationError(f"no radio program at {node}")

    def kill_snmpd(self, node):
        """As when an access point loses its power: what snmpd runs goes with it."""
        pid = self.pass_persist(node)
        self.snmpd(node).kill()
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def answer_garbage(self, node):
        """In place of snmpd: every request is answered with its own first half."""
        self.kill_snmpd(node)
        host = self.emulation.snmp.collector_document()["targets"]
        address = next(target["host"] for target in host if target["name"] == node)
        self.garbage = subprocess.Popen([sys.executable, __file__, address])

    def end_garbage(self, node):
        self.garbage.kill()
        self.garbage.wait()
        self.snmpd(node).start()

    def halve(self, node, share):
        """A node's snmpd tells estimates that are ``share`` too low, whatever the traffic."""
        number = self.emulation.addressing.node_number[node]
        path = self.emulation.snmp.directory / f"agent-{number}.json"
        document = json.loads(path.read_text())
        document["errors"] = {"low_rate_bias": share, "low_rate_airtime": 1.0}
        write_private(path, document)
        self.kill_snmpd(node)
        time.sleep(0.2)
        self.snmpd(node).start()

    def openflow(self, node, port):
        """Where a node's switch dials; the record stays the same, so that no rule is flushed."""
        record = run("ovs-vsctl", "get", "bridge", node, "controller").strip().strip("[]")
        run("ovs-vsctl", "set", "controller", record, f'target="tcp:127.0.0.1:{port}"')

    def node_fails(self, node):
        self.links(self.links_of(node), up=False)
        self.emulation.agent(node).kill()
        self.openflow(node, 1)

    def node_returns(self, node):
        self.links(self.links_of(node), up=True)
        self.emulation.agent(node).start()
        self.openflow(node, 6653)

    # As before?

    def bytes(self):
        with self.emulation.shared.client() as client:
            return {link: row.bytes for link, row in client.stats().links.items()}

    def usual(self):
        """Paths and rate of the flow; neither while nothing is planned."""
        flow = self.rest.flow(self.flow.id)
        return {
            "state": flow["state"],
            "paths": sorted(p["links"] for p in flow["multipath"]),
            "rate": flow.get("rate_mbps"),
        }

    def is_usual(self):
        now = self.usual()
        if now["state"] != "multipath" or now["paths"] != self.before["paths"] or not self.get("health")["ok"]:
            return False
        if now["rate"] < 0.9 * self.before["rate"]:
            return False
        carried = self.bytes()
        return all(carried[link] - self.carried[link] > 10 * PACKET_BYTES for link in self.first_links())

    def first_links(self):
        """The first link of every path, by its name in the emulated network."""
        ids = {row["id"]: (row["from"], row["to"], row["technology"]) for row in self.get("topology")["links"]}
        names = {(link.source, link.target, link.technology): link.id for link in self.emulation.network.links}
        return [names[ids[path[0]]] for path in self.before["paths"]]


Do, Ask = Callable[[Lab], object], Callable[[Lab], bool]


@dataclass(frozen=True)
class Failure:
    """``broken`` and ``mended`` are done, ``noticed`` and ``also`` are asked; ``also`` must hold for all to be back."""

    broken: Do
    noticed: Ask
    mended: Do
    also: Ask = field(default=lambda lab: True)
    hold_s: float = 2.0
    tail_s: float = 3.0
    network: str = "triangle"


def silent(lab):
    """The controller does not answer."""
    with suppress(ClientError), Client(timeout_s=0.3, tries=1) as client:
        client.health()
        return False
    return True


def restart_controller(lab):
    lab.emulation.controller.stop()
    lab.emulation.controller.start()


FAILURES = {
    "link cut": Failure(
        lambda lab: lab.links(("ab-plc", "ab-plc~"), up=False), lambda lab: lab.shows("ab-plc", "silent"),
        lambda lab: lab.links(("ab-plc", "ab-plc~"), up=True)),
    "node loses its power": Failure(
        lambda lab: lab.node_fails("b"), lambda lab: lab.shows("ab"), lambda lab: lab.node_returns("b"),
        network="diamond"),
    "agent killed": Failure(
        lambda lab: lab.emulation.agent("b").kill(), lambda lab: not lab.agent_up("b"),
        lambda lab: lab.emulation.agent("b").start()),
    "agent frozen": Failure(
        lambda lab: lab.emulation.agent("a").kill(signal.SIGSTOP), lambda lab: not lab.agent_up("a"),
        lambda lab: lab.emulation.agent("a").kill(signal.SIGCONT)),
    "OpenFlow connection lost": Failure(
        lambda lab: lab.openflow("b", 1), lambda lab: not lab.connected("b"), lambda lab: lab.openflow("b", 6653)),
    "OpenFlow connection away for longer than switch_grace_s": Failure(
        lambda lab: lab.openflow("b", 1), lambda lab: lab.shows("ab", "switch lost"),
        lambda lab: lab.openflow("b", 6653), hold_s=18.0, network="diamond"),
    "Open vSwitch killed (all nodes)": Failure(
        lambda lab: lab.emulation.switch.daemon.kill(), lambda lab: not lab.connected("b"),
        lambda lab: lab.emulation.switch.daemon.start(), hold_s=1.0, tail_s=5.0),
    "Open vSwitch frozen (all nodes)": Failure(
        lambda lab: lab.emulation.switch.daemon.kill(signal.SIGSTOP), lambda lab: lab.shows("ab-plc"),
        lambda lab: lab.emulation.switch.daemon.kill(signal.SIGCONT), tail_s=5.0),
    "snmpd killed": Failure(
        lambda lab: lab.kill_snmpd("a"), lambda lab: not lab.target("a")["up"], lambda lab: lab.snmpd("a").start(),
        lambda lab: lab.target("a")["up"], tail_s=6.0),
    "snmpd frozen": Failure(
        lambda lab: lab.snmpd("a").kill(signal.SIGSTOP), lambda lab: not lab.target("a")["up"],
        lambda lab: lab.snmpd("a").kill(signal.SIGCONT), lambda lab: lab.target("a")["up"], tail_s=6.0),
    "snmpd's radio program frozen": Failure(
        lambda lab: os.kill(lab.pass_persist("a"), signal.SIGSTOP),
        lambda lab: not lab.target("a")["up"] or bool(lab.target("a")["flags"]),
        lambda lab: os.kill(lab.pass_persist("a"), signal.SIGCONT),
        lambda lab: lab.target("a")["up"] and not lab.target("a")["flags"], tail_s=6.0),
    "snmpd answers garbage": Failure(
        lambda lab: lab.answer_garbage("a"), lambda lab: not lab.target("a")["up"],
        lambda lab: lab.end_garbage("a"), lambda lab: lab.target("a")["up"], tail_s=6.0),
    "snmpd tells half of the truth": Failure(
        lambda lab: lab.halve("a", 0.5), lambda lab: "disagrees-with-snmp" in lab.radio_flags("a"),
        lambda lab: lab.halve("a", 0.0), lambda lab: "disagrees-with-snmp" not in lab.radio_flags("a"),
        hold_s=8.0, tail_s=6.0),
    "radio channel killed (all nodes)": Failure(
        lambda lab: lab.emulation.radios.program.kill(), lambda lab: lab.radios("gone"),
        lambda lab: lab.emulation.radios.program.start(), lambda lab: lab.via("radio")),
    "radio channel frozen (all nodes)": Failure(
        lambda lab: lab.emulation.radios.program.kill(signal.SIGSTOP),
        lambda lab: lab.radios("silent") or lab.radios("gone"),
        lambda lab: lab.emulation.radios.program.kill(signal.SIGCONT), lambda lab: lab.via("radio")),
    "radio channel and SNMP killed (all nodes)": Failure(
        lambda lab: (lab.emulation.radios.program.kill(), *map(lab.kill_snmpd, "ab")), lambda lab: lab.via(None),
        lambda lab: (lab.emulation.radios.program.start(), *(lab.snmpd(node).start() for node in "ab")),
        lambda lab: lab.via("radio"), hold_s=8.0, tail_s=5.0),
    "controller killed": Failure(
        lambda lab: lab.emulation.controller.kill(), silent, lambda lab: lab.emulation.controller.start(),
        hold_s=5.0, tail_s=6.0),
    "controller frozen": Failure(
        lambda lab: lab.emulation.controller.kill(signal.SIGSTOP), silent,
        lambda lab: lab.emulation.controller.kill(signal.SIGCONT), hold_s=5.0, tail_s=6.0),
    "controller restarted": Failure(restart_controller, lambda lab: True, lambda lab: None, hold_s=0.0, tail_s=6.0),
}  # fmt: skip


def send_garbage(host: str) -> None:
    """In place of a host's snmpd."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((host, 161))
        while True:
            request, sender = server.recvfrom(65536)
            server.sendto(request[: len(request) // 2], sender)


if __name__ == "__main__":
    send_garbage(sys.argv[1])
