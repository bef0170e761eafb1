"""The rate problem of one slot: maximise sum_f U_f(x_f) subject to the airtime of every link's domain
(docs/explanation/rates.md).

With R the L x P routing matrix, d_l = 1 / c_l, B the L x L interference matrix and x_f the sum of x_P over the paths
of flow f:

    B diag(d) R x <= 1 - delta - external,    x_f <= demand_f,    x >= 0                           [3.1, 3.2]

What changes with topology and paths only is a :class:`Layout`, made once; what is measured in every slot is a
:class:`RateProblem` on it. Rows are one per link of the *whole* network, used or not, but links with the same domain
(and, below, domains that the paths touch in the same way) share one row; see ``reduction``.

The utilities U_f are those of :mod:`.utilities`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from weakref import ReferenceType, WeakKeyDictionary, ref

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hyroads.controller.core.errors import PlanningError
from hyroads.controller.core.interference import Interference
from hyroads.controller.core.network import FlowSpec, Network

from .utilities import Utilities, utilities_of

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]


def sums_by(index: IndexArray, values: FloatArray, count: int) -> FloatArray:
    """Sums of values by index, shape ``count``."""
    return np.bincount(index, values, minlength=count).astype(float, copy=False)


Paths = Sequence[Sequence[int]]


class DomainsToken:
    """Stands for the domains of a layout where what follows from them is remembered."""


@dataclass(frozen=True, eq=False)
class Layout:
    """What a rate problem takes from topology, interference and paths.

    ``flow_ids[F]``; ``path_flow[P]`` is non-decreasing; ``routing`` is the P x L transposed routing matrix R';
    ``class_of[L]`` numbers the distinct domains from 0 and ``domains`` is the C x L matrix of their members
    (B = the rows ``class_of`` of it), restricted to the columns of links that some path uses (others are empty).
    """

    flow_ids: tuple[str, ...]
    path_flow: IndexArray
    paths: tuple[tuple[int, ...], ...]
    routing: sparse.csr_matrix
    class_of: IndexArray
    domains: sparse.csr_matrix
    made_of: Mapping[str, Paths] = field(default_factory=dict, repr=False)
    """The paths of each flow, as they were given."""
    same_domains: DomainsToken = field(default_factory=DomainsToken, repr=False)
    """Layouts that have this in common have ``domains`` in common."""
    rows_in: tuple[ReferenceType[Layout], IndexArray] | None = field(default=None, repr=False)
    """The layout that this was made from, and per path its position there (-1: it is new)."""

    @property
    def flow_count(self) -> int:
        """F."""
        return len(self.flow_ids)

    @property
    def path_count(self) -> int:
        """P."""
        return len(self.paths)

    @property
    def link_count(self) -> int:
        """L."""
        return len(self.class_of)

    def flow_rates(self, path_rates: FloatArray) -> FloatArray:
        """x_f from x_P, shapes P -> F."""
        return sums_by(self.path_flow, path_rates, self.flow_count)

    @cached_property
    def routing_t(self) -> sparse.csr_matrix:
        """The routing matrix R, L x P."""
        return self.routing.T.tocsr()

    @cached_property
    def contention_on_paths(self) -> sparse.csr_matrix:
        """A row per entry of ``routing``, that is per link l of a path P: how often P crosses each link of I_l.

        Its shape is (entries of ``routing``) x L.
        """
        path_of_entry = np.repeat(np.arange(self.path_count), np.diff(self.routing.indptr))
        domains = self.domains[self.class_of[self.routing.indices]]
        return sparse.csr_matrix(domains.multiply(self.routing[path_of_entry]))

    @cached_property
    def row_of(self) -> Mapping[str, int]:
        """Per flow its position in ``flow_ids``."""
        return {flow: row for row, flow in enumerate(self.flow_ids)}

    @cached_property
    def bounds(self) -> IndexArray:
        """Where the paths of each flow begin among all paths, and at last where they end; shape F + 1."""
        return np.searchsorted(self.path_flow, np.arange(self.flow_count + 1)).astype(np.intp)

    @cached_property
    def first_path(self) -> Mapping[str, int]:
        """Per flow the position of its first path."""
        return dict(zip(self.flow_ids, self.bounds[:-1].tolist(), strict=True))

    def paths_of(self, row: int) -> slice:
        """Where the paths of the flow of a row are among all paths."""
        return slice(int(self.bounds[row]), int(self.bounds[row + 1]))

    def path_slices(self) -> Sequence[slice]:
        """Per flow, where its paths are among all paths."""
        return self._slices

    @cached_property
    def _slices(self) -> tuple[slice, ...]:
        bounds = self.bounds.tolist()
        return tuple(map(slice, bounds, bounds[1:]))

    @staticmethod
    def build(interference: Interference, flows: Mapping[str, Paths], like: Layout | None = None) -> Layout:
        """Lay out flows (id -> paths as sequences of link indices; a flow may have none). What flows have in common
        with ``like``, the very same sequences of paths, is taken from there. ``flows`` is not to be changed afterwards.

        Raises ``PlanningError`` for an empty path or a link index out of range.
        """
        class_of = _classes(interference)
        before = like if like is not None and like.class_of is class_of else None
        rows, path_flow, fresh = _rows_in(before, flows)
        new = tuple(tuple(path) for flow in fresh for path in flows[flow])
        _check_paths(new, flows, interference.link_count)
        routing, paths = _routing(new, interference.link_count), new
        if before is not None:
            at = np.where(rows >= 0, rows, before.path_count - 1 + np.cumsum(rows < 0))
            routing = sparse.vstack([before.routing, routing], format="csr")[at]
            together = (*before.paths, *new)
            paths = tuple(together[i] for i in at.tolist())
        used = np.unique(routing.indices).astype(np.intp)
        origin = None if before is None else (ref(before), rows)
        made = (tuple(flows), path_flow, paths, routing, class_of)
        if before is not None and np.array_equal(used, np.unique(before.routing.indices)):
            return Layout(*made, before.domains, flows, before.same_domains, origin)
        return Layout(*made, _domains(interference, class_of, used), flows, rows_in=origin)


def _rows_in(before: Layout | None, flows: Mapping[str, Paths]) -> tuple[IndexArray, IndexArray, list[str]]:
    """Per path its position in a layout (-1: not there) and its flow, and the flows that are not there."""
    counts = np.array([len(options) for options in flows.values()], dtype=np.intp)
    path_flow = np.repeat(np.arange(len(flows), dtype=np.intp), counts)
    if before is None:
        return np.full(len(path_flow), -1, dtype=np.intp), path_flow, list(flows)
    known, first = before.made_of, before.first_path
    starts = [first[flow] if known.get(flow) is options else -1 for flow, options in flows.items()]
    start = np.array(starts, dtype=np.intp)[path_flow] if len(path_flow) else path_flow
    offset = np.arange(len(path_flow)) - (np.cumsum(counts) - counts)[path_flow]
    return (
        np.where(start >= 0, start + offset, -1),
        path_flow,
        [f for f, at in zip(flows, starts, strict=True) if at < 0],
    )


@dataclass(frozen=True, eq=False)
class Bounds:
    """Rows of some flows alone: the flows of the slices of set k take at most ``most[k, l]`` of the domain of link l.

    ``slice_of[F]`` is the slice (number) of each flow, ``sets[K, S]`` says which slices are in which set, and
    ``most[K, L]`` is inf where there is no bound.
    """

    slice_of: IndexArray
    sets: BoolArray
    most: FloatArray


@dataclass(frozen=True, eq=False)
class BoundPrices:
    """Prices of bounds, utility per unit of airtime: of set ``set_of[i]`` in the domain of ``link[i]``."""

    set_of: IndexArray
    link: IndexArray
    price: FloatArray


@dataclass(frozen=True, eq=False)
class RateProblem:
    """One slot's problem on a layout.

    ``capacity_mbps[L]`` >= 0 (0 takes a link out), ``margin[L]`` = delta in 0..1 per link's domain, ``external[L]``
    >= 0 the measured airtime of traffic that is not ours in the domain of each link, ``demand_mbps[F]`` >= 0 the
    largest rate a flow can use (inf: any). ``bounds`` are more rows, of some flows each.
    """

    layout: Layout
    utilities: Utilities
    capacity_mbps: FloatArray
    margin: FloatArray
    external: FloatArray
    demand_mbps: FloatArray
    bounds: Bounds | None = None

    def __post_init__(self) -> None:
        layout = self.layout
        sizes = {"capacity_mbps": layout.link_count, "margin": layout.link_count, "external": layout.link_count}
        for name, size in sizes.items():
            if getattr(self, name).shape != (size,):
                raise PlanningError(f"{name} must have {size} entries, one per link")
        if self.demand_mbps.shape != (layout.flow_count,):
            raise PlanningError(f"demand_mbps must have {layout.flow_count} entries, one per flow")
        if len(self.utilities) != layout.flow_count:
            raise PlanningError(f"expected one utility per flow ({layout.flow_count}), got {len(self.utilities)}")
        _check_range("capacity_mbps", self.capacity_mbps, np.inf, "a finite rate, 0 or more")
        _check_range("external", self.external, np.inf, "a share of airtime, 0 or more")
        _check_range("margin", self.margin, np.nextafter(1.0, 2.0), "a share of airtime from 0 to 1")
        if not np.all(self.demand_mbps >= 0):
            raise PlanningError("demand_mbps must be 0 or more")

    @property
    def budget(self) -> FloatArray:
        """Airtime left for our traffic per link's domain, 1 - delta - external, at least 0, shape L."""
        return np.maximum(0.0, 1.0 - self.margin - self.external)

    @property
    def row_budget(self) -> FloatArray:
        """The same where a link exists; inf for links without capacity, where nobody can send anything anyway.

        A network whose links are discovered has many of these, between nodes that don't hear each other: their domains
        would join what has nothing to do with each other.
        """
        return np.where(self.capacity_mbps > 0, self.budget, np.inf)

    @cached_property
    def inverse_capacity(self) -> FloatArray:
        """d of every link, 1 / capacity in s/Mb, shape L; 0 without capacity."""
        capacity = self.capacity_mbps
        return np.divide(1.0, capacity, out=np.zeros_like(capacity), where=capacity > 0)

    @cached_property
    def alone_mbps(self) -> FloatArray:
        """R(P), what each path carries alone on an idle network, in Mb/s, shape P [2.8]; 0 without capacity.

        R(P) = 1 / max over l in P of sum_{m in I_l, m in P} d_m: hops that contend share the airtime.
        """
        routing = self.layout.routing
        if not routing.nnz:
            return np.zeros(0)
        busiest = np.maximum.reduceat(self.layout.contention_on_paths @ self.inverse_capacity, routing.indptr[:-1])
        carries = routing @ (self.capacity_mbps <= 0) == 0
        return np.divide(1.0, busiest, out=np.zeros_like(busiest), where=carries)

    def busiest(self, path_rates: FloatArray) -> float:
        """The largest airtime of any link's domain, traffic that is not ours included."""
        with np.errstate(divide="ignore"):
            busy = self.airtime(path_rates) + self.external
        return float(busy[self.capacity_mbps > 0].max(initial=0.0))

    def airtime(self, path_rates: FloatArray) -> FloatArray:
        """Airtime of our traffic in the domain of every link of the network, B diag(d) R x, shape L."""
        carried = self.layout.routing_t @ path_rates
        own = np.zeros_like(carried)
        np.divide(carried, self.capacity_mbps, out=own, where=carried > 0)
        return np.asarray((self.layout.domains @ own)[self.layout.class_of])

    def path_prices(self, link_prices: FloatArray, bound_prices: BoundPrices | None = None) -> FloatArray:
        """q_P = sum_{l in P} d_l sum_{m in I_l} gamma_m [3.10], utility per Mb/s, L -> P; inf without capacity.

        With the prices of bounds, each for the flows that it bounds.
        """
        layout = self.layout
        per_class = sums_by(layout.class_of, link_prices, layout.domains.shape[0])[:, None]
        if self.bounds is not None and bound_prices is not None:
            per_class = np.repeat(per_class, self.bounds.sets.shape[1], axis=1)
            shared = self.bounds.sets[bound_prices.set_of] * bound_prices.price[:, None]
            np.add.at(per_class, layout.class_of[bound_prices.link], shared)
        # Few domains have a price.
        priced = np.flatnonzero(per_class.any(axis=1))
        contention = np.asarray(layout.domains[priced].T @ per_class[priced])
        own = contention * self.inverse_capacity[:, None]
        prices = np.asarray(layout.routing @ own)
        if self.bounds is not None and bound_prices is not None:
            prices = prices[np.arange(len(prices)), self.bounds.slice_of[layout.path_flow], None]
        usable = self.capacity_mbps > 0
        return prices[:, 0] if usable.all() else np.where(layout.routing @ ~usable > 0, np.inf, prices[:, 0])

    @cached_property
    def prices_per_link_price(self) -> FloatArray:
        """q_P when the price of every link is 1, in 1 / (Mb/s), shape P; 0 without capacity."""
        prices = self.path_prices(np.ones(self.layout.link_count))
        return np.where(np.isfinite(prices), prices, 0.0)

    def changed(
        self,
        capacity_mbps: FloatArray | None = None,
        external: FloatArray | None = None,
        demand_mbps: FloatArray | None = None,
    ) -> RateProblem:
        """The next slot's problem: some measurements replaced, the layout shared."""
        return replace(
            self,
            capacity_mbps=self.capacity_mbps if capacity_mbps is None else capacity_mbps,
            external=self.external if external is None else external,
            demand_mbps=self.demand_mbps if demand_mbps is None else demand_mbps,
        )


