"""Two-state fit of traces, the policy with its hysteresis, and ``hyroads latency``."""

import json
import math

import numpy as np
import pytest

from hyroads.controller.cli.main import main
from hyroads.controller.core.latency.fit import fit_rates, packets_per_s
from hyroads.controller.core.latency.policy import LatencyDecision, LatencySettings, best_split, decide, single_limit
from hyroads.controller.core.latency.two_state_queue import LatencyError, TwoStateQueue, mean_delay_s


def trace(queue: TwoStateQueue, count: int, interval_s: float, noise: float, rng) -> tuple[np.ndarray, np.ndarray]:
    """The rate of a queue's service, seen at equal intervals through noise."""
    times = interval_s * np.arange(count)
    high, left, states = True, rng.exponential(1 / queue.alpha_h), []
    for _ in range(count):
        states.append(high)
        left -= interval_s
        while left < 0:
            high = not high
            left += rng.exponential(1 / (queue.alpha_h if high else queue.alpha_l))
    truth = np.where(states, queue.mu_h, queue.mu_l)
    return times, np.maximum(truth + noise * rng.standard_normal(count), 0.0)


@pytest.mark.parametrize("queue", [TwoStateQueue(900, 300, 0.5, 0.2), TwoStateQueue(2000, 0, 0.1, 0.4)])
def test_a_long_trace_gives_the_queue_back(queue):
    rng = np.random.default_rng(8)
    fit = fit_rates(*trace(queue, 6000, 0.2, 60.0, rng))
    assert (fit.states, fit.samples) == (2, 6000)
    assert fit.queue.mu_h == pytest.approx(queue.mu_h, rel=0.02)
    assert fit.queue.mu_l == pytest.approx(queue.mu_l, rel=0.05, abs=40)
    assert fit.queue.alpha_h == pytest.approx(queue.alpha_h, rel=0.2)
    assert fit.queue.alpha_l == pytest.approx(queue.alpha_l, rel=0.2)
    assert fit.queue.muhat == pytest.approx(queue.muhat, rel=0.08)
    if queue.mu_l:
        assert fit.noise == pytest.approx(60.0, rel=0.1)
    assert mean_delay_s(fit.queue, 0.5 * queue.muhat) == pytest.approx(mean_delay_s(queue, 0.5 * queue.muhat), rel=0.3)


def test_outliers_gaps_and_missing_samples_do_not_matter():
    rng = np.random.default_rng(3)
    queue = TwoStateQueue(900, 300, 0.5, 0.2)
    times, rates = trace(queue, 4000, 0.2, 40.0, rng)
    rates[rng.random(4000) < 0.01] = 50_000.0
    rates[rng.random(4000) < 0.05] = np.nan
    times[2000:] += 3600.0
    keep = rng.random(4000) > 0.1
    fit = fit_rates(times[keep], rates[keep])
    assert fit.queue.mu_h == pytest.approx(900, rel=0.03)
    assert fit.queue.mu_l == pytest.approx(300, rel=0.06)
    assert fit.queue.alpha_h == pytest.approx(0.5, rel=0.3)
    assert fit.queue.alpha_l == pytest.approx(0.2, rel=0.3)


def test_constant_rates_have_one_state():
    rng = np.random.default_rng(5)
    times = 0.5 * np.arange(400)
    noisy = fit_rates(times, 500 + 30 * rng.standard_normal(400))
    assert noisy.states == 1 and noisy.queue.variance == 0
    assert noisy.queue.muhat == pytest.approx(500, rel=0.02)
    flat = fit_rates(times, np.full(400, 500.0))
    assert (flat.states, flat.queue.muhat) == (1, 500.0)


def test_the_unit_of_rate_does_not_matter():
    rng = np.random.default_rng(6)
    times, rates = trace(TwoStateQueue(900, 300, 0.5, 0.2), 1500, 0.2, 50.0, rng)
    one, thousand = fit_rates(times, rates), fit_rates(times, 1e3 * rates)
    assert thousand.queue.mu_h == pytest.approx(1e3 * one.queue.mu_h, rel=1e-4)
    assert thousand.queue.alpha_h == pytest.approx(one.queue.alpha_h, rel=1e-3)
    assert packets_per_s(12.0, 1500) == pytest.approx(1000.0)


