"""The slot simulator against queues worked out by hand, laws of queues and the optimum of the rate problem."""

from __future__ import annotations

import random

import numpy as np
import pytest
from rate_cases import network_of

from hyroads.controller.core.network import Network
from hyroads.controller.core.optimum import multipath_optimum_mbps, multipath_rates
from hyroads.controller.core.planner import Planner
from hyroads.controller.study import networks
from hyroads.controller.study.framework import StudyError
from hyroads.controller.study.slots import PACKET_MB, default_slot_s, simulate, without_control_mbps

Links = dict[str, tuple[str, str, str, float]]


def rng() -> np.random.Generator:
    return np.random.default_rng(1)


def chain(*mbps: float, technology: str = "wifi") -> Network:
    ends = [chr(ord("a") + i) for i in range(len(mbps) + 1)]
    return network_of({f"l{i}": (ends[i], ends[i + 1], technology, c) for i, c in enumerate(mbps)})


def test_one_link_sends_one_packet_a_slot() -> None:
    ran = simulate(chain(12.0), [(0,)], 5, rng())
    assert ran.slot_s == pytest.approx(0.001)
    assert ran.delivered[:, 0].tolist() == [1, 2, 3, 4, 5]
    assert ran.queued.tolist() == [0] * 5
    assert ran.path_mbps().tolist() == pytest.approx([12.0])


def test_a_packet_goes_one_hop_a_slot() -> None:
    network = network_of({"x": ("a", "b", "wifi", 12.0), "y": ("b", "c", "plc", 12.0)})
    ran = simulate(network, [(0, 1)], 4, rng())
    assert ran.delivered[:, 0].tolist() == [0, 1, 2, 3]
    assert ran.queued.tolist() == [1, 1, 1, 1]


def test_the_queue_before_a_slow_hop_is_exact() -> None:
    """At 12 Mb/s in and 4 Mb/s out two of three packets stay, but for the slot in which the first is on its way."""
    network = network_of({"x": ("a", "b", "wifi", 12.0), "y": ("b", "c", "plc", 4.0)})
    ran = simulate(network, [(0, 1)], 301, rng())
    assert ran.delivered[-1, 0] == 100
    assert ran.queued[-1] == 201
    assert ran.hops == ((0, 201),)
    assert np.all(np.abs(ran.queued - 2 / 3 * np.arange(1, 302)) < 1.1)


def test_rates_below_the_capacity_wait_at_most_a_slot() -> None:
    network = network_of({"x": ("a", "b", "wifi", 12.0), "y": ("b", "c", "plc", 12.0)})
    ran = simulate(network, [(0, 1)], 1000, rng(), np.array([6.0]))
    assert ran.queued.max() == 1
    assert ran.path_mbps()[0] == pytest.approx(6.0, rel=0.01)


def test_rates_that_change_slot_by_slot() -> None:
    rates = np.zeros((6, 1))
    rates[2] = 36.0
    ran = simulate(chain(12.0), [(0,)], 6, rng(), rates)
    assert ran.queued.tolist() == [0, 0, 2, 1, 0, 0]
    assert ran.delivered[-1, 0] == 3


def test_links_that_interfere_share_the_slots() -> None:
    network = network_of({"x": ("a", "b", "wifi", 12.0), "y": ("c", "d", "wifi", 12.0)})
    ran = simulate(network, [(0,), (1,)], 4000, rng())
    assert ran.delivered[-1].sum() == 4000
    assert ran.path_mbps() == pytest.approx([6.0, 6.0], rel=0.05)


def test_the_middle_of_three_links_in_a_row_gets_what_a_random_order_leaves() -> None:
    """It conflicts with both others, which do not with each other: it sends if it is the first of three."""
    links: Links = {i: (i, i + "'", "wifi", 12.0) for i in "xyz"}
    network = network_of(links, {"conflicts": {"y": ["x", "z"]}})
    ran = simulate(network, [(0,), (1,), (2,)], 9000, rng())
    assert ran.path_mbps() == pytest.approx([8.0, 4.0, 8.0], rel=0.04)
    assert (np.diff(ran.delivered, axis=0)[:, 0] == np.diff(ran.delivered, axis=0)[:, 2]).all()


def test_a_link_serves_its_queues_in_turn() -> None:
    links: Links = {"x": ("a", "b", "wifi", 12.0), "y": ("b", "c", "plc", 12.0), "z": ("b", "c", "moca", 12.0)}
    ran = simulate(network_of(links), [(0, 1), (0, 2)], 1001, rng())
    assert ran.delivered[-1].tolist() == [500, 500]


