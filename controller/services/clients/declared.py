"""Where the clients of the network file are, as agents and switches report it."""

from __future__ import annotations

from collections.abc import Mapping

from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.interface_addresses import InterfaceAddresses
from hyroads.controller.core.network import Place, Role
from hyroads.controller.model.state import Presence, State, TopologyContext

Places = Mapping[str, Place | None]
"""By MAC of an interface."""


def interfaces_of(context: TopologyContext, addresses: InterfaceAddresses) -> dict[str, tuple[str, ...]]:
    """The MACs of every client of the network file."""
    return {
        node.id: tuple(addresses.mac[node.id, k] for k in context.addressing.technologies(node.id))
        for node in context.network.nodes.values()
        if node.role is Role.CLIENT
    }


def possible_places(context: TopologyContext, client: str) -> tuple[Place, ...]:
    """Where a plain client can be, the place of the network file first."""
    return tuple(Place(one.node, one.technology) for one in context.addressing.attachments.get(client, ()))


def first_place(context: TopologyContext, state: State, client: str) -> Place | None:
    """Where a plain client was last, else where the network file has it; None: nowhere."""
    return state.places.get(client, next(iter(possible_places(context, client)), None))


def place_document(place: Place | None) -> dict[str, str] | None:
    """A place as JSON, for REST and the state file."""
    return None if place is None else {"node": place.node, "technology": place.technology}


def saved_places(places: Mapping[str, Place | None]) -> list[dict[str, str]]:
    """Plain clients that are not where the network file has them, for the state file."""
    return [
        {"client": client, "node": place.node, "technology": place.technology}
        for client, place in sorted(places.items())
        if place is not None
    ]


def places_from(documents: object, context: TopologyContext) -> tuple[dict[str, Place | None], list[ConfigError]]:
    """What :func:`saved_places` saved; places that the network file does not have any more are left out."""
    found: dict[str, Place | None] = {}
    problems = []
    for index, entry in enumerate(documents if isinstance(documents, list) else ()):
        match entry:
            case {"client": str(client), "node": str(node), "technology": str(technology)} if (
                place := Place(node, technology)
            ) in possible_places(context, client):
                found[client] = place
            case _:
                where = f"services.places[{index}]"
                problems.append(ConfigError("state file", where, "expected a client and a place of the network"))
    return found, problems


def reported_places(context: TopologyContext, state: State, addresses: InterfaceAddresses) -> dict[str, Places]:
    """By client whose agent is connected: each interface is where its best link that lives leads."""
    clients = [node for node in interfaces_of(context, addresses) if state.agents.get(node) is Presence.UP]
    return {
        client: {
            addresses.mac[client, k]: _place(context, state, client, k) for k in context.addressing.technologies(client)
        }
        for client in clients
    }


def _place(context: TopologyContext, state: State, client: str, technology: str) -> Place | None:
    links = [
        link
        for link in context.network.links
        if link.source == client
        and link.technology == technology
        and context.addressing.has_switch(link.target)
        and state.link_fault(context, link) is None
    ]
    best = max(links, key=lambda link: link.capacity_mbps, default=None)
    return None if best is None else Place(best.target, technology)
