"""Floods of new addresses at a port: when one begins, and when it is over. Pure: time is an argument, in seconds.

A port where new addresses come faster than hosts do is held back: what is not of known hosts goes nowhere, so that
hosts elsewhere are learned as before. It is free again once little comes that would be dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hyroads.controller.core.network import Place
from hyroads.controller.core.token_bucket import TokenBucket


@dataclass(frozen=True, slots=True)
class FloodLimits:
    """How many new addresses (MACs, and IP addresses that are claimed) a port may show."""

    at_once: int = 100
    per_s: float = 10.0
    """In the long run."""
    quiet_per_s: float = 20.0
    """A held port is quiet while fewer frames a second are dropped."""
    quiet_s: float = 2.0
    """After so long a quiet port is free again."""
    blind_s: float = 5.0
    """As is one of which no counter was told for so long: it is held again if the flood goes on."""


@dataclass(frozen=True, slots=True)
class Flood:
    """One that goes on: since when, and what is known of it."""

    place: Place
    since_s: float
    dropped: int = 0
    """Frames that were dropped, by the counters that were told."""
    counter: int | None = None
    """What the switch counted last."""
    counted_s: float = 0.0
    busy_s: float = 0.0
    """When it was last not quiet."""


class FloodWatch:
    """One bucket a place at which anything new ever came."""

    def __init__(self, limits: FloodLimits) -> None:
        self._limits = limits
        self._buckets: dict[Place, TokenBucket] = {}
        self._since: dict[Place, float] = {}
        self._floods: dict[Place, Flood] = {}

    @property
    def floods(self) -> Mapping[Place, Flood]:
        """Those that go on, by place."""
        return self._floods

    def arrived(self, place: Place, now_s: float) -> Flood | None:
        """A new address came; the flood that begins with it, if one does."""
        if place in self._floods:
            return None
        bucket = self._buckets.get(place)
        if bucket is None:
            bucket = self._buckets[place] = TokenBucket(self._limits.per_s, self._limits.at_once)
        if bucket.take(now_s):
            return None
        flood = self._floods[place] = Flood(place, now_s, counted_s=now_s, busy_s=now_s)
        return flood

    def counted(self, place: Place, counter: int | None, now_s: float) -> Flood | None:
        """So many frames were dropped at a held port since some start (None: nobody tells); the flood if it is over."""
        flood = self._floods.get(place)
        if flood is None:
            return None
        flood = self._floods[place] = self._after(flood, counter, now_s)
        is_blind = flood.counter is None and now_s - flood.since_s >= self._limits.blind_s
        is_quiet = flood.counter is not None and now_s - flood.busy_s >= self._limits.quiet_s
        return self._floods.pop(place) if is_blind or is_quiet else None

    def _after(self, flood: Flood, counter: int | None, now_s: float) -> Flood:
        if counter is None or now_s <= flood.counted_s:
            return flood
        if flood.counter is None or counter < flood.counter:
            # The first count, or another connection: what was before is not known.
            grown = counter if flood.counter is None else 0
            return Flood(flood.place, flood.since_s, flood.dropped + grown, counter, now_s, now_s)
        grown = counter - flood.counter
        is_busy = grown > self._limits.quiet_per_s * (now_s - flood.counted_s)
        busy_s = now_s if is_busy else flood.busy_s
        return Flood(flood.place, flood.since_s, flood.dropped + grown, counter, now_s, busy_s)
