"""The controller's event loop on a campus of access points, in this process and without sockets: what one slot, one cut
and one declared flow cost. Agents and switches do at once what they are told; time is the test's.
"""

from __future__ import annotations

import json
import random
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from scripted_campus import Switch

from hyroads.controller.agents.protocol import Hello
from hyroads.controller.agents.telemetry import RadioInterface, RadioNeighbour, RadioReport
from hyroads.controller.control.telemetry import TelemetryIngest
from hyroads.controller.core.addressing import Numbers
from hyroads.controller.core.network import FlowSpec, Network
from hyroads.controller.core.topologies import campus
from hyroads.controller.framework.ryu_shim import Signal, sleep
from hyroads.controller.model.events import EventLog
from hyroads.controller.model.state import DeclaredFlow, Origin, TopologyContext, initial
from hyroads.controller.ofp import wire
from hyroads.controller.runtime.event_loop import EventLoop
from hyroads.controller.services.clients.locations import ClientService
from hyroads.controller.services.clients.pairs import HostPairs
from hyroads.controller.settings.controller import load

SLOT_S = 0.1
FRAME_BYTES = 1400
_SPREAD = 0.05
"""Capacities and busy times scatter by so much."""


class Agent:
    """A session of an agent: answers wait in a queue until the campus takes its turn."""

    def __init__(self, node: str, answers: deque[Callable[[], None]]) -> None:
        self.node, self._answers = node, answers
        self.hello = Hello(node, "x", node, None, 0)
        self.closed, self.epoch_told = False, None
        self.requests = 0
        self.ingress: dict[int, dict[int, float]] = {}
        self.egress: dict[int, list[int]] = {}

    def request(self, document: Mapping[str, Any] | str, answer: Callable[[str | None], None], **_: Any) -> None:
        document = json.loads(document) if isinstance(document, str) else document
        self.requests += 1
        if document["type"] == "config":
            self.ingress = {
                f["number"]: {p["id"]: p["rate_mbps"] or 0.0 for p in f["paths"]} for f in document["ingress"]
            }
            self.egress = {f["number"]: f["paths"] for f in document["egress"]}
        elif document["type"] == "rates":
            for number, rates in document["rates"].items():
                self.ingress[int(number)].update({int(path): rate for path, rate in rates.items()})
        self._answers.append(lambda: answer(None))


class Connection:
    """An OpenFlow connection to a scripted switch; ``told`` is given what that says."""

    def __init__(self, switch: Switch, told: Callable[[bytes], None]) -> None:
        self._switch, self._peer = switch, SimpleNamespace(send=told)
        self.dpid, self.key, self.peer = switch.dpid, id(self), "here"

    def ports(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self._switch.ports, start=1)}

    def addresses(self) -> dict[str, str]:
        return {}

    def send(self, data: bytes) -> bool:
        at, peer = 0, cast("Any", self._peer)
        while at < len(data):
            length = int.from_bytes(data[at + 2 : at + 4], "big")
            self._switch._answer(peer, bytes(data[at : at + length]))
            at += length
        return True

    def close(self) -> None:
        raise AssertionError("the controller gave a switch up")


def campus_flows(
    network: Network, count: int, rng: random.Random, name: str = "f", first_port: int = 1
) -> list[FlowSpec]:
    """TCP flows between access points and the switch room of their building, or another access point anywhere. Each has
    a port of its own: of flows with the same frames only the first would be a multipath.
    """
    nodes, found = list(network.nodes), []
    while len(found) < count:
        source = rng.choice(nodes)
        target = f"{source.split('-')[0]}-1" if rng.random() < 0.9 else rng.choice(nodes)
        if source == target:
            continue
        ends = (source, target) if rng.random() < 0.5 else (target, source)
        match = {"eth_type": 0x0800, "ip_proto": 6, "tcp_dst": first_port + len(found)}
        found.append(FlowSpec(f"{name}{len(found)}", *ends, match=match))
    return found


