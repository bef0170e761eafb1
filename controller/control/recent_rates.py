"""What our traffic may be beyond what was measured, for a moment after rates changed. Pure but for its own state.

Busy times and reports of agents are read at moments of their own: what one of them already shows, the other does not.
When a flow starts, stops or gets another rate, one or two slots see busy time that no reported rate explains (or rates
of a flow that is gone), and without more knowledge that is external traffic. So, for as long as both take to catch up,
our traffic on a link may have been all that was allowed before or after the change.

No link is doubted for ever: rates that change all the time would hide traffic that is really not ours.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

# A new flow has a measured rate after two reports, each a slot's length and up to another old; what is gone is out of
# the reports at once and out of the busy times after two slots.
RISE_S = 0.35
FALL_S = 0.25
# Share of a link's time. Less than twice the step of the filter of external airtime can't look like a step two slots in
# a row; and what that filter itself moves in a slot is less, so that following external traffic does not raise doubts.
CHANGE = 0.12
LONGEST_S = 1.0
REST_S = 0.4
_NEVER_S = -1e9


class RecentRates:
    """Of ``links`` links; rates are of our traffic on each, Mb/s."""

    def __init__(self, links: int) -> None:
        self._allowed = np.zeros(links)
        self._most = np.zeros(links)
        self._since_s = np.full(links, _NEVER_S)
        self._until_s = np.full(links, _NEVER_S)
        self._left = False

    def left(self) -> None:
        """Flows or paths may be gone, as of the next question."""
        self._left = True

    def allowed(self, mbps: FloatArray, capacity_mbps: FloatArray, now_s: float) -> None:
        """The rates that are in force from now on, and the capacities of the links."""
        before, self._allowed = self._allowed, mbps
        change = mbps - before
        matters = np.abs(change) > CHANGE * capacity_mbps
        if not matters.any():
            return
        span_s = np.where(change > 0, RISE_S, FALL_S)
        self._doubt(np.where(matters, np.maximum(mbps, before), 0.0), span_s, now_s)

    def most(self, now_s: float) -> FloatArray:
        """What our traffic may be now, where it is in doubt; 0 elsewhere."""
        if self._left:
            self._left = False
            self._doubt(self._allowed, np.full(len(self._allowed), FALL_S), now_s)
        return np.where(now_s < self._until_s, self._most, 0.0)

    def _doubt(self, most: FloatArray, span_s: FloatArray, now_s: float) -> None:
        over = now_s >= self._until_s
        long = self._until_s - self._since_s >= LONGEST_S
        fresh = over & (~long | (now_s >= self._until_s + REST_S))
        this = (most > 0) & (fresh | ~over)
        self._since_s = np.where(this & fresh, now_s, self._since_s)
        self._most = np.where(this, np.where(fresh, most, np.maximum(self._most, most)), self._most)
        until_s = np.minimum(np.maximum(self._until_s, now_s + span_s), self._since_s + LONGEST_S)
        self._until_s = np.where(this, until_s, self._until_s)
