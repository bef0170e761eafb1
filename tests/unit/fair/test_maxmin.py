"""Weighted max-min fair rates: against linear programs, the published figures, and their certificate."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from hyroads.controller.cli.main import main
from hyroads.controller.core.fair.maxmin import (
    FairnessError,
    Flow,
    Promise,
    Shares,
    admissible,
    allocate,
    floor_mbps,
    violations,
)


def shares(capacity: dict[str, float], **flows: tuple[float, str] | tuple[float, str, float]) -> Shares:
    """Flows as (weight, accepted interfaces of one letter each[, demand])."""
    return Shares(capacity, {name: Flow(spec[0], frozenset(spec[1]), *spec[2:]) for name, spec in flows.items()})


TWO = {"1": 3.0, "2": 10.0}


@pytest.mark.parametrize(
    ("given_shares", "rates", "levels"),
    [
        (shares({"1": 1, "2": 1}, a=(1, "12"), b=(1, "2")), {"a": 1, "b": 1}, [1]),
        (shares(TWO, a=(1, "1"), b=(2, "12"), c=(1, "2")), {"a": 3, "b": 20 / 3, "c": 10 / 3}, [3, 10 / 3]),
        (shares(TWO, b=(2, "12"), c=(1, "2")), {"b": 26 / 3, "c": 13 / 3}, [13 / 3]),
        (shares(TWO, c=(1, "2")), {"c": 10}, [10]),
        (shares({"1": 6, "2": 10}, a=(1, "1"), b=(1, "12"), c=(1, "2")), dict.fromkeys("abc", 16 / 3), [16 / 3]),
        (shares(TWO, a=(1, "1", 1), b=(1, "12"), c=(1, "2", 0)), {"a": 1, "b": 12, "c": 0}, [None, 12]),
        (shares({"1": 0}, a=(1, "1")), {"a": 0}, [0]),
        (shares(TWO), {}, []),
    ],
)
def test_rates_are_those_of_the_literature(given_shares, rates, levels):
    found = allocate(given_shares)
    assert found.rate_mbps == pytest.approx(rates)
    assert violations(given_shares, found) == []
    known = sorted({each.level_mbps for each in found.clusters if each.level_mbps is not None})
    assert known == pytest.approx(sorted(level for level in levels if level is not None))


def random_shares(rng: random.Random, interfaces: int, flows: int) -> Shares:
    capacity = {
        f"if{k}": rng.choice([0.0, 10.0, rng.uniform(0.1, 100), rng.uniform(0.1, 100)]) for k in range(interfaces)
    }
    declared = {}
    for number in range(flows):
        accepted = frozenset(
            rng.sample(sorted(capacity), rng.randint(1, min(interfaces, rng.choice([1, 3, interfaces]))))
        )
        weight = rng.choice([1.0, rng.uniform(0.1, 10.0)])
        declared[f"f{number}"] = Flow(weight, accepted, rng.choice([None, None, rng.uniform(0, 20)]))
    return Shares(capacity, declared)


def by_linear_programs(given_shares: Shares) -> dict[str, float]:
    """Another way to the same rates: raise the least level by a linear program, fix who can't be raised, again."""
    names, links = list(given_shares.flows), list(given_shares.capacity_mbps)
    pairs = [
        (i, k)
        for i, name in enumerate(names)
        for k, link in enumerate(links)
        if link in given_shares.flows[name].interfaces
    ]
    flows = list(given_shares.flows.values())
    capacity_rows = np.zeros((len(links), len(pairs) + 1))
    rate_rows = np.zeros((len(names), len(pairs) + 1))
    for column, (i, k) in enumerate(pairs):
        capacity_rows[k, column] = rate_rows[i, column] = 1.0
    fixed: dict[int, float] = {}

    def greatest(objective: np.ndarray, level: float | None = None) -> float:
        upper, bounds = [capacity_rows], [list(given_shares.capacity_mbps.values())]
        for i, flow in enumerate(flows):
            row = -rate_rows[i : i + 1].copy()
            least = fixed.get(i, 0.0)
            if i not in fixed:
                if level is None:
                    row[0, -1] = flow.weight
                else:
                    least = min(flow.most_mbps, level * flow.weight)
            upper += [row, rate_rows[i : i + 1]]
            bounds += [[-least * (1 - 1e-9)], [min(flow.most_mbps, 1e6)]]
        answer = linprog(-objective, np.vstack(upper), np.concatenate(bounds), method="highs")
        assert answer.status == 0, answer.message
        return -answer.fun

    while len(fixed) < len(flows):
        # Flows at their demand leave first: a common level beyond it asks for too much.
        raised = np.zeros(len(pairs) + 1)
        raised[-1] = 1.0
        level = greatest(raised)
        for i, flow in enumerate(flows):
            if i in fixed:
                continue
            most = greatest(rate_rows[i], level)
            if most <= level * flow.weight * (1 + 1e-6) + 1e-7:
                fixed[i] = min(level * flow.weight, flow.most_mbps)
    return {name: fixed[i] for i, name in enumerate(names)}


