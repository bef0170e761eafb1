"""Links that come and go: suppressed by an exponentially decaying penalty (RFC 2439, "BGP Route Flap Damping").

    penalty(t) = penalty(t0) 2^(-(t - t0) / half_life),   + ``per_flap`` each time the link goes down

A link is suppressed (held down though it may be up) once its penalty exceeds ``suppress``, and reused when it has
decayed below ``reuse``, at most ``max_hold_s`` after it last went down. One failure alone never suppresses: its link
is used again as soon as it is back. Penalties are capped so that ``max_hold_s`` follows from the decay:
ceiling = reuse 2^(max_hold_s / half_life) (RFC 2439, section 4.2).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from hyroads.controller.core.estimate.filters import EstimateError


@dataclass(frozen=True, slots=True)
class DampingSettings:
    """With these, three failures in four seconds suppress a link, or one every six seconds; for at most a minute."""

    per_flap: float = 1.0
    suppress: float = 2.5
    reuse: float = 0.75
    half_life_s: float = 8.0
    max_hold_s: float = 60.0

    def __post_init__(self) -> None:
        if not (0 < self.reuse < self.suppress and self.per_flap > 0 and self.half_life_s > 0 and self.max_hold_s > 0):
            raise EstimateError("damping needs 0 < reuse < suppress and positive times and penalties")
        if self.ceiling <= self.suppress:
            raise EstimateError("max_hold_s is too short for this half life: nothing would ever be suppressed")

    @property
    def ceiling(self) -> float:
        """The largest penalty."""
        return self.reuse * math.pow(2.0, self.max_hold_s / self.half_life_s)


@dataclass(frozen=True, slots=True)
class LinkHistory:
    """Of one link: up as last reported, penalty at ``time_s``, whether it is suppressed, failures so far."""

    up: bool
    penalty: float
    time_s: float
    suppressed: bool
    flaps: int


@dataclass(frozen=True)
class FlapDamping:
    """Histories by link id; links that never failed have none and are usable."""

    settings: DampingSettings = field(default_factory=DampingSettings)
    histories: Mapping[str, LinkHistory] = field(default_factory=dict)

    def after(self, link: str, *, up: bool, now_s: float) -> FlapDamping:
        """With a report of a link. Reports that repeat what is known change nothing."""
        old = self._now(link, now_s)
        if old is None:
            old = LinkHistory(True, 0.0, now_s, False, 0)
        if old.up == up:
            return self
        penalty = old.penalty if up else min(self.settings.ceiling, old.penalty + self.settings.per_flap)
        suppressed = old.suppressed or penalty > self.settings.suppress
        new = LinkHistory(up, penalty, now_s, suppressed, old.flaps + (not up))
        return FlapDamping(self.settings, {**self.histories, link: new})

    def usable(self, link: str, now_s: float) -> bool:
        """Whether a plan may use the link now."""
        history = self._now(link, now_s)
        return history is None or (history.up and not history.suppressed)

    def held_down(self, now_s: float) -> dict[str, float]:
        """Links that are up but suppressed -> when they can be used again, if they stay up."""
        held = {}
        for link in self.histories:
            history = self._now(link, now_s)
            if history is not None and history.up and history.suppressed:
                wait_s = self.settings.half_life_s * math.log2(history.penalty / self.settings.reuse)
                held[link] = now_s + max(0.0, wait_s)
        return held

    def pruned(self, now_s: float, links: Iterable[str] | None = None) -> FlapDamping:
        """Without the histories of links that are up with a negligible penalty, or not among ``links``."""
        keep = {}
        wanted = None if links is None else frozenset(links)
        for link in self.histories:
            history = self._now(link, now_s)
            if history is None or (wanted is not None and link not in wanted):
                continue
            if not history.up or history.penalty > _NEGLIGIBLE * self.settings.per_flap:
                keep[link] = history
        return FlapDamping(self.settings, keep)

    def _now(self, link: str, now_s: float) -> LinkHistory | None:
        history = self.histories.get(link)
        if history is None:
            return None
        elapsed_s = max(0.0, now_s - history.time_s)
        penalty = history.penalty * 2.0 ** (-elapsed_s / self.settings.half_life_s)
        suppressed = history.suppressed and penalty >= self.settings.reuse
        return replace(history, penalty=penalty, time_s=max(now_s, history.time_s), suppressed=suppressed)


_NEGLIGIBLE = 0.01