def rate_problem(
    network: Network,
    paths: Mapping[str, Paths],
    *,
    flows: Sequence[FlowSpec] | None = None,
    margin: float | Mapping[str, float] | FloatArray = 0.0,
    external: Mapping[str, float] | None = None,
    demand_mbps: Mapping[str, float] | None = None,
    utilities: Utilities | None = None,
    like: Layout | None = None,
) -> RateProblem:
    """The problem of a network's flows.

    ``paths`` maps flow ids to paths (link indices) and is not to be changed afterwards; ``flows`` defaults to those of
    the network. ``margin`` is one delta, link id -> delta for the domains of some links (0 for the others), or one for
    each (shape L); ``external`` maps link ids to the airtime that others use in their domains; ``demand_mbps`` maps
    flow ids to their largest rates.
    ``utilities`` are those of the flows, if they are known; ``like`` is as for :meth:`Layout.build`.
    """
    specs = network.flows if flows is None else flows
    ids = [flow.id for flow in specs]
    laid_out = paths if list(paths) == ids else {flow: paths.get(flow, ()) for flow in ids}
    layout = Layout.build(network.interference, laid_out, like)
    return RateProblem(
        layout,
        utilities_of(specs) if utilities is None else utilities,
        network.capacities,
        _per_link(network, margin, "margin"),
        _per_link(network, external or {}, "external"),
        np.array([demand_mbps.get(flow.id, np.inf) for flow in specs], dtype=float)
        if demand_mbps
        else np.full(len(specs), np.inf),
    )


