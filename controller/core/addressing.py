"""Addresses, labels and numbers, all derived from the network: controller, agents and emulation agree without talking.

*Addresses* (docs/reference/openflow.md, section 1) are datapath ids, MACs, IPs, interface and port names. Node number i
is the position in the file from 1, technology number k the order of first appearance from 1.

*MPLS labels* (section 2) have 20 bits, 16 and up. Each is the hash of what it names, with a secret of the network if
there is one, so that adding a node changes another label only if the two collide. Collisions are resolved by hashing
again with a counter, in order of the names.

*Flow numbers and path ids* are hashes, too, so that a restarted controller finds the same ones. What is numbered keeps
its number; a new name whose hash is taken gets the next free number. So the numbers are part of the saved state.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import TypeVar

from .errors import ConfigError, PlanningError
from .joined import joined
from .mappings import patched
from .network import Link, Network, Node

MAX_NUMBER = 0xFFFF
MAX_NAME_LENGTH = 15

_Value = TypeVar("_Value", int, str)
PathName = tuple[str, ...]
"""A path as link ids (or another name of several parts)."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class Attachment:
    """A plain client's link to a node with a switch; ``down`` leads to the client, ``up`` from it (ids or None)."""

    client: str
    node: str
    technology: str
    down: str | None
    up: str | None


@dataclass(frozen=True)
class Addressing:
    """Lookups by node id, or by (node id, technology) for interfaces; build with :meth:`of`.

    ``host_mac`` and ``host_ip`` exist for every node, ``dpid`` and ``access_port`` for nodes with a switch,
    ``agent_access_port`` and ``agent_network_port`` for nodes with an agent and a switch. ``interface_mac`` names an
    interface in intents and configurations; its box may report another address (:mod:`.interface_addresses`).
    ``attachments`` lists the
    possible attachments of every plain client, the default one first (where the file says that it is attached, then
    highest capacity, then order in the file).
    """

    node_number: Mapping[str, int]
    technology_number: Mapping[str, int]
    dpid: Mapping[str, int]
    host_mac: Mapping[str, str]
    host_ip: Mapping[str, str]
    interface_mac: Mapping[tuple[str, str], str]
    interface_name: Mapping[tuple[str, str], str]
    access_port: Mapping[str, str]
    agent_access_port: Mapping[str, str]
    agent_network_port: Mapping[str, str]
    agents: frozenset[str]
    attachments: Mapping[str, tuple[Attachment, ...]]

    @classmethod
    def of(cls, network: Network, document: str = "network") -> Addressing:
        """Derive all addresses; :class:`ConfigError` (naming ``document``) if two of them clash."""
        _check_parallel(network, document)
        number = {node: i for i, node in enumerate(network.nodes, start=1)}
        technology = {name: k for k, name in enumerate(network.technologies, start=1)}
        if len(number) > MAX_NUMBER - 1 or len(technology) > 0xFF:
            raise ConfigError(document, "nodes", "expected at most 65534 nodes and 255 technologies")
        nodes = network.nodes.values()
        switches = [node for node in nodes if not node.is_plain_client]
        host_mac = {node.id: node.mac or _mac(0, 0, number[node.id]) for node in nodes}
        names = _Names(network, number, technology)
        addressing = cls(
            node_number=number,
            technology_number=technology,
            dpid=_unique({node.id: node.dpid or number[node.id] for node in switches}, "dpid", document),
            host_mac=_unique(host_mac, "mac", document),
            host_ip=_unique({node.id: node.ip or _ip(number[node.id]) for node in nodes}, "ip", document),
            interface_mac={
                (node.id, k): host_mac[node.id]
                if node.is_plain_client
                else node.addresses.get(k) or _mac(1, technology[k], number[node.id])
                for node, k in _interfaces(network)
            },
            interface_name={(node.id, k): names.interface(node, k) for node, k in _interfaces(network)},
            access_port={node.id: names.port(node, "host", "h") for node in switches},
            agent_access_port={node.id: names.port(node, "acc", "a") for node in switches if node.agent},
            agent_network_port={node.id: names.port(node, "net", "n") for node in switches if node.agent},
            agents=frozenset(node.id for node in nodes if node.agent),
            attachments={node.id: _attachments(network, node.id) for node in nodes if node.is_plain_client},
        )
        addressing._check_ports(document)
        addressing._check_interfaces(document)
        return addressing

    def port_names(self, node: str) -> tuple[str, ...]:
        """All interfaces and ports of a node: its technologies in order, then the access port and the agent's two."""
        own = (self.access_port, self.agent_access_port, self.agent_network_port)
        interfaces = (self.interface_name[node, k] for k in self.technologies(node))
        return (*interfaces, *(names[node] for names in own if node in names))

    def _check_ports(self, document: str) -> None:
        for node in self.node_number:
            names = self.port_names(node)
            if len(set(names)) < len(names):
                raise ConfigError(document, f"nodes.{node}.ports", f"expected distinct names, got {', '.join(names)}")

    def _check_interfaces(self, document: str) -> None:
        """No two interfaces have one address. A host with the address of another node's interface would have what that
        node sends taken for its own.
        """
        owner = {mac: node for node, mac in self.host_mac.items()}
        known: dict[str, tuple[str, str]] = {}
        for (node, technology), mac in self.interface_mac.items():
            other = known.setdefault(mac, (node, technology))
            if other != (node, technology) and not self.is_plain_client(node):
                problem = f"{mac} is the address of node {other[0]} on {other[1]} too"
                raise ConfigError(document, f"nodes.{node}.addresses.{technology}", problem)
            host = owner.get(mac, node)
            if host != node:
                problem = f"{mac} is the address of the interface of node {node} on {technology}"
                raise ConfigError(document, f"nodes.{host}.mac", problem)

    def has_switch(self, node: str) -> bool:
        """Whether the node has a switch; only plain clients don't."""
        return node in self.dpid

    def has_agent(self, node: str) -> bool:
        """Whether the node runs ``hyroads-edge``."""
        return node in self.agents

    def is_plain_client(self, node: str) -> bool:
        """Whether the node is a client without agent, hence without switch."""
        return node in self.attachments

    def attachment(self, client: str) -> Attachment | None:
        """The default attachment of a plain client; None if no link leads to or from a switch."""
        return next(iter(self.attachments[client]), None)

    def technologies(self, node: str) -> tuple[str, ...]:
        """Technologies of which the node has an interface."""
        return tuple(k for k in self.technology_number if (node, k) in self.interface_mac)


