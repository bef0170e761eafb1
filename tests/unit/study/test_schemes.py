"""Exact rates of the schemes: hand-made cases, and oracles that list all independent sets and all paths."""

from __future__ import annotations

import random
from itertools import combinations, pairwise

import numpy as np
import pytest
from examples import seeds
from scipy.optimize import linprog, minimize

from hyroads.controller.core.errors import PlanningError
from hyroads.controller.core.interference import ConflictInterference, TechnologyInterference
from hyroads.controller.core.network import Link, Network, Node, Role
from hyroads.controller.core.optimum import multipath_optimum_mbps
from hyroads.controller.study.networks import endpoints, enterprise, residential
from hyroads.controller.study.schedules import (
    Airtime,
    Carriers,
    best_rates,
    heaviest_independent_set,
    most_of_paths,
)
from hyroads.controller.study.schemes import BOUNDS, Scheme, Schemes, fastest_path, two_channels

ABOVE = 1 + 1e-6


def network_of(links, conflicts=None):
    """A network of (source, target, technology, Mb/s); all links of a technology contend without ``conflicts``."""
    made = tuple(Link(f"{u}{v}-{k}", u, v, k, float(mbps)) for u, v, k, mbps in links)
    names = dict.fromkeys(name for link in made for name in (link.source, link.target))
    nodes = {name: Node(name, Role.AP, None, True) for name in names}
    rule = TechnologyInterference(made) if conflicts is None else ConflictInterference(made, conflicts)
    return Network(nodes, made, rule)


def random_network(seed, *, size=4, density=0.5):
    """A small network of two technologies in which links contend at random, each with those that share a node."""
    rng = random.Random(seed)
    names = [f"n{i}" for i in range(size)]
    links = []
    for source in names:
        for target in names:
            for technology in ("wifi", "plc") if source != target else ():
                if rng.random() < density:
                    links.append((source, target, technology, rng.choice((10.0, rng.uniform(3.0, 100.0)))))
    conflicts = {}
    for (u, v, k, _), (w, x, other, _) in combinations(links, 2):
        if k == other and ({u, v} & {w, x} or rng.random() < 0.4):
            conflicts.setdefault(f"{u}{v}-{k}", []).append(f"{w}{x}-{k}")
    return network_of(links, conflicts)


def all_paths(network, source, target, seen=()):
    """Every loop-free path."""
    found = []
    for index, link in enumerate(network.links):
        if link.source == source and link.target not in (*seen, source):
            if link.target == target:
                found.append((index,))
            else:
                found += [(index, *rest) for rest in all_paths(network, link.target, target, (*seen, source))]
    return found


def independent_sets(network):
    """Every independent set of links, from the definition; only for few links."""
    contends = network.interference.contends
    found = [()]
    for index in range(len(network.links)):
        found += [(*one, index) for one in found if not any(contends(index, other) for other in one)]
    return found


def scheduled_rates(network, flows, weights):
    """The most of sum w x over all paths and all schedules, both listed: rates per flow."""
    paths = [(flow, path) for flow, ends in enumerate(flows) for path in all_paths(network, *ends)]
    sets = independent_sets(network)
    rows = np.zeros((len(network.links) + 1, len(paths) + len(sets)))
    for column, (_, path) in enumerate(paths):
        for link in path:
            rows[link, column] += 1 / network.links[link].capacity_mbps
    for column, chosen in enumerate(sets, start=len(paths)):
        rows[list(chosen), column] = -1.0
        rows[-1, column] = 1.0
    limits = np.append(np.zeros(len(network.links)), 1.0)
    gain = [-weights[flow] for flow, _ in paths] + [0.0] * len(sets)
    solved = linprog(gain, A_ub=rows, b_ub=limits).x
    return [sum(solved[i] for i, (flow, _) in enumerate(paths) if flow == each) for each in range(len(flows))]


def test_example_of_the_paper():
    """Router, extender, client: PLC 10 and WiFi 15, then WiFi 30; multipath 10 + 20/3."""
    network = network_of([("a", "b", "plc", 10), ("a", "b", "wifi", 15), ("b", "c", "wifi", 30)])
    schemes = Schemes(network)
    rate = {scheme: schemes.rate_mbps(scheme, "a", "c") for scheme in Scheme}
    for scheme in (Scheme.EMPOWER, Scheme.MP_2BP, *BOUNDS):
        assert rate[scheme] == pytest.approx(50 / 3), scheme
    assert rate[Scheme.SP] == rate[Scheme.SP_WIFI] == rate[Scheme.SP_BRUTE] == pytest.approx(10)
    assert rate[Scheme.MP_WIFI] == rate[Scheme.MP_WP] == pytest.approx(10)  # no PLC to c, so W+P has one path
    assert rate[Scheme.MP_MWIFI] == pytest.approx(20)
    assert rate[Scheme.MP_WITHOUT] == rate[Scheme.EMPOWER]


