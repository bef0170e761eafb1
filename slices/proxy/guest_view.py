"""What a slice sees of one switch: its tables, ports, groups, meters and flowspace.

Group and meter numbers: the guest chooses its own, the switch has one number space for all slices.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush

from hyroads.slices.core.allocation import OPEN_VSWITCH, Block, Layout
from hyroads.slices.core.errors import FLOW_MOD_FAILED, Refused, SliceError

from .discovery import Arrivals
from .region import Regions


class NumberPool:
    """The numbers of one switch, the lowest free one first."""

    def __init__(self, first: int, last: int) -> None:
        self._next = first
        self._last = last
        self._back: list[int] = []
        """Numbers below ``_next`` that came back, as a heap; some may be in use again."""
        self._used: set[int] = set()

    def take(self) -> int | None:
        """A free number, None if there is none."""
        while self._back:
            number = heappop(self._back)
            if number not in self._used:
                self._used.add(number)
                return number
        while self._next in self._used:
            self._next += 1
        if self._next > self._last:
            return None
        self._used.add(self._next)
        return self._next

    def claim(self, number: int) -> None:
        """Does not give this number out: the switch has something by it."""
        self._used.add(number)

    def give_back(self, number: int) -> None:
        """Makes a number free again."""
        self._used.discard(number)
        if number < self._next:
            heappush(self._back, number)


class IdMap:
    """The guest's numbers of one slice on one switch, with a quota."""

    def __init__(self, pool: NumberPool, quota: int) -> None:
        self._pool = pool
        self.quota = quota
        self._real: dict[int, int] = {}
        self._guest: dict[int, int] = {}

    def __len__(self) -> int:
        """How many are in use."""
        return len(self._real)

    def real(self, guest: int) -> int | None:
        """The switch's number of a guest's, None if the guest has none by that number."""
        return self._real.get(guest)

    def guest(self, real: int) -> int | None:
        """The guest's number of a switch's, None if it is not this slice's."""
        return self._guest.get(real)

    def add(self, guest: int) -> int | None:
        """Gives a guest's number one of the switch (the same if it has one); None if quota or numbers are used up."""
        found = self._real.get(guest)
        if found is not None or len(self._real) >= self.quota:
            return found
        number = self._pool.take()
        if number is not None:
            self._real[guest] = number
            self._guest[number] = guest
        return number

    def remove(self, guest: int) -> int | None:
        """Forgets a guest's number and returns the switch's, None if there was none."""
        number = self._real.pop(guest, None)
        if number is not None:
            del self._guest[number]
            self._pool.give_back(number)
        return number

    def put(self, guest: int, real: int) -> None:
        """A pair that is known from before; the pool does not give the number out."""
        self._pool.claim(real)
        self._real[guest] = real
        self._guest[real] = guest

    def forget(self, real: int) -> bool:
        """The switch has it no more; whether there was one."""
        guest = self._guest.get(real)
        return guest is not None and self.remove(guest) is not None

    def pairs(self) -> dict[int, int]:
        """The switch's numbers by the guest's."""
        return dict(self._real)

    def clear(self) -> tuple[int, ...]:
        """Forgets all and returns the switch's numbers."""
        numbers = tuple(self._guest)
        for guest in list(self._real):
            self.remove(guest)
        return numbers


FLOOD_GROUPS = 0xFF00_0000 - 0x2_0000
"""The highest group numbers: two of each slice, FLOOD and ALL."""


@dataclass
class GuestView:
    """The virtual switch of one slice. ``regions`` and ``ports`` are replaced when the slices or ports change."""

    block: Block
    ports: frozenset[int]
    regions: Regions
    groups: IdMap
    meters: IdMap
    layout: Layout = field(default=OPEN_VSWITCH)
    chains: dict[int, frozenset[int]] = field(default_factory=dict)
    """Which of the guest's groups lead to which others of it."""
    queue: int | None = None
    """Where packets of the slice wait at every port that they leave by; None: where the port has them."""
    discovery_cookies: dict[int, int] = field(default_factory=dict)
    """Cookies of the guest's own rules for discovery frames, by eth_type: some controllers look for them."""
    arrivals: Arrivals = field(default_factory=Arrivals)

    @property
    def number(self) -> int:
        """The slice's number."""
        return self.block.number

    @property
    def flood_group(self) -> int:
        """The group that copies to each of the slice's ports."""
        return FLOOD_GROUPS + 2 * self.number

    def real_table(self, table: int) -> int:
        """The switch's table for the guest's; :class:`Refused` if the guest has no such table."""
        if table >= self.block.count:
            raise Refused(FLOW_MOD_FAILED, 2, f"table {table}: the slice has {self.block.count}")
        return self.block.first + table

    def guest_table(self, table: int) -> int:
        """The guest's table for one of the switch's in its block; :class:`SliceError` for others."""
        if table not in self.block.tables:
            raise SliceError(f"table {table} is not of slice {self.number}")
        return table - self.block.first

    def would_loop(self, group: int, onward: frozenset[int]) -> bool:
        """Whether a group that leads to these others would lead back to itself."""
        seen: set[int] = set()
        waiting = [*onward]
        while waiting:
            now = waiting.pop()
            if now == group:
                return True
            if now not in seen:
                seen.add(now)
                waiting += self.chains.get(now, ())
        return False

    def kinds(self, in_port: int | None) -> tuple[int, ...]:
        """One ingress port for each kind of flowspace among those that a match admits."""
        if in_port is not None:
            return (in_port,) if in_port in self.ports else ()
        return tuple({self.regions.kind(port): port for port in sorted(self.ports, reverse=True)}.values())
