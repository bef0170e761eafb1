"""Probes of arms with media that have no busy times, such as power lines: what arrives stands in for them."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from live_medium import DIAMOND, LiveMedium, bandit, diamond

from hyroads.controller.api.network import health_document
from hyroads.controller.control.arm_airtime import PathSample, arm_rows, mean_airtime, measured_airtime
from hyroads.controller.control.learned import parse_learned
from hyroads.controller.control.learner import POLICIES
from hyroads.controller.control.probing import (
    MOST_LATE,
    MOST_TRIES,
    PART_SLOTS,
    PROBE_SHARE,
    REPORT_LATE,
    ArmProbe,
    BusyReading,
    new_probe,
)
from hyroads.controller.control.slots import SlotClock
from hyroads.controller.core.network import Policy
from hyroads.controller.core.optimum import multipath_optimum_mbps
from hyroads.controller.files.documents import read_file
from hyroads.controller.settings.controller import Settings

NETWORK = read_file(Path(__file__).resolve().parents[3] / "mininet" / "networks" / "diamond.yaml")
OVER_B, OVER_C = ("ab-plc", "bd-wifi"), ("ac-wifi5", "cd-wifi5")
ALSO_PLC = ("ac-plc", "cd-wifi5")
INTERFACES = tuple(sorted({(node, link.technology) for link in NETWORK.links for node in (link.source, link.target)}))
SLOT_S = 0.1


class Air:
    """A fluid medium: each link makes its technology busy; interfaces in ``unread`` have counters that never move."""

    def __init__(self, unread, factor: float = 1.0, others=None) -> None:
        self.unread, self.others = frozenset(unread), others or {}
        self.capacity = {link.id: factor * link.capacity_mbps for link in NETWORK.links}

    def busy(self, part) -> dict[str, float]:
        busy = dict(self.others)
        for name in part.path or ():
            technology = NETWORK.links[NETWORK.link_index[name]].technology
            busy[technology] = busy.get(technology, 0.0) + part.rate_mbps / self.capacity[name]
        return busy

    def after(self, probe: ArmProbe, now_s: float) -> ArmProbe:
        part = probe.parts[0]
        busy = self.busy(part)

        def readings(interface):
            times = (probe.since_s + 0.05, now_s - 0.03)
            if interface in self.unread:
                return [BusyReading(t, 0, 0) for t in times]
            share = min(busy.get(interface[1], 0.0), 1.0)
            return [BusyReading(t, round(share * t * 1e6), round(t * 1e6)) for t in times]

        received = {}
        if part.path is not None:
            own = {t: busy[t] - self.others.get(t, 0.0) for t in busy}
            through = min([1.0, *((1 - self.others.get(t, 0.0)) / own[t] for t in own if own[t])])
            received = {part.path: part.rate_mbps * through}
        return probe.after(now_s, readings, received)

    def run(self, probe: ArmProbe) -> tuple[ArmProbe, int]:
        """The probe when it is over, and how many slots it took."""
        slots = 0
        while not probe.done:
            slots += 1
            assert slots < 1000
            probe = self.after(probe, probe.since_s + SLOT_S * (PART_SLOTS - probe.left + probe.late + 1))
        return probe, slots


def plc() -> set[tuple[str, str]]:
    return {interface for interface in INTERFACES if interface[1] == "plc"}


def probe_of(arm, best_mbps, **known) -> ArmProbe:
    rows = arm_rows(NETWORK, arm)
    observers = frozenset(interface for group in rows.groups for interface in group)
    return new_probe(rows, observers, best_mbps, 5.0, **{"silent": False, **known})


def rates(probe: ArmProbe) -> tuple[float, ...]:
    samples = {path: [sample] for path, sample in probe.samples.items()}
    measured = measured_airtime(probe.rows, samples, probe.dead)
    assert measured is not None
    return measured.rates_mbps({})


@pytest.mark.parametrize("factor", [0.7, 1.0, 1.4])
def test_capacity_of_a_path_over_a_power_line_follows_from_what_arrives(factor: float) -> None:
    probe, _ = Air(plc(), factor).run(probe_of((OVER_B, OVER_C), [20.0, 12.0]))
    assert rates(probe) == pytest.approx((20.0 * factor, 12.0 * factor), rel=0.05)
    assert probe.samples[OVER_B].unmeasured == {i for i in plc() if i in probe.observers}
    assert probe.unread == probe.samples[OVER_B].unmeasured


def test_probes_in_which_too_little_arrived_do_not_lower_the_capacity_of_an_unmeasured_medium() -> None:
    interface = ("a", "plc")

    def airtime(arrived_mbps, unmeasured=frozenset({interface})) -> float:
        samples = [PathSample(20.0, {interface: 20.0 / mbps}, unmeasured) for mbps in arrived_mbps]
        found = mean_airtime(samples, (interface,))
        assert found is not None and found[1] == (not unmeasured)
        return found[0]

    assert 1 / airtime([19.0, 3.0, 19.5, 20.0, 8.0]) == pytest.approx(19.0)
    # Noise of what is read goes in both directions: the mean is best.
    assert airtime([20.0, 10.0], frozenset()) == pytest.approx((1 / 20 + 1 / 10) / 2)


def test_paths_that_share_an_unmeasured_medium_contend_for_it() -> None:
    arm = (OVER_B, ALSO_PLC)
    best = [min_capacity(path) for path in arm]
    probe, _ = Air(plc()).run(probe_of(arm, best))
    found = rates(probe)
    assert sum(found) <= max(best) * 1.02
    assert sum(found) == pytest.approx(max(best), rel=0.05)


def min_capacity(path) -> float:
    links = [NETWORK.links[NETWORK.link_index[name]] for name in path]
    return min(
        1 / sum(1 / link.capacity_mbps for link in links if link.technology == technology)
        for technology in {link.technology for link in links}
    )


@pytest.mark.parametrize("arm", [(OVER_B,), (OVER_B, OVER_C), (OVER_B, ALSO_PLC)])
def test_a_probe_ends_within_a_bounded_number_of_slots_whatever_is_read_and_arrives(arm) -> None:
    rng = np.random.default_rng(7)
    most = (MOST_TRIES * len(arm) + 1) * (PART_SLOTS + MOST_LATE)
    for _ in range(60):
        probe = probe_of(arm, rng.uniform(1, 60, len(arm)), silent=bool(rng.integers(2)))
        chance, slots = rng.uniform(size=3), 0
        while not probe.done:
            slots += 1
            now_s = 5.0 + SLOT_S * slots
            share = rng.uniform(0, 1.1)

            def readings(interface, now_s=now_s, share=share, chance=chance):
                if rng.uniform() < chance[0]:
                    return ()
                active = rng.uniform() < chance[1]
                return [
                    BusyReading(t, round(share * t * 1e6) * active, round(t * 1e6) * active)
                    for t in (now_s - 0.12, now_s - 0.03)
                ]

            path = probe.parts[0].path
            received = {path: rng.uniform(0, 40)} if path and rng.uniform() < chance[2] else {}
            probe = probe.after(now_s, readings, received)
            assert slots <= most
        assert probe.failed or {*probe.samples} | probe.dead == {*arm}
        assert all(np.isfinite(sample.rate_mbps) and sample.rate_mbps > 0 for sample in probe.samples.values())


def test_no_part_waits_for_an_interface_that_is_known_to_be_silent() -> None:
    air = Air(plc())
    first, slots = air.run(probe_of((OVER_B, OVER_C), [20.0, 12.0]))
    again, fewer = air.run(probe_of((OVER_B, OVER_C), [20.0, 12.0], unread=first.unread))
    # Two parts of the path over the power line, each long enough for a report, and one of the other path.
    assert fewer == 2 * (PART_SLOTS + REPORT_LATE) + PART_SLOTS
    assert slots == fewer + MOST_LATE - REPORT_LATE
    assert rates(again) == rates(first)


def test_an_interface_that_is_read_again_counts_as_measured() -> None:
    first, _ = Air(plc()).run(probe_of((OVER_B, OVER_C), [20.0, 12.0]))
    again, slots = Air(()).run(probe_of((OVER_B, OVER_C), [20.0, 12.0], unread=first.unread))
    assert (again.unread, slots) == (frozenset(), 2 * PART_SLOTS)
    assert not any(sample.unmeasured for sample in again.samples.values())
    # The newest sample decides which kind counts.
    both = {path: [first.samples[path], again.samples[path]] for path in (OVER_B, OVER_C)}
    alone = {path: [again.samples[path]] for path in (OVER_B, OVER_C)}
    assert measured_airtime(again.rows, both).alpha[0, 0] == measured_airtime(again.rows, alone).alpha[0, 0]


def test_with_busy_times_readable_each_path_has_one_part_at_the_probe_share() -> None:
    probe, slots = Air(()).run(probe_of((OVER_B, OVER_C), [20.0, 12.0]))
    assert [(part.rate_mbps, part.tries, part.raised) for part, _ in probe.measured] == [
        (PROBE_SHARE * 20.0, 1, False),
        (PROBE_SHARE * 12.0, 1, False),
    ]
    assert (slots, probe.delivered_mbps, probe.unread) == (2 * PART_SLOTS, {}, frozenset())


def test_other_traffic_on_an_unmeasured_medium_is_not_taken_for_a_lack_of_capacity() -> None:
    air = Air(plc(), others={"plc": 0.5})
    probe, _ = air.run(probe_of((OVER_B,), [20.0], occupied={"ab-plc": 0.5}))
    assert rates(probe) == pytest.approx((20.0,), rel=0.05)


@pytest.mark.parametrize("policy", [Policy.HYMAB, Policy.HYMAB_PLUS])
def test_every_arm_has_a_reward_and_they_are_in_the_right_order(policy: Policy) -> None:
    world = without_power_line_readings(diamond(policy))
    # The model is wrong: the power line carries half, so the order of the arms is another one.
    for link in world.true_mbps:
        world.true_mbps[link] *= 0.5 if "plc" in link else 1.0
    world.run(25)
    said = bandit(world)
    arms = world.learning._learners["f1"].arms
    true = [true_optimum_mbps(world, arm) for arm in arms]
    found = [arm["mean_mbps"] for arm in said["arms"]]
    assert all(found)
    assert found == pytest.approx([0.95 * each for each in true], rel=0.03)
    for one, other in combinations(range(len(arms)), 2):
        if abs(true[one] - true[other]) > 0.05 * max(true):
            assert (found[one] > found[other]) == (true[one] > true[other])
    assert said["arm"] == int(np.argmax(true)) or true[said["arm"]] > 0.95 * max(true)
    assert said["problem"].startswith("no busy time at a plc, ")
    assert world.learning.without_busy_time() == {(node, "plc") for node in "abc"}
    health = health_document(world.loop, SlotClock(0.1, lambda: 0.0), Settings("diamond.yaml"))
    assert health["without_busy_time"] == ["a plc", "b plc", "c plc"]


def without_power_line_readings(world: LiveMedium) -> LiveMedium:
    read = world.readings
    world.readings = lambda i: [] if i[1] == "plc" else read(i)  # type: ignore[method-assign]
    return world


def true_optimum_mbps(world: LiveMedium, arm) -> float:
    network = DIAMOND.network.with_capacities(world.true_mbps)
    return multipath_optimum_mbps(network, [tuple(network.link_index[name] for name in path) for path in arm])


def test_the_next_leader_knows_which_interfaces_are_unread_and_reads_older_documents() -> None:
    world = without_power_line_readings(diamond(Policy.HYMAB))
    world.run(6)
    known = world.learning.learned["f1"]
    document = json.loads(json.dumps(known.document()))
    named = {policy.value: how for policy, how in POLICIES.items()}
    read = parse_learned(document, named)
    assert read.unread == known.unread == world.learning.without_busy_time() != frozenset()
    newest = {path: samples[-1].unmeasured for path, samples in known.samples.items()}
    assert {path: samples[-1].unmeasured for path, samples in read.samples.items()} == newest
    assert any(newest.values())
    del document["unread"]
    document["samples"] = [[row[:3] for row in rows] for rows in document["samples"]]
    older = parse_learned(document, named)
    assert older.unread == frozenset()
    assert not any(sample.unmeasured for samples in older.samples.values() for sample in samples)
