"""HyWF and adaptive padding against their laws."""

import itertools
import random

import numpy as np
import pytest
from hywf_model import Hywf, HywfSettings, PaddingSettings, PrivacyError, split_packets


def is_uniform(samples: np.ndarray, low: float = 0.0, high: float = 1.0) -> bool:
    """Kolmogorov's test at 1 %: 1.628 is its limit for many samples."""
    ranks = np.arange(len(samples) + 1) / len(samples)
    law = (np.sort(samples) - low) / (high - low)
    return max((ranks[1:] - law).max(), (law - ranks[:-1]).max()) < 1.628 / np.sqrt(len(samples))


def drawn_shares(settings: HywfSettings, count: int, seed: int) -> np.ndarray:
    hywf, shares = Hywf(settings, random.Random(seed)), []
    for access in range(count):
        hywf.network(1.5 * access)
        shares.append(hywf.share)
    return np.array(shares)


def test_shares_are_uniform_and_those_of_both_directions_independent():
    there, back = (drawn_shares(HywfSettings(), 8000, seed) for seed in (1, 2))
    assert is_uniform(there)
    assert abs(np.corrcoef(there, back)[0, 1]) < 0.05
    assert abs(np.corrcoef(there[:-1], there[1:])[0, 1]) < 0.05


def test_a_costly_network_gets_its_share():
    shares = drawn_shares(HywfSettings(cost_share=0.15), 8000, 3)
    assert is_uniform(shares, 0.0, 0.3)
    assert shares.mean() == pytest.approx(0.15, abs=0.005)


def test_only_silence_ends_an_access():
    hywf = Hywf(HywfSettings(), random.Random(4))
    times = np.cumsum([0.99] * 50)
    seen = set()
    for time_s in times:
        hywf.network(float(time_s))
        seen.add(hywf.share)
    assert len(seen) == 1
    hywf.network(float(times[-1]) + 1.0)
    assert hywf.share not in seen


@pytest.mark.parametrize("n_cons", [1.0, 15.0, 40.0])
def test_packets_follow_the_markov_chain(n_cons):
    hywf = Hywf(HywfSettings(n_cons=n_cons), random.Random(5))
    hywf.network(0.0)
    networks = np.array([hywf.draw() for _ in range(300_000)])
    for network, leaving in ((1, 1 - hywf.share), (2, hywf.share)):
        here = networks[:-1] == network
        left = (networks[1:] != network)[here].mean()
        # Five standard errors of the number of changes.
        assert left == pytest.approx(leaving / n_cons, rel=5 / np.sqrt(here.sum() * leaving / n_cons))


@pytest.mark.parametrize("p_d", [0.2, 0.5, 0.85])
def test_hywf_ap_redraws_around_p_d(p_d):
    hywf = Hywf(HywfSettings(n_chp=100, p_d=p_d), random.Random(6))
    hywf.network(0.0)
    shares = [hywf.share]
    for _ in range(300_000):
        hywf.draw()
        if hywf.share != shares[-1]:
            shares.append(hywf.share)
    assert len(shares) == pytest.approx(3000, rel=0.1)
    low, high = (0, 2 * p_d) if p_d <= 0.5 else (2 * p_d - 1, 1)
    assert is_uniform(np.array(shares), low, high)


def test_padding_fills_gaps_leaves_bursts_alone_and_is_bounded():
    bursts = [10.0 * k + 0.001 * i for k in range(500) for i in range(10)]
    ample = PaddingSettings(gap_s=0.02, burst=3, max_per_s=1e4)
    packets = list(split_packets(bursts, HywfSettings(n_chp=100), random.Random(7), ample))
    assert [p.time_s for p in packets if not p.dummy] == bursts
    assert all(a.time_s <= b.time_s for a, b in itertools.pairwise(packets))
    dummies = [p for p in packets if p.dummy]
    assert len(dummies) / 500 == pytest.approx(3, rel=0.15)
    assert all(p.time_s % 10 > 0.009 for p in dummies)
    tight = PaddingSettings(gap_s=0.001, burst=1000, max_per_s=20)
    times = [p.time_s for p in split_packets([0.0], HywfSettings(), random.Random(8), tight) if p.dummy]
    assert all(sum(t <= u < t + 1 for u in times) <= 28 for t in times)
    plain = list(split_packets(bursts, HywfSettings(), random.Random(9)))
    assert len(plain) == len(bursts)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"n_cons": 0.5}, "n_cons 0.5"),
        ({"cost_share": 0.7}, "cost_share 0.7"),
        ({"p_d": 0.5}, "with n_chp"),
        ({"n_chp": 100, "p_d": 0.2, "cost_share": 0.1}, "without cost_share"),
        ({"silence_s": 0}, "silence_s 0"),
    ],
)
def test_bad_settings_are_refused(settings, text):
    with pytest.raises(PrivacyError, match=text):
        HywfSettings(**settings)
