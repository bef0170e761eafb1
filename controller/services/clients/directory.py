"""Clients as the REST API shows them: those of the network file by their ids, others by the MAC of their interface."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

from hyroads.controller.core.checking import interface_mac
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.network import Place
from hyroads.controller.core.services.client_tables import Interface
from hyroads.controller.model.pending_names import switch_name
from hyroads.controller.runtime.faults import wait_until
from hyroads.controller.runtime.saver import Change
from hyroads.controller.services.port import ControllerPort
from hyroads.controller.services.steering.stations import Steering
from hyroads.rest.contract import ConflictError, NotConfirmedError, NotFoundError, TooBusyError

from .declared import place_document, possible_places
from .locations import ClientService
from .multihomed import MultihomedClients

Document = dict[str, Any]
CONFIRM_S = 5.0
MAX_PREFERENCES = 4096
MAX_NAME = 64


@dataclass(frozen=True, slots=True)
class Preference:
    """What was asked for a client. ``steering``: policies may move it. ``bound_to``: where alone it may be."""

    manager: str | None = None
    steering: bool = True
    bound_to: Place | None = None


@dataclass(eq=False)
class ClientDirectory:
    """``declared`` are the clients of the network file, ``multihomed`` those that report by themselves. Managers that
    clients prefer go into ``managers``; ``check_manager`` raises if there is none of a name.
    """

    service: ClientService
    steering: Steering
    port: ControllerPort
    declared: Mapping[str, tuple[str, ...]]
    multihomed: MultihomedClients
    _: KW_ONLY
    managers: dict[str, str]
    check_manager: Callable[[str, str], object]
    clock: Callable[[], float]
    moves: Callable[[str], Iterable[str]] = lambda client: ()
    """What has not confirmed where a client of the network file is."""

    def __post_init__(self) -> None:
        self._preferences: dict[str, Preference] = {}
        self.use_declared(self.declared)

    def use_declared(self, declared: Mapping[str, tuple[str, ...]]) -> None:
        """The clients of the network file have these interfaces."""
        self.declared = declared
        self._owner = {mac: client for client, macs in declared.items() for mac in macs}

    def may_steer(self, client: str) -> bool:
        """Whether policies may move a client."""
        return self._preferences.get(client, Preference()).steering

    # -- the state file

    def restore(self, documents: object) -> list[ConfigError]:
        """Take in what an earlier controller saved; returns what is wrong with it. Managers are not looked up yet,
        because a plugin's manager may come later.
        """
        problems = []
        for index, document in enumerate(documents if isinstance(documents, list) else ()):
            match document:
                case {"client": str(client), "manager": str() | None as manager, "steering": bool(steering)} if (
                    0 < len(client) <= MAX_NAME and len(self._preferences) < MAX_PREFERENCES
                ):
                    self._put(client, Preference(manager, steering, self._bound_to(document.get("bound_to"))))
                case _:
                    where = f"services.preferences[{index}]"
                    problems.append(ConfigError("state file", where, "expected a client and what was asked for it"))
        return problems

    def become(self, documents: object) -> list[ConfigError]:
        """Preferences are those that another controller, which leads, has saved; what is wrong with some of them."""
        for client in list(self._preferences):
            self._put(client, Preference())
        return self.restore(documents)

    def to_save(self) -> list[Document]:
        """What :meth:`restore` needs."""
        return [
            {
                "client": client,
                "manager": one.manager,
                "steering": one.steering,
                **({} if one.bound_to is None else {"bound_to": place_document(one.bound_to)}),
            }
            for client, one in self._preferences.items()
        ]

    # -- rest.clients.Clients

    def ids(self) -> Sequence[str]:
        """All clients."""
        others = {mac for mac in self.service.state.interfaces if mac not in self._owner}
        return sorted({*self.declared, *self.multihomed.ids(), *others})

    def places(self) -> dict[str, dict[str, list[str] | None]]:
        """By client and interface (its MAC): node and technology, or None where it is nowhere."""
        found: dict[str, dict[str, list[str] | None]] = {}
        for mac, interface in self.service.state.interfaces.items():
            place = interface.place
            found.setdefault(self._owner.get(mac, mac), {})[mac] = [place.node, place.technology] if place else None
        return found

    def documents(self, clients: Sequence[str]) -> list[Document]:
        """The clients of these names; unknown names are left out."""
        addresses: dict[str, list[Document]] = {}
        for address in self.service.state.addresses.values():
            addresses.setdefault(address.mac, []).append({"ip": address.ip, "by_dhcp": address.by_dhcp})
        known = self.service.state.interfaces
        return [
            self._document(client, addresses)
            for client in clients
            if self._is_named(client) or (client in known and client not in self._owner)
        ]

    def document(self, client: str) -> Document:
        """The client of this name; NotFoundError if there is none."""
        return self.documents([self._id(client)])[0]

    def prefer(self, client: str, wishes: Mapping[str, Any], *, wait: bool = True) -> Document:
        """Set the preferences of a client that the document names; NotFoundError, ConfigError, NotConfirmedError."""
        name = self._id(client)
        old = self._preferences.get(name, Preference())
        manager = wishes.get("manager", old.manager)
        if manager is not None:
            self.check_manager(manager, name)
        bound_to = self._bindable(name, wishes["bound_to"]) if "bound_to" in wishes else old.bound_to
        new = Preference(manager, wishes.get("steering", old.steering), bound_to)
        is_more = name not in self._preferences and new != Preference()
        if is_more and len(self._preferences) >= MAX_PREFERENCES:
            raise TooBusyError(f"there are preferences of {MAX_PREFERENCES} clients already")
        if new != old:
            self.port.saver.check()
            change = self._change(name, old)
            self._put(name, new)
            self.port.saver.wait(change)
        if new.bound_to != old.bound_to:
            self._confirm(name, f"preferences of client {name}", wait=wait)
        return self.document(name)

    def _confirm(self, name: str, what: str, *, wait: bool) -> None:
        """NotConfirmedError if switches and agents do not confirm in time where a client is."""
        within_s = CONFIRM_S if wait else 0.0
        if not wait_until(lambda: not self.pending(name), within_s, self.clock, self.service.progress):
            raise NotConfirmedError(what, self.pending(name))

    def _change(self, client: str, old: Preference) -> Change:
        return self.port.saver.change(f"preferences of client {client}", partial(self._put, client, old))

    def _put(self, client: str, preference: Preference) -> None:
        tables: tuple[tuple[dict[str, Any], object], ...] = (
            (self._preferences, None if preference == Preference() else preference),
            (self.managers, preference.manager),
        )
        for table, value in tables:
            if value is None:
                table.pop(client, None)
            else:
                table[client] = value
        macs = self.declared.get(client, (client,))
        if len(macs) == 1 and interface_mac(macs[0]) is not None:
            self.service.bind_to(macs[0], preference.bound_to)

    def _bindable(self, client: str, wanted: Mapping[str, str] | None) -> Place | None:
        """Where a client shall be bound to; ConfigError if it can't be."""
        macs = self.declared.get(client, (client,))
        if len(macs) != 1 or interface_mac(macs[0]) is None:
            raise ConfigError("request", "bound_to", f"client {client} has not one interface: it can't be bound")
        place = None if wanted is None else Place(wanted["node"], wanted["technology"])
        may_be = possible_places(self.port.context, client) if client in self.declared else None
        if place is not None and not (self.service.knows(place) if may_be is None else place in may_be):
            expected = "a place of the network" if may_be is None else " or ".join(map(str, may_be))
            raise ConfigError("request", "bound_to", f"expected {expected}; got {str(place)[:80]}")
        return place

    def _bound_to(self, document: object) -> Place | None:
        """A place of the state file, unless the network file does not have it any more."""
        match document:
            case {"node": str(node), "technology": str(technology)} if self.service.knows(Place(node, technology)):
                return Place(node, technology)
        return None

    def transition(self, client: str, to: Mapping[str, str], *, wait: bool) -> Document:
        """Ask a client to go to another access point; NotFoundError, ConflictError."""
        name, place = self._id(client), Place(to["node"], to["technology"])
        if self._is_named(name) and name not in self.declared:
            raise ConflictError(f"client {name} is not declared in the network file: its interfaces are not known")
        macs = self.declared.get(name, (name,))
        associated = [mac for mac in macs if (i := self.service.state.interfaces.get(mac)) and i.place is not None]
        transition = self.steering.request((associated or list(macs))[0], place)
        if wait:
            self.steering.wait(transition)
        return transition.document()

    def forget(self, client: str, *, wait: bool) -> None:
        """Forget a client and remove its rules; NotFoundError, ConflictError, NotConfirmedError."""
        name = self._id(client)
        if name in self.declared:
            raise ConflictError(f"client {name} is declared in the network file")
        if self._is_named(name):
            raise ConflictError(f"client {name} is declared in the settings")
        old = self._preferences.get(name)
        if old is not None:
            self.port.saver.check()
            change = self._change(name, old)
            self._put(name, Preference())
            if wait:
                self.port.saver.wait(change)
        self.service.forget(name)
        self._confirm(name, f"client {name} is forgotten", wait=wait)

    def pending(self, client: str) -> list[str]:
        """Switches and agents that have not confirmed where a client is, or that it was forgotten; NotSavedError."""
        self.port.saver.check_refused(f"preferences of client {client}")
        macs = self.declared.get(client, (client.lower(),))
        switches = {switch_name(node) for mac in macs for node in self.service.tables.pending(mac)}
        return [*sorted(switches.union(self.moves(client))), *self.port.saver.unsaved]

    def waits(self) -> set[str]:
        """Connected switches that have not been given the rules of learned hosts."""
        return {switch_name(node) for node in self.port.switches if not self.service.is_known(node)}

    # -- inside

    def _is_named(self, client: str) -> bool:
        return client in self.declared or self.multihomed.summary(client) is not None

    def _id(self, client: str) -> str:
        if self._is_named(client):
            return client
        mac = client.lower()
        if mac in self._owner:
            return self._owner[mac]
        if mac in self.service.state.interfaces:
            return mac
        raise NotFoundError(f"there is no client {client[:64]!r}")

    def _document(self, client: str, addresses: Mapping[str, list[Document]]) -> Document:
        known, preference = self.service.state.interfaces, self._preferences.get(client, Preference())
        interfaces = [known[mac] for mac in self.declared.get(client, (client,)) if mac in known]
        return {
            "id": client,
            "declared": client in self.declared,
            "manager": preference.manager,
            "steering": preference.steering,
            "bound_to": self._bound(client),
            "multihomed": self.multihomed.summary(client),
            "attachments": [self._attachment(interface, addresses) for interface in interfaces],
        }

    def _bound(self, client: str) -> Document | None:
        macs = self.declared.get(client, (client,))
        return place_document(self.service.state.bound.get(macs[0])) if len(macs) == 1 else None

    def _attachment(self, interface: Interface, addresses: Mapping[str, list[Document]]) -> Document:
        now_s, place = self.clock(), interface.place
        return {
            "interface": interface.mac,
            "node": place.node if place else None,
            "technology": place.technology if place else None,
            "known_by": interface.evidence.name.lower(),
            "signal_dbm": interface.signal_dbm,
            "user": interface.user,
            "vlan": interface.vlan,
            "since_s": max(0.0, now_s - interface.since_s),
            "heard_s": max(0.0, now_s - interface.heard_s),
            "addresses": addresses.get(interface.mac, []),
            "transition": None if (asked := self.steering.last(interface.mac)) is None else asked.document(),
            "pending": [switch_name(node) for node in self.service.tables.pending(interface.mac)],
        }
