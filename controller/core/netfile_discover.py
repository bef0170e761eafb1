"""Networks whose links nobody declares (``links: discover``, docs/explanation/live.md, section 1): all links that
there could be.

Nodes name their technologies; every ordered pair of nodes with a common technology is a candidate without
capacity. What the access points hear gives capacities to some of them; the others carry nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hyroads.controller.core.checking import Place, Section, describe
from hyroads.controller.core.network import Link, Node

DISCOVER = "discover"
MAX_CANDIDATES = 200_000


def asks_to_discover(top: Section) -> bool:
    """Whether the links are to be found."""
    return "links" in top and top.values["links"] == DISCOVER


def candidates(top: Section, nodes: Mapping[str, Place], *, measured: bool) -> dict[str, Link]:
    """Every link that there could be, by technology, then by nodes in their order; capacity 0."""
    if not measured:
        top["links"].fail("expected a list of links with capacities: only a controller that measures can discover")
    members: dict[str, list[str]] = {k: [] for k in _named_technologies(top)}
    for node, place in nodes.items():
        for technology in _technologies(place):
            members.setdefault(technology, []).append(node)
    for technology, mine in members.items():
        if len(mine) == 1:
            nodes[mine[0]].key("technologies", None).fail(f"no other node has {describe(technology)}")
    count = sum(len(mine) * (len(mine) - 1) for mine in members.values())
    if count > MAX_CANDIDATES:
        top["links"].fail(f"expected nodes with at most {MAX_CANDIDATES} links between them, there could be {count}")
        return {}
    links: dict[str, Link] = {}
    for technology, mine in members.items():
        for source in mine:
            for target in mine:
                if source != target:
                    name = _free(f"{source}-{target}-{technology}", links)
                    links[name] = Link(name, source, target, technology, 0.0)
    return links


def check_technologies(places: Mapping[str, Place], nodes: Mapping[str, Node], links: Iterable[Link]) -> None:
    """Where links are declared they say which technologies a node has; a node may repeat it."""
    used = {(end, link.technology) for link in links for end in (link.source, link.target)}
    for node in nodes:
        for place in _listed(places[node]):
            if (node, place.value) not in used:
                place.fail(f"the node has no link of technology {describe(place.value)}")


def _named_technologies(top: Section) -> list[str]:
    """The order of the section ``technologies`` counts, as that of declared links does."""
    return [name for name, _ in top["technologies"].entries()] if "technologies" in top else []


def _technologies(place: Place) -> list[str]:
    if isinstance(place.value, Mapping) and "technologies" not in place.value:
        place.key("technologies", None).fail("is missing: with links: discover every node names its technologies")
    return list(dict.fromkeys(name for item in _listed(place) if (name := item.identifier())))


def _listed(place: Place) -> list[Place]:
    if not isinstance(place.value, Mapping) or "technologies" not in place.value:
        return []
    return list(place.key("technologies", place.value["technologies"]).items())


def _free(name: str, taken: Mapping[str, Link]) -> str:
    """Ids of nodes may contain the sign between them."""
    while name in taken:
        name += "'"
    return name
