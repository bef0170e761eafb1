"""What a slot keeps as arrays says the same as what it is made of: random sequences, against the plain form."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from examples import seeds

from hyroads.controller.control.path_rates import FlowPaths, ToldPaths
from hyroads.controller.core.addressing import PathName
from hyroads.controller.core.closed_loop import InForce, LoopState, Measurements, to_push
from hyroads.controller.core.closed_loop import slot as one_slot
from hyroads.controller.core.demand import Demands, Offer
from hyroads.controller.core.estimate.busy_time import (
    BusyShares,
    CarrierSensing,
    ExternalAirtime,
    Interface,
    Interfaces,
    latest,
)
from hyroads.controller.core.estimate.filters import FilterSettings
from hyroads.controller.core.estimate.link_estimate import LinkEstimator, LinkSettings, Sample, Samples, Source
from hyroads.controller.core.infer.topology import NeighbourTables
from hyroads.controller.core.netfile import parse
from hyroads.controller.core.network import FlowSpec
from hyroads.controller.core.rates import Layout, RateProblem, rate_problem, solve
from hyroads.controller.core.rates.allocation import duality_gap
from hyroads.controller.core.rates.reduction import reduce_problem
from hyroads.controller.core.rates.solver import pattern_of
from hyroads.controller.model.handover import PathGroups

TRIANGLE = parse(
    {
        "nodes": {"a": {"role": "gateway"}, "b": {"role": "ap"}, "c": {"role": "client"}},
        "links": [
            {"id": "ab-plc", "from": "a", "to": "b", "technology": "plc", "capacity_mbps": 10},
            {"id": "ab-wifi", "from": "a", "to": "b", "technology": "wifi", "capacity_mbps": 15},
            {"id": "bc-wifi", "from": "b", "to": "c", "technology": "wifi", "capacity_mbps": 30},
        ],
        "interference": {"rule": "technology"},
    },
    "test",
)
HYBRID: dict[str, list[tuple[int, ...]]] = {"f": [(0, 2), (1, 2)]}
TECHNOLOGY = {link.id: link.technology for link in TRIANGLE.links}
INTERFACES = Interfaces([(node, technology) for node in "abc" for technology in ("plc", "wifi")])
LINKS = {f"l{number}": "wifi" for number in range(6)}


@pytest.mark.parametrize("seed", seeds(20))
def test_busy_shares_as_columns_give_the_external_airtime_of_those_by_name(seed: int) -> None:
    rng = random.Random(seed)
    observers = [("a", "wifi"), ("c", "wifi"), ("b", "plc")]
    columns = named = ExternalAirtime(CarrierSensing.of(TRIANGLE, observers))
    last: dict[Interface, float] = {}
    last_columns: BusyShares | dict[Interface, float] = {}
    for slot in range(30):
        told = {name: rng.random() for name in INTERFACES.names if rng.random() < 0.7}
        share = np.array([told.get(name, math.nan) for name in INTERFACES.names])
        busy = BusyShares(INTERFACES, share)
        assert dict(busy) == told and len(busy) == len(told)
        own = np.array([rng.random() / 2 for _ in observers])
        if slot % 11 == 7:
            rng.shuffle(observers)
            sensing = CarrierSensing.of(TRIANGLE, observers)
            columns, named = columns.with_carrier_sensing(sensing), named.with_carrier_sensing(sensing)
        columns, named = columns.after(busy, own, slot / 10), named.after(told, own, slot / 10)
        assert columns.per_link(slot / 10).tolist() == named.per_link(slot / 10).tolist()
        assert columns.stale(slot / 10 + 1) == named.stale(slot / 10 + 1)
        last.update(told)
        last_columns = latest(last_columns, busy)  # type: ignore[assignment]
        assert dict(last_columns) == last


@pytest.mark.parametrize("seed", seeds(20))
def test_samples_as_columns_give_the_estimates_of_single_ones(seed: int) -> None:
    """In an order of times of each interface's own, some links twice, and with other sources between."""
    rng = random.Random(seed)
    settings = LinkSettings(filter=FilterSettings(tau_s=0.5), stale_s=0.4, gone_s=1.5)
    columns = single = LinkEstimator(LINKS, settings)
    for slot in range(8):
        now_s = slot / 10
        at = [number for number in range(len(LINKS)) if rng.random() < 0.7]
        at += rng.sample(at, rng.randrange(len(at) + 1)) if rng.random() < 0.3 else []
        mbps = [rng.choice((0.0, 5.0, 9.0, 10.0, 40.0)) for _ in at]
        times_s = [now_s - rng.random() / 10 for _ in at]
        others = tuple(
            Sample(rng.choice(list(LINKS)), rng.choice(list(Source)), rng.choice((7.0, 20.0)), now_s)
            for _ in range(rng.choice((0, 0, 0, 2)))
        )
        told = Samples(
            tuple(LINKS), Source.MODULATION, np.array(at, dtype=np.intp), np.array(mbps), np.array(times_s), others
        )
        columns = columns.after(told)
        for sample in sorted(told, key=lambda each: each.time_s):
            single = single.after([sample])
        for later_s in (0.0, 0.5, 1.2):
            mine, plain = columns.estimates(now_s + later_s), single.estimates(now_s + later_s)
            assert dict(mine) == dict(plain) and mine.qualities() == plain.qualities()
            planned = mine.planned_mbps(0.5, tuple(LINKS))
            assert planned.tolist() == [
                (0.5 if each.quality == "stale" else 1.0) * (each.capacity_mbps or 0.0) for each in plain.values()
            ]


