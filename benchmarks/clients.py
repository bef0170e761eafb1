"""Clients that come and go: real Open vSwitch, the real controller, 10 access points; what is left, against the truth.

Every client is a MAC address at an access port whose frames are made by hand. Moves are seen by traffic alone, after
the client has been silent for a while. In the end the service's table and the rules of every switch must be exactly
those of where the clients really are.

Needs root. Run: python benchmarks/clients.py [--clients 500] [--moves 50] [--seconds 300]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from hyroads.controller.core.addressing import Labels

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from client_lab import ClientLab, mesh

QUIET_S = 1.0
HEARD_EVERY_S = 1.0
SETTLE_S = 4.0


@dataclass
class Client:
    """Where it is, and since when."""

    mac: str
    node: str
    quiet_since_s: float = 0.0


@dataclass
class Run:
    """What happened."""

    moves: int = 0
    late: int = 0
    reached_ms: list[float] = field(default_factory=list)


def mac_of(number: int) -> str:
    """The address of a client."""
    return f"02:aa:00:00:{number >> 8:02x}:{number & 255:02x}"


def populate(lab: ClientLab, count: int) -> list[Client]:
    """All clients show up, at 200 a second."""
    nodes = tuple(lab.addressing.dpid)
    clients = [Client(mac_of(number), nodes[number % len(nodes)]) for number in range(count)]
    for client in clients:
        lab.send(client.node, client.mac)
        client.quiet_since_s = time.monotonic()
        time.sleep(0.005)
    return clients


def move_for(lab: ClientLab, clients: list[Client], moves_per_s: float, seconds: float, seed: int) -> Run:
    """Clients move at a steady pace; those that do have been silent for long enough to be let go."""
    chance, run, nodes = random.Random(seed), Run(), tuple(lab.addressing.dpid)
    began_s = time.monotonic()
    silence_s = QUIET_S + HEARD_EVERY_S + 0.5
    while (now_s := time.monotonic()) < began_s + seconds:
        due_s = began_s + run.moves / moves_per_s
        if due_s > now_s:
            time.sleep(due_s - now_s)
        run.late += now_s - due_s > 0.1
        quiet = [client for client in clients if now_s - client.quiet_since_s > silence_s]
        if not quiet:
            raise SystemExit("all clients have moved too lately: fewer moves, or more clients")
        client = chance.choice(quiet)
        client.node = chance.choice([node for node in nodes if node != client.node])
        lab.send(client.node, client.mac)
        client.quiet_since_s = time.monotonic()
        run.moves += 1
    return run


def differences(lab: ClientLab, clients: list[Client]) -> dict[str, int]:
    """Table and rules against the truth."""
    truth = {client.mac: client.node for client in clients}
    listed: dict[str, str | None] = {}
    address = "/clients?limit=500"
    while address:
        page = lab.rest("GET", address)[1]
        listed |= {one["id"]: one["attachments"][0]["node"] for one in page["clients"]}
        address = page["next"] and page["next"].removeprefix("/api/v1")
    stale = sum(listed.get(mac) != node for mac, node in truth.items()) + len(listed.keys() - truth.keys())
    missing = leaked = 0
    for node in lab.addressing.dpid:
        rules = [rule for rule in lab.flows(node) if "02:aa:" in rule]
        expected = expected_rules(lab, truth, node)
        found = {rule.split(", ", 1)[1] for rule in rules}
        missing, leaked = missing + len(expected - found), leaked + len(found - expected)
    return {"stale_locations": stale, "missing_rules": missing, "leaked_rules": leaked}


def expected_rules(lab: ClientLab, truth: dict[str, str], node: str) -> set[str]:
    """What a switch must have of the clients, as ``ovs-ofctl`` prints it."""
    behind = "actions=encap(mpls),set_field:{}->mpls_label,set_mpls_ttl(64),encap(ethernet),resubmit(,3)"
    expected = set()
    # Without a state file there is no secret, and labels follow from the network file.
    labels = Labels.of(lab.network, lab.addressing)
    for mac, home in truth.items():
        if home == node:
            expected.add(f"priority=35,in_port=100,dl_src={mac} actions=goto_table:6")
            expected.add(f"table=2, priority=27,dl_dst={mac} actions=goto_table:4")
            expected.add(f"table=4, priority=15,dl_dst={mac} actions=output:100")
        else:
            expected.add(f"table=2, priority=15,dl_dst={mac} {behind.format(labels.node[home])}")
    return expected


def reach(lab: ClientLab, clients: list[Client], samples: int, seed: int) -> list[float]:
    """How long it takes, in ms, until a client that has just moved is reached by a frame from elsewhere."""
    chance, times_ms, nodes = random.Random(seed), [], tuple(lab.addressing.dpid)
    for number, client in enumerate(chance.sample(clients, samples)):
        old = client.node
        home, other = chance.sample([node for node in nodes if node != old], 2)
        client.node = home
        lab.send(home, client.mac)
        began_s = time.perf_counter()
        mark = b"probe %d;" % number
        while time.perf_counter() < began_s + 5:
            lab.send(other, lab.addressing.host_mac[other], client.mac, payload=mark)
            time.sleep(0.001)
            if any(mark in frame for frame in lab.received(home)):
                times_ms.append((time.perf_counter() - began_s) * 1e3)
                break
    return times_ms


def main() -> int:
    """The run; status 1 if anything is stale or leaked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--access-points", type=int, default=10)
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--moves", type=float, default=50.0, help="a second")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with ClientLab(mesh(arguments.access_points), {"access": {"quiet_s": QUIET_S}}) as lab:
        clients = populate(lab, arguments.clients)
        time.sleep(SETTLE_S)
        before = differences(lab, clients)
        cpu_s = lab.cpu_s()
        run = move_for(lab, clients, arguments.moves, arguments.seconds, arguments.seed)
        share = (lab.cpu_s() - cpu_s) / arguments.seconds
        time.sleep(SETTLE_S)
        after = differences(lab, clients)
        times_ms = sorted(reach(lab, clients, min(20, arguments.clients), arguments.seed))
        health = lab.rest("GET", "/health")[1]
        document = {
            "attached": before,
            "moves": run.moves,
            "late_moves": run.late,
            **after,
            "reached_ms": {"median": statistics.median(times_ms), "worst": times_ms[-1], "count": len(times_ms)},
            "controller_cpu": round(share, 3),
            "exceptions": health["counters"]["exceptions"],
            "last_errors": health["last_errors"][-5:],
        }
    print(json.dumps(document, indent=1))
    return int(any(before.values()) or any(after.values()) or health["counters"]["exceptions"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
