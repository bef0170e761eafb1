"""The demos ``mar`` and ``mar-dynamic``: what is judged, without packets."""

from __future__ import annotations

import pytest

from hyroads.controller.core.network import ClientMode
from hyroads.controller.core.placement import place_radios
from hyroads.mininet.demos.checks import CheckedStage, DemoOptions
from hyroads.mininet.demos.mar import Cycle, Phase, judge
from hyroads.mininet.demos.mar_dynamic import Step, longest_crowded_s, mbps_at, network


class Arrivals:
    """An upload whose rate is known, and when nothing arrived."""

    def __init__(self, rates: dict[float, float], gaps: dict[float, float]) -> None:
        self.rates, self.gaps = rates, gaps

    def mbps(self, from_s: float, to_s: float) -> float:
        return self.rates[max(start for start in self.rates if start <= from_s)]

    def longest_gap_s(self, from_s: float, to_s: float) -> float:
        return max([0.01, *(gap for at_s, gap in self.gaps.items() if from_s <= at_s < to_s)])


def verdict(rates: dict[float, float], gaps: dict[float, float]) -> dict[str, bool]:
    phases = [Phase(str(i), 20.0 * i, 20.0 * (i + 1)) for i in range(4)]
    stage = CheckedStage("mar", DemoOptions(json=True))
    judge(stage, Arrivals(rates, gaps), [Cycle(*phases)])
    return {check.what.split(" ")[0] + check.unit: check.ok for check in stage.checks}


def test_each_promise_is_judged_by_itself():
    rates = {0.0: 45.0, 20.0: 80.0, 40.0: 36.0, 60.0: 45.0}
    assert set(verdict(rates, {}).values()) == {True}
    assert [what for what, ok in verdict({**rates, 20.0: 75.0}, {}).items() if not ok] == ["coupled,ratio"]
    assert [what for what, ok in verdict(rates, {40.1: 0.06}).items() if not ok] == ["soft:ms"]
    assert [what for what, ok in verdict(rates, {60.1: 0.26}).items() if not ok] == ["hard:ms"]
    # A pause long after the cut has nothing to do with it.
    assert set(verdict(rates, {55.0: 0.5}).values()) == {True}
    slow = {**rates, 60.0: 45.0, 60.2: 30.0, 60.9: 45.0}
    assert [what for what, ok in verdict(slow, {}).items() if not ok] == ["hard:ratio"]


def test_rates_fall_with_distance_and_end():
    assert mbps_at("wifi2", 0.0) == 40.0 and mbps_at("wifi5", 0.0) == 50.0
    rates = [mbps_at("wifi5", metres) for metres in range(40)]
    assert rates == sorted(rates, reverse=True) and rates[-1] == 0.0
    # The slower band reaches farther.
    assert mbps_at("wifi2", 30.0) > mbps_at("wifi5", 30.0) == 0.0


def test_between_two_access_points_either_is_as_good_and_beside_one_it_is_best():
    row = network(DemoOptions())

    def at(position_m: float):
        rates = {
            link.id: mbps_at(link.technology, abs(position_m - 20.0 * (int((link.source + link.target)[1]) - 1)))
            for link in row.links
            if link.technology in ("wifi2", "wifi5") and link.target == "c"
        }
        return place_radios(row.with_capacities(rates), "c", "s", ClientMode.FULL_SPEED)

    assert at(40.0).attachments == {"wifi2": "a3", "wifi5": "a3"}
    assert at(40.0).total_mbps == pytest.approx(90)


def test_only_the_time_at_one_access_point_while_others_give_more_counts():
    both, apart = (("wifi2", "a1"), ("wifi5", "a1")), (("wifi2", "a1"), ("wifi5", "a2"))

    def steps(*kinds):
        return [Step(0.5 * i, 0.0, places, now, 90.0) for i, (places, now) in enumerate(kinds)]

    assert longest_crowded_s(steps((both, 80.0), (both, 80.0), (both, 85.0), (both, 80.0))) == 0.5
    assert longest_crowded_s(steps((apart, 20.0), (apart, 20.0))) == 0.0
    assert longest_crowded_s(steps((both, 89.0), (both, 89.0))) == 0.0
