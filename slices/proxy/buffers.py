"""Buffered packets: only the slice that was told of a buffer may use it, once."""

from __future__ import annotations

from collections import OrderedDict

MOST = 4096
KEPT_S = 30.0


class Buffers:
    """Who was told of which buffer of one switch."""

    def __init__(self) -> None:
        self._told: OrderedDict[int, tuple[int, float]] = OrderedDict()

    def __len__(self) -> int:
        """How many are remembered: never more than ``MOST``."""
        return len(self._told)

    def tell(self, buffer: int, number: int, now_s: float) -> None:
        """A packet-in with this buffer went to the slice with this number."""
        self._told.pop(buffer, None)
        self._told[buffer] = (number, now_s + KEPT_S)
        if len(self._told) > MOST:
            self._told.popitem(last=False)

    def take(self, buffer: int, number: int, now_s: float) -> bool:
        """Whether the slice may use the buffer now; it may not a second time."""
        found = self._told.get(buffer)
        if found is None or found[0] != number:
            return False
        del self._told[buffer]
        return now_s <= found[1]
