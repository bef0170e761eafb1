"""Which interface each power-line adapter belongs to. Pure.

An adapter names the other adapters of its line, and at most one of the addresses behind each, which may be that of any
host. Which adapter is its own, an access point knows for certain: by that its interface is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hyroads.controller.agents.telemetry import RadioInterface, RadioNeighbour
from hyroads.controller.core.estimate.busy_time import Interface

Rows = tuple[RadioNeighbour, ...]


class Adapters:
    """The adapters that access points have reported as their own. ``mac_of`` has the address of each interface."""

    def __init__(self, mac_of: Mapping[Interface, str]) -> None:
        self._mac_of = mac_of
        self._adapter_of: dict[Interface, str] = {}
        self._owner_of: dict[str, Interface] = {}
        self._last: dict[Interface, tuple[Rows, Rows]] = {}
        """By interface: the rows that came last, and what they became."""

    def use_addresses(self, mac_of: Mapping[Interface, str]) -> None:
        """Interfaces have these addresses from now on."""
        self._mac_of = mac_of
        self._last.clear()

    def resolved(self, node: str, reading: RadioInterface) -> RadioInterface:
        """The reading of an interface of a node, with neighbours under the addresses of their interfaces where the
        adapter is known. The same rows give the same rows.
        """
        interface = (node, reading.technology)
        if interface in self._mac_of and self._adapter_of.get(interface, "") != reading.adapter:
            self._adapter_of[interface] = reading.adapter
            self._owner_of = _owners(self._adapter_of)
            self._last.clear()
        if not self._owner_of or all(row.plc is None for row in reading.neighbours):
            return reading
        last = self._last.get(interface)
        if last is None or last[0] is not reading.neighbours:
            last = self._last[interface] = (reading.neighbours, self._named(interface, reading.neighbours))
        return reading._replace(neighbours=last[1])

    def _named(self, interface: Interface, rows: Rows) -> Rows:
        found: dict[str, RadioNeighbour] = {}
        for row in rows:
            owner = None if row.plc is None else self._owner_of.get(row.plc.adapter)
            is_known = owner is not None and owner[1] == interface[1]
            named = row._replace(mac=self._mac_of[owner]) if owner is not None and is_known else row
            # What is known for certain counts before an address that any host may have.
            if is_known or named.mac not in found:
                found[named.mac] = named
        return tuple(found.values())


def _owners(adapter_of: Mapping[Interface, str]) -> dict[str, Interface]:
    """By adapter: its interface. An adapter that two nodes claim is neither's."""
    claims = Counter(adapter_of.values())
    return {adapter: owner for owner, adapter in adapter_of.items() if adapter and claims[adapter] == 1}
