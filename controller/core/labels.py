"""MPLS labels of the network: 20 bits, 16 and up, each the hash of what it names (docs/reference/openflow.md, section
2).

Hashing makes a label independent of the order and mostly of the rest of the network: adding a node changes another
label only if the two collide. Collisions are resolved by hashing again with a counter, in sorted order of the names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.network import Network

FIRST_LABEL = 16
LABEL_SPACE = 1 << 20

# The share of the label space that may be used: beyond it, adding a node would renumber many others.
MAX_LABELS = LABEL_SPACE // 2

_Name = tuple[str, ...]


@dataclass(frozen=True)
class Labels:
    """Labels by what they name: link id, node id (agent and node labels), (node id, technology) for hello."""

    link: Mapping[str, int]
    agent: Mapping[str, int]
    node: Mapping[str, int]
    hello: Mapping[tuple[str, str], int]
    flood: int

    @cached_property
    def all(self) -> frozenset[int]:
        """All labels that the network itself uses."""
        named = (self.link, self.agent, self.node, self.hello)
        return frozenset(label for labels in named for label in labels.values()) | {self.flood}

    @classmethod
    def of(cls, network: Network, addressing: Addressing) -> Labels:
        """Labels of all links whose source has a switch, of all agents, nodes and hello interfaces."""
        links = [link.id for link in network.links if addressing.has_switch(link.source)]
        hellos = [(node, k) for node, k in addressing.interface_mac if addressing.has_agent(node)]
        names: list[_Name] = [("flood",)]
        names += [("link", link) for link in links]
        names += [("agent", node) for node in addressing.agents]
        names += [("node", node) for node in network.nodes]
        names += [("hello", *interface) for interface in hellos]
        label = assign(names)
        return cls(
            link={link: label["link", link] for link in links},
            agent={node: label["agent", node] for node in addressing.node_number if addressing.has_agent(node)},
            node={node: label["node", node] for node in network.nodes},
            hello={interface: label["hello", *interface] for interface in hellos},
            flood=label["flood",],
        )


def assign(names: Iterable[_Name]) -> dict[_Name, int]:
    """Distinct labels in [16, 2^20) for distinct names; the result doesn't depend on the order of the names."""
    ordered = sorted(set(names))
    if len(ordered) > MAX_LABELS:
        raise ConfigError("network", "", f"expected at most {MAX_LABELS} labels, got {len(ordered)}")
    taken: dict[int, _Name] = {}
    for name in ordered:
        attempt = 0
        while (label := hashed(name, attempt)) in taken:
            attempt += 1
        taken[label] = name
    return {name: label for label, name in taken.items()}


def hashed(name: _Name, attempt: int = 0) -> int:
    """The label that a name hashes to; ``attempt`` counts the collisions before."""
    # Every part is preceded by its length, so that no two names give the same bytes.
    parts = [f"{len(part)}:{part}" for part in (*name, str(attempt))]
    digest = hashlib.blake2b("".join(parts).encode(), digest_size=8, person=b"hyroads-label").digest()
    return FIRST_LABEL + int.from_bytes(digest, "big") % (LABEL_SPACE - FIRST_LABEL)
