"""Plan and what is in force -> what each agent and switch may be told now. Pure.

A flow is switched on from its end to its beginning (egress agent, ingress agent, then the rule that sends frames into
it) and off from its beginning to its end. Copies branch on the way once the agents there have confirmed it; until then,
and when one of them is gone, each goes by a path of its own.

Nothing remembers how far a change has come: whenever something is confirmed the order is worked out again, and the
answer follows from what is confirmed alone. So the next change may overtake this one at any moment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import TypeVar

from hyroads.controller.agents.protocol import AgentConfig, BranchFlow, EgressFlow, IngressFlow
from hyroads.controller.model.plan import MULTIPATH, FlowPlan, Plan, differing

T = TypeVar("T")


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
    return UpdateOrder().orders(plan, views)


class UpdateOrder:
    """Works orders out again only for those whom a change concerns. What it gives depends on the plan and the views
    alone, and not on what it was asked before.
    """

    def __init__(self) -> None:
        self._plan: Plan | None = None
        self._views = Views()
        self._orders = Orders({}, {})
        self._starting: dict[str, dict[str, FlowPlan]] = {}
        """By ingress: the multipaths that begin there."""
        self._wanted = _Partners()
        """By node: those whom its planned ingress flows need, at their ends and where copies branch."""
        self._sent_to: dict[str, dict[str, list[IngressFlow]]] = {}
        """By node: what it may be sending, by where that ends."""
        self._branching: dict[str, dict[str, list[BranchFlow]]] = {}
        """By node: how what it may be sending branches, by where it does."""
        self._reached = _Partners()
        """By node: where that ends and branches."""

    def orders(self, plan: Plan, views: Views) -> Orders:
        """What may be told now."""
        rated = self._rated(plan)
        agents, switches = self._concerned(plan, views, rated.keys())
        self._plan, self._views = plan, views
        if not (agents or switches or rated) and self._is_for(plan, views):
            return self._orders
        rank = {node: i for i, node in enumerate(views.agents)} if agents else {}
        made = rated | {node: self._config(plan, views, node, rank) for node in agents}
        classified = {node: self._classified(views, node) for node in switches}
        self._orders = Orders(
            _told(self._orders.agents, made, plan.agents.keys() & views.agents.keys()),
            _told(self._orders.classified, classified, views.switches.keys()),
        )
        return self._orders

    def _is_for(self, plan: Plan, views: Views) -> bool:
        """Whether the last orders are for the same nodes."""
        agents = plan.agents.keys() & views.agents.keys()
        return self._orders.agents.keys() == agents and self._orders.classified.keys() == views.switches.keys()

    def _rated(self, plan: Plan) -> dict[str, AgentConfig]:
        """What is planned for agents that were to be told all that was planned last, and get nothing but other rates:
        nobody has to wait for those.
        """
        last = self._plan
        if last is None or last is plan:
            return {}
        planned, told, new = last.agents, self._orders.agents, plan.agents
        found = differing(planned, new) & new.keys() & told.keys() & planned.keys()
        return {
            node: new[node]
            for node in found
            if told[node] is planned[node] and new[node].differs_in_rates_alone(planned[node])
        }

    def _concerned(self, plan: Plan, views: Views, rated: Collection[str]) -> tuple[set[str], set[str]]:
        """Nodes for whose agents, and for whose switches, the orders may be others than the last ones, besides those
        whose planned configuration is only ``rated`` anew.
        """
        seen = differing(self._views.agents, views.agents)
        configs = set() if self._plan is plan else differing(self._plan.agents if self._plan else {}, plan.agents)
        configs = configs.difference(rated)
        switches = differing(self._views.switches, views.switches)
        starting = self._note_flows(plan)
        whole, agents, classifying = self._concerned_by_flows(plan, views, seen)
        # Before and after the change, either may have to be told otherwise.
        agents |= {*seen, *configs, *switches, *self._wanted.of_partners(whole), *self._reached.partners_of(whole)}
        classifying |= {*seen, *switches, *starting, *self._reached.of_partners(whole)}
        for node in configs:
            planned = plan.agents.get(node)
            self._wanted.put(node, _partners(planned.ingress.values()) if planned is not None else frozenset())
        for node in seen:
            view = views.agents.get(node)
            sending = view.ingress() if view is not None else {}
            self._note_sending(node, sending.values())
            confirmed = view.acked.ingress if view is not None and view.acked is not None else {}
            self._reached.put(node, _partners((*sending.values(), *confirmed.values())))
        agents |= self._reached.partners_of(whole)
        ready = {node for node in switches if _is_ready(self._views, node) != _is_ready(views, node)}
        if ready:
            classifying |= {
                node
                for node, flows in self._starting.items()
                if any(not flow.switches.isdisjoint(ready) for flow in flows.values())
            }
        connected = {node for node in agents if node in views.agents and node in plan.agents}
        return connected, {node for node in classifying if node in views.switches}

    def _concerned_by_flows(self, plan: Plan, views: Views, seen: Iterable[str]) -> tuple[set[str], set[str], set[str]]:
        """Of agents that were seen to run, or to be sent, something else: those of which anything may be another; and
        whom the flows concern that are others at the rest, as agents and as classifying switches.
        """
        whole: set[str] = set()
        agents: set[str] = set()
        beginning: set[str] = set()
        for node in seen:
            old, new = self._views.agents.get(node), views.agents.get(node)
            if old is None or new is None or old.acked is None or new.acked is None:
                whole.add(node)
                continue
            was, runs = (old.acked, old.sent or old.acked), (new.acked, new.sent or new.acked)
            sending = {
                flow for pair in zip(was, runs, strict=True) for flow in differing(pair[0].ingress, pair[1].ingress)
            }
            entries = (config.ingress.get(flow) for config in (*was, *runs) for flow in sending)
            agents |= _partners(entry for entry in entries if entry is not None)
            for before, after in zip(was, runs, strict=True):
                flows = differing(before.egress, after.egress)
                flows |= {flow for flow, _ in differing(before.branch, after.branch)}
                planned = (plan.flows.get(flow) for flow in flows)
                beginning |= {of.ingress for of in planned if of is not None and of.ingress is not None}
        return whole, agents | beginning, beginning

    def _note_sending(self, node: str, flows: Iterable[IngressFlow]) -> None:
        """A node may be sending these flows from now on."""
        sent_to: dict[str, list[IngressFlow]] = {}
        branching: dict[str, list[BranchFlow]] = {}
        for flow in flows:
            sent_to.setdefault(flow.egress, []).append(flow)
            for at, copying in flow.branches:
                branching.setdefault(at, []).append(copying)
        self._sent_to[node], self._branching[node] = sent_to, branching

    def _note_flows(self, plan: Plan) -> set[str]:
        """Ingresses at which another multipath begins, or begins no more."""
        last = self._plan.flows if self._plan is not None else {}
        if plan.flows is last:
            return set()
        touched = set()
        for flow in differing(last, plan.flows):
            for old in (last.get(flow), plan.flows.get(flow)):
                if old is not None and old.mode == MULTIPATH and old.ingress is not None:
                    touched.add(old.ingress)
                    self._starting.setdefault(old.ingress, {}).pop(flow, None)
            new = plan.flows.get(flow)
            if new is not None and new.mode == MULTIPATH and new.ingress is not None:
                self._starting[new.ingress][flow] = new
        return touched

    def _config(self, plan: Plan, views: Views, node: str, rank: Mapping[str, int]) -> AgentConfig:
        config, senders = plan.agents[node], self._reached.of(node)
        ingress = _ingress(plan, views, node)
        # Of a sender to many only what ends here: each of those would walk over all of its flows otherwise.
        arriving = (flow for sender in senders for flow in self._sent_to[sender].get(node, ()))
        egress = _egress(plan, views, node, arriving)
        # What an ingress may still be sending branches as before, unless it is to branch otherwise.
        branching = {
            copying.key: copying
            for sender in sorted(senders, key=rank.__getitem__)
            for copying in self._branching[sender].get(node, ())
        }
        branch = {**branching, **config.branch}
        # The planned configuration itself if nothing has to wait: its revision is known.
        same = (config.ingress, config.egress, config.branch) == (ingress, egress, branch)
        return config if same else AgentConfig(config.hello, ingress, egress, branch)

    def _classified(self, views: Views, node: str) -> frozenset[str]:
        """Flows that the switch may hand to its agent."""
        flows = self._starting.get(node, {}).values()
        return frozenset(flow.spec.id for flow in flows if _may_start(flow, views, node))


def _told(before: Mapping[str, T], made: Mapping[str, T], nodes: Set[str]) -> Mapping[str, T]:
    """What was made for some nodes, and that of before for the others; the very mapping if it is the same."""
    if not made and before.keys() == nodes:
        return before
    found = {**before, **made}
    return found if found.keys() == nodes else {node: found[node] for node in nodes}


class _Partners:
    """Who has to do with whom: partners of each node, and by partner the nodes."""

    def __init__(self) -> None:
        self._of: dict[str, frozenset[str]] = {}
        self._by_partner: dict[str, set[str]] = {}

    def put(self, node: str, partners: frozenset[str]) -> None:
        """A node has these from now on."""
        before = self._of.get(node, frozenset())
        self._of[node] = partners
        for gone in before - partners:
            self._by_partner[gone].discard(node)
        for new in partners - before:
            self._by_partner.setdefault(new, set()).add(node)

    def of(self, partner: str) -> set[str]:
        """Nodes that have this partner."""
        return self._by_partner.get(partner, set())

    def of_partners(self, partners: Iterable[str]) -> set[str]:
        """Nodes that have one of these partners."""
        return {node for partner in partners for node in self.of(partner)}

    def partners_of(self, nodes: Iterable[str]) -> set[str]:
        """The partners of some nodes."""
        return {partner for node in nodes for partner in self._of.get(node, ())}


def _partners(flows: Iterable[IngressFlow]) -> frozenset[str]:
    return frozenset(node for flow in flows for node in (flow.egress, *(at for at, _ in flow.branches)))


def _is_ready(views: Views, node: str) -> bool:
    return node in views.switches and views.switches[node].ready


def _egress(plan: Plan, views: Views, node: str, sent_to: Iterable[IngressFlow]) -> dict[str, EgressFlow]:
    """What is planned, and whatever an ingress may still be sending here."""
    flows = dict(plan.agents[node].egress)
    view = views.agents[node]
    known = view.acked.egress if view.acked else {}
    for sending in sent_to:
        base = flows.get(sending.id) or known.get(sending.id)
        if base is not None:
            known_ids = base.paths
            more = [path.id for path in sending.paths if path.id not in known_ids]
            flows[sending.id] = replace(base, paths=tuple(sorted({*known_ids, *more}))) if more else base
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
        usable = [path for path in wanted.paths if path.id in ids]
        if usable:
            whole = len(usable) == len(wanted.paths)
            if whole and (not wanted.branches or _branches_in_force(views, wanted)):
                flows[flow] = wanted
            else:
                flows[flow] = (wanted if whole else replace(wanted, paths=tuple(usable))).unbranched()
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
