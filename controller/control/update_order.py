"""Plan and what is in force -> what each agent and switch may be told now. Pure.

A flow is switched on from its end to its beginning (egress agent, ingress agent, then the rule that sends frames into
it) and off from its beginning to its end. Copies branch on the way once the agents there have confirmed it; until then,
and when one of them is gone, each goes by a path of its own.

Nothing remembers how far a change has come: whenever something is confirmed the order is worked out again, and the
answer follows from what is confirmed alone. So the next change may overtake this one at any moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from hyroads.controller.agents.protocol import AgentConfig, BranchFlow, EgressFlow, IngressFlow
from hyroads.controller.model.plan import MULTIPATH, FlowPlan, Plan


@dataclass(frozen=True, slots=True)
class AgentView:
    """What is known of a connected agent.

    ``acked`` is the configuration it confirmed, None if it runs one that we don't know (from before our start);
    ``sent`` one that is on its way to it.
    """

    acked: AgentConfig | None
    sent: AgentConfig | None = None

    def ingress(self) -> dict[str, IngressFlow]:
        """Flows that it may be sending, with all paths that it may be using."""
        flows = dict(self.acked.ingress) if self.acked else {}
        for flow, entry in (self.sent.ingress if self.sent else {}).items():
            old = flows.get(flow)
            flows[flow] = entry if old is None or old is entry else _joined(old, entry)
        return flows


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
class Orders:
    """What each agent and switch shall be told now; only connected ones appear."""

    agents: Mapping[str, AgentConfig]
    classified: Mapping[str, frozenset[str]]


def orders_of(plan: Plan, views: Views) -> Orders:
    """What may be told now."""
    sent_to: dict[str, list[IngressFlow]] = {}
    branching: dict[str, dict[tuple[str, int], BranchFlow]] = {}
    for view in views.agents.values():
        for sending in view.ingress().values():
            sent_to.setdefault(sending.egress, []).append(sending)
            for node, copying in sending.branches:
                branching.setdefault(node, {})[copying.key] = copying
    agents = {}
    for node, config in plan.agents.items():
        if node in views.agents:
            ingress, egress = _ingress(plan, views, node), _egress(plan, views, node, sent_to.get(node, ()))
            # What an ingress may still be sending branches as before, unless it is to branch otherwise.
            branch = {**branching.get(node, {}), **config.branch}
            # The planned configuration itself if nothing has to wait: its revision is known.
            same = (config.ingress, config.egress, config.branch) == (ingress, egress, branch)
            agents[node] = config if same else AgentConfig(config.hello, ingress, egress, branch)
    return Orders(agents, {node: _classified(plan, views, node) for node in views.switches})


def _egress(plan: Plan, views: Views, node: str, sent_to: Iterable[IngressFlow]) -> dict[str, EgressFlow]:
    """What is planned, and whatever an ingress may still be sending here."""
    flows = dict(plan.agents[node].egress)
    view = views.agents[node]
    known = view.acked.egress if view.acked else {}
    for sending in sent_to:
        base = flows.get(sending.id) or known.get(sending.id)
        if base is not None:
            ids = {path.id for path in sending.paths} | set(base.paths)
            flows[sending.id] = base if len(ids) == len(base.paths) else replace(base, paths=tuple(sorted(ids)))
    return flows


def _ingress(plan: Plan, views: Views, node: str) -> dict[str, IngressFlow]:
    """What is planned on paths that the egress knows; and what the switch may still be handing over."""
    view, switch = views.agents[node], views.switches.get(node)
    if view.acked is None:
        # What it runs is unknown, so nothing can be kept; two such agents must not wait for each other.
        return dict(plan.agents[node].ingress)
    known = view.acked.ingress
    flows: dict[str, IngressFlow] = {}
    for flow, wanted in plan.agents[node].ingress.items():
        ids = _egress_ids(views, wanted)
        usable = tuple(path for path in wanted.paths if path.id in ids)
        if usable:
            whole = len(usable) == len(wanted.paths)
            entry = wanted if whole else replace(wanted, paths=usable)
            flows[flow] = entry if whole and _branches_in_force(views, wanted) else entry.unbranched()
        elif flow in known:
            flows[flow] = known[flow]
    for flow, entry in known.items():
        if flow not in flows and switch is not None and flow in switch.possible:
            flows[flow] = entry
    return flows


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


def _egress_ids(views: Views, wanted: IngressFlow) -> frozenset[int]:
    """Path ids that the egress agent confirmed and that what is on its way to it does not take away."""
    view = views.agents.get(wanted.egress)
    if view is None or view.acked is None:
        return frozenset()
    entries = [config.egress.get(wanted.id) for config in (view.acked, view.sent) if config is not None]
    ids = [frozenset(entry.paths) if entry and entry.number == wanted.number else frozenset() for entry in entries]
    return frozenset.intersection(*ids)


def _classified(plan: Plan, views: Views, node: str) -> frozenset[str]:
    """Flows that the switch may hand to its agent."""
    mine = (flow for flow in plan.flows.values() if flow.mode == MULTIPATH and flow.ingress == node)
    return frozenset(flow.spec.id for flow in mine if _may_start(flow, views, node))


def _may_start(flow: FlowPlan, views: Views, node: str) -> bool:
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
    return ready and bool(_egress_ids(views, entry))


def pending_of(plan: Plan, views: Views, flow: str) -> list[str]:
    """What has not yet confirmed its part of a flow, or of its end; empty once everything planned is in force."""
    found = plan.flows.get(flow)
    if found is None or found.mode != MULTIPATH or found.ingress is None or found.egress is None:
        waiting = _lingering(views, flow)
    else:
        waiting = _missing(plan, found, views)
    unready = {f"switch {node}" for node, view in views.switches.items() if not view.ready}
    return sorted(waiting | unready)


def _lingering(views: Views, flow: str) -> set[str]:
    """Where something of a flow that is no multipath (any more) is left."""
    switches = {f"switch {node}" for node, view in views.switches.items() if flow in view.possible}
    agents = {
        f"agent {node}"
        for node, view in views.agents.items()
        for config in (view.acked, view.sent)
        if config is not None
        and (flow in config.ingress or flow in config.egress or any(name == flow for name, _ in config.branch))
    }
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
            waiting.add(f"agent {node}")
    for node, copying in flow.branches:
        view = views.agents.get(node)
        if view is None or view.acked is None or view.acked.branch.get(copying.key) != copying:
            waiting.add(f"agent {node}")
    for node in flow.switches:
        switch = views.switches.get(node)
        if switch is None or (node == flow.ingress and name not in switch.confirmed):
            waiting.add(f"switch {node}")
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
