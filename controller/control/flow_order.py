"""What is known of agents and switches, and what follows from it for one flow: what its ends may be told now, and what
has not confirmed its part yet. Pure; :mod:`.update_order` joins that for all flows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from hyroads.controller.agents.configs import AgentConfig, EgressFlow, IngressFlow
from hyroads.controller.model.pending_names import agent_name, switch_name
from hyroads.controller.model.plan import MULTIPATH, FlowPlan, Plan


@dataclass(frozen=True, slots=True)
class AgentView:
    """What is known of a connected agent.

    ``acked`` is the configuration it confirmed, None if it runs one that we don't know (from before our start);
    ``sent`` one that is on its way to it.
    """

    acked: AgentConfig | None
    sent: AgentConfig | None = None

    @property
    def flows(self) -> set[str]:
        """Flows that it may be sending."""
        return {*(self.acked.ingress if self.acked else ()), *(self.sent.ingress if self.sent else ())}

    def sending(self, flow: str) -> tuple[IngressFlow, ...]:
        """A flow as it may be sending it, with all paths that it may be using: one entry, two while the flow moves to
        another end, none if it surely does not send it.
        """
        old = self.acked.ingress.get(flow) if self.acked else None
        new = self.sent.ingress.get(flow) if self.sent else None
        if old is None or new is None:
            found = old or new
            return () if found is None else (found,)
        if old is new:
            return (new,)
        # One end gets the paths of both, also while the flow gets another number.
        return (_joined(old, new),) if old.egress == new.egress else (old, new)


@dataclass(frozen=True, slots=True)
class SwitchView:
    """What is known of a connected switch: whether its labels are in force, and its classified flows.

    ``confirmed`` are surely in force, ``possible`` may be (a change of them is on its way).
    """

    ready: bool
    confirmed: frozenset[str] = frozenset()
    possible: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Views:
    """All that are connected, by node."""

    agents: Mapping[str, AgentView] = field(default_factory=dict)
    switches: Mapping[str, SwitchView] = field(default_factory=dict)


@dataclass(frozen=True)
class Absent:
    """Nodes whose switch is not connected and read, or whose agent is not connected or has not said what it runs, with
    the last view of each. None: it may run anything that an earlier controller has sent.
    """

    agents: Mapping[str, AgentView | None] = field(default_factory=dict)
    switches: Mapping[str, SwitchView | None] = field(default_factory=dict)


NOBODY_ABSENT = Absent()


def is_ready(views: Views, node: str) -> bool:
    """Whether the labels of a switch are in force."""
    return node in views.switches and views.switches[node].ready


def egress_of(plan: Plan, view: AgentView, node: str, flow: str, sent_to: Iterable[IngressFlow]) -> EgressFlow | None:
    """The end of a flow as planned, with whatever an ingress may still be sending here; None if there is nothing."""
    found = plan.agents[node].egress.get(flow)
    for sending in sent_to:
        base = found or (view.acked.egress.get(flow) if view.acked else None)
        if base is not None:
            more = [path.id for path in sending.paths if path.id not in base.paths]
            found = replace(base, paths=tuple(sorted({*base.paths, *more}))) if more else base
    return found


def ingress_of(plan: Plan, views: Views, node: str, flow: str) -> IngressFlow | None:
    """The beginning of a flow as planned, on paths that the egress knows; or what the switch may still be handing over.
    None if there is neither.
    """
    view, switch, wanted = views.agents[node], views.switches.get(node), plan.agents[node].ingress.get(flow)
    if view.acked is None:
        # What it runs is unknown, so nothing can be kept; two such agents must not wait for each other.
        return wanted
    known = view.acked.ingress.get(flow)
    if wanted is None:
        return known if switch is not None and flow in switch.possible else None
    ids = _egress_ids(views, wanted)
    usable = [path for path in wanted.paths if path.id in ids]
    if not usable:
        # Rates alone wait for nobody.
        return wanted if known is not None and known.is_like(wanted) else known
    if len(usable) < len(wanted.paths):
        return replace(wanted, paths=tuple(usable)).unbranched()
    return wanted if not wanted.branches or _branches_in_force(views, wanted) else wanted.unbranched()


def _branches_in_force(views: Views, wanted: IngressFlow) -> bool:
    """Whether each agent at which copies branch confirmed that, and nothing on its way to it takes it away."""
    for node, copying in wanted.branches:
        view = views.agents.get(node)
        if view is None or view.acked is None:
            return False
        configs = (config for config in (view.acked, view.sent) if config is not None)
        if any(config.branch.get(copying.key) != copying for config in configs):
            return False
    return True


def _egress_ids(views: Views, wanted: IngressFlow) -> Collection[int]:
    """Path ids that the egress agent confirmed and that what is on its way to it does not take away."""
    view = views.agents.get(wanted.egress)
    if view is None or view.acked is None:
        return ()
    entry = view.acked.egress.get(wanted.id)
    if entry is None or entry.number != wanted.number:
        return ()
    coming = entry if view.sent is None else view.sent.egress.get(wanted.id)
    if coming is entry:
        return entry.paths
    if coming is None or coming.number != wanted.number:
        return ()
    return frozenset(entry.paths).intersection(coming.paths)


def may_start(flow: FlowPlan, views: Views, node: str) -> bool:
    """Whether the switch of a flow's first node may send its frames to the agent there: what follows is in force."""
    agent, switch = views.agents.get(node), views.switches[node]
    if agent is None:
        return False
    if agent.acked is None:
        # It runs what an earlier controller told it: what flows goes on, and nothing new starts.
        return flow.spec.id in switch.possible
    entry = agent.acked.ingress.get(flow.spec.id)
    if entry is None or entry.number != flow.number or (agent.sent and flow.spec.id not in agent.sent.ingress):
        return False
    egress = views.agents.get(entry.egress)
    if egress is None:
        return False
    if flow.spec.id in switch.possible:
        return egress.acked is None or flow.spec.id in egress.acked.egress
    ready = all(name in views.switches and views.switches[name].ready for name in flow.switches)
    return ready and bool(_egress_ids(views, entry)) and _branches_in_force(views, entry)


