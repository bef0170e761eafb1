"""Topology and interference from measurements: the network comes back from what its nodes would report."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np
import pytest
from examples import examples, seeds
from hypothesis import given, settings
from hypothesis import strategies as st

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.carrier_sensing_rule import CarrierSensingInterference
from hyroads.controller.core.errors import PlanningError
from hyroads.controller.core.estimate.busy_time import Interfaces
from hyroads.controller.core.infer.change import (
    Carried,
    Change,
    ChangeDetector,
    affected_flows,
    merged,
    minimal_replan,
)
from hyroads.controller.core.infer.domains import (
    PairMeasurement,
    PairTestError,
    Verdict,
    judge,
    learned_interference,
    must_conflict,
)
from hyroads.controller.core.infer.pair_test import (
    ERROR,
    INTERVALS,
    MOST_ROUNDS,
    SETTLE_SLOTS,
    PairRun,
    ScheduleSettings,
    Situation,
    TestRecord,
    may_run,
    schedule,
)
from hyroads.controller.core.infer.topology import NeighbourTables, TopologyError
from hyroads.controller.core.interface_graph import link_ids
from hyroads.controller.core.interference import ConflictInterference, RangeInterference
from hyroads.controller.core.netfile import parse
from hyroads.controller.core.network import FlowSpec, Network
from hyroads.controller.core.planner import Planner
from hyroads.controller.core.rates import rate_problem, solve
from hyroads.controller.study import networks as study_networks

# Topology


class Row(NamedTuple):
    mac: str
    last_heard_ms: int = 0


def table_of(network: Network, node: str, technology: str) -> tuple[Row, ...]:
    """What a node of a network says of its links of a technology."""
    macs, links = Addressing.of(network).interface_mac, network.links
    mine = [link for link in links if link.technology == technology and link.source == node]
    return tuple(Row(macs[link.target, technology]) for link in mine)


def empty_tables(macs: Mapping[tuple[str, str], str]) -> NeighbourTables:
    node_of = {(technology, mac): node for (node, technology), mac in macs.items()}
    return NeighbourTables(lambda technology, mac: node_of.get((technology, mac)), Interfaces(dict.fromkeys(macs)))


def tables(network: Network, time_s: float = 0.0, into: NeighbourTables | None = None) -> NeighbourTables:
    macs = Addressing.of(network).interface_mac
    result = into if into is not None else empty_tables(macs)
    for interface in macs:
        result.take(interface, time_s, table_of(network, *interface))
    return result


@pytest.mark.parametrize("seed", seeds(5))
def test_who_hears_whom_comes_back_from_neighbour_tables(seed: int) -> None:
    network = study_networks.enterprise(random.Random(seed))
    heard = {interface: set() for interface in Addressing.of(network).interface_mac}
    for link in network.links:
        heard[link.source, link.technology].add(link.target)
    # Plain clients of one network don't hear each other, so every pair that is heard one way is heard both ways.
    assert tables(network).hears(1.0) == heard


@pytest.mark.parametrize("seed", seeds(5))
def test_hearing_gives_the_domains_of_the_geometric_rule(seed: int) -> None:
    network = study_networks.enterprise(random.Random(seed))
    network = replace(network, links=tuple(x for x in network.links if not _plain_pair(network, x.source, x.target)))
    hears = {
        (u.id, medium.technology): {
            v.id for v in network.nodes.values() if np.hypot(*np.subtract(u.position_m, v.position_m)) <= medium.range_m
        }
        for u in network.nodes.values()
        for medium in (study_networks.WIFI, study_networks.PLC)
    }
    learned = CarrierSensingInterference(list(network.nodes), network.links, hears)
    ranges = {medium.technology: medium.range_m for medium in (study_networks.WIFI, study_networks.PLC)}
    geometric = RangeInterference(network.nodes, network.links, ranges)
    for link in range(len(network.links)):
        assert learned.domain(link).tolist() == geometric.domain(link).tolist()
    declared = ConflictInterference(network.links, learned.declaration()["conflicts"])
    assert (declared.contention_matrix() != learned.contention_matrix()).nnz == 0


def _plain_pair(network: Network, first: str, second: str) -> bool:
    return network.nodes[first].is_plain_client and network.nodes[second].is_plain_client


SMALL = parse(
    {
        "nodes": {n: {"role": "ap"} for n in "abc"},
        "links": [
            {"id": f"{x}{y}", "from": x, "to": y, "technology": "wifi", "capacity_mbps": 20, "both": True}
            for x, y in ("ab", "bc")
        ],
        "interference": {"rule": "technology"},
    },
    "test",
)
MACS = Addressing.of(SMALL).interface_mac


def row(node: str, last_heard_ms: int = 0) -> Row:
    return Row(MACS[node, "wifi"], last_heard_ms)


def test_one_end_that_hears_is_enough() -> None:
    state = empty_tables(MACS)
    state.take(("a", "wifi"), 0.0, (row("b"),))
    assert state.hears(0.0) == {("a", "wifi"): {"b"}, ("b", "wifi"): {"a"}}


def test_silent_neighbours_age_out_and_come_back() -> None:
    everybody = {("a", "wifi"): {"b"}, ("b", "wifi"): {"a", "c"}, ("c", "wifi"): {"b"}}
    state = tables(SMALL)
    assert state.hears(5.0) == everybody
    assert not any(state.hears(5.1).values())
    assert tables(SMALL, 6.0, state).hears(6.0) == everybody
    # One table without a row is a hiccup of the radio, five seconds of them are not.
    state.take(("a", "wifi"), 7.0, ())
    assert state.hears(7.0) == everybody
    assert not any(state.hears(11.5).values())
    # A table that comes late changes nothing.
    state.take(("a", "wifi"), 6.5, (row("c"),))
    assert not any(state.hears(11.5).values())


def test_strangers_are_never_believed() -> None:
    state = tables(SMALL)
    known = state.hears(1.0)
    state.take(("a", "wifi"), 1.0, (Row("66:66:66:66:66:66"),))
    state.take(("ghost", "wifi"), 1.0, (row("a"),))
    assert state.hears(1.0) == known
    with pytest.raises(TopologyError):
        state.take(("a", "wifi"), 2.0, tuple(row("b") for _ in range(5000)))


@pytest.mark.parametrize("seed", seeds(20))
def test_tables_that_come_again_give_what_all_of_them_say(seed: int) -> None:
    """Against the definition: a row counts for five seconds after its neighbour was heard, also if it is left out."""
    rng = random.Random(seed)
    state = empty_tables(MACS)
    last: dict[str, tuple[Row, ...]] = {}
    said: list[tuple[str, float, tuple[Row, ...]]] = []
    now_s = 0.0
    for _ in range(60):
        now_s += rng.choice((0.1, 0.5, 2.0, 6.0))
        node = rng.choice("abc")
        if node not in last or rng.random() < 0.5:
            others = [other for other in "abc" if other != node and rng.random() < 0.7]
            last[node] = tuple(row(other, rng.choice((0, 5, 3000, 6000))) for other in others)
        state.take((node, "wifi"), now_s, last[node])
        said.append((node, now_s, last[node]))
        assert {interface: set(nodes) for interface, nodes in state.hears(now_s).items()} == by_definition(said, now_s)


def by_definition(said: list[tuple[str, float, tuple[Row, ...]]], now_s: float) -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {(node, "wifi"): set() for node, _, _ in said}
    node_of = {mac: node for (node, _), mac in MACS.items()}
    heard: dict[tuple[str, str], float] = {}
    for node, time_s, rows in said:
        for each in rows:
            # The latest table counts, whatever it says.
            heard[node, node_of[each.mac]] = time_s - each.last_heard_ms / 1e3
    for (node, other), at_s in heard.items():
        if now_s - at_s <= 5.0:
            found.setdefault((node, "wifi"), set()).add(other)
            found.setdefault((other, "wifi"), set()).add(node)
    return found


# Pair tests


def measurement(rng: np.random.Generator, conflict: bool, noise: float, count: int = 8) -> PairMeasurement:
    rates = rng.uniform(5, 100, 2)
    share = 0.5 if conflict else 1.0

    def draw(mean: float) -> tuple[float, ...]:
        return tuple((mean * (1 + noise * rng.standard_normal(count))).clip(0.01).tolist())

    return PairMeasurement("x", "y", draw(rates[0]), draw(rates[1]), draw(rates[0] * share), draw(rates[1] * share))


def test_verdicts_are_right_and_doubt_is_admitted() -> None:
    rng = np.random.default_rng(5)
    wrong = undecided = 0
    for trial in range(400):
        conflict = bool(trial % 2)
        result = judge(measurement(rng, conflict, 0.15))
        wrong += result.verdict is (Verdict.INDEPENDENT if conflict else Verdict.CONFLICT)
        undecided += result.verdict is Verdict.UNDECIDED
    assert wrong == 0
    assert undecided < 20
    doubts = [judge(measurement(rng, True, 1.0, 3)).verdict for _ in range(50)]
    assert doubts.count(Verdict.UNDECIDED) > 25


def test_an_unfair_split_is_still_a_conflict_and_partial_loss_is_not_decided_by_luck() -> None:
    steady = (20.0, 20.1, 19.9, 20.0)
    unfair = PairMeasurement("x", "y", steady, steady, (18.0, 18.1, 17.9, 18.0), (2.0, 2.1, 1.9, 2.0))
    assert judge(unfair).verdict is Verdict.CONFLICT
    half = PairMeasurement("x", "y", steady, steady, (15.0, 15.1, 14.9, 15.0), (15.0, 15.1, 14.9, 15.0))
    assert judge(half).verdict is Verdict.UNDECIDED
    with pytest.raises(PairTestError):
        judge(replace(unfair, first_alone=(0.0, 0.0, 0.0)))
    with pytest.raises(PairTestError):
        judge(replace(unfair, first_alone=(1.0, 1.0)))


@settings(examples(30), derandomize=True)
@given(st.integers(0, 1000))
def test_learned_interference_follows_verdicts_and_is_symmetric(seed: int) -> None:
    rng = random.Random(seed)
    network = study_networks.residential(rng)
    links = network.links
    pairs = [pair for pair in combinations(links, 2) if pair[0].technology == pair[1].technology]
    verdicts = {frozenset({a.id, b.id}): rng.choice(list(Verdict)) for a, b in rng.sample(pairs, min(12, len(pairs)))}
    learned = learned_interference(links, network.interference, verdicts)
    matrix = learned.contention_matrix()
    assert (matrix != matrix.T).nnz == 0
    for a, b in combinations(range(len(links)), 2):
        verdict = verdicts.get(frozenset({links[a].id, links[b].id}))
        expected = network.interference.contends(a, b)
        if verdict is Verdict.CONFLICT:
            expected = True
        elif verdict is Verdict.INDEPENDENT and not must_conflict(links[a], links[b]):
            expected = False
        assert learned.contends(a, b) == learned.contends(b, a) == expected
    assert all(learned.contends(a, a) for a in range(len(links)))


@pytest.mark.parametrize(("share", "wrong"), [(0.5, Verdict.INDEPENDENT), (1.0, Verdict.CONFLICT)])
@pytest.mark.parametrize("noise", [0.02, 0.1, 0.3])
def test_a_pair_run_decides_in_few_rounds_and_errs_at_most_as_often_as_it_says(
    share: float, wrong: Verdict, noise: float
) -> None:
    rng, rounds, verdicts = np.random.default_rng(7), [], []
    for _ in range(150):
        run = pair_run(rng, (20.0, 60.0), share, noise)
        rounds.append(run.rounds)
        verdicts.append(run.result.verdict)
    assert verdicts.count(wrong) <= 2
    assert verdicts.count(Verdict.UNDECIDED) <= (0 if noise < 0.2 else 40)
    assert np.mean(rounds) < (1.2 if noise < 0.2 else 3.5)


def test_looking_again_and_again_at_the_border_rarely_decides() -> None:
    rng = np.random.default_rng(8)
    runs = [pair_run(rng, (20.0, 60.0), 0.75, 0.1) for _ in seeds(400)]
    decided, expected = sum(run.result.verdict is not Verdict.UNDECIDED for run in runs), len(runs) * ERROR
    assert decided <= expected + 3 * expected**0.5
    assert max(run.rounds for run in runs) == MOST_ROUNDS


def test_a_run_sends_in_turn_waits_for_reports_and_gives_up_without_them() -> None:
    run, sending = PairRun("x", "y"), []
    while not run.done:
        sending.append(run.sending)
        run = run.after({"x": 10.0, "y": 20.0})
    phase = SETTLE_SLOTS + INTERVALS
    assert sending == [("x",)] * phase + [("y",)] * phase + [("x", "y")] * phase
    assert run.result is not None
    assert run.result.verdict is Verdict.INDEPENDENT
    assert run.sending == ()
    silent = PairRun("x", "y")
    for _ in range(100):
        silent = silent if silent.done else silent.after({"y": 3.0})
    assert silent.failed == "nobody reports what arrives"
    dead = PairRun("x", "y")
    while not dead.done:
        dead = dead.after({"x": 0.0, "y": 20.0})
    assert dead.failed is not None
    assert "carried nothing" in dead.failed


def pair_run(rng: np.random.Generator, alone: tuple[float, float], share: float, noise: float) -> PairRun:
    """A whole run; every interval scatters by ``noise``."""
    run = PairRun("x", "y")
    while not run.done:
        part = share if len(run.sending) > 1 else 1.0
        scatter = 1 + noise * rng.standard_normal(2)
        run = run.after(dict(zip("xy", (np.array(alone) * part * scatter).clip(0.01).tolist(), strict=True)))
    return run


OFFICE = study_networks.office22(random.Random(3))


def test_the_tests_of_a_schedule_are_informative() -> None:
    planned = schedule(OFFICE.links, OFFICE.interference, {}, Situation(), 100.0)
    assert len(planned) == ScheduleSettings().max_tests
    by_id = {link.id: link for link in OFFICE.links}
    for first, second in planned:
        assert by_id[first].technology == by_id[second].technology
        assert not must_conflict(by_id[first], by_id[second])
    some = frozenset(link.id for link in OFFICE.links[:30])
    few = schedule(OFFICE.links, OFFICE.interference, {}, Situation(testable=some), 100.0)
    assert few
    assert {link for pair in few for link in pair} <= some


def test_nothing_is_tested_near_traffic() -> None:
    network = study_networks.enterprise(random.Random(1), node_count=20)
    active = network.links[0].id
    situation = Situation(active=frozenset({active}), busy={network.links[5].id: 0.3})
    planned = schedule(network.links, network.interference, {}, situation, 0.0)
    assert planned
    for pair in planned:
        assert may_run(pair, network.links, network.interference, situation)
        for link in pair:
            assert not network.interference.contends(network.link_index[link], network.link_index[active])
            assert link != network.links[5].id
    pair = planned[0]
    assert not may_run(pair, network.links, network.interference, replace(situation, busy={pair[0]: 0.5}))
    assert not may_run(pair, network.links, network.interference, replace(situation, active=frozenset(pair[1:])))
    down = [replace(link, capacity_mbps=0.0) if link.id == pair[0] else link for link in network.links]
    assert not may_run(pair, down, network.interference, situation)


def test_known_pairs_wait_and_border_cases_come_first() -> None:
    office = study_networks.enterprise(random.Random(3), node_count=12)
    first = schedule(office.links, office.interference, {}, Situation(), 0.0)
    records = {frozenset(t): TestRecord(Verdict.CONFLICT, 10.0) for t in first}
    undecided = frozenset(first[0])
    records[undecided] = TestRecord(Verdict.UNDECIDED, 10.0)
    later = schedule(office.links, office.interference, records, Situation(), 20.0)
    assert not {frozenset(t) for t in later} & records.keys()
    for now_s, again in ((80.0, {undecided}), (3700.0, records.keys())):
        every = ScheduleSettings(max_tests=10**6, max_links=10**6)
        tests = schedule(office.links, office.interference, records, Situation(), now_s, settings=every)
        assert {frozenset(t) for t in tests} & records.keys() == again
    chain = parse(
        {
            "nodes": {n: {"role": "ap"} for n in "abcdef"},
            "links": [
                {"id": f"{x}{y}", "from": x, "to": y, "technology": "wifi", "capacity_mbps": 20}
                for x, y in ("ab", "cd", "ef")
            ],
            "interference": {"rule": "technology"},
        },
        "test",
    )
    hears = {
        (n, "wifi"): set(others) for n, others in {"a": "bcd", "b": "acd", "c": "abd", "d": "abcef", "e": "df"}.items()
    }
    planned = schedule(chain.links, chain.interference, {}, Situation(hears=hears), 0.0)
    # ab and ef have only a neighbour in common: the border; ab and cd hear each other throughout.
    assert [set(pair) for pair in planned] == [{"ab", "ef"}, {"cd", "ef"}, {"ab", "cd"}]


# Changes


def alarms(values: list[float]) -> list[int]:
    """Slots of 0.1 s at which a link with these estimates raises an alarm."""
    detector, seen = ChangeDetector().planned(["l"], np.array(values[:1]), -0.1), []
    for i, value in enumerate(values):
        detector, changes = detector.after(np.array([value]), i * 0.1)
        if changes:
            seen.append(i)
    return seen


def test_large_changes_alarm_soon_small_ones_never() -> None:
    assert alarms([10.0] * 5 + [5.0] * 20) == [8]
    assert alarms([10.0] * 5 + [20.0] * 20) == [8]
    assert alarms([10.0] * 5 + [15.0] * 20) == [12]
    assert alarms([10.0] * 5 + [11.4] * 1000) == []
    assert alarms([10.0] * 5 + [0.0] * 5 + [10.0] * 5) == [5, 10]


def test_noise_of_a_tenth_alarms_nobody_in_ten_minutes() -> None:
    noise = np.exp(0.1 * np.random.default_rng(1).standard_normal((6000, 30)))
    detector = ChangeDetector().planned([f"l{i}" for i in range(30)], np.full(30, 20.0), -0.1)
    for turn, row in enumerate(20 * noise):
        detector, changes = detector.after(row, turn * 0.1)
        assert changes == ()


def test_links_that_appear_and_vanish_alarm_at_once() -> None:
    detector = ChangeDetector().planned(["a", "b", "c"], np.array([10.0, 5.0, 0.0]), 0.0)
    detector, changes = detector.after(np.array([10.0, 0.0, 7.0]), 0.1)
    assert changes == (Change("b", 5.0, 0.0), Change("c", 0.0, 7.0))
    before = detector.reference_mbps
    detector, changes = detector.after(np.array([10.0, 0.0, 7.0]), 0.2)
    assert changes == () and detector.reference_mbps is before
    detector = detector.planned(["a"], np.array([20.0]), 0.3)
    assert detector.after(np.array([20.0]), 0.4)[1] == ()


@examples(50)
@given(st.lists(st.lists(st.sampled_from([0.0, 4.0, 5.0, 6.0, 10.0, 20.0]), min_size=3, max_size=3), max_size=30))
def test_links_are_watched_as_if_each_were_alone(rows: list[list[float]]) -> None:
    together = ChangeDetector().planned(["a", "b", "c"], np.array([5.0, 10.0, 0.0]), 0.0)
    alone = {
        link: ChangeDetector().planned([link], np.array([mbps]), 0.0)
        for link, mbps in zip("abc", together.reference_mbps.tolist(), strict=True)
    }
    for turn, row in enumerate(rows, 1):
        together, changes = together.after(np.array(row), turn * 0.1)
        each: list[Change] = []
        for link, mbps in zip("abc", row, strict=True):
            alone[link], found = alone[link].after(np.array([mbps]), turn * 0.1)
            each += found
        assert changes == tuple(each)


def carried(network: Network, pairs: list[tuple[str, str]]) -> dict[str, Carried]:
    planner = Planner(network, clients_relay=True)
    flows = {}
    for i, (source, target) in enumerate(pairs):
        paths = planner.plan(source, target).multipath.links
        flows[f"f{i}"] = Carried(source, target, tuple(tuple(link_ids(network, path)) for path in paths))
    return flows


def replanned(network: Network, flows: dict[str, Carried], changes: list[Change]) -> tuple[set[str], dict[str, object]]:
    planner = Planner(network, clients_relay=True)

    def plan(source: str, target: str) -> tuple[tuple[str, ...], ...]:
        links = planner.plan(source, target).multipath.links
        return tuple(tuple(link_ids(network, path)) for path in links)

    def value(paths: tuple[tuple[str, ...], ...]) -> float:
        as_links = [tuple(network.link_index[link] for link in path) for path in paths]
        return float(solve(rate_problem(network, {"v": as_links}, flows=[FlowSpec("v", "", "")])).flow_rates_mbps[0])

    affected = affected_flows(network, flows, changes)
    return set(affected), minimal_replan(network, flows, affected, plan=plan, value=value)


@pytest.mark.parametrize("seed", seeds(6))
def test_only_affected_flows_move_and_no_path_stays_broken(seed: int) -> None:
    rng = random.Random(seed)
    network = study_networks.enterprise(rng, node_count=20, width_m=100.0, height_m=60.0)
    pairs: list[tuple[str, str]] = []
    while len(pairs) < 6:
        pair = study_networks.endpoints(network, rng)
        try:
            carried(network, [pair])
        except PlanningError:
            continue
        pairs.append(pair)
    flows = carried(network, pairs)
    broken = rng.choice([link for path in flows["f0"].paths for link in path])
    after = network.with_capacities({broken: 0.0})
    affected, paths = replanned(after, flows, [Change(broken, 10.0, 0.0)])
    assert "f0" in affected
    for flow, old in flows.items():
        if flow not in affected:
            assert paths[flow] == old.paths
        assert all(broken not in path for path in paths[flow])
    # A link that nobody uses may vanish without anyone noticing.
    used = {link for flow in flows.values() for path in flow.paths for link in path}
    spare = next(link.id for link in network.links if link.id not in used)
    assert affected_flows(network.with_capacities({spare: 0.0}), flows, [Change(spare, 10.0, 0.0)]) == ()


def test_a_new_link_moves_the_flow_that_gains_and_no_other() -> None:
    before = parse(
        {
            "nodes": {n: {"role": "ap"} for n in "abcxy"},
            "links": [
                {"id": "ab", "from": "a", "to": "b", "technology": "wifi", "capacity_mbps": 10},
                {"id": "bc", "from": "b", "to": "c", "technology": "wifi", "capacity_mbps": 10},
                {"id": "ac", "from": "a", "to": "c", "technology": "plc", "capacity_mbps": 30},
                {"id": "xy", "from": "x", "to": "y", "technology": "wifi", "capacity_mbps": 50},
            ],
            "interference": {"rule": "technology"},
        },
        "test",
    ).with_capacities({"ac": 0.0})
    flows = carried(before, [("a", "c"), ("x", "y")])
    after = before.with_capacities({"ac": 30.0})
    affected, paths = replanned(after, flows, [Change("ac", 0.0, 30.0)])
    assert affected == {"f0"}
    assert ("ac",) in paths["f0"]
    assert paths["f1"] == flows["f1"].paths


def home(plc_mbps: float) -> Network:
    """Two nodes with a radio of 20 Mb/s and a power line."""
    capacities = {"wifi": 20.0, "plc": plc_mbps}
    links = [
        {"id": technology, "from": "a", "to": "b", "technology": technology, "capacity_mbps": 20}
        for technology in capacities
    ]
    nodes = {node: {"role": "ap"} for node in "ab"}
    document = {"nodes": nodes, "links": links, "interference": {"rule": "technology"}}
    return parse(document, "test").with_capacities(capacities)


@pytest.mark.parametrize("steps", [(0.0, 10.0), (0.0, 4.0, 10.0)], ids=["at-once", "grows"])
def test_slower_link_that_appears_is_added_to_a_flow(steps: tuple[float, ...]) -> None:
    flows = carried(home(0.0), [("a", "b")])
    assert flows["f0"].paths == (("wifi",),)
    changes = [Change("plc", was, then) for was, then in pairwise(steps)]
    affected, paths = replanned(home(10.0), flows, list(merged(changes)))
    assert affected == {"f0"} and set(paths["f0"]) == {("wifi",), ("plc",)}


def test_link_that_appears_with_less_than_the_gain_concerns_no_flow() -> None:
    flows = carried(home(0.0), [("a", "b")])
    assert affected_flows(home(1.9), flows, [Change("plc", 0.0, 1.9)]) == ()
    assert affected_flows(home(2.1), flows, [Change("plc", 0.0, 2.1)]) == ("f0",)


def test_slower_link_that_was_there_concerns_a_flow_by_its_detour_alone() -> None:
    flows = carried(home(0.0), [("a", "b")])
    assert affected_flows(home(10.0), flows, [Change("plc", 9.0, 10.0)]) == ()
    assert affected_flows(home(14.0), flows, [Change("plc", 9.0, 14.0)]) == ("f0",)


def test_without_a_way_left_a_flow_gets_no_paths() -> None:
    flows = {"f": Carried("a", "c", (("ab", "bc"),))}
    after = SMALL.with_capacities({"bc": 0.0})
    affected, paths = replanned(after, flows, [Change("bc", 20.0, 0.0)])
    assert affected == {"f"}
    assert paths == {"f": ()}


@examples(50)
@given(
    st.integers(0, 10**6), st.lists(st.tuples(st.integers(0, 200), st.sampled_from([0.0, 0.5, 1.0, 2.0])), max_size=40)
)
def test_changes_of_a_link_count_once_and_concern_the_same_flows(seed: int, steps: list[tuple[int, float]]) -> None:
    network = study_networks.residential(random.Random(seed))
    pairs = random.Random(seed).sample([(a, b) for a in network.nodes for b in network.nodes if a != b], 4)
    flows = carried(network, pairs)
    now = {link.id: link.capacity_mbps for link in network.links}
    changes = []
    for at, factor in steps:
        link = network.links[at % len(network.links)]
        after_mbps = factor * link.capacity_mbps
        changes.append(Change(link.id, now[link.id], after_mbps))
        now[link.id] = after_mbps
    after, fewer = network.with_capacities(now), merged(changes)
    ends = {(change.link, change.after_mbps) for change in changes}
    assert len(fewer) <= 2 * len(now) and {(change.link, change.after_mbps) for change in fewer} <= ends
    assert affected_flows(after, flows, fewer) == affected_flows(after, flows, changes)