@pytest.mark.parametrize("seed", range(12))
def test_rates_are_those_of_linear_programs(seed):
    rng = random.Random(seed)
    given_shares = random_shares(rng, rng.randint(1, 5), rng.randint(1, 8))
    found = allocate(given_shares)
    for name, mbps in by_linear_programs(given_shares).items():
        assert found.rate_mbps[name] == pytest.approx(mbps, rel=1e-5, abs=1e-5)


@given(st.integers(0, 2**32))
def test_every_allocation_has_its_certificate_and_keeps_the_floors(seed):
    rng = random.Random(seed)
    given_shares = random_shares(rng, rng.choice([1, 2, 5, 16]), rng.choice([1, 3, 12, 40]))
    found = allocate(given_shares)
    assert violations(given_shares, found) == []
    for name, flow in given_shares.flows.items():
        assert found.rate_mbps[name] >= min(flow.most_mbps, floor_mbps(given_shares, name)) - 1e-9
    assert sorted(name for each in found.clusters for name in each.flows) == sorted(given_shares.flows)
    for cluster in found.clusters:
        for name in cluster.flows:
            flow, mbps = given_shares.flows[name], found.rate_mbps[name]
            at_level = cluster.level_mbps is not None and mbps == pytest.approx(cluster.level_mbps * flow.weight)
            assert at_level or mbps == pytest.approx(flow.most_mbps)
            assert set(found.served_mbps[name]) <= set(cluster.interfaces)
    served_by = [name for cluster in found.clusters for name in cluster.interfaces]
    assert len(served_by) == len(set(served_by))


def test_many_equal_and_tiny_weights_are_no_trouble():
    rng = random.Random(3)
    capacity = {f"if{k}": 0.1 for k in range(7)}
    flows = {f"f{i}": Flow(10.0 ** rng.randint(-6, 6), frozenset(rng.sample(sorted(capacity), 3))) for i in range(60)}
    given_shares = Shares(capacity, flows)
    found = allocate(given_shares)
    assert violations(given_shares, found, 1e-9) == []
    assert math.fsum(found.rate_mbps.values()) == pytest.approx(0.7)


def test_the_certificate_refuses_what_is_not_fair():
    given_shares = shares({"1": 6, "2": 10}, a=(1, "1"), b=(1, "12", 8), c=(1, "2"))
    found = allocate(given_shares)

    def told(**served: dict[str, float]) -> str:
        changed = {**found.served_mbps, **served}
        rates = {name: math.fsum(some.values()) for name, some in changed.items()}
        return "; ".join(violations(given_shares, replace(found, rate_mbps=rates, served_mbps=changed)))

    assert not told()
    assert "at a higher level than flow a" in told(a={"1": 4.0}, b={"1": 2.0, "2": 4.0}, c={"2": 6.0})
    assert "has room for flow c" in told(c={"2": 1.0})
    assert "carries more than it can" in told(c={"2": 9.9})
    assert "gets more than it demands" in told(b={"2": 8.5}, c={"2": 1.5})
    assert "does not accept" in told(a={"2": 1.0})


