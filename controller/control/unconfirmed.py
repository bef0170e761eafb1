"""What has not confirmed its part of what was asked for, by the names that every answer and ``/health`` use. Pure.

A switch or an agent that is away goes on with what it runs, so it is named until it is back and has confirmed, however
long that takes. Names are ``switch NODE`` and ``agent NODE``; ``plan`` stands for a change that is not planned yet, and
``start`` for a controller that deploys nothing yet. A controller that follows names devices by
the word of the leader, and ``leader`` while it has no such word.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from hyroads.controller.model.plan import Plan

from .flow_order import Absent, Views, pending_of, unconfirmed_at_absent

START, PLAN, LEADER = "start", "plan", "leader"


def switch(node: str) -> str:
    """The name of a node's switch."""
    return f"switch {node}"


def agent(node: str) -> str:
    """The name of a node's agent."""
    return f"agent {node}"


def flows_unconfirmed(
    plan: Plan, views: Views, absent: Absent, declared: Collection[str], flows: Iterable[str]
) -> list[str]:
    """What has not confirmed its part of some flows, or of their end: a flow is to be carried if it is ``declared``."""
    waiting: set[str] = set()
    for flow in flows:
        waiting |= {*pending_of(plan, views, flow), *unconfirmed_at_absent(plan, absent, flow)}
        if (flow in declared) is not (flow in plan.flows):
            waiting.add(PLAN)
    return sorted(waiting)


def rates_unconfirmed(known: Iterable[str], absent: Absent) -> set[str]:
    """Agents that may send by other rates than those of the plan: ``known`` are nodes whose agents are connected and
    have not confirmed them; one that is away counts unless it surely sends no flow.
    """
    away = {node for node, last in absent.agents.items() if last is None or last.acked is None or last.flows}
    return {agent(node) for node in away.union(known)}


def leader_unconfirmed(waits: frozenset[str] | None) -> set[str]:
    """What a follower names: the devices for which the leader ``waits``; None: the leader has not said so."""
    return {LEADER} if waits is None else set(waits)
