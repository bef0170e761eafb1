"""Which interface of which client is where, and whose addresses are which (docs/explanation/clients.md).

Every transition takes a state and returns a :class:`Change`: the new state and what happened. Laws: an interface (a
MAC) is at no more than one place; nothing but the new place is left after a move; nobody takes the place, MAC or IP of
an interface that is active elsewhere unless it associates anew (or DHCP gives it the address); tables are bounded.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import TypeVar

from hyroads.controller.core.checking import interface_mac
from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.network import Place

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class ClientError(HyroadsError):
    """An event names no valid address."""


class Evidence(IntEnum):
    """How a place is known; a higher one is not overruled by a lower one while it holds."""

    TRAFFIC = 1
    AGENT = 2
    ASSOCIATION = 3


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the tables and times after which silence means something."""

    interfaces: int = 4096
    per_place: int = 256
    addresses_per_mac: int = 16
    quiet_s: float = 3.0
    """An interface known by traffic alone that was not heard for so long may show up elsewhere."""
    forget_s: float = 300.0
    """One that no association holds and that was silent for so long is forgotten."""


@dataclass(frozen=True, slots=True)
class Interface:
    """What is known of a MAC; ``place`` is None while it is nowhere. ``client`` is None if nobody said whose it is."""

    mac: str
    place: Place | None
    evidence: Evidence
    since_s: float
    heard_s: float
    client: str | None = None
    signal_dbm: float | None = None

    @property
    def is_held(self) -> bool:
        """Whether an association holds it at its place."""
        return self.place is not None and self.evidence is Evidence.ASSOCIATION


@dataclass(frozen=True, slots=True)
class Address:
    """Who has an IP address."""

    ip: str
    mac: str
    by_dhcp: bool
    heard_s: float


@dataclass(frozen=True)
class Clients:
    """All interfaces by MAC and all addresses by IP, longest silent first."""

    interfaces: Mapping[str, Interface] = field(default_factory=dict)
    addresses: Mapping[str, Address] = field(default_factory=dict)
    limits: Limits = Limits()

    def of(self, client: str) -> tuple[Interface, ...]:
        """The interfaces of a client that are somewhere."""
        return tuple(i for i in self.interfaces.values() if i.client == client and i.place is not None)

    def at(self, place: Place) -> tuple[Interface, ...]:
        """The interfaces at a place."""
        return tuple(i for i in self.interfaces.values() if i.place == place)


class Happened(StrEnum):
    """What a notice tells."""

    JOINED = "joined"
    MOVED = "moved"
    LEFT = "left"
    SPOOFED_MAC = "spoofed mac"
    SPOOFED_IP = "spoofed ip"
    TABLE_FULL = "table full"


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that others want to know. ``place`` is where it happened, ``other`` where the MAC was, or is really."""

    what: Happened
    mac: str
    place: Place | None
    other: Place | None = None
    ip: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """The new state, what happened, and whether what was seen may pass (false: drop it)."""

    state: Clients
    notices: tuple[Notice, ...] = ()
    allowed: bool = True


def associated(
    state: Clients, mac: str, place: Place, now_s: float, *, signal_dbm: float | None = None, at_s: float | None = None
) -> Change:
    """An interface associated at a place: it is there and nowhere else, at once.

    ``at_s`` is when that happened, if the event may be late: one older than what is known changes nothing.
    """
    mac, when_s = checked_mac(mac), now_s if at_s is None else at_s
    old = state.interfaces.get(mac)
    if old is not None and old.evidence is Evidence.ASSOCIATION and when_s < old.since_s:
        return Change(state)
    again = old is not None and old.place == place and old.evidence is Evidence.ASSOCIATION
    since_s = old.since_s if old is not None and again else when_s
    client = old.client if old is not None else None
    return _put(state, Interface(mac, place, Evidence.ASSOCIATION, since_s, now_s, client, signal_dbm), now_s)


def left(state: Clients, mac: str, place: Place, now_s: float) -> Change:
    """An interface left a place; nothing happens if it is known to be elsewhere by now."""
    mac = checked_mac(mac)
    old = state.interfaces.get(mac)
    if old is None or old.place != place:
        return Change(state)
    # What it was known by is over: it may show up anywhere.
    gone = replace(old, place=None, evidence=Evidence.TRAFFIC, since_s=now_s, signal_dbm=None)
    notice = Notice(Happened.LEFT, mac, None, place)
    return Change(replace(state, interfaces=_last(state.interfaces, mac, gone)), (notice,))


def handed_over(state: Clients, mac: str, place: Place, now_s: float) -> Change:
    """Somebody who may says that an interface is at a place from now on: it counts as heard there. Where an association
    holds it, it stays (``allowed`` is false then).
    """
    mac = checked_mac(mac)
    old = state.interfaces.get(mac)
    if old is not None and (old.place == place or old.is_held):
        return Change(state, allowed=old.place == place)
    client = old.client if old is not None else None
    return _put(state, Interface(mac, place, Evidence.TRAFFIC, now_s, now_s, client), now_s)


def place_down(state: Clients, place: Place, now_s: float) -> Change:
    """A port went down, or its access point is gone: nobody is there any more."""
    notices: tuple[Notice, ...] = ()
    for interface in state.at(place):
        change = left(state, interface.mac, place, now_s)
        state, notices = change.state, notices + change.notices
    return Change(state, notices)


def untold(state: Clients, node: str) -> Clients:
    """A node's access point tells nothing any more: associations there hold no longer than what is heard."""
    interfaces = {
        mac: replace(i, evidence=Evidence.TRAFFIC) if i.place is not None and i.place.node == node and i.is_held else i
        for mac, i in state.interfaces.items()
    }
    return replace(state, interfaces=interfaces)


