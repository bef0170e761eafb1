"""Everything that access points say -> measurements for a slot, and who hears whom (``control.source.Source``).

The radio channel (ten readings a second) comes first; an interface whose radios are silent, late or frozen is taken
from SNMP (one a second) instead; with neither, its estimates age. Where both speak and differ, the smaller counts and
the doubt is shown. Nothing here waits, and nothing but the latest is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any, Protocol

import numpy as np

from hyroads.controller.agents.al_devices import AlDevices
from hyroads.controller.agents.protocol import Hello
from hyroads.controller.agents.telemetry import DecodedReadings, RadioNeighbour, RadioReport
from hyroads.controller.core.closed_loop import Measurements
from hyroads.controller.core.estimate.busy_time import BusyShares, Interface
from hyroads.controller.core.estimate.filter_bank import FloatArray, IndexArray
from hyroads.controller.core.estimate.link_estimate import Sample, Samples, Source
from hyroads.controller.core.interface_addresses import InterfaceAddresses
from hyroads.controller.core.ragged import Ragged
from hyroads.controller.measure.samples import Event
from hyroads.controller.model.state import TopologyContext

from .carrier_sensing import CarrierSensingRegistry
from .foreign_devices import ForeignDevices
from .port_watch import PortWatch
from .radio_table import FLAGS, FreshReadings, RadioTable
from .snmp_table import FRESH_S, Polled, SnmpTable
from .source import Heard

# A modulation that was used longer ago says nothing new.
HEARD_MS = 3000
# SNMP and channel tell of the same estimate, taken up to a second apart.
DISAGREE_RATIO = 0.3
DISAGREE_POLLS = 3


class RadioSession(Protocol):
    """What is needed of an ``agents.Session`` of an access point's radios."""

    @property
    def node(self) -> str:
        """Its node."""

    @property
    def hello(self) -> Hello:
        """What it said first."""

    @property
    def rtt_ms(self) -> float | None:
        """How long a ping takes."""

    def read(self) -> int:
        """Ask for a reading at once."""


class _Said:
    """What the last rows of each interface say of links: places of links and capacities."""

    def __init__(self, interfaces: int) -> None:
        self._versions = np.full(interfaces, -1, dtype=np.intp)
        """Of the rows (``radio_table.FreshReadings``); -1 where it does not last."""
        self._last: tuple[IndexArray, tuple[IndexArray, IndexArray, FloatArray]] | None = None
        self._arrays = Ragged(np.intp, np.float64)
        self._arrays.put(interfaces, np.zeros(0), np.zeros(0))

    def others(self, places: IndexArray, versions: IndexArray) -> list[int]:
        """Which of some interfaces say something that was not :meth:`put`, or does not last; -1 is of no version."""
        found: list[int] = np.flatnonzero((versions != self._versions[places]) | (versions < 0)).tolist()
        return found

    def put(self, at: int, version: int, links: IndexArray, mbps: FloatArray) -> None:
        """What an interface says; ``version`` of the rows from which it follows, -1 if it does not last."""
        self._versions[at], self._last = version, None
        self._arrays.put(at, links, mbps)

    def of(self, places: IndexArray) -> tuple[IndexArray, IndexArray, FloatArray]:
        """Of some interfaces: how much each says, and all of it, one after the other; the arrays are not to be changed,
        as the same ones are given as long as all say the same.
        """
        if self._last is None or not np.array_equal(self._last[0], places):
            count, links, mbps = self._arrays.of(places)
            self._last = places, (count, links, mbps)
        return self._last[1]


