"""Clients as the REST API shows them: those of the network file by their ids, others by the MAC of their interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hyroads.controller.core.services.clients import Interface
from hyroads.controller.core.services.place import Place
from hyroads.controller.services.clients import ClientDesk
from hyroads.controller.services.steering import Steering
from hyroads.rest.contract import ConflictError, NotConfirmedError, NotFoundError, TooBusyError

Document = dict[str, Any]
CONFIRM_S = 5.0
MAX_PREFERENCES = 4096


@dataclass(frozen=True, slots=True)
class Preference:
    """What was asked for a client. ``steering``: policies may move it."""

    manager: str | None = None
    steering: bool = True


class ClientBook:
    """``declared`` are the clients of the network file. Managers that clients prefer go into ``managers``;
    ``check_manager`` raises if there is none of a name.
    """

    def __init__(
        self,
        desk: ClientDesk,
        steering: Steering,
        declared: Mapping[str, tuple[str, ...]],
        *,
        managers: dict[str, str],
        check_manager: Callable[[str, str], object],
        clock: Callable[[], float],
    ) -> None:
        self._managers = managers
        self._desk = desk
        self._steering = steering
        self._declared = declared
        self._check_manager = check_manager
        self._clock = clock
        self._preferences: dict[str, Preference] = {}
        self._owner = {mac: client for client, macs in declared.items() for mac in macs}

    def may_steer(self, client: str) -> bool:
        """Whether policies may move a client."""
        return self._preferences.get(client, Preference()).steering

    # -- rest.clients.Clients

    def ids(self) -> Sequence[str]:
        """See ``rest.clients.Clients``."""
        others = {mac for mac in self._desk.state.interfaces if mac not in self._owner}
        return sorted({*self._declared, *others})

    def documents(self, clients: Sequence[str]) -> list[Document]:
        """See ``rest.clients.Clients``."""
        addresses: dict[str, list[Document]] = {}
        for address in self._desk.state.addresses.values():
            addresses.setdefault(address.mac, []).append({"ip": address.ip, "by_dhcp": address.by_dhcp})
        known = self._desk.state.interfaces
        return [
            self._document(client, addresses)
            for client in clients
            if client in self._declared or (client in known and client not in self._owner)
        ]

    def document(self, client: str) -> Document:
        """See ``rest.clients.Clients``."""
        return self.documents([self._id(client)])[0]

    def prefer(self, client: str, wishes: Mapping[str, Any]) -> Document:
        """See ``rest.clients.Clients``."""
        name = self._id(client)
        old = self._preferences.get(name, Preference())
        manager = wishes.get("manager", old.manager)
        if manager is not None:
            self._check_manager(manager, name)
        new = Preference(manager, wishes.get("steering", old.steering))
        if new == Preference():
            self._preferences.pop(name, None)
        elif name in self._preferences or len(self._preferences) < MAX_PREFERENCES:
            self._preferences[name] = new
        else:
            raise TooBusyError(f"there are preferences of {MAX_PREFERENCES} clients already")
        if manager is None:
            self._managers.pop(name, None)
        else:
            self._managers[name] = manager
        return self.document(name)

    def transition(self, client: str, to: Mapping[str, str], *, wait: bool) -> Document:
        """See ``rest.clients.Clients``."""
        name, place = self._id(client), Place(to["node"], to["technology"])
        macs = self._declared.get(name, (name,))
        associated = [mac for mac in macs if (i := self._desk.state.interfaces.get(mac)) and i.place is not None]
        transition = self._steering.request((associated or list(macs))[0], place)
        if wait:
            self._steering.wait(transition)
        return transition.document()

    def forget(self, client: str, *, wait: bool) -> None:
        """See ``rest.clients.Clients``."""
        name = self._id(client)
        if name in self._declared:
            raise ConflictError(f"client {name} is declared in the network file")
        self._preferences.pop(name, None)
        self._managers.pop(name, None)
        self._desk.forget(name)
        until_s = self._clock() + CONFIRM_S
        while wait and (pending := self._desk.tables.pending(name)):
            if self._clock() > until_s:
                raise NotConfirmedError(f"client {name} is forgotten", [f"switch {node}" for node in pending])
            self._desk.progress.wait(until_s - self._clock())

    # -- inside

    def _id(self, client: str) -> str:
        if client in self._declared:
            return client
        mac = client.lower()
        if mac in self._owner:
            return self._owner[mac]
        if mac in self._desk.state.interfaces:
            return mac
        raise NotFoundError(f"there is no client {client[:64]!r}")

    def _document(self, client: str, addresses: Mapping[str, list[Document]]) -> Document:
        known, preference = self._desk.state.interfaces, self._preferences.get(client, Preference())
        interfaces = [known[mac] for mac in self._declared.get(client, (client,)) if mac in known]
        return {
            "id": client,
            "declared": client in self._declared,
            "manager": preference.manager,
            "steering": preference.steering,
            "attachments": [self._attachment(interface, addresses) for interface in interfaces],
        }

    def _attachment(self, interface: Interface, addresses: Mapping[str, list[Document]]) -> Document:
        now_s, place = self._clock(), interface.place
        return {
            "interface": interface.mac,
            "node": place.node if place else None,
            "technology": place.technology if place else None,
            "known_by": interface.evidence.name.lower(),
            "signal_dbm": interface.signal_dbm,
            "since_s": max(0.0, now_s - interface.since_s),
            "heard_s": max(0.0, now_s - interface.heard_s),
            "addresses": addresses.get(interface.mac, []),
            "transition": None if (asked := self._steering.last(interface.mac)) is None else asked.document(),
            "pending": [f"switch {node}" for node in self._desk.tables.pending(interface.mac)],
        }
