"""Sections of the network file (docs/reference/network-file.md) beside nodes, links and interference.

*Flows*: utility, weight, fixed paths, match, policy and group of each. *Technologies*: which media are shared, what
contention costs on them, and which can run on 802.11 radios. *Regions*: which nodes have a controller of their own.
*Hosts*: who is bound to a place.
*Links to discover* (``links: discover``,
docs/explanation/live.md): nodes name their technologies, and every ordered pair of nodes with a common technology is a
candidate without capacity.
What the access points hear gives capacities to some of them; the others carry nothing.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import network as model
from .checking import Place, Section, describe, interface_mac, one_of
from .network import (
    PRODUCTION,
    WIRED,
    Contention,
    FlowSpec,
    Link,
    Network,
    Node,
    Policy,
    RadioMode,
    RadioUse,
    Role,
    Traffic,
    Utility,
)
from .private_split import PRIVATE_KEYS, read_split, said_of

MAX_FLOWS = 40_000
MAX_REGIONS = 200
MAX_HOSTS = 4096
ETH_TYPE_IPV4 = 0x0800
ETH_TYPE_IPV6 = 0x86DD
IP_PROTO_TCP = 6
IP_PROTO_UDP = 17

_FLOW_KEYS = (
    *("id", "from", "to", "utility", "weight", "paths", "match", "policy", "traffic", "slice", "group"),
    *PRIVATE_KEYS,
)
_POLICIES = tuple(policy.value for policy in Policy)
_TRAFFIC = tuple(traffic.value for traffic in Traffic if traffic is not Traffic.PROBE)
_RESERVED_POLICIES = ("ncast",)


def parse_flows(top: Section, nodes: Collection[str], links: Mapping[str, Link]) -> tuple[FlowSpec, ...]:
    """Read the section; errors are recorded in the problems of the document."""
    flows: dict[str, FlowSpec] = {}
    if "flows" not in top or top.values["flows"] is None:
        return ()
    for place in top["flows"].items():
        flow = _flow(place, nodes, links)
        if flow.id in flows:
            place.key("id", None).fail(f"duplicate flow id {describe(flow.id)}")
        flows[flow.id] = flow
    if len(flows) > MAX_FLOWS:
        top["flows"].fail(f"expected at most {MAX_FLOWS} flows, got {len(flows)}")
    return tuple(flows.values())


def parse_regions(top: Section, nodes: Collection[str]) -> dict[str, frozenset[str]]:
    """Read the section; errors are recorded in the problems of the document. Each node is in exactly one region."""
    if "regions" not in top or top.values["regions"] is None:
        return {}
    place = top["regions"]
    found: dict[str, frozenset[str]] = {}
    region_of: dict[str, str] = {}
    for name, entry in place.entries():
        members = []
        for item in entry.items():
            node = item.reference(nodes, "node")
            if node in region_of:
                item.fail(f"node {describe(node)} is in region {describe(region_of[node])} already")
            region_of.setdefault(node, name)
            members.append(node)
        found[name] = frozenset(members)
    missing = [node for node in nodes if node not in region_of]
    if missing and found:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        place.fail(f"node {describe(missing[0])}{more} in no region")
    if len(found) > MAX_REGIONS:
        place.fail(f"expected at most {MAX_REGIONS} regions, got {len(found)}")
    return found


def parse_hosts(top: Section, nodes: Mapping[str, Node], links: Iterable[Link]) -> dict[str, model.Place]:
    """Read the section: hosts that are bound to places, by MAC; errors are recorded in the problems of the document."""
    if "hosts" not in top or top.values["hosts"] is None:
        return {}
    place = top["hosts"]
    found: dict[str, model.Place] = {}
    technologies: dict[str, dict[str, None]] = {}
    for link in links:
        for node in (link.source, link.target):
            technologies.setdefault(node, {})[link.technology] = None
    for name, entry in place.entries():
        mac = interface_mac(name)
        section = entry.section(("at", "technology"), ("at",))
        if mac is None or mac in found:
            entry.fail("expected a key that is the MAC address of an interface, each once")
        if "at" not in section:
            continue
        node = section["at"].reference(nodes, "node")
        if node in nodes and nodes[node].is_plain_client:
            section["at"].fail("expected a node with a switch")
        technology = WIRED
        if "technology" in section:
            technology = section["technology"].identifier()
            if technology not in {WIRED, *technologies.get(node, ())}:
                section["technology"].expected(f"{WIRED} (the access port), or a technology of {describe(node)}")
        if mac is not None:
            found[mac] = model.Place(node, technology)
    if len(found) > MAX_HOSTS:
        place.fail(f"expected at most {MAX_HOSTS} hosts, got {len(found)}")
    return found


def hosts_document(network: Network) -> dict[str, Any]:
    """What :func:`parse_hosts` reads."""
    return {mac: {"at": at.node, "technology": at.technology} for mac, at in network.hosts.items()}


def flow_document(flow: FlowSpec) -> dict[str, Any]:
    """The entry of the section that declares this flow."""
    document: dict[str, Any] = {
        "id": flow.id,
        "from": flow.source,
        "to": flow.target,
        "utility": {"alpha": flow.alpha} if flow.utility is Utility.ALPHA else flow.utility.value,
        "weight": flow.weight,
        "policy": flow.policy.value,
    }
    if flow.paths:
        document["paths"] = [list(path) for path in flow.paths]
    if flow.match:
        document["match"] = dict(flow.match)
    if flow.traffic is not Traffic.ANY:
        document["traffic"] = flow.traffic.value
    if flow.slice != PRODUCTION:
        document["slice"] = flow.slice
    if flow.group is not None:
        document["group"] = flow.group
    if flow.policy is Policy.PRIVATE:
        document |= said_of(flow.split)
    return document


def _flow(place: Place, nodes: Collection[str], links: Mapping[str, Link]) -> FlowSpec:
    section = place.section(_FLOW_KEYS, ("id", "from", "to"))
    source, target = (section[end].reference(nodes, "node") if end in section else "" for end in ("from", "to"))
    if source and source == target:
        section["to"].fail("expected another node than in from")
    utility, alpha = _utility(section["utility"]) if "utility" in section else (Utility.LOG, 1.0)
    policy = _policy(section["policy"]) if "policy" in section else Policy.THROUGHPUT
    what = "a weight above 0"
    return FlowSpec(
        section["id"].identifier() if "id" in section else "",
        source,
        target,
        utility,
        section["weight"].number(1.0, 0.0, 1e9, open_low=True, what=what) if "weight" in section else 1.0,
        _paths(section["paths"], source, target, links) if "paths" in section else (),
        alpha,
        policy,
        parse_match(section["match"]) if "match" in section else {},
        Traffic(section["traffic"].choice(_TRAFFIC, Traffic.ANY.value)) if "traffic" in section else Traffic.ANY,
        section["slice"].identifier() if "slice" in section else PRODUCTION,
        section["group"].identifier() if "group" in section else None,
        read_split(section, policy.value, is_private=policy is Policy.PRIVATE),
    )


def _utility(place: Place) -> tuple[Utility, float]:
    if place.value == Utility.LOG.value:
        return Utility.LOG, 1.0
    if not isinstance(place.value, Mapping):
        place.expected("log or {alpha: x}")
        return Utility.LOG, 1.0
    section = place.section(("alpha",), ("alpha",))
    if "alpha" not in section:
        return Utility.LOG, 1.0
    return Utility.ALPHA, section["alpha"].number(1.0, 0.0, 100.0, what="a number from 0 to 100")


def _policy(place: Place) -> Policy:
    if place.value in _RESERVED_POLICIES:
        place.fail(f"expected {one_of(_POLICIES)}; {place.value} is reserved for later")
        return Policy.THROUGHPUT
    return Policy(place.choice(_POLICIES, Policy.THROUGHPUT.value))


def _paths(place: Place, source: str, target: str, links: Mapping[str, Link]) -> tuple[tuple[str, ...], ...]:
    paths: dict[tuple[str, ...], None] = {}
    for item in place.items():
        ids = tuple(hop.reference(links, "link") for hop in item.items())
        if all(ids) and source and target:
            _check_path(item, [links[link] for link in ids], source, target)
        if ids in paths:
            item.fail("this path is declared twice")
        paths[ids] = None
    return tuple(paths)


def _check_path(place: Place, hops: list[Link], source: str, target: str) -> None:
    """A path is a connected, loop-free, non-empty sequence of links from source to target."""
    if not hops:
        place.fail("expected at least one link")
        return
    at, seen = source, {source}
    for index, link in enumerate(hops):
        hop = place.item(index, link.id)
        if link.source != at:
            hop.fail(f"expected a link from node {describe(at)}, got one from {describe(link.source)}")
            return
        if link.target in seen:
            hop.fail(f"expected a path without loops, but it comes to node {describe(link.target)} twice")
            return
        at = link.target
        seen.add(at)
    if at != target:
        place.fail(f"expected a path to node {describe(target)}, but it ends at {describe(at)}")


def parse_match(place: Place) -> dict[str, int | str]:
    """A match: OpenFlow field names to numbers or addresses, with the prerequisites of every field filled in."""
    section = place.section(tuple(_FIELDS))
    match: dict[str, int | str] = {}
    for key, (read, prerequisites) in _FIELDS.items():
        if key not in section:
            continue
        value = read(section[key])
        if value is None:
            continue
        for name, needed in ((key, value), *prerequisites.items()):
            if match.setdefault(name, needed) != needed:
                section[key].fail(f"expected {name} to be {_shown(needed)} with it, got {_shown(match[name])}")
    if "ip_proto" in match and match.get("eth_type") not in (ETH_TYPE_IPV4, ETH_TYPE_IPV6):
        place.fail("ip_proto and port numbers need eth_type 0x0800 or 0x86dd, or addresses that imply it")
    return match


def _shown(value: int | str) -> str:
    return hex(value) if isinstance(value, int) and value > 255 else str(value)


def _integer(low: int, high: int) -> Callable[[Place], int | None]:
    def read(place: Place) -> int | None:
        value = place.integer(-1, low, high)
        return None if value < 0 else value

    return read


def _network(version: int) -> Callable[[Place], str | None]:
    example = {4: "10.0.0.1 or 10.0.0.0/8", 6: "2001:db8::1 or 2001:db8::/32"}[version]

    def read(place: Place) -> str | None:
        try:
            # A zone (fe80::1%eth0) is a host's own business and in no packet.
            if isinstance(place.value, str) and "%" not in place.value:
                network = ipaddress.ip_network(place.value)
                if network.version == version:
                    return str(network.network_address) if network.num_addresses == 1 else str(network)
        except ValueError:
            pass
        place.expected(f"an IPv{version} address or network like {example}")
        return None

    return read


_V4 = {"eth_type": ETH_TYPE_IPV4}
_V6 = {"eth_type": ETH_TYPE_IPV6}
_Reader = Callable[[Place], int | str | None]
# The order matters: a field comes after those that its prerequisites name.
_FIELDS: dict[str, tuple[_Reader, dict[str, int]]] = {
    "eth_type": (_integer(0x0600, 0xFFFF), {}),
    "ip_proto": (_integer(0, 255), {}),
    "ipv4_src": (_network(4), _V4),
    "ipv4_dst": (_network(4), _V4),
    "ipv6_src": (_network(6), _V6),
    "ipv6_dst": (_network(6), _V6),
    "udp_src": (_integer(0, 65535), {"ip_proto": IP_PROTO_UDP}),
    "udp_dst": (_integer(0, 65535), {"ip_proto": IP_PROTO_UDP}),
    "tcp_src": (_integer(0, 65535), {"ip_proto": IP_PROTO_TCP}),
    "tcp_dst": (_integer(0, 65535), {"ip_proto": IP_PROTO_TCP}),
}


_KEYS = ("shared", "contention", "radio", "metered", "mtu")
LEAST_MTU, MOST_MTU = 1280, 9216
"""Bytes: what IPv6 needs, and what an emulated port may have."""
_RADIO_KEYS = ("channel", "mode")
_CONTENTION = tuple(kind.value for kind in Contention)
_RADIO_MODES = tuple(mode.value for mode in RadioMode)
RADIO_CHANNELS = (*range(1, 12), 36, 40, 44, 48, 149, 153, 157, 161, 165)
"""Channels of 20 MHz that an emulated radio may begin to send on at once: none of radar, none of few countries only."""


@dataclass(frozen=True)
class Technologies:
    """Technologies without a shared medium, and those whose stations collide; the others are shared and ideal.

    ``radios`` has those that can run on 802.11 radios, ``metered`` those whose use costs money by volume. ``mtu`` is
    what emulated ports have in bytes.
    """

    unshared: frozenset[str]
    contention: Mapping[str, Contention] = field(default_factory=dict)
    radios: Mapping[str, RadioUse] = field(default_factory=dict)
    metered: frozenset[str] = frozenset()
    mtu: Mapping[str, int] = field(default_factory=dict)


def is_ethernet(technology: str) -> bool:
    """Whether a technology is unshared by its name (``ethernet`` or ``ethernet-...``)."""
    return technology == "ethernet" or technology.startswith("ethernet-")


def parse_technologies(top: Section, links: Collection[Link], nodes: Mapping[str, Node]) -> Technologies:
    """What the section says, and what names of technologies say where it says nothing."""
    used = dict.fromkeys(link.technology for link in links)
    radios: dict[str, RadioUse] = {}
    shared = {technology: not is_ethernet(technology) for technology in used}
    contention: dict[str, Contention] = {}
    metered: set[str] = set()
    mtu: dict[str, int] = {}
    for technology, place in top["technologies"].entries() if "technologies" in top else ():
        if technology not in used:
            place.fail("no link is of this technology")
            continue
        section = place.section(_KEYS)
        if "shared" in section:
            shared[technology] = section["shared"].boolean(True)
        if "contention" in section:
            kind = Contention(section["contention"].choice(_CONTENTION, Contention.IDEAL))
            if kind is not Contention.IDEAL:
                contention[technology] = kind
                if not shared[technology]:
                    section["contention"].fail("nobody contends on a medium that is not shared")
        if "metered" in section and section["metered"].boolean(False):
            metered.add(technology)
        if "mtu" in section:
            mtu[technology] = section["mtu"].integer(LEAST_MTU, LEAST_MTU, MOST_MTU)
        if "radio" in section and asks_to_discover(top):
            section["radio"].fail("expected only where links are declared")
        elif "radio" in section:
            own = [link for link in links if link.technology == technology]
            radios[technology] = _radio(section["radio"], own, nodes, is_shared=shared[technology])
    unshared = frozenset(technology for technology, is_shared in shared.items() if not is_shared)
    return Technologies(unshared, contention, radios, frozenset(metered), mtu)


def _radio(place: Place, links: Sequence[Link], nodes: Mapping[str, Node], *, is_shared: bool) -> RadioUse:
    """Which channel and mode; errors where the links are none that 802.11 radios can have."""
    section = place.section(_RADIO_KEYS, ("channel",))
    channel = RADIO_CHANNELS[0]
    if "channel" in section:
        value = section["channel"].value
        if isinstance(value, int) and not isinstance(value, bool) and value in RADIO_CHANNELS:
            channel = value
        else:
            section["channel"].expected("a channel number: 1 to 11, 36, 40, 44, 48, 149, 153, 157, 161 or 165")
    # Broken ends of links have their own errors.
    links = [link for link in links if link.source in nodes and link.target in nodes]
    alike = next((link for link in links if _is_client(link.source, nodes) == _is_client(link.target, nodes)), None)
    default = RadioMode.CELL if alike is None else RadioMode.IBSS
    mode = RadioMode(section["mode"].choice(_RADIO_MODES, default.value)) if "mode" in section else default
    if not is_shared:
        place.fail("a medium that is not shared is no radio's")
    if mode is RadioMode.CELL and alike is not None:
        both = "two clients" if _is_client(alike.source, nodes) else "two nodes that are no clients"
        section["mode"].fail(
            f"expected ibss: link {describe(alike.id)} joins {both}, and a cell joins access points and clients"
        )
    _check_radio_links(place, links, nodes, mode)
    return RadioUse(channel, mode)


def _check_radio_links(place: Place, links: Sequence[Link], nodes: Mapping[str, Node], mode: RadioMode) -> None:
    """802.11 acknowledges frames, so links have two directions; a plain client is reached through an access point."""
    ends = {(link.source, link.target) for link in links}
    for link in links:
        if (link.target, link.source) not in ends:
            problem = f"link {describe(link.id)} has no other direction (both: true), which radios need to acknowledge"
            place.fail(problem)
            return
        plain = next((end for end in (link.source, link.target) if nodes[end].is_plain_client), None)
        if mode is RadioMode.IBSS and plain is not None:
            place.fail(f"node {describe(plain)} is a client without agent, which needs access points, not ibss")
            return


def _is_client(node: str, nodes: Mapping[str, Node]) -> bool:
    return nodes[node].role is Role.CLIENT


def technologies_document(network: Network) -> dict[str, dict[str, Any]] | None:
    """The section that :func:`parse_technologies` turns into the same; None where none is needed."""
    named_ethernet = {k for k in network.technologies if is_ethernet(k)}
    # Numbers of technologies follow from their order, which this section keeps where no links do.
    plain = not (network.discovered or network.contention or network.radios or network.metered or network.mtu)
    if network.unshared == named_ethernet and plain:
        return None
    return {k: _technology(k, network) for k in network.technologies}


def _technology(name: str, network: Network) -> dict[str, Any]:
    document: dict[str, Any] = {"shared": name not in network.unshared}
    if name in network.contention:
        document["contention"] = network.contention[name].value
    if name in network.radios:
        radio = network.radios[name]
        document["radio"] = {"channel": radio.channel, "mode": radio.mode.value}
    if name in network.metered:
        document["metered"] = True
    if name in network.mtu:
        document["mtu"] = network.mtu[name]
    return document


DISCOVER = "discover"
MAX_CANDIDATES = 200_000


def asks_to_discover(top: Section) -> bool:
    """Whether the links are to be found."""
    return "links" in top and top["links"].says(DISCOVER)


def candidates(top: Section, nodes: Mapping[str, Place], *, measured: bool) -> dict[str, Link]:
    """Every link that there could be, by technology, then by nodes in their order; capacity 0."""
    if not measured:
        top["links"].fail("expected a list of links with capacities: only a controller that measures can discover")
    # The order of the section ``technologies`` counts, as that of declared links does.
    named = top["technologies"].entries() if "technologies" in top else ()
    members: dict[str, list[str]] = {name: [] for name, _ in named}
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
