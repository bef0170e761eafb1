"""Splits of private flows and adaptive padding against their laws."""

import numpy as np
import pytest

from hyroads.controller.core.privacy import fitted, gaps_s, networks, padded, shares_of_accesses
from hyroads.controller.core.private_split import Padding, PrivateSplit


def is_uniform(samples: np.ndarray, low: float = 0.0, high: float = 1.0) -> bool:
    """Kolmogorov's test at 1 %: 1.628 is its limit for many samples."""
    ranks = np.arange(len(samples) + 1) / len(samples)
    law = (np.sort(samples) - low) / (high - low)
    return max((ranks[1:] - law).max(), (law - ranks[:-1]).max()) < 1.628 / np.sqrt(len(samples))


def shares_seen(split: PrivateSplit, accesses: int, packets: int, seed: int) -> np.ndarray:
    """The share of network 1 in each access; accesses are 2 s apart."""
    times = (np.arange(accesses)[:, None] * 2.0 + np.linspace(0, 0.5, packets)).ravel()
    found = networks(times, split, np.random.default_rng(seed))
    return (found.reshape(accesses, packets) == 1).mean(axis=1)


def test_shares_of_accesses_are_uniform_and_those_of_both_directions_independent() -> None:
    # Runs of one packet: the share seen is the one that was drawn, but for 1/sqrt(packets).
    there, back = (shares_seen(PrivateSplit(n_cons=1), 800, 2500, seed) for seed in (1, 2))
    assert is_uniform(there)
    assert abs(np.corrcoef(there, back)[0, 1]) < 0.08
    assert abs(np.corrcoef(there[:-1], there[1:])[0, 1]) < 0.08


def test_a_costly_network_gets_its_share() -> None:
    shares = shares_of_accesses(8000, PrivateSplit(cost_share=0.15), np.random.default_rng(3))
    assert is_uniform(shares, 0.0, 0.3)
    seen = shares_seen(PrivateSplit(n_cons=1, cost_share=0.15), 2000, 500, 4)
    assert seen.mean() == pytest.approx(0.15, abs=0.006) and seen.max() < 0.37


def test_silence_alone_ends_an_access_and_padding_begins_none() -> None:
    times = np.arange(40) * 0.99
    split = PrivateSplit(n_cons=1e6)
    assert len(set(networks(times, split, np.random.default_rng(5)))) == 1, "one access, one run"
    apart = [networks(np.array([0.0, 1.0]), split, np.random.default_rng(k)) for k in range(400)]
    assert np.mean([one != two for one, two in apart]) == pytest.approx(0.5, abs=0.1)
    # Padding in the silence does not join two accesses, and belongs to the first.
    held = [
        networks(np.array([0.0, 0.5, 1.0]), split, np.random.default_rng(k), dummies=np.array([False, True, False]))
        for k in range(400)
    ]
    assert all(access[0] == access[1] for access in held)
    assert np.mean([access[0] != access[2] for access in held]) == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("n_cons", [1.0, 15.0, 40.0])
@pytest.mark.parametrize("p", [0.2, 0.6])
def test_packets_follow_the_markov_chain(n_cons: float, p: float) -> None:
    found = networks(np.zeros(300_000), PrivateSplit(n_cons=n_cons), np.random.default_rng(6), p_d=p)
    for network, leaving in ((1, 1 - p), (2, p)):
        here = found[:-1] == network
        left = (found[1:] != network)[here].mean()
        # Five standard errors of the number of changes.
        assert left == pytest.approx(leaving / n_cons, rel=5 / np.sqrt(here.sum() * leaving / n_cons))


@pytest.mark.parametrize("p_d", [0.2, 0.5, 0.85])
def test_hywf_ap_redraws_around_p_d(p_d: float) -> None:
    # A window of 200 packets has mostly one share where it is drawn every 20 000.
    split = PrivateSplit(n_cons=1, n_chp=20_000)
    found = networks(np.zeros(3_000_000), split, np.random.default_rng(7), p_d=p_d) == 1
    shares = found.reshape(-1, 2000).mean(axis=1)
    low, high = (0, 2 * p_d) if p_d <= 0.5 else (2 * p_d - 1, 1)
    assert shares.min() > low - 0.06 and shares.max() < high + 0.06
    assert shares.mean() == pytest.approx(p_d, abs=0.06)
    assert shares.std() == pytest.approx((high - low) / np.sqrt(12), rel=0.15)
    steps = np.abs(np.diff(shares)) > 0.06
    assert 0.05 < steps.mean() < 0.25, "about one of ten windows has a new share"


def test_gaps_are_normal_above_zero() -> None:
    narrow = gaps_s(Padding(20.0, 4.0), 50_000, np.random.default_rng(8))
    assert narrow.mean() == pytest.approx(0.020, rel=0.01) and narrow.std() == pytest.approx(0.004, rel=0.02)
    wide = gaps_s(Padding(0.1, 40.0), 50_000, np.random.default_rng(9))
    assert wide.min() > 0 and wide.mean() == pytest.approx(0.040 * np.sqrt(2 / np.pi), rel=0.02)


def test_padding_fills_gaps_leaves_bursts_alone_and_ends_with_the_access() -> None:
    bursts = (np.arange(500)[:, None] * 10.0 + np.arange(10) * 0.001).ravel()
    times, dummies = padded(bursts, Padding(20.0, 2.0), np.random.default_rng(10))
    assert np.array_equal(times[~dummies], bursts) and (np.diff(times) >= 0).all()
    assert dummies.sum() / 500 == pytest.approx(49.5, abs=0.5), "one each 20 ms for the second after a burst"
    after = times[dummies] % 10
    assert after.min() > 0.009 and after.max() < 1.01
    assert np.diff(times[dummies])[:40] == pytest.approx(0.02, abs=0.01)
    nothing, _ = padded(np.empty(0), Padding(), np.random.default_rng(11))
    assert not len(nothing)


def test_a_fit_has_the_moments_of_all_gaps_and_leaves_out_silence() -> None:
    traces = [np.array([0.0, 0.01, 0.03]), np.array([5.0, 5.02, 9.0]), np.array([1.0])]
    found = fitted(traces)
    assert found.gap_ms == pytest.approx(50 / 3) and found.deviation_ms == pytest.approx(np.std([10, 20, 20]))
    assert fitted([]) == Padding() == fitted([np.array([1.0])])
    assert fitted(traces, 7.0).max_per_s == 7.0
