"""Random networks like the testbed of S. Henri's thesis (EPFL 9056, 2018); pure given a ``random.Random``.

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
from itertools import pairwise, permutations

from .interference import RangeInterference
from .network import Link, Network, Node, Role


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


def office22_panels(rng: random.Random, *, capacity_scale: float = 1.0) -> Network:
    """The office floor of the testbed: 22 hybrid nodes on 65 x 40 m, the halves left and right with power lines of
    their own (two panels), one WiFi channel. ``capacity_scale`` multiplies all capacities.
    """
    network = connect(hybrid_nodes(rng, 22, (65.0, 40.0), panels_of(PLC, 2), (WIFI,)), rng, "office22-panels")
    return network.with_capacities({link.id: link.capacity_mbps * capacity_scale for link in network.links})


def hybrid_nodes(
    rng: random.Random, count: int, area_m: tuple[float, float], power_lines: Sequence[Medium], others: Sequence[Medium]
) -> list[Placed]:
    """Nodes n1..n<count>, uniform in the area, with ``others`` and the power line of their panel; n1 is the gateway."""
    placed = []
    for i in range(1, count + 1):
        position_m = uniform(rng, *area_m)
        media = (*others, panel_at(power_lines, position_m, area_m[0]))
        placed.append(Placed.at(f"n{i}", Role.GATEWAY if i == 1 else Role.AP, position_m, media))
    return placed


def panels_of(plc: Medium, count: int) -> list[Medium]:
    """The power lines of ``count`` electrical panels: media that never interfere and have no links between them."""
    if count == 1:
        return [plc]
    return [replace(plc, technology=f"{plc.technology}-panel-{i}") for i in range(1, count + 1)]


def panel_at(power_lines: Sequence[Medium], position_m: tuple[float, float], width_m: float) -> Medium:
    """The power line at a position: panels divide the width into equal parts."""
    return power_lines[min(len(power_lines) - 1, int(position_m[0] * len(power_lines) / width_m))]


def uniform(rng: random.Random, width_m: float, height_m: float) -> tuple[float, float]:
    """A random point [m] of an area."""
    return rng.uniform(0.0, width_m), rng.uniform(0.0, height_m)


WIRE_MBPS = 1000.0
_BUILDING_M, _STREET_M = (40.0, 25.0), 60.0


def campus(rng: random.Random, count: int, *, building: int = 8, area: int = 10) -> Network:
    """A campus of ``count`` access points: buildings of ``building`` hybrid nodes (WiFi and power line), which hear
    nothing of each other, on wires.

    The first node of a building is its switch room. The switch room of every ``area``-th building is a gateway: the
    buildings of its area and the other gateways are joined to it by full-duplex Ethernet. Cost is O(count).
    """
    nodes: dict[str, Node] = {}
    links: list[Link] = []
    rooms: list[str] = []
    per_row = max(1, math.isqrt(math.ceil(count / building)))
    for number in range(math.ceil(count / building)):
        row, column = divmod(number, per_row)
        corner_m = (column * (_BUILDING_M[0] + _STREET_M), row * (_BUILDING_M[1] + _STREET_M))
        size = min(building, count - number * building)
        inside = [_at(f"b{number + 1}-{i + 1}", Role.AP, corner_m, rng) for i in range(size)]
        if number % area == 0:
            inside[0] = replace(inside[0], node=replace(inside[0].node, role=Role.GATEWAY))
        rooms.append(inside[0].node.id)
        nodes.update((each.node.id, each.node) for each in inside)
        links.extend(_links(inside, {"wifi": WIFI, "plc": PLC}, rng))
    gateways = rooms[::area]
    pairs = [(gateways[i // area], room) for i, room in enumerate(rooms) if i % area]
    pairs += list(pairwise(gateways))
    for first, second in pairs:
        for source, target in ((first, second), (second, first)):
            links.append(Link(f"{source}-{target}-ethernet", source, target, "ethernet", WIRE_MBPS))
    ranges_m = {"wifi": WIFI.range_m, "plc": PLC.range_m}
    unshared = frozenset({"ethernet"})
    interference = RangeInterference(nodes, links, ranges_m, unshared)
    return Network(nodes, tuple(links), interference, name=f"campus-{count}", unshared=unshared)


def _at(name: str, role: Role, corner_m: tuple[float, float], rng: random.Random) -> Placed:
    """A hybrid node at a random position of the building at a corner."""
    across, along = uniform(rng, *_BUILDING_M)
    return Placed.at(name, role, (corner_m[0] + across, corner_m[1] + along), (WIFI, PLC))