def test_schedules_beat_airtime_on_a_cycle():
    """Two hops that don't contend but share a bystander: airtime halves both, a schedule does not.

    On a ring of five links, each of which contends with its two neighbours, airtime allows 1/3 each, schedules 2/5.
    """
    links = [("a", "b", "wifi", 10), ("b", "c", "wifi", 10), ("x", "y", "wifi", 10)]
    schemes = Schemes(network_of(links, {"xy-wifi": ["ab-wifi", "bc-wifi"]}))
    assert schemes.rate_mbps(Scheme.CONS, "a", "c") == pytest.approx(5)
    assert schemes.rate_mbps(Scheme.EMPOWER, "a", "c") == pytest.approx(5)
    assert schemes.rate_mbps(Scheme.OPTIMAL, "a", "c") == pytest.approx(10)
    hops = "abcdef"
    ring = network_of(
        [(u, v, "wifi", 30) for u, v in pairwise(hops)],
        {f"{hops[i]}{hops[i + 1]}-wifi": [f"{hops[(i + 1) % 5]}{hops[(i + 1) % 5 + 1]}-wifi"] for i in range(5)},
    )
    assert Schemes(ring).rate_mbps(Scheme.CONS, "a", "f") == pytest.approx(10)
    assert Schemes(ring).rate_mbps(Scheme.OPTIMAL, "a", "f") == pytest.approx(12)


def test_two_flows_on_one_link_share_it_and_a_third_without_a_route_has_nothing():
    network = network_of([("a", "b", "wifi", 20), ("b", "c", "plc", 6), ("d", "a", "plc", 9)])
    flows = [("a", "b"), ("a", "c"), ("c", "a")]
    for scheme in (Scheme.EMPOWER, Scheme.SP, *BOUNDS):
        rates = Schemes(network).rates(scheme, flows)
        # The second flow can have 6 of the 20; equal shares would be 10 each.
        assert rates == pytest.approx([14, 6, 0], abs=1e-5), scheme
        assert Schemes(network).utility(scheme, flows) == pytest.approx(np.log(15) + np.log(7))
    assert Schemes(network).rate_mbps(Scheme.OPTIMAL, "c", "a") == 0
    assert Schemes(network).rate_mbps(Scheme.SP_BRUTE, "c", "a") == 0


def test_brute_force_finds_a_faster_path_than_the_shortest():
    """The shortest path counts a hop that does not contend with the first; the fastest doesn't."""
    links = [("a", "b", "wifi", 20), ("b", "c", "plc", 20), ("a", "c", "wifi", 14)]
    schemes = Schemes(network_of(links))
    assert schemes.rate_mbps(Scheme.SP, "a", "c") == pytest.approx(14)
    assert schemes.rate_mbps(Scheme.SP_BRUTE, "a", "c") == pytest.approx(20)


def test_wifi_and_power_lines_of_two_panels_apart():
    links = [
        ("a", "b", "wifi", 10), ("a", "b", "plc-panel-1", 4), ("b", "c", "wifi", 10), ("c", "d", "plc-panel-2", 7),
    ]  # fmt: skip
    schemes = Schemes(network_of(links))
    assert schemes.rate_mbps(Scheme.MP_WP, "a", "b") == pytest.approx(14)
    assert schemes.rate_mbps(Scheme.MP_WP, "c", "d") == pytest.approx(7)
    # No path of WiFi only, none of one power line only.
    assert schemes.rate_mbps(Scheme.MP_WP, "a", "d") == 0
    assert schemes.hybrid.depth == 2
    with pytest.raises(PlanningError, match="all paths"):
        schemes.routes(Scheme.CONS, [("a", "b")])


@pytest.mark.parametrize("seed", seeds(60))
def test_bounds_against_all_paths_and_all_independent_sets(seed):
    network = random_network(seed, density=0.35)
    flow, schemes = ("n0", "n3"), Schemes(network)
    paths = all_paths(network, *flow)
    airtime = multipath_optimum_mbps(network, paths)
    assert schemes.rate_mbps(Scheme.CONS, *flow) == pytest.approx(airtime, rel=1e-6)
    best = sum(scheduled_rates(network, [flow], [1.0])) if paths else 0.0
    assert schemes.rate_mbps(Scheme.OPTIMAL, *flow) == pytest.approx(best, rel=1e-6)
    single = max((multipath_optimum_mbps(network, [path]) for path in paths), default=0.0)
    assert schemes.rate_mbps(Scheme.SP_BRUTE, *flow) == pytest.approx(single)


