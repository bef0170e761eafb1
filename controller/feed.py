"""What brings measurements in: the inbox, sessions of radios, the SNMP collector, port statistics each second.

All of it runs beside the loop of slots, in green threads that do little at a time, or in processes of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from hyroads.controller import ryu_shim as shim
from hyroads.controller.agents import Radios
from hyroads.controller.control.inbox import Inbox
from hyroads.controller.control.source import Source
from hyroads.controller.coordinator import Coordinator
from hyroads.controller.core.estimate.busy_time import Interface
from hyroads.controller.measure.feed import CollectorFeed
from hyroads.controller.plan import MULTIPATH
from hyroads.controller.settings import MEASURED, Settings
from hyroads.controller.state import Fabric
from hyroads.controller.switches import SwitchSession

LOG = logging.getLogger("hyroads.measure")
PORTS_EVERY_S = 1.0
REPORT_AGE_S = 2.0


class Feed:
    """One per controller. Radios are heard whatever the settings say; they count only with measured capacities."""

    def __init__(self, fabric: Fabric, settings: Settings, clock: Callable[[], float]) -> None:
        self.inbox = Inbox(fabric, clock)
        self._fabric = fabric
        self._settings = settings
        self._clock = clock
        self._collector: CollectorFeed | None = None

    @property
    def source(self) -> Source | None:
        """What the loop shall take its measurements from; None: from the network file."""
        return self.inbox if self._settings.capacities == MEASURED else None

    @property
    def radios(self) -> Radios:
        """For the agents' server."""
        return Radios(self.inbox, frozenset(self._fabric.addressing.dpid), self._settings.slot_ms)

    def start(self, coordinator: Coordinator) -> None:
        """Starts what runs by itself."""
        shim.spawn(self._poll_ports, coordinator)
        if self._settings.snmp is not None:
            LOG.info("SNMP: %d targets", len(self._settings.snmp.targets))
            self._collector = CollectorFeed(self._settings.snmp, self.inbox.snmp_event)
            self._collector.start()

    def document(self) -> dict[str, Any]:
        """Its part of the answer to ``GET /measurements``."""
        return self.inbox.document()

    def port_stats(self, session: SwitchSession, message: bytes) -> None:
        """A part of a switch's answer."""
        counters = session.on_port_stats(message)
        if counters is not None:
            self.inbox.ports.counters(session.node, session.ports, counters, self._clock())

    def _poll_ports(self, coordinator: Coordinator) -> None:
        """Asks all switches once per second, one after the other."""
        while True:
            due_s = self._clock() + PORTS_EVERY_S
            sessions = [session for session in coordinator.switches.values() if session.is_read]
            for session in sessions:
                session.ask_ports()
                shim.sleep(PORTS_EVERY_S / 2 / len(sessions))
            try:
                self.inbox.ports.agents(_sent_bytes(coordinator), self._clock())
            except Exception as error:  # noqa: BLE001 - counted and shown; the next second is another try
                coordinator.exception("port statistics", error)
            shim.sleep(max(0.1, due_s - self._clock()))


def _sent_bytes(coordinator: Coordinator) -> dict[Interface, int]:
    """What the agents of ingresses say that they sent so far, by the interface that it left by."""
    sent: dict[Interface, int] = {}
    plan, links, index = coordinator.plan, coordinator.fabric.network.links, coordinator.fabric.network.link_index
    for flow in plan.flows.values() if plan is not None else ():
        if flow.mode != MULTIPATH or flow.ingress is None:
            continue
        side = coordinator.reports.side(flow.ingress, "ingress", flow.number, REPORT_AGE_S)
        for path in flow.paths:
            entry = side.path(path.id).entry
            first = links[index[path.links[0]]]
            # From a plain client the first hop is not the agent's.
            if entry is not None and entry["sent_bytes"] is not None and first.source == flow.ingress:
                interface = (flow.ingress, first.technology)
                sent[interface] = sent.get(interface, 0) + int(entry["sent_bytes"])
    return sent