def test_a_promise_is_given_if_its_rate_is_below_the_floor():
    given_shares = shares({"1": 6, "2": 10}, a=(1, "1"), b=(2, "12"), c=(1, "2"))
    assert floor_mbps(given_shares, "b") == pytest.approx(8.0)
    promises = {"b": Promise(0.1, 8.0), "a": Promise(0.05, 2.0)}
    assert admissible(given_shares, promises) == {}
    assert promises["b"].delay_s() == pytest.approx(0.0125)
    crowded = Shares(given_shares.capacity_mbps, {**given_shares.flows, "d": Flow(1, frozenset("2"))})
    assert admissible(crowded, promises) == {"b": pytest.approx(6.4)}


@pytest.mark.parametrize(
    ("capacity", "flow", "words"),
    [
        ({"1": math.nan}, Flow(1, frozenset("1")), "interface 1"),
        ({"1": 1}, Flow(0, frozenset("1")), "weight above 0"),
        ({"1": 1}, Flow(math.nan, frozenset("1")), "weight above 0"),
        ({"1": 1}, Flow(1, frozenset()), "at least one interface"),
        ({"1": 1}, Flow(1, frozenset("x")), "unknown interface 'x'"),
        ({"1": 1}, Flow(1, frozenset("1"), -1), "demand"),
    ],
)
def test_what_has_no_fair_allocation_is_refused_by_name(capacity, flow, words):
    with pytest.raises(FairnessError, match=words):
        Shares(capacity, {"f": flow})


FILE = {
    "interfaces": {"if0": 3, "if1": 10},
    "flows": {
        "a": {"interfaces": ["if0"]},
        "b": {"weight": 2, "interfaces": ["if0", "if1"], "demand": None},
        "c": {"weight": 1, "interfaces": ["if1"]},
    },
}


def test_the_command_prints_the_rates_of_a_file(tmp_path, capsys):
    path = tmp_path / "shares.json"
    path.write_text(json.dumps(FILE))
    assert main(["fair", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rates"] == pytest.approx({"a": 3, "b": 20 / 3, "c": 10 / 3})
    assert [each["flows"] for each in found["clusters"]] == [["a"], ["b", "c"]]
    assert main(["fair", str(path), "--json", "--simulate", "5"]) == 0
    simulated = json.loads(capsys.readouterr().out)
    assert simulated["rates"] == pytest.approx(found["rates"], rel=0.01)
    assert main(["fair", str(path), "--simulate", "1"]) == 0
    assert "miDRR" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("interfaces", "if0"), -1, "interfaces.if0: expected a capacity of 0 or more Mb/s, got -1"),
        (("interfaces", "if0"), "fast", "interfaces.if0: expected a capacity"),
        (("flows", "a", "weight"), 0, "flows.a.weight: expected a weight above 0, got 0"),
        (("flows", "a", "weight"), True, "flows.a.weight: expected a weight above 0, got true"),
        (("flows", "a", "interfaces"), [], "flows.a.interfaces: expected at least one interface"),
        (("flows", "a", "interfaces"), ["iff0"], "flows.a.interfaces[0]: expected the id of a interface"),
        (("flows", "a", "demand"), -2, "flows.a.demand: expected a demand of 0 or more Mb/s, or null, got -2"),
        (("flows", "a", "colour"), 1, "flows.a.colour: unknown key"),
        (("flows",), 7, "flows: expected a mapping"),
    ],
)
def test_the_command_names_what_is_wrong_with_a_file(path, value, words, tmp_path, capsys):
    document = json.loads(json.dumps(FILE))
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    file = tmp_path / "shares.json"
    file.write_text(json.dumps(document))
    assert main(["fair", str(file), "--json"]) == 2
    told = capsys.readouterr()
    assert not told.out and told.err.count("\n") == 1 and words in told.err


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "1e9"])
def test_the_command_names_a_time_that_can_not_be_simulated(seconds, tmp_path, capsys):
    path = tmp_path / "shares.json"
    path.write_text(json.dumps(FILE))
    assert main(["fair", str(path), "--simulate", seconds]) == 2
    assert "--simulate: " in capsys.readouterr().err
