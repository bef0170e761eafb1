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
from collections.abc import Callable, Iterator

from hyroads.controller.agents.listeners import Radios, Stations
from hyroads.controller.control.telemetry import TelemetryIngest
from hyroads.controller.core.growth import WINDOW_S, Counted
from hyroads.controller.core.path_columns import Totals
from hyroads.controller.core.traffic_meter import RADIO, SNMP, TrafficMeter
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.measure.samples import MAX_LINE_BYTES, Event, SampleError, from_line
from hyroads.controller.measure.targets import CollectorConfig, document
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
ASK_SHARE, RADIO_SHARE = 0.4, 0.1
"""Of that time, in which switches are asked, and work on what radios say is spread: whoever wants something meanwhile
would wait behind a piece of it each time that others run.
"""
PIECE_PAUSE_S = 0.01
"""Between pieces of work on what agents say of all flows; each takes a millisecond with 5,000 of them."""
RADIOS_TOGETHER = 200
"""So many radio interfaces are looked at in one go."""
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
        event_loop.addresses.add(lambda addresses, _: self.ingest.use_addresses(addresses))
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
                event_loop.urgency.wait()
            try:
                self.meter(event_loop)
            except Exception as error:  # noqa: BLE001 - counted and shown; the next second is another try
                event_loop.exception("port statistics", error)
            shim.sleep(max(0.1, due_s - self._clock()))

    def meter(self, event_loop: EventLoop) -> None:
        """Tells the traffic meter what agents and radios counted; once a second. Others run meanwhile."""
        wait, traffic = event_loop.urgency.wait, self.traffic

        def pause() -> None:
            shim.sleep(PIECE_PAUSE_S)
            wait()

        told, now_s = event_loop.reports.totals(REPORT_AGE_S, pause), self._clock()
        for _ in shim.cooperatively(self._agents(told, now_s), 1, PIECE_PAUSE_S, wait):
            pass
        for interface, polled in self.ingest.snmp.latest.items():
            traffic.radio(interface, polled.busy, SNMP, polled.time_s)
        shares = list(self.ingest.radios.busy_shares(WINDOW_S))
        pause_s = PORTS_EVERY_S * RADIO_SHARE * RADIOS_TOGETHER / max(RADIOS_TOGETHER, len(shares))
        for interface, share, time_s in shim.cooperatively(shares, RADIOS_TOGETHER, pause_s, wait):
            traffic.radio(interface, share, RADIO, time_s)

    def _agents(self, told: Totals, now_s: float) -> Iterator[None]:
        """Tells what agents counted, piece by piece; to put it together was the first."""
        yield
        yield from self.traffic.agents(told, now_s)
        self.ingest.ports.agents(self.traffic.sent_bytes(told), now_s)
