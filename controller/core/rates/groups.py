"""Flows of a group have one utility, that of their total rate (docs/explanation/rates.md, *Groups of flows*).

With G the groups (a flow without one is alone in its own), M_g the flows of a group and x_f <= D_f their demands:

    max sum_g U_g(sum_{f in M_g} x_f)   subject to the airtime rows,   x_f <= D_f,   x >= 0

So a connection of several subflows gets what a connection of one gets where they meet (RFC 6356, section 2, goal 2),
wherever its subflows run, and its total is the greatest where they do not (goal 1). A weight of w / k for each of k
flows, or the coupled increase of RFC 6356, are approximations of this.

The problem is put on a *merged* layout in which a group is one flow with the paths of all its members, so that solver
and kernel know nothing of groups. The demand of a member becomes an airtime row: a link of its own, of capacity D_f,
alone in its domain, that all paths of the member cross.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy import sparse

from hyroads.controller.core.network import FlowSpec

from .allocation import Allocation
from .problem import IndexArray, Layout, RateProblem, sums_by
from .shares import SliceShares
from .solver import solve
from .utilities import Utilities

# Instead of no limit: so far above all rates that its row never binds.
_UNLIMITED = 1e6


def groups_of(flows: Iterable[FlowSpec]) -> dict[str, object]:
    """What the flows of each group have in common: group, slice and kind of utility (flow id -> these)."""
    return {flow.id: (flow.group, flow.slice, flow.utility, flow.alpha) for flow in flows if flow.group is not None}


def with_parts_of_weight(flows: Iterable[FlowSpec]) -> list[FlowSpec]:
    """The flows, each of k that are in one group with a k-th of its weight: where all meet they weigh as one."""
    flows = list(flows)
    groups = groups_of(flows)
    size = Counter(groups.values())
    return [replace(flow, weight=flow.weight / size[groups[flow.id]]) if flow.id in groups else flow for flow in flows]


def solve_with_groups(problem: RateProblem, groups: Mapping[str, object]) -> Allocation:
    """The optimal rates if the flows (ids) with the same value in ``groups`` have one utility; see ``solve``."""
    merged = Merged.of(problem.layout, groups)
    return solve(problem) if merged is None else merged.allocation(problem, solve(merged.problem(problem)))


@dataclass(frozen=True, eq=False)
class Merged:
    """A layout on which groups are flows.

    ``layout`` has the network's links and then one for each flow that is in a group (``limited``, flow indices).
    ``merged_of[F]`` is the merged flow of each flow, ``first[M]`` the first flow of each merged one, ``path_at[P]``
    the old index of each path.
    """

    before: Layout
    layout: Layout
    limited: IndexArray
    merged_of: IndexArray
    first: IndexArray
    path_at: IndexArray

    @staticmethod
    def of(layout: Layout, groups: Mapping[str, object]) -> Merged | None:
        """Merge the flows (ids) of each group (any hashable value); None if no two flows have the same.

        A merged flow stands where its first member did and has its id.
        """
        number: dict[object, int] = {}
        keys = [(0, groups[flow]) if flow in groups else (1, flow) for flow in layout.flow_ids]
        merged_of = np.array([number.setdefault(key, len(number)) for key in keys], dtype=np.intp)
        sizes = np.bincount(merged_of, minlength=len(number))
        limited = np.flatnonzero(sizes[merged_of] > 1)
        if not len(limited):
            return None
        first = np.array([int(np.argmax(merged_of == flow)) for flow in range(len(number))], dtype=np.intp)
        owner = merged_of[layout.path_flow]
        path_at = np.argsort(owner, kind="stable")
        own = np.full(layout.flow_count, -1, dtype=np.intp)
        own[limited] = layout.link_count + np.arange(len(limited))
        of_path = own[layout.path_flow[path_at]]
        merged = Layout(
            tuple(layout.flow_ids[flow] for flow in first.tolist()),
            owner[path_at],
            tuple(
                layout.paths[path] if link < 0 else (*layout.paths[path], link)
                for path, link in zip(path_at.tolist(), of_path.tolist(), strict=True)
            ),
            _with_own(layout.routing[path_at], of_path, len(limited)),
            np.concatenate([layout.class_of, layout.domains.shape[0] + np.arange(len(limited))]).astype(np.intp),
            sparse.csr_matrix(sparse.block_diag([layout.domains, sparse.identity(len(limited))], format="csr")),
        )
        return Merged(layout, merged, limited, merged_of, first, path_at)

    def problem(self, problem: RateProblem) -> RateProblem:
        """The problem of the merged flows. Of a group the utility is its first flow's, with the greatest weight."""
        demand = problem.demand_mbps[self.limited]
        most = _UNLIMITED * max(1.0, float(problem.capacity_mbps.max(initial=0.0)))
        count = len(self.first)
        weight = np.zeros(count)
        np.maximum.at(weight, self.merged_of, problem.utilities.weight)
        utilities = problem.utilities
        nothing = np.zeros(len(self.limited))
        return RateProblem(
            self.layout,
            Utilities(weight, utilities.alpha[self.first], utilities.shift_mbps[self.first]),
            np.concatenate([problem.capacity_mbps, np.minimum(demand, most)]),
            np.concatenate([problem.margin, nothing]),
            np.concatenate([problem.external, nothing]),
            sums_by(self.merged_of, problem.demand_mbps, count),
        )

    def shares(self, shares: SliceShares) -> SliceShares:
        """Shares of slices on the merged layout; the flows of a group are of one slice."""
        more = np.ones((len(shares.names), len(self.limited)))
        return SliceShares(shares.names, shares.slice_of[self.first], np.hstack([shares.share, more]))

    def warm(self, last: Allocation | None) -> Allocation | None:
        """An allocation of the flows as the start of one of the merged flows."""
        if last is None or last.layout is not self.before:
            return None
        rates = last.path_rates_mbps[self.path_at]
        prices = np.concatenate([last.link_prices, np.zeros(len(self.limited))])
        flows = self.layout.flow_rates(rates)
        return replace(last, layout=self.layout, path_rates_mbps=rates, flow_rates_mbps=flows, link_prices=prices)

    def allocation(self, problem: RateProblem, found: Allocation) -> Allocation:
        """The allocation of the flows of a problem; its utility and certificate are those of the groups."""
        rates = np.zeros(self.before.path_count)
        rates[self.path_at] = found.path_rates_mbps
        flows, prices = self.before.flow_rates(rates), found.link_prices[: self.before.link_count]
        return replace(
            found,
            layout=self.before,
            path_rates_mbps=rates,
            flow_rates_mbps=flows,
            link_prices=prices,
            busiest=partial(problem.busiest, rates),
        )


def _with_own(routing: sparse.csr_matrix, own: IndexArray, count: int) -> sparse.csr_matrix:
    """Routing of P paths, P x L, with ``count`` more links: ``own[P]`` is the one that a path crosses, or -1."""
    paths = np.flatnonzero(own >= 0)
    places = (paths, own[paths] - routing.shape[1])
    return sparse.csr_matrix(
        sparse.hstack(
            [routing, sparse.csr_matrix((np.ones(len(paths)), places), shape=(len(own), count))], format="csr"
        )
    )
