"""Exact optima by linear programming: the yardsticks of the planner (spec 01, sections 1.1 and 1.2).

Multipath (thesis [2.4], with the rows of *every* link of the network):

    max  sum_P x_P   subject to   sum_P alpha_{P,l} x_P <= 1 - delta for every link l,   x >= 0
    alpha_{P,l} = sum of d_m over the links m of P in I_l

Single flow over all paths at once, without listing them (link-flow form):

    max  F   subject to   conservation of the link rates f at every node (F leaves the source, F enters the target),
                          sum over m in I_l of d_m f_m <= 1 - delta for every link l,   f >= 0

A flow splits into paths and cycles and cycles only cost airtime, so this is the optimum over all multipaths of any
size. Both are solved by HiGHS (Huangfu and Hall, Math. Prog. Comp. 10, 2018). Links of capacity 0 do not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hyroads.controller.core.capacity import path_load
from hyroads.controller.core.errors import PlanningError
from hyroads.controller.core.interface_graph import FloatArray, InterfaceGraph, capacities_of, interface_graph
from hyroads.controller.core.network import Network
from hyroads.controller.core.paths import Path
from scipy import sparse
from scipy.optimize import linprog


def airtime_rows(network: Network, paths: Sequence[Path]) -> FloatArray:
    """alpha, float64[L, M] in s/Mb: busy time of every link of the network per Mb/s on each path.

    A path over a link of capacity 0 raises ``PlanningError``; rows of other links of capacity 0 are 0.
    """
    capacities = capacities_of(network)
    for path in paths:
        if not all(capacities[link] > 0 for link in path):
            raise PlanningError("a path uses a link of capacity 0")
    columns = [path_load(network.interference, capacities, path) for path in paths]
    rows = np.array(columns, dtype=np.float64).reshape(len(paths), len(capacities)).T
    rows[capacities <= 0] = 0.0
    return rows


def binding_rows(rows: FloatArray) -> FloatArray:
    """The distinct rows that no other row dominates: with few paths a handful instead of one per link."""
    kept = np.unique(rows, axis=0)
    if len(kept) > 1000:  # the comparison of all pairs costs more than the solver then
        return kept
    dominated = (kept[None, :, :] >= kept[:, None, :]).all(axis=2) & ~np.eye(len(kept), dtype=bool)
    return kept[~dominated.any(axis=1)]


def multipath_rates(network: Network, paths: Sequence[Path], margin: float = 0.0) -> FloatArray:
    """Rates of the optimum, float64[M] in Mb/s, when every link may be busy for the share 1 - ``margin``."""
    if not paths:
        return np.zeros(0)
    rows = binding_rows(airtime_rows(network, paths))
    # Scaled so that the greatest coefficient is 1: tolerances of the solver are absolute.
    scale = float(rows.max())
    solved = linprog(-np.ones(len(paths)), A_ub=rows / scale, b_ub=np.ones(len(rows)), method="highs")
    if solved.x is None:
        raise PlanningError(f"no optimum of the multipath: {solved.message}")
    return np.asarray(solved.x, dtype=np.float64) * ((1.0 - margin) / scale)


def multipath_optimum_mbps(network: Network, paths: Sequence[Path], margin: float = 0.0) -> float:
    """Total of :func:`multipath_rates` in Mb/s; 0 without paths."""
    return float(multipath_rates(network, paths, margin).sum())


def flow_optimum_mbps(
    network: Network, source: str, target: str, margin: float = 0.0, clients_relay: bool = False
) -> float:
    """The most, in Mb/s, that one flow can get over all paths at once; 0 if there is no path."""
    graph = interface_graph(network, clients_relay)
    start, end = graph.node(source), graph.node(target)
    capacities = capacities_of(network)
    usable = _usable_links(graph, capacities, start, end)
    if not usable or start == end:
        return 0.0
    # The variables are the rates of the usable links, in units of the fastest, and the total.
    conserved: Any = _conservation(graph, usable, start, end)
    busy: Any = _busy_times(network, capacities, usable)
    gain = np.append(np.zeros(len(usable)), -1.0)
    limits, balances = np.ones(busy.shape[0]), np.zeros(conserved.shape[0])
    solved = linprog(gain, A_ub=busy, b_ub=limits, A_eq=conserved, b_eq=balances, method="highs")
    if solved.x is None:
        raise PlanningError(f"no optimum of the flow: {solved.message}")
    return float(solved.x[-1]) * graph.unit_mbps * (1.0 - margin)


def _usable_links(graph: InterfaceGraph, capacities_mbps: FloatArray, start: int, end: int) -> list[int]:
    """Links that exist and that a path of the flow may take."""
    may_pass = [relays or node in (start, end) for node, relays in enumerate(graph.relays)]
    live: list[int] = np.flatnonzero(capacities_mbps > 0).tolist()
    return [link for link in live if may_pass[graph.source[link]] and may_pass[graph.target[link]]]


def _conservation(graph: InterfaceGraph, usable: list[int], start: int, end: int) -> sparse.csr_matrix:
    """Node x variable incidence: what leaves a node minus what enters it, the total entering the source."""
    count = len(usable)
    rows = [graph.source[link] for link in usable] + [graph.target[link] for link in usable] + [start, end]
    columns = [*range(count), *range(count), count, count]
    values = [1.0] * count + [-1.0] * count + [-1.0, 1.0]
    return sparse.csr_matrix((values, (rows, columns)), shape=(len(graph.relays), count + 1))


def _busy_times(network: Network, capacities_mbps: FloatArray, usable: list[int]) -> sparse.csr_matrix:
    """Row per existing link: its busy time per unit of each variable."""
    existing = np.flatnonzero(capacities_mbps > 0)
    airtime = sparse.diags(float(capacities_mbps.max()) / capacities_mbps[usable])
    rows = sparse.csr_matrix(network.interference.contention_matrix()[existing][:, usable] @ airtime)
    return sparse.csr_matrix((rows.data, rows.indices, rows.indptr), shape=(len(existing), len(usable) + 1))
