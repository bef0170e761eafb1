"""Who may set a parameter of a shared radio. Pure.

``owner``: the radio's owner alone. ``majority``: a value is set once more than half of those who share the radio, its
owner among them, want it; a slice's last wish for a variable counts until ``forget_s`` later.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hyroads.slices.snmpvisor.ber import Oid
from hyroads.slices.snmpvisor.pdu import Status

FORGET_S = 600.0
MOST_WISHES = 100_000


@dataclass(frozen=True, slots=True)
class Wish:
    """A slice wants a shared variable of a device to have a value."""

    slice_name: str
    device: str
    oid: Oid
    value: bytes


@dataclass
class Arbiter:
    """The wishes for shared variables, of all devices."""

    rule: str
    forget_s: float = FORGET_S
    _wishes: dict[tuple[str, Oid], dict[str, tuple[bytes, float]]] = field(default_factory=dict)

    def ask(self, wish: Wish, sharers: frozenset[str], now_s: float) -> Status | None:
        """None: it may be set now. ``sharers`` are all who share the radio, its owner among them."""
        if self.rule != "majority":
            return Status.NOT_WRITABLE
        place = (wish.device, wish.oid)
        if len(self._wishes) >= MOST_WISHES and place not in self._wishes:
            return Status.RESOURCE_UNAVAILABLE
        self._wishes.setdefault(place, {})[wish.slice_name] = (wish.value, now_s)
        return None if 2 * self.count(wish, sharers, now_s) > len(sharers) else Status.INCONSISTENT_VALUE

    def count(self, wish: Wish, sharers: frozenset[str], now_s: float) -> int:
        """How many of the sharers want this value."""
        wishes = self._wishes.get((wish.device, wish.oid), {})
        for name in [name for name, (_, at_s) in wishes.items() if now_s - at_s > self.forget_s or name not in sharers]:
            del wishes[name]
        return sum(1 for wanted, _ in wishes.values() if wanted == wish.value)
