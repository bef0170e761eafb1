"""What the loop believes and does, as documents for REST (docs/reference/rest.md). Units are in the names."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from hyroads.controller.control.loop import LiveLoop
from hyroads.controller.control.slots import SlotClock
from hyroads.controller.core.estimate.link_estimate import LinkEstimate
from hyroads.controller.core.network import Link
from hyroads.controller.settings import Settings

Document = dict[str, Any]


Pauses = Callable[[Iterable[Link]], Iterable[Link]]
"""Gives the same links, and lets others run in between."""


def links_document(loop: LiveLoop, now_s: float, pauses: Pauses = iter) -> dict[str, Document]:
    """By link id: the capacity that rates count on, how it is known, and the airtime of its domain."""
    estimates = loop.last.result.estimates if loop.last else {}
    counted, planned, external = loop.capacities(), loop.airtime(), loop.external(now_s)
    return {
        link.id: {
            "capacity_mbps": counted[link.id] or None,
            "declared_mbps": link.capacity_mbps or None,
            "estimate": _estimate(estimates.get(link.id)),
            "airtime": planned[link.id],
            "external": external[link.id],
            "margin": margin,
        }
        for link, margin in zip(pauses(loop.declared.links), loop.state.problem.margin.tolist(), strict=True)
    }


def flow_document(loop: LiveLoop, flow: str) -> Document:
    """What the loop knows of a flow: ``demand_mbps`` caps its rate because it sends less than its share (null: it
    takes what it can get); ``decided_by`` says who sets its rates.
    """
    demand_mbps = loop.state.demands.demand_mbps(flow)
    return {
        "demand_mbps": demand_mbps if math.isfinite(demand_mbps) else None,
        "decided_by": loop.fixed[flow].by if flow in loop.fixed else loop.options.mode,
        **(loop.governor.document(flow) or {}),
    }


def interfaces_document(loop: LiveLoop, now_s: float) -> list[Document]:
    """Busy media as interfaces hear them: what is not explained by our own traffic is external."""
    external = loop.state.external
    state, stale = external.state, set(external.stale(now_s))
    if state is None:
        return []
    figures = zip(state.given.tolist(), state.raw.tolist(), state.time_s.tolist(), strict=True)
    return [
        {
            "node": observer[0],
            "technology": observer[1],
            "external": given,
            "external_raw": raw,
            "age_s": now_s - time_s if math.isfinite(time_s) else None,
            "quality": "stale" if observer in stale else "good",
        }
        for observer, (given, raw, time_s) in zip(external.hearing.observers, figures, strict=True)
    ]


def slices_document(loop: LiveLoop) -> list[Document]:
    """What slices take by the rates in force, in the domain of each technology where it is most, their shares, and
    whether somebody else wants what they would take.
    """
    shares, held = loop.options.shares, loop.held_slices
    return [
        {
            "slice": name,
            "technology": technology,
            "airtime": airtime,
            "share": shares.get(name, {}).get(technology),
            "held": (name, technology) in held,
        }
        for (name, technology), airtime in loop.airtime_of_slices().items()
    ]


def health_document(loop: LiveLoop, slots: SlotClock, settings: Settings) -> Document:
    """Figures of the slots, and how good the estimates are that they work with."""
    figures = slots.figures()
    estimates = loop.last.result.estimates if loop.last else {}
    allocation = loop.state.allocation
    return {
        "mode": settings.mode,
        "capacities": settings.capacities,
        "slot_ms": settings.slot_ms,
        "count": figures.count,
        "missed": figures.missed,
        "p50_ms": figures.p50_ms,
        "p99_ms": figures.p99_ms,
        "max_ms": figures.max_ms,
        "max_airtime": allocation.max_airtime if allocation else None,
        "estimates": dict(Counter(estimate.quality.value for estimate in estimates.values())),
        "silent_interfaces": [f"{node} {technology}" for node, technology in loop.last.result.stale]
        if loop.last
        else [],
    }


def _estimate(estimate: LinkEstimate | None) -> Document | None:
    if estimate is None:
        return None
    return {
        "capacity_mbps": estimate.capacity_mbps,
        "source": estimate.source.value if estimate.source else None,
        "quality": estimate.quality.value,
        "age_s": estimate.age_s,
        "confidence": estimate.confidence,
        "relative_error": estimate.relative_error if math.isfinite(estimate.relative_error) else None,
        "reason": estimate.reason or None,
    }