def test_without_control_a_two_hop_path_of_one_medium_wastes_half_of_it() -> None:
    """Both hops send in half of the slots: with 2 : 1 as capacities a third of what the first sends stays for ever."""
    ran = simulate(chain(24.0, 12.0), [(0, 1)], 20_000, rng())
    assert ran.path_mbps(2000)[0] == pytest.approx(6.0, rel=0.03)
    assert ran.queued[-1] * PACKET_MB / (20_000 * ran.slot_s) == pytest.approx(6.0, rel=0.05)
    late, early = ran.queued[-1] - ran.queued[9999], ran.queued[9999]
    assert late == pytest.approx(early, rel=0.1)


def test_at_a_rate_below_the_optimum_queues_stay_small_and_nothing_is_lost() -> None:
    network = chain(24.0, 12.0)
    rates = multipath_rates(network, [(0, 1)], margin=0.05)
    assert rates.tolist() == pytest.approx([7.6])
    ran = simulate(network, [(0, 1)], 20_000, rng(), rates)
    assert ran.queued[10_000:].mean() < 60
    assert ran.path_mbps(10_000)[0] == pytest.approx(7.6, rel=0.02)
    given = int(7.6 * 20_000 * ran.slot_s / PACKET_MB)
    assert ran.delivered[-1, 0] + ran.queued[-1] == pytest.approx(given, abs=1)


@pytest.mark.parametrize("seed", range(4))
def test_random_networks(seed: int) -> None:
    """With the rates of the optimum all arrives; without control a flow gets no more than the optimum of its paths."""
    draw = random.Random(seed)
    network = networks.residential(draw)
    source, target = networks.endpoints(network, draw)
    paths = Planner(network, clients_relay=True).plan(source, target).multipath.links
    ran = simulate(network, paths, 8000, rng(), multipath_rates(network, paths, margin=0.1))
    assert ran.path_mbps(4000).sum() == pytest.approx(0.9 * multipath_optimum_mbps(network, paths), rel=0.03)
    assert ran.queued[4000:].mean() < 100
    free = without_control_mbps(network, paths, rng(), 8000)
    assert free.sum() <= 1.02 * multipath_optimum_mbps(network, paths)
    assert free.sum() > 0


def test_a_seed_repeats_a_run() -> None:
    network = chain(24.0, 12.0)
    first, second = (simulate(network, [(0, 1)], 3000, rng()) for _ in range(2))
    assert (first.queued == second.queued).all()
    assert (first.delivered == second.delivered).all()


def test_a_slot_may_have_any_length() -> None:
    """Ten packets a slot deliver the same as one."""
    network = chain(24.0, 12.0)
    ran = simulate(network, [(0, 1)], 5000, rng(), slot_s=10 * default_slot_s(network, [(0, 1)]))
    assert ran.path_mbps(500)[0] == pytest.approx(6.0, rel=0.05)


@pytest.mark.parametrize(
    ("paths", "rates", "slots", "message"),
    [
        ([()], None, 10, "path 0"),
        ([(0,)], np.array([1.0, 2.0]), 10, "shape"),
        ([(0,)], np.array([-1.0]), 10, "rates"),
        ([(0,)], np.array([np.nan]), 10, "rates"),
        ([(0,)], None, 0, "slots"),
    ],
)
def test_bad_input(paths: list[tuple[int, ...]], rates: np.ndarray | None, slots: int, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        simulate(chain(12.0), paths, slots, rng(), rates)


def test_a_link_of_capacity_0() -> None:
    network = chain(12.0).with_capacities({"l0": 0.0})
    with pytest.raises(StudyError, match="capacity 0"):
        simulate(network, [(0,)], 10, rng())


def test_flows_of_different_sources() -> None:
    """Two flows into one access point: neither starves the other, and their sum is what the medium carries."""
    network = network_of({"x": ("a", "c", "wifi", 12.0), "y": ("b", "c", "wifi", 24.0)})
    assert without_control_mbps(network, [(0,), (1,)], rng()) == pytest.approx([6.0, 12.0], rel=0.05)


def test_packets_cost_no_more_airtime_than_they_take() -> None:
    """A fast link with one packet at a time does not use up the 5 % of airtime that are free.

    At 0.7 packets a slot packets end within a slot: were the rest of it lost, ten packets would wait instead of one.
    """
    network = network_of({"x": ("a", "b", "wifi", 42.0), "y": ("c", "d", "wifi", 12.0), "z": ("e", "f", "plc", 60.0)})
    rates = np.array([0.4 * 42.0, 0.55 * 12.0, 60.0])
    ran = simulate(network, [(0,), (1,), (2,)], 30_000, rng(), rates)
    assert ran.queued[15_000:].mean() < 2
    assert ran.path_mbps(15_000) == pytest.approx(rates, rel=0.02)
