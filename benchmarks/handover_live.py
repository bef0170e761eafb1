"""Handovers on real packets in emulation: pings, TCP, and how long a request takes. Needs root.

    sudo python benchmarks/handover_live.py pings [--handovers 20] [--pings 500] [--managers hard,hoolock,bicast]
    sudo python benchmarks/handover_live.py tcp [--seconds 300] [--every 60]
    sudo python benchmarks/handover_live.py rest [--seconds 60] [--per-second 20]
    sudo python benchmarks/handover_live.py ncast [--seconds 100] [--copies 3] [--loss 0.03]

*pings*: clients with two interfaces each go to and fro between two WiFi channels, WiFi and PLC, and PLC and a
cellular-like link of 50 ms one way, all at once; each handover lies within a series of pings of 20 ms. *tcp*: three
clients with two WiFi channels of their own each; one stays, the others are handed over, all at the same time. *rest*:
ten access points and five clients; the time from a request for a hard handover to its answer, which comes when all
agents have confirmed. *ncast*: a stream of packets each millisecond over three links that lose packets, copied by all.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from live import on_network

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.netfile import parse
from hyroads.controller.core.network import Network, Place
from hyroads.mininet.emulation import Emulation
from hyroads.mininet.programs import wait_until
from hyroads.mininet.roaming import PingRun, Pings, Roamer, together
from hyroads.mininet.traffic import Traffic

PLACES = {
    "wifi1": Place("a", "wifi1"),
    "wifi2": Place("b", "wifi2"),
    "plc": Place("b", "plc"),
    "lte": Place("x", "lte"),
}
PAIRS = {"wifi-wifi": ("wifi1", "wifi2"), "wifi-plc": ("wifi1", "plc"), "plc-lte": ("plc", "lte")}
CAPACITY_MBPS = {"wifi1": 20.0, "wifi2": 20.0, "plc": 15.0, "lte": 15.0}
DELAY_MS = {"lte": 50.0}
INTERVAL_S = 0.02
TCP_MBPS = 10.0
Document = dict[str, Any]


def cable(first: str, second: str) -> Document:
    """Wired, both directions."""
    ends = {"id": f"{first}-{second}", "from": first, "to": second}
    return {**ends, "technology": "ethernet", "capacity_mbps": 100, "both": True}


def network_of(nodes: Document, links: list[Document], flows: list[Document]) -> Network:
    """A network of which all media are shared by technology."""
    document = {"nodes": nodes, "links": links, "flows": flows, "interference": {"rule": "technology"}}
    return parse(document, "handover_live")


def both_ways(client: str) -> list[Document]:
    """A client's two flows."""
    return [{"id": f"{client}-down", "from": "g", "to": client}, {"id": f"{client}-up", "from": client, "to": "g"}]


def roaming(clients: dict[str, str]) -> Network:
    """``clients``: name -> pair of places."""
    nodes: Document = {"g": {"role": "gateway"}, **{ap: {"role": "ap"} for ap in "abx"}}
    links, flows = [cable("g", ap) for ap in "abx"], []
    for client, pair in clients.items():
        nodes[client] = {"role": "client", "agent": True}
        flows += both_ways(client)
        for technology in PAIRS[pair]:
            link = {"id": f"{client}-{technology}", "from": PLACES[technology].node, "to": client, "both": True}
            link |= {"technology": technology, "capacity_mbps": CAPACITY_MBPS[technology]}
            links.append({**link, "delay_ms": DELAY_MS.get(technology, 0.0)})
    return network_of(nodes, links, flows)


