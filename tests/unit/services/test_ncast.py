"""n-cast against trying everything on small networks."""

import random
from itertools import combinations

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core.errors import NoRouteError, PlanningError
from hyroads.controller.core.interference import ConflictInterference, TechnologyInterference
from hyroads.controller.core.ncast import Leg, choose, copy_tree, loss_of
from hyroads.controller.core.network import Link, Network, Node, Role


def net(links, conflicts=None, plain=()) -> Network:
    names = dict.fromkeys(end for link in links for end in link[:2])
    nodes = {n: Node(n, Role.CLIENT if n in plain else Role.AP, agent=n not in plain) for n in names}
    made = tuple(Link(f"l{i}", a, b, k, c, loss=0.03) for i, (a, b, k, c) in enumerate(links))
    rule = TechnologyInterference(made) if conflicts is None else ConflictInterference(made, conflicts)
    return Network(nodes, made, rule)


def random_network(rng: random.Random) -> Network:
    names = ["s", "x", "y", "c"]
    links = [
        (a, b, k, rng.uniform(5.0, 50.0))
        for a, b in ((a, b) for a in names for b in names if a != b)
        for k in ("wifi", "plc", "lte")
        if rng.random() < 0.4
    ]
    links = links or [("s", "c", "wifi", 10.0)]
    conflicts = {f"l{i}": [f"l{j}" for j in range(i) if rng.random() < 0.3] for i in range(len(links))}
    return net([("s", "c", "wifi", 1.0), *links], conflicts)


def all_paths(network: Network, at: str, target: str, seen=()) -> list[tuple[int, ...]]:
    if at == target:
        return [()]
    return [
        (index, *rest)
        for index, link in enumerate(network.links)
        if link.source == at and link.target not in (*seen, at)
        for rest in all_paths(network, link.target, target, (*seen, at))
    ]


def judged(network: Network, paths) -> tuple[int, int, int, float]:
    """The criteria, from their definition."""
    shared = sum(len(set(p) & set(q)) for p, q in combinations(paths, 2))
    pairs = [(a, b) for p, q in combinations(paths, 2) for a in p for b in q if a != b]
    contending = sum(network.interference.contends(a, b) for a, b in pairs)
    interfaces = {network.links[p[-1]].technology for p in paths}
    airtime = sum(1 / network.links[link].capacity_mbps for p in paths for link in p)
    return len(paths) - len(interfaces), shared, contending, airtime


@examples(80)
@given(st.integers(0, 10**6), st.integers(1, 3))
def test_exact_on_small_networks(seed, n):
    network = random_network(random.Random(seed))
    found = all_paths(network, "s", "c")
    best = min(judged(network, some) for some in combinations(found, min(n, len(found))))
    chosen = choose(network, "s", "c", n, per_interface=len(found))
    got = judged(network, chosen.paths)
    assert got[:3] == best[:3] and got[3] == pytest.approx(best[3])
    assert (chosen.shared_links, chosen.contending_pairs) == best[1:3]
    assert len(set(chosen.paths)) == min(n, len(found))


def test_default_number_of_candidates_is_nearly_always_enough():
    same = 0
    for seed in range(60):
        network = random_network(random.Random(seed))
        found = all_paths(network, "s", "c")
        best = min(judged(network, some) for some in combinations(found, min(2, len(found))))
        same += judged(network, choose(network, "s", "c", 2).paths)[:3] == best[:3]
    assert same >= 54


def test_disjoint_domains_are_found_behind_many_shorter_paths():
    """Eight short ways over one medium, one long way that has nothing to do with them."""
    links = [("s", f"r{i}", "wifi", 100.0 - i) for i in range(8)] + [(f"r{i}", "c", "wifi", 100.0) for i in range(8)]
    links += [("s", "x", "lan", 1.0), ("x", "y", "lan", 1.0), ("y", "c", "wifi2", 1.0)]
    chosen = choose(net(links), "s", "c", 2, per_interface=2)
    assert chosen.shared_links == chosen.contending_pairs == 0 and set(chosen.interfaces) == {"wifi", "wifi2"}


