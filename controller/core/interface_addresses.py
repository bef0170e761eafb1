"""Addresses of interfaces on the media: what boxes report, else what the network file names, else a derived one. Pure.

Boxes have interfaces with factory addresses. Intents and configurations name an interface by the address that the
network file gives or that follows from it (``Addressing.interface_mac``), which never changes. What is sent to switches
and agents has the addresses of this module, and what neighbour tables contain is looked up here.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Any

from .addressing import Addressing
from .checking import interface_mac
from .errors import ConfigError
from .network import Network

Interface = tuple[str, str]
"""(node, technology)."""
HOST = ""
"""In place of a technology: the access host of a node."""
NEAR_OCTETS = 5
"""Interfaces of one box often have addresses that differ in the last octet alone."""


class AddressOrigin(StrEnum):
    """Where the address of an interface comes from, best first."""

    REPORTED = "reported"
    NAMED = "named"
    DERIVED = "derived"


@dataclass(frozen=True, slots=True)
class SharedAddress:
    """One address of several boxes: (node, technology), or (node, ``HOST``) for an access host."""

    mac: str
    holders: tuple[Interface, ...]

    def __str__(self) -> str:
        holders = [f"{node}/{technology}" if technology else f"the host of {node}" for node, technology in self.holders]
        return f"{self.mac} is the address of {', '.join(holders[:-1])} and {holders[-1]}"

    def document(self) -> dict[str, Any]:
        """As REST shows it; the technology of an access host is null."""
        holders = [{"node": node, "technology": technology or None} for node, technology in self.holders]
        return {"mac": self.mac, "holders": holders}


@dataclass(frozen=True)
class InterfaceAddresses:
    """The addresses of all interfaces; build with :meth:`of` and :meth:`with_reported`.

    ``reported`` are those that boxes report, by (node, technology). ``near`` has by node its own interfaces and those
    at the other ends of its links.
    """

    addressing: Addressing
    near: Mapping[str, tuple[Interface, ...]]
    named: frozenset[Interface] = frozenset()
    reported: Mapping[Interface, str] = field(default_factory=dict)

    @classmethod
    def of(cls, network: Network, addressing: Addressing) -> InterfaceAddresses:
        """Addresses before any box has reported one."""
        near = {node: {(node, k): None for k in addressing.technologies(node)} for node in network.nodes}
        for link in network.links:
            near[link.source][link.target, link.technology] = None
            near[link.target][link.source, link.technology] = None
        named = frozenset((node.id, k) for node in network.nodes.values() for k in node.addresses)
        return cls(addressing, {node: tuple(interfaces) for node, interfaces in near.items()}, named)

    def with_reported(self, reported: Mapping[Interface, str]) -> InterfaceAddresses:
        """The same network with other reports; the very object if they are the same."""
        if reported == self.reported:
            return self
        return replace(self, reported=reported)

    @cached_property
    def mac(self) -> Mapping[Interface, str]:
        """(node, technology) -> address."""
        return {**self.addressing.interface_mac, **self.reported}

    def origin(self, interface: Interface) -> AddressOrigin:
        """Where the address of an interface comes from."""
        if interface in self.reported:
            return AddressOrigin.REPORTED
        return AddressOrigin.NAMED if interface in self.named else AddressOrigin.DERIVED

    @cached_property
    def _node_of(self) -> Mapping[tuple[str, str], str | None]:
        found: dict[tuple[str, str], str | None] = {}
        for (node, technology), mac in self.mac.items():
            # An address of two nodes is neither's.
            found[technology, mac] = node if found.get((technology, mac), node) == node else None
        return found

    def node_of(self, technology: str, mac: str) -> str | None:
        """The node whose interface on a technology has an address; None if there is none, or several."""
        return self._node_of.get((technology, mac))

    @cached_property
    def owners(self) -> Mapping[str, str]:
        """Address -> node, on any technology."""
        return {mac: node for (node, _), mac in self.mac.items()}

    def translation(self, node: str) -> Mapping[str, str]:
        """What becomes of the names of interfaces in what is sent to a node: address in intents -> address. Names that
        stay as they are, and those of interfaces that are not near the node, are missing.
        """
        names, macs = self.addressing.interface_mac, self.mac
        return {names[i]: macs[i] for i in self.near.get(node, ()) if names[i] != macs[i]}

    def nodes_near(self, interfaces: Iterable[Interface]) -> frozenset[str]:
        """The nodes that send to or hear some interfaces by a link, and their own nodes; costs their links.

        Links may lead one way only, but both ends are near each other: ``near`` of an interface's own node has the
        interfaces at the other ends.
        """
        return frozenset(
            other for node, k in interfaces for other, technology in self.near.get(node, ()) if technology == k
        )

    @cached_property
    def shared(self) -> tuple[SharedAddress, ...]:
        """Addresses that more than one box has, in their order. Interfaces of one box may share one."""
        holders: dict[str, dict[Interface, None]] = {}
        for node, mac in self.addressing.host_mac.items():
            if not self.addressing.is_plain_client(node):
                holders.setdefault(mac, {})[node, HOST] = None
        for interface, mac in self.mac.items():
            holders.setdefault(mac, {})[interface] = None
        found = (SharedAddress(mac, tuple(sorted(of))) for mac, of in sorted(holders.items()))
        return tuple(each for each in found if len({node for node, _ in each.holders}) > 1)

    def guess(self, interface: Interface, mac: str, heard: Iterable[str]) -> Interface | None:
        """Which interface an unknown address may be, that ``interface`` hears besides the nodes ``heard``; None: it may
        be anything.

        It is one whose address differs in the last octet alone (or in the bit for locally administered addresses), of
        the same technology first; else the only one that a link leads to and that is not heard, if no box has reported
        another address for it.
        """
        node, technology = interface
        alike = [other for other, known in self.mac.items() if other[0] != node and _is_near(known, mac)]
        best = [other for other in alike if other[1] == technology] or alike
        if len({other[0] for other in best}) == 1:
            return best[0]
        silent = [i for i in self.near.get(node, ()) if i[1] == technology and i[0] not in {node, *heard}]
        if not best and len(silent) == 1 and silent[0] not in self.reported:
            return silent[0]
        return None


def _is_near(known: str, mac: str) -> bool:
    """Whether two addresses may be of one box."""
    local = 0x02
    first, second = int(known[:2], 16) & ~local, int(mac[:2], 16) & ~local
    return first == second and known.split(":")[1:NEAR_OCTETS] == mac.split(":")[1:NEAR_OCTETS]


def saved_addresses(reported: Mapping[Interface, str]) -> list[dict[str, str]]:
    """Reported addresses for the state file."""
    return [{"node": node, "technology": k, "mac": mac} for (node, k), mac in sorted(reported.items())]


def addresses_from(
    documents: object, interfaces: Container[Interface]
) -> tuple[dict[Interface, str], list[ConfigError]]:
    """What :func:`saved_addresses` saved; addresses of interfaces that the network does not have are left out."""
    found: dict[Interface, str] = {}
    problems = []
    for index, entry in enumerate(documents if isinstance(documents, list) else ()):
        match entry:
            case {"node": str(node), "technology": str(technology), "mac": str(text)} if (
                node,
                technology,
            ) in interfaces and (mac := interface_mac(text)) is not None:
                found[node, technology] = mac
            case _:
                where = f"services.addresses[{index}]"
                problems.append(ConfigError("state file", where, "expected an interface and its address"))
    return found, problems


NOTHING_REPORTED: Mapping[Interface, str] = MappingProxyType({})