@dataclass
class Trip(threading.Thread):
    """One client that is handed over again and again."""

    emulation: Emulation
    client: str
    pair: str
    manager: str
    handovers: int
    pings: int
    start_s: float
    results: list[Pings] = field(default_factory=list)
    documents: list[Document] = field(default_factory=list)
    problem: str | None = None

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        """Series of pings, a handover within each."""
        try:
            self._go()
        except HyroadsError as error:
            self.problem = str(error)

    def _go(self) -> None:
        first, second = (PLACES[technology] for technology in PAIRS[self.pair])
        roamer = Roamer(self.emulation, self.client)
        roamer.begin_at(first)
        time.sleep(1.0 + self.start_s)
        for number in range(self.handovers):
            pings = PingRun(self.emulation, "g", self.client, self.pings, INTERVAL_S)
            time.sleep(self.pings * INTERVAL_S * 0.3)
            self.documents.append(roamer.move(second if number % 2 == 0 else first, self.manager))
            self.results.append(pings.result())

    def row(self) -> str:
        """A line of the table."""
        sent, lost, doubled, wrong = together(self.results)
        done = sum(document["phase"] == "done" for document in self.documents)
        moved = [
            1e3 * document["moved_after_s"] for document in self.documents if document["moved_after_s"] is not None
        ]
        rtts = [rtt_ms for result in self.results for rtt_ms in result.rtt_ms] or [float("nan")]
        worst = max((result.lost for result in self.results), default=0)
        return (
            f"{self.pair:<10} {self.manager:<16}{done:>4}/{len(self.documents):<4}{sent:>7}{lost:>6}{worst:>7}"
            f"{doubled:>8}{wrong:>7}{median(moved) if moved else float('nan'):>10.1f}{max(rtts):>10.1f}"
            + (f"  {self.problem}" if self.problem else "")
        )


def run_pings(emulation: Emulation, args: argparse.Namespace, clients: dict[str, tuple[str, str]]) -> int:
    """All clients at once; in flight is what a hard handover may lose."""
    step_s = args.pings * INTERVAL_S / max(1, len(clients))
    trips = [
        Trip(emulation, client, pair, manager, args.handovers, args.pings, number * step_s)
        for number, (client, (pair, manager)) in enumerate(clients.items())
    ]
    for trip in trips:
        trip.start()
    for trip in trips:
        trip.join()
    print(f"{'places':<10} {'manager':<16}{'done':>9}{'pings':>7}{'lost':>6}{'worst':>7}{'doubled':>8}{'order':>7}"
          f"{'moved ms':>10}{'max rtt':>10}")  # fmt: skip
    for trip in sorted(trips, key=lambda trip: (trip.manager, trip.pair)):
        print(trip.row(), flush=True)
        for document in trip.documents:
            if document["phase"] != "done":
                print(f"    {document['phase']}: {document['reason']}: {json.dumps(document['steps'])}")
    health = emulation.rest.get("/health")
    for error in health["last_errors"]:
        print(f"    {error['time_s']:.1f} s {error['where']}: {error['what']}")
    print(f"exceptions: {health['counters']['exceptions']}")
    return 0


def tcp_network(names: tuple[str, ...]) -> Network:
    """Each client has an access point and two channels of its own: nobody is in another's way."""
    nodes: Document = {"g": {"role": "gateway"}}
    links, flows = [], []
    for client in names:
        nodes |= {f"ap-{client}": {"role": "ap"}, client: {"role": "client", "agent": True}}
        links.append(cable("g", f"ap-{client}"))
        flows += both_ways(client)
        for channel in (1, 2):
            link = {"id": f"{client}-{channel}", "from": f"ap-{client}", "to": client, "both": True}
            links.append({**link, "technology": f"{client}{channel}", "capacity_mbps": TCP_MBPS})
    return network_of(nodes, links, [{**flow, "traffic": "tcp"} for flow in flows])


