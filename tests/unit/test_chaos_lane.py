"""What an event of chaos may cost grows by what the plain lane beside it lost, and no more."""

from __future__ import annotations

import pytest

from hyroads.mininet.chaos.plan import ALL, Allowance
from hyroads.mininet.chaos.run import COST_OF_LOST_TIME, beside
from hyroads.mininet.reference import SAMPLE_S, Lane

ALLOWED = Allowance(lost_s=0.2, lost_back_s=0.1, back_s=5.0)


def lane(*ratios: float) -> Lane:
    """A lane of 8 Mb/s that carried these shares of its rate, for a second each from 0 s on."""
    samples, forwarded = [(0.0, 0.0)], 0.0
    for second, ratio in enumerate(ratios):
        for step in range(1, 21):
            forwarded += ratio * 1e6 * SAMPLE_S
            samples.append((second + step * SAMPLE_S, forwarded))
    return Lane(tuple(samples), rate_mbps=8.0)


def test_limits_stay_beside_a_lane_that_carried_all():
    assert beside(ALLOWED, lane(1.0, 0.97, 1.0), 0.0, 3.0) == ALLOWED == beside(ALLOWED, Lane(), 0.0, 3.0)


def test_limits_grow_by_what_the_lane_lost_in_the_time_of_the_event():
    found = beside(ALLOWED, lane(1.0, 0.5, 1.0), 0.0, 3.0)
    more_s = COST_OF_LOST_TIME * 0.5
    grown = (0.2 + more_s, 0.1 + more_s, 5.0 + more_s)
    assert (found.lost_s, found.lost_back_s, found.back_s) == pytest.approx(grown, abs=0.02)
    # Another event at another time.
    assert beside(ALLOWED, lane(1.0, 1.0, 0.5), 0.0, 1.9) == ALLOWED


def test_what_has_no_limit_has_none_beside_a_slow_lane():
    assert beside(Allowance(ALL, 0.1, 5.0), lane(0.5), 0.0, 1.0).lost_s == ALL