def _per_link(network: Network, value: float | Mapping[str, float] | FloatArray, name: str) -> FloatArray:
    if isinstance(value, np.ndarray):
        return value
    if not isinstance(value, Mapping):
        return np.full(len(network.links), float(value))
    result = np.zeros(len(network.links))
    for link, share in value.items():
        if link not in network.link_index:
            raise PlanningError(f"{name}: no link {link!r} in the network")
        result[network.link_index[link]] = share
    return result


def _check_range(name: str, values: FloatArray, below: float, expected: str) -> None:
    if not np.all((values >= 0) & (values < below)):
        raise PlanningError(f"{name} must be {expected}")


def _check_paths(paths: Iterable[tuple[int, ...]], flows: Mapping[str, Paths], link_count: int) -> None:
    if all(path and min(path) >= 0 and max(path) < link_count for path in paths):
        return
    for flow, options in flows.items():
        for index, path in enumerate(options):
            if not path or min(path) < 0 or max(path) >= link_count:
                raise PlanningError(f"flow {flow!r}: path {index} must name links from 0 to {link_count - 1}")


def _routing(paths: Sequence[tuple[int, ...]], link_count: int) -> sparse.csr_matrix:
    """P x L: how often each path crosses each link."""
    lengths = [len(path) for path in paths]
    rows = np.repeat(np.arange(len(paths)), lengths)
    columns = np.fromiter((link for path in paths for link in path), dtype=np.intp, count=sum(lengths))
    return sparse.csr_matrix((np.ones(len(columns)), (rows, columns)), shape=(len(paths), link_count))


