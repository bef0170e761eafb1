"""Where nodes are drawn: at their positions, or where forces between nodes put them. Pure, and always the same."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from ..state import NodeInfo, Topology

Point = tuple[float, float]
ASPECT = 1.6
"""Width of the drawing over its height."""
STEPS = 150
FloatArray = NDArray[np.float64]


def positions(topology: Topology) -> dict[str, Point]:
    """By node: x from 0 to ``ASPECT``, y from 0 to 1. A floor plan's proportions are the floor's."""
    nodes = topology.nodes
    if not nodes:
        return {}
    known = {one: node.position_m for one, node in nodes.items() if node.position_m is not None}
    if len(known) == len(nodes) and len(set(known.values())) > 1:
        return _scaled(np.array([known[one] for one in nodes]), list(nodes), flip=True)
    joined = {(link.source, link.target) for link in topology.links.values()}
    return _scaled(_by_forces(nodes, joined), list(nodes), flip=False)


def _scaled(points: FloatArray, ids: list[str], *, flip: bool) -> dict[str, Point]:
    """Within the drawing, with a border. Rows of a floor plan grow downwards in no drawing of a floor: y is upwards."""
    low, high = points.min(axis=0), points.max(axis=0)
    span = np.maximum(high - low, 1e-9)
    border = 0.1
    scale = min((ASPECT - 2 * border) / span[0], (1 - 2 * border) / span[1])
    if not flip:
        # Forces know no metres: the drawing is filled.
        stretched = np.array([(ASPECT - 2 * border) / span[0], (1 - 2 * border) / span[1]])
        scales = np.where(span > 1e-6, stretched, 0.0)
    else:
        scales = np.array([scale, scale])
    middle = np.array([ASPECT / 2, 0.5])
    placed = (points - (low + high) / 2) * scales + middle
    return {one: (round(float(x), 4), round(float(y), 4)) for one, (x, y) in zip(ids, placed, strict=True)}


def _by_forces(nodes: Mapping[str, NodeInfo], joined: Collection[tuple[str, str]]) -> FloatArray:
    """Fruchterman and Reingold, "Graph drawing by force-directed placement" (1991), from places that ids decide."""
    ids = list(nodes)
    at = {one: number for number, one in enumerate(ids)}
    points = np.array([_start(one) for one in ids])
    pulls = np.zeros((len(ids), len(ids)))
    for source, target in joined:
        pulls[at[source], at[target]] = pulls[at[target], at[source]] = 1.0
    ideal = 1.0 / np.sqrt(len(ids))
    for step in range(STEPS):
        apart = points[:, None, :] - points[None, :, :]
        distance = np.maximum(np.linalg.norm(apart, axis=2), 1e-3)
        force = (ideal**2 / distance**2 - pulls * distance / ideal)[:, :, None] * apart
        moves = force.sum(axis=1)
        length = np.maximum(np.linalg.norm(moves, axis=1, keepdims=True), 1e-9)
        points = points + moves / length * np.minimum(length, 0.1 * (1 - step / STEPS))
    return points


def _start(node: str) -> Point:
    digest = hashlib.sha256(node.encode()).digest()
    return digest[0] / 255 + digest[1] / 65535, digest[2] / 255 + digest[3] / 65535
