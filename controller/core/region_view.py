"""What one region's controller sees of a network: the whole of it, joined to other regions by pairs of links.

Every controller reads the same file, so all agree without talking: on addresses and labels, on which regions are joined
and by which pairs of links, and on the range of flow numbers that each gives. The joined regions make a tree, and of
all pairs between two regions one at a time carries single paths and broadcasts. So these have no loop over regions,
whatever each controller knows of its own links. Flows may leave by any of the pairs. Pure.
"""

from __future__ import annotations

import hashlib
import heapq
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NoReturn

from .errors import ConfigError
from .network import FlowSpec, Link, Network

SOURCE, TARGET = "eth_src", "eth_dst"
"""Fields of a segment's match, which name the hosts of the whole flow."""


Pair = tuple[Link, Link]
"""A link between two regions, and the one back."""


@dataclass(frozen=True)
class RegionView:
    """``exits`` is, by other region, the region that the tree joins to this one by which the way there goes. ``pairs``
    are, by region that the tree joins to this one, the links that lead there and back; the best first.
    """

    name: str
    region_of: Mapping[str, str]
    exits: Mapping[str, str]
    pairs: Mapping[str, tuple[Pair, ...]]
    ranges: Mapping[str, tuple[int, int]]
    """By region: the first and the last flow number that it gives."""
    costs: Mapping[str, Mapping[str, float]]
    """By link that leads out, and own node: the time per bit from there to its far end, us/bit of the file's links."""

    @cached_property
    def own(self) -> frozenset[str]:
        """The nodes of this region."""
        return frozenset(node for node, region in self.region_of.items() if region == self.name)

    @cached_property
    def borders(self) -> frozenset[str]:
        """Own nodes at the links to other regions."""
        return frozenset(out.source for pairs in self.pairs.values() for out, _ in pairs)

    @cached_property
    def far_ends(self) -> frozenset[str]:
        """Nodes of other regions at which segments of flows may end."""
        return frozenset(out.target for pairs in self.pairs.values() for out, _ in pairs)

    @cached_property
    def ways_in(self) -> Mapping[str, frozenset[str]]:
        """By region that the tree joins to this one: own nodes at which its segments may end."""
        return {region: frozenset(back.target for _, back in pairs) for region, pairs in self.pairs.items()}

    @cached_property
    def foreign(self) -> frozenset[str]:
        """Links that lead here from another region; the others of other regions are not ours to plan with."""
        return frozenset(back.id for pairs in self.pairs.values() for _, back in pairs)

    def is_like(self, other: RegionView) -> bool:
        """Whether both have the same regions, joined by the same links, whatever these carry."""
        joined = [
            {region: frozenset(out.id for out, _ in pairs) for region, pairs in view.pairs.items()}
            for view in (self, other)
        ]
        return joined[0] == joined[1] and (self.name, self.region_of) == (other.name, other.region_of)

    def unused(self, dead: Collection[str]) -> frozenset[str]:
        """Links to and from joined regions that carry no single path: all but those of the best pair that lives."""
        found: set[str] = set()
        for pairs in self.pairs.values():
            living = next((pair for pair in pairs if not any(link.id in dead for link in pair)), pairs[0])
            found |= {link.id for pair in pairs if pair is not living for link in pair}
        return frozenset(found)

    def exit_of(self, spec: FlowSpec, dead: Collection[str] = ()) -> Link | None:
        """The link by which a flow leaves the region, other than those that are ``dead`` if there is one: that of the
        least time per bit from the flow's source on. Flows are spread over links of the same cost. None: it stays here,
        or there is no way.
        """
        beside = self.exits.get(self.region_of[spec.target])
        if beside is None:
            return None
        links = [out for out, _ in self.pairs[beside]]
        living = [link for link in links if link.id not in dead] or links

        def cost(link: Link) -> tuple[float, bytes]:
            us = self.costs[link.id].get(spec.source, math.inf)
            # Each flow has an order of its own; one that loses its link takes the next, and no other moves.
            return round(us, 6), hashlib.blake2b(f"{spec.id} {link.id}".encode(), digest_size=8).digest()

        return living[0] if len(living) == 1 else min(living, key=cost)

    def segment(self, spec: FlowSpec, host_mac: Mapping[str, str], dead: Collection[str] = ()) -> FlowSpec:
        """The part of a flow that this region carries: all of it, or from its source here to the far end of its exit.

        Its match names the hosts, for neither need be at an end of it. A flow to where there is no way stays as it is.
        """
        link = self.exit_of(spec, dead)
        if link is None:
            return spec
        match = {SOURCE: host_mac[spec.source], TARGET: host_mac[spec.target], **spec.match}
        return replace(spec, target=link.target, paths=(), match=match)

    def onward(self, spec: FlowSpec, sender: str, ingress: str, host_mac: Mapping[str, str]) -> FlowSpec:
        """The rest of a flow of which another region, ``sender``, has told us, from our own node ``ingress`` on."""
        match = {SOURCE: host_mac[spec.source], TARGET: host_mac[spec.target], **spec.match}
        name = self.imported_id(spec.id, sender, ingress)
        return replace(spec, id=name, source=ingress, paths=(), match=match, group=None)

    def imported_id(self, flow: str, sender: str, node: str) -> str:
        """What another region's flow is called here. Where its segment may end at several nodes it ends at two of them
        while it moves: the node tells the chain of before from the next.
        """
        return f"{flow}@{sender}" if len(self.ways_in[sender]) == 1 else f"{flow}:{node}@{sender}"

    def id_before(self, flow: str, sender: str, node: str) -> str:
        """What a flow that another region has told us of is called there; the inverse of :meth:`imported_id`."""
        return flow.removesuffix(self.imported_id("", sender, node))

    def whole(self, spec: FlowSpec, node_of_mac: Mapping[str, str]) -> FlowSpec:
        """The flow as the region of its source declared it, but for its id; the inverse of :meth:`onward`."""
        if SOURCE not in spec.match:
            return spec
        match = {key: value for key, value in spec.match.items() if key not in (SOURCE, TARGET)}
        return replace(spec, source=node_of_mac[str(spec.match[SOURCE])], match=match)