class _Names:
    """Port and interface names: the speaking form if it is short and unique in the network, else a numbered one."""

    def __init__(self, network: Network, number: Mapping[str, int], technology: Mapping[str, int]) -> None:
        self._number = number
        self._technology = technology
        wanted = [f"{node.id}-{k}" for node, k in _interfaces(network)]
        wanted += [f"{node}-{suffix}" for node in network.nodes for suffix in ("host", "acc", "net")]
        given = (name for node in network.nodes.values() for name in node.ports.values())
        self._count = Counter(wanted) + Counter(set(given))

    def interface(self, node: Node, technology: str) -> str:
        if technology in node.ports:
            return node.ports[technology]
        return self._pick(f"{node.id}-{technology}", f"n{self._number[node.id]}t{self._technology[technology]}")

    def port(self, node: Node, suffix: str, letter: str) -> str:
        return self._pick(f"{node.id}-{suffix}", f"n{self._number[node.id]}{letter}")

    def _pick(self, speaking: str, numbered: str) -> str:
        fits = len(speaking) <= MAX_NAME_LENGTH and _NAME.fullmatch(speaking) is not None
        return speaking if fits and self._count[speaking] == 1 else numbered


def _interfaces(network: Network) -> Iterator[tuple[Node, str]]:
    for node in network.nodes.values():
        for technology in network.technologies_of[node.id]:
            yield node, technology


def _mac(kind: int, technology: int, node: int) -> str:
    return f"02:00:{kind:02x}:{technology:02x}:{node >> 8:02x}:{node & 255:02x}"


def _ip(node: int) -> str:
    return f"10.0.{node >> 8}.{node & 255}"


def _unique(values: dict[str, _Value], key: str, document: str) -> dict[str, _Value]:
    """The values, once it is sure that no given one equals another node's derived one."""
    owner: dict[_Value, str] = {}
    for node, value in values.items():
        if owner.setdefault(value, node) != node:
            raise ConfigError(document, f"nodes.{node}.{key}", f"{value} is the {key} of node {owner[value]} too")
    return values


