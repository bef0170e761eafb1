"""The queue with two service rates against a matrix-geometric solution and a simulation; choice and split."""

import itertools
import math

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from hyroads.controller.core.latency.fit import packets_per_s
from hyroads.controller.core.latency.policy import (
    best_single,
    best_split,
    optimal_share,
    single_limit,
    split_delay_s,
)
from hyroads.controller.core.latency.two_state_queue import (
    LatencyError,
    TwoStateQueue,
    mean_delay_s,
    mean_queue_length,
    slope,
)

_EQUAL = 1e-9


def dominant(first: TwoStateQueue, second: TwoStateQueue) -> int | None:
    """0 or 1: the queue that the rules name as the better one at every load; None where they are silent.

    The rules speak only of queues with equal muhat and equal alpha.
    """
    if not (_same(first.muhat, second.muhat) and _same(first.alpha, second.alpha)):
        return None
    # Positive: better for the first queue.
    variance = _sign(second.variance, first.variance, first.muhat**2)
    product = _sign(first.mu_h * first.mu_l, second.mu_h * second.mu_l, first.muhat**2)
    if variance * product < 0 or variance == product == 0:
        return None
    return 0 if variance + product > 0 else 1


def _same(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=_EQUAL)


def _sign(larger: float, smaller: float, scale: float) -> int:
    difference = larger - smaller
    return 0 if abs(difference) <= _EQUAL * scale else int(math.copysign(1, difference))


def constant_single_limit(mu_1: float, mu_2: float) -> float:
    """lambda_0 for constant service rates, packets/s."""
    high, low = max(mu_1, mu_2), min(mu_1, mu_2)
    return high - math.sqrt(high * low)


def constant_share(mu_1: float, mu_2: float, load: float) -> float:
    """p* for constant service rates, 0 to 1, at loads below mu_1 + mu_2."""
    if load <= constant_single_limit(mu_1, mu_2):
        return 1.0 if mu_1 > mu_2 else 0.0
    if mu_1 == mu_2:
        return 0.5
    root = math.sqrt(mu_1 * mu_2)
    return (mu_1 * (load - 2.0 * mu_2) + (mu_1 + mu_2 - load) * root) / (load * (mu_1 - mu_2))


def matrix_geometric(queue: TwoStateQueue, load: float) -> float:
    """Mean level of the quasi-birth-death process (Latouche and Ramaswami: logarithmic reduction)."""
    identity, up, down = np.eye(2), load * np.eye(2), np.diag([queue.mu_h, queue.mu_l])
    switching = np.array([[-queue.alpha_h, queue.alpha_h], [queue.alpha_l, -queue.alpha_l]])
    local = switching - up - down
    rise, fall = np.linalg.solve(-local, up), np.linalg.solve(-local, down)
    g, product = fall.copy(), rise.copy()
    for _ in range(60):
        both = rise @ fall + fall @ rise
        rise, fall = (np.linalg.solve(identity - both, x @ x) for x in (rise, fall))
        g, product = g + product @ fall, product @ rise
        if np.abs(product).max() < 1e-17 or np.abs(1 - g.sum(axis=1)).max() < 1e-14:
            break
    r = up @ np.linalg.inv(-(local + up @ g))
    inverse = np.linalg.inv(identity - r)
    equations = np.vstack([(switching - up + r @ down).T, inverse.sum(axis=1)])
    empty = np.linalg.lstsq(equations, np.array([0.0, 0.0, 1.0]), rcond=None)[0]
    return float(empty @ r @ inverse @ inverse @ np.ones(2))


rates = st.floats(1.0, 1000.0)
switching = st.floats(0.01, 100.0)
queues = st.builds(
    lambda mu, part, a, b: TwoStateQueue(mu, mu * part, a, b),
    rates,
    st.one_of(st.just(0.0), st.just(1.0), st.floats(0.0, 1.0)),
    switching,
    switching,
)
loads = st.floats(0.001, 0.98)


@examples(400)
@given(queues, loads)
def test_mean_queue_length_is_that_of_the_markov_chain(queue, part):
    load = part * queue.muhat
    assert mean_queue_length(queue, load) == pytest.approx(matrix_geometric(queue, load), rel=1e-7)