def signal(state: Clients, mac: str, place: Place, signal_dbm: float, now_s: float) -> Change:
    """A new signal reading; readings from elsewhere than its place don't count."""
    old = state.interfaces.get(checked_mac(mac))
    if old is None or old.place != place:
        return Change(state)
    return Change(_with(state, replace(old, signal_dbm=signal_dbm, heard_s=max(now_s, old.heard_s))))


def seen(state: Clients, mac: str, place: Place, now_s: float) -> Change:
    """A frame with this source address came in at a place; ``allowed`` tells whether it may go on."""
    mac = checked_mac(mac)
    old = state.interfaces.get(mac)
    if old is None:
        return _put(state, Interface(mac, place, Evidence.TRAFFIC, now_s, now_s), now_s)
    if old.place == place:
        return Change(_with(state, replace(old, heard_s=max(now_s, old.heard_s))))
    if old.place is not None and _is_active(state.limits, old, now_s):
        return Change(state, (Notice(Happened.SPOOFED_MAC, mac, place, old.place),), allowed=False)
    moved = Interface(mac, place, Evidence.TRAFFIC, now_s, now_s, old.client)
    return _put(state, moved, now_s)


def heard(state: Clients, place: Place, macs: Iterable[str], now_s: float) -> Clients:
    """Interfaces at a place that have sent something lately; others that are named don't count."""
    interfaces = dict(state.interfaces)
    for mac in macs:
        old = interfaces.get(mac)
        if old is not None and old.place == place:
            del interfaces[mac]
            interfaces[mac] = replace(old, heard_s=max(now_s, old.heard_s))
    return replace(state, interfaces=interfaces)


def forgotten(state: Clients, mac: str) -> Change:
    """As if an interface had never been here; it may come again at once."""
    old = state.interfaces.get(checked_mac(mac))
    if old is None:
        return Change(state)
    notices = (Notice(Happened.LEFT, mac, None, old.place),) if old.place is not None else ()
    return Change(_without(state, (mac,)), notices)


def reported(state: Clients, client: str, places: Mapping[str, Place | None], now_s: float) -> Change:
    """A client's own (authenticated) agent tells all its interfaces and where they are (None: nowhere).

    Interfaces of other clients are not given away, and an association overrules what it says of the place.
    """
    notices: tuple[Notice, ...] = ()
    own = {checked_mac(mac): place for mac, place in places.items()}
    for interface in state.of(client):
        if interface.mac not in own:
            state = _with(state, replace(interface, client=None))
    for mac, place in own.items():
        old = state.interfaces.get(mac)
        if old is not None and old.client not in (None, client) and _is_active(state.limits, old, now_s):
            notices += (Notice(Happened.SPOOFED_MAC, mac, place, old.place),)
            continue
        if old is not None and (old.is_held or old.place == place):
            state = _with(state, replace(old, client=client, heard_s=max(now_s, old.heard_s)))
            continue
        change = _put(state, Interface(mac, place, Evidence.AGENT, now_s, now_s, client), now_s)
        state, notices = change.state, notices + change.notices
    return Change(state, notices, allowed=not any(n.what is Happened.SPOOFED_MAC for n in notices))


