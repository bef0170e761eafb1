"""Random networks of the studies and of the benchmarks, and the ends of their flows; pure given a ``random.Random``.

The studies are those of S. Henri's thesis (EPFL 9056, 2018, chapters 2 and 3) and of EMPoWER (CoNEXT 2016).
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
from enum import Enum
from itertools import permutations

from .interference import RangeInterference
from .network import Link, Network, Node, Role

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

    def scaled_to(self, max_mbps: float) -> Medium:
        """The same medium with another maximum rate: all its capacities change by one factor, the range stays."""
        factor = max_mbps / self.max_mbps
        return replace(
            self,
            at_zero_mbps=self.at_zero_mbps * factor,
            slope_mbps_per_m=self.slope_mbps_per_m * factor,
            sigma_mbps=self.sigma_mbps * factor,
            max_mbps=max_mbps,
            floor_mbps=self.floor_mbps * factor,
        )


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
    aps, lines = node_count // 2, _panels(PLC, panels)
    placed = []
    for i, point in enumerate(rng.sample(points, aps), start=1):
        plc = _panel(lines, point, width_m)
        placed.append(Placed.at(f"r{i}", Role.GATEWAY if i == 1 else Role.AP, point, (WIFI, plc)))
    for i in range(1, node_count - aps + 1):
        placed.append(Placed.at(f"c{i}", Role.CLIENT, _uniform(rng, width_m, height_m), (WIFI,)))
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
    plc, *wifi = (medium.scaled_to(rng.uniform(20.0, 180.0)) for medium in (PLC, WIFI, WIFI))
    channels = [replace(medium, technology=f"wifi-{i}") for i, medium in enumerate(wifi, start=1)]
    lines = _panels(plc, 1 if number == 1 else 2)
    placed = _hybrid(rng, count, (width_m, height_m), lines, channels)
    return connect(placed, rng, f"paths-study-{number}")


def office22(rng: random.Random) -> Network:
    """A dense office of 22 hybrid nodes, about 590 directed links."""
    return connect(_hybrid(rng, 22, (83.0, 50.0), (PLC,), (WIFI,)), rng, "office22")


def office22_panels(rng: random.Random, *, capacity_scale: float = 1.0) -> Network:
    """The office floor of the testbed: 22 hybrid nodes on 65 x 40 m, the halves left and right with power lines of
    their own (two panels), one WiFi channel. ``capacity_scale`` multiplies all capacities.
    """
    network = connect(_hybrid(rng, 22, (65.0, 40.0), _panels(PLC, 2), (WIFI,)), rng, "office22-panels")
    return network.with_capacities({link.id: link.capacity_mbps * capacity_scale for link in network.links})


def campus100(rng: random.Random) -> Network:
    """100 hybrid nodes, about 5 600 directed links."""
    return connect(_hybrid(rng, 100, (152.0, 91.0), (PLC,), (WIFI,)), rng, "campus100")


def campus200(rng: random.Random) -> Network:
    """200 nodes with two WiFi channels and PLC, about 25 000 directed links."""
    channels = tuple(replace(WIFI, technology=f"wifi-{i}") for i in (1, 2))
    return connect(_hybrid(rng, 200, (174.0, 104.0), (PLC,), channels), rng, "campus200")


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


def _hybrid(
    rng: random.Random,
    count: int,
    area_m: tuple[float, float],
    power_lines: Sequence[Medium],
    others: Sequence[Medium],
) -> list[Placed]:
    """Nodes n1..n<count>, uniform in the area, with ``others`` and the power line of their panel; n1 is the gateway."""
    placed = []
    for i in range(1, count + 1):
        position_m = _uniform(rng, *area_m)
        media = (*others, _panel(power_lines, position_m, area_m[0]))
        placed.append(Placed.at(f"n{i}", Role.GATEWAY if i == 1 else Role.AP, position_m, media))
    return placed


def _panels(plc: Medium, count: int) -> list[Medium]:
    """The power lines of ``count`` electrical panels: media that never interfere and have no links between them."""
    if count == 1:
        return [plc]
    return [replace(plc, technology=f"{plc.technology}-panel-{i}") for i in range(1, count + 1)]


def _panel(power_lines: Sequence[Medium], position_m: tuple[float, float], width_m: float) -> Medium:
    """The power line at a position: panels divide the width into equal parts."""
    return power_lines[min(len(power_lines) - 1, int(position_m[0] * len(power_lines) / width_m))]


def _uniform(rng: random.Random, width_m: float, height_m: float) -> tuple[float, float]:
    return rng.uniform(0.0, width_m), rng.uniform(0.0, height_m)


def _grid(length_m: float) -> list[float]:
    """Centres of the 10 m cells along one side."""
    return [GRID_M * (i + 0.5) for i in range(int(length_m // GRID_M))]
