"""What a slot keeps as arrays says the same as what it is made of: random sequences, against the plain form."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from examples import seeds

from hyroads.controller.core.closed_loop import InForce, LoopState
from hyroads.controller.core.demand import Demands
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
from hyroads.controller.core.rates import RateProblem, rate_problem, solve
from hyroads.controller.core.rates.allocation import duality_gap
from hyroads.controller.core.rates.reduction import reduce_problem
from hyroads.controller.core.rates.solver import pattern_of

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
HYBRID = {"f": [(0, 2), (1, 2)]}
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


def problem_of(paths: dict[str, list[tuple[int, ...]]]) -> RateProblem:
    return rate_problem(TRIANGLE, paths, flows=[FlowSpec(flow, "", "") for flow in paths], margin=0.05)


class Row:
    def __init__(self, mac: str, last_heard_ms: int) -> None:
        self.mac, self.last_heard_ms = mac, last_heard_ms


@pytest.mark.parametrize("seed", seeds(20))
def test_tables_taken_together_say_what_each_alone_says(seed: int) -> None:
    rng = random.Random(seed)
    interface_of = {f"02:00:00:00:00:{at:02x}": name for at, name in enumerate(INTERFACES.names)}
    together, alone = NeighbourTables(interface_of, INTERFACES), NeighbourTables(interface_of)
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


@pytest.mark.parametrize("seed", seeds(20))
def test_rates_in_force_as_an_array_follow_those_by_flow(seed: int) -> None:
    rng = random.Random(seed)
    problem = problem_of({**HYBRID, "g": [(0,)], "none": []})
    layout = problem.layout
    external = ExternalAirtime(CarrierSensing.of(TRIANGLE, ()))
    state = LoopState(TRIANGLE, problem, LinkEstimator({}), external, Demands())
    sizes = {"f": 2, "g": 1, "none": 0, "elsewhere": 3}
    for _ in range(40):
        some = rng.sample(sorted(sizes), rng.randrange(4))
        lengths = {flow: sizes[flow] if rng.random() < 0.9 else rng.randrange(4) for flow in some}
        changed = {flow: tuple(rng.random() for _ in range(length)) for flow, length in lengths.items()}
        before, pushed = state, {**state.pushed, **changed}
        known = before.in_force.mbps.tolist()
        state = state.pushing(changed)
        assert state.pushed == pushed and before.in_force.mbps.tolist() == pytest.approx(known, nan_ok=True)
        # A state that was made otherwise does not use what it no longer is.
        for each in (state, replace(state, pushed=pushed), replace(before, pushed=pushed)):
            found, plain = each.in_force, InForce.of(pushed, layout)
            assert found.pushed == pushed and found.layout is layout
            np.testing.assert_array_equal(found.mbps, plain.mbps)
            assert found.is_known.tolist() == plain.is_known.tolist()
            assert found.is_new.tolist() == plain.is_new.tolist() == [flow not in pushed for flow in layout.flow_ids]


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
