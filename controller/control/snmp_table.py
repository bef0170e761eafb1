"""What SNMP agents said last -> rows and doubts per interface, as :mod:`.radio_table` for radios. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from hyroads.controller.agents.telemetry import RadioNeighbour
from hyroads.controller.core.estimate.busy_time import Interface
from hyroads.controller.measure.samples import Event, InterfaceSample, NeighbourSample, NodeSample, Silence

from .radio_table import Fresh

# What makes the values themselves doubtful; the other flags concern differences, which are None then, or counters.
UNUSABLE_NODE = frozenset({"stale", "frozen", "clock"})
UNUSABLE_INTERFACE = frozenset({"down-but-sending", "no-such-interface"})
UNUSABLE_NEIGHBOUR = frozenset({"heard-while-down"})
FRESH_S = 3.0


@dataclass(frozen=True, slots=True)
class Polled(Fresh):
    """An interface of the last usable sample of a node."""

    sample: InterfaceSample


class SnmpTable:
    """Latest sample and silence of every target; interfaces of samples that were not taken yet."""

    def __init__(self, interfaces: frozenset[Interface]) -> None:
        self._interfaces = interfaces
        self.samples: dict[str, NodeSample] = {}
        self.silent: dict[str, Silence] = {}
        self._untaken: dict[Interface, Polled] = {}
        self.latest: dict[Interface, Polled] = {}
        self._noted: dict[tuple[Interface, str], float] = {}

    def take_event(self, event: Event) -> list[Polled]:
        """An answer, or a silence; returns what is new and usable."""
        if isinstance(event, Silence):
            self.silent[event.target] = event
            return []
        self.silent.pop(event.target, None)
        self.samples[event.target] = event
        if UNUSABLE_NODE & set(event.flags):
            return []
        found = [polled for i in event.interfaces if (polled := self._polled(event, i)) is not None]
        for polled in found:
            self._untaken[polled.interface] = self.latest[polled.interface] = polled
        return found

    def _polled(self, event: NodeSample, sample: InterfaceSample) -> Polled | None:
        interface = (event.node, sample.technology)
        if interface not in self._interfaces or UNUSABLE_INTERFACE & set(sample.flags):
            return None
        rows = tuple(_row(n) for n in sample.neighbours if not UNUSABLE_NEIGHBOUR & set(n.flags))
        return Polled(interface, event.measured_s, rows, sample.busy_share, sample)

    def note(self, interface: Interface, flag: str, now_s: float) -> None:
        """Someone else has found a doubt."""
        self._noted[interface, flag] = now_s

    def notes(self, interface: Interface, now_s: float) -> list[str]:
        """Doubts that others found in the last seconds."""
        return [flag for (at, flag), at_s in self._noted.items() if at == interface and now_s - at_s <= FRESH_S]

    def take(self) -> list[Polled]:
        """What is new since the last time."""
        untaken, self._untaken = self._untaken, {}
        return list(untaken.values())


def _row(n: NeighbourSample) -> RadioNeighbour:
    rates = (n.tx_capacity_mbps, n.rx_capacity_mbps)
    return RadioNeighbour(n.mac.lower(), *rates, n.tx_loss, n.signal_dbm, n.last_heard_ms)
