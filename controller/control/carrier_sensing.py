"""Who hears whom, from neighbour tables (``infer.topology``), as the loop wants it (``control.source.Heard``).

With the rule ``sensing`` the interference domains follow the tables; under any other rule they are as declared, and an
interface is taken to hear what the rule says. No I/O; time is an argument.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hyroads.controller.agents.telemetry import RadioNeighbour
from hyroads.controller.core.carrier_sensing_rule import (
    AssumedCarrierSensing,
    CarrierSensingInterference,
    implied_carrier_sensing,
)
from hyroads.controller.core.estimate.busy_time import Interface
from hyroads.controller.core.infer.topology import NeighbourTables
from hyroads.controller.model.state import TopologyContext

from .source import NOTHING_HEARD, Heard

# Tables change when something is switched on or off; twice a second is soon enough to look.
UPDATE_S = 0.5
HEARD_S = 3.0
# Domains that are inferred before all nodes have spoken would change again at once.
FIRST_AFTER_S = 2.0


@dataclass(slots=True)
class _Rows:
    """The last rows of an interface, when they were read, and by node: whether it has an estimate towards it, and how
    many seconds before it was last heard.
    """

    rows: tuple[RadioNeighbour, ...] = ()
    time_s: float = -math.inf
    known: Mapping[str, tuple[bool, float]] = field(default_factory=dict)


_NO_ROWS = _Rows()


class CarrierSensingRegistry:
    """The last neighbour table of every interface, and what follows from all of them."""

    def __init__(self, context: TopologyContext) -> None:
        addressing, network = context.addressing, context.network
        self._network = network
        self._awaited = {(node, k) for node in addressing.dpid for k in addressing.technologies(node)}
        interface_of = {mac: interface for interface, mac in addressing.interface_mac.items()}
        self._tables = NeighbourTables(interface_of)
        self._interface_of = interface_of
        self._new: set[Interface] = set()
        self._rows: dict[Interface, _Rows] = {}
        self._observers: dict[Interface, None] = {}
        self._hears: Mapping[Interface, frozenset[str]] = {}
        self._published: tuple[object, ...] = ()
        self._first_s: float | None = None
        self._updated_s = self._published_s = 0.0
        self.is_inferred = isinstance(network.interference, AssumedCarrierSensing)
        self._declared = None if self.is_inferred else implied_carrier_sensing(network)
        self.last_busy: dict[Interface, float] = {}
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
        named = ((self._interface_of.get(row.mac), row) for row in rows)
        known = {o[0]: (bool(row.tx_mbps), row.last_heard_ms / 1000) for o, row in named if o is not None}
        self._rows[interface] = _Rows(rows, time_s, known)
        self._new.add(interface)

    def tables(
        self,
        interfaces: Sequence[Interface],
        neighbours: Sequence[tuple[RadioNeighbour, ...]],
        times_s: Sequence[float],
    ) -> None:
        """The rows of many interfaces. The very rows of the last time may be given again, and cost next to nothing."""
        known = self._rows
        for interface, rows, time_s in zip(interfaces, neighbours, times_s, strict=True):
            last = known.get(interface)
            if last is None or last.rows is not rows:
                self.table(interface, rows, time_s)
            else:
                last.time_s = time_s
        self._new.update(interfaces)

    def tells(self, interface: Interface, node: str, now_s: float) -> bool:
        """Whether an interface tells itself how fast it can send to a node."""
        estimate, heard_s = self._heard(interface, node)
        return estimate and now_s - heard_s <= HEARD_S

    def _heard(self, interface: Interface, node: str) -> tuple[bool, float]:
        """Whether an interface has an estimate towards a node, and when it heard it last."""
        last = self._rows.get(interface, _NO_ROWS)
        estimate, age_s = last.known.get(node, (False, math.inf))
        return estimate, last.time_s - age_s

    def may_hear(self, interface: Interface, node: str, now_s: float) -> bool:
        """Whether an interface hears a node, or does not speak of anyone (a plain client)."""
        return interface not in self._rows or now_s - self._heard(interface, node)[1] <= HEARD_S

    def observed(self, busy: Mapping[Interface, float]) -> None:
        """Busy shares of a slot."""
        self.last_busy.update(busy)
        self._observers.update(dict.fromkeys(busy))

    def update(self, now_s: float) -> None:
        """Looks whether anything changed, now and then."""
        if self._first_s is None or now_s - self._updated_s < UPDATE_S:
            return
        self._updated_s = now_s
        new, self._new = self._new, set()
        for interface in new:
            last = self._rows[interface]
            self._tables.take(interface, last.time_s, last.rows)
        self._hears = self._tables.hears(now_s)
        if not self._awaited or now_s - max(self._first_s, self._published_s) >= FIRST_AFTER_S:
            self._published_s = now_s
            self._publish()

    def _publish(self) -> None:
        observers = tuple(sorted(self._observers))
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
