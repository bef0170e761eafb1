"""What must hold of every path."""

from __future__ import annotations

from itertools import pairwise

from hyroads.controller.core.interface_graph import Path
from hyroads.controller.core.network import Network


def is_loop_free(network: Network, path: Path) -> bool:
    """True if the links follow each other and no node is visited twice; False for the empty path."""
    nodes = [network.links[index].source for index in path[:1]] + [network.links[index].target for index in path]
    connected = all(network.links[a].target == network.links[b].source for a, b in pairwise(path))
    return bool(path) and connected and len(set(nodes)) == len(nodes)
