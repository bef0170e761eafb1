"""Where the clients of the network file are, as far as agents and switches tell."""

from __future__ import annotations

from collections.abc import Mapping

from hyroads.controller.core.network import Role
from hyroads.controller.core.services.place import Place
from hyroads.controller.state import Fabric, Presence, State

Places = Mapping[str, Place | None]
"""By MAC of an interface."""


def interfaces_of(fabric: Fabric) -> dict[str, tuple[str, ...]]:
    """The MACs of every client of the network file."""
    addressing = fabric.addressing
    return {
        node.id: tuple(addressing.interface_mac[node.id, k] for k in addressing.technologies(node.id))
        for node in fabric.network.nodes.values()
        if node.role is Role.CLIENT
    }


def reported_places(fabric: Fabric, state: State) -> dict[str, Places]:
    """By client whose agent is connected: each interface is where its best link that lives leads."""
    addressing = fabric.addressing
    clients = [node for node in interfaces_of(fabric) if state.agents.get(node) is Presence.UP]
    return {
        client: {
            addressing.interface_mac[client, k]: _place(fabric, state, client, k)
            for k in addressing.technologies(client)
        }
        for client in clients
    }


def _place(fabric: Fabric, state: State, client: str, technology: str) -> Place | None:
    links = [
        link
        for link in fabric.network.links
        if link.source == client
        and link.technology == technology
        and fabric.addressing.has_switch(link.target)
        and state.link_fault(fabric, link) is None
    ]
    best = max(links, key=lambda link: link.capacity_mbps, default=None)
    return None if best is None else Place(best.target, technology)