def region_view(
    network: Network, region: str, numbers: tuple[int, int], document: str = "network"
) -> tuple[RegionView, Network]:
    """What the controller of ``region`` sees, and the network as it sees it: its own flows, and no capacity on links
    between regions that join none.

    ``numbers`` are the first and the last flow number of all regions. :class:`ConfigError` if the network has no such
    region, a region is not connected in itself, or a plain client hangs on a switch of another region.
    """
    if region not in network.regions:
        known = ", ".join(network.regions) or "none"
        raise ConfigError("settings", "region.name", f"{region[:64]!r} is no region of {document} (it has: {known})")
    region_of = {node: name for name, nodes in network.regions.items() for node in nodes}
    _check(network, region_of, document)
    pairs = _joining(network, region_of)
    joining = {link.id for beside in pairs.values() for pair in beside for link in pair}
    between = (link.id for link in network.links if region_of[link.source] != region_of[link.target])
    zero = {link: 0.0 for link in between if link not in joining}
    names = list(network.regions)
    first, last = numbers
    size = (last - first + 1) // len(names)
    ranges = {name: (first + i * size, first + (i + 1) * size - 1) for i, name in enumerate(names)}
    here = {theirs: beside for (ours, theirs), beside in pairs.items() if ours == region}
    costs = {out.id: _costs(network, region_of, out) for beside in here.values() for out, _ in beside}
    view = RegionView(region, region_of, _exits(region, pairs), here, ranges, costs)
    flows = tuple(flow for flow in network.flows if region_of[flow.source] == region)
    return view, replace(network.with_capacities(zero), flows=flows)


def _check(network: Network, region_of: Mapping[str, str], document: str) -> None:
    def refuse(region: str, problem: str) -> NoReturn:
        raise ConfigError(document, f"regions.{region}", problem)

    near: dict[str, list[str]] = {}
    for link in network.links:
        for one, other in ((link.source, link.target), (link.target, link.source)):
            if region_of[one] == region_of[other]:
                near.setdefault(one, []).append(other)
    for region, nodes in network.regions.items():
        start = min(nodes)
        reached, queue = {start}, [start]
        while queue:
            new = set(near.get(queue.pop(), ())) - reached
            reached |= new
            queue.extend(new)
        if reached != nodes:
            refuse(region, f"expected nodes that are connected within the region: no way from {start} to "
                   f"{min(nodes - reached)}")  # fmt: skip


def _joining(network: Network, region_of: Mapping[str, str]) -> dict[tuple[str, str], tuple[Pair, ...]]:
    """By two regions, either way round, that the tree joins: all pairs of links between them, those of the greatest
    capacity first. The tree joins regions by the greatest capacity of one pair (Kruskal).
    """
    back = {(link.source, link.target, link.technology): link for link in network.links}
    candidates = []
    for index, link in enumerate(network.links):
        reverse = back.get((link.target, link.source, link.technology))
        crosses = region_of[link.source] != region_of[link.target]
        plain = network.nodes[link.source].is_plain_client or network.nodes[link.target].is_plain_client
        if crosses and not plain and reverse is not None and min(link.capacity_mbps, reverse.capacity_mbps) > 0:
            # Both directions are candidates, with the index of the first: regions take them in the same order.
            first = min(index, network.link_index[reverse.id])
            candidates.append((-min(link.capacity_mbps, reverse.capacity_mbps), first, index, link, reverse))
    part = {region: region for region in network.regions}

    def root(region: str) -> str:
        while part[region] != region:
            region = part[region]
        return region

    pairs: dict[tuple[str, str], list[Pair]] = {}
    for *_, link, reverse in sorted(candidates, key=lambda each: each[:3]):
        ends = region_of[link.source], region_of[link.target]
        if ends in pairs:
            pairs[ends].append((link, reverse))
        elif root(ends[0]) != root(ends[1]):
            part[root(ends[0])] = root(ends[1])
            pairs[ends], pairs[ends[::-1]] = [(link, reverse)], []
    return {ends: tuple(beside) for ends, beside in pairs.items()}


def _exits(region: str, pairs: Mapping[tuple[str, str], tuple[Pair, ...]]) -> dict[str, str]:
    """By other region: the first one on the way there, along the tree."""
    out: dict[str, list[str]] = {}
    for here, there in pairs:
        out.setdefault(here, []).append(there)
    exits = {there: there for there in out.get(region, ())}
    queue = list(exits)
    while queue:
        here = queue.pop()
        for there in out[here]:
            if there != region and there not in exits:
                exits[there] = exits[here]
                queue.append(there)
    return exits


def _costs(network: Network, region_of: Mapping[str, str], out: Link) -> dict[str, float]:
    """By node of the region that a link leaves: the least time per bit from there to the far end (Dijkstra), us."""
    into: dict[str, list[Link]] = {}
    for link in network.links:
        if region_of[link.source] == region_of[link.target] == region_of[out.source] and link.capacity_mbps > 0:
            into.setdefault(link.target, []).append(link)
    costs: dict[str, float] = {}
    queue = [(1.0 / out.capacity_mbps, out.source)]
    while queue:
        cost, node = heapq.heappop(queue)
        if node in costs:
            continue
        costs[node] = cost
        for link in into.get(node, ()):
            if link.source not in costs:
                heapq.heappush(queue, (cost + 1.0 / link.capacity_mbps, link.source))
    return costs
