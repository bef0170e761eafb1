"""What the controller of an emulated network is told of it: all, all but capacities, or only nodes and technologies."""

from __future__ import annotations

from typing import Any

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.netfile import parse, to_document
from hyroads.controller.core.network import Network

# What only the emulator knows of a link.
_TRUTH = ("capacity_mbps", "delay_ms", "loss")


def network_document(
    network: Network, addressing: Addressing, *, measured: bool = False, discover: bool = False
) -> dict[str, Any]:
    """The controller's network file. Where plain clients are attached is said, as it follows from capacities else."""
    document = to_document(network)
    if not (measured or discover):
        return document
    for client in addressing.attachments:
        attachment = addressing.attachment(client)
        if attachment is not None:
            document["nodes"][client]["attached_to"] = attachment.node
    if not discover:
        document["links"] = [{k: v for k, v in link.items() if k not in _TRUTH} for link in document["links"]]
        return document
    for node, technologies in network.technologies_of.items():
        document["nodes"][node]["technologies"] = list(technologies)
    document["technologies"] = {k: {"shared": k not in network.unshared} for k in network.technologies}
    document |= {"links": "discover", "interference": {"rule": "hearing"}}
    flows = document.pop("flows", [])
    names = discovered_names(network, document)
    for flow in flows:
        if "paths" in flow:
            flow["paths"] = [[names[link] for link in path] for path in flow["paths"]]
    return {**document, **({"flows": flows} if flows else {})}


def discovered_names(network: Network, document: dict[str, Any]) -> dict[str, str]:
    """Id of a link in the network file -> id of the same link in a discovered network."""
    found = parse(document, "discovered", measured=True).links
    ends = {(link.source, link.target, link.technology): link.id for link in found}
    return {link.id: ends[link.source, link.target, link.technology] for link in network.links}
