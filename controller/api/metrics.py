"""The controller's state as Prometheus metrics (``GET /metrics``, docs/reference/metrics.md): base units."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.core import GaugeMetricFamily as Gauge
from prometheus_client.registry import Collector

from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.model.plan import MULTIPATH
from hyroads.controller.runtime.event_loop import EventLoop

_MEGA = 1e6
Metric = Any


class Metrics(Collector):
    """Reads the event loop whenever somebody asks: nothing is counted twice."""

    def __init__(self, event_loop: EventLoop) -> None:
        self._event_loop = event_loop
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def render(self) -> bytes:
        """The text format."""
        return generate_latest(self._registry)

    def describe(self) -> Iterable[Metric]:
        """Nothing to read at registration."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All metrics as of now."""
        yield from self._links()
        yield from self._flows()
        yield from self._slices()
        yield from self._slots()
        yield from self._switches()
        for collect in self._event_loop.collectors:
            yield from collect()

    def _links(self) -> Iterator[Metric]:
        event_loop = self._event_loop
        loop, now_s = event_loop.live.loop, event_loop.clock()
        names = ("link", "technology")
        capacity = Gauge(
            "hyroads_link_capacity_bits_per_second", "Capacity at L2 payload that rates count on", labels=names
        )
        busy = Gauge("hyroads_link_busy_ratio", "Busy share at the busier end of the link", labels=names)
        airtime = Gauge("hyroads_domain_airtime_ratio", "Planned share of time of the link's domain", labels=names)
        external = Gauge(
            "hyroads_domain_external_ratio", "Share of time that others use in the link's domain", labels=names
        )
        counted, planned, foreign = loop.capacities(), loop.airtime(), loop.external(now_s)
        heard = loop.busy
        for link in shim.cooperatively(loop.declared.links):
            labels = (link.id, link.technology)
            capacity.add_metric(labels, counted[link.id] * _MEGA)
            airtime.add_metric(labels, planned[link.id])
            external.add_metric(labels, foreign[link.id])
            ends = [(node, link.technology) for node in (link.source, link.target)]
            if any(end in heard for end in ends):
                busy.add_metric(labels, max(heard.get(end, 0.0) for end in ends))
        yield from (capacity, busy, airtime, external)

    def _flows(self) -> Iterator[Metric]:
        plan = self._event_loop.plan
        flow_rate = Gauge("hyroads_flow_rate_bits_per_second", "Rate of a multipath flow", labels=("flow", "state"))
        path_rate = Gauge("hyroads_path_rate_bits_per_second", "Rate of a path of a flow", labels=("flow", "path"))
        for flow, planned in plan.flows.items() if plan else ():
            if planned.mode == MULTIPATH:
                flow_rate.add_metric((flow, planned.mode), (planned.rate_mbps or 0.0) * _MEGA)
                for path in planned.paths:
                    path_rate.add_metric((flow, "+".join(path.links)), (path.rate_mbps or 0.0) * _MEGA)
        yield from (flow_rate, path_rate)

    def _slices(self) -> Iterator[Metric]:
        loop, names = self._event_loop.live.loop, ("slice", "technology")
        airtime = Gauge(
            "hyroads_slice_airtime_ratio", "Planned share of time in the domain where it is most", labels=names
        )
        share = Gauge("hyroads_slice_share_ratio", "Share of time when others want it", labels=names)
        for labels, used in loop.airtime_of_slices().items():
            airtime.add_metric(labels, used)
        for name, shares in loop.options.shares.items():
            for technology, most in shares.items():
                share.add_metric((name, technology), most)
        yield from (airtime, share)

    def _slots(self) -> Iterator[Metric]:
        slots = self._event_loop.slots
        took = slots.histogram
        yield HistogramMetricFamily(
            "hyroads_slot_seconds", "How long slots took", buckets=took.cumulative(), sum_value=took.total_s
        )
        yield CounterMetricFamily("hyroads_slots_missed", "Slots that did not take place", value=slots.missed)
        counters = self._event_loop.counters
        yield CounterMetricFamily("hyroads_plans", "Plans made", value=counters["plans"])
        yield CounterMetricFamily("hyroads_exceptions", "Defects survived", value=counters["exceptions"])

    def _switches(self) -> Iterator[Metric]:
        event_loop = self._event_loop
        names = ("dp_id", "dp_name")
        status = Gauge("dp_status", "1 if the switch is connected", labels=names)
        ports = Gauge("port_status", "1 if the port is up", labels=(*names, "port"))
        sent = CounterMetricFamily("of_flowmsgs_sent", "Flow-mods sent", labels=names)
        errors = CounterMetricFamily("of_errors", "OpenFlow errors", labels=names)
        for node, dpid in event_loop.context.addressing.dpid.items():
            session, labels = event_loop.switches.get(node), (hex(dpid), node)
            status.add_metric(labels, 1.0 if session else 0.0)
            for name in self._ports(node):
                ports.add_metric((*labels, name), 1.0 if session and name in session.ports else 0.0)
            sent.add_metric(labels, session.counters.flow_mods if session else 0)
            errors.add_metric(labels, session.counters.errors if session else 0)
        yield from (status, ports, sent, errors)

    def _ports(self, node: str) -> list[str]:
        addressing = self._event_loop.context.addressing
        names = [addressing.interface_name[node, technology] for technology in addressing.technologies(node)]
        if addressing.has_agent(node):
            names += [addressing.agent_access_port[node], addressing.agent_network_port[node]]
        return names