def test_loss_of_disjoint_and_of_shared_links():
    network = net(
        [("s", "c", k, 10.0) for k in ("wifi", "plc", "lte")] + [("s", "x", "lan", 9.0), ("x", "c", "lan", 9.0)]
    )
    three = choose(network, "s", "c", 3)
    assert three.loss == pytest.approx(0.03**3) and three.loss < 1e-4
    assert loss_of(network, [(3, 4)]) == pytest.approx(1 - 0.97**2)
    # A shared first link loses for both: then nothing helps.
    network = net([("s", "x", "lan", 9.0), ("x", "c", "wifi", 9.0), ("x", "c", "plc", 9.0)])
    assert loss_of(network, [(0, 1), (0, 2)]) == pytest.approx(0.03 + 0.97 * 0.03**2)


def test_what_cannot_be_done_is_an_error():
    network = net([("s", "x", "wifi", 9.0), ("c", "x", "wifi", 9.0)])
    with pytest.raises(NoRouteError, match="no route"):
        choose(network, "s", "c", 2)
    for wrong in (0, 5):
        with pytest.raises(PlanningError, match="copies"):
            choose(network, "s", "c", wrong)
    with pytest.raises(PlanningError, match="same node"):
        choose(network, "s", "s", 2)


def arrivals(leg: Leg) -> list[int]:
    return [leg.path] if not leg.onward else [path for each in leg.onward for path in arrivals(each)]


@examples(120)
@given(st.integers(0, 10**6), st.integers(1, 4), st.sets(st.sampled_from(["x", "y"])))
def test_each_copy_arrives_once_by_its_own_links_and_what_is_shared_is_travelled_once(seed, n, may_branch):
    rng = random.Random(seed)
    network = random_network(rng)
    found = all_paths(network, "s", "c")
    chosen = [tuple(network.links[i].id for i in path) for path in rng.sample(found, min(n, len(found)))]
    tree = copy_tree(network, chosen, may_branch.__contains__)
    assert sorted(path for leg in tree for path in arrivals(leg)) == list(range(len(chosen)))
    travelled = {index: [] for index in range(len(chosen))}

    def follow(leg: Leg, before: tuple[str, ...]) -> int:
        links = before + chosen[leg.path][leg.start : leg.end]
        if leg.onward:
            assert network.links[network.link_index[links[-1]]].target in may_branch and len(leg.onward) > 1
        else:
            travelled[leg.path] = list(links)
        return leg.end - leg.start + sum(follow(each, links) for each in leg.onward)

    taken = sum(follow(leg, ()) for leg in tree)
    assert [tuple(travelled[index]) for index in range(len(chosen))] == chosen
    # Without any branch on the way each copy is for itself; with all of them each beginning of paths is travelled once.
    prefixes = {path[:end] for path in chosen for end in range(1, len(path) + 1)}
    assert len(prefixes) <= taken <= sum(map(len, chosen))
    if may_branch == {"x", "y"}:
        assert taken == len(prefixes)
    if not may_branch:
        assert taken == sum(map(len, chosen)) and not any(leg.onward for leg in tree)


def test_copies_part_at_the_last_node_that_can_copy():
    chain = [("s", "x", "wifi", 9), ("x", "y", "wifi", 9), *(("y", "c", k, 9) for k in ("wifi", "plc", "lte"))]
    network, paths = net(chain), [("l0", "l1", last) for last in ("l2", "l3", "l4")]
    assert copy_tree(network, paths, {"x", "y"}.__contains__) == (Leg(0, 0, 2, tuple(Leg(i, 2, 3) for i in range(3))),)
    assert copy_tree(network, paths, {"x"}.__contains__) == (Leg(0, 0, 1, tuple(Leg(i, 1, 3) for i in range(3))),)
    assert copy_tree(network, paths, ().__contains__) == tuple(Leg(i, 0, 3) for i in range(3))
    assert (
        copy_tree(network, paths[:1], {"x"}.__contains__) == (Leg(0, 0, 3),)
        and copy_tree(network, [], {"x"}.__contains__) == ()
    )
