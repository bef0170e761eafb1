"""Who gets a place at a port that strangers reach. Pure: what happens, and when, comes in; who has to go comes out.

A connection is a stranger's until the other end has shown who it is. Strangers have a bounded number of places, and a
time. When all places are taken the newest comes in nevertheless, and a connection goes of that address which has the
most of them, its oldest: whoever opens many displaces itself, and an address with one connection keeps it however many
addresses open several. Addresses from which somebody was authenticated before have places of their own, which strangers
from elsewhere can't take. Who is authenticated has no need of these places any more; of one name there may be ``each``.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from itertools import count

REMEMBERED = 4096
"""Addresses that are remembered, at most; the one that was not seen for longest is forgotten first."""


class FairPlaces:
    """A bounded number of places, each held by a number that belongs to a group, such as an address."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._group_of: dict[int, str] = {}
        self._groups: dict[str, dict[int, None]] = {}
        self._by_size: dict[int, dict[str, None]] = {}
        self._largest = 0

    def __len__(self) -> int:
        return len(self._group_of)

    def __contains__(self, number: object) -> bool:
        return number in self._group_of

    def size_of(self, group: str) -> int:
        """How many places a group has."""
        return len(self._groups.get(group, ()))

    def gives_way(self, group: str) -> int | None:
        """Who has to leave before one more of ``group`` enters: the oldest of the largest group, which is ``group``
        itself if it were as large as any. None: there is a place.
        """
        if len(self._group_of) < self.most:
            return None
        own = self.size_of(group)
        if not own or own + 1 < self._largest:
            group = next(iter(self._by_size[self._largest]))
        return next(iter(self._groups[group]))

    def may_displace(self, number: int, group: str) -> bool:
        """Whether ``group`` has fewer places than the group of ``number`` even after it has taken over that one."""
        return self.size_of(group) + 1 < self.size_of(self._group_of[number])

    def enter(self, number: int, group: str) -> None:
        """Take a place."""
        self._group_of[number] = group
        members = self._groups.setdefault(group, {})
        members[number] = None
        self._resize(group, len(members) - 1, len(members))

    def leave(self, number: int) -> bool:
        """Give up a place; False if it had none."""
        group = self._group_of.pop(number, None)
        if group is None:
            return False
        members = self._groups[group]
        del members[number]
        self._resize(group, len(members) + 1, len(members))
        if not members:
            del self._groups[group]
        return True

    def _resize(self, group: str, before: int, after: int) -> None:
        if before:
            same = self._by_size[before]
            del same[group]
            if not same:
                del self._by_size[before]
        if after:
            self._by_size.setdefault(after, {})[group] = None
        if after > self._largest or (before == self._largest and before not in self._by_size):
            # A group grows and shrinks by one, so the next smaller one is this group itself.
            self._largest = after


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one port: places of strangers, as many again for addresses that are known, and how long a stranger may take to
    show who it is. ``each``: connections of one name that was authenticated; None: the protocol itself has one.
    """

    strangers: int
    known: int
    within_s: float
    each: int | None = None


class Admission:
    """Decides for one port. Connections have numbers, given by :meth:`opened`."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._numbers = count(1)
        self._strangers, self._known = FairPlaces(limits.strangers), FairPlaces(limits.known)
        self._since_s: OrderedDict[int, tuple[float, str]] = OrderedDict()
        """Since when strangers are here, oldest first, and from where."""
        self._addresses: OrderedDict[str, None] = OrderedDict()
        """From where somebody was authenticated, the latest last."""
        self._name_of: dict[int, str] = {}
        self._names: dict[str, int] = {}

    def __len__(self) -> int:
        """How many connections have a place."""
        return len(self._since_s) + len(self._name_of)

    def opened(self, address: str, now_s: float) -> tuple[int, int | None]:
        """The number of a new connection, and that of the one which has to end for it."""
        network = network_of(address)
        places = self._known if network in self._addresses else self._strangers
        ended = places.gives_way(network)
        if ended is not None:
            places.leave(ended)
            del self._since_s[ended]
        number = next(self._numbers)
        places.enter(number, network)
        self._since_s[number] = now_s, network
        return number, ended

    def authenticated(self, number: int, name: str) -> bool:
        """The other end has shown that it is ``name``. False: it has no place, or that name has all of its own."""
        if number in self._name_of:
            return True
        if number not in self._since_s:
            return False
        if self._limits.each is not None and self._names.get(name, 0) >= self._limits.each:
            return False
        network = self._since_s.pop(number)[1]
        self._leave(number)
        self._name_of[number] = name
        self._names[name] = self._names.get(name, 0) + 1
        self._addresses.pop(network, None)
        self._addresses[network] = None
        if len(self._addresses) > REMEMBERED:
            self._addresses.popitem(last=False)
        return True

    def closed(self, number: int) -> None:
        """A connection is gone."""
        self._leave(number)
        self._since_s.pop(number, None)
        name = self._name_of.pop(number, None)
        if name is not None:
            self._names[name] -= 1
            if not self._names[name]:
                del self._names[name]

    def overdue(self, now_s: float) -> list[int]:
        """Strangers whose time is over: they have no place any more, and have to end."""
        ended: list[int] = []
        while self._since_s:
            number, (since_s, _) = next(iter(self._since_s.items()))
            if now_s - since_s <= self._limits.within_s:
                break
            del self._since_s[number]
            self._leave(number)
            ended.append(number)
        return ended

    def _leave(self, number: int) -> None:
        if not self._strangers.leave(number):
            self._known.leave(number)


def network_of(address: str) -> str:
    """What one subscriber has of addresses: an IPv4 address, 64 bits of an IPv6 address; any other text is itself."""
    try:
        # A zone is the interface here, and no part of the address there.
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return f"{parsed.packed[:8].hex(':', 2)}::/64"