@pytest.mark.parametrize("seed", seeds(30))
def test_utilities_are_the_best(seed):
    """No direction leads to more: at the optimum the gradient is a price at which nothing else is worth more."""
    network = next(each for i in range(100) if len((each := random_network(seed + 1000 * i, density=0.35)).nodes) == 4)
    flows = [("n0", "n3"), ("n1", "n2")]
    rates = Schemes(network).rates(Scheme.OPTIMAL, flows)
    weights = 1 / (1 + rates)
    best = scheduled_rates(network, flows, weights) if any(all_paths(network, *ends) for ends in flows) else (0, 0)
    # Where the utility is short of the optimum by a gap, the gradient may promise its square root more.
    assert weights @ best <= weights @ rates + 3e-3
    routes = Schemes(network).routes(Scheme.EMPOWER, flows)
    flat = [(flow, path) for flow, mine in enumerate(routes.paths) for path in mine]
    if flat:
        airtime = Airtime.of(network)
        rows = airtime.conflicts @ airtime.loads([path for _, path in flat])
        owner = np.array([[float(flow == each) for flow, _ in flat] for each in range(2)])
        found = minimize(
            lambda x: -np.log1p(owner @ x).sum(),
            np.full(len(flat), 0.1),
            jac=lambda x: -owner.T @ (1 / (1 + owner @ x)),
            bounds=[(0, None)] * len(flat),
            constraints={"type": "ineq", "fun": lambda x: 1 - rows @ x, "jac": lambda x: -rows},
            method="SLSQP",
        )
        assert Schemes(network).utility(Scheme.EMPOWER, flows) == pytest.approx(-found.fun, abs=1e-4)


@pytest.mark.parametrize("seed", seeds(60))
def test_most_of_few_paths_without_a_program(seed):
    network = random_network(seed, size=5)
    airtime, rng = Airtime.of(network), random.Random(seed)
    paths = all_paths(network, "n0", "n4")
    for count in (0, 1, 2, 2, 2, 3):
        if count <= len(paths):
            chosen = rng.sample(paths, count)
            expected = best_rates(airtime, Carriers.of_paths(airtime, [chosen]))[0]
            assert most_of_paths(airtime, chosen) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("seed", seeds(20))
def test_order_of_schemes_in_networks_of_the_studies(seed):
    rng = random.Random(seed)
    network = residential(rng) if seed % 2 else enterprise(rng, width_m=100.0, height_m=60.0, panels=2)
    flow = endpoints(network, rng)
    schemes = Schemes(network)
    rate = {scheme: schemes.rate_mbps(scheme, *flow) for scheme in Scheme}
    assert rate[Scheme.CONS] <= rate[Scheme.OPTIMAL] * ABOVE
    for scheme in set(Scheme) - {Scheme.MP_MWIFI, *BOUNDS}:
        assert rate[scheme] <= rate[Scheme.CONS] * ABOVE, scheme
    assert rate[Scheme.SP] <= rate[Scheme.SP_BRUTE] * ABOVE
    assert rate[Scheme.SP_WIFI] <= rate[Scheme.MP_WP] * ABOVE
    assert rate[Scheme.MP_MWIFI] >= rate[Scheme.SP_WIFI] / ABOVE
    # Two channels everywhere carry what one does, twice.
    everywhere = Schemes(two_channels(network, everywhere=True))
    assert everywhere.rate_mbps(Scheme.CONS, *flow) >= 2 * rate[Scheme.SP_WIFI] / ABOVE


@pytest.mark.parametrize("seed", seeds(100))
def test_heaviest_independent_set_against_all(seed):
    rng = random.Random(seed)
    count = rng.randrange(1, 11)
    near = [1 << v for v in range(count)]
    for u, v in combinations(range(count), 2):
        if rng.random() < 0.5:
            near[u] |= 1 << v
            near[v] |= 1 << u
    weights = np.array([rng.choice((0.0, 1.0, rng.random())) for _ in range(count)])
    best = 0.0
    for chosen in range(1 << count):
        members = [v for v in range(count) if chosen >> v & 1]
        if all(not near[u] >> v & 1 for u, v in combinations(members, 2)):
            best = max(best, weights[members].sum())
    weight, chosen = heaviest_independent_set(weights, near, range(count))
    members = [v for v in range(count) if chosen >> v & 1]
    assert weight == pytest.approx(best)
    assert weights[members].sum() == pytest.approx(weight)
    assert all(not near[u] >> v & 1 for u, v in combinations(members, 2))


def test_fastest_path_of_a_network_without_links_into_the_target():
    network = network_of([("a", "b", "wifi", 20), ("c", "b", "plc", 6)])
    part = Schemes(network).hybrid
    assert fastest_path(part.airtime, part.graph, part.graph.node("a"), part.graph.node("c")) == ()
