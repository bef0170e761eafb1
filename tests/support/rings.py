"""Random hybrid networks for tests of rules."""

from __future__ import annotations

import random

from hyroads.controller.core.netfile import parse
from hyroads.controller.core.network import Network


def ring(seed: int = 0, size: int = 6, technologies: int = 3, clients: int = 3) -> Network:
    """A redundant random network: a ring on random technologies, chords, plain clients on the WiFi."""
    rng = random.Random(seed)
    names = [f"t{k}" for k in range(technologies)]
    nodes = {f"n{i}": {"role": rng.choice(["gateway", "ap", "switch"])} for i in range(size)}
    links, seen = [], set()

    def link(a: str, b: str, technology: str) -> None:
        if a != b and (a, b, technology) not in seen:
            seen.update({(a, b, technology), (b, a, technology)})
            capacity = rng.choice([5, 10, 20, 40, 80])
            links.append(
                {
                    "id": f"l{len(links)}",
                    "from": a,
                    "to": b,
                    "technology": technology,
                    "capacity_mbps": capacity,
                    "both": True,
                }
            )

    for i in range(size):
        link(f"n{i}", f"n{(i + 1) % size}", rng.choice(names))
    for _ in range(size):
        link(f"n{rng.randrange(size)}", f"n{rng.randrange(size)}", rng.choice(names))
    for c in range(clients):
        nodes[f"c{c}"] = {"role": "client", "agent": False}
        # Heard by two access points, attached to the better one.
        for at in rng.sample(range(size), 2):
            link(f"n{at}", f"c{c}", "t0")
    return parse({"nodes": nodes, "links": links, "interference": {"rule": "technology"}}, "ring")
