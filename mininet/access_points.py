"""What the nodes of an emulated network know of their own radios: interfaces, and whom they may hear there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.hearing_rule import implied_hearing
from hyroads.controller.core.network import Network
from hyroads.controller.radio.private_files import write_atomically


def interfaces_of(network: Network, addressing: Addressing, node: str) -> list[dict[str, object]]:
    """The section ``interfaces`` of a node's agent file (docs/reference/measurement.md, section 2), with emulated
    radios."""
    return [_interface(network, addressing, node, technology) for technology in addressing.technologies(node)]


def _interface(network: Network, addressing: Addressing, node: str, technology: str) -> dict[str, object]:
    out, into = {}, {}
    for link in network.links:
        if link.technology == technology and link.source == node:
            out[link.target] = link.id
        elif link.technology == technology and link.target == node:
            into[link.source] = link.id
    overheard = implied_hearing(network).get((node, technology), frozenset())
    peers = [
        {
            "mac": addressing.interface_mac[other, technology],
            "node": other,
            "out_link": out.get(other),
            "in_link": into.get(other),
        }
        # Stations that are too far away for a link, or of no interest, are heard all the same.
        for other in sorted({*out, *into, *overheard})
    ]
    name = addressing.interface_name[node, technology]
    return {"name": name, "technology": technology, "backend": "emulated", "peers": peers}


def agent_document(
    network: Network, addressing: Addressing, node: str, medium_socket: Path, errors: Mapping[str, float]
) -> dict[str, object]:
    """A node's agent file without anything of SNMP."""
    interfaces = interfaces_of(network, addressing, node)
    return {"node": node, "medium_socket": str(medium_socket), "errors": dict(errors), "interfaces": interfaces}


def write_private(path: Path, document: object) -> None:
    """A JSON file that only its owner can read."""
    write_atomically(path, json.dumps(document))
