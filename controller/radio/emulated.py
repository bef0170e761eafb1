"""The emulated radio: what a driver would report of ``hyroads-medium``'s links, with a driver's errors. Pure.

A driver does not know a link's capacity, it estimates it from the modulation that rate control last used:

    estimate = c * (1 - bias * max(0, 1 - a / a_0)) * (1 + sigma * N(0, 1))

a = the link's own airtime since the last reading. Rate control that has little to send (a < a_0) stays at robust, low
rates, which is the ``bias``; sigma is the noise, drawn anew each ``hold_s`` from seed, link and time alone, so that
two runs with one seed err alike.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hyroads.controller.radio.model import Neighbour, Reading

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
    """What the medium says of a link since its last reset (docs/dataplane.md, section 3)."""

    up: bool
    capacity_mbps: float
    frames: int
    lost: int
    airtime: float
    busy: float


@dataclass(frozen=True, slots=True)
class MediumState:
    """The links by id, and for how long they were counted."""

    elapsed_s: float
    links: Mapping[str, LinkState]


@dataclass(frozen=True, slots=True)
class Peer:
    """A neighbour: links to and from it, None where there is none."""

    mac: str
    node: str
    out_link: str | None
    in_link: str | None


def estimate_mbps(capacity_mbps: float, airtime: float, link: str, now_s: float, errors: EstimateErrors) -> float:
    """A driver's estimate of a link that used ``airtime`` (0..1) of late; never negative."""
    idle = max(0.0, 1 - airtime / errors.low_rate_airtime) if errors.low_rate_airtime > 0 else 0.0
    return max(0.0, capacity_mbps * (1 - errors.low_rate_bias * idle) * (1 + errors.noise * _draw(link, now_s, errors)))


def _draw(what: str, now_s: float, errors: EstimateErrors) -> float:
    """A standard normal number that depends on seed, name and period only."""
    period = int(now_s // errors.hold_s)
    return random.Random(f"{errors.seed}/{what}/{period}").gauss(0, 1)  # noqa: S311  # a model, not a secret


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
        """Neighbours that were ever heard; busy time of the interface's domain, with the noise of its counter."""
        state, before = self._state(), self._before
        # The medium's counters start anew with its reset; then all of them count from there.
        if before is not None and state.elapsed_s < before.elapsed_s:
            before = None
        elapsed_s = state.elapsed_s - (before.elapsed_s if before else 0.0)
        self._active_us += elapsed_s * 1e6
        self._busy_us += self._busy_s(state, before, elapsed_s, now_s) * 1e6
        neighbours = tuple(n for p in self._peers if (n := self._neighbour(p, state, before, now_s)) is not None)
        self._before = state
        return Reading(int(self._busy_us), int(self._active_us), neighbours)

    def _busy_s(self, state: MediumState, before: MediumState | None, elapsed_s: float, now_s: float) -> float:
        """The largest busy time of the interface's links: whatever of them is busy, the interface hears."""
        links = {link for peer in self._peers for link in (peer.out_link, peer.in_link) if link in state.links}
        busy_s = max((_since(link or "", "busy", state, before) for link in links), default=0.0)
        noisy = busy_s * (1 + self._errors.busy_noise * _draw(f"busy/{self._interface}", now_s, self._errors))
        return min(max(0.0, noisy), elapsed_s)

    def _neighbour(self, peer: Peer, state: MediumState, before: MediumState | None, now_s: float) -> Neighbour | None:
        inbound = state.links.get(peer.in_link) if peer.in_link else None
        # An access point sends beacons whether or not it has traffic: a live link is heard.
        if inbound is not None and inbound.up and inbound.capacity_mbps > 0:
            self._last_heard_s[peer.mac] = now_s
        if peer.mac not in self._last_heard_s:
            return None
        return Neighbour(
            mac=peer.mac,
            node=peer.node,
            tx_capacity_kbps=self._kbps(peer.out_link, state, before, now_s),
            rx_capacity_kbps=self._kbps(peer.in_link, state, before, now_s),
            tx_loss=_loss(peer.out_link, state, before),
            last_heard_ms=min(NEVER_HEARD_MS, int((now_s - self._last_heard_s[peer.mac]) * 1000)),
            modulation="emulated",
        )

    def _kbps(self, link: str | None, state: MediumState, before: MediumState | None, now_s: float) -> int:
        now = state.links.get(link) if link else None
        if now is None or link is None or not now.up:
            return 0
        elapsed_s = state.elapsed_s - (before.elapsed_s if before else 0.0)
        airtime = _since(link, "airtime", state, before) / elapsed_s if elapsed_s > 0 else 0.0
        return round(1000 * estimate_mbps(now.capacity_mbps, airtime, link, now_s, self._errors))


def _since(link: str, share: str, state: MediumState, before: MediumState | None) -> float:
    """Seconds of a share of time (``busy`` or ``airtime``) between two states."""
    total_s: float = getattr(state.links[link], share) * state.elapsed_s
    old = before.links.get(link) if before else None
    return max(0.0, total_s - (getattr(old, share) * before.elapsed_s if old and before else 0.0))


def _loss(link: str | None, state: MediumState, before: MediumState | None) -> float:
    now = state.links.get(link) if link else None
    if now is None or link is None:
        return 0.0
    old = before.links.get(link) if before else None
    lost = now.lost - (old.lost if old else 0)
    sent = now.frames - (old.frames if old else 0) + lost
    return min(1.0, max(0.0, lost / sent)) if sent > 0 else 0.0