def problem_of(paths: dict[str, list[tuple[int, ...]]], like: Layout | None = None) -> RateProblem:
    return rate_problem(TRIANGLE, paths, flows=[FlowSpec(flow, "", "") for flow in paths], margin=0.05, like=like)


class Row:
    def __init__(self, mac: str, last_heard_ms: int) -> None:
        self.mac, self.last_heard_ms = mac, last_heard_ms


@pytest.mark.parametrize("seed", seeds(20))
def test_tables_taken_together_say_what_each_alone_says(seed: int) -> None:
    rng = random.Random(seed)
    interface_of = {f"02:00:00:00:00:{at:02x}": name for at, name in enumerate(INTERFACES.names)}

    def node_of(technology: str, mac: str) -> str | None:
        interface = interface_of.get(mac)
        return interface[0] if interface is not None and interface[1] == technology else None

    together, alone = NeighbourTables(node_of, INTERFACES), NeighbourTables(node_of, INTERFACES)
    last: dict[Interface, tuple[Row, ...]] = {}
    now_s = 0.0
    for _ in range(80):
        now_s += rng.choice((0.1, 0.5, 0.5, 2.0, 6.0))
        came = [name for name in INTERFACES.names if rng.random() < 0.7]
        other = [name for name in came if name not in last or rng.random() < 0.1]
        for name in other:
            macs = [mac for mac, of in interface_of.items() if of[1] == name[1] and rng.random() < 0.6]
            last[name] = tuple(Row(mac, rng.choice((0, 5, 3000, 6000))) for mac in macs)
            together.take(name, now_s, last[name])
        again = np.array([INTERFACES.place_of[name] for name in came if name not in other], dtype=np.intp)
        # Some come late, after a newer one.
        times_s = np.array([now_s - rng.choice((0.0, 0.0, 1.0)) for _ in again])
        together.take_again(again, times_s)
        late_s = dict(zip(again.tolist(), times_s.tolist(), strict=True))
        for name in came:
            alone.take(name, late_s.get(INTERFACES.place_of[name], now_s), last[name])
        before = together.hears(now_s)
        assert before == alone.hears(now_s) and together.hears(now_s) is before


