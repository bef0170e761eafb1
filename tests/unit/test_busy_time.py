"""Busy time of a medium whose accesses cost time: cases by hand, and the study's curves."""

from __future__ import annotations

import numpy as np
import pytest

from hyroads.controller.study.busy_time import (
    ACCESS_S,
    FRAME_BITS,
    PLC,
    SETUPS,
    WIFI,
    Senders,
    capacity_mbps,
    checks,
    course,
    frame_s,
    most_frames,
    simulate,
    together_mbps,
)
from hyroads.controller.study.verdicts import Verdict


def alone(rate_mbps: float, batch: int, offered_mbps: float, duration_s: float = 2.0) -> tuple[float, float]:
    """Busy time and carried Mb/s of one sender."""
    senders = Senders((rate_mbps,), (batch,), np.array([[offered_mbps]]))
    busy, carried = simulate(senders, duration_s, np.random.default_rng(1))
    return float(busy[0]), float(carried[0, 0])


def test_an_access_has_room_for_64_frames_or_4_ms() -> None:
    assert most_frames(1000.0) == 64 and most_frames(100.0) == 33 and most_frames(12.0) == 4
    # A frame that takes longer than 4 ms is sent all the same.
    assert most_frames(1.0) == 1
    assert capacity_mbps(100.0) == pytest.approx(33 * 12_000 / (194 + 33 * 120))


def test_a_frame_alone_pays_for_an_access() -> None:
    offered = 6.0  # 500 frames/s
    busy, carried = alone(100.0, 1, offered)
    assert carried == pytest.approx(offered, rel=2e-3)
    assert busy == pytest.approx(500 * (194e-6 + 120e-6), rel=2e-3)


def test_a_batch_shares_accesses() -> None:
    # 100 frames: 33 + 33 + 33 + 1, four accesses.
    busy, carried = alone(100.0, 100, 12.0)
    assert carried == pytest.approx(12.0, rel=0.06)
    assert busy / carried == pytest.approx((4 * ACCESS_S + 100 * frame_s(100.0)) / (100 * FRAME_BITS / 1e6), rel=2e-3)


def test_overload_carries_the_capacity_at_a_busy_time_of_1() -> None:
    busy, carried = alone(100.0, 1, 200.0)
    assert busy == pytest.approx(1.0, abs=1e-3) and carried == pytest.approx(capacity_mbps(100.0), rel=5e-3)


def test_a_silent_domain_is_not_busy() -> None:
    busy, carried = simulate(Senders((100.0, 50.0), (1, 1), np.zeros((3, 2))), 0.5, np.random.default_rng(1))
    assert not busy.any() and not carried.any()


def test_saturated_senders_get_the_medium_equally_often() -> None:
    rates = (100.0, 50.0)
    senders = Senders(rates, (100, 100), np.full((1, 2), 200.0))
    _, carried = simulate(senders, 5.0, np.random.default_rng(2))
    frames = np.array([most_frames(rate) for rate in rates])
    cycle_s = sum(ACCESS_S + n * frame_s(rate) for n, rate in zip(frames, rates, strict=True))
    assert carried[0] == pytest.approx(frames * FRAME_BITS / 1e6 / cycle_s, rel=0.08)


def test_lemma_1_is_the_inverse_of_the_sum() -> None:
    assert together_mbps([100.0]) == pytest.approx(capacity_mbps(100.0))
    assert together_mbps([100.0, 100.0]) == pytest.approx(capacity_mbps(100.0) / 2)


def test_only_batches_give_a_straight_line() -> None:
    curves = {setup: course((1, number, 6, 0.7)) for number, setup in enumerate(SETUPS) if not setup.is_beside}
    for setup, found in curves.items():
        carried_mbps = found.carried_mbps[:, 1:, 0].mean(axis=0)
        relative = found.busy[:, 1:].mean(axis=0) / carried_mbps * capacity_mbps(setup.medium.rate_mbps)
        if setup.in_batches:
            assert relative == pytest.approx(np.ones(len(relative)), abs=0.05)
        else:
            # An access and a frame, against a share of an access and a frame.
            assert relative[0] > 2 > relative[-1] > 1
    bent = [check for check in checks(curves, {}) if "single" in check.what]
    assert [check.verdict for check in bent] == [Verdict.MET] * 2
    assert {setup.medium for setup in curves} == {WIFI, PLC}