class TelemetryIngest:
    """Listens to radios (``agents.server.RadioListener``) and the SNMP collector; a ``source.Source`` of the loop."""

    def __init__(
        self, context: TopologyContext, clock: Callable[[], float], late_s: Callable[[], float] = lambda: 0.0
    ) -> None:
        """``late_s`` says for how long what radios say may be waiting to be read."""
        addressing, network = context.addressing, context.network
        self._clock, self._late_s = clock, late_s
        self._nodes = tuple(addressing.dpid)
        self._addresses, self._are_tables_old = context.addresses, False
        self._interfaces = tuple(addressing.interface_mac)
        interfaces = frozenset(self._interfaces)
        self._link = {(link.source, link.target, link.technology): link.id for link in network.links}
        self._names = network.link_ids
        self._place_of = network.link_index
        self._must_be_mutual = network.discovered
        # What the file says of capacities, if anything, is told once: it does not age.
        self._told = [link for link in network.links if link.id not in network.unmeasured]
        self.radios = RadioTable(interfaces, context.addresses.mac)
        self._said = _Said(len(interfaces))
        self.snmp = SnmpTable(interfaces)
        self.ports = PortWatch(addressing)
        self.foreign = ForeignDevices(addressing.interface_name)
        self._busy_s = np.full(len(interfaces), -np.inf)
        """By place of an interface: when its own busy share was measured last."""
        self._sensing = CarrierSensingRegistry(context, self.radios.interfaces)
        self._sessions: dict[str, RadioSession] = {}
        self._disagreed: dict[Interface, int] = {}
        self._smaller: dict[str, tuple[float, float]] = {}
        """Links of which SNMP says less than the channel -> what it says, and until when that counts."""

    def use_addresses(self, addresses: InterfaceAddresses) -> None:
        """Interfaces have these addresses; what tables said so far is read again with them in the next slot."""
        self._addresses, self._are_tables_old = addresses, True
        self.radios.use_addresses(addresses.mac)

    def radio_up(self, session: RadioSession) -> None:
        """Radios connected."""
        self._sessions[session.node] = session
        self.radios.up(session.node, session.hello.boot, self._clock())

    def radio_down(self, session: RadioSession) -> None:
        """Radios are gone."""
        if self._sessions.get(session.node) is session:
            del self._sessions[session.node]
            self.foreign.down(session.node)
            self.radios.down(session.node, self._clock())

    def radio_report(self, session: RadioSession, report: RadioReport) -> None:
        """A reading."""
        self.radios.report(session.node, report, self._clock())

    def radio_devices(self, session: RadioSession, devices: AlDevices) -> None:
        """All devices near an access point that speak IEEE 1905.1."""
        self.foreign.report(session.node, devices)

    def radio_readings(self, readings: DecodedReadings) -> None:
        """Readings of several at once, decoded."""
        self.radios.readings_came(readings, self._clock())

    def read_now(self, node: str) -> int | None:
        """Asks a node's radios for a reading at once; None if they are not connected."""
        session = self._sessions.get(node)
        return session.read() if session is not None else None

    def snmp_event(self, event: Event) -> None:
        """An answer or a silence."""
        now_s = self._clock()
        for polled in self.snmp.take_event(event):
            self._compare(polled, now_s)
            if self.ports.compare(polled.interface, polled.sample, polled.time_s, now_s):
                self.snmp.note(polled.interface, "openflow-disagrees", now_s)

    def _compare(self, polled: Polled, now_s: float) -> None:
        """SNMP against what the channel says of the same interface; one difference is only a change in between."""
        if not self.radios.is_fresh(polled.interface, now_s):
            return
        said = {row.mac: row.tx_mbps for row in self.radios.neighbours(polled.interface)}
        both = [(said[row.mac], row.tx_mbps, row.mac) for row in polled.neighbours if said.get(row.mac) and row.tx_mbps]
        apart = [abs(a - b) / max(a, b) for a, b, _ in both if a is not None and b is not None]
        if not apart or median(apart) <= DISAGREE_RATIO:
            self._disagreed.pop(polled.interface, None)
            return
        times = self._disagreed[polled.interface] = self._disagreed.get(polled.interface, 0) + 1
        if times < DISAGREE_POLLS:
            return
        self.radios.note(polled.interface[0], "disagrees-with-snmp", now_s)
        for _, theirs, mac in both:
            link = self._link_to(polled.interface, mac)
            if link is not None and theirs is not None:
                self._smaller[link] = (theirs, now_s + FRESH_S)

    def take(self, now_s: float) -> Measurements:
        """Samples and busy shares since the last call."""
        if self._are_tables_old:
            # Once for all boxes that have reported since: many do at a start.
            self._said, self._are_tables_old = _Said(len(self._interfaces)), False
            self._sensing.use_addresses(self._addresses)
        told, self._told = self._told, []
        self.radios.judge(self._late_s())
        late_s = self.radios.late_s
        fresh = self.radios.take(now_s)
        polled = [each for each in self.snmp.take() if not self.radios.is_fresh(each.interface, now_s)]
        # All of them first: what one end says is judged by what the other hears.
        self._sensing.tables(fresh)
        for table in polled:
            self._sensing.table(table.interface, table.neighbours, table.time_s)
        configured = tuple(Sample(link.id, Source.CONFIGURED, link.capacity_mbps, now_s) for link in told)
        samples = self._samples(fresh, polled, configured, now_s - late_s)
        shares = np.full(len(fresh.interfaces.names), np.nan)
        shares[fresh.places] = fresh.busy
        for table in polled:
            if table.busy is not None:
                shares[self.radios.place_of[table.interface]] = table.busy
        self._add_foreign(shares, now_s)
        busy = BusyShares(fresh.interfaces, shares)
        self._sensing.observed(busy)
        self._sensing.update(now_s - late_s)
        return Measurements(samples, busy, late_s=late_s)

    def _add_foreign(self, shares: FloatArray, now_s: float) -> None:
        """Where an access point measures no busy share, what devices of other owners say of that medium counts, and
        where it has only counters, which miss them, the greater of both. Where it measures the medium, their airtime is
        part of that, and what they say does not count.
        """
        self._busy_s[~np.isnan(shares)] = now_s
        for interface, share in self.foreign.busy().items():
            at = self.radios.place_of[interface]
            if now_s - self._busy_s[at] > FRESH_S:
                shares[at] = share
            elif self.radios.busy_source(interface) == "counters":
                shares[at] = np.maximum(shares[at], share)

    def heard(self) -> Heard:
        """Who hears whom."""
        return self._sensing.heard

    def complete(self) -> bool:
        """Whether every interface has been read."""
        return self._sensing.complete()

    def _samples(
        self, fresh: FreshReadings, polled: Sequence[Polled], others: tuple[Sample, ...], now_s: float
    ) -> Samples:
        """What interfaces say of the capacities of links, and what is known of these."""
        places, times_s, versions, count = fresh.places, fresh.times_s, fresh.versions, len(fresh.places)
        if polled:
            of_polled = [self.radios.place_of[table.interface] for table in polled]
            places = np.concatenate([places, np.array(of_polled, dtype=np.intp)])
            times_s = np.concatenate([times_s, [table.time_s for table in polled]])
            versions = np.concatenate([versions, np.full(len(polled), -1, dtype=np.intp)])
        # Where another source says less, that may be over at any time.
        for i in range(len(places)) if self._smaller else self._said.others(places, versions):
            at = int(places[i])
            rows = fresh.neighbours[at] if i < count else polled[i - count].neighbours
            is_lasting, links, mbps = self._says(fresh.interfaces.names[at], rows, now_s)
            self._said.put(at, int(versions[i]) if is_lasting else -1, links, mbps)
        counts, links, mbps = self._said.of(places)
        return Samples(self._names, Source.MODULATION, links, mbps, np.repeat(times_s, counts), others)

    def _says(
        self, interface: Interface, neighbours: tuple[RadioNeighbour, ...], now_s: float
    ) -> tuple[bool, IndexArray, FloatArray]:
        """Places of links and their capacities, by the rows of an interface; before them, whether that lasts as long as
        these rows do.
        """
        found: list[tuple[int, float]] = []
        # Rows of which all but the time is the same each time give the same as long as nobody else is asked.
        is_lasting = not self._smaller
        for row in neighbours:
            ends = self._ends(interface, row.mac)
            if ends is None:
                self.radios.note(interface[0], "unknown-neighbour", now_s)
                is_lasting = False
                continue
            is_lasting &= not (self._must_be_mutual or (ends[2] is not None and row.rx_mbps))
            found += (
                (self._place_of[link], self._least(link, mbps, now_s))
                for link, mbps in self._of_row(interface, row, ends, now_s)
            )
        links = np.array([place for place, _ in found], dtype=np.intp)
        return is_lasting, links, np.array([value for _, value in found], dtype=float)

    def _of_row(
        self, interface: Interface, row: RadioNeighbour, ends: tuple[Interface, str | None, str | None], now_s: float
    ) -> Iterator[tuple[str, float]]:
        """Links and capacities of which a row tells."""
        (other, out, back), me = ends, interface[0]
        if row.last_heard_ms > HEARD_MS or (self._must_be_mutual and not self._sensing.may_hear(other, me, now_s)):
            return
        if out is not None and row.tx_mbps:
            yield out, row.tx_mbps
        # The sender knows its own modulation best; a plain client is not asked.
        if back is not None and row.rx_mbps and not self._sensing.tells(other, me, now_s):
            yield back, row.rx_mbps

    def _least(self, link: str, capacity_mbps: float, now_s: float) -> float:
        """What is believed: less, where another source said so a moment ago."""
        if link in self._smaller:
            theirs_mbps, until_s = self._smaller[link]
            capacity_mbps = min(capacity_mbps, theirs_mbps)
            if now_s > until_s:
                del self._smaller[link]
        return capacity_mbps

    def _ends(self, interface: Interface, mac: str) -> tuple[Interface, str | None, str | None] | None:
        """Another interface of the same technology, the link to it, and the link from it."""
        node, technology = interface
        other = self._addresses.node_of(technology, mac)
        if other is None or other == node:
            return None
        ends = self._link.get((node, other, technology)), self._link.get((other, node, technology))
        return (other, technology), *ends

    def _link_to(self, interface: Interface, mac: str) -> str | None:
        other = self._addresses.node_of(interface[1], mac)
        return self._link.get((interface[0], other, interface[1])) if other is not None else None

    def interfaces(self, now_s: float) -> Iterator[tuple[Interface, float | None, float | None]]:
        """Of each interface: how old its last reading is in seconds (None: never read), and its busy share, if that is
        fresh and told.
        """
        for interface in self._interfaces:
            is_fresh, age_s = self.radios.is_fresh(interface, now_s), self.radios.age_s(interface, now_s)
            polled = self.snmp.latest.get(interface)
            if not is_fresh and polled is not None:
                age_s = now_s - polled.time_s
                is_fresh = age_s <= FRESH_S
            yield interface, age_s, self._sensing.last_busy.get(interface) if is_fresh else None

    def connected(self) -> dict[str, bool]:
        """By node with a switch: whether its radios are connected."""
        return {node: node in self._sessions for node in self._nodes}

    def targets(self, now_s: float) -> Iterator[tuple[str, bool, float | None]]:
        """Of each SNMP target: its name, whether it answers, and how old its last answer is in seconds."""
        for target in sorted({*self.snmp.samples, *self.snmp.silent}):
            sample = self.snmp.samples.get(target)
            yield target, target not in self.snmp.silent, None if sample is None else now_s - sample.measured_s

    def document(self) -> dict[str, Any]:
        """The parts ``radios``, ``devices``, ``snmp`` and ``ports`` of the answer to ``GET /measurements``."""
        now_s = self._clock()
        return {
            "radios": [self._node_document(node, now_s) for node in self._nodes],
            "devices": self.foreign.document(),
            "snmp": [
                self._target_document(target, now_s) for target in sorted({*self.snmp.samples, *self.snmp.silent})
            ],
            "ports": self.ports.document(now_s),
        }

    def _node_document(self, node: str, now_s: float) -> dict[str, Any]:
        session = self._sessions.get(node)
        flags = self.radios.flags(node, now_s)
        mine = [interface for interface in self._interfaces if interface[0] == node]
        return {
            "node": node,
            "up": session is not None,
            "rtt_ms": session.rtt_ms if session is not None else None,
            "flags": list(flags),
            "reason": "; ".join(FLAGS[flag] for flag in flags) or None,
            "interfaces": [self._interface_document(interface, now_s) for interface in mine],
        }

    def _interface_document(self, interface: Interface, now_s: float) -> dict[str, Any]:
        polled = self.snmp.latest.get(interface)
        if self.radios.is_fresh(interface, now_s):
            via, rows, age_s = "radio", self.radios.neighbours(interface), self.radios.age_s(interface, now_s)
        elif polled is not None and now_s - polled.time_s <= FRESH_S:
            via, rows, age_s = "snmp", polled.neighbours, now_s - polled.time_s
        else:
            via, rows, age_s = None, self.radios.neighbours(interface), self.radios.age_s(interface, now_s)
        return {
            "technology": interface[1],
            "via": via,
            "age_s": age_s,
            "busy": self._sensing.last_busy.get(interface) if via is not None else None,
            "busy_source": self.radios.busy_source(interface) if via == "radio" else None,
            "hears": sorted(self._sensing.hears(interface)),
            "mac": self._addresses.mac[interface],
            "mac_from": self._addresses.origin(interface).value,
            "neighbours": self._neighbour_documents(interface, rows),
        }

    def _neighbour_documents(self, interface: Interface, rows: Sequence[RadioNeighbour]) -> list[dict[str, Any]]:
        """What an interface hears; of an address that no node has, whose it may be."""
        nodes = [self._addresses.node_of(interface[1], row.mac) for row in rows]
        heard = [node for node in nodes if node is not None]
        found = []
        for node, row in zip(nodes, rows, strict=True):
            guess = None if node is not None else self._addresses.guess(interface, row.mac, heard)
            may_be = None if guess is None else {"node": guess[0], "technology": guess[1]}
            plc = None if row.plc is None else {**row.plc._asdict(), "slot_ble_mbps": list(row.plc.slot_ble_mbps)}
            found.append({**row._asdict(), "node": node, "guess": may_be, "plc": plc})
        return found

    def _target_document(self, target: str, now_s: float) -> dict[str, Any]:
        sample, silence = self.snmp.samples.get(target), self.snmp.silent.get(target)
        return {
            "target": target,
            "node": sample.node if sample is not None else None,
            "age_s": now_s - sample.measured_s if sample is not None else None,
            "up": silence is None,
            "reason": silence.reason if silence is not None else None,
            "failures": silence.failures if silence is not None else 0,
            "flags": list(sample.flags) if sample is not None else [],
            "interfaces": [
                {"technology": i.technology, "busy": i.busy_share, "in_mbps": i.in_mbps, "out_mbps": i.out_mbps,
                 "flags": [*i.flags, *self.snmp.notes((sample.node if sample else "", i.technology), now_s)]}
                for i in (sample.interfaces if sample is not None else ())
            ],
        }  # fmt: skip
