"""The controller's event loop in the office (22 nodes, 552 links, ten flows), where all that is measured changes each
second: without switches, agents and packets, for what it costs to tell of it.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from flask import Flask
from told_meter import Heard, tell

from hyroads.controller.agents.protocol import Hello
from hyroads.controller.agents.telemetry import RadioInterface, RadioReport
from hyroads.controller.api.live import LiveDocument
from hyroads.controller.api.service import ControllerService
from hyroads.controller.control.rate_override import RateOverrides
from hyroads.controller.control.telemetry import TelemetryIngest
from hyroads.controller.core.addressing import Numbers
from hyroads.controller.core.growth import Counted
from hyroads.controller.core.traffic_meter import RADIO, TrafficMeter
from hyroads.controller.framework.ryu_shim import Signal
from hyroads.controller.model.events import EventLog
from hyroads.controller.model.plan import FlowPlan, PlannedPath
from hyroads.controller.model.state import DeclaredFlow, Origin, TopologyContext, agent_up, initial, switch_up
from hyroads.controller.ofp.readback import PortCounters
from hyroads.controller.runtime.event_loop import EventLoop
from hyroads.controller.settings.controller import load
from hyroads.controller.switches.sessions import Counters
from hyroads.mininet.demos import office
from hyroads.mininet.demos.verdict import DemoOptions
from hyroads.rest import live as resource
from hyroads.rest.api import create_app

FRAME_BYTES = 1400
QUIET_MBPS = 0.012
_INGRESS = ("queued", "dropped", "too_big")
_EGRESS = ("reordered", "late", "duplicate", "lost", "timed_out", "held", "held_max", "hold_mean_ms")


class OfficeLoop:
    """``app`` answers REST requests; :meth:`second` lets a second pass, with other traffic."""

    def __init__(self, folder: Path) -> None:
        network = office.network(DemoOptions())
        self.context, self.now_s = TopologyContext.of(network), 100.0
        file = folder / "network.json"
        file.write_text('{"nodes": {}}')
        settings = load({"HYROADS_NETWORK": str(file), "HYROADS_CONFIG": ""})
        state = initial(self.context, [DeclaredFlow(flow, Origin.API) for flow in network.flows])
        for node in self.context.addressing.dpid:
            state = switch_up(state, node, self._ports(node))
            state = agent_up(state, self.context, node, fresh=False, now_s=self.now_s)
        self.loop = EventLoop(
            self.context, settings, state, Numbers(), clock=lambda: self.now_s, events=EventLog(time.time, Signal()),
            save=lambda *_: None, override=RateOverrides({}),
        )  # fmt: skip
        self.loop._tick()
        self.loop._cycle()
        assert self.loop.plan is not None
        self.flows: dict[str, FlowPlan] = dict(self.loop.plan.flows)
        self.traffic = TrafficMeter(network.links)
        self.ingest = TelemetryIngest(self.context, lambda: self.now_s)
        self.service = ControllerService(self.loop, "office", self.ingest, traffic=self.traffic)
        self.live = LiveDocument(self.loop, self.traffic)
        self.app: Flask = create_app(self.service, resources=[resource.blueprint(self.live)])
        self._rng = random.Random(1)
        self._counts: dict[Any, int] = {}
        self._connect()

    def _ports(self, node: str) -> list[str]:
        addressing = self.context.addressing
        own = (addressing.access_port, addressing.agent_access_port, addressing.agent_network_port)
        names = [name for (at, _), name in addressing.interface_name.items() if at == node]
        return names + [ports[node] for ports in own if node in ports]

    def _connect(self) -> None:
        """As if switches, agents and radios were connected; nothing is ever sent to them."""
        for number, node in enumerate(self.context.addressing.dpid):
            ports = {name: 1 + at for at, name in enumerate(self._ports(node))}
            switch: Any = SimpleNamespace(
                ports=ports, synced=True, rule_count=60 + number, counters=Counters(100 * number, 0, 9)
            )
            self.loop.switches[node] = switch
            agent: Any = SimpleNamespace(session=SimpleNamespace(rtt_ms=0.3 + 0.01 * number), acked=None)
            self.loop.agents._links[node] = agent
            self.loop.links.look_at(node)
            radios: Any = SimpleNamespace(
                node=node, hello=Hello(node, "test", f"boot-{node}", None, 0, "radio"), rtt_ms=0.2
            )
            self.ingest.radio_up(radios)
            self.radios = {**getattr(self, "radios", {}), node: radios}

    def second(self) -> None:
        """A second passes: each interface and each path carries something else."""
        self.now_s += 1.0
        links = self.context.network.links
        index = self.context.network.link_index
        sending = {
            (links[index[link]].source, links[index[link]].technology)
            for flow in self.flows.values()
            for path in flow.paths
            for link in path.links
        }
        for interface in self.context.addressing.interface_mac:
            mbps = self._rng.uniform(0, 10) if interface in sending else QUIET_MBPS
            self.traffic.port(interface, self._counted(interface, mbps), self.now_s)
            self.traffic.radio(interface, self._rng.random(), RADIO, self.now_s)
        self._switches_tell()
        self._radios_tell()
        self._agents_tell()

    def _counted(self, key: Any, mbps: float) -> Counted:
        self._counts[key] = self._counts.get(key, 0) + round(mbps * 125e3)
        return Counted(self.now_s, self._counts[key], self._counts[key] // FRAME_BYTES)

    def _switches_tell(self) -> None:
        for node, session in self.loop.switches.items():
            told = []
            for name, number in session.ports.items():
                counted = [self._counted((node, name, end), 1.0) for end in ("in", "out")]
                (rx_bytes, rx), (tx_bytes, tx) = (each[1:] for each in counted)
                told.append(PortCounters(number, rx, tx, rx_bytes, tx_bytes, 0, 0, 0, 0))
            self.ingest.ports.counters(node, session.ports, told, self.now_s)

    def _radios_tell(self) -> None:
        addressing = self.context.addressing
        for node, session in self.radios.items():
            # Counters of two moments: a share of time is what grew between them.
            for seconds in (0.1, 0.0):
                at_s = self.now_s - seconds
                told = tuple(
                    RadioInterface(technology, round(4e5 * at_s), round(1e6 * at_s), ())
                    for technology in addressing.technologies(node)
                )
                self.ingest.radio_report(session, RadioReport(None, at_s, told))
        self.ingest.take(self.now_s)

    def _agents_tell(self) -> None:
        reports: dict[str, dict[str, Any]] = {
            node: {
                "time_s": self.now_s, "more": False, "ingress": [], "egress": [], "links": [], "revision": 1,
                "unclassified": 3, "malformed": 0, "cpu_s": 0.011 * self.now_s,
            }
            for node in self.loop.switches
        }  # fmt: skip
        heard, ends = {}, {}
        for name, flow in self.flows.items():
            counted = [self._path_tells(name, path) for path in flow.paths]
            delivered = self._counted((name, "delivered"), (flow.rate_mbps or 0) * self._rng.random())
            ends[name] = delivered, 0
            for path, (_, sent, received) in zip(flow.paths, counted, strict=True):
                heard[name, path.id] = path.links, Heard(sent, received, 3.1)
            sending = {
                "number": flow.number, **dict.fromkeys(_INGRESS, 0), "sent": sum(sent.frames for _, sent, _ in counted),
                "paths": [
                    {"id": path, "sent_bytes": sent.payload_bytes, "sent_frames": sent.frames, "rate_mbps": 1.0}
                    for path, sent, _ in counted
                ],
            }  # fmt: skip
            receiving = {
                "number": flow.number, **dict.fromkeys(_EGRESS, 0),
                "delivered_bytes": delivered.payload_bytes, "delivered_frames": delivered.frames,
                "paths": [
                    {"id": path, "received_bytes": of.payload_bytes, "received_frames": of.frames, "delay_ms": 3.1,
                     "last_heard_ms": 4}
                    for path, _, of in counted
                ],
            }  # fmt: skip
            if flow.ingress is not None and flow.egress is not None:
                reports[flow.ingress]["ingress"].append(sending)
                reports[flow.egress]["egress"].append(receiving)
        tell(self.traffic, self.now_s, heard, ends)
        for node, report in reports.items():
            self.loop.reports.take(node, report)

    def _path_tells(self, flow: str, path: PlannedPath) -> tuple[int, Counted, Counted]:
        sent, received = (
            self._counted((flow, path.id, end), (path.rate_mbps or 0) * self._rng.random()) for end in ("in", "out")
        )
        return path.id, sent, received
