"""What happens when a part fails: how soon it is noticed, what traffic loses, how soon all is as before.

Real parts on an emulated network whose controller is told of nodes and technologies only: everything else it measures.
A UDP stream of 4.8 Mb/s (1200 bytes each 2 ms, every packet accounted for) runs all the time.

    python benchmarks/failures.py [--only WORDS ...] [--runs 5] [--list] [--table FILE]      (root)

noticed  from the failure to the first answer of the REST interface that shows it
outage   from the failure to the last packet that was lost before the part came back (0: none)
lost     packets of 2 ms before the part came back, and from then on
back     from the part's return to all as before: paths, 90 % of the rate, packets on every path, nothing missing
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from live import on_network, shipped

from hyroads.controller.core.netfile import parse
from hyroads.mininet.access_points import write_private
from hyroads.mininet.emulation import Emulation
from hyroads.mininet.probe import StreamReport
from hyroads.mininet.programs import EmulationError, run
from hyroads.mininet.traffic import Traffic
from hyroads.rest.client import Client, ClientError

INTERVAL_S, PACKET_BYTES = 0.002, 1200
TIMEOUT_S = 20.0
SETTLE_S = 1.5
NOTICE_S = 5.0
REST_TIMEOUT_S = 2.0
KEEP_LOG = "HYROADS_KEEP_LOG"
"""A file that the controller's log is copied to, if this variable names one."""
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
        self.garbage = subprocess.Popen([sys.executable, __file__, "--garbage", address])

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


def until(condition, within_s=TIMEOUT_S):
    """When an answer met the condition (seconds of the monotonic clock); None if none did."""
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        with suppress(EmulationError, ClientError):
            if condition():
                return time.monotonic()
        time.sleep(0.01)
    return None


def one_failure(lab: Lab, failure: Failure) -> dict:
    """Breaks and mends once; when what happened."""
    lab.before = lab.usual()
    times = {"broken": time.monotonic()}
    failure.broken(lab)
    times["noticed"] = until(lambda: failure.noticed(lab), max(failure.hold_s, NOTICE_S))
    time.sleep(max(0.0, times["broken"] + failure.hold_s - time.monotonic()))
    lab.carried = lab.bytes()
    times["mended"] = time.monotonic()
    failure.mended(lab)
    times["back"] = until(lambda: lab.is_usual() and failure.also(lab))
    return times


def of_stream(times: dict, report: StreamReport, until_s: float) -> dict:
    """What a stream lost because of one failure, until the next."""
    broken, mended, back = times["broken"], times["mended"], times["back"]
    sent = [s for s in map(report.sent_at_s, report.lost) if broken - INTERVAL_S <= s < until_s]
    return {
        "noticed_s": times["noticed"] - broken if times["noticed"] else None,
        "outage_s": report.last_loss_after_s(broken, mended),
        "lost": sum(s < mended for s in sent),
        "lost_back": sum(s >= mended for s in sent),
        "outage_back_s": report.last_loss_after_s(mended, until_s),
        "back_s": back - mended if back else None,
    }


def usual_again(lab: Lab) -> bool:
    """Whether nothing is missing, so that the next run has a fair start."""
    return lab.get("health")["ok"] and lab.usual()["state"] == "multipath" and lab.via("radio")


def sequence(emulation: Emulation, names: list[str], seconds: float) -> int:
    """One failure after the other under one stream, while there is time; prints a line of JSON for each."""
    lab, events = Lab(emulation), []
    time.sleep(2.0)

    def during() -> None:
        began_s = time.monotonic()
        for name in names:
            if time.monotonic() - began_s > seconds - FAILURES[name].hold_s - FAILURES[name].tail_s:
                break
            time.sleep(SETTLE_S)
            if until(lambda: usual_again(lab)) is None:
                break
            events.append((name, one_failure(lab, FAILURES[name])))

    traffic = Traffic(emulation, lab.flow.source, lab.flow.target, lambda: None)
    report = traffic.stream(seconds, INTERVAL_S, PACKET_BYTES, during)
    ends = [*(times["broken"] - 0.5 for _, times in events[1:]), report.sent_at_s(report.sent)]
    usual = until(lambda: usual_again(lab)) is not None
    if KEEP_LOG in os.environ:
        shutil.copy(emulation.directory / "controller.log", os.environ[KEEP_LOG])
    health = lab.get("health")
    after = {
        "usual_at_the_end": usual,
        "defects": health["counters"]["exceptions"],
        "errors": health["last_errors"][-2:],
    }
    for (name, times), end_s in zip(events, ends, strict=True):
        print(json.dumps({"name": name, **of_stream(times, report, end_s), **after}), flush=True)
    return 0 if usual else 1


