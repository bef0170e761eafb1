"""The part ``mptcp`` of the settings: whether MPTCP connections are recognised, and whose interfaces are whose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.checking import Place, boolean_of, integer_of, interface_mac, number_of
from hyroads.controller.core.errors import ConfigError

_KEYS = ("recognise", "syns_per_s", "forget_s", "routed_connections", "clients")
MAX_CLIENTS, MAX_INTERFACES = 1024, 16


@dataclass(frozen=True, slots=True)
class MptcpSettings:
    """``recognise``: edges copy TCP's SYNs to the controller, ``syns_per_s`` of each switch at most. Of the connections
    the subflows of ``routed_connections`` at a time are routed apart.
    """

    recognise: bool = False
    syns_per_s: int = 1000
    forget_s: float = 3600.0
    routed_connections: int = 32
    clients: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By client: its interfaces, which are MAC addresses or nodes of the network file."""

    @property
    def most_routed(self) -> int:
        """So many connections are routed at a time; none where none is recognised."""
        return self.routed_connections if self.recognise else 0

    def owners(self, addressing: Addressing, document: str) -> dict[str, str]:
        """MAC -> the client that it belongs to; ConfigError if an interface is nobody's, or of two."""
        owners: dict[str, str] = {}
        for client, interfaces in self.clients.items():
            for name in interfaces:
                mac = interface_mac(name) or addressing.host_mac.get(name)
                where = f"mptcp.clients.{client}"
                if mac is None:
                    raise ConfigError(document, where, f"{name[:64]!r} is no MAC address and no node with a host")
                if owners.setdefault(mac, client) != client:
                    raise ConfigError(document, where, f"{name[:64]!r} belongs to {owners[mac]!r} already")
        return owners


def parse_mptcp(place: Place | None) -> MptcpSettings:
    """The section of the settings, if there is one."""
    if place is None or place.value is None:
        return MptcpSettings()
    section, plain = place.section(_KEYS), MptcpSettings()
    clients = section.optional("clients")
    return MptcpSettings(
        boolean_of(section, "recognise", plain.recognise),
        integer_of(section, "syns_per_s", plain.syns_per_s, 10, 100_000),
        number_of(section, "forget_s", plain.forget_s, 10, 604_800),
        integer_of(section, "routed_connections", plain.routed_connections, 0, 1000),
        {} if clients is None or clients.value is None else _clients(clients),
    )


def _clients(place: Place) -> dict[str, tuple[str, ...]]:
    found = {}
    for name, entry in place.entries():
        interfaces = tuple(one.identifier() for one in entry.items())
        if not 0 < len(interfaces) <= MAX_INTERFACES:
            entry.fail(f"expected 1 to {MAX_INTERFACES} interfaces")
        found[name] = interfaces
    if len(found) > MAX_CLIENTS:
        place.fail(f"expected at most {MAX_CLIENTS} clients, got {len(found)}")
    return found
