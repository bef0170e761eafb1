"""What has not confirmed its part of what was asked for, by its name (``model.pending_names``). Pure.

A switch or an agent that is away goes on with what it runs, so it is named until it is back and has confirmed, however
long that takes. A controller that follows names devices by the word of the leader.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from hyroads.controller.model.pending_names import LEADER, PLAN, agent_name
from hyroads.controller.model.plan import Plan

from .flow_order import Absent, Views, may_have, pending_of, unconfirmed_at_absent


def flows_unconfirmed(
    plan: Plan, views: Views, absent: Absent, declared: Collection[str], flows: Iterable[str], *, at: Iterable[str] = ()
) -> list[str]:
    """What has not confirmed its part of some flows, or of their end: a flow is to be carried if it is ``declared``.
    Flows may have begun or ended ``at`` these nodes before: what is left of them there counts, too.
    """
    flows = set(flows)
    waiting = {agent_name(node) for node in at if _has_left(plan, views, node, flows)}
    for flow in flows:
        waiting |= {*pending_of(plan, views, flow), *unconfirmed_at_absent(plan, absent, flow)}
        if (flow in declared) is not (flow in plan.flows):
            waiting.add(PLAN)
    return sorted(waiting)


def _has_left(plan: Plan, views: Views, node: str, flows: Collection[str]) -> bool:
    """Whether the connected agent of a node may have parts of flows that are not planned there."""
    view, wanted = views.agents.get(node), plan.agents.get(node)
    if view is None or wanted is None:
        return False
    planned = {*wanted.ingress, *wanted.egress, *(name for name, _ in wanted.branch)}
    return any(may_have(view, flow) for flow in flows if flow not in planned)


def rates_unconfirmed(known: Iterable[str], absent: Absent) -> set[str]:
    """Agents that may send by other rates than those of the plan: ``known`` are nodes whose agents are connected and
    have not confirmed them; one that is away counts unless it surely sends no flow.
    """
    away = {node for node, last in absent.agents.items() if last is None or last.acked is None or last.flows}
    return {agent_name(node) for node in away.union(known)}


def leader_unconfirmed(waits: frozenset[str] | None) -> set[str]:
    """What a follower names: the devices for which the leader ``waits``; None: the leader has not said so."""
    return {LEADER} if waits is None else set(waits)