def pending_of(plan: Plan, views: Views, flow: str) -> list[str]:
    """What has not yet confirmed its part of a flow, or of its end; empty once everything planned is in force."""
    found = plan.flows.get(flow)
    if found is None or found.mode != MULTIPATH or found.ingress is None or found.egress is None:
        waiting = _lingering(views, flow)
    else:
        waiting = _missing(plan, found, views)
    unready = {switch_name(node) for node, view in views.switches.items() if not view.ready}
    return sorted(waiting | unready)


def unconfirmed_at_absent(plan: Plan, absent: Absent, flow: str) -> set[str]:
    """Absent switches and agents that may still forward a flow otherwise than planned, however long they are away.

    A multipath that is planned over an absent node is already named by :func:`pending_of`. Frames of a flow on its
    single path may pass any switch.
    """
    found = plan.flows.get(flow)
    is_single = found is not None and found.mode != MULTIPATH
    # A node beside the planned paths of a multipath counts only if it is known to have had the flow.
    switches = {
        switch_name(node)
        for node, last in absent.switches.items()
        if is_single or (found is None if last is None else flow in last.possible)
    }
    agents = {
        agent_name(node)
        for node, last in absent.agents.items()
        if (found is None or is_single if last is None or last.acked is None else may_have(last, flow))
    }
    return switches | agents


def may_have(view: AgentView, flow: str) -> bool:
    """Whether an agent may run any part of a flow."""
    return any(
        flow in config.ingress or flow in config.egress or any(name == flow for name, _ in config.branch)
        for config in (view.acked, view.sent)
        if config is not None
    )


def _lingering(views: Views, flow: str) -> set[str]:
    """Where something of a flow that is no multipath (any more) is left."""
    switches = {switch_name(node) for node, view in views.switches.items() if flow in view.possible}
    agents = {agent_name(node) for node, view in views.agents.items() if may_have(view, flow)}
    return switches | agents


def _missing(plan: Plan, flow: FlowPlan, views: Views) -> set[str]:
    """What has not confirmed its part of a multipath."""
    name, waiting = flow.spec.id, set()
    for node, side in ((flow.egress, "egress"), (flow.ingress, "ingress")):
        if node is None:
            continue
        view = views.agents.get(node)
        have = getattr(view.acked, side).get(name) if view and view.acked else None
        if have is None or not _same(have, getattr(plan.agents[node], side)[name]):
            waiting.add(agent_name(node))
    for node, copying in flow.branches:
        view = views.agents.get(node)
        if view is None or view.acked is None or view.acked.branch.get(copying.key) != copying:
            waiting.add(agent_name(node))
    for node in flow.switches:
        switch = views.switches.get(node)
        if switch is None or (node == flow.ingress and name not in switch.confirmed):
            waiting.add(switch_name(node))
    return waiting


def _same(have: IngressFlow | EgressFlow, wanted: IngressFlow | EgressFlow) -> bool:
    """Equal but for rates, which follow on their own and are compared with a tolerance."""
    if isinstance(have, IngressFlow) and isinstance(wanted, IngressFlow):
        ways = [[(path.id, path.written) for path in flow.paths] for flow in (have, wanted)]
        return ways[0] == ways[1] and have.copies == wanted.copies
    return have == wanted


def _joined(first: IngressFlow, second: IngressFlow) -> IngressFlow:
    """The second, with the paths and branches that only the first has added."""
    ids, known = {path.id for path in second.paths}, {(node, copying.key) for node, copying in second.branches}
    branches = tuple((node, copying) for node, copying in first.branches if (node, copying.key) not in known)
    paths = tuple(path for path in first.paths if path.id not in ids)
    return replace(second, paths=second.paths + paths, branches=second.branches + branches)
