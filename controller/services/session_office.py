"""What the desk of sessions needs of the coordinator, and where hosts are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hyroads.controller.control.live_network import LiveNetwork
from hyroads.controller.control.sessions import Host
from hyroads.controller.coordinator import Coordinator
from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.closed_loop import GroupAirtime
from hyroads.controller.core.services.clients import Clients
from hyroads.controller.core.services.place import WIRED
from hyroads.controller.ofp.intents import SwitchIntent
from hyroads.controller.saver import Saver
from hyroads.controller.state import Fabric


class SessionOffice:
    """The coordinator, as ``services.sessions.Office`` wants it."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    @property
    def fabric(self) -> Fabric:
        """See ``Office``."""
        return self._coordinator.fabric

    def clock(self) -> float:
        """See ``Office``."""
        return self._coordinator.clock()

    def live_network(self) -> LiveNetwork | None:
        """See ``Office``."""
        ready = self._coordinator.settled and self._coordinator.plan is not None
        return self._coordinator.live.network if ready else None

    def confirmed_intent(self, node: str) -> SwitchIntent | None:
        """See ``Office``."""
        session = self._coordinator.switches.get(node)
        confirmed = session.confirmed if session is not None else None
        return confirmed.intent if confirmed is not None else None

    def nodes_connected(self) -> Sequence[str]:
        """See ``Office``."""
        return list(self._coordinator.switches)

    def wake(self) -> None:
        """See ``Office``."""
        self._coordinator.wake(now=True)

    def note_unsaved(self) -> None:
        """See ``Office``."""
        self._coordinator.saver.note()
        self._coordinator.wake()

    @property
    def saver(self) -> Saver:
        """Writes what is asked for, or takes it back."""
        return self._coordinator.saver

    def is_saved(self) -> bool:
        """See ``Office``."""
        return not self._coordinator.saver.pending

    def wait(self, timeout_s: float) -> None:
        """See ``Office``."""
        self._coordinator.progress.wait(timeout_s)

    def publish(self, kind: str, document: Mapping[str, Any]) -> object:
        """See ``Office``."""
        return self._coordinator.events.publish(kind, document)

    def exception(self, where: str, error: BaseException) -> None:
        """See ``Office``."""
        self._coordinator.exception(where, error)

    def take_airtime(self, airtime: GroupAirtime) -> None:
        """See ``Office``."""
        self._coordinator.live.loop.groups = airtime


def fixed_hosts(addressing: Addressing) -> Callable[[str], Host | None]:
    """Finds the hosts that the network file names: by node id, MAC or IP."""
    hosts = {
        node: Host(node, True, node, addressing.host_mac[node], addressing.host_ip[node])
        for node in addressing.node_number
    }
    by_name = {str(key): host for host in hosts.values() for key in (host.mac, host.ip)} | hosts
    return lambda name: by_name.get(name) or by_name.get(name.lower())


def known_hosts(addressing: Addressing, clients: Callable[[], Clients]) -> Callable[[str], Host | None]:
    """Finds these, and hosts that were learned: by MAC or IP."""
    fixed = fixed_hosts(addressing)

    def find(name: str) -> Host | None:
        host = fixed(name)
        if host is not None:
            return host
        known, text = clients(), name.lower()
        address = known.addresses.get(text)
        interface = known.interfaces.get(text if address is None else address.mac)
        if interface is None:
            return None
        place, ip = interface.place, text if address is not None else None
        if place is None:
            return Host(name, True, None, interface.mac, ip)
        wired = place.technology == WIRED
        return Host(name, True, place.node, interface.mac, ip, None if wired else place.technology)

    return find


def ports_of_hosts(addressing: Addressing) -> Callable[[str, str], tuple[str, str | None] | None]:
    """Where hosts behind a port of a node are: at its access port, or on a medium of it."""
    known: dict[tuple[str, str], tuple[str, str | None]] = {
        (node, port): (node, None) for node, port in addressing.access_port.items()
    }
    known.update({(node, name): (node, k) for (node, k), name in addressing.interface_name.items()})
    return lambda node, port: known.get((node, port))