def run_tcp(emulation: Emulation, args: argparse.Namespace, names: tuple[str, ...]) -> int:
    """Goodput of each client, all at the same time; the one named ``none`` stays where it is."""
    roamers = {name: Roamer(emulation, name) for name in names}
    for name, roamer in roamers.items():
        roamer.begin_at(Place(f"ap-{name}", f"{name}1"))
    time.sleep(1.0)
    found: dict[str, Any] = {}
    moves: dict[str, list[Document]] = {name: [] for name in names}

    def traffic(name: str) -> None:
        found[name] = Traffic(emulation, "g", name, lambda: None).tcp(args.seconds, args.congestion)

    def walk(name: str) -> None:
        until_s = time.monotonic() + args.seconds - 2.0
        number = 0
        while time.monotonic() + args.every < until_s:
            time.sleep(args.every)
            number += 1
            moves[name].append(roamers[name].move(Place(f"ap-{name}", f"{name}{1 + number % 2}"), name))

    threads = [threading.Thread(target=traffic, args=(name,), daemon=True) for name in names]
    threads += [threading.Thread(target=walk, args=(name,), daemon=True) for name in names if name != "none"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{'manager':<10}{'goodput':>9}{'ratio':>8}{'retransmits':>13}{'handovers':>11}{'worst second':>14}")
    reference = found["none"].mbps
    for name in names:
        good = found[name]
        done = sum(document["phase"] == "done" for document in moves[name])
        print(f"{name:<10}{good.mbps:>9.2f}{good.mbps / reference:>8.3f}{good.retransmits:>13}{done:>11}"
              f"{min(good.per_second_mbps):>14.2f}")  # fmt: skip
        if args.verbose:
            print("    " + " ".join(f"{mbps:.1f}" for mbps in good.per_second_mbps))
    return 0


ACCESS_POINTS = 10
CLIENTS = 5
# Two cores carry the whole network: hello frames, which have no part in this, are said less often.
REST_SETTINGS = {"timings": {"hello_interval_ms": 100, "hello_dead_ms": 1000, "agent_dead_ms": 2000}}


def places_between(client: int) -> tuple[Place, Place]:
    """The two access points between which a client goes."""
    first, second = (Place(f"a{ap}", f"wifi{ap}") for ap in (2 * client, 2 * client + 1))
    return first, second


def rest_network() -> Network:
    """Ten access points on a wire, a client between each two."""
    nodes: Document = {"g": {"role": "gateway"}, **{f"a{i}": {"role": "ap"} for i in range(ACCESS_POINTS)}}
    links, flows = [cable("g", f"a{i}") for i in range(ACCESS_POINTS)], []
    for i in range(CLIENTS):
        client = f"c{i}"
        nodes[client] = {"role": "client", "agent": True}
        flows += both_ways(client)
        for place in places_between(i):
            link = {"id": f"{client}-{place.node}", "from": place.node, "to": client, "both": True}
            links.append({**link, "technology": place.technology, "capacity_mbps": 50})
    return network_of(nodes, links, flows)


def processor_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields_of = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields_of[11]) + int(fields_of[12])) / os.sysconf("SC_CLK_TCK")


