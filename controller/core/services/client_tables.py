"""The tables of clients as immutable data: interfaces, addresses, open questions, and how an entry is made in them.

What events do to them is in :mod:`.clients` (docs/explanation/clients.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    answer_s: float = 0.3
    """An interface that is asked whether it is still there answers within this time, or is not."""
    questions: int = 256
    """So many may be open at once."""
    prove_s: float = 10.0
    """At a place under 802.1X, who was let in keeps its place for so long while nobody says who is authenticated."""


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
    former: Place | None = None
    """From where it moved by silence: heard there again within ``forget_s`` it is there again."""
    user: str | None = None
    """As whom it was authenticated (802.1X)."""
    vlan: int | None = None
    """The VLAN that the RADIUS server gave it."""
    until_s: float | None = None
    """When it loses its place, unless it is authenticated anew; None: it does not."""

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
    former: str | None = None
    """MAC of who had it and was silent: claims it within ``forget_s`` give it back."""
    since_s: float = 0.0
    """Since when ``mac`` has it."""


@dataclass(frozen=True, slots=True)
class Question:
    """Whether ``mac`` is still at ``place``: somebody used its address at ``claimed``, or, as ``by``, claimed its
    ``ip`` there. Who does not answer until ``until_s`` loses it.
    """

    mac: str
    place: Place
    claimed: Place
    by: str
    ip: str | None
    asked_s: float
    until_s: float

    @property
    def key(self) -> tuple[str, str | None]:
        """One question about an interface, and one about each address, are open at once."""
        return self.mac, self.ip


@dataclass(frozen=True)
class Clients:
    """All interfaces by MAC and all addresses by IP, longest silent first.

    ``told`` are places whose access points tell who associates, ``bound`` says of some interfaces where alone they may
    be, ``questions`` are open.
    """

    interfaces: Mapping[str, Interface] = field(default_factory=dict)
    addresses: Mapping[str, Address] = field(default_factory=dict)
    limits: Limits = Limits()
    told: frozenset[Place] = frozenset()
    bound: Mapping[str, Place] = field(default_factory=dict)
    questions: Mapping[tuple[str, str | None], Question] = field(default_factory=dict)
    closed: Mapping[Place, frozenset[str] | None] = field(default_factory=dict)
    """Places under 802.1X: nobody is there who is not authenticated, and of users these alone (None: any)."""

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
    AUTHENTICATED = "authenticated"
    WRONG_USER = "wrong user"


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that others want to know. ``place`` is where it happened, ``other`` where the MAC was, or is really."""

    what: Happened
    mac: str
    place: Place | None
    other: Place | None = None
    ip: str | None = None
    user: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """The new state, what happened, and whether what was seen may pass (false: drop it). ``asks``: somebody has to be
    asked first; :func:`decided` says what follows.
    """

    state: Clients
    notices: tuple[Notice, ...] = ()
    allowed: bool = True
    asks: tuple[Question, ...] = ()


def may_be(state: Clients, mac: str, place: Place) -> bool:
    """Whether an interface is not bound to another place."""
    return state.bound.get(mac, place) == place


def is_stranger(state: Clients, mac: str, place: Place) -> bool:
    """Whether a place is under 802.1X and an interface was not authenticated there."""
    old = state.interfaces.get(mac)
    return place in state.closed and (old is None or old.place != place)


def spoofed(state: Clients, mac: str, place: Place, other: Place, ip: str | None = None) -> Change:
    """Somebody at a place uses the MAC, or claims the ``ip``, of a host at ``other``: refused, and told."""
    what = Happened.SPOOFED_MAC if ip is None else Happened.SPOOFED_IP
    return Change(state, (Notice(what, mac, place, other, ip),), allowed=False)


def checked_mac(mac: str) -> str:
    """A unicast MAC in lower case; raises :class:`ClientError` for anything else."""
    text = interface_mac(mac)
    if text is None:
        raise ClientError(f"{mac[:40]!r}: expected the MAC address of an interface, like 02:00:00:00:00:01")
    return text


def is_active(limits: Limits, interface: Interface, now_s: float) -> bool:
    """Whether an interface is where it was, without asking."""
    return interface.is_held or now_s - interface.heard_s < limits.quiet_s


def is_forgettable(interface: Interface, before_s: float) -> bool:
    """Whether an interface was silent since that time, and no association holds it."""
    return not interface.is_held and interface.heard_s <= before_s


def put(state: Clients, new: Interface, now_s: float) -> Change:
    """Enter what is known now of an interface, if there is room."""
    old = state.interfaces.get(new.mac)
    came = new.place is not None and (old is None or old.place != new.place)
    notices: tuple[Notice, ...] = ()
    if came or old is None:
        surplus = _surplus(state, new, now_s)
        if surplus is None:
            return Change(state, (Notice(Happened.TABLE_FULL, new.mac, new.place),), allowed=False)
        notices = tuple(Notice(Happened.LEFT, i.mac, None, i.place) for i in surplus if i.place is not None)
        state = without(state, (i.mac for i in surplus))
    was = old.place if old is not None else None
    if came:
        notices += (Notice(Happened.MOVED if was else Happened.JOINED, new.mac, new.place, was, user=new.user),)
    elif was is not None and new.place is None:
        notices += (Notice(Happened.LEFT, new.mac, None, was, user=old.user if old is not None else None),)
    return Change(with_interface(state, new), notices)


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
            silent = sorted((i for i in left_over if is_forgettable(i, quiet_s)), key=lambda i: i.heard_s)
            if len(silent) < excess:
                return None
            surplus += silent[:excess]
    return surplus


def with_interface(state: Clients, interface: Interface) -> Clients:
    """With an interface as it is now, which was heard last."""
    return replace(state, interfaces=last(state.interfaces, interface.mac, interface))


def without(state: Clients, macs: Iterable[str]) -> Clients:
    """Without some interfaces and their addresses."""
    gone = set(macs)
    interfaces = {mac: i for mac, i in state.interfaces.items() if mac not in gone}
    addresses = {ip: a for ip, a in state.addresses.items() if a.mac not in gone}
    return replace(state, interfaces=interfaces, addresses=addresses)


def last(table: Mapping[_Key, _Value], key: _Key, value: _Value) -> dict[_Key, _Value]:
    """The table with a value at its end."""
    result = dict(table)
    result.pop(key, None)
    result[key] = value
    return result
