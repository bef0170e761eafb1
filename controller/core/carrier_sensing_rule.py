"""The interference rule ``hearing``: who hears whom (docs/explanation/closed-loop.md).

Links of one technology contend if an end of one hears, or is, an end of the other: a sender waits for what it hears,
and a receiver can't decode two at once. It is the geometric rule of the thesis with hearing in place of distance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

import numpy as np

from .interference import Cliques, NearInterference, Neighbours, NodeRanges, conflicts_document
from .network import Link, Network


class CarrierSensingInterference(NearInterference):
    """The rule among links; ``hears`` maps (node, technology) to the nodes heard there, in one direction or both."""

    def __init__(
        self,
        nodes: Sequence[str],
        links: Sequence[Link],
        hears: Mapping[tuple[str, str], Iterable[str]],
        unshared: frozenset[str] = frozenset(),
    ) -> None:
        number = {node: i for i, node in enumerate(nodes)}
        media = [k for k in dict.fromkeys(link.technology for link in links) if k not in unshared]
        near = np.repeat(np.eye(len(number), dtype=bool)[None], len(media), axis=0)
        for (node, technology), others in hears.items():
            if technology in media and node in number:
                at = media.index(technology)
                for other in others:
                    if other in number:
                        near[at, number[node], number[other]] = near[at, number[other], number[node]] = True
        super().__init__(number, links, media, near)
        self._ids = tuple(link.id for link in links)

    def declaration(self) -> dict[str, object]:
        """As the rule ``conflicts``, each pair once."""
        return conflicts_document(self, self._ids)


class AssumedCarrierSensing(CarrierSensingInterference):
    """The rule of a network file, before anyone has listened: whoever a link joins hears the other."""

    def __init__(self, nodes: Sequence[str], links: Sequence[Link], unshared: frozenset[str] = frozenset()) -> None:
        hears: dict[tuple[str, str], set[str]] = {}
        for link in links:
            hears.setdefault((link.source, link.technology), set()).add(link.target)
        super().__init__(nodes, links, hears, unshared)

    def declaration(self) -> dict[str, object]:
        """The rule's name."""
        return {"rule": "hearing"}


def implied_carrier_sensing(network: Network) -> dict[tuple[str, str], frozenset[str]]:
    """What a declared rule says of who hears whom: (node, technology) -> other nodes heard there.

    A node hears another if all that the other sends contends with all links of its own interface: under a geometric
    rule these are the nodes in range. O(sum of the sizes of the domains).
    """
    links = network.links
    mine: dict[tuple[str, str], list[int]] = {}
    sent: dict[tuple[str, str], list[int]] = {}
    for index, link in enumerate(links):
        sent.setdefault((link.source, link.technology), []).append(index)
        for node in (link.source, link.target):
            mine.setdefault((node, link.technology), []).append(index)
    hears = {}
    for interface, own in mine.items():
        domains = (network.interference.domain(link) for link in own)
        common = set(reduce(np.intersect1d, domains).tolist())
        others = {links[link].source for link in common if links[link].technology == interface[1]} - {interface[0]}
        hears[interface] = frozenset(node for node in others if common.issuperset(sent[node, interface[1]]))
    return hears


def audible(network: Network) -> dict[tuple[str, str], frozenset[str]]:
    """(node, technology) -> other nodes that send on that technology and are heard there, by the declared rule.

    Whoever a link joins hears the other, whatever the rule says. Under a rule by range this takes O(N) per interface,
    otherwise as long as :func:`implied_carrier_sensing`.
    """
    found: dict[tuple[str, str], set[str]] = {}
    for link in network.links:
        found.setdefault((link.source, link.technology), set()).add(link.target)
        found.setdefault((link.target, link.technology), set()).add(link.source)
    match network.interference.compact():
        case Cliques(class_of):
            _add_classes(network, class_of.tolist(), found)
        case NodeRanges() as ranges:
            _add_ranges(network, ranges, found)
        case Neighbours():
            for interface, others in implied_carrier_sensing(network).items():
                found[interface] |= others
    return {interface: frozenset(others - {interface[0]}) for interface, others in found.items()}


def _add_classes(network: Network, class_of: list[int], found: dict[tuple[str, str], set[str]]) -> None:
    """Who is in a class of links hears all who send in it."""
    senders: dict[tuple[int, str], set[str]] = {}
    for link, one in zip(network.links, class_of, strict=True):
        senders.setdefault((one, link.technology), set()).add(link.source)
    interfaces = {
        (node, link.technology, one)
        for link, one in zip(network.links, class_of, strict=True)
        for node in (link.source, link.target)
    }
    for node, technology, one in interfaces:
        found[node, technology] |= senders[one, technology]


def _add_ranges(network: Network, ranges: NodeRanges, found: dict[tuple[str, str], set[str]]) -> None:
    """Who is near hears the other."""
    names = list(network.nodes)
    number = {node: i for i, node in enumerate(names)}
    medium_of = {link.technology: int(k) for link, k in zip(network.links, ranges.medium_of, strict=True) if k >= 0}
    has_links: dict[str, set[str]] = {}
    for node, technology in found:
        has_links.setdefault(technology, set()).add(node)
    for (node, technology), others in found.items():
        if technology in medium_of:
            near = np.unpackbits(ranges.near[medium_of[technology], number[node]].view(np.uint8), bitorder="little")
            others.update(has_links[technology] & {names[i] for i in np.flatnonzero(near[: len(names)]).tolist()})