def _check_parallel(network: Network, document: str) -> None:
    """A node has one interface per technology, so a live network can't tell parallel links apart."""
    seen: dict[tuple[str, str, str], str] = {}
    for link in network.links:
        first = seen.setdefault((link.source, link.target, link.technology), link.id)
        if first != link.id:
            problem = f"link {first} has the same ends and technology: parallel links need technologies of their own"
            raise ConfigError(document, f"links.{link.id}", problem)


def _attachments(network: Network, client: str) -> tuple[Attachment, ...]:
    pairs: dict[tuple[str, str], dict[str, Link]] = {}
    for link in network.links:
        for end, other, direction in ((link.target, link.source, "down"), (link.source, link.target, "up")):
            if end == client and not network.nodes[other].is_plain_client:
                pairs.setdefault((other, link.technology), {})[direction] = link
    wanted = network.nodes[client].attached_to
    ranked = sorted(
        pairs.items(), key=lambda item: (item[0][0] != wanted, -max(link.capacity_mbps for link in item[1].values()))
    )
    return tuple(
        Attachment(client, node, technology, *(links[d].id if d in links else None for d in ("down", "up")))
        for (node, technology), links in ranked
    )


FIRST_LABEL = 16
LABEL_SPACE = 1 << 20

# The share of the label space that may be used: beyond it, adding a node would renumber many others.
MAX_LABELS = LABEL_SPACE // 2


@dataclass(frozen=True)
class Labels:
    """Labels by what they name: link id, node id (agent and node labels), (node id, technology) for hello."""

    link: Mapping[str, int]
    agent: Mapping[str, int]
    node: Mapping[str, int]
    hello: Mapping[tuple[str, str], int]
    flood: int
    secret: bytes = field(default=b"", repr=False)
    """With which names are hashed; empty: who has the network file can tell all labels."""

    @cached_property
    def all(self) -> frozenset[int]:
        """All labels that the network itself uses."""
        named = (self.link, self.agent, self.node, self.hello)
        return frozenset(label for labels in named for label in labels.values()) | {self.flood}

    @classmethod
    def of(cls, network: Network, addressing: Addressing, secret: bytes = b"") -> Labels:
        """Labels of all links whose source has a switch, of all agents, nodes and hello interfaces."""
        links = [link.id for link in network.links if addressing.has_switch(link.source)]
        hellos = [(node, k) for node, k in addressing.interface_mac if addressing.has_agent(node)]
        names: list[PathName] = [("flood",)]
        names += [("link", link) for link in links]
        names += [("agent", node) for node in addressing.agents]
        names += [("node", node) for node in network.nodes]
        names += [("hello", *interface) for interface in hellos]
        label = assign(names, secret)
        return cls(
            link={link: label["link", link] for link in links},
            agent={node: label["agent", node] for node in addressing.node_number if addressing.has_agent(node)},
            node={node: label["node", node] for node in network.nodes},
            hello={interface: label["hello", *interface] for interface in hellos},
            flood=label["flood",],
            secret=secret,
        )


def assign(names: Iterable[PathName], secret: bytes = b"") -> dict[PathName, int]:
    """Distinct labels in [16, 2^20) for distinct names; the result doesn't depend on the order of the names."""
    distinct = set(names)
    if len(distinct) > MAX_LABELS:
        raise ConfigError("network", "", f"expected at most {MAX_LABELS} labels, got {len(distinct)}")
    taken: dict[int, PathName] = {}
    for name in sorted(distinct):
        taken[next(label for attempt in count() if (label := hashed(name, attempt, secret)) not in taken)] = name
    return {name: label for label, name in taken.items()}


def hashed(name: PathName, attempt: int = 0, secret: bytes = b"") -> int:
    """The label that a name hashes to with a secret of at most 64 bytes; ``attempt`` counts the collisions before."""
    return FIRST_LABEL + _hash((*name, str(attempt)), b"hyroads-label", secret) % (LABEL_SPACE - FIRST_LABEL)


def _hash(name: PathName, purpose: bytes, secret: bytes = b"") -> int:
    """64 bits."""
    digest = hashlib.blake2b(joined(name), key=secret, digest_size=8, person=purpose).digest()
    return int.from_bytes(digest, "big")


FIRST_FLOW, LAST_FLOW = 16, 65535
FIRST_PATH, LAST_PATH = 1, 255


