"""Addresses of interfaces as boxes report them: everything that works with addresses follows them from here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from hyroads.controller.core.interface_addresses import Interface, InterfaceAddresses
from hyroads.controller.core.mappings import differing

LOG = logging.getLogger("hyroads.controller")
AddressListener = Callable[[InterfaceAddresses, frozenset[str]], None]
"""Called with all addresses, and the nodes whose rules or configurations contain one that has changed."""


class AddressBook:
    """The addresses in force. ``listeners`` are called whenever one changes; :meth:`add` calls a new one at once."""

    def __init__(self, addresses: InterfaceAddresses) -> None:
        self.now = addresses
        self._seen: Mapping[Interface, str] = addresses.reported
        self._listeners: list[AddressListener] = []

    def add(self, listener: AddressListener) -> None:
        """Have a listener follow the addresses from now on."""
        self._listeners.append(listener)
        listener(self.now, frozenset(self.now.near))

    def follow(self, reported: Mapping[Interface, str]) -> None:
        """Boxes have reported these addresses."""
        if reported is self._seen:
            return
        self._seen = reported
        before, self.now = self.now, self.now.with_reported(reported)
        changed = differing(before.reported, reported)
        for interface in sorted(changed):
            LOG.info("the address of %s/%s is %s", *interface, self.now.mac[interface])
        if not changed:
            return
        near = self.now.nodes_near(changed)
        for listener in self._listeners:
            listener(self.now, near)
