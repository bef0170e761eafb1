"""Whether a flow would take more than it gets: only then it needs a bandit (spec 03, section 3.3). Pure.

A flow is saturated when packets wait at its edge, when it sends nearly all that it may, or when packets get lost on the
way: rates that are too high make TCP send less than it may, which must not look like a lack of demand. It is no longer
saturated when none of these holds for a while.
"""

from __future__ import annotations

from dataclasses import dataclass

from hyroads.controller.core.demand import Offer

BUSY_ABOVE = 0.93
PATIENCE_S = 1.5
# A flow that sends nothing is gone: the others have what they learned without it again. TCP that waits for a timeout is
# taken for gone as well, and has its part again with its first packets.
GONE_S = 0.4
# Less than the least rate of any flow, so that one that waits for more can be seen.
ACTIVE_MBPS = 0.05
LOST = 0.03
# So much less than its rates arrives, for so long: the rates are wrong.
SHORT = 0.85
SHORT_S = 1.0
_SMOOTHING = 0.1


@dataclass(frozen=True, slots=True)
class Saturation:
    """``saturated_s`` and ``active_s``: when it last was so; ``short_s``: since when far less than its rates arrives;
    smoothed rates sent and delivered in Mb/s.
    """

    saturated_s: float | None = None
    active_s: float | None = None
    sent_mbps: float = 0.0
    delivered_mbps: float = 0.0
    short_s: float | None = None

    def after(self, offer: Offer, delivered_mbps: float, now_s: float) -> Saturation:
        """After a slot in which the flow had its usual rates."""
        # A flow that wakes up has not lost what is still under way.
        before = (self.sent_mbps, self.delivered_mbps) if self.is_active(now_s) else (offer.sent_mbps,) * 2
        sent = before[0] + _SMOOTHING * (offer.sent_mbps - before[0])
        delivered = before[1] + _SMOOTHING * (delivered_mbps - before[1])
        active = offer.sent_mbps > ACTIVE_MBPS or offer.backlogged
        lossy = active and delivered < (1 - LOST) * sent
        full = active and (offer.backlogged or offer.sent_mbps > BUSY_ABOVE * offer.allowed_mbps)
        short = lossy and delivered < SHORT * offer.allowed_mbps
        return Saturation(
            now_s if full or lossy else self.saturated_s,
            now_s if active else self.active_s,
            sent,
            delivered,
            (now_s if self.short_s is None else self.short_s) if short else None,
        )

    def falls_short(self, now_s: float) -> bool:
        """Whether its rates are more than the network carries."""
        return self.short_s is not None and now_s - self.short_s >= SHORT_S

    def kept(self, now_s: float) -> Saturation:
        """After a slot that tells nothing: what was so a moment ago still is."""
        return Saturation(
            now_s if self.is_saturated(now_s) else self.saturated_s,
            now_s if self.is_active(now_s) else self.active_s,
            self.sent_mbps,
            self.sent_mbps,
        )

    def is_saturated(self, now_s: float) -> bool:
        """Whether it would take more."""
        return self.saturated_s is not None and now_s - self.saturated_s <= PATIENCE_S

    def is_active(self, now_s: float) -> bool:
        """Whether it sends at all."""
        return self.active_s is not None and now_s - self.active_s <= GONE_S
