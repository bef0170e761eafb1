"""The exact tree of least airtime by mixed integer programming: the yardstick of ``core.multicast`` on small networks.

    min  sum over unicast links l of y_l / c_l  +  sum over (node, technology, level) of z / c_level
    for every member t a unit of flow f_t from the source, conserved at every node,
    f_t(l) <= y_l  +  sum of z at the link's node and technology with c_level <= c_l,     y, z in {0, 1}

A level is a rate of one of the node's links on a shared medium: a group transmission at it reaches all that are at
least as fast. Where groups are sent at the rate of the slowest neighbour that is the only level. Solved by HiGHS
(Huangfu and Hall, Math. Prog. Comp. 10, 2018).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import combinations

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from hyroads.controller.core.errors import NoRouteError, PlanningError
from hyroads.controller.core.interference import TechnologyInterference
from hyroads.controller.core.multicast import GroupRate, Media, Tree
from hyroads.controller.core.network import Link, Network, Node, Role

TIME_LIMIT_S = 60.0


def least_airtime(media: Media, source: str, members: Iterable[str]) -> float:
    """Airtime of the best tree, seconds per Mb. Raises ``NoRouteError`` if there is none."""
    terminals = sorted(set(members) - {source})
    links = [i for i, cost in enumerate(media.cost) if cost < np.inf and _may_send(media, i, source)]
    levels = sorted({(media.port(i), _level(media, i)) for i in links if media.shared[i]})
    if not terminals:
        return 0.0
    sends, flows = len(links) + len(levels), len(links) * len(terminals)
    cost = np.concatenate([[media.cost[i] for i in links], [cost for _, cost in levels], np.zeros(flows)])
    # Scaled so that the greatest cost is 1: tolerances of the solver are absolute.
    scale = float(cost.max())
    covers = _covers(media, links, levels)
    identity, blocks = sparse.identity(len(links)), sparse.identity(len(terminals))
    served = sparse.hstack([sparse.vstack([-covers] * len(terminals)), sparse.kron(blocks, identity)])
    conserved = sparse.kron(blocks, _incidence(media, links))
    balance = np.concatenate([_unit(media, source, t) for t in terminals])
    nothing = sparse.csr_matrix((conserved.shape[0], sends))
    integral = np.concatenate([np.ones(sends), np.zeros(flows)])
    solved = milp(
        cost / scale,
        integrality=integral,
        bounds=Bounds(0.0, 1.0),
        constraints=[
            LinearConstraint(sparse.csr_matrix(served), -np.inf, 0.0),
            LinearConstraint(sparse.csr_matrix(sparse.hstack([nothing, conserved])), balance, balance),
        ],
        options={"time_limit": TIME_LIMIT_S, "mip_rel_gap": 0.0},
    )
    if solved.status == 2:
        raise NoRouteError(f"no tree from {source!r} to {', '.join(terminals)}")
    if not solved.success:
        raise PlanningError(f"no optimum of the tree: {solved.message}")
    return float(solved.fun) * scale


def _may_send(media: Media, link: int, source: str) -> bool:
    origin = media.network.links[link].source
    return origin == source or media.relays[origin]


def _level(media: Media, link: int) -> float:
    return media.cost[link] if media.group_rate is GroupRate.RECEIVERS else media.slowest[media.port(link)]


def _covers(
    media: Media, links: list[int], levels: list[tuple[tuple[str, str], float]]
) -> sparse.csr_matrix[np.float64]:
    """Links x (unicasts, group transmissions): which transmission serves which link."""
    group = np.array(
        [[media.shared[i] and key == media.port(i) and media.cost[i] <= cost for key, cost in levels] for i in links],
        dtype=float,
    ).reshape(len(links), len(levels))
    return sparse.csr_matrix(sparse.hstack([sparse.identity(len(links)), sparse.csr_matrix(group)]))


def _incidence(media: Media, links: list[int]) -> sparse.csr_matrix[np.float64]:
    """Nodes x links: 1 where a link leaves, -1 where it enters."""
    number = {node: i for i, node in enumerate(media.network.nodes)}
    ends = [(number[media.network.links[i].source], number[media.network.links[i].target]) for i in links]
    rows = [end for pair in ends for end in pair]
    columns = [column for column in range(len(links)) for _ in range(2)]
    return sparse.csr_matrix(([1.0, -1.0] * len(links), (rows, columns)), shape=(len(number), len(links)))


def _unit(media: Media, source: str, target: str) -> list[float]:
    return [1.0 if node == source else -1.0 if node == target else 0.0 for node in media.network.nodes]


def is_tree(media: Media, tree: Tree) -> bool:
    """Whether every member is reached from the source, without loops, through nodes that forward, over live links."""
    for node in tree.members:
        walk: Sequence[str] = (node,)
        while walk[-1] != tree.source:
            index = tree.parent.get(walk[-1], -1)
            if index < 0 or media.cost[index] == np.inf or media.network.links[index].target != walk[-1]:
                return False
            above = media.network.links[index].source
            if above in walk or not (above == tree.source or media.relays[above]):
                return False
            walk = (*walk, above)
    return True


def net(*links: tuple[str, str, str, float], unshared=frozenset(), plain=()) -> Network:
    names = dict.fromkeys(end for link in links for end in link[:2])
    nodes = {n: Node(n, Role.CLIENT if n in plain else Role.AP, agent=n not in plain) for n in names}
    made = tuple(Link(f"{a}{b}-{k}-{i}", a, b, k, c) for i, (a, b, k, c) in enumerate(links))
    return Network(nodes, made, TechnologyInterference(made, unshared), unshared=unshared)


def random_network(rng: random.Random, nodes: int) -> Network:
    names = [f"n{i}" for i in range(nodes)]
    links = []
    for a, b in combinations(names, 2):
        for technology, share in (("wifi", 0.5), ("plc", 0.35)):
            if rng.random() < share:
                links += [(a, b, technology, rng.uniform(5, 100)), (b, a, technology, rng.uniform(5, 100))]
    return net(*links) if links else net(("n0", "n1", "wifi", 10.0), ("n1", "n0", "wifi", 10.0))
