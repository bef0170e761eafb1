"""The most that one flow can get over all paths at once, by linear programming: the yardstick of the planner.

    max  F   subject to   conservation of the link rates f at every node (F leaves the source, F enters the target),
                          sum over m in I_l of d_m f_m <= 1 - delta for every link l,   f >= 0

A flow splits into paths and cycles and cycles only cost airtime, so this is the optimum over all multipaths of any
size, found without listing them. Solved by HiGHS (Huangfu and Hall, Math. Prog. Comp. 10, 2018).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from hyroads.controller.core.errors import PlanningError
from hyroads.controller.core.interface_graph import FloatArray, InterfaceGraph, interface_graph
from hyroads.controller.core.network import Network


def flow_optimum_mbps(
    network: Network, source: str, target: str, margin: float = 0.0, clients_relay: bool = False
) -> float:
    """The most, in Mb/s, that one flow can get over all paths at once; 0 if there is no path."""
    graph = interface_graph(network, clients_relay)
    start, end = graph.node(source), graph.node(target)
    capacities = network.capacities
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