def figures(rows: list[dict], key: str, form: str) -> str:
    """Median and worst."""
    known = [row[key] for row in rows if row[key] is not None]
    if len(known) < len(rows):
        return f"never {len(rows) - len(known)}x"
    return f"{statistics.median(known):{form}} ({max(known):{form}})"


COLUMNS = (
    ("noticed, s", "noticed_s", ".2f"), ("outage, s", "outage_s", ".2f"), ("lost", "lost", ".0f"),
    ("back, s", "back_s", ".2f"), ("lost then", "lost_back", ".0f"), ("defects", "defects", ".0f"),
)  # fmt: skip


def table(results: list[dict]) -> None:
    """A line per failure: median and worst."""
    print(f"{'what fails; median (worst)':<58}{'runs':>5}" + "".join(f"{title:>15}" for title, _, _ in COLUMNS))
    for name in FAILURES:
        rows = [row for row in results if row["name"] == name]
        if rows:
            print(f"{name:<58}{len(rows):>5}" + "".join(f"{figures(rows, k, form):>15}" for _, k, form in COLUMNS))


def measure(network: str, arguments: argparse.Namespace) -> list[dict]:
    """The results of runs on one network, in a process of their own that enters the namespaces."""
    command = [sys.executable, __file__, "--inside", network, "--runs", str(arguments.runs)]
    command += ["--seconds", str(arguments.seconds), "--only", *arguments.only]
    # In a session of its own a terminal's Ctrl-C reaches it as `kill -INT` does: through this process, once.
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        results = []
        try:
            for line in process.stdout:
                results.append(json.loads(line))
                print(line, end="", file=sys.stderr, flush=True)
        except (KeyboardInterrupt, SystemExit):
            process.send_signal(signal.SIGINT)
            process.wait()
            raise
    return results


def start(network: str, names: list[str], seconds: float) -> int:
    """The network, until all runs are over."""
    found = parse(DIAMOND, "diamond") if network == "diamond" else shipped(network)
    options = {"measured": True, "discover": True, "snmp": True, "errors": {"noise": 0.1, "hold_s": 0.1}}
    return on_network(found, "bench-failures", lambda emulation: sequence(emulation, names, seconds), **options)


def send_garbage(host: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((host, 161))
        while True:
            request, sender = server.recvfrom(65536)
            server.sendto(request[: len(request) // 2], sender)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORDS", help="failures whose names contain one")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=600.0, help="at most, per network (default %(default)g)")
    parser.add_argument("--list", action="store_true", help="names of all failures")
    parser.add_argument("--table", metavar="FILE", help="only the table of results (lines of JSON) of earlier runs")
    parser.add_argument("--garbage", help=argparse.SUPPRESS)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    names = [name for name in FAILURES if any(words in name for words in arguments.only)]
    if arguments.garbage:
        send_garbage(arguments.garbage)
    elif arguments.inside:
        mine = [name for name in names if FAILURES[name].network == arguments.inside]
        return start(arguments.inside, mine * arguments.runs, arguments.seconds)
    elif arguments.list:
        print("\n".join(names))
    elif arguments.table:
        table([json.loads(line) for line in Path(arguments.table).read_text().splitlines()])
    else:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        networks = dict.fromkeys(FAILURES[name].network for name in names)
        table([result for network in networks for result in measure(network, arguments)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
