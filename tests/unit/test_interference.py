"""The four interference rules: what contends, symmetry, closure, the forms for native code."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core.interference import (
    Cliques,
    ConflictInterference,
    Interference,
    Neighbours,
    NodeRanges,
    RangeInterference,
    TechnologyInterference,
    domain_interference,
)
from hyroads.controller.core.network import Link, Node, Role

NODES = {
    name: Node(name, Role.AP, position)
    for name, position in {"a": (0.0, 0.0), "b": (10.0, 0.0), "c": (30.0, 0.0)}.items()
}


def link(name: str, source: str, target: str, technology: str = "wifi") -> Link:
    return Link(name, source, target, technology, 10.0)


def ids(rule: Interference, links: list[Link], name: str) -> set[str]:
    index = [each.id for each in links].index(name)
    return {links[i].id for i in rule.domain(index)}


def test_technology_relates_exactly_the_links_of_one_technology() -> None:
    links = [link("1", "a", "b"), link("2", "b", "c"), link("3", "a", "b", "plc")]
    rule = TechnologyInterference(links)
    assert ids(rule, links, "1") == {"1", "2"}
    assert ids(rule, links, "3") == {"3"}


def test_links_of_an_unshared_technology_contend_with_nothing() -> None:
    links = [link("1", "a", "b", "ethernet"), link("2", "b", "a", "ethernet"), link("3", "a", "b"), link("4", "b", "a")]
    unshared = frozenset({"ethernet"})
    for rule in (
        TechnologyInterference(links, unshared),
        RangeInterference(NODES, links, {"wifi": 50.0}, unshared),
    ):
        assert ids(rule, links, "1") == {"1"}
        assert ids(rule, links, "2") == {"2"}
        assert ids(rule, links, "3") == {"3", "4"}


def test_range_compares_the_nearest_ends() -> None:
    nodes = NODES | {"d": Node("d", Role.AP, (50.0, 0.0)), "e": Node("e", Role.AP, (50.0, 5.0))}
    links = [link("ab", "a", "b"), link("bc", "b", "c"), link("de", "d", "e"), link("ed-plc", "e", "d", "plc")]
    near = RangeInterference(nodes, links, {"wifi": 19.0, "plc": 100.0})
    assert ids(near, links, "ab") == {"ab", "bc"}  # they share node b
    assert ids(near, links, "de") == {"de"}
    wide = RangeInterference(nodes, links, {"wifi": 20.0, "plc": 100.0})
    assert ids(wide, links, "de") == {"bc", "de"}  # c to d is exactly 20 m, the bound counts
    assert ids(wide, links, "ed-plc") == {"ed-plc"}  # PLC never contends with WiFi


def test_range_bound_is_not_decided_by_rounding() -> None:
    position = (0.1 + 0.2, 0.0)  # 0.30000000000000004
    nodes = {"a": Node("a", Role.AP, (0.0, 0.0)), "b": Node("b", Role.AP, position), "c": NODES["c"], "d": NODES["b"]}
    links = [link("1", "a", "c"), link("2", "b", "d")]
    # Only a and b are near each other; c and d are 20 m apart.
    assert RangeInterference(nodes, links, {"wifi": 0.3}).contends(0, 1)


def test_conflicts_take_the_symmetric_closure_and_nothing_more() -> None:
    links = [link("1", "a", "b"), link("2", "b", "c", "plc"), link("3", "a", "c")]
    rule = ConflictInterference(links, {"1": ["2"], "2": ["3"]})
    assert ids(rule, links, "1") == {"1", "2"}
    assert ids(rule, links, "2") == {"1", "2", "3"}
    assert ids(rule, links, "3") == {"2", "3"}  # not transitive


def test_domains_are_cliques_that_may_overlap() -> None:
    links = [link(name, "a", "b") for name in "1234"]
    rule = domain_interference(links, [["1", "2"], ["2", "3"]])
    assert ids(rule, links, "2") == {"1", "2", "3"}
    assert ids(rule, links, "1") == {"1", "2"}
    assert ids(rule, links, "4") == {"4"}
    assert isinstance(rule.compact(), Neighbours)


def test_disjoint_domains_stay_compact() -> None:
    links = [link(name, "a", "b") for name in "1234"]
    rule = domain_interference(links, [["1", "3", "3"], ["4"]])
    assert isinstance(rule.compact(), Cliques)
    assert ids(rule, links, "1") == {"1", "3"}
    assert ids(rule, links, "2") == {"2"}


def test_no_links_is_a_network_too() -> None:
    for rule in (
        TechnologyInterference([]),
        RangeInterference(NODES, [], {}),
        ConflictInterference([], {}),
        domain_interference([], []),
    ):
        assert rule.link_count == 0
        assert rule.contention_matrix().shape == (0, 0)
        assert len(rule.classes()) == 0


@pytest.mark.parametrize("kind", ["technology", "range", "conflicts", "domains", "disjoint"])
@given(seed=st.integers(0, 2**32))
def test_every_rule_is_one_symmetric_reflexive_relation_in_all_its_forms(kind: str, seed: int) -> None:
    rng = random.Random(seed)
    nodes, links = random_network(rng)
    rule = random_rule(kind, rng, nodes, links)
    count = len(links)
    expected = np.array([[rule.contends(i, j) for j in range(count)] for i in range(count)]).reshape(count, count)
    assert expected.diagonal().all()
    assert (expected == expected.T).all()
    assert (rule.contention_matrix().toarray() == expected).all()
    assert (expand(rule) == expected).all()
    classes = rule.classes()
    for i in range(count):
        domain = rule.domain(i)
        assert domain.dtype == np.int32
        assert domain.tolist() == np.flatnonzero(expected[i]).tolist()
        for j in range(count):
            if classes[i] == classes[j]:
                assert domain.tolist() == rule.domain(j).tolist()


@given(seed=st.integers(0, 2**32))
def test_range_agrees_with_its_definition(seed: int) -> None:
    rng = random.Random(seed)
    nodes, links = random_network(rng)
    ranges_m = {"wifi": 30.0, "plc": 45.0}
    rule = RangeInterference(nodes, links, ranges_m)
    for i, first in enumerate(links):
        for j, second in enumerate(links):
            ends = [(u, v) for u in (first.source, first.target) for v in (second.source, second.target)]
            distance_m = min(math.dist(nodes[u].position_m or (), nodes[v].position_m or ()) for u, v in ends)
            together = first.technology == second.technology and distance_m <= ranges_m[first.technology]
            assert rule.contends(i, j) == together


def test_domains_are_read_only() -> None:
    links = [link("1", "a", "b"), link("2", "b", "c")]
    with pytest.raises(ValueError, match="read-only"):
        TechnologyInterference(links).domain(0)[0] = 1


def random_network(rng: random.Random) -> tuple[dict[str, Node], list[Link]]:
    nodes = {
        f"n{i}": Node(f"n{i}", Role.AP, (rng.uniform(0, 150), rng.uniform(0, 150))) for i in range(rng.randint(2, 70))
    }
    names = list(nodes)
    links = [
        link(f"l{i}", *rng.sample(names, 2), technology=rng.choice(["wifi", "plc"])) for i in range(rng.randint(0, 25))
    ]
    return nodes, links


def random_rule(kind: str, rng: random.Random, nodes: dict[str, Node], links: list[Link]) -> Interference:
    names = [each.id for each in links]
    if kind == "technology":
        return TechnologyInterference(links, frozenset(rng.sample(["wifi", "plc"], rng.randint(0, 1))))
    if kind == "range":
        return RangeInterference(
            nodes, links, {"wifi": 30.0, "plc": 45.0}, frozenset({"plc"} if rng.random() < 0.3 else ())
        )
    if kind == "conflicts":
        return ConflictInterference(links, {name: rng.sample(names, min(2, len(names))) for name in names[::2]})
    if kind == "disjoint":
        return domain_interference(links, [names[:5], names[5:7]])
    return domain_interference(links, [rng.sample(names, min(4, len(names))) for _ in range(4)])


def expand(rule: Interference) -> np.ndarray:
    """The dense relation that a native reader gets out of the compact form."""
    compact = rule.compact()
    count = rule.link_count
    dense = np.zeros((count, count), dtype=bool)
    if isinstance(compact, Cliques):
        return compact.class_of[:, None] == compact.class_of[None, :]
    if isinstance(compact, Neighbours):
        for i in range(count):
            dense[i, compact.indices[compact.indptr[i] : compact.indptr[i + 1]]] = True
        return dense
    assert isinstance(compact, NodeRanges)
    ends = list(zip(compact.source.tolist(), compact.target.tolist(), strict=True))
    for i in range(count):
        for j in range(count):
            medium = int(compact.medium_of[i])
            if medium < 0 or medium != compact.medium_of[j]:
                dense[i, j] = i == j
                continue
            dense[i, j] = any(int(compact.near[medium, u, v // 64]) >> (v % 64) & 1 for u in ends[i] for v in ends[j])
    return dense