@pytest.mark.parametrize(
    ("times", "rates", "text"),
    [
        ([1, 2, 3], [1, 2, 3], "8 or more"),
        (range(9), [1] * 8, "as many times"),
        ([*range(8), 7], [1] * 9, "must increase"),
        (range(9), [1] * 8 + [-1], "negative"),
        (range(9), [0] * 9, "0 throughout"),
        (range(9), [math.nan] * 9, "0 samples"),
    ],
)
def test_bad_traces_are_refused(times, rates, text):
    with pytest.raises(LatencyError, match=text):
        fit_rates(list(times), rates)


STEADY, BURSTY = TwoStateQueue.constant(100.0), TwoStateQueue(180.0, 20.0, 0.5, 0.5)


def test_the_policy_uses_one_technology_up_to_lambda0_and_splits_above():
    limit = single_limit(STEADY, BURSTY)
    assert decide(STEADY, BURSTY, 0.9 * limit).single == 0
    assert decide(BURSTY, STEADY, 0.9 * limit).single == 1
    split = decide(STEADY, BURSTY, 1.5 * limit)
    assert split.single is None and split.delay_s == best_split(STEADY, BURSTY, 1.5 * limit).delay_s
    assert decide(STEADY, BURSTY, 0.0).single == 0
    overloaded = decide(STEADY, BURSTY, 250.0)
    assert (overloaded.share, overloaded.delay_s) == (0.5, math.inf)


def test_small_changes_of_load_do_not_move_the_split():
    rng = np.random.default_rng(2)
    decision, changes = decide(STEADY, BURSTY, 60.0), 0
    for _ in range(200):
        load = 60.0 * (1 + 0.05 * rng.standard_normal())
        following = decide(STEADY, BURSTY, load, decision)
        changes += following.share != decision.share
        decision = following
        # What is kept is never more than the tolerance worse than the best.
        assert decision.delay_s <= 1.1 * best_split(STEADY, BURSTY, load).delay_s * (1 + 1e-12)
    assert changes <= 3
    assert decide(STEADY, BURSTY, 120.0, decision).share != decision.share
    # A decision that has become unstable is not kept, whatever it was.
    assert decide(STEADY, BURSTY, 120.0, LatencyDecision(1.0, 0.01)).share < 0.9
    with pytest.raises(LatencyError, match="tolerance"):
        LatencySettings(tolerance=-1)


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    try:
        status = main(["latency", *arguments])
    except SystemExit as end:
        status = end.code
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_command_prints_the_document(capsys):
    status, out, err = run(capsys, "--queue", "100,100,1,1", "--queue", "40,40,1,1", "--load", "60", "--json")
    document = json.loads(out)
    assert (status, err) == (0, "")
    assert list(document) == ["lambda0", "best_single", "p_star", "delay_p_star_s", "p_lim", "delay_p_lim_s"]
    assert document["lambda0"] == pytest.approx(100 - math.sqrt(4000))
    share = (100 * (60 - 80) + (140 - 60) * math.sqrt(4000)) / (60 * 60)
    assert document["p_star"] == pytest.approx(share, abs=1e-9)
    delay = (60 * share / (100 - 60 * share) + 60 * (1 - share) / (40 - 60 * (1 - share))) / 60
    assert document["delay_p_star_s"] == pytest.approx(delay)
    assert (document["best_single"], document["p_lim"]) == (1, pytest.approx(100 / 140))
    assert document["delay_p_lim_s"] == pytest.approx(2 / (140 - 60))


def test_command_prints_a_table(capsys):
    status, out, _ = run(capsys, "--queue", "40,40,1,1", "--queue", "180,20,.5,.5", "--load", "60")
    assert status == 0
    for text in ("queue 2 alone", "best split p*", "proportional p_lim", "lambda_0", "unstable"):
        assert text in out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--queue", "1,1,1,1", "--load", "1"), "two queues, got 1"),
        (("--queue", "1,1,1,1", "--queue", "1,1,1", "--load", "1"), "got 3"),
        (("--queue", "1,1,1,1", "--queue", "1,x,1,1", "--load", "1"), "four numbers"),
        (("--queue", "1,1,1,1", "--queue", "1,-1,1,1", "--load", "1"), "mu_l -1"),
        (("--queue", "1,1,1,1", "--queue", "1,1,1,1", "--load", "2"), "unstable"),
        (("--queue", "1,1,1,1", "--queue", "1,1,1,1", "--load", "nan"), "load nan"),
        (("--queue", "1,1,1,1", "--queue", "1,1,1,1"), "--load"),
    ],
)
def test_bad_arguments_give_one_line_and_status_2(capsys, arguments, text):
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert text in err and err.count("\n") == 1
