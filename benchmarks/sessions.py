"""Multicast sessions: what planning them costs, and what they do on real packets (root).

    python benchmarks/sessions.py plan [--networks 5]
    python benchmarks/sessions.py live [--rounds 20] [--seconds 8]

*plan*: networks of 100 nodes with sessions of 5 and 30 participants, CPU time in ms: declare, one joins, one leaves, a
link of a tree dies. *live*: the network of the demo ``session``, five
participants that send 50 messages/s each. Delays are compared with a chat server at the gateway (UDP both ways); times
of requests are from the request to the answer, which comes once all switches have confirmed.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from live import on_network

from hyroads.controller.control.sessions import Host, LiveSession, World, planned, sent_of
from hyroads.controller.core.multicast import GroupRate, Media
from hyroads.controller.core.network import Network
from hyroads.controller.core.services.sessions import SessionSpec, group_address
from hyroads.controller.model.state import TopologyContext
from hyroads.controller.ofp.intents import attached_only, default_places
from hyroads.mininet.demos.session import GROUP, MEMBERS, NEWCOMER, SERVER
from hyroads.mininet.emulation import Emulation
from hyroads.mininet.group_talk import GroupTalk

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from hyroads.controller.study import networks as study_networks

SIZES = (5, 30)
DOWN_S = 2.0


def timed(work: Callable[[], LiveSession]) -> tuple[LiveSession, float]:
    """What some work gives, and its CPU time in ms."""
    began_s = time.process_time()
    return work(), 1e3 * (time.process_time() - began_s)


class Campus:
    """A network with one session, without switches."""

    def __init__(self, network: Network, rng: random.Random, size: int) -> None:
        self.context = TopologyContext.of(network)
        self.places = default_places(self.context.addressing)
        self.network = attached_only(network, self.context.addressing, self.places)
        self.nodes = rng.sample(sorted(self.context.addressing.dpid), size + 1)
        self.live = LiveSession(SessionSpec("s", group_address(GROUP), ()))

    def plan(self, nodes: Sequence[str], dead: Sequence[str] = ()) -> float:
        """Plans for these nodes and tells switches; CPU time in ms."""
        network = self.network.with_capacities(dict.fromkeys(dead, 0.0))
        macs = self.context.addressing.host_mac
        hosts = tuple(Host(node, True, node, macs[node]) for node in nodes)

        def work() -> LiveSession:
            world = World(self.context, Media(network, group_rate=GroupRate.NEIGHBOURS), self.places)
            live = planned(world, replace(self.live, hosts=hosts), (), quick=True)
            sent_of(world, [live])
            return live

        self.live, took_ms = timed(work)
        return took_ms


def plan(networks: int) -> int:
    """Prints a table."""
    print(f"{'':<28}{'declare':>16}{'join':>16}{'leave':>16}{'link dies':>16}   CPU ms, median (worst)")
    for size in SIZES:
        rows: dict[str, list[float]] = {"declare": [], "join": [], "leave": [], "dies": []}
        for seed in range(networks):
            rng = random.Random(seed)
            campus = Campus(study_networks.campus100(rng), rng, size)
            rows["declare"].append(campus.plan(campus.nodes[:-1]))
            rows["join"].append(campus.plan(campus.nodes))
            rows["leave"].append(campus.plan(campus.nodes[1:]))
            used = sorted({link for tree in campus.live.plans.values() for link in tree.plan.links})
            rows["dies"].append(campus.plan(campus.nodes[1:], [rng.choice(used)]))
        cells = "".join(f"{np.median(found):9.1f} ({max(found):4.0f})" for found in rows.values())
        print(f"{f'campus of 100, {size} take part':<28}{cells}")
    return 0


def figures(what: str, ms: Sequence[float]) -> None:
    """One row."""
    found = np.array(ms)
    row = (np.median(found), np.percentile(found, 99), found.max())
    print(f"{what:<44}" + "".join(f"{each:10.2f}" for each in row))


class Live:
    """The session on real packets."""

    def __init__(self, emulation: Emulation, seconds: float, rounds: int) -> None:
        self.emulation = emulation
        self.rest = emulation.rest
        self.seconds = seconds
        self.rounds = rounds

    def run(self) -> int:
        """Prints a table."""
        print(f"{'ms':<44}{'median':>10}{'99 %':>10}{'worst':>10}")
        with GroupTalk(self.emulation, MEMBERS, GROUP, server=SERVER) as chat:
            time.sleep(1.0)
            chat.forget()
            time.sleep(self.seconds)
            figures("delay by chat server", chat.delays_ms())
        declared, removed = self.declared()
        with GroupTalk(self.emulation, [*MEMBERS, NEWCOMER], GROUP) as talk:
            talk.speak(MEMBERS)
            time.sleep(1.0)
            talk.forget()
            time.sleep(self.seconds)
            figures("delay in the session", talk.delays_ms(MEMBERS))
            figures("POST /sessions until confirmed", declared)
            figures("DELETE /sessions until confirmed", removed)
            self.joins(talk)
            self.cut(talk)
        return 0

    def request(self, method: str, path: str, body: dict[str, object] | None = None) -> float:
        """How long it took, ms."""
        began_s = time.monotonic()
        self.rest.request(method, path, body)
        return 1e3 * (time.monotonic() - began_s)

    def declared(self) -> tuple[list[float], list[float]]:
        """Declares and ends sessions; the last one stays."""
        declared, removed = [], []
        for number in range(self.rounds):
            if number:
                removed.append(self.request("DELETE", "/sessions/talk"))
                time.sleep(0.2)
            body = {"id": "talk", "group": GROUP, "participants": list(MEMBERS)}
            declared.append(self.request("POST", "/sessions", body))
            time.sleep(0.2)
        return declared, removed

    def joins(self, talk: GroupTalk) -> None:
        """Joins and leaves while all others talk."""
        join, leave, began_s = [], [], time.monotonic()
        for _ in range(self.rounds):
            join.append(self.request("POST", "/sessions/talk/participants", {"name": NEWCOMER}))
            time.sleep(0.1)
            leave.append(self.request("DELETE", f"/sessions/talk/participants/{NEWCOMER}"))
            time.sleep(0.1)
        figures("join until confirmed", join)
        figures("leave until confirmed", leave)
        self.missed(f"{self.rounds} joins and leaves", talk, began_s)

    def cut(self, talk: GroupTalk) -> None:
        """A link of the trees dies and comes back."""
        if self.emulation.shared is None:
            return
        for up in (False, True):
            began_s = time.monotonic()
            for link in ("gc-wifi", "gc-wifi~"):
                self.emulation.shared.set_link(link, up=up)
            time.sleep(DOWN_S)
            self.missed(f"{DOWN_S:g} s after a link {'came back' if up else 'was cut'}", talk, began_s)

    @staticmethod
    def missed(what: str, talk: GroupTalk, from_s: float) -> None:
        """What the others missed or got twice; and the longest time in which one missed all of another's."""
        to_s = time.monotonic()
        time.sleep(0.5)
        accounts = [talk.account(to, by, from_s, to_s) for to in MEMBERS for by in MEMBERS if to != by]
        said, missed, doubled = (sum(getattr(one, name) for one in accounts) for name in ("said", "missed", "doubled"))
        longest_ms = 20.0 * max(one.missed for one in accounts)
        print(
            f"{what}: of {said} messages {missed} missed, {doubled} doubled; at most {longest_ms:.0f} ms of one source"
        )


def main() -> int:
    """Runs a part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("plan", "live"))
    parser.add_argument("--networks", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--name", default="bench-sessions")
    args = parser.parse_args()
    if args.part == "plan":
        return plan(args.networks)
    return on_network("session", args.name, lambda found: Live(found, args.seconds, args.rounds).run(), print)


if __name__ == "__main__":
    sys.exit(main())
