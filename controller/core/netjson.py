"""Export of a network as a NetJSON NetworkGraph (RFC draft "NetJSON: data interchange format for networks").

Format: https://netjson.org/rfc.html, section "NetworkGraph". ``cost`` is d_l = 1/c_l in seconds per megabit, the link
weight of the routing metric.
"""

from __future__ import annotations

from typing import Any

from hyroads.controller.core.network import Link, Network, Node


def network_graph(network: Network) -> dict[str, Any]:
    """The network as a JSON-ready NetworkGraph; what NetJSON has no key for stands under ``properties``."""
    return {
        "type": "NetworkGraph",
        "label": network.name,
        "protocol": "static",
        "version": None,
        "metric": "airtime",
        "directed": True,
        "multigraph": True,
        "nodes": [_node(node) for node in network.nodes.values()],
        "links": [_link(link) for link in network.links if link.capacity_mbps > 0],
    }


def _node(node: Node) -> dict[str, Any]:
    properties: dict[str, Any] = {"role": node.role.value, "agent": node.agent}
    if node.position_m is not None:
        properties["position_m"] = list(node.position_m)
    addresses = [address for address in (node.ip, node.mac) if address is not None]
    return {"id": node.id, "label": node.id, "local_addresses": addresses, "properties": properties}


def _link(link: Link) -> dict[str, Any]:
    properties = {
        "id": link.id,
        "technology": link.technology,
        "capacity_mbps": link.capacity_mbps,
        "delay_ms": link.delay_ms,
        "loss": link.loss,
    }
    return {
        "source": link.source,
        "target": link.target,
        "cost": 1.0 / link.capacity_mbps,
        "cost_text": f"{link.capacity_mbps:g} Mb/s {link.technology}",
        "properties": properties,
    }
