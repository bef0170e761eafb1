"""Who hears whom, from neighbour tables (``infer.topology``), as the loop wants it (``control.source.Heard``).

With the rule ``sensing`` the interference domains follow the tables; under any other rule they are as declared, and an
interface is taken to hear what the rule says. No I/O; time is an argument.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from hyroads.controller.agents.telemetry import RadioNeighbour
from hyroads.controller.core.carrier_sensing_rule import (
    AssumedCarrierSensing,
    CarrierSensingInterference,
    implied_carrier_sensing,
)
from hyroads.controller.core.estimate.busy_time import Interface, Interfaces, latest
from hyroads.controller.core.infer.topology import NeighbourTables
from hyroads.controller.core.interface_addresses import InterfaceAddresses
from hyroads.controller.model.state import TopologyContext

from .radio_table import FreshReadings
from .source import NOTHING_HEARD, Heard

# Tables change when something is switched on or off; twice a second is soon enough to look.
UPDATE_S = 0.5
HEARD_S = 3.0
# Domains that are inferred before all nodes have spoken would change again at once.
FIRST_AFTER_S = 2.0


@dataclass(slots=True)
class _Rows:
    """The last rows of an interface, and by node: whether it has an estimate towards it, and how many seconds before
    they were read it was last heard.
    """

    rows: tuple[RadioNeighbour, ...] = ()
    known: Mapping[str, tuple[bool, float]] = field(default_factory=dict)


class CarrierSensingRegistry:
    """The last neighbour table of every interface, and what follows from all of them."""

    def __init__(self, context: TopologyContext, interfaces: Interfaces) -> None:
        """``interfaces`` are all those of the context, as readings of radios number them."""
        addressing, network = context.addressing, context.network
        self._network = network
        self._awaited = {(node, k) for node in addressing.dpid for k in addressing.technologies(node)}
        self._node_of = context.addresses.node_of
        self._tables = NeighbourTables(self._node_of, interfaces)
        self._place_of = interfaces.place_of
        self._rows: dict[Interface, _Rows] = {}
        count = len(interfaces.names)
        # By place of an interface: when its rows were read, of what version those of its radios are (-1: others), and
        # whether they came since the last update.
        self._times_s, self._versions = np.full(count, -np.inf), np.full(count, -1, dtype=np.intp)
        self._is_new = np.zeros(count, dtype=bool)
        self._other: dict[Interface, None] = {}
        """Those with other rows since the last update."""
        self._observers: tuple[Interface, ...] = ()
        self._hears: Mapping[Interface, frozenset[str]] = {}
        self._published: tuple[object, ...] = ()
        self._first_s: float | None = None
        self._updated_s = self._published_s = 0.0
        self.is_inferred = isinstance(network.interference, AssumedCarrierSensing)
        self._declared = None if self.is_inferred else implied_carrier_sensing(network)
        self.last_busy: Mapping[Interface, float] = {}
        self.heard: Heard = NOTHING_HEARD

    def complete(self) -> bool:
        """Whether every interface has told whom it hears, and what follows from that is told."""
        return not self._awaited and (not self.is_inferred or self.heard.interference is not None)

    def hears(self, interface: Interface) -> frozenset[str]:
        """The nodes that an interface hears."""
        return self._hears.get(interface, frozenset())

    def table(self, interface: Interface, rows: Iterable[RadioNeighbour], time_s: float) -> None:
        """The rows of an interface as of ``time_s``."""
        rows = rows if isinstance(rows, tuple) else tuple(rows)
        self._first_s = self._first_s if self._first_s is not None else time_s
        self._awaited.discard(interface)
        self._rows[interface] = self._named(interface, rows)
        at = self._place_of[interface]
        self._times_s[at], self._versions[at], self._is_new[at] = time_s, -1, True
        self._other[interface] = None

    def _named(self, interface: Interface, rows: tuple[RadioNeighbour, ...]) -> _Rows:
        named = ((self._node_of(interface[1], row.mac), row) for row in rows)
        return _Rows(rows, {n: (bool(row.tx_mbps), row.last_heard_ms / 1000) for n, row in named if n is not None})

    def use_addresses(self, addresses: InterfaceAddresses) -> None:
        """Interfaces have these addresses: the last tables are read again with them."""
        self._node_of = addresses.node_of
        self._tables.use_addresses(self._node_of)
        for interface, last in self._rows.items():
            self._rows[interface] = self._named(interface, last.rows)
            self._other[interface] = None

    def tables(self, fresh: FreshReadings) -> None:
        """The rows of many interfaces. Those that are of the last time cost next to nothing."""
        places = fresh.places
        for i in np.flatnonzero(fresh.versions != self._versions[places]).tolist():
            at = int(places[i])
            self.table(fresh.interfaces.names[at], fresh.neighbours[at], float(fresh.times_s[i]))
        self._times_s[places], self._versions[places], self._is_new[places] = fresh.times_s, fresh.versions, True

    def tells(self, interface: Interface, node: str, now_s: float) -> bool:
        """Whether an interface tells itself how fast it can send to a node."""
        estimate, heard_s = self._heard(interface, node)
        return estimate and now_s - heard_s <= HEARD_S

    def _heard(self, interface: Interface, node: str) -> tuple[bool, float]:
        """Whether an interface has an estimate towards a node, and when it heard it last."""
        last = self._rows.get(interface)
        if last is None:
            return False, -math.inf
        estimate, age_s = last.known.get(node, (False, math.inf))
        return estimate, float(self._times_s[self._place_of[interface]]) - age_s

    def may_hear(self, interface: Interface, node: str, now_s: float) -> bool:
        """Whether an interface hears a node, or does not speak of anyone (a plain client)."""
        return interface not in self._rows or now_s - self._heard(interface, node)[1] <= HEARD_S

    def observed(self, busy: Mapping[Interface, float]) -> None:
        """Busy shares of a slot."""
        before, self.last_busy = self.last_busy, latest(self.last_busy, busy)
        # Nobody who has told a share is forgotten.
        if len(self.last_busy) != len(before):
            self._observers = tuple(sorted(self.last_busy))

    def update(self, now_s: float) -> None:
        """Looks whether anything changed, now and then."""
        if self._first_s is None or now_s - self._updated_s < UPDATE_S:
            return
        self._updated_s = now_s
        other, self._other = self._other, {}
        for interface in other:
            at = self._place_of[interface]
            self._is_new[at] = False
            self._tables.take(interface, float(self._times_s[at]), self._rows[interface].rows)
        again = np.flatnonzero(self._is_new)
        self._is_new[again] = False
        self._tables.take_again(again, self._times_s[again])
        self._hears = self._tables.hears(now_s)
        if not self._awaited or now_s - max(self._first_s, self._published_s) >= FIRST_AFTER_S:
            self._published_s = now_s
            self._publish()

    def _publish(self) -> None:
        observers = self._observers
        state = (observers, self._hears if self.is_inferred else None)
        if state == self._published:
            return
        before, self._published = self._published, state
        if not self.is_inferred:
            self.heard = Heard(observers, self._declared)
            return
        interference = self.heard.interference
        if not before or before[1] != state[1]:
            network = self._network
            nodes = tuple(network.nodes)
            interference = CarrierSensingInterference(nodes, network.links, self._hears, network.unshared)
        self.heard = Heard(observers, self._hears, interference)