def test_mean_queue_length_is_that_of_a_simulation():
    queue, load = TwoStateQueue(120.0, 15.0, 0.8, 1.7), 60.0
    rng = np.random.default_rng(4)
    means = []
    for _ in range(6):
        packets, high, area, time = 0, True, 0.0, 0.0
        draws = iter(rng.random(1_200_000).tolist())
        while time < 2000.0:
            serving = (queue.mu_h if high else queue.mu_l) if packets else 0.0
            total = load + serving + (queue.alpha_h if high else queue.alpha_l)
            step = -math.log1p(-next(draws)) / total
            area, time = area + packets * step, time + step
            event = next(draws) * total
            if event < load:
                packets += 1
            elif event < load + serving:
                packets -= 1
            else:
                high = not high
        means.append(area / time)
    # The error of the mean of six independent runs is known from their spread.
    error = np.std(means, ddof=1) / math.sqrt(len(means))
    assert error < 0.05 * np.mean(means)
    assert abs(np.mean(means) - mean_queue_length(queue, load)) < 4 * error


@examples(200)
@given(queues, loads)
def test_slope_is_the_derivative_and_rises(queue, part):
    load = part * queue.muhat
    step = 1e-5 * min(load, queue.muhat - load)
    numeric = (mean_queue_length(queue, load + step) - mean_queue_length(queue, load - step)) / (2 * step)
    assert slope(queue, load) == pytest.approx(numeric, rel=1e-4)
    grid = [slope(queue, x) for x in np.linspace(0, 0.999 * queue.muhat, 60)]
    assert all(b >= a * (1 - 1e-9) for a, b in itertools.pairwise(grid))
    assert slope(queue, 0.0) == pytest.approx(mean_delay_s(queue, 0.0), rel=1e-12)


def test_limits():
    constant = TwoStateQueue.constant(50.0)
    assert mean_queue_length(constant, 30.0) == pytest.approx(30 / 20, rel=1e-14)
    assert mean_delay_s(constant, 30.0) == pytest.approx(1 / 20, rel=1e-14)
    # Alternating much faster than packets are served: constant service at the mean rate.
    assert mean_queue_length(TwoStateQueue(80, 20, 1e9, 1e9), 30.0) == pytest.approx(1.5, rel=1e-6)
    # Much more slowly, and either state stable: a mixture of two plain queues.
    slow = TwoStateQueue(80, 20, 1e-9, 3e-9)
    assert mean_queue_length(slow, 10.0) == pytest.approx(0.75 * 10 / 70 + 0.25 * 10 / 10, rel=1e-6)
    # More slowly, and unstable in the low state: the queue is that of a fluid, and grows as 1 / alpha.
    ratio = mean_queue_length(TwoStateQueue(80, 5, 1e-7, 3e-7), 30.0) / mean_queue_length(
        TwoStateQueue(80, 5, 1e-6, 3e-6), 30.0
    )
    assert ratio == pytest.approx(10.0, rel=1e-4)
    # A state that is never left is the only one that counts.
    assert mean_queue_length(TwoStateQueue(50, 10, 0.0, 2.0), 30.0) == pytest.approx(1.5)
    assert mean_queue_length(constant, 50.0) == math.inf
    assert mean_queue_length(constant, 0.0) == 0.0
    # The names of the states do not matter.
    assert mean_queue_length(TwoStateQueue(10, 90, 2, 5), 20) == pytest.approx(
        mean_queue_length(TwoStateQueue(90, 10, 5, 2), 20), rel=1e-13
    )


def test_statistics_are_those_of_the_specification():
    queue = TwoStateQueue(100.0, 20.0, 2.0, 3.0)
    assert queue.muhat == pytest.approx((3 * 100 + 2 * 20) / 5)
    assert queue.variance == pytest.approx((3 * 100**2 + 2 * 20**2) / 5 - queue.muhat**2)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((-1, 1, 1, 1), "mu_h -1"),
        ((1, 1, 1, math.nan), "alpha_l nan"),
        ((2, 1, 0, 0), "both 0"),
        ((0, 0, 1, 1), "mean service rate is 0"),
        ((5, 0, 1, 0), "mean service rate is 0"),
    ],
)
def test_what_is_no_queue_is_refused(numbers, text):
    with pytest.raises(LatencyError, match=text):
        TwoStateQueue(*numbers)


def with_statistics(muhat: float, variance: float, kappa: float, alpha: float) -> TwoStateQueue:
    """A queue of given mean rate, variance and mu_h + mu_l - 2 muhat."""
    root = math.sqrt(kappa**2 + 4 * variance)
    high, low = muhat + (kappa + root) / 2, muhat + (kappa - root) / 2
    share = (muhat - low) / (high - low)
    return TwoStateQueue(high, low, alpha * (1 - share), alpha * share)


