"""Placement of a client's radios: which neighbour each attaches to, and what it is used for (``hyroads place``).

A client has one radio a technology; a radio attaches to one neighbour, or to none. What an attachment is worth is the
greatest rate of a flow from a peer to the client (``core.attachment_program``): exact, over all paths, under the
airtime rows of the interference model, where only links of the chosen attachments join the client to the network. The
modes are those of the multipath network manager of Cereijo (UC3M, 2016). Of attachments that are equally good,
the one with the fewest attached radios is chosen, then the one that comes first by technologies and neighbours in the
order of the file; equal means within one part in 10^9.

``full-speed``
    The greatest total. Attached radios are ``active``; a radio that would add nothing is ``off``.
``cost-efficient``
    The greatest total of the radios whose technology is not metered. If it is above 0 they are ``active`` as in
    full-speed, and metered radios are ``backup``: attached as full-speed would attach them if no others were there,
    and silent, so that their links take no part in the total. Else metered radios are used as in full-speed.
``high-robustness``
    Every radio that any path reaches carries a ``copy`` of the flow: first the most different neighbours, then the
    greatest rate that all copies have at once, which is ``total_mbps``. Each copy takes airtime of its own.

Radios that no path reaches are ``off``. All attachments are bounded at once by the prices of a few linear programs; the
one with the highest bound is solved next, until no bound is above the best rate found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .attachment_program import Attachment, AttachmentProgram, Cut, Solved
from .checking import describe, suggestion
from .errors import NoRouteError, PlanningError
from .interface_graph import FloatArray
from .network import ClientMode, Network, Place, Role

MAX_RADIOS = 4
MAX_PLACEMENTS = 2_000_000
"""Most combinations of attachments; 4 radios with 36 neighbours each have 1.9 million."""
MAX_PROGRAMS = 20_000
_TIE = 1e-9
# Less than any capacity of a network file: a rate of 0, for the solver.
_LEAST_MBPS = 1e-9
_LEAST_COST = 1e-9

IntArray = NDArray[np.int64]


class RadioRole(StrEnum):
    """What a radio is used for."""

    ACTIVE = "active"
    BACKUP = "backup"
    COPY = "copy"
    OFF = "off"


@dataclass(frozen=True)
class Placement:
    """``attachments``: technology -> neighbour, of radios that are not off; ``roles``: of every radio.

    ``total_mbps`` is the rate of the flow, Mb/s: of all active radios together, or of every copy.
    """

    total_mbps: float
    attachments: Mapping[str, str]
    roles: Mapping[str, RadioRole]

    @property
    def in_use(self) -> tuple[Place, ...]:
        """Where radios that send or receive now are attached: all but those that are backup."""
        return tuple(Place(node, k) for k, node in self.attachments.items() if self.roles[k] is not RadioRole.BACKUP)

    def document(self) -> dict[str, Any]:
        """For ``hyroads place --json``."""
        roles = {technology: role.value for technology, role in self.roles.items()}
        return {"total_mbps": self.total_mbps, "attachments": dict(self.attachments), "roles": roles}


def place_radios(network: Network, client: str, peer: str, mode: ClientMode, *, margin: float = 0.0) -> Placement:
    """The best attachments of the radios of ``client`` for a flow from ``peer``.

    ``margin`` is the share of airtime to keep free: the total is scaled by 1 - margin. Raises ``PlanningError`` for
    unknown nodes, a client with more than 4 radios or too many neighbours, ``NoRouteError`` if no path reaches it.
    """
    radios = _radios(network, client, peer)
    if not 0.0 <= margin < 1.0:
        raise PlanningError(f"margin {margin:g}: expected a share of airtime, 0 <= margin < 1")
    chosen, roles = _MODES[mode](network, client, peer, radios)
    if not chosen.attachments:
        raise NoRouteError(f"no route from {peer!r} to {client!r}")
    attached = {each.technology: each.node for each in chosen.attachments}
    order = {technology: attached[technology] for technology in radios if technology in attached}
    return Placement(chosen.rate_mbps * (1.0 - margin), order, roles)


def rate_of(network: Network, client: str, peer: str, mode: ClientMode, attachments: Mapping[str, str]) -> float:
    """What the attachments (technology -> neighbour) give in a mode, Mb/s; those that no path reaches give nothing.

    In the mode cost-efficient metered radios count only if the others give nothing. Errors as in :func:`place_radios`.
    """
    radios = _radios(network, client, peer)
    program = AttachmentProgram(network, client, peer, radios)
    chosen = [each for each in program.attachments if attachments.get(each.technology) == each.node]
    if mode is ClientMode.COST_EFFICIENT:
        chosen = [each for each in chosen if each.technology not in network.metered] or chosen
    return program.solve(chosen, copies=mode is ClientMode.HIGH_ROBUSTNESS).rate_mbps if chosen else 0.0


def _radios(network: Network, client: str, peer: str) -> tuple[str, ...]:
    for what, node in (("client", client), ("peer", peer)):
        if node not in network.nodes:
            near = suggestion(node, network.nodes)
            raise PlanningError(f"{what} {describe(node)}: expected the id of a node of the network{near}")
    if network.nodes[client].role is not Role.CLIENT:
        raise PlanningError(f"client {describe(client)}: expected a node of role client")
    if client == peer:
        raise PlanningError(f"peer {describe(peer)}: expected another node than the client")
    radios = network.technologies_of[client]
    if len(radios) > MAX_RADIOS:
        raise PlanningError(
            f"client {describe(client)}: expected at most {MAX_RADIOS} radios (technologies), got {len(radios)}"
        )
    return radios


@dataclass(frozen=True)
class _Best:
    attachments: tuple[Attachment, ...]
    rate_mbps: float


_Roles = dict[str, RadioRole]


def _full_speed(network: Network, client: str, peer: str, radios: Sequence[str]) -> tuple[_Best, _Roles]:
    best = _greatest_total(network, client, peer, radios)
    return best, _roles(radios, best, RadioRole.ACTIVE)


def _cost_efficient(network: Network, client: str, peer: str, radios: Sequence[str]) -> tuple[_Best, _Roles]:
    metered = tuple(technology for technology in radios if technology in network.metered)
    free = tuple(technology for technology in radios if technology not in network.metered)
    best, spare = (_greatest_total(network, client, peer, some) for some in (free, metered))
    used = RadioRole.BACKUP if best.attachments else RadioRole.ACTIVE
    total_mbps = best.rate_mbps if best.attachments else spare.rate_mbps
    roles = {**_roles(free, best, RadioRole.ACTIVE), **_roles(metered, spare, used)}
    return _Best((*best.attachments, *spare.attachments), total_mbps), {k: roles[k] for k in radios}


def _high_robustness(network: Network, client: str, peer: str, radios: Sequence[str]) -> tuple[_Best, _Roles]:
    best = _Search(AttachmentProgram(network, client, peer, radios), copies=True).run()
    return best, _roles(radios, best, RadioRole.COPY)


_MODES: Mapping[ClientMode, Callable[[Network, str, str, Sequence[str]], tuple[_Best, _Roles]]] = {
    ClientMode.FULL_SPEED: _full_speed,
    ClientMode.COST_EFFICIENT: _cost_efficient,
    ClientMode.HIGH_ROBUSTNESS: _high_robustness,
}


def _greatest_total(network: Network, client: str, peer: str, radios: Sequence[str]) -> _Best:
    return _Search(AttachmentProgram(network, client, peer, radios), copies=False).run()


def _roles(radios: Sequence[str], best: _Best, role: RadioRole) -> _Roles:
    attached = {each.technology for each in best.attachments}
    return {technology: role if technology in attached else RadioRole.OFF for technology in radios}


class _Search:
    """Every combination of attachments has an upper bound in one array with an axis per radio, whose last place stands
    for no attachment. Cuts lower the bounds, the combination with the highest is solved, which gives new cuts.
    """

    def __init__(self, program: AttachmentProgram, *, copies: bool) -> None:
        self._program, self._copies = program, copies
        axes = [[each for each in program.attachments if each.technology == t] for t in program.technologies]
        self._radios = [number for number, axis in enumerate(axes) if axis]
        self._axes = [axis for axis in axes if axis]
        # Copies are sent by every radio that a path reaches.
        self._shape = tuple(len(axis) + (not copies) for axis in self._axes)
        if int(np.prod(self._shape, dtype=np.int64)) > MAX_PLACEMENTS:
            sizes = " x ".join(str(len(axis)) for axis in self._axes)
            raise PlanningError(f"{sizes} attachments are too many: expected at most {MAX_PLACEMENTS} combinations")
        self._bounds = np.full(self._shape, np.inf)
        self._solved: dict[int, float] = {}
        self._singles: set[int] = set()
        self._alone_mbps = program.alone_mbps()
        self._position = {each.number: place for axis in self._axes for place, each in enumerate(axis)}

    def run(self) -> _Best:
        """The best combination; without attachments if no path reaches the client."""
        if not self._axes:
            return _Best((), 0.0)
        self._start()
        return self._first_of(self._climb())

    def _start(self) -> None:
        """Bounds that are known without the program of any combination."""
        if self._copies:
            different = self._different_nodes()
            self._bounds[different < different.max()] = -np.inf
        else:
            relaxed = self._program.relaxed(self._alone_mbps)
            self._root = self._program.cut(relaxed.prices, relaxed.own_prices)
        self._lower_by_singles()

    def _lower_by_singles(self) -> None:
        """Lower the bounds to what the radios get alone."""
        how = np.minimum if self._copies else np.add
        np.minimum(self._bounds, _combined(how, self._by_axis(self._alone_mbps, 0.0)), out=self._bounds)
        if not self._copies:
            self._lower((self._root,))

    def _climb(self) -> float:
        """The rate of the best combination, Mb/s: none has a higher bound."""
        best_mbps = 0.0
        while True:
            highest = int(self._bounds.argmax())
            if highest in self._solved or self._bounds.flat[highest] <= best_mbps * (1.0 + _TIE) + _LEAST_MBPS:
                return best_mbps
            if not self._solve_singles(highest):
                best_mbps = max(best_mbps, self._solve(highest))

    def _solve_singles(self, flat: int) -> bool:
        """Solve each attachment of a combination alone, unless that was done before; whether any was new."""
        new = [each for each in self._chosen(flat) if each.number not in self._singles]
        for each in new:
            self._singles.add(each.number)
            self._alone_mbps[each.number] = min(self._alone_mbps[each.number], self._program.solve((each,)).rate_mbps)
        if new:
            self._lower_by_singles()
        return bool(new)

    def _first_of(self, best_mbps: float) -> _Best:
        """Of the combinations as good as the best, that with the fewest attachments, and of these the first."""
        least_mbps = best_mbps * (1.0 - _TIE) - _LEAST_MBPS
        attached = self._attached().ravel()
        while True:
            good = np.flatnonzero(self._bounds.ravel() >= least_mbps)
            first = int(good[np.lexsort((good, attached[good]))[0]])
            if first in self._solved or self._solve(first) >= least_mbps:
                return _Best(self._chosen(first), self._solved[first])

    def _solve(self, flat: int) -> float:
        """Solve the program of a combination, and lower the bounds by its prices."""
        if len(self._solved) >= MAX_PROGRAMS:
            raise PlanningError(f"no optimum of the attachments after {MAX_PROGRAMS} programs")
        chosen = self._chosen(flat)
        solved = self._program.solve(chosen, copies=self._copies)
        self._lower(self._cuts(solved, chosen))
        self._solved[flat] = self._bounds.flat[flat] = solved.rate_mbps
        return solved.rate_mbps

    def _cuts(self, solved: Solved, chosen: Sequence[Attachment]) -> list[Cut]:
        """The bounds that the prices of a combination give, with as few prices as give the same for it: the price of a
        row raises the bound of combinations to which the row is nothing. Own rows count where their attachment is;
        for all others there is a bound without."""
        prices, own = solved.prices.copy(), dict(solved.own_prices)
        enough_mbps = solved.rate_mbps * (1.0 + _TIE) + _LEAST_MBPS
        for number in sorted(own):
            fewer = {other: mine for other, mine in own.items() if other != number}
            if self._bound_of(self._program.cut(prices, fewer), chosen) <= enough_mbps:
                own = fewer
        for row in np.flatnonzero(prices):
            price, prices[row] = prices[row], 0.0
            if self._bound_of(self._program.cut(prices, own), chosen) > enough_mbps:
                prices[row] = price
        parts = chain.from_iterable(combinations(sorted(own), count) for count in range(len(own) + 1))
        return [self._program.cut(prices, {number: own[number] for number in part}) for part in parts]

    def _bound_of(self, cut: Cut, chosen: Sequence[Attachment]) -> float:
        """The bound that a cut gives of one combination, Mb/s."""
        numbers = [each.number for each in chosen]
        costs, alone = cut.costs[numbers], self._alone_mbps[numbers]
        if not self._copies:
            return cut.constant_mbps + float((alone * np.maximum(0.0, 1.0 - costs)).sum())
        cost = float(costs.sum())
        return cut.constant_mbps / cost if cost > _LEAST_COST else np.inf

    def _lower(self, cuts: Sequence[Cut]) -> None:
        """Lower the bounds to what prices say."""
        for cut in cuts:
            where: tuple[slice | int, ...] = tuple(
                self._position[cut.fixed[radio]] if radio in cut.fixed else slice(None) for radio in self._radios
            )
            values = [
                values[position : position + 1] if isinstance(position, int) else values
                for values, position in zip(self._values(cut), where, strict=True)
            ]
            bounds = _combined(np.add, values)
            if self._copies:
                everywhere = np.full_like(bounds, np.inf)
                bounds = np.divide(cut.constant_mbps, bounds, out=everywhere, where=bounds > _LEAST_COST)
            else:
                bounds += cut.constant_mbps
            part = self._bounds[where]
            self._bounds[where] = np.minimum(part, bounds.reshape(part.shape))

    def _values(self, cut: Cut) -> list[FloatArray]:
        """What each attachment adds to the bound, by axis: a rate, or for copies the cost of a copy."""
        if self._copies:
            return self._by_axis(cut.costs, 0.0)
        return self._by_axis(self._alone_mbps * np.maximum(0.0, 1.0 - cut.costs), 0.0)

    def _by_axis(self, values: FloatArray, none: float) -> list[FloatArray]:
        """Values of attachments, by axis; ``none`` stands for no attachment where there is that choice."""
        more = [] if self._copies else [none]
        return [np.append(values[[each.number for each in axis]], more) for axis in self._axes]

    def _chosen(self, flat: int) -> tuple[Attachment, ...]:
        places = np.unravel_index(flat, self._shape)
        return tuple(axis[place] for axis, place in zip(self._axes, places, strict=True) if place < len(axis))

    def _attached(self) -> IntArray:
        """How many radios each combination attaches."""
        counts = [np.append(np.ones(len(axis)), [] if self._copies else [0.0]) for axis in self._axes]
        return _combined(np.add, counts).astype(np.int64)

    def _different_nodes(self) -> IntArray:
        """How many different neighbours each combination has; every radio is attached."""
        names = {each.node for axis in self._axes for each in axis}
        number = {name: index for index, name in enumerate(sorted(names))}
        nodes = np.meshgrid(*([number[each.node] for each in axis] for axis in self._axes), indexing="ij")
        found = np.zeros(self._shape, dtype=np.int64)
        for later, mine in enumerate(nodes):
            found += ~np.logical_or.reduce([mine == other for other in nodes[:later]] or [np.zeros(self._shape, bool)])
        return found


def _combined(how: np.ufunc, values: Sequence[FloatArray]) -> FloatArray:
    """One value per combination of the axes' values, by addition or minimum."""
    combined: FloatArray = values[0]
    for more in values[1:]:
        combined = how(combined[..., None], more)
    return combined
