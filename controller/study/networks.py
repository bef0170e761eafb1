"""Networks of the studies and of the benchmarks, and the ends of their flows; pure given a ``random.Random``.

The studies are those of S. Henri's thesis (EPFL 9056, 2018, chapters 2 and 3) and of EMPoWER (CoNEXT 2016).
"""

from __future__ import annotations

import random
from dataclasses import replace
from enum import Enum

from hyroads.controller.core.network import Network, Role
from hyroads.controller.core.topologies import (
    PLC,
    WIFI,
    Medium,
    Placed,
    connect,
    hybrid_nodes,
    panel_at,
    panels_of,
    uniform,
)

GRID_M = 10.0


def scaled_to(medium: Medium, max_mbps: float) -> Medium:
    """A medium with another maximum rate: all its capacities change by one factor, the range stays."""
    factor = max_mbps / medium.max_mbps
    return replace(
        medium,
        at_zero_mbps=medium.at_zero_mbps * factor,
        slope_mbps_per_m=medium.slope_mbps_per_m * factor,
        sigma_mbps=medium.sigma_mbps * factor,
        max_mbps=max_mbps,
        floor_mbps=medium.floor_mbps * factor,
    )


def residential(rng: random.Random, *, mesh: bool = True) -> Network:
    """A home of 20 x 10 m: 3 hybrid routers (1 without ``mesh``), a hybrid client ``c1``, a WiFi client ``c2``."""
    both = (WIFI, PLC)
    routers = 3 if mesh else 1
    placed = [
        Placed.at(f"r{i}", Role.GATEWAY if i == 1 else Role.AP, uniform(rng, 20.0, 10.0), both)
        for i in range(1, routers + 1)
    ]
    placed.append(Placed.at("c1", Role.CLIENT, uniform(rng, 20.0, 10.0), both))
    placed.append(Placed.at("c2", Role.CLIENT, uniform(rng, 20.0, 10.0), (WIFI,)))
    return connect(placed, rng, "residential-mesh" if mesh else "residential-infrastructure")


def enterprise(
    rng: random.Random,
    *,
    node_count: int = 10,
    width_m: float = 50.0,
    height_m: float = 30.0,
    panels: int = 1,
    clients_forward: bool = False,
) -> Network:
    """An office: half the nodes hybrid APs on a 10 x 10 m grid, the others WiFi clients placed uniformly.

    With two ``panels`` (100 x 60 m in the thesis) the halves left and right have power lines of their own.
    ``clients_forward``: clients have links to each other and forward, as every node does in the published simulations;
    a plain client, which has no switch, can't.
    """
    points = [(x, y) for x in _grid(width_m) for y in _grid(height_m)]
    aps, lines = node_count // 2, panels_of(PLC, panels)
    placed = []
    for i, point in enumerate(rng.sample(points, aps), start=1):
        plc = panel_at(lines, point, width_m)
        placed.append(Placed.at(f"r{i}", Role.GATEWAY if i == 1 else Role.AP, point, (WIFI, plc)))
    for i in range(1, node_count - aps + 1):
        client = Placed.at(f"c{i}", Role.CLIENT, uniform(rng, width_m, height_m), (WIFI,))
        placed.append(replace(client, node=replace(client.node, agent=clients_forward)))
    return connect(placed, rng, f"enterprise-{width_m:g}x{height_m:g}")


# Width, height (m) and number of nodes of the four networks of the study of the optimal number of paths.
PATHS_STUDY = ((40.0, 40.0, 10), (100.0, 100.0, 15), (200.0, 150.0, 20), (200.0, 150.0, 30))
# What K counts there: a node of networks 2 to 4 owns one of two power lines.
PATHS_STUDY_MEDIA = 3


def paths_study(rng: random.Random, number: int) -> Network:
    """Network ``number`` (1..4) of the study of the optimal number of paths: PLC and two WiFi channels everywhere.

    The maximum rate of each technology is uniform in 20..180 Mb/s; capacities over distance are those of ``WIFI`` and
    ``PLC``, scaled to it. In networks 2 to 4 the halves left and right have power lines of their own, of one kind.

    The ranges are 35 m (WiFi) and 50 m (PLC). The thesis says 20 to 40 m, but then 25, 76 and 56 % of the flows of
    networks 2 to 4 have no route, where 5, 39 and 17 % are published.
    """
    width_m, height_m, count = PATHS_STUDY[number - 1]
    plc, *wifi = (scaled_to(medium, rng.uniform(20.0, 180.0)) for medium in (PLC, WIFI, WIFI))
    channels = [replace(medium, technology=f"wifi-{i}") for i, medium in enumerate(wifi, start=1)]
    lines = panels_of(plc, 1 if number == 1 else 2)
    placed = hybrid_nodes(rng, count, (width_m, height_m), lines, channels)
    return connect(placed, rng, f"paths-study-{number}")


def office22(rng: random.Random) -> Network:
    """A dense office of 22 hybrid nodes, about 590 directed links."""
    return connect(hybrid_nodes(rng, 22, (83.0, 50.0), (PLC,), (WIFI,)), rng, "office22")


def campus100(rng: random.Random) -> Network:
    """100 hybrid nodes, about 5 600 directed links."""
    return connect(hybrid_nodes(rng, 100, (152.0, 91.0), (PLC,), (WIFI,)), rng, "campus100")


def campus200(rng: random.Random) -> Network:
    """200 nodes with two WiFi channels and PLC, about 25 000 directed links."""
    channels = tuple(replace(WIFI, technology=f"wifi-{i}") for i in (1, 2))
    return connect(hybrid_nodes(rng, 200, (174.0, 104.0), (PLC,), channels), rng, "campus200")


class Ends(Enum):
    """Which pairs of nodes the flows of a study connect. A router or AP is a hybrid node that is no client."""

    CLIENT_TO_ROUTER = "client-to-router"
    """Residential networks: from a client, hybrid or not, to a router."""
    ANY_TO_AP = "any-to-ap"
    """Enterprise networks in the thesis: from any node to an AP."""
    AP_TO_ANY = "ap-to-any"
    """Enterprise networks in the paper: from an AP to any node."""


# Networks whose flows don't have the ends of an enterprise, by name.
_ENDS = dict.fromkeys(("residential-mesh", "residential-infrastructure"), Ends.CLIENT_TO_ROUTER)


def endpoints(network: Network, rng: random.Random, ends: Ends | None = None) -> tuple[str, str]:
    """Source and target of a random flow, two different nodes, uniform over all pairs that ``ends`` allows.

    Without ``ends``: ``CLIENT_TO_ROUTER`` in residential networks, ``ANY_TO_AP``, the thesis's choice, in all others.
    """
    ends = _ENDS.get(network.name, Ends.ANY_TO_AP) if ends is None else ends
    aps = [node.id for node in network.nodes.values() if node.role is not Role.CLIENT]
    clients = [node.id for node in network.nodes.values() if node.role is Role.CLIENT]
    if ends is Ends.CLIENT_TO_ROUTER and clients:
        return rng.choice(clients), rng.choice(aps)
    if not clients:
        source, target = rng.sample(aps, 2)
        return source, target
    ap = rng.choice(aps)
    other = rng.choice([node for node in network.nodes if node != ap])
    return (ap, other) if ends is Ends.AP_TO_ANY else (other, ap)


def _grid(length_m: float) -> list[float]:
    """Centres of the 10 m cells along one side."""
    return [GRID_M * (i + 0.5) for i in range(int(length_m // GRID_M))]
