"""Placements of radios by trying all: every combination of attachments, each solved over all its loop-free paths.

Nothing of ``core.placement`` is used: the network keeps only the client's links of the combination, its loop-free paths
are listed one by one, and a linear program has one variable a path.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from scipy.optimize import linprog

from hyroads.controller.core.network import Network
from hyroads.controller.core.optimum import airtime_rows

# Two totals are equal within this share: capacities of tests are such that others are farther apart.
TIE = 1e-8

Combination = tuple[str | None, ...]
Placed = tuple[float, dict[str, str], dict[str, str]]


def paths_to(network: Network, peer: str, client: str) -> list[tuple[int, ...]]:
    """All loop-free paths; plain clients forward nothing."""
    found = []

    def extend(node: str, path: tuple[int, ...], seen: frozenset[str]) -> None:
        if node == client:
            found.append(path)
        elif not path or not network.nodes[node].is_plain_client:
            for index, link in enumerate(network.links):
                if link.source == node and link.target not in seen and link.capacity_mbps > 0:
                    extend(link.target, (*path, index), seen | {link.target})

    extend(peer, (), frozenset({peer}))
    return found


def restricted(network: Network, client: str, radios: Sequence[str], combination: Combination) -> Network:
    """Without the client's links to others than the combination's neighbours."""
    allowed = {(k, node) for k, node in zip(radios, combination, strict=True) if node is not None}
    gone = {
        link.id: 0.0
        for link in network.links
        if client in (link.source, link.target)
        and (link.technology, link.target if link.source == client else link.source) not in allowed
    }
    return network.with_capacities(gone)


def total_mbps(network: Network, paths: Sequence[tuple[int, ...]]) -> float:
    """The greatest total."""
    if not paths:
        return 0.0
    rows = airtime_rows(network, paths)
    return -float(linprog(-np.ones(len(paths)), A_ub=rows, b_ub=np.ones(len(rows)), method="highs").fun)


def common_mbps(network: Network, paths: Sequence[tuple[int, ...]], radios: Sequence[str]) -> float:
    """The greatest rate that each of these radios gets at once."""
    rows = airtime_rows(network, paths)
    last = [network.links[path[-1]].technology for path in paths]
    equal = np.array([[float(technology == radio) for technology in last] + [-1.0] for radio in radios])
    solved = linprog(
        np.append(np.zeros(len(paths)), -1.0),
        A_ub=np.column_stack([rows, np.zeros(len(rows))]),
        b_ub=np.ones(len(rows)),
        A_eq=equal,
        b_eq=np.zeros(len(radios)),
        method="highs",
    )
    return -float(solved.fun)


def brute_force(network: Network, client: str, peer: str, mode: str) -> Placed:
    """Total in Mb/s, attachments and roles; total 0 if no path reaches the client."""
    radios = network.technologies_of[client]
    if mode == "high-robustness":
        return _robust(network, client, peer, radios)
    if mode == "full-speed":
        total, attached = _fastest(network, client, peer, radios)
        return total, attached, {k: "active" if k in attached else "off" for k in radios}
    metered = [k for k in radios if k in network.metered]
    total, attached = _fastest(network, client, peer, [k for k in radios if k not in metered])
    spare_total, spare = _fastest(network, client, peer, metered)
    roles = {k: "active" if k in attached else "off" for k in radios}
    roles |= dict.fromkeys(spare, "backup" if attached else "active")
    return total or spare_total, {**attached, **spare}, roles


def _choices(network: Network, client: str, radios: Sequence[str]) -> list[list[str]]:
    return [
        [node for node in network.nodes
         if any((link.source, link.target, link.technology) == (node, client, k) and link.capacity_mbps > 0
                for link in network.links)]
        for k in radios
    ]  # fmt: skip


def _fastest(network: Network, client: str, peer: str, radios: Sequence[str]) -> tuple[float, dict[str, str]]:
    """Greatest total, then fewest attached, then the first by technologies and nodes (none is last)."""
    found = []
    for combination in product(*([*nodes, None] for nodes in _choices(network, client, radios))):
        own = restricted(network, client, radios, combination)
        found.append((total_mbps(own, paths_to(own, peer, client)), combination))
    best = max(total for total, _ in found)
    good = [(sum(n is not None for n in c), i) for i, (total, c) in enumerate(found) if total >= best * (1 - TIE)]
    total, combination = found[min(good)[1]]
    return total, {k: node for k, node in zip(radios, combination, strict=True) if node is not None}


def _robust(network: Network, client: str, peer: str, radios: Sequence[str]) -> Placed:
    """All radios that any path reaches: most different nodes, greatest common rate, first."""
    reached = {(network.links[p[-1]].technology, network.links[p[-1]].source) for p in paths_to(network, peer, client)}
    used = [k for k in radios if any(technology == k for technology, _ in reached)]
    found = []
    for combination in product(*([v for v in network.nodes if (k, v) in reached] for k in used)):
        own = restricted(network, client, used, combination)
        rate = common_mbps(own, paths_to(own, peer, client), used) if used else 0.0
        found.append((len(set(combination)), rate, combination))
    most = max(different for different, _, _ in found)
    best = max(rate for different, rate, _ in found if different == most)
    rate, combination = next((r, c) for different, r, c in found if different == most and r >= best * (1 - TIE))
    return rate, dict(zip(used, combination, strict=True)), {k: "copy" if k in used else "off" for k in radios}
