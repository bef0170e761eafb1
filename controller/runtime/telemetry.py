"""Starts everything that measures: telemetry sessions of access points, the SNMP collector, port statistics.

Measurements arrive beside the slots of the control loop, in green threads that do little at a time. SNMP, cryptography
and differences of counters are slow; they run in the collector's process. Here one line of JSON per event is parsed, in
some tens of microseconds.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Mapping

from hyroads.controller.agents.server import Radios, Stations
from hyroads.controller.control.reports import Entries, Entry
from hyroads.controller.control.telemetry import TelemetryIngest
from hyroads.controller.core.estimate.busy_time import Interface
from hyroads.controller.core.network import Network
from hyroads.controller.core.traffic_meter import RADIO, SNMP, WINDOW_S, Counted, TrafficMeter
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.measure.samples import MAX_LINE_BYTES, Event, SampleError, from_line
from hyroads.controller.measure.targets import CollectorConfig, document
from hyroads.controller.model.plan import MULTIPATH, FlowPlan
from hyroads.controller.model.state import TopologyContext
from hyroads.controller.settings.controller import Settings
from hyroads.controller.switches.sessions import SwitchSession

from .event_loop import EventLoop

LOG = logging.getLogger("hyroads.measure")
RESTART_AFTER_S = 1.0
READ_BYTES = 1 << 16
COMMAND = (sys.executable, "-m", "hyroads.controller.measure.collector")


class CollectorEvents:
    """Runs the collector and starts it again a second after it ended; ``listener`` gets every event."""

    def __init__(self, config: CollectorConfig, listener: Callable[[Event], None]) -> None:
        self._config = config
        self._listener = listener
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    @property
    def pid(self) -> int | None:
        """The collector's process."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Starts the process and the green thread that reads it."""
        shim.spawn(self._run)

    def stop(self) -> None:
        """Ends the process."""
        self._stopped = True
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()

    def _run(self) -> None:
        while not self._stopped:
            self._run_once()
            if not self._stopped:
                LOG.warning("the SNMP collector ended; starting it again")
                shim.sleep(RESTART_AFTER_S)

    def _run_once(self) -> None:
        configuration = self._configuration()
        try:
            self._process = subprocess.Popen(COMMAND, stdin=configuration, stdout=subprocess.PIPE)
        finally:
            os.close(configuration)
        output = self._process.stdout
        if output is not None:
            with output:
                self._read(output.fileno())
        self._process.kill()
        self._process.wait()

    def _configuration(self) -> int:
        """A file in memory: secrets reach neither a disk nor a command line, and nobody waits for a reader."""
        descriptor = os.memfd_create("hyroads-collector")
        os.write(descriptor, document(self._config).encode())
        os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor

    def _read(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        buffer = b""
        while len(buffer) <= MAX_LINE_BYTES:
            shim.wait_readable(descriptor)
            chunk = os.read(descriptor, READ_BYTES)
            if not chunk:
                return
            *whole, buffer = (buffer + chunk).split(b"\n")
            for line in whole:
                self._hand_over(line)
                # Each line takes tens of microseconds; OpenFlow may go first.
                shim.sleep(0)

    def _hand_over(self, line: bytes) -> None:
        try:
            event = from_line(line)
        except SampleError as error:
            LOG.warning("%s", error)
            return
        self._listener(event)


PORTS_EVERY_S = 1.0
ASK_SHARE, READ_SHARE, SENT_SHARE, METER_SHARE, RADIO_SHARE = 0.35, 0.1, 0.1, 0.2, 0.1
"""Of that time, in which switches are asked, and work on what agents and radios say is spread: with 5,000 flows that
takes 0.2 s, and whoever wants something meanwhile would wait behind a piece of it each time that others run.
"""
TOGETHER, RADIOS_TOGETHER = 20, 200
"""So many flows, and radio interfaces, are looked at in one go."""
REPORT_AGE_S = 2.0


class Telemetry:
    """One per controller. Radios are heard whatever the settings say; they count only with measured capacities."""

    def __init__(
        self,
        context: TopologyContext,
        settings: Settings,
        clock: Callable[[], float],
        late_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.ingest = TelemetryIngest(context, clock, late_s)
        self.traffic = TrafficMeter(context.network.links)
        """What links and paths really carry, for whoever shows it."""
        self._context = context
        self._settings = settings
        self._clock = clock
        self._collector: CollectorEvents | None = None

    def radios(self, stations: Stations) -> Radios:
        """For the agents' server; ``stations`` listens to what access points say of theirs."""
        return Radios(self.ingest, stations, frozenset(self._context.addressing.dpid), self._settings.slot_ms)

    def start(self, event_loop: EventLoop) -> None:
        """Starts what runs by itself."""
        shim.spawn(self._poll_ports, event_loop)
        if self._settings.snmp is not None:
            LOG.info("SNMP: %d targets", len(self._settings.snmp.targets))
            self._collector = CollectorEvents(self._settings.snmp, self.ingest.snmp_event)
            self._collector.start()

    def stop(self) -> None:
        """Ends the collector's process."""
        if self._collector is not None:
            self._collector.stop()

    def port_stats(self, session: SwitchSession, message: bytes) -> None:
        """A part of a switch's answer."""
        counters = session.on_port_stats(message)
        if counters is None:
            return
        now_s = self._clock()
        for interface, of in self.ingest.ports.counters(session.node, session.ports, counters, now_s):
            sent = Counted.of_port(now_s, of.tx_bytes, of.tx_packets)
            received = Counted.of_port(now_s, of.rx_bytes, of.rx_packets)
            self.traffic.port(interface, sent, now_s, received)

    def _poll_ports(self, event_loop: EventLoop) -> None:
        """Asks all switches once per second, one after the other."""
        while True:
            due_s = self._clock() + PORTS_EVERY_S
            sessions = [session for session in event_loop.switches.values() if session.is_read]
            for session in sessions:
                session.ask_ports()
                shim.sleep(PORTS_EVERY_S * ASK_SHARE / len(sessions))
            try:
                told = _told(event_loop)
                self.ingest.ports.agents(_sent_bytes(event_loop, told), self._clock())
                self.meter(event_loop, told)
            except Exception as error:  # noqa: BLE001 - counted and shown; the next second is another try
                event_loop.exception("port statistics", error)
            shim.sleep(max(0.1, due_s - self._clock()))

    def meter(self, event_loop: EventLoop, told: Mapping[str, Entries]) -> None:
        """Tells the traffic meter what agents (``told``, by node) and radios have counted; once a second. Others run
        meanwhile.
        """
        now_s, traffic, current = self._clock(), self.traffic, set()
        flows = event_loop.plan.flows if event_loop.plan is not None else {}
        pause_s = PORTS_EVERY_S * METER_SHARE * TOGETHER / max(TOGETHER, len(flows))
        for name, flow in shim.cooperatively(flows.items(), TOGETHER, pause_s):
            if flow.mode == MULTIPATH and flow.ingress is not None and flow.egress is not None:
                current |= {(name, path.id) for path in flow.paths}
                _meter_flow(traffic, told, flow, now_s)
        traffic.retain(current)
        for interface, polled in self.ingest.snmp.latest.items():
            traffic.radio(interface, polled.busy, SNMP, polled.time_s)
        shares = list(self.ingest.radios.busy_shares(WINDOW_S))
        pause_s = PORTS_EVERY_S * RADIO_SHARE * RADIOS_TOGETHER / max(RADIOS_TOGETHER, len(shares))
        for interface, share, time_s in shim.cooperatively(shares, RADIOS_TOGETHER, pause_s):
            traffic.radio(interface, share, RADIO, time_s)


def _told(event_loop: EventLoop) -> dict[str, Entries]:
    """By node: what the agents at the ends of flows said last. Others run meanwhile, and most agents report again then:
    a report is read once, and not for each of its flows.
    """
    plan = event_loop.plan
    flows = plan.flows.values() if plan is not None else ()
    nodes = {node or "": None for flow in flows if flow.mode == MULTIPATH for node in (flow.ingress, flow.egress)}
    found = {}
    for node in shim.cooperatively(nodes, 1, PORTS_EVERY_S * READ_SHARE / max(1, len(nodes))):
        entries = event_loop.reports.entries(node, REPORT_AGE_S)
        if entries is not None:
            found[node] = entries
    return found


_NOBODY = Entries(0.0, {})


def _meter_flow(traffic: TrafficMeter, told: Mapping[str, Entries], flow: FlowPlan, now_s: float) -> None:
    """What the agents at both ends of a flow say of it and of its paths."""
    here, there = (told.get(node or "", _NOBODY) for node in (flow.ingress, flow.egress))
    sending, receiving = here.of.get(("ingress", flow.number)), there.of.get(("egress", flow.number))
    sent_s, received_s = here.time_s, there.time_s
    delivered = _counted(receiving, received_s, _DELIVERED)
    if delivered is not None and receiving is not None and receiving["lost"] is not None:
        traffic.flow(flow.spec.id, delivered, int(receiving["lost"]), now_s)
    here_by_id, there_by_id = (
        {path["id"]: path for path in entry["paths"]} if entry else {} for entry in (sending, receiving)
    )
    for path, links in zip(flow.paths, flow.separate_links, strict=True):
        arrived = there_by_id.get(path.id)
        traffic.path(
            (flow.spec.id, path.id),
            links,
            sent=_counted(here_by_id.get(path.id), sent_s, _SENT),
            received=_counted(arrived, received_s, _RECEIVED),
            delay_ms=arrived["delay_ms"] if arrived is not None else None,
            now_s=now_s,
        )


_SENT, _RECEIVED, _DELIVERED = ((f"{what}_bytes", f"{what}_frames") for what in ("sent", "received", "delivered"))
"""Names of counters of bytes and frames."""


def _counted(entry: Entry | None, time_s: float, names: tuple[str, str]) -> Counted | None:
    """Two of the counters of a flow or path; None if the agent says nothing."""
    if entry is None:
        return None
    octets, frames = entry.get(names[0]), entry.get(names[1])
    return None if octets is None or frames is None else Counted(time_s, int(octets), int(frames))


def _sent_bytes(event_loop: EventLoop, told: Mapping[str, Entries]) -> dict[Interface, int]:
    """What the agents of ingresses sent so far, by the interface that it left by. Others run meanwhile."""
    flows = event_loop.plan.flows.values() if event_loop.plan is not None else ()
    sent: dict[Interface, int] = {}
    for flow in shim.cooperatively(flows, TOGETHER, PORTS_EVERY_S * SENT_SHARE * TOGETHER / max(TOGETHER, len(flows))):
        if flow.mode == MULTIPATH and flow.ingress is not None and flow.ingress in told:
            _add_sent(sent, event_loop.context.network, flow.ingress, flow, told[flow.ingress])
    return sent


def _add_sent(sent: dict[Interface, int], network: Network, node: str, flow: FlowPlan, told: Entries) -> None:
    entry = told.of.get(("ingress", flow.number))
    # Of several entries of one path the first counts.
    entries = {} if entry is None else {path["id"]: path for path in reversed(entry["paths"])}
    for path in (path for path in flow.paths if path.copied_from is None):
        counted = entries.get(path.id)
        first = network.links[network.link_index[path.links[0]]]
        # From a plain client the first hop is not the agent's.
        if counted is not None and counted["sent_bytes"] is not None and first.source == node:
            interface = (node, first.technology)
            sent[interface] = sent.get(interface, 0) + int(counted["sent_bytes"])
