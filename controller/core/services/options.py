"""Where a client of the network file could be: its links as options for policies. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hyroads.controller.core.interference import Interference
from hyroads.controller.core.network import Link, Network
from hyroads.controller.core.services.place import Place
from hyroads.controller.core.services.view import Option

Signal = Callable[[Place], float | None]
"""What an access point says of the client's signal, dBm."""


def options_of(
    network: Network,
    client: str,
    rates_mbps: Mapping[str, float],
    interference: Interference,
    signal: Signal = lambda place: None,
) -> tuple[Option, ...]:
    """Places with links to and from the client that both carry something; the rate is that of the slower direction.

    ``rates_mbps`` is 0 for links that are down. A medium is a class of links that contend with the same others.
    """
    there: dict[Place, Link] = {}
    back: dict[Place, Link] = {}
    for link in network.links:
        if link.target == client:
            there[Place(link.source, link.technology)] = link
        elif link.source == client:
            back[Place(link.target, link.technology)] = link
    classes = interference.classes()
    options = []
    for place, link in there.items():
        other = back.get(place)
        if other is None:
            continue
        rate_mbps = min(rates_mbps.get(link.id, 0.0), rates_mbps.get(other.id, 0.0))
        if rate_mbps > 0.0:
            medium = f"{place.technology} {classes[network.link_index[link.id]]}"
            options.append(Option(place, medium, rate_mbps, signal(place)))
    return tuple(options)