def run_rest(emulation: Emulation, args: argparse.Namespace) -> int:
    """Requests on a schedule, each by a thread of its own; every client is asked for in turn."""
    took_ms: list[float] = []
    moved_ms: list[float] = []
    wrong: list[str] = []

    def ask(number: int) -> None:
        i, turn = number % CLIENTS, number // CLIENTS
        began_s = time.monotonic()
        try:
            answer = Roamer(emulation, f"c{i}").ask(places_between(i)[1 - turn % 2], "hard")
        except HyroadsError as error:
            wrong.append(str(error))
            return
        took_ms.append(1e3 * (time.monotonic() - began_s))
        if answer["moved_after_s"] is None:
            wrong.append(f"{answer['phase']}: {answer['reason']}")
        else:
            moved_ms.append(1e3 * answer["moved_after_s"])

    for number in range(2 * CLIENTS):
        ask(number)
    time.sleep(1.0)
    took_ms.clear()
    moved_ms.clear()
    wrong.clear()
    pid, idle_s = emulation.controller.pid, 4.0
    before_s = processor_s(pid)
    time.sleep(idle_s)
    idle = (processor_s(pid) - before_s) / idle_s
    due_s, threads = time.monotonic(), []
    began_s, before_s = due_s, processor_s(pid)
    for number in range(round(args.seconds * args.per_second)):
        due_s += 1.0 / args.per_second
        time.sleep(max(0.0, due_s - time.monotonic()))
        threads.append(threading.Thread(target=ask, args=(number,), daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join()
    print(f"{'':<22}{'count':>7}{'median ms':>11}{'p99 ms':>9}{'longest':>9}")
    for name, values in (("request to answer", took_ms), ("in the controller", moved_ms)):
        print(f"{name:<22}{len(values):>7}{median(values):>11.1f}{quantiles(values, n=100)[98]:>9.1f}"
              f"{max(values):>9.1f}")  # fmt: skip
    busy_s = processor_s(pid) - before_s - idle * (time.monotonic() - began_s)
    print(f"without success: {len(wrong)} {wrong[:3]}")
    print(f"controller: {1e3 * busy_s / len(took_ms):.1f} ms of processor time each, {idle:.0%} of a core without any")
    health = emulation.rest.get("/health")
    slots = health["slots"]
    print(f"slots: {slots['p50_ms']:.1f} ms, p99 {slots['p99_ms']:.1f}; errors: {health['last_errors'][-3:]}")
    return 0


def ncast_network(copies: int) -> Network:
    """A client that hears as many access points, each on a channel of its own."""
    nodes: Document = {"g": {"role": "gateway"}, "c": {"role": "client", "agent": True}}
    links = []
    for i in range(copies):
        nodes[f"a{i}"] = {"role": "ap"}
        links.append(cable("g", f"a{i}"))
        link = {"id": f"c-{i}", "from": f"a{i}", "to": "c", "both": True}
        links.append({**link, "technology": f"wifi{i}", "capacity_mbps": 20})
    return network_of(nodes, links, both_ways("c"))


def run_ncast(emulation: Emulation, args: argparse.Namespace) -> int:
    """What arrives, and in which order."""
    for i in range(args.copies):
        emulation.shared.set_link(f"c-{i}", loss=args.loss)
    wait_until("the flow", lambda: emulation.rest.flow("c-down")["state"] == "multipath", 10.0)
    document = emulation.rest.request("POST", "/ncasts", {"flow": "c-down", "copies": args.copies}).document
    print(f"copies sent after {1e3 * document['copying_after_s']:.1f} ms by {document['paths']}")
    found = Traffic(emulation, "g", "c", lambda: None).stream(args.seconds, 0.001, 200, lambda: None)
    lost = len(found.lost)
    print(f"{found.sent} packets, {lost} lost, {found.doubled} doubled, {found.out_of_order} out of order; "
          f"expected loss {args.loss**args.copies:.2g}, measured {lost / found.sent:.2g}")  # fmt: skip
    first, last = (emulation.agent_report(node) for node in ("g", "c"))
    number = emulation.rest.flow("c-down")["number"]
    [sending] = [flow for flow in first["ingress"] if flow["number"] == number]
    [receiving] = [flow for flow in last["egress"] if flow["number"] == number]
    skipped = sum(path["skipped"] for path in sending["paths"])
    told = {key: receiving[key] for key in ("lost", "timed_out", "late", "stale", "duplicate", "restarts")}
    print(f"first edge: {sending['dropped']} dropped, {skipped} copies left out; last edge: {told}")
    silent = (emulation.directory / "controller.log").read_text(encoding="utf-8").count("is silent")
    print(f"links that were taken for silent: {silent}; numbers lost: {found.lost[:20]}")
    return 0


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("pings", "tcp", "rest", "ncast"))
    parser.add_argument("--managers", default="hard,hoolock,bicast")
    parser.add_argument("--pairs", default=",".join(PAIRS))
    parser.add_argument("--handovers", type=int, default=20)
    parser.add_argument("--pings", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--every", type=float, default=60.0)
    parser.add_argument("--per-second", type=float, default=20.0)
    parser.add_argument("--copies", type=int, default=3)
    parser.add_argument("--loss", type=float, default=0.03)
    parser.add_argument("--congestion", default="cubic")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--name", default="handover-live")
    args = parser.parse_args()
    managers = args.managers.split(",")
    body: Callable[[Emulation], int]
    if args.what == "pings":
        combined = [(pair, manager) for manager in managers for pair in args.pairs.split(",")]
        clients = {f"c{number}": both for number, both in enumerate(combined)}
        network = roaming({client: pair for client, (pair, _) in clients.items()})
        body = lambda emulation: run_pings(emulation, args, clients)  # noqa: E731 - one of three
    elif args.what == "tcp":
        names = ("none", *managers)
        network = tcp_network(names)
        body = lambda emulation: run_tcp(emulation, args, names)  # noqa: E731
    elif args.what == "ncast":
        network = ncast_network(args.copies)
        body = lambda emulation: run_ncast(emulation, args)  # noqa: E731
    else:
        network = rest_network()
        body = lambda emulation: run_rest(emulation, args)  # noqa: E731
    settings = REST_SETTINGS if args.what == "rest" else {}
    say = (lambda what: print(what, file=sys.stderr)) if args.verbose else (lambda _: None)
    return on_network(network, args.name, body, say, settings=settings)


if __name__ == "__main__":
    sys.exit(main())