@dataclass(frozen=True)
class Numbers:
    """Flow id -> number, and per flow: path -> id."""

    flows: Mapping[str, int] = field(default_factory=dict)
    paths: Mapping[str, Mapping[PathName, int]] = field(default_factory=dict)

    def with_flows(
        self,
        flows: Collection[str],
        span: tuple[int, int] = (FIRST_FLOW, LAST_FLOW),
        changed: Collection[str] | None = None,
    ) -> Numbers:
        """Numbers for exactly these flows, from a range; those numbered before keep theirs if they are in it. No flows
        but ``changed``, if that is told, have come or gone since these numbers were given.
        """
        first, last = span
        numbers, taken = self.flows, self._taken
        if numbers and not first <= self._ends[0] <= self._ends[1] <= last:
            numbers = {flow: number for flow, number in numbers.items() if first <= number <= last}
            taken, changed = set(numbers.values()), None
        asked = flows if changed is None or len(changed) > 1 else [flow for flow in changed if flow in flows]
        fresh = [flow for flow in asked if flow not in numbers]
        # Mostly flows are the same, or new ones come.
        gone = numbers.keys() - set(flows) if len(numbers) + len(fresh) > len(flows) else set()
        taken = taken - {numbers[flow] for flow in gone}
        given: dict[str, int] = {}
        for flow in fresh:
            if flow not in given:
                given[flow] = _free((flow,), first, last, taken)
                taken.add(given[flow])
        remaining = patched(numbers, given, gone)
        has_all = self._are_paths_numbered and not gone and numbers is self.flows
        paths = self.paths if has_all else patched(self.paths, {}, self.paths.keys() - remaining.keys())
        if remaining is self.flows and paths is self.paths:
            return self
        known: dict[str, object] = {"_taken": taken, "_are_paths_numbered": True}
        if not gone and numbers is self.flows and numbers:
            known["_ends"] = min(self._ends[0], *given.values()), max(self._ends[1], *given.values())
        return Numbers(remaining, paths)._knowing(known)

    def _knowing(self, known: Mapping[str, object]) -> Numbers:
        """These, of which some is known already: to work it out takes as long as there are flows."""
        self.__dict__.update(known)
        return self

    @cached_property
    def _are_paths_numbered(self) -> bool:
        """Whether all flows that have paths have numbers."""
        return self.paths.keys() <= self.flows.keys()

    @cached_property
    def _taken(self) -> set[int]:
        """The numbers of flows; never changed."""
        return set(self.flows.values())

    @cached_property
    def _ends(self) -> tuple[int, int]:
        """The least and the greatest of them, if there are any."""
        return min(self._taken), max(self._taken)

    def with_paths(self, paths: Mapping[str, Iterable[PathName]]) -> Numbers:
        """Ids for the live paths of flows. Ids of earlier paths stay reserved while there is room."""
        changed = {
            flow: ids
            for flow, live in paths.items()
            if (ids := _ids(known := self.paths.get(flow, {}), live)) is not known
        }
        if not changed:
            return self
        same: dict[str, object] = {name: self.__dict__[name] for name in ("_taken", "_ends") if name in self.__dict__}
        if self._are_paths_numbered and changed.keys() <= self.flows.keys():
            same["_are_paths_numbered"] = True
        return Numbers(self.flows, patched(self.paths, changed))._knowing(same)


def _ids(known: Mapping[PathName, int], paths: Iterable[PathName]) -> Mapping[PathName, int]:
    """``known`` itself if all of these paths have ids."""
    live = list(paths)
    if all(path in known for path in live):
        return known
    ids = dict(known)
    for path in live:
        if path not in ids:
            if len(ids) > LAST_PATH // 2:
                ids = {name: number for name, number in ids.items() if name in live}
            ids[path] = _free(path, FIRST_PATH, LAST_PATH, set(ids.values()))
    return ids


def _free(name: PathName, first: int, last: int, taken: Collection[int]) -> int:
    """The first number on the name's sequence of hashes that nobody has."""
    span = last - first + 1
    if len(taken) >= span:
        raise PlanningError(f"no number from {first} to {last} is left")
    start = _hash(name, b"hyroads-number")
    return next(number for step in range(span) if (number := first + (start + step) % span) not in taken)
