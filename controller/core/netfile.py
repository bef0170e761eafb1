"""The network file (docs/reference/network-file.md): text or document -> validated :class:`Network`, and back.

Validation happens here, once: what this module returns is well-formed. All errors of a document are found in one
pass; the :class:`ConfigError` raised is the first, with the others in ``more``.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from .carrier_sensing_rule import AssumedCarrierSensing
from .checking import Place, Problems, Section, describe, integer_of
from .document import load_document
from .interference import (
    ConflictInterference,
    Interference,
    RangeInterference,
    TechnologyInterference,
    domain_interference,
)
from .netfile_sections import (
    DISCOVER,
    asks_to_discover,
    candidates,
    check_technologies,
    flow_document,
    hosts_document,
    parse_flows,
    parse_hosts,
    parse_regions,
    parse_technologies,
    technologies_document,
)
from .network import WAYPOINT_PORT, Link, Network, Node, Role, WaypointAddress

MAX_NODES = 10_000
MAX_LINKS = 200_000
MAX_TECHNOLOGIES = 255

_TOP_KEYS = ("name", "margin", "nodes", "links", "technologies", "interference", "regions", "flows", "hosts")
_NODE_KEYS = (
    "role", "position", "agent", "dpid", "mac", "ip", "ports", "addresses", "technologies", "attached_to", "waypoint",
)  # fmt: skip
_LINK_KEYS = ("id", "from", "to", "technology", "capacity_mbps", "delay_ms", "loss", "both")
_LINK_REQUIRED = ("id", "from", "to", "technology")
_MBPS, _MILLISECONDS = "a number of Mb/s above 0", "a number of milliseconds, 0 or more"
_KINDS = ("rule", "conflicts", "domains")
_INTERFACE_NAME = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9_.@-]{1,15}")
_ROLES = tuple(role.value for role in Role)

_Build = Callable[[], Interference]


def load_text(text: str, document_name: str, *, measured: bool = False) -> Network:
    """Read a network from text (JSON if the name ends in ``.json``, else YAML); errors are :class:`ConfigError`.

    ``measured``: capacities, or all links, may be missing, because somebody will measure them.
    """
    return parse(load_document(text, document_name), document_name, measured=measured)


def parse(document: object, document_name: str, *, measured: bool = False) -> Network:
    """Validate a document (nested mappings and lists) and build the network; errors are :class:`ConfigError`."""
    problems = Problems(document_name)
    top = Place(document, problems).section(_TOP_KEYS, ("nodes", "links", "interference"))
    places = _node_places(top)
    discovered = asks_to_discover(top)
    links = candidates(top, places, measured=measured) if discovered else _links(top, places, measured=measured)
    nodes = _nodes(places, links.values())
    if not discovered:
        check_technologies(places, nodes, links.values())
    technologies = parse_technologies(top, links.values(), nodes)
    build = _interference(top, nodes, links, technologies.unshared)
    flows = parse_flows(top, nodes, links)
    regions = parse_regions(top, nodes)
    hosts = parse_hosts(top, nodes, links.values())
    name = top["name"].identifier() if "name" in top else ""
    margin = top["margin"].number(0.0, 0.0, 0.99, what="a share of airtime from 0 to 0.99") if "margin" in top else None
    problems.raise_if_any()
    unmeasured = frozenset(link.id for link in links.values() if link.capacity_mbps == 0)
    declared = tuple(links.values())
    return Network(
        nodes,
        declared,
        build(),
        flows,
        name,
        margin,
        technologies.unshared,
        unmeasured,
        discovered,
        technologies.contention,
        technologies.radios,
        technologies.metered,
        regions,
        hosts,
        technologies.mtu,
    )


def to_document(network: Network) -> dict[str, Any]:
    """The document that :func:`parse` turns into an equal network (links without ``both``, defaults spelled out)."""
    document: dict[str, Any] = {"name": network.name} if network.name else {}
    if network.margin is not None:
        document["margin"] = network.margin
    document["nodes"] = {node.id: _node_document(node) for node in network.nodes.values()}
    if network.discovered:
        for node, technologies in network.technologies_of.items():
            document["nodes"][node]["technologies"] = list(technologies)
        document["links"] = DISCOVER
    else:
        document["links"] = [_link_document(link, network.unmeasured) for link in network.links]
    media = technologies_document(network)
    if media is not None:
        document["technologies"] = media
    document["interference"] = network.interference.declaration()
    if network.regions:
        document["regions"] = {name: sorted(nodes) for name, nodes in network.regions.items()}
    if network.hosts:
        document["hosts"] = hosts_document(network)
    if network.flows:
        document["flows"] = [flow_document(flow) for flow in network.flows]
    return document


def _node_places(top: Section) -> dict[str, Place]:
    if "nodes" not in top:
        return {}
    places = dict(top["nodes"].entries())
    if len(places) > MAX_NODES:
        top["nodes"].fail(f"expected at most {MAX_NODES} nodes, got {len(places)}")
    return places


def _nodes(places: Mapping[str, Place], links: Iterable[Link]) -> dict[str, Node]:
    technologies: dict[str, dict[str, None]] = {node: {} for node in places}
    for link in links:
        for end in (link.source, link.target):
            technologies.get(end, {})[link.technology] = None
    nodes = {node: _node(node, place, list(technologies[node]), places) for node, place in places.items()}
    for key in ("dpid", "mac", "ip"):
        _check_unique(places, {node.id: getattr(node, key) for node in nodes.values()}, key)
    return nodes


def _node(node: str, place: Place, technologies: list[str], nodes: Mapping[str, Place]) -> Node:
    section = place.section(_NODE_KEYS, ("role",))
    role = Role(section["role"].choice(_ROLES, "switch")) if "role" in section else Role.SWITCH
    default_agent = role in (Role.GATEWAY, Role.AP) or (role is Role.CLIENT and len(technologies) > 1)
    agent = section["agent"].boolean(default_agent) if "agent" in section else default_agent
    if role is Role.CLIENT and not agent and len(technologies) > 1:
        listed = ", ".join(technologies)
        section["agent"].fail(f"expected links of one technology at a client without agent, got {listed}")
    if role is Role.CLIENT and not agent and "addresses" in section:
        section["addresses"].fail("expected at a node with a switch: a client without agent has mac")
    attached_to = section["attached_to"].reference(nodes, "node") if "attached_to" in section else None
    if attached_to is not None and (role is not Role.CLIENT or agent or attached_to == node):
        section["attached_to"].fail("expected only at a client without agent, and another node")
    waypoint = _waypoint(section["waypoint"]) if section.values.get("waypoint") is not None else None
    if waypoint is not None and role is not Role.GATEWAY:
        section["waypoint"].fail("expected only at a gateway")
    return Node(
        node,
        role,
        _position(section["position"]) if "position" in section else None,
        agent,
        section["dpid"].integer(1, 1, 2**64 - 1) if "dpid" in section else None,
        section["mac"].mac() if "mac" in section else None,
        section["ip"].ipv4_host() if "ip" in section else None,
        _ports(section["ports"], technologies) if "ports" in section else {},
        attached_to,
        waypoint,
        _addresses(section["addresses"], technologies) if "addresses" in section else {},
    )


def _waypoint(place: Place) -> WaypointAddress | None:
    """``true``, or where clients reach it."""
    if isinstance(place.value, bool):
        return WaypointAddress() if place.boolean(True) else None
    section = place.section(("address", "port", "isolated"))
    address = None
    if "address" in section:
        given = section.values["address"]
        try:
            # A number would be an address, too.
            address = str(ipaddress.ip_address(given if isinstance(given, str) else ""))
        except ValueError:
            section["address"].expected("an IP address at which clients reach the gateway")
    port = integer_of(section, "port", WAYPOINT_PORT, 1, 0xFFFE)
    return WaypointAddress(address, port, "isolated" in section and section["isolated"].boolean(False))


def _check_unique(places: Mapping[str, Place], values: Mapping[str, object], key: str) -> None:
    owner: dict[object, str] = {}
    for node, value in values.items():
        if value is not None and owner.setdefault(value, node) != node:
            places[node].key(key, None).fail(f"already taken by node {describe(owner[value])}")


def _position(place: Place) -> tuple[float, float] | None:
    if not isinstance(place.value, list | tuple) or len(place.value) != 2:
        place.expected("two numbers [x, y] in metres")
        return None
    x, y = (item.number(0.0, -1e7, 1e7) for item in place.items())
    return x, y


def _ports(place: Place, technologies: list[str]) -> dict[str, str]:
    ports: dict[str, str] = {}
    for technology, name in place.entries():
        if technology not in technologies:
            name.fail(f"the node has no link of technology {describe(technology)}")
        elif not isinstance(name.value, str) or not _INTERFACE_NAME.fullmatch(name.value):
            name.expected("an interface name of at most 15 letters, digits, or characters of _.@-")
        elif name.value in ports.values():
            name.fail(f"interface {describe(name.value)} already stands for another technology")
        else:
            ports[technology] = name.value
    return ports


def _addresses(place: Place, technologies: list[str]) -> dict[str, str]:
    addresses: dict[str, str] = {}
    for technology, given in place.entries():
        if technology not in technologies:
            given.fail(f"the node has no link of technology {describe(technology)}")
        elif (mac := given.mac()) in addresses.values():
            given.fail(f"address {describe(given.value)} already stands for another technology")
        elif mac is not None:
            addresses[technology] = mac
    return addresses


def _links(top: Section, nodes: Mapping[str, Place], *, measured: bool) -> dict[str, Link]:
    links: dict[str, Link] = {}
    forwards: list[tuple[Place, Link]] = []
    for place in top["links"].items() if "links" in top else ():
        link, both = _link(place, nodes, measured=measured)
        if link.id in links:
            place.key("id", None).fail(f"duplicate link id {describe(link.id)}")
        links.setdefault(link.id, link)
        if both and link.id:
            forwards.append((place, link))
    links = _with_backwards(links, forwards)
    if len(links) > MAX_LINKS:
        top["links"].fail(f"expected at most {MAX_LINKS} directed links, got {len(links)}")
    if len({link.technology for link in links.values()}) > MAX_TECHNOLOGIES:
        top["links"].fail(f"expected at most {MAX_TECHNOLOGIES} technologies")
    return links


def _link(place: Place, nodes: Mapping[str, Place], *, measured: bool) -> tuple[Link, bool]:
    section = place.section(_LINK_KEYS, _LINK_REQUIRED if measured else (*_LINK_REQUIRED, "capacity_mbps"))
    source, target = (section[end].reference(nodes, "node") if end in section else "" for end in ("from", "to"))
    if source and source == target:
        section["to"].fail("expected another node than in from")
    link = Link(
        section["id"].identifier() if "id" in section else "",
        source,
        target,
        section["technology"].identifier() if "technology" in section else "",
        section["capacity_mbps"].number(1.0, 1e-6, 1e7, what=_MBPS) if "capacity_mbps" in section else 0.0,
        section["delay_ms"].number(0.0, 0.0, 1e6, what=_MILLISECONDS) if "delay_ms" in section else 0.0,
        _loss(section["loss"]) if "loss" in section else 0.0,
    )
    return link, section["both"].boolean(False) if "both" in section else False


def _loss(place: Place) -> float:
    what = "a share of frames from 0 to below 1"
    loss = place.number(0.0, 0.0, 1.0, what=what)
    if loss == 1.0:
        place.expected(what)
    return loss


def _with_backwards(links: Mapping[str, Link], forwards: Iterable[tuple[Place, Link]]) -> dict[str, Link]:
    """Insert the opposite direction of every link declared with ``both`` right after it."""
    opposite: dict[str, Link] = {}
    for place, link in forwards:
        back = replace(link, id=f"{link.id}~", source=link.target, target=link.source)
        if back.id in links:
            place.key("both", None).fail(f"its other direction would be {describe(back.id)}, which is declared too")
        opposite[link.id] = back
    result: dict[str, Link] = {}
    for link in links.values():
        result[link.id] = link
        if link.id in opposite:
            result[opposite[link.id].id] = opposite[link.id]
    return result


def _interference(
    top: Section, nodes: Mapping[str, Node], links: Mapping[str, Link], unshared: frozenset[str]
) -> _Build:
    """Check the section and return what builds the rule once the whole document is known to be right."""
    declared = tuple(links.values())
    build: _Build = partial(TechnologyInterference, declared, unshared)
    if "interference" not in top:
        return build
    place = top["interference"]
    section = place.section((*_KINDS, "ranges_m"))
    given = [kind for kind in _KINDS if kind in section]
    if len(given) != 1 and section.valid:
        place.fail("expected exactly one of rule, conflicts or domains, got " + (" and ".join(given) or "none"))
    if given == ["rule"]:
        return _rule(section, nodes, declared, unshared)
    if given == ["conflicts"]:
        build = partial(ConflictInterference, declared, _conflicts(section["conflicts"], links))
    elif given == ["domains"]:
        build = partial(domain_interference, declared, [_link_ids(i, links) for i in section["domains"].items()])
    if len(given) == 1 and "ranges_m" in section:
        section["ranges_m"].fail("expected only with rule: range")
    return build


def _rule(section: Section, nodes: Mapping[str, Node], links: tuple[Link, ...], unshared: frozenset[str]) -> _Build:
    rule = section["rule"].choice(("technology", "range", "hearing"), "technology")
    if rule == "range":
        ranges_m = _ranges(section, nodes, links, unshared)
        return lambda: RangeInterference(nodes, links, ranges_m, unshared)
    if "ranges_m" in section and section.values["rule"] == rule:
        section["ranges_m"].fail("expected only with rule: range")
    if rule == "hearing":
        return lambda: AssumedCarrierSensing(tuple(nodes), links, unshared)
    return lambda: TechnologyInterference(links, unshared)


def _ranges(
    section: Section, nodes: Mapping[str, Node], links: Iterable[Link], unshared: frozenset[str]
) -> dict[str, float]:
    shared = dict.fromkeys(link.technology for link in links if link.technology not in unshared)
    if "ranges_m" not in section:
        section.place.key("ranges_m", None).fail("is missing: rule range needs a range per technology")
        return {}
    place = section["ranges_m"]
    ranges_m = {
        technology: entry.number(1.0, 0.0, 1e7, open_low=True, what="a number of metres above 0")
        for technology, entry in place.entries()
    }
    for technology in shared:
        if technology not in ranges_m:
            place.key(technology, None).fail("is missing: rule range needs a range per technology")
    for technology in ranges_m:
        if technology not in shared:
            place.key(technology, None).fail("no link is of this technology, or its medium is not shared")
    _check_positions(section, nodes, (link for link in links if link.technology in shared))
    return ranges_m


def _check_positions(section: Section, nodes: Mapping[str, Node], links: Iterable[Link]) -> None:
    ends = dict.fromkeys(end for link in links for end in (link.source, link.target))
    for node in ends:
        if node in nodes and nodes[node].position_m is None:
            Place(None, section.place.problems, "nodes").key(node, None).key("position", None).fail(
                "is missing: rule range needs the positions of all nodes"
            )


def _conflicts(place: Place, links: Mapping[str, Link]) -> dict[str, list[str]]:
    conflicts: dict[str, list[str]] = {}
    for link, others in place.entries():
        if link not in links:
            others.fail("no link has this id" + others.hint(link, links))
        conflicts[link] = _link_ids(others, links)
    return conflicts


def _link_ids(place: Place, links: Mapping[str, Link]) -> list[str]:
    return [item.reference(links, "link") for item in place.items()]


def _node_document(node: Node) -> dict[str, Any]:
    document: dict[str, Any] = {"role": node.role.value, "agent": node.agent}
    if node.position_m is not None:
        document["position"] = list(node.position_m)
    for key in ("dpid", "mac", "ip"):
        if getattr(node, key) is not None:
            document[key] = getattr(node, key)
    if node.ports:
        document["ports"] = dict(node.ports)
    if node.addresses:
        document["addresses"] = dict(node.addresses)
    if node.attached_to is not None:
        document["attached_to"] = node.attached_to
    if node.waypoint is not None:
        address = {} if node.waypoint.address is None else {"address": node.waypoint.address}
        isolated = {"isolated": True} if node.waypoint.isolated else {}
        document["waypoint"] = {**address, "port": node.waypoint.port, **isolated}
    return document


def _link_document(link: Link, unmeasured: frozenset[str]) -> dict[str, Any]:
    ends = {"id": link.id, "from": link.source, "to": link.target, "technology": link.technology}
    capacity = {} if link.id in unmeasured else {"capacity_mbps": link.capacity_mbps}
    return {**ends, **capacity, "delay_ms": link.delay_ms, "loss": link.loss}