# Of each interference rule in use: the classes of links in the domain of a class. Each new flow asks for them again.
_TOUCHED: WeakKeyDictionary[Interference, dict[int, IndexArray]] = WeakKeyDictionary()


_CLASSES: WeakKeyDictionary[Interference, IndexArray] = WeakKeyDictionary()


def _classes(interference: Interference) -> IndexArray:
    found = _CLASSES.get(interference)
    if found is None:
        found = _CLASSES[interference] = np.asarray(interference.classes(), dtype=np.intp)
    return found


_LINKS: WeakKeyDictionary[Interference, dict[int, NDArray[np.int32]]] = WeakKeyDictionary()


def domain_of(interference: Interference, link: int) -> NDArray[np.int32]:
    """The domain of a link, remembered as long as the rule is in use: each new flow asks for those of all paths."""
    known = _LINKS.setdefault(interference, {})
    if link not in known:
        known[link] = interference.domain(link)
    return known[link]


def _domains(interference: Interference, class_of: IndexArray, used: IndexArray) -> sparse.csr_matrix:
    """C x L: the used links in the domain of each class.

    A link l is in the domain of m iff m is in that of l, so the domains of the used classes of links are enough.
    """
    class_count = int(class_of.max(initial=-1)) + 1
    used_classes, inverse = np.unique(class_of[used], return_inverse=True)
    first = np.zeros(class_count, dtype=np.intp)
    first[class_of[::-1]] = np.arange(len(class_of))[::-1]
    known = _TOUCHED.setdefault(interference, {})
    for c in used_classes.tolist():
        if c not in known:
            known[c] = np.unique(class_of[interference.domain(int(first[c]))])
    touched = [known[c] for c in used_classes.tolist()]
    counts = np.array([len(classes) for classes in touched], dtype=np.intp)
    rows = np.concatenate([touched[k] for k in inverse.tolist()]) if len(used) else np.zeros(0, dtype=np.intp)
    columns = np.repeat(used, counts[inverse]) if len(used) else np.zeros(0, dtype=np.intp)
    return sparse.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(class_count, len(class_of)))
