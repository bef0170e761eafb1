"""The emulated radio: what a driver would report of ``hyroads-medium``'s links, with a driver's errors. Pure.

A driver does not know a link's capacity, it estimates it from the modulation that rate control last used:

    estimate = c * (1 - bias * max(0, 1 - a / a_0)) * (1 + sigma * N(0, 1))

a = the link's own airtime since the last reading. Rate control that has little to send (a < a_0) stays at robust, low
rates, which is the ``bias``; sigma is the noise, drawn anew each ``hold_s`` from seed, link and time alone, so that
two runs with one seed err alike. Busy time is what the interface itself sends and hears, which the medium measures
per port: nothing of transmissions out of its range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from .model import Neighbour, RadioError, Reading

NEVER_HEARD_MS = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class EstimateErrors:
    """How wrong estimates are: ``noise`` sigma (relative), ``low_rate_bias`` 0..1 at no traffic, ``busy_noise``."""

    noise: float = 0.0
    low_rate_bias: float = 0.0
    low_rate_airtime: float = 0.05
    busy_noise: float = 0.0
    hold_s: float = 1.0
    seed: int = 1


@dataclass(frozen=True, slots=True)
class LinkState:
    """A link since the medium's last reset (docs/reference/dataplane.md, section 3); capacity 0: nothing arrives."""

    capacity_mbps: float
    sent: int
    lost: int
    airtime_s: float


@dataclass(frozen=True, slots=True)
class MediumState:
    """The links by id, the seconds for which each port heard somebody (or sent), and for how long all was counted."""

    elapsed_s: float
    links: Mapping[str, LinkState]
    heard_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Peer:
    """A neighbour: links to and from it, None where there is none; one without any is only overheard."""

    mac: str
    node: str
    out_link: str | None
    in_link: str | None


def estimate_mbps(capacity_mbps: float, airtime: float, link: str, now_s: float, errors: EstimateErrors) -> float:
    """A driver's estimate of a link that used ``airtime`` (0..1) of late; never negative."""
    idle = max(0.0, 1 - airtime / errors.low_rate_airtime) if errors.low_rate_airtime > 0 else 0.0
    noise = errors.noise * _draw(link, now_s, errors) if errors.noise > 0 else 0.0
    return max(0.0, capacity_mbps * (1 - errors.low_rate_bias * idle) * (1 + noise))


def _draw(what: str, now_s: float, errors: EstimateErrors) -> float:
    """A standard normal number that depends on seed, name and period only."""
    return _normal(what, int(now_s // errors.hold_s), errors.seed)


@lru_cache(maxsize=1 << 14)
def _normal(what: str, period: int, seed: float) -> float:
    """Box and Muller's, from a hash: both ends of a link ask for the same number, thousands of times a second."""
    digest = blake2b(f"{seed:.17g}/{what}/{period}".encode(), digest_size=16).digest()
    first, second = ((int.from_bytes(half, "big") + 1) / (2**64 + 1) for half in (digest[:8], digest[8:]))
    return math.sqrt(-2 * math.log(first)) * math.cos(2 * math.pi * second)


class EmulatedRadio:
    """The back end of one interface; ``state`` asks the medium."""

    def __init__(
        self, interface: str, peers: Sequence[Peer], errors: EstimateErrors, state: Callable[[], MediumState]
    ) -> None:
        self._interface = interface
        self._peers = tuple(peers)
        self._errors = errors
        self._state = state
        self._before: MediumState | None = None
        self._last_heard_s: dict[str, float] = {}
        self._busy_us = 0.0
        self._active_us = 0.0

    def read(self, now_s: float) -> Reading:
        """Neighbours that were ever heard; busy time of the interface, with the noise of its counter."""
        state, before = self._state(), self._before
        if self._interface not in state.heard_s:
            raise RadioError(f"{self._interface}: the medium does not say what it hears")
        # The medium's counters start anew with its reset; then all of them count from there.
        if before is not None and state.elapsed_s < before.elapsed_s:
            before = None
        elapsed_s = state.elapsed_s - (before.elapsed_s if before else 0.0)
        busy_s = state.heard_s[self._interface] - (before.heard_s[self._interface] if before else 0.0)
        if self._errors.busy_noise > 0:
            busy_s *= 1 + self._errors.busy_noise * _draw(f"busy/{self._interface}", now_s, self._errors)
        self._active_us += elapsed_s * 1e6
        self._busy_us += min(max(0.0, busy_s), elapsed_s) * 1e6
        rows = (self._neighbour(peer, _Interval(state, before, elapsed_s, now_s)) for peer in self._peers)
        neighbours = tuple(row for row in rows if row is not None)
        self._before = state
        return Reading(int(self._busy_us), int(self._active_us), neighbours)

    def _neighbour(self, peer: Peer, interval: _Interval) -> Neighbour | None:
        # An access point sends beacons whether or not it has traffic: a live link is heard.
        overheard = peer.in_link is None and peer.out_link is None
        if overheard or interval.counted(peer.in_link).capacity_mbps > 0:
            self._last_heard_s[peer.mac] = interval.now_s
        heard_s = self._last_heard_s.get(peer.mac)
        if heard_s is None:
            return None
        return Neighbour(
            mac=peer.mac,
            node=peer.node,
            tx_capacity_kbps=self._kbps(peer.out_link, interval),
            rx_capacity_kbps=self._kbps(peer.in_link, interval),
            tx_loss=interval.loss(peer.out_link),
            last_heard_ms=min(NEVER_HEARD_MS, int((interval.now_s - heard_s) * 1000)),
            modulation="emulated",
        )

    def _kbps(self, link: str | None, interval: _Interval) -> int:
        counted = interval.counted(link)
        if link is None or counted.capacity_mbps <= 0:
            return 0
        airtime = max(0.0, counted.airtime_s / interval.elapsed_s) if interval.elapsed_s > 0 else 0.0
        return round(1000 * estimate_mbps(counted.capacity_mbps, airtime, link, interval.now_s, self._errors))


_NO_LINK = LinkState(0.0, 0, 0, 0.0)


@dataclass(frozen=True, slots=True)
class _Interval:
    """From the reading before (None: since the reset) to this one."""

    state: MediumState
    before: MediumState | None
    elapsed_s: float
    now_s: float

    def counted(self, link: str | None) -> LinkState:
        """A link's capacity now, and what it counted in the interval."""
        now = self.state.links.get(link or "", _NO_LINK)
        old = self.before.links.get(link or "", _NO_LINK) if self.before else _NO_LINK
        return LinkState(now.capacity_mbps, now.sent - old.sent, now.lost - old.lost, now.airtime_s - old.airtime_s)

    def loss(self, link: str | None) -> float:
        """The share of the frames sent that did not arrive."""
        counted = self.counted(link)
        return min(1.0, max(0.0, counted.lost / counted.sent)) if counted.sent > 0 else 0.0
