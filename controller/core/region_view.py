"""What one region's controller sees of a network: the whole of it, joined to other regions by one link pair each.

Every controller reads the same file, so all agree without talking: on addresses and labels, on the pair of links that
joins two regions, and on the range of flow numbers that each gives. The pairs make a tree of the regions. So single
paths and broadcasts of all controllers together have no loop over regions, whatever each knows of its own links. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NoReturn

from .errors import ConfigError
from .network import FlowSpec, Link, Network

SOURCE, TARGET = "eth_src", "eth_dst"
"""Fields of a segment's match, which name the hosts of the whole flow."""


@dataclass(frozen=True)
class RegionView:
    """``exits`` is, by other region, the link by which this one leaves towards it."""

    name: str
    region_of: Mapping[str, str]
    exits: Mapping[str, Link]
    ranges: Mapping[str, tuple[int, int]]
    """By region: the first and the last flow number that it gives."""

    @cached_property
    def own(self) -> frozenset[str]:
        """The nodes of this region."""
        return frozenset(node for node, region in self.region_of.items() if region == self.name)

    @cached_property
    def neighbours(self) -> Mapping[str, Link]:
        """By region that the tree joins to this one: the link that leads there."""
        return {region: link for region, link in self.exits.items() if self.region_of[link.target] == region}

    @cached_property
    def borders(self) -> frozenset[str]:
        """Own nodes at the links to other regions."""
        return frozenset(link.source for link in self.neighbours.values())

    @cached_property
    def far_ends(self) -> frozenset[str]:
        """Nodes of other regions at which segments of flows end."""
        return frozenset(link.target for link in self.neighbours.values())

    def is_like(self, other: RegionView) -> bool:
        """Whether both have the same regions, joined by the same links, whatever these carry."""
        exits = [{region: link.id for region, link in view.exits.items()} for view in (self, other)]
        return exits[0] == exits[1] and (self.name, self.region_of) == (other.name, other.region_of)

    def segment(self, spec: FlowSpec, host_mac: Mapping[str, str]) -> FlowSpec:
        """The part of a flow that this region carries: all of it, or from its source here to the far end of the exit.

        Its match names the hosts, for neither need be at an end of it. A flow to where there is no way stays as it is.
        """
        link = self.exits.get(self.region_of[spec.target])
        if link is None:
            return spec
        match = {SOURCE: host_mac[spec.source], TARGET: host_mac[spec.target], **spec.match}
        return replace(spec, target=link.target, paths=(), match=match)

    def onward(self, spec: FlowSpec, sender: str, ingress: str, host_mac: Mapping[str, str]) -> FlowSpec:
        """The rest of a flow of which another region, ``sender``, has told us, from our own node ``ingress`` on."""
        match = {SOURCE: host_mac[spec.source], TARGET: host_mac[spec.target], **spec.match}
        return replace(spec, id=imported_id(spec.id, sender), source=ingress, paths=(), match=match, group=None)

    def whole(self, spec: FlowSpec, node_of_mac: Mapping[str, str]) -> FlowSpec:
        """The flow as the region of its source declared it, but for its id; the inverse of :meth:`onward`."""
        if SOURCE not in spec.match:
            return spec
        match = {key: value for key, value in spec.match.items() if key not in (SOURCE, TARGET)}
        return replace(spec, source=node_of_mac[str(spec.match[SOURCE])], match=match)


def imported_id(flow: str, sender: str) -> str:
    """What another region's flow is called here."""
    return f"{flow}@{sender}"


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
    joining = {link.id for pair in pairs for link in pair}
    between = (link.id for link in network.links if region_of[link.source] != region_of[link.target])
    zero = {link: 0.0 for link in between if link not in joining}
    names = list(network.regions)
    first, last = numbers
    size = (last - first + 1) // len(names)
    ranges = {name: (first + i * size, first + (i + 1) * size - 1) for i, name in enumerate(names)}
    view = RegionView(region, region_of, _exits(region, region_of, pairs), ranges)
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


def _joining(network: Network, region_of: Mapping[str, str]) -> list[tuple[Link, Link]]:
    """The pairs of links that make a tree of the regions, those of the greatest capacity first (Kruskal)."""
    back = {(link.source, link.target, link.technology): link for link in network.links}
    candidates = []
    for index, link in enumerate(network.links):
        reverse = back.get((link.target, link.source, link.technology))
        crosses = region_of[link.source] != region_of[link.target]
        plain = network.nodes[link.source].is_plain_client or network.nodes[link.target].is_plain_client
        if crosses and not plain and reverse is not None and min(link.capacity_mbps, reverse.capacity_mbps) > 0:
            candidates.append((-min(link.capacity_mbps, reverse.capacity_mbps), index, link, reverse))
    part = {region: region for region in network.regions}

    def root(region: str) -> str:
        while part[region] != region:
            region = part[region]
        return region

    pairs = []
    for _, _, link, reverse in sorted(candidates, key=lambda each: each[:2]):
        ends = root(region_of[link.source]), root(region_of[link.target])
        if ends[0] != ends[1]:
            part[ends[0]] = ends[1]
            pairs.append((link, reverse))
    return pairs


def _exits(region: str, region_of: Mapping[str, str], pairs: list[tuple[Link, Link]]) -> dict[str, Link]:
    """By other region: the first link on the way there, along the tree."""
    out: dict[str, list[Link]] = {}
    for pair in pairs:
        for link in pair:
            out.setdefault(region_of[link.source], []).append(link)
    exits: dict[str, Link] = {}
    queue: list[tuple[str, Link | None]] = [(region, None)]
    while queue:
        here, first = queue.pop()
        for link in out.get(here, ()):
            there = region_of[link.target]
            if there != region and there not in exits:
                exits[there] = first or link
                queue.append((there, exits[there]))
    return exits