class CampusLoop:
    """``loop`` is the event loop; :meth:`settle` brings all into force, :meth:`slot` lets a slot pass."""

    def __init__(self, folder: Path, nodes: int, flows: int, *, seed: int = 1) -> None:
        self.network: Network = campus(random.Random(seed), nodes)
        self.now_s = 100.0
        self.rng = random.Random(seed)
        self.context = TopologyContext.of(self.network)
        file = folder / "network.json"
        file.write_text('{"nodes": {}}')
        config = folder / "settings.json"
        settings_of = {"network": str(file), "capacities": "measured", "state_file": str(folder / "state")}
        config.write_text(json.dumps(settings_of))
        settings = load({"HYROADS_CONFIG": str(config)})
        clock = self.clock
        self.ingest = TelemetryIngest(self.context, clock)
        specs = self.specs(flows, random.Random(2))
        state = initial(self.context, [DeclaredFlow(spec, Origin.API) for spec in specs])
        self.loop = EventLoop(
            self.context, settings, state, Numbers(), clock=clock, events=EventLog(time.time, Signal()),
            save=lambda *_: None, source=self.ingest,
        )  # fmt: skip
        self.clients = ClientService(
            self.context, settings.access, self.loop, lambda *_: None, clock, switch_grace_s=10.0
        )
        self.pairs = None
        if self.context.on_demand:
            touched = self.loop.registry.watch()
            self.pairs = HostPairs(self.loop, self.clients.tables, clock, switch_grace_s=10.0, touched=touched)
            self.loop.before_push.append(self.pairs.follow)
            self.loop.additions.append(self.pairs)
        self.loop.saver.begin = self._saved  # type: ignore[method-assign]
        # Tests go on without the slots that would let it look again.
        self.loop._garbage.hold = lambda: None  # type: ignore[method-assign]
        self.answers: deque[Callable[[], None]] = deque()
        self.counts: dict[str, int] = {"adds": 0, "deletes": 0, "groups": 0}
        self.carried: dict[tuple[int, int], float] = {}
        self._neighbours = self._rows()
        self.agents: dict[str, Agent] = {}
        self.switches: dict[str, Switch] = {}
        self._radios: dict[str, Any] = {}
        self._connect()

    def _connect(self) -> None:
        """Switches, agents and radios of all nodes."""
        for node in self.context.addressing.dpid:
            self.loop.switch_up(self._connection(node))
        for node in sorted(self.context.addressing.agents):
            self.agents[node] = agent = Agent(node, self.answers)
            self.loop.agent_up(cast("Any", agent))
            hello = Hello(node, "x", node, None, 0, "radio")
            self._radios[node] = radios = cast("Any", SimpleNamespace(node=node, hello=hello, rtt_ms=1.0))
            self.ingest.radio_up(radios)

    def _saved(self) -> None:
        """What was noted is in the state file at once."""
        self.loop.saver._noted = False

    def clock(self) -> float:
        """The time of the test, in seconds."""
        return self.now_s

    # -- what scripted switches need of a campus

    openflow = ()

    @property
    def addressing(self) -> Any:
        return self.context.addressing

    def _connection(self, node: str) -> Any:
        self.switches[node] = switch = Switch(cast("Any", self), node)
        return Connection(switch, lambda data: self.answers.append(partial(self._said, node, data)))

    def _said(self, node: str, message: bytes) -> None:
        session = self.loop.switches[node]
        kind, xid = message[1], int.from_bytes(message[4:8], "big")
        if kind == wire.BARRIER_REPLY:
            session.on_barrier(xid)
        elif kind == wire.MULTIPART_REPLY:
            part = int.from_bytes(message[8:10], "big")
            if part == wire.MULTIPART_FLOW:
                session.on_flow_stats(message)
            elif part == wire.MULTIPART_GROUP_DESC:
                session.on_groups(message)
            elif part == wire.MULTIPART_METER_FEATURES:
                session.on_meter_features(message)

    def _rows(self) -> dict[tuple[str, str], tuple[RadioNeighbour, ...]]:
        found: dict[tuple[str, str], list[RadioNeighbour]] = {}
        for link in self.network.links:
            mac = self.context.addressing.interface_mac[link.target, link.technology]
            row = RadioNeighbour(mac, round(link.capacity_mbps, 3), None, 0.0, -50, 5)
            found.setdefault((link.source, link.technology), []).append(row)
        return {interface: tuple(rows) for interface, rows in found.items()}

    # -- flows

    def specs(self, count: int, rng: random.Random, name: str = "f", first_port: int = 1) -> list[FlowSpec]:
        """As :func:`campus_flows`."""
        return campus_flows(self.network, count, rng, name, first_port)

    # -- time

    def settle(self, slots: int = 12) -> None:
        """Until nothing is pending."""
        for _ in range(slots):
            self.slot()
        self.turn()

    def turn(self) -> None:
        """The loop turns until there is nothing left to do."""
        for _ in range(10_000):
            self._answer()
            if not self.loop._dirty and not self.answers:
                # Whoever works beside the loop has its turn.
                sleep(0)
            if not self.loop._dirty and not self.answers:
                return
            self.loop._dirty = self.loop._hurry = False
            self.loop._tick()
            self.loop._cycle()
        raise AssertionError("the loop does not come to rest")

    def _answer(self) -> None:
        while self.answers:
            self.answers.popleft()()

    def tell(self) -> None:
        """Agents and radios report what was carried in a slot."""
        self.now_s += SLOT_S
        for number, rates in ((n, r) for agent in self.agents.values() for n, r in agent.ingress.items()):
            for path, mbps in rates.items():
                key = (number, path)
                noise = 1 + _SPREAD * (self.rng.random() - 0.5)
                self.carried[key] = self.carried.get(key, 0.0) + mbps * 125_000 * SLOT_S * noise
        for node, agent in self.agents.items():
            self.loop.reports.take(node, self._report(agent))
            interfaces = tuple(
                RadioInterface(
                    k,
                    int(self.now_s * 5e5 * (1 + 1e-5 * self.rng.random())),
                    int(self.now_s * 1e6),
                    self._scattered(node, k),
                )
                for k in self.context.addressing.technologies(node)
            )
            self.ingest.radio_report(self._radios[node], RadioReport(None, self.now_s, interfaces))

    def _scattered(self, node: str, technology: str) -> tuple[RadioNeighbour, ...]:
        return self._neighbours.get((node, technology), ())

    def _report(self, agent: Agent) -> dict[str, Any]:
        carried = self.carried
        ingress = [
            {
                "number": number, "queued": 20, "queued_bytes": 28000, "dropped": 0, "too_big": 0,
                "sent": 1, "from": None,
                "paths": [
                    {"id": path, "rate_mbps": mbps, "sent_frames": int(carried[number, path]) // FRAME_BYTES,
                     "sent_bytes": int(carried[number, path]), "skipped": None}
                    for path, mbps in rates.items()
                ],
            }
            for number, rates in agent.ingress.items()
        ]  # fmt: skip
        egress = [
            {
                "number": number, "delivered_frames": 1, "delivered_bytes": 1, "reordered": 0, "late": 0,
                "duplicate": 0, "lost": 0, "timed_out": 0, "held": 0, "held_max": 0, "hold_mean_ms": 0.1,
                "paths": [
                    {"id": path, "received_frames": int(carried.get((number, path), 0)) // FRAME_BYTES,
                     "received_bytes": int(carried.get((number, path), 0)), "delay_ms": 2.5, "last_heard_ms": 1.5,
                     "passed": None, "arrived": None}
                    for path in paths
                ],
            }
            for number, paths in agent.egress.items()
        ]  # fmt: skip
        return {
            "type": "report", "seq": None, "time_s": self.now_s, "revision": 1, "unclassified": 0, "malformed": 0,
            "cpu_s": 1.0, "more": False, "woken_late": None, "ingress": ingress, "egress": egress, "links": [],
        }  # fmt: skip

    def slot(self) -> float:
        """A slot passes; the CPU time of the loop's thread that it took, in seconds, without what was told."""
        self.tell()
        began_s = time.thread_time()
        self.loop._slot()
        took_s = time.thread_time() - began_s
        self.turn()
        return took_s

    def _timed(self, event: Callable[[], None]) -> float:
        """CPU time of the loop's thread from an event until nothing is left to do."""
        began_s = time.thread_time()
        event()
        self.turn()
        return time.thread_time() - began_s

    def declare(self, spec: FlowSpec) -> float:
        return self._timed(lambda: self.loop.declare(DeclaredFlow(spec, Origin.API)))

    def cut(self, link: str, *, up: bool = False) -> float:
        """An agent says that a link is silent, or heard again."""
        target = self.network.links[self.network.link_index[link]].target
        return self._timed(lambda: self.loop.agent_links(self.agents[target], {link: up}))

    def used(self) -> list[str]:
        """Links that carry something and are no wires."""
        assert self.loop.plan is not None
        paths = (path for flow in self.loop.plan.flows.values() for path in flow.paths if path.rate_mbps)
        return sorted({link for path in paths for link in path.links if "ethernet" not in link})
