"""Who hears whom, from neighbour tables (``infer.topology``), as the loop wants it (``control.source.Heard``).

With the rule ``sensing`` the interference domains follow the tables; under any other rule they are as declared, and an
interface is taken to hear what the rule says. No I/O; time is an argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hyroads.controller.agents.telemetry import RadioNeighbour
from hyroads.controller.core.carrier_sensing_rule import (
    AssumedCarrierSensing,
    CarrierSensingInterference,
    implied_carrier_sensing,
)
from hyroads.controller.core.estimate.busy_time import Interface
from hyroads.controller.core.infer.topology import Neighbour, NeighbourTables, Report
from hyroads.controller.model.state import TopologyContext

from .source import NOTHING_HEARD, Heard

# Tables change when something is switched on or off; twice a second is soon enough to look.
UPDATE_S = 0.5
HEARD_S = 3.0
# A table takes 10 us: slots of a large network would be late if all were taken in at once.
MOST_AT_ONCE = 500
# Domains that are inferred before all nodes have spoken would change again at once.
FIRST_AFTER_S = 2.0


class CarrierSensingRegistry:
    """The last neighbour table of every interface, and what follows from all of them."""

    def __init__(self, context: TopologyContext) -> None:
        addressing, network = context.addressing, context.network
        self._network = network
        self._awaited = {(node, k) for node in addressing.dpid for k in addressing.technologies(node)}
        interface_of = {mac: interface for interface, mac in addressing.interface_mac.items()}
        self._tables = NeighbourTables(interface_of)
        self._interface_of = interface_of
        self._new: dict[Interface, tuple[tuple[RadioNeighbour, ...], float]] = {}
        self._waiting: list[tuple[Interface, tuple[tuple[RadioNeighbour, ...], float]]] = []
        """What is still to be taken in before anybody looks who hears whom."""
        # Per interface: its rows, as of when, and node -> (whether it has an estimate towards it, how long ago it was
        # heard).
        self._rows: dict[Interface, tuple[object, float, dict[str, tuple[bool, float]]]] = {}
        self._observers: dict[Interface, None] = {}
        self._hears: dict[Interface, frozenset[str]] = {}
        self._published: tuple[object, ...] = ()
        self._first_s: float | None = None
        self._updated_s = 0.0
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
        self._new[interface] = (rows, time_s)
        known = self._rows.get(interface)
        if known is not None and known[0] is rows:
            self._rows[interface] = (rows, time_s, known[2])
            return
        heard = {}
        for row in rows:
            other = self._interface_of.get(row.mac)
            if other is not None:
                heard[other[0]] = (bool(row.tx_mbps), row.last_heard_ms / 1000)
        self._rows[interface] = (rows, time_s, heard)

    def tells(self, interface: Interface, node: str, now_s: float) -> bool:
        """Whether an interface tells itself how fast it can send to a node."""
        _, time_s, heard = self._rows.get(interface, (None, 0.0, {}))
        estimate, ago_s = heard.get(node, (False, 0.0))
        return estimate and now_s - (time_s - ago_s) <= HEARD_S

    def may_hear(self, interface: Interface, node: str, now_s: float) -> bool:
        """Whether an interface hears a node, or does not speak of anyone (a plain client)."""
        known = self._rows.get(interface)
        if known is None:
            return True
        _, time_s, heard = known
        return node in heard and now_s - (time_s - heard[node][1]) <= HEARD_S

    def observed(self, busy: Mapping[Interface, float]) -> None:
        """Busy shares of a slot."""
        self.last_busy.update(busy)
        self._observers.update(dict.fromkeys(busy))

    def update(self, now_s: float) -> None:
        """Looks whether anything changed, now and then; in a large network at some interfaces each time."""
        if self._first_s is None:
            return
        if not self._waiting:
            if now_s - self._updated_s < UPDATE_S:
                return
            self._updated_s = now_s
            self._waiting, self._new = list(self._new.items()), {}
        some, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
        self._tables = self._tables.after_all(
            Report(*interface, time_s, tuple(_neighbour(row, time_s) for row in rows))
            for interface, (rows, time_s) in some
        )
        if not self._waiting:
            self._hears = self._tables.hears(now_s)
            if not self._awaited or now_s - self._first_s >= FIRST_AFTER_S:
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


def _neighbour(row: RadioNeighbour, time_s: float) -> Neighbour:
    return Neighbour(row.mac, time_s - row.last_heard_ms / 1000)
