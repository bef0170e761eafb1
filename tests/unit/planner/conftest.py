"""Small random networks of every interference rule, and exhaustive oracles, for the tests of the planner."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from hyroads.controller.core.interference import (
    ConflictInterference,
    Interference,
    RangeInterference,
    TechnologyInterference,
    domain_interference,
)
from hyroads.controller.core.network import Link, Network, Node, Role

RULES = ("technology", "range", "conflicts", "domains")


def _interference(rng: random.Random, rule: str, nodes: dict[str, Node], links: tuple[Link, ...]) -> Interference:
    unshared = frozenset({"ethernet"})
    if rule == "technology":
        return TechnologyInterference(links, unshared)
    if rule == "range":
        return RangeInterference(nodes, links, {"wifi": 30.0, "plc": 55.0, "wifi2": 20.0}, unshared)
    ids = [link.id for link in links]
    if rule == "conflicts":
        return ConflictInterference(links, {one: rng.sample(ids, min(len(ids), rng.randrange(4))) for one in ids})
    return domain_interference(links, [rng.sample(ids, min(len(ids), rng.randrange(1, 5))) for _ in ids])


def _network(
    seed: int,
    rule: str = "technology",
    *,
    size: int = 5,
    technologies: int = 2,
    density: float = 0.6,
    tied: bool = False,
    clients: bool = False,
    dead: bool = False,
) -> Network:
    """A random network of ``size`` nodes n0..; ``tied`` capacities are few round numbers, ``dead`` adds zeros."""
    rng = random.Random(seed)
    names = ("wifi", "plc", "ethernet", "wifi2")[:technologies]
    nodes = {
        f"n{i}": Node(
            f"n{i}",
            Role.CLIENT if clients and rng.random() < 0.4 else Role.AP,
            (rng.uniform(0, 80), rng.uniform(0, 80)),
        )
        for i in range(size)
    }
    links = []
    for source in nodes:
        for target in nodes:
            for technology in names if source != target else ():
                if rng.random() < density:
                    capacity_mbps = rng.choice((10.0, 15.0, 30.0)) if tied else rng.uniform(3.0, 100.0)
                    capacity_mbps = 0.0 if dead and rng.random() < 0.1 else capacity_mbps
                    links.append(Link(f"{source}{target}{technology}", source, target, technology, capacity_mbps))
    unshared = frozenset({"ethernet"})
    return Network(nodes, tuple(links), _interference(rng, rule, nodes, tuple(links)), unshared=unshared)


@pytest.fixture(scope="session")
def random_network() -> Callable[..., Network]:
    """A function: seed, rule, shape -> network; the same for the same arguments."""
    return _network


@pytest.fixture(scope="session")
def all_paths() -> Callable[..., list[tuple[int, ...]]]:
    """A function: network, source, target -> every loop-free path over links that exist (exhaustive search)."""

    def walk(network: Network, node: str, target: str, seen: frozenset[str], relay: bool) -> Iterator[tuple[int, ...]]:
        for index, link in enumerate(network.links):
            if link.source != node or link.target in seen or link.capacity_mbps <= 0:
                continue
            if link.target == target:
                yield (index,)
            elif relay or not network.nodes[link.target].is_plain_client:
                for rest in walk(network, link.target, target, seen | {link.target}, relay):
                    yield (index, *rest)

    def find(network: Network, source: str, target: str, clients_relay: bool = False) -> list[tuple[int, ...]]:
        return list(walk(network, source, target, frozenset({source}), clients_relay))

    return find