MANY: dict[str, list[tuple[int, ...]]] = {**HYBRID, "g": [(0,)], "h": [(2,), (1, 2)], "i": [(1,), (0,)]}
SOME = {**{flow: [paths[:1], paths] for flow, paths in MANY.items()}, "none": [MANY["f"][:0]]}
Rates = dict[str, tuple[float, ...]]


def assert_in_force(state: LoopState, pushed: Rates) -> None:
    found, plain = state.in_force, InForce.of(pushed, state.problem.layout)
    assert state.pushed == found.pushed == pushed and found.layout is plain.layout
    np.testing.assert_array_equal(found.mbps, plain.mbps)
    assert found.is_known.tolist() == plain.is_known.tolist() and found.is_new.tolist() == plain.is_new.tolist()


def given_by_name(before: Rates, push: Rates, rates: Rates) -> tuple[Rates, Rates]:
    """By flow: the rates in force after a slot, and those to send, if some flows get others than ``push`` says."""
    differing = {flow: given for flow, given in rates.items() if before.get(flow) != given}
    remaining = {flow: given for flow, given in push.items() if flow not in rates}
    return {**before, **push, **rates}, {**remaining, **differing}


@pytest.mark.parametrize("seed", seeds(20))
def test_rates_in_force_as_arrays_are_those_by_flow(seed: int) -> None:
    """Flows come, go and get other paths; some have fixed rates, or others than the slot found, or nearly none."""
    rng = random.Random(seed)
    state = LoopState(
        TRIANGLE, problem_of({}), LinkEstimator(TECHNOLOGY), ExternalAirtime(CarrierSensing.of(TRIANGLE, ())), Demands()
    ).with_problem(problem_of(MANY))
    poor = 0
    for slot_number in range(25):
        if rng.random() < 0.4:
            some = rng.sample(sorted(SOME), rng.randrange(1, len(SOME) + 1))
            # The very same paths, so that layouts have them in common.
            paths = {flow: rng.choice(SOME[flow]) for flow in some}
            like = state.problem.layout if rng.random() < 0.8 else None
            before = state
            state = state.with_problem(problem_of(paths, like))
            same = {f: r for f, r in before.pushed.items() if f in paths and len(r) == len(paths[f])}
            assert_in_force(state, same)
            if rng.random() < 0.4:
                gone = {flow for flow in ("f", "none", "elsewhere", "i") if rng.random() < 0.4}
                state = state.without_rates(gone)
                assert_in_force(state, {flow: rates for flow, rates in same.items() if flow not in gone})
        if rng.random() < 0.2:
            odd = {flow: tuple(rng.random() for _ in range(rng.randrange(4))) for flow in ("f", "g", "elsewhere")}
            state = replace(state, pushed={**state.pushed, **odd})
        layout, pushed = state.problem.layout, dict(state.pushed)
        sizes = {
            flow: where.stop - where.start for flow, where in zip(layout.flow_ids, layout.path_slices(), strict=True)
        }
        fixed = {
            flow: tuple(rng.choice((0.0, 0.02, 1.0)) for _ in range(sizes[flow]))
            for flow in sizes
            if rng.random() < 0.2
        }
        mbps = [rng.choice((0.0, 0.05, link.capacity_mbps)) for link in TRIANGLE.links]
        samples = [
            Sample(link.id, Source.CONFIGURED, c, slot_number / 10)
            for link, c in zip(TRIANGLE.links, mbps, strict=True)
        ]
        offers = {flow: Offer(0.0, 1.0) for flow in sizes if rng.random() < 0.3}
        found = one_slot(state, Measurements(samples, offers=offers), slot_number / 10, fixed=fixed)
        push = to_push(pushed, found.allocation, state.settings, fixed)
        expected, to_send = given_by_name(pushed, push, {})
        assert (found.state.pushed, found.push) == (expected, to_send)
        other = {
            flow: tuple(rng.choice((0.0, 3.0)) for _ in range(sizes[flow])) for flow in sizes if rng.random() < 0.2
        }
        other |= {f: given for f, given in pushed.items() if len(given) == sizes.get(f) and rng.random() < 0.2}
        expected, to_send = given_by_name(pushed, push, other)
        result = found.giving(other)
        assert (result.state.pushed, result.push) == (expected, to_send)
        least = {
            flow: (0.1, *(0.0,) * (sizes[flow] - 1))
            for flow in sizes
            if sizes[flow] and sum(expected[flow]) < 0.05 and flow not in fixed
        }
        expected, to_send = given_by_name(pushed, push, {**other, **least})
        result = result.giving_least(0.1, fixed)
        assert (result.state.pushed, result.push) == (expected, to_send)
        assert list(result.state.pushed) == list(expected)
        poor, state = poor + len(least), result.state
        # A state that was made otherwise does not use what it no longer is.
        assert_in_force(state, expected)
        assert_in_force(replace(state, pushed=dict(expected)), expected)
    assert poor


