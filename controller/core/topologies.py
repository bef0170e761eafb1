"""Random networks of the studies (spec 01, section 1.7) and of the benchmarks; pure given a ``random.Random``.

A link exists between two nodes that both own the medium and are within its range; its capacity falls linearly with the
distance, plus Gaussian noise drawn per directed link: min(max, max(floor, a - b * distance + N(0, sigma))). The
parameters of ``WIFI`` and ``PLC`` reproduce the testbed's means and spreads. Interference is the rule ``range``.
Plain clients have no switch, so that there is no link between two of them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from hyroads.controller.core.interference import RangeInterference
from hyroads.controller.core.network import Link, Network, Node, Role

GRID_M = 10.0


@dataclass(frozen=True, slots=True)
class Medium:
    """A technology with its range and its capacity over distance (Mb/s, metres)."""

    technology: str
    range_m: float
    at_zero_mbps: float
    slope_mbps_per_m: float
    sigma_mbps: float
    max_mbps: float
    floor_mbps: float = 5.0

    def capacity_mbps(self, distance_m: float, rng: random.Random) -> float:
        """A random capacity at this distance."""
        mean = self.at_zero_mbps - self.slope_mbps_per_m * distance_m
        return min(self.max_mbps, max(self.floor_mbps, mean + rng.gauss(0.0, self.sigma_mbps)))


WIFI = Medium("wifi", 35.0, 101.5, 3.95, 30.0, 102.0)
PLC = Medium("plc", 50.0, 65.8, 1.92, 15.0, 86.0)


@dataclass(frozen=True, slots=True)
class Placed:
    """A node, its position in metres and the media it owns."""

    node: Node
    media: tuple[Medium, ...]

    @classmethod
    def at(cls, name: str, role: Role, position_m: tuple[float, float], media: Sequence[Medium]) -> Placed:
        """A node with the default agent of its role and number of technologies."""
        agent = role in (Role.GATEWAY, Role.AP) or (role is Role.CLIENT and len(media) > 1)
        return cls(Node(name, role, position_m, agent), tuple(media))


def connect(placed: Sequence[Placed], rng: random.Random, name: str = "") -> Network:
    """The network of all links that the media allow between placed nodes; O(nodes^2)."""
    media = {medium.technology: medium for each in placed for medium in each.media}
    links = tuple(_links(placed, media, rng))
    nodes = {each.node.id: each.node for each in placed}
    ranges_m = {k: media[k].range_m for k in dict.fromkeys(link.technology for link in links)}
    return Network(nodes, links, RangeInterference(nodes, links, ranges_m), name=name)


def _links(placed: Sequence[Placed], media: Mapping[str, Medium], rng: random.Random) -> Iterator[Link]:
    for first, second in permutations(placed, 2):
        if first.node.is_plain_client and second.node.is_plain_client:
            continue
        source, target = first.node, second.node
        distance_m = math.dist(source.position_m or (), target.position_m or ())
        common = {medium.technology for medium in second.media}
        for technology in (medium.technology for medium in first.media if medium.technology in common):
            medium = media[technology]
            if distance_m <= medium.range_m:
                capacity_mbps = medium.capacity_mbps(distance_m, rng)
                yield Link(f"{source.id}-{target.id}-{technology}", source.id, target.id, technology, capacity_mbps)


def residential(rng: random.Random, *, mesh: bool = True) -> Network:
    """A home of 20 x 10 m: 3 hybrid routers (1 without ``mesh``), a hybrid client ``c1``, a WiFi client ``c2``."""
    both = (WIFI, PLC)
    routers = 3 if mesh else 1
    placed = [
        Placed.at(f"r{i}", Role.GATEWAY if i == 1 else Role.AP, _uniform(rng, 20.0, 10.0), both)
        for i in range(1, routers + 1)
    ]
    placed.append(Placed.at("c1", Role.CLIENT, _uniform(rng, 20.0, 10.0), both))
    placed.append(Placed.at("c2", Role.CLIENT, _uniform(rng, 20.0, 10.0), (WIFI,)))
    return connect(placed, rng, "residential-mesh" if mesh else "residential-infrastructure")


def enterprise(
    rng: random.Random,
    *,
    node_count: int = 10,
    width_m: float = 50.0,
    height_m: float = 30.0,
    panels: int = 1,
) -> Network:
    """An office: half the nodes hybrid APs on a 10 x 10 m grid, the others WiFi clients placed uniformly.

    With two ``panels`` (100 x 60 m in the thesis) the halves left and right have power lines of their own.
    """
    points = [(x, y) for x in _grid(width_m) for y in _grid(height_m)]
    aps = node_count // 2
    placed = []
    for i, point in enumerate(rng.sample(points, aps), start=1):
        panel = min(panels - 1, int(point[0] * panels / width_m))
        plc = PLC if panels == 1 else replace(PLC, technology=f"plc-panel-{panel + 1}")
        placed.append(Placed.at(f"r{i}", Role.GATEWAY if i == 1 else Role.AP, point, (WIFI, plc)))
    for i in range(1, node_count - aps + 1):
        placed.append(Placed.at(f"c{i}", Role.CLIENT, _uniform(rng, width_m, height_m), (WIFI,)))
    return connect(placed, rng, f"enterprise-{width_m:g}x{height_m:g}")


# Width, height (m) and number of nodes of the four networks of the study of the optimal number of paths.
PATHS_STUDY = ((40.0, 40.0, 10), (100.0, 100.0, 15), (200.0, 150.0, 20), (200.0, 150.0, 30))


def paths_study(rng: random.Random, number: int) -> Network:
    """Network ``number`` (1..4) of the study of the optimal number of paths: PLC and two WiFi channels everywhere.

    Per technology, the range is uniform in 20..40 m and the maximum rate uniform in 20..180 Mb/s; the capacity falls
    linearly to a tenth of the maximum at the range, with noise of a tenth of the maximum.
    """
    width_m, height_m, count = PATHS_STUDY[number - 1]
    media = []
    for technology in ("plc", "wifi-1", "wifi-2"):
        range_m, rate_mbps = rng.uniform(20.0, 40.0), rng.uniform(20.0, 180.0)
        slope = 0.9 * rate_mbps / range_m
        media.append(Medium(technology, range_m, rate_mbps, slope, 0.1 * rate_mbps, rate_mbps, 0.05 * rate_mbps))
    return connect(_hybrid(rng, count, width_m, height_m, media), rng, f"paths-study-{number}")


def office22(rng: random.Random) -> Network:
    """A dense office of 22 hybrid nodes, about 590 directed links."""
    return connect(_hybrid(rng, 22, 83.0, 50.0, (WIFI, PLC)), rng, "office22")


def office22_panels(rng: random.Random, *, capacity_scale: float = 1.0) -> Network:
    """The office floor of the testbed: 22 hybrid nodes on 65 x 40 m, the halves left and right with power lines of
    their own (two panels), one WiFi channel. ``capacity_scale`` multiplies all capacities.
    """
    media = [WIFI, *(replace(PLC, technology=f"plc-panel-{i}") for i in (1, 2))]
    placed = []
    for i in range(1, 23):
        position_m = _uniform(rng, 65.0, 40.0)
        panel = media[1 if position_m[0] < 32.5 else 2]
        placed.append(Placed.at(f"n{i}", Role.GATEWAY if i == 1 else Role.AP, position_m, (media[0], panel)))
    network = connect(placed, rng, "office22-panels")
    return network.with_capacities({link.id: link.capacity_mbps * capacity_scale for link in network.links})


def campus100(rng: random.Random) -> Network:
    """100 hybrid nodes, about 5 600 directed links."""
    return connect(_hybrid(rng, 100, 152.0, 91.0, (WIFI, PLC)), rng, "campus100")


def campus200(rng: random.Random) -> Network:
    """200 nodes with two WiFi channels and PLC, about 25 000 directed links."""
    channels = tuple(replace(WIFI, technology=f"wifi-{i}") for i in (1, 2))
    return connect(_hybrid(rng, 200, 174.0, 104.0, (*channels, PLC)), rng, "campus200")


def endpoints(network: Network, rng: random.Random) -> tuple[str, str]:
    """A random flow of the studies: from a client to a router (or AP); between two nodes if there are no clients."""
    routers = [node.id for node in network.nodes.values() if node.role is not Role.CLIENT]
    clients = [node.id for node in network.nodes.values() if node.role is Role.CLIENT]
    if clients:
        return rng.choice(clients), rng.choice(routers)
    source, target = rng.sample(routers, 2)
    return source, target


def _hybrid(rng: random.Random, count: int, width_m: float, height_m: float, media: Sequence[Medium]) -> list[Placed]:
    """Nodes n1..n<count> with all media, uniform in the area; n1 is the gateway."""
    return [
        Placed.at(f"n{i}", Role.GATEWAY if i == 1 else Role.AP, _uniform(rng, width_m, height_m), media)
        for i in range(1, count + 1)
    ]


def _uniform(rng: random.Random, width_m: float, height_m: float) -> tuple[float, float]:
    return rng.uniform(0.0, width_m), rng.uniform(0.0, height_m)


def _grid(length_m: float) -> list[float]:
    """Centres of the 10 m cells along one side."""
    return [GRID_M * (i + 0.5) for i in range(int(length_m // GRID_M))]
