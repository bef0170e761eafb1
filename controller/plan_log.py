"""Tells of flows that take other ways: in the log, and to those who listen to events."""

from __future__ import annotations

import logging

from hyroads.controller.events import EventLog
from hyroads.controller.plan import FlowPlan, Plan

LOG = logging.getLogger("hyroads.controller")


def log_plan(before: Plan | None, after: Plan, events: EventLog) -> None:
    """Tell what differs between two plans but for rates."""
    for flow, plan in after.flows.items():
        old = before.flows.get(flow) if before else None
        if old is None or _way(old) != _way(plan):
            multipath = [{"id": p.id, "links": list(p.links), "rate_mbps": p.rate_mbps} for p in plan.paths]
            moved = {"id": flow, "state": plan.mode, "reason": plan.reason, "multipath": multipath}
            events.publish("flow.moved", moved)
            why = f" ({plan.reason})" if plan.reason else ""
            LOG.info("flow %s: %s%s: %s", flow, plan.mode, why, "; ".join(_paths(plan)))


def _way(plan: FlowPlan) -> tuple[object, ...]:
    return plan.mode, plan.reason, [path.id for path in plan.paths]


def _paths(plan: FlowPlan) -> list[str]:
    rates = ("" if path.rate_mbps is None else f" {path.rate_mbps:.2f} Mb/s" for path in plan.paths)
    return ["+".join(path.links) + rate for path, rate in zip(plan.paths, rates, strict=True)]