moments = st.tuples(st.floats(1.0, 90.0), st.floats(-0.9, 0.9)).map(lambda m: (m[0] ** 2, 100 * m[1]))


@examples(300)
@given(moments, moments, st.floats(0.05, 50.0), loads, st.sampled_from(["free", "variance", "product"]))
def test_the_dominant_queue_wins_at_every_load(one, two, alpha, part, equal):
    muhat = 100.0
    if equal == "variance":
        two = (one[0], two[1])
    elif equal == "product":
        # pi = muhat^2 + muhat kappa - V
        two = (two[0], one[1] + (two[0] - one[0]) / muhat)
    if any(muhat**2 + muhat * kappa < variance for variance, kappa in (one, two)):
        return
    pair = with_statistics(muhat, *one, alpha), with_statistics(muhat, *two, alpha)
    winner = dominant(*pair)
    delays = [mean_delay_s(queue, part * muhat) for queue in pair]
    if winner is not None:
        assert delays[winner] <= delays[1 - winner] * (1 + 1e-9)
    elif equal != "free":
        assert delays[0] == pytest.approx(delays[1], rel=1e-6)


def test_the_larger_variance_can_win_at_low_load_only():
    steady, lively = with_statistics(100, 30**2, -60, 5.0), with_statistics(100, 50**2, 100, 5.0)
    assert lively.variance > steady.variance and dominant(steady, lively) is None
    assert best_single((steady, lively), 1.0) == 1
    assert best_single((steady, lively), 95.0) == 0


def test_best_single_prefers_the_stable_then_the_faster():
    slow, fast = TwoStateQueue.constant(10.0), TwoStateQueue(100.0, 0.0, 0.1, 0.1)
    assert best_single((slow, fast), 5.0) == 0
    assert best_single((slow, fast), 20.0) == 1
    assert best_single((slow, fast), 1000.0) == 1


@examples(200)
@given(rates, rates, loads)
def test_constant_service_has_closed_forms(mu_1, mu_2, part):
    pair = TwoStateQueue.constant(mu_1), TwoStateQueue.constant(mu_2)
    load = part * (mu_1 + mu_2)
    assert single_limit(*pair) == pytest.approx(constant_single_limit(mu_1, mu_2), rel=1e-9, abs=1e-9 * mu_1)
    if abs(mu_1 - mu_2) > 1e-3 * mu_1:
        assert optimal_share(*pair, load) == pytest.approx(constant_share(mu_1, mu_2, load), abs=1e-7)


@examples(150)
@given(queues, queues, loads)
def test_no_split_is_better_than_the_best(first, second, part):
    load = part * (first.muhat + second.muhat)
    split = best_split(first, second, load)
    found = minimize_scalar(lambda p: min(split_delay_s(first, second, load, p), 1e9), bounds=(0, 1), method="bounded")
    others = [split_delay_s(first, second, load, p) for p in (*np.linspace(0, 1, 101), found.x)]
    assert split.delay_s <= min(others) * (1 + 1e-9)
    assert split.delay_s <= split.proportional_delay_s * (1 + 1e-12)
    assert split.proportional_share == pytest.approx(first.muhat / (first.muhat + second.muhat))
    # Theorem 8: one queue alone is best exactly up to lambda_0.
    if abs(load - split.lambda0) > 1e-6 * load:
        assert (split.share in (0.0, 1.0)) == (load < split.lambda0)


def test_proportional_split_can_be_thirteen_times_worse():
    # The published pair: 30 Mb/s steady, 7 and 3 Mb/s for a second each, frames of 1400 bytes, at 29 Mb/s.
    per_mbps = packets_per_s(1.0, 1400.0)
    steady, slow = TwoStateQueue.constant(30 * per_mbps), TwoStateQueue(7 * per_mbps, 3 * per_mbps, 1.0, 1.0)
    split = best_split(steady, slow, 29 * per_mbps)
    assert split.proportional_delay_s / split.delay_s == pytest.approx(13.13, abs=0.01)
    # There is no upper limit: with slower alternation it grows.
    split = best_split(TwoStateQueue.constant(100.0), TwoStateQueue(180.0, 20.0, 0.35, 0.35), 80.0)
    assert split.proportional_delay_s / split.delay_s > 14


@pytest.mark.parametrize("load", [0.0, -1.0, 150.0, 200.0, math.nan, math.inf])
def test_impossible_loads_are_refused(load):
    with pytest.raises(LatencyError, match="load"):
        best_split(TwoStateQueue.constant(100.0), TwoStateQueue.constant(50.0), load)