@pytest.mark.parametrize("seed", seeds(20))
def test_rates_of_path_groups_are_found_where_they_are_told(seed: int) -> None:
    """Also while others are told than there are, in another order, or of groups of several paths."""
    rng = random.Random(seed)
    links = [(name,) for name in "abcd"]
    order: dict[str, tuple[PathName, ...]] = {}
    groups: dict[str, PathGroups] = {}
    paths, last = FlowPaths.of(()), None
    for _ in range(60):
        for flow in rng.sample("fghij", rng.choice((0, 0, 1, 2))):
            order, groups = ({k: v for k, v in each.items() if k != flow} for each in (order, groups))  # type: ignore[assignment]
            if rng.random() < 0.7:
                order[flow] = tuple(rng.sample(links, rng.randrange(4)))
                many = range(len(order[flow]))
                groups[flow] = (tuple(many),) if many and rng.random() < 0.2 else tuple((i,) for i in many)
        if rng.random() < 0.7:
            told = {flow: each if rng.random() < 0.8 else tuple(links[:2]) for flow, each in order.items()}
            names = [(flow, path) for flow, each in told.items() if rng.random() < 0.9 for path in each]
            paths = FlowPaths.of(rng.sample(names, len(names)) if rng.random() < 0.2 else names)
        mbps = np.array([rng.choice((math.nan, rng.random())) for _ in paths.names])
        known = dict(zip(paths.names, mbps.tolist(), strict=True))
        last = ToldPaths.of(paths, order, groups, last)
        of_paths = {flow: [known.get((flow, path), math.nan) for path in order[flow]] for flow in order}
        expected = [[of_paths[flow][i] for i in group] for flow in order for group in groups[flow]]
        found = [math.nan if any(map(math.isnan, each)) else max(each) for each in expected]
        np.testing.assert_array_equal(last.of_groups(mbps), np.array(found))


@pytest.mark.parametrize("seed", seeds(10))
def test_prices_of_paths_are_the_sums_over_the_rows_that_they_cross(seed: int) -> None:
    rng = random.Random(seed)
    problem = problem_of({**HYBRID, "g": [(0,)], "h": [(2,)]})
    reduced = reduce_problem(problem, pattern_of(problem.layout))
    prices = np.array([rng.choice((0.0, rng.random())) for _ in reduced.budget])
    rows = reduced.rows.toarray()[reduced.domain_of] * reduced.airtime / reduced.budget[:, None]
    assert reduced.path_prices(prices) == pytest.approx(reduced.routing.toarray() @ (rows.T @ prices), abs=1e-12)
    # At the optimum's own prices nothing is missed; at others the bound is no smaller than what there is.
    best = solve(problem)
    assert best.gap_utility <= 1e-6 * abs(best.utility)
    rates = best.path_rates_mbps[reduced.columns]
    assert duality_gap(reduced, rates, prices + 0.01) >= 0.0
