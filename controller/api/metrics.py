"""The controller's state as Prometheus metrics (``GET /metrics``, docs/reference/metrics.md), in base units.

Everything is read from what the event loop and the telemetry know whenever somebody asks: a packet, a report or a slot
costs nothing. What was planned says so in its name; all else is measured, and absent where nothing measures it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client.core import HistogramMetricFamily

from hyroads.controller.control.reports import Side
from hyroads.controller.control.telemetry import TelemetryIngest
from hyroads.controller.core.link_busy import LinkBusy
from hyroads.controller.core.traffic_meter import TrafficMeter
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.model.plan import MULTIPATH, FlowPlan, PlannedPath
from hyroads.controller.model.state import Presence
from hyroads.controller.runtime.event_loop import EventLoop
from hyroads.rest.metrics import Counter, Gauge, Labelled

BYTES_PER_MBIT = 1e6 / 8
MOST_FLOWS = 1000
"""Flows beyond so many, in the order of the plan, have no metrics of their own (``hyroads_flows`` counts them)."""
Family = Any
Families = Iterator[Family]
Domains = Callable[[], Sequence[tuple[str, tuple[str, ...]]]]
"""Distinct interference domains: the id of one, which is that of its first link, and its links."""

_LINK, _SWITCH, _FLOW, _PATH = ("link", "technology"), ("dp_id", "dp_name"), ("flow",), ("flow", "path")
# Counter of an agent's report -> what it says. Frames are those of users.
_SENT = {
    "sent": "Frames sent by the first edge",
    "dropped": "Frames dropped at the first edge, for its queue was full",
    "too_big": "Frames dropped at the first edge, for they were too big for the links",
}
_DELIVERED = {
    "delivered": "Frames delivered by the last edge",
    "lost": "Frames that the last edge missed and no longer waits for",
    "reordered": "Frames that came before one that was sent earlier",
    "duplicate": "Frames that came again and were dropped by the last edge",
    "late": "Frames that came when the last edge no longer waited for them",
}
_PORT_COUNTERS = {
    "rx_packets": "Frames received by a port",
    "tx_packets": "Frames sent by a port",
    "rx_bytes": "Bytes received by a port",
    "tx_bytes": "Bytes sent by a port",
    "rx_dropped": "Frames that were received by a port and dropped",
    "tx_dropped": "Frames that a port should have sent and dropped",
    "rx_errors": "Frames that a port received with an error",
    "tx_errors": "Frames that a port could not send for an error",
}


@dataclass(eq=False)
class NetworkMetrics:
    """Reads event loop, telemetry and traffic meter. Without ``ingest`` nothing is known of radios, SNMP and ports,
    without ``traffic`` nothing of what links carried.
    """

    event_loop: EventLoop
    ingest: TelemetryIngest | None
    domains: Domains
    traffic: TrafficMeter | None = None

    def __post_init__(self) -> None:
        links = self.event_loop.context.network.links
        self._ports_told = Labelled((*_SWITCH, "port"), ())
        self._link = Labelled(_LINK, [(link.id, link.technology) for link in links])
        self._busy = LinkBusy(links)

    def collect(self) -> Families:
        """All metrics as of now, those of services included."""
        for collect in (self._links, self._domains, self._flows, self._slices, self._slots, self._agents):
            yield from collect()
            shim.sleep(0)
        yield from self._switches()
        if self.ingest is not None:
            yield from self._telemetry(self.ingest)
            yield from self._ports(self.ingest)
        for collect in tuple(self.event_loop.collectors):
            yield from collect()

    def _links(self) -> Families:
        event_loop = self.event_loop
        loop, links = event_loop.live.loop, event_loop.context.network.links
        up = Gauge("hyroads_link_up", "1 if nothing keeps the link from being used", labels=_LINK)
        capacity = Gauge(
            "hyroads_link_capacity_bytes_per_second", "Capacity at L2 payload that rates count on", labels=_LINK
        )
        planned = Gauge("hyroads_link_planned_bytes_per_second", "Planned rate of all flows together", labels=_LINK)
        busy = Gauge("hyroads_link_busy_ratio", "Measured busy share of the medium of the link", labels=_LINK)
        rates = event_loop.plan.planned_mbps() if event_loop.plan else {}
        down = event_loop.links.down
        up.add_column(self._link, [link.id not in down for link in links])
        capacity.add_column(self._link, (loop.state.problem.capacity_mbps * BYTES_PER_MBIT).tolist())
        planned.add_column(self._link, [rates[link.id] * BYTES_PER_MBIT if link.id in rates else 0.0 for link in links])
        if self.traffic is not None:
            now = self.traffic.snapshot(event_loop.clock())
            found = self._busy.columns(now, loop.state.network.interference, loop.state.problem.capacity_mbps.tolist())
            busy.add_column(self._link, [None if math.isnan(share) else share for share in found.busy.tolist()])
        yield from (up, capacity, planned, busy)
        if self.traffic is not None:
            carried = Counter(
                "hyroads_link_bytes",
                "Bytes of L2 payload that a link carried, counted by its port or by the agents of paths",
                labels=(*_LINK, "source"),
            )
            technology = {link.id: link.technology for link in links}
            for name, (octets, source) in self.traffic.bytes_of_links().items():
                carried.add_metric((name, technology[name], source), octets)
            yield carried

    def _domains(self) -> Families:
        loop = self.event_loop.live.loop
        labels = ("domain", "technology")
        airtime = Gauge(
            "hyroads_domain_planned_airtime_ratio", "Planned share of time that our flows take", labels=labels
        )
        external = Gauge(
            "hyroads_domain_external_ratio", "Measured share of time that the traffic of others takes", labels=labels
        )
        links = {link.id: link for link in loop.declared.links}
        domains = [(domain, links[domain].technology) for domain, _ in self.domains() if domain in links]
        planned, foreign = loop.airtime(), loop.external(self.event_loop.clock())
        for domain in domains:
            airtime.add_metric(domain, planned[domain[0]])
            external.add_metric(domain, foreign[domain[0]])
        yield from (airtime, external)

    def _flows(self) -> Families:
        plan = self.event_loop.plan
        flows = [each for each in plan.flows.values() if each.mode == MULTIPATH] if plan else []
        yield Gauge("hyroads_flows", "Flows that are carried over multipaths", value=len(flows))
        found = _FlowFamilies()
        for each in shim.cooperatively(flows[:MOST_FLOWS]):
            found.add(each, *self._sides(each))
        yield from found.all()

    def _sides(self, flow: FlowPlan) -> tuple[Side, Side]:
        """What the agents at the two edges of a flow said last."""
        reports = self.event_loop.reports
        return (
            reports.side(flow.ingress or "", "ingress", flow.number),
            reports.side(flow.egress or "", "egress", flow.number),
        )

    def _slices(self) -> Families:
        loop, names = self.event_loop.live.loop, ("slice", "technology")
        airtime = Gauge(
            "hyroads_slice_planned_airtime_ratio",
            "Planned share of time in the domain where it is greatest",
            labels=names,
        )
        share = Gauge("hyroads_slice_share_ratio", "Share of time that a slice has when others want it", labels=names)
        measured = Gauge(
            "hyroads_slice_busy_ratio",
            "Measured share of time of the multipath flows of a slice, in the domain where it is greatest",
            labels=names,
        )
        for labels, used in loop.airtime_of_slices().items():
            airtime.add_metric(labels, used)
        for labels, found in loop.measured_airtime_of_slices().items():
            if found is not None:
                measured.add_metric(labels, found)
        for name, shares in loop.options.shares.items():
            for technology, most in shares.items():
                share.add_metric((name, technology), most)
        yield from (airtime, measured, share)

    def _slots(self) -> Families:
        event_loop = self.event_loop
        slots, counters = event_loop.slots, event_loop.counters
        took = slots.histogram
        yield HistogramMetricFamily(
            "hyroads_slot_seconds", "How long slots took", buckets=took.cumulative(), sum_value=took.total_s
        )
        yield Counter("hyroads_slots_missed", "Slots that did not take place", value=slots.missed)
        yield Counter("hyroads_plans", "Plans made", value=counters["plans"])
        yield Gauge("hyroads_plan_seconds", "How long the last plan took", value=event_loop.plan_ms / 1e3)
        yield Counter("hyroads_exceptions", "Defects survived", value=counters["exceptions"])
        malformed = Counter("hyroads_malformed_messages", "Messages that could not be read", labels=("source",))
        for source in ("openflow", "agent"):
            malformed.add_metric((source,), counters[f"malformed_{source}"])
        yield malformed
        conflicts = "Second sessions of devices whose first one lived"
        yield Counter("hyroads_identity_conflicts", conflicts, value=counters["identity_conflicts"])

    def _agents(self) -> Families:
        event_loop, node = self.event_loop, ("node",)
        up = Gauge("hyroads_agent_up", "1 if the node's edge agent is connected", labels=node)
        rtt = Gauge("hyroads_agent_rtt_seconds", "Round-trip time of the last ping of an agent", labels=node)
        for name, presence in event_loop.state.agents.items():
            link = event_loop.agents.get(name)
            up.add_metric((name,), presence is Presence.UP and link is not None)
            if link is not None and link.session.rtt_ms is not None:
                rtt.add_metric((name,), link.session.rtt_ms / 1e3)
        age = Gauge("hyroads_agent_report_age_seconds", "Age of an agent's last report", labels=node)
        cpu = Counter("hyroads_agent_cpu_seconds", "Processor time of an agent", labels=node)
        unknown = Counter("hyroads_agent_unclassified_frames", "Frames that belong to no flow", labels=node)
        malformed = Counter("hyroads_agent_malformed_frames", "Frames that could not be read", labels=node)
        forged = Counter("hyroads_agent_forged_frames", "Frames that no agent with the key has sealed", labels=node)
        replayed = Counter("hyroads_agent_replayed_frames", "Sealed frames that had come before", labels=node)
        counted = {"cpu_s": cpu, "unclassified": unknown, "malformed": malformed}
        counted |= {"forged": forged, "replayed": replayed}
        for name, age_s, report in event_loop.reports.latest():
            age.add_metric((name,), age_s)
            _add(counted, (name,), report)
        yield from (up, rtt, age, *counted.values())

    def _telemetry(self, ingest: TelemetryIngest) -> Families:
        now_s = self.event_loop.clock()
        radio = Gauge("hyroads_radio_up", "1 if the telemetry of the node's radios is connected", labels=("node",))
        age = Gauge(
            "hyroads_interface_age_seconds",
            "Age of the last reading of an interface, by radios or SNMP",
            labels=("node", "technology"),
        )
        target_up = Gauge("hyroads_snmp_up", "1 if the SNMP target answers", labels=("target",))
        target_age = Gauge("hyroads_snmp_age_seconds", "Age of a target's last answer", labels=("target",))
        for node, is_up in ingest.connected().items():
            radio.add_metric((node,), is_up)
        for interface, age_s, _ in ingest.interfaces(now_s):
            if age_s is not None:
                age.add_metric(interface, age_s)
        for target, is_up, age_s in ingest.targets(now_s):
            target_up.add_metric((target,), is_up)
            if age_s is not None:
                target_age.add_metric((target,), age_s)
        yield from (radio, age, target_up, target_age)

    def _switches(self) -> Families:
        event_loop = self.event_loop
        status = Gauge("dp_status", "1 if the switch is connected", labels=_SWITCH)
        ports = Gauge("port_status", "1 if the port is up", labels=(*_SWITCH, "port"))
        counted = {
            "packet_ins": Counter("of_packet_ins", "Packet-ins received", labels=_SWITCH),
            "flow_mods": Counter("of_flowmsgs_sent", "Flow-mods sent", labels=_SWITCH),
            "errors": Counter("of_errors", "OpenFlow errors", labels=_SWITCH),
        }
        rules = Gauge("hyroads_switch_rules", "Rules of HyRoads in the switch", labels=_SWITCH)
        for node, dpid in event_loop.context.addressing.dpid.items():
            session, labels = event_loop.switches.get(node), (hex(dpid), node)
            status.add_metric(labels, session is not None)
            for name in self._port_names(node):
                ports.add_metric((*labels, name), session is not None and name in session.ports)
            if session is not None:
                rules.add_metric(labels, session.rule_count)
                _add(counted, labels, vars(session.counters))
        yield from (status, ports, *counted.values(), rules)

    def _ports(self, ingest: TelemetryIngest) -> Families:
        addressing = self.event_loop.context.addressing
        found = {
            name: Counter(f"of_port_{name}", text, labels=(*_SWITCH, "port")) for name, text in _PORT_COUNTERS.items()
        }
        latest = list(ingest.ports.latest(self.event_loop.clock()))
        rows = tuple(
            (hex(addressing.dpid[node]), node, addressing.interface_name[node, technology])
            for (node, technology), _ in latest
        )
        if rows != self._ports_told.rows:
            self._ports_told = Labelled((*_SWITCH, "port"), rows)
        for name, family in found.items():
            family.add_column(self._ports_told, [getattr(counters, name) for _, counters in latest])
        yield from found.values()

    def _port_names(self, node: str) -> list[str]:
        addressing = self.event_loop.context.addressing
        names = [addressing.interface_name[node, technology] for technology in addressing.technologies(node)]
        if addressing.has_agent(node):
            names += [addressing.agent_access_port[node], addressing.agent_network_port[node]]
        return names


class _FlowFamilies:
    """The metrics of flows and their paths: planned rates, and the counters of the agents at both edges."""

    def __init__(self) -> None:
        self._info = Gauge(
            "hyroads_flow_info", "Always 1; whose a flow is", labels=("flow", "slice", "group", "source", "target")
        )
        self._planned = Gauge("hyroads_flow_planned_bytes_per_second", "Planned rate of a flow", labels=_FLOW)
        self._queued = Gauge("hyroads_flow_queued_frames", "Frames that wait at the first edge", labels=_FLOW)
        self._sent = {key: Counter(f"hyroads_flow_{key}_frames", text, labels=_FLOW) for key, text in _SENT.items()}
        self._delivered = {
            ("delivered_frames" if key == "delivered" else key): Counter(
                f"hyroads_flow_{key}_frames", text, labels=_FLOW
            )
            for key, text in _DELIVERED.items()
        }
        self._delivered["delivered_bytes"] = Counter(
            "hyroads_flow_delivered_bytes", "Bytes of L2 payload delivered by the last edge", labels=_FLOW
        )
        self._path_planned = Gauge("hyroads_path_planned_bytes_per_second", "Planned rate of a path", labels=_PATH)
        self._path_sent = _path_counters("sent", "sent over a path by the first edge")
        self._path_received = _path_counters("received", "received over a path by the last edge")
        self._delay = Gauge(
            "hyroads_path_delay_seconds", "Delay of a path above the smallest that was seen", labels=_PATH
        )

    def add(self, flow: FlowPlan, sending: Side, receiving: Side) -> None:
        """One flow: its plan, and what the first and the last edge said."""
        labels, spec = (flow.spec.id,), flow.spec
        self._info.add_metric((spec.id, spec.slice, spec.group or "", spec.source, spec.target), 1)
        self._planned.add_metric(labels, (flow.rate_mbps or 0.0) * BYTES_PER_MBIT)
        _add({"queued": self._queued, **self._sent}, labels, sending.entry)
        _add(self._delivered, labels, receiving.entry)
        for path in flow.paths:
            self._add_path(flow.spec.id, path, sending.path(path.id).entry, receiving.path(path.id).entry)

    def _add_path(
        self, flow: str, path: PlannedPath, sent: Mapping[str, Any] | None, received: Mapping[str, Any] | None
    ) -> None:
        labels = (flow, "+".join(path.links))
        self._path_planned.add_metric(labels, (path.rate_mbps or 0.0) * BYTES_PER_MBIT)
        _add(self._path_sent, labels, sent)
        _add(self._path_received, labels, received)
        if received is not None and received["delay_ms"] is not None:
            self._delay.add_metric(labels, received["delay_ms"] / 1e3)

    def all(self) -> Families:
        """All families, with what was added."""
        yield from (
            self._info,
            self._planned,
            self._queued,
            *self._sent.values(),
            *self._delivered.values(),
            self._path_planned,
        )
        yield from (*self._path_sent.values(), *self._path_received.values(), self._delay)


def _path_counters(verb: str, text: str) -> dict[str, Family]:
    return {
        f"{verb}_bytes": Counter(f"hyroads_path_{verb}_bytes", f"Bytes of L2 payload {text}", labels=_PATH),
        f"{verb}_frames": Counter(f"hyroads_path_{verb}_frames", f"Frames {text}", labels=_PATH),
    }


def _add(families: Mapping[str, Family], labels: tuple[str, ...], values: Mapping[str, Any] | None) -> None:
    """The values by the names of their families, but those that nobody told."""
    for name, family in families.items():
        value = values.get(name) if values is not None else None
        if value is not None:
            family.add_metric(labels, value)


def refused_changes(counts: Mapping[str, int]) -> Families:
    """What devices and etcd refused because another controller leads; nothing where that has never happened.

    ``counts`` are the event loop's counters.
    """
    names = {"switch": "refused_as_slave", "agent": "refused_as_stale", "etcd": "refused_by_etcd"}
    refused = {by: counts.get(name, 0) for by, name in names.items()}
    if any(refused.values()):
        metric = Counter("hyroads_ha_refused", "Changes refused because another controller leads", labels=("by",))
        for by, count in refused.items():
            metric.add_metric((by,), count)
        yield metric
