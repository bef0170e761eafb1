"""Group and meter numbers: the guest chooses its own, the switch has one number space for all slices."""

from __future__ import annotations

from collections.abc import Iterator


class NumberPool:
    """The numbers of one switch, the lowest free one first."""

    def __init__(self, first: int, last: int) -> None:
        self._next = first
        self._last = last
        self._back: list[int] = []
        self._claimed: set[int] = set()

    def take(self) -> int | None:
        """A free number, None if there is none."""
        while self._back:
            number = self._back.pop()
            if number not in self._claimed:
                return number
        while self._next in self._claimed:
            self._next += 1
        if self._next > self._last:
            return None
        self._next += 1
        return self._next - 1

    def claim(self, number: int) -> None:
        """Does not give this number out: the switch has something by it."""
        self._claimed.add(number)

    def give_back(self, number: int) -> None:
        """Makes a number free again."""
        self._claimed.discard(number)
        self._back.append(number)


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

    def __iter__(self) -> Iterator[int]:
        """The guest's numbers in use."""
        return iter(self._real)

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
