"""One probe and what its samples say of an arm; shares of airtime beside others, saturation, the trust of ``auto``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hyroads.controller.control.arm_airtime import (
    Competitor,
    PathSample,
    airtime_shares,
    arm_rows,
    carrier_sensing_of,
    measured_airtime,
    modelled_airtime,
)
from hyroads.controller.control.learned import Trust
from hyroads.controller.control.learner import Saturation
from hyroads.controller.control.probing import (
    MOST_LATE,
    PART_SLOTS,
    PROBE_SHARE,
    ArmProbe,
    BusyReading,
    busy_share,
    new_probe,
)
from hyroads.controller.core.demand import Offer
from hyroads.controller.files.documents import read_file

NETWORK = read_file(Path(__file__).resolve().parents[3] / "mininet" / "networks" / "diamond.yaml")
OVER_B, OVER_C = ("ab-plc", "bd-wifi"), ("ac-wifi5", "cd-wifi5")
ROWS = arm_rows(NETWORK, (OVER_B, OVER_C))
OBSERVERS = tuple(sorted({interface for group in ROWS.groups for interface in group}))
SLOT_S = 0.1


def busy_of(path, rate_mbps: float) -> dict:
    """By hand: every link of the path keeps its whole technology busy for rate / capacity."""
    busy = dict.fromkeys(OBSERVERS, 0.0)
    for name in path:
        link = NETWORK.links[NETWORK.link_index[name]]
        for interface in OBSERVERS:
            if interface[1] == link.technology:
                busy[interface] += rate_mbps / link.capacity_mbps
    return busy


def probed(probe: ArmProbe, busy, received=None) -> ArmProbe:
    """The probe to its end, where ``busy(part)`` is how busy interfaces are."""
    now_s = probe.since_s
    while not probe.done:
        part = probe.parts[0]
        shares = busy(part)
        for _ in range(PART_SLOTS):
            now_s += SLOT_S

            def readings(interface, end_s=now_s, shares=shares):
                times = (end_s - 2 * SLOT_S + 0.05, end_s - 0.03)
                return [BusyReading(t, round(shares[interface] * t * 1e6), round(t * 1e6)) for t in times]

            probe = probe.after(now_s, readings, received(part) if received else {})
    return probe


def test_busy_share_is_over_what_was_read_inside_the_time():
    readings = [BusyReading(1.0, 0, 0), BusyReading(1.1, 20_000, 100_000), BusyReading(1.2, 90_000, 200_000)]
    assert busy_share(readings, 1.15, 1.25) is None
    assert busy_share(readings, 1.05, 1.25) == pytest.approx(0.7)
    assert busy_share(readings, 0.95, 1.15) == pytest.approx(0.2)
    assert busy_share(readings, 1.0, 1.2) == pytest.approx(0.45)


def test_a_probe_measures_capacities_that_it_was_not_told():
    probe = new_probe(ROWS, frozenset(OBSERVERS), [20.0, 12.0], 5.0, silent=False)
    assert [part.rate_mbps for part in probe.parts] == [PROBE_SHARE * 20.0, PROBE_SHARE * 12.0]
    done = probed(probe, lambda part: busy_of(part.path, part.rate_mbps))
    measured = measured_airtime(ROWS, {path: [sample] for path, sample in done.samples.items()})
    # Over c: 1 / (1/30 + 1/20) = 12, and both paths have media of their own.
    assert measured.rates_mbps({}) == pytest.approx((20.0, 12.0), rel=1e-3)
    assert measured.alpha == pytest.approx(modelled_airtime(ROWS, NETWORK).alpha, rel=1e-3, abs=1e-6)


def test_a_silent_part_takes_others_out():
    other = 0.2
    probe = new_probe(ROWS, frozenset(OBSERVERS), [16.0, 9.0], 5.0, silent=True)

    def busy(part):
        own = busy_of(part.path, part.rate_mbps) if part.path else dict.fromkeys(OBSERVERS, 0.0)
        return {interface: share + other for interface, share in own.items()}

    done = probed(probe, busy)
    measured = measured_airtime(ROWS, {path: [sample] for path, sample in done.samples.items()})
    assert measured.rates_mbps({}) == pytest.approx((20.0, 12.0), rel=1e-3)


def test_a_part_that_fills_a_medium_comes_again_at_half_the_rate():
    # The planner believes in twice what there is: at 0.75 of that the medium is full.
    probe = new_probe(ROWS, frozenset(OBSERVERS), [40.0, 12.0], 5.0, silent=False)
    full = probed(probe, lambda part: {i: min(b, 1.0) for i, b in busy_of(part.path, part.rate_mbps).items()})
    assert full.samples[OVER_B].rate_mbps == pytest.approx(PROBE_SHARE * 20.0)
    assert not full.dead


def test_a_path_on_which_nothing_arrives_is_dead_after_some_tries_and_carries_nothing():
    probe = new_probe(ROWS, frozenset(OBSERVERS), [20.0, 12.0], 5.0, silent=False)
    done = probed(
        probe,
        lambda part: busy_of(part.path, part.rate_mbps),
        lambda part: {OVER_B: 0.0} if part.path == OVER_B else {},
    )
    assert done.dead == {OVER_B}
    measured = measured_airtime(ROWS, {path: [sample] for path, sample in done.samples.items()}, done.dead)
    assert measured.rates_mbps({}) == pytest.approx((0.0, 12.0), rel=1e-3)


def test_a_probe_fails_if_neither_busy_times_nor_arrivals_are_known():
    probe, slots = new_probe(ROWS, frozenset(OBSERVERS), [20.0, 12.0], 5.0, silent=False), 0
    while not probe.done:
        slots += 1
        probe = probe.after(5.0 + SLOT_S * slots, lambda interface: (), {})
    assert probe.failed == "neither busy times nor what arrives can be read"
    assert slots == PART_SLOTS + MOST_LATE


def test_a_part_goes_on_while_its_readings_are_late():
    probe = new_probe(ROWS, frozenset(OBSERVERS), [20.0, 12.0], 5.0, silent=False)
    busy = busy_of(OVER_B, 15.0)

    def readings(interface, until_s):
        return [BusyReading(t, round(busy[interface] * t * 1e6), round(t * 1e6)) for t in (5.05, 5.25) if t <= until_s]

    for slot in range(1, 3):
        probe = probe.after(5.0 + SLOT_S * slot, lambda i, slot=slot: readings(i, 5.0 + SLOT_S * slot), {})
    assert probe.rates() == {OVER_B: 15.0}
    assert not probe.measured
    probe = probe.after(5.3, lambda i: readings(i, 5.3), {})
    assert probe.rates() == {OVER_C: 9.0}
    assert probe.samples[OVER_B].busy["a", "plc"] == pytest.approx(0.75, rel=1e-3)


def test_samples_of_a_path_count_for_every_arm_and_many_of_them_take_noise_out():
    rng = np.random.default_rng(4)
    noisy = {
        path: [
            PathSample(10.0, {i: b * (1 + 0.2 * rng.standard_normal()) for i, b in busy_of(path, 10.0).items()})
            for _ in range(40)
        ]
        for path in (OVER_B, OVER_C)
    }
    assert sum(measured_airtime(ROWS, noisy).rates_mbps({})) == pytest.approx(32.0, rel=0.05)
    other = arm_rows(NETWORK, (OVER_C,))
    assert measured_airtime(other, noisy).rates_mbps({}) == pytest.approx((12.0,), rel=0.05)
    assert measured_airtime(arm_rows(NETWORK, (("ac-plc", "cd-wifi"),)), noisy) is None


def test_interfaces_that_hear_the_same_links_of_an_arm_are_one_group():
    hears = carrier_sensing_of(NETWORK)
    wifi = {interface for interface in hears if interface[1] == "wifi"}
    groups = {frozenset(names): set(group) for group, names in zip(ROWS.groups, ROWS.heard, strict=True)}
    assert groups[frozenset({"bd-wifi"})] == wifi
    assert groups[frozenset({"ac-wifi5", "cd-wifi5"})] == {("a", "wifi5"), ("c", "wifi5"), ("d", "wifi5")}


def test_a_share_of_airtime_is_an_equal_one_or_what_modest_flows_and_others_leave():
    quiet, link = np.zeros(3), np.array([0.3, 0.3, 0.0])
    greedy, modest = Competitor(link, greedy=True), Competitor(link / 3, greedy=False)
    assert airtime_shares([], quiet, 0.05) == pytest.approx([0.95] * 3)
    assert airtime_shares([greedy], quiet, 0.05) == pytest.approx([0.475, 0.475, 0.95])
    assert airtime_shares([modest], quiet, 0.05) == pytest.approx([0.85, 0.85, 0.95])
    external = np.array([0.0, 0.0, 0.4])
    assert airtime_shares([], external, 0.05)[2] == pytest.approx(0.55)


def test_a_flow_is_saturated_while_it_uses_its_rates_or_loses_and_falls_short_only_after_a_while():
    idle = Saturation()
    for slot in range(20):
        idle = idle.after(Offer(2.0, 10.0), 2.0, slot * SLOT_S)
    assert idle.is_active(2.0)
    assert not idle.is_saturated(2.0)
    full = Saturation().after(Offer(9.8, 10.0), 9.8, 0.0)
    assert full.is_saturated(0.0)
    assert not full.is_saturated(3.0)
    short, when = Saturation(), None
    for slot in range(60):
        short = short.after(Offer(9.9, 10.0), 5.0, slot * SLOT_S)
        if when is None and short.falls_short(slot * SLOT_S):
            when = slot * SLOT_S
    assert when is not None
    assert 1.0 <= when <= 2.5


def test_auto_needs_two_probes_against_the_model_and_three_for_it():
    trust = Trust()
    trust = trust.after(16.0, 30.0, 0.05, 28.0, 16.0)
    assert trust.model
    trust = trust.after(16.0, 30.0, 0.05, 28.0, 16.0)
    assert not trust.model
    for agreeing in range(3):
        assert not trust.model, agreeing
        trust = trust.after(30.5, 30.0, 0.05, 30.5, 30.5)
    assert trust.model
