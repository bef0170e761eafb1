"""What the planner found, as a document (spec 07.2): ``hyroads plan --json`` and ``GET /paths``."""

from __future__ import annotations

from typing import Any

from hyroads.controller.core.network import Network
from hyroads.controller.core.paths import RatedPath, link_ids
from hyroads.controller.core.planner import Plan


def plan_document(network: Network, plan: Plan) -> dict[str, Any]:
    """Single path, best multipath and arms, with link ids."""
    return {
        "single_path": _rated(network, plan.single_path),
        "multipath": {
            "paths": [_rated(network, path) for path in plan.multipath.paths],
            "total_mbps": plan.multipath.total_mbps,
        },
        "arms": [
            {"paths": [link_ids(network, path) for path in arm.links], "total_mbps": arm.total_mbps}
            for arm in plan.arms
        ],
    }


def _rated(network: Network, path: RatedPath) -> dict[str, Any]:
    return {"links": link_ids(network, path.links), "rate_mbps": path.rate_mbps}
