"""Traffic of ours that has just changed is not taken for somebody else's, and somebody else's is still noticed."""

import numpy as np
import pytest

from hyroads.controller.control.recent_rates import FALL_S, LONGEST_S, REST_S, RISE_S, RecentRates
from hyroads.controller.core.estimate.busy_time import CarrierSensing, ExternalAirtime
from hyroads.controller.core.netfile import parse

SLOT_S = 0.1
CAPACITY = np.array([20.0, 20.0])
PAIR = parse(
    {
        "nodes": {n: {"role": "switch"} for n in "ab"},
        "links": [{"id": "ab", "from": "a", "to": "b", "technology": "wifi", "capacity_mbps": 20, "both": True}],
        "interference": {"rule": "technology"},
    },
    "test",
)
OBSERVER = ("a", "wifi")


def rates(mbps: float) -> np.ndarray:
    return np.array([mbps, 0.0])


def test_a_change_is_in_doubt_between_the_old_rate_and_the_new_one_for_a_moment() -> None:
    recent = RecentRates(2)
    recent.allowed(rates(10.0), CAPACITY, 1.0)
    assert recent.most(1.0 + RISE_S - 0.01).tolist() == [10.0, 0.0]
    assert not recent.most(1.0 + RISE_S + 0.01).any()
    recent.allowed(rates(4.0), CAPACITY, 5.0)
    assert recent.most(5.0 + FALL_S - 0.01).tolist() == [10.0, 0.0]
    assert not recent.most(5.0 + FALL_S + 0.01).any()


def test_small_changes_raise_no_doubt_and_links_without_capacity_none() -> None:
    recent = RecentRates(2)
    for slot in range(20):
        recent.allowed(rates(10.0 + 0.1 * slot), CAPACITY, 10.0 + slot * SLOT_S)
        assert slot < 4 or not recent.most(10.0 + slot * SLOT_S).any()


def test_what_has_left_is_in_doubt_from_the_next_question_on() -> None:
    recent = RecentRates(2)
    recent.allowed(rates(10.0), CAPACITY, 1.0)
    recent.left()
    assert recent.most(7.0).tolist() == [10.0, 0.0]
    recent.allowed(rates(0.0), CAPACITY, 7.0)
    assert recent.most(7.0 + 0.9 * FALL_S).tolist() == [10.0, 0.0]
    assert not recent.most(7.0 + 1.1 * FALL_S).any()


def test_rates_that_change_all_the_time_are_not_doubted_all_the_time() -> None:
    recent = RecentRates(2)
    doubted = []
    for slot in range(200):
        now_s = slot * SLOT_S
        recent.allowed(rates(10.0 if slot % 2 else 0.0), CAPACITY, now_s)
        doubted.append(bool(recent.most(now_s + 0.01).any()))
    share = sum(doubted) / len(doubted)
    assert share <= (LONGEST_S + SLOT_S) / (LONGEST_S + REST_S) + 0.02
    assert share > 0.5
    # Long enough in one piece for two differences in a row.
    assert any(not any(doubted[i : i + 3]) for i in range(len(doubted) - 3))


def followed(skew_slots: int, changes: dict[int, float], others: dict[int, float], slots: int, doubt: bool) -> list:
    """External airtime as believed, by slot, while reports tell of our rates ``skew_slots`` later than busy times."""
    recent = RecentRates(2)
    external = ExternalAirtime(CarrierSensing.of(PAIR, [OBSERVER]))
    ours = [0.0] * (skew_slots + 1)
    theirs, believed = 0.0, []
    for slot in range(slots):
        now_s = slot * SLOT_S
        ours.append(changes.get(slot, ours[-1]))
        theirs = others.get(slot, theirs)
        if slot in changes:
            recent.allowed(rates(ours[-1]), CAPACITY, now_s)
        sensing = external.sensing
        reported = rates(ours[-1 - skew_slots])
        most = sensing.own_airtime(np.maximum(reported, recent.most(now_s)), CAPACITY) if doubt else None
        busy = {OBSERVER: min(1.0, ours[-1] / 20 + theirs)}
        external = external.after(busy, sensing.own_airtime(reported, CAPACITY), now_s, most)
        believed.append(float(external.per_link(now_s).max()))
    return believed


@pytest.mark.parametrize("skew_slots", [1, 2])
def test_our_own_start_does_not_look_like_external_traffic(skew_slots: int) -> None:
    assert max(followed(skew_slots, {20: 18.0}, {}, 60, doubt=True)) == 0.0
    # What it is for: without the doubt it does.
    assert max(followed(2, {20: 18.0}, {}, 60, doubt=False)) > 0.5


def test_external_traffic_that_comes_with_a_change_of_ours_is_believed_when_the_doubt_is_over() -> None:
    believed = followed(1, {20: 8.0}, {20: 0.4}, 60, doubt=True)
    assert max(believed[:20]) == 0.0
    assert believed[20 + 7] == pytest.approx(0.4, abs=0.02)


def test_external_traffic_that_goes_beyond_the_doubt_is_seen_in_the_middle_of_it() -> None:
    believed = followed(0, {20: 4.0}, {21: 0.5}, 30, doubt=True)
    assert believed[23] >= 0.45


def test_what_is_believed_stays_when_a_change_says_nothing_new() -> None:
    believed = followed(2, {40: 8.0}, {10: 0.4}, 80, doubt=True)
    assert believed[30:] == pytest.approx([0.4] * 50, abs=0.02)