def address_seen(state: Clients, mac: str, ip: str, now_s: float, *, by_dhcp: bool = False) -> Change:
    """An interface says by ARP or neighbour discovery that it has an address, or DHCP gave it one."""
    mac = checked_mac(mac)
    owner, claim = state.addresses.get(ip), state.interfaces.get(mac)
    if claim is None or claim.place is None:
        return Change(state, allowed=False)
    if owner is not None and owner.mac != mac and not by_dhcp:
        other = state.interfaces.get(owner.mac)
        if other and other.place is not None and _is_active(state.limits, other, now_s):
            return Change(state, (Notice(Happened.SPOOFED_IP, mac, claim.place, other.place, ip),), allowed=False)
    by_dhcp = by_dhcp or (owner is not None and owner.mac == mac and owner.by_dhcp)
    addresses = _last(state.addresses, ip, Address(ip, mac, by_dhcp, now_s))
    own = [address.ip for address in addresses.values() if address.mac == mac]
    for surplus in own[: max(0, len(own) - state.limits.addresses_per_mac)]:
        del addresses[surplus]
    return Change(replace(state, addresses=addresses))


def expired(state: Clients, now_s: float) -> Change:
    """Forget what was silent for long and no association holds."""
    old = [i for i in state.interfaces.values() if _is_forgettable(i, now_s - state.limits.forget_s)]
    notices = tuple(Notice(Happened.LEFT, i.mac, None, i.place) for i in old if i.place is not None)
    return Change(_without(state, (i.mac for i in old)), notices) if old else Change(state)


def are_all_told(switches: Iterable[str], read: Container[str], age_s: float, grace_s: float) -> bool:
    """Whether a controller of this age knows all hosts that an earlier one had let in: their switches tell of them when
    they are read, and those that have not come back within the grace time are not waited for.
    """
    return age_s > grace_s or all(node in read for node in switches)


def checked_mac(mac: str) -> str:
    """A unicast MAC in lower case; raises :class:`ClientError` for anything else."""
    text = interface_mac(mac)
    if text is None:
        raise ClientError(f"{mac[:40]!r}: expected the MAC address of an interface, like 02:00:00:00:00:01")
    return text


def _is_active(limits: Limits, interface: Interface, now_s: float) -> bool:
    return interface.is_held or now_s - interface.heard_s < limits.quiet_s


def _is_forgettable(interface: Interface, before_s: float) -> bool:
    return not interface.is_held and interface.heard_s <= before_s


def _put(state: Clients, new: Interface, now_s: float) -> Change:
    """Enter what is known now of an interface, if there is room."""
    old = state.interfaces.get(new.mac)
    came = new.place is not None and (old is None or old.place != new.place)
    notices: tuple[Notice, ...] = ()
    if came or old is None:
        surplus = _surplus(state, new, now_s)
        if surplus is None:
            return Change(state, (Notice(Happened.TABLE_FULL, new.mac, new.place),), allowed=False)
        notices = tuple(Notice(Happened.LEFT, i.mac, None, i.place) for i in surplus if i.place is not None)
        state = _without(state, (i.mac for i in surplus))
    was = old.place if old is not None else None
    if came:
        notices += (Notice(Happened.MOVED if was else Happened.JOINED, new.mac, new.place, was),)
    elif was is not None and new.place is None:
        notices += (Notice(Happened.LEFT, new.mac, None, was),)
    return Change(_with(state, new), notices)


def _surplus(state: Clients, new: Interface, now_s: float) -> list[Interface] | None:
    """Who has to be forgotten to make room for one more at a place; None if too few are silent."""
    limits, quiet_s = state.limits, now_s - state.limits.quiet_s
    others = [i for i in state.interfaces.values() if i.mac != new.mac]
    crowd = [i for i in others if i.place == new.place] if new.place is not None else []
    surplus: list[Interface] = []
    for group, most in ((crowd, limits.per_place), (others, limits.interfaces)):
        left_over = [i for i in group if i not in surplus]
        excess = len(left_over) + 1 - most
        if excess > 0:
            silent = sorted((i for i in left_over if _is_forgettable(i, quiet_s)), key=lambda i: i.heard_s)
            if len(silent) < excess:
                return None
            surplus += silent[:excess]
    return surplus


def _with(state: Clients, interface: Interface) -> Clients:
    return replace(state, interfaces=_last(state.interfaces, interface.mac, interface))


def _without(state: Clients, macs: Iterable[str]) -> Clients:
    """Without some interfaces and their addresses."""
    gone = set(macs)
    interfaces = {mac: i for mac, i in state.interfaces.items() if mac not in gone}
    addresses = {ip: a for ip, a in state.addresses.items() if a.mac not in gone}
    return replace(state, interfaces=interfaces, addresses=addresses)


def _last(table: Mapping[_Key, _Value], key: _Key, value: _Value) -> dict[_Key, _Value]:
    """The table with a value at its end."""
    result = dict(table)
    result.pop(key, None)
    result[key] = value
    return result
