"""HyWF, the reference that the edge agent is tested against: a split of website accesses over two networks.

Neither network can tell from its part which website is fetched (Henri, EPFL thesis 9056, 2018, chapter 6).

Per access (accesses are separated by 1 s of silence) and direction the share p of network 1 is drawn uniformly in [0,
1]. Packets go in runs of geometric length with mean n_cons; every run chooses network 1 with probability p. As a Markov
chain: stay on network 1 with probability 1 - (1 - p) / n_cons, on network 2 with 1 - p / n_cons. If network 1 is
costly, p is uniform in [0, 2 p_s], which sends a share p_s on it. HyWF-AP pads before the split and draws p again
every n_chp packets on average around p_d: uniformly in [0, 2 p_d] if p_d <= 0.5, else in [2 p_d - 1, 1].

The edge agent does the same on real packets (``dataplane/src/edge/hywf.rs``, ``padding.rs``). Times are seconds;
randomness is an argument.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hyroads.controller.core.errors import HyroadsError

# Padding packets that may follow each other before the bound of their rate counts.
_DEPTH = 8.0


class PrivacyError(HyroadsError):
    """Settings of a private split are not what they must be."""


@dataclass(frozen=True, slots=True)
class HywfSettings:
    """``n_cons``: mean run, packets; ``cost_share``: p_s of a costly network 1; ``n_chp``: mean packets between draws
    of p (HyWF-AP); ``p_d``: the p_d of every access, None draws it like p; ``silence_s``: what ends an access.
    """

    n_cons: float = 20.0
    cost_share: float | None = None
    n_chp: float | None = None
    p_d: float | None = None
    silence_s: float = 1.0

    def __post_init__(self) -> None:
        _check("n_cons", self.n_cons, 1.0, 1e6)
        _check("cost_share", 0.5 if self.cost_share is None else self.cost_share, 0.0, 0.5)
        _check("n_chp", 1.0 if self.n_chp is None else self.n_chp, 1.0, 1e9)
        _check("p_d", 0.5 if self.p_d is None else self.p_d, 0.0, 1.0)
        _check("silence_s", self.silence_s, 1e-3, 1e3)
        if self.p_d is not None and (self.n_chp is None or self.cost_share is not None):
            raise PrivacyError("p_d: expected with n_chp and without cost_share")


@dataclass(frozen=True, slots=True)
class PaddingSettings:
    """After a packet a padding packet waits ``gap_s`` +- 50 %; ``burst`` of them on average in an endless gap, at most
    ``max_per_s``."""

    gap_s: float = 0.02
    burst: float = 3.0
    max_per_s: float = 50.0

    def __post_init__(self) -> None:
        _check("gap_s", self.gap_s, 1e-4, 1e2)
        _check("burst", self.burst, 0.0, 1e3)
        _check("max_per_s", self.max_per_s, 0.0, 1e4)


@dataclass(frozen=True, slots=True)
class SplitPacket:
    """A packet on its way: ``network`` is 1 or 2."""

    time_s: float
    network: int
    dummy: bool


class Hywf:
    """The split of one direction of one client."""

    def __init__(self, settings: HywfSettings, rng: random.Random) -> None:
        self._settings = settings
        self._rng = rng
        self._last_s = -math.inf
        self._p_d = 0.5
        self._network: int | None = None
        self.share = 0.5
        """p, as drawn last."""

    def network(self, time_s: float) -> int:
        """1 or 2: where a user's packet of this time goes; times do not fall."""
        if time_s - self._last_s >= self._settings.silence_s:
            self._begin()
        self._last_s = time_s
        return self.draw()

    def draw(self) -> int:
        """The next step of the chain, for a packet of the running access; a padding packet is one as well."""
        settings, rng = self._settings, self._rng
        if settings.n_chp is not None and rng.random() < 1.0 / settings.n_chp:
            self._redraw()
        if self._network is None or rng.random() < 1.0 / settings.n_cons:
            self._network = 1 if rng.random() < self.share else 2
        return self._network

    def _begin(self) -> None:
        settings = self._settings
        widest = 1.0 if settings.cost_share is None else 2.0 * settings.cost_share
        self._p_d = widest * self._rng.random() if settings.p_d is None else settings.p_d
        self.share, self._network = self._p_d, None
        if settings.n_chp is not None:
            self._redraw()

    def _redraw(self) -> None:
        low, high = (0.0, 2.0 * self._p_d) if self._p_d <= 0.5 else (2.0 * self._p_d - 1.0, 1.0)
        self.share = low + (high - low) * self._rng.random()


class AdaptivePadding:
    """Padding in gaps longer than bursts leave (after Shmatikov and Wang, ESORICS 2006), at a bounded rate."""

    def __init__(self, settings: PaddingSettings, rng: random.Random) -> None:
        self._settings = settings
        self._rng = rng
        self._credit = _DEPTH
        self._credit_s = -math.inf
        self.due_s: float | None = None
        """When the next padding packet is due, if no packet comes first."""

    def on_packet(self, time_s: float) -> None:
        """A packet was sent."""
        settings, rng = self._settings, self._rng
        goes_on = rng.random() < settings.burst / (1.0 + settings.burst)
        self.due_s = time_s + settings.gap_s * (0.5 + rng.random()) if goes_on else None

    def poll(self, time_s: float) -> bool:
        """True if a padding packet is to be sent now."""
        if self.due_s is None or self.due_s > time_s:
            return False
        self._credit = min(_DEPTH, self._credit + (time_s - self._credit_s) * self._settings.max_per_s)
        self._credit_s = time_s
        self.on_packet(time_s)
        if self._settings.max_per_s == 0 or self._credit < 1.0:
            return False
        self._credit -= 1.0
        return True


def split_packets(
    times_s: Iterable[float],
    settings: HywfSettings,
    rng: random.Random,
    padding: PaddingSettings | None = None,
) -> Iterator[SplitPacket]:
    """Split the packets of one direction, sent at times that do not fall; padding is added with ``padding``."""
    hywf = Hywf(settings, rng)
    pads = AdaptivePadding(padding or PaddingSettings(burst=0.0), rng)
    for time_s in times_s:
        yield from _dummies(pads, hywf, time_s)
        yield SplitPacket(time_s, hywf.network(time_s), dummy=False)
        pads.on_packet(time_s)
    yield from _dummies(pads, hywf, math.inf)


def _dummies(pads: AdaptivePadding, hywf: Hywf, until_s: float) -> Iterator[SplitPacket]:
    while pads.due_s is not None and pads.due_s < until_s:
        due_s = pads.due_s
        if pads.poll(due_s):
            yield SplitPacket(due_s, hywf.draw(), dummy=True)


def _check(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise PrivacyError(f"{name} {value:g}: expected {low:g} to {high:g}")
