"""Plan and what is in force -> what each agent and switch may be told now. Pure.

A flow is switched on from its end to its beginning (egress agent, ingress agent, then the rule that sends frames into
it) and off from its beginning to its end. Copies branch on the way once the agents there have confirmed it; until then,
and when one of them is gone, each goes by a path of its own.

Nothing remembers how far a change has come: whenever something is confirmed the order is worked out again, and the
answer follows from what is confirmed alone. So the next change may overtake this one at any moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TypeVar

from hyroads.controller.agents.configs import AgentConfig, BranchFlow, IngressFlow
from hyroads.controller.core.mappings import differing, patched
from hyroads.controller.model.plan import MULTIPATH, FlowPlan, Plan

from .flow_order import AgentView, Views, egress_of, ingress_of, is_ready, may_start

T = TypeVar("T")

FEW_FLOWS = 16
"""So many are looked for one by one: an agent has some hundred."""


@dataclass(frozen=True)
class Orders:
    """What each agent and switch shall be told now; only connected ones appear."""

    agents: Mapping[str, AgentConfig]
    classified: Mapping[str, frozenset[str]]


def orders_of(plan: Plan, views: Views) -> Orders:
    """What may be told now."""
    return UpdateOrder().orders(plan, views)


@dataclass
class _Concerned:
    """Nodes for whose agents, and for whose switches, orders may be others than the last ones. ``flows`` are those of
    which something is confirmed, or on its way, otherwise than before, and ``planned`` those that are planned so, but
    for rates; of nodes in ``whole`` anything may be another.
    """

    agents: set[str]
    switches: set[str]
    whole: set[str]
    flows: set[str]
    planned: set[str]


class UpdateOrder:
    """Works orders out again only for those whom a change concerns, and of these only flows that it may concern. What
    it gives depends on the plan and the views alone, and not on what it was asked before.
    """

    def __init__(self) -> None:
        self._plan: Plan | None = None
        self._views = Views()
        self._orders = Orders({}, {})
        self._starting: dict[str, dict[str, FlowPlan]] = {}
        """By ingress: the multipaths that begin there."""
        self._wanted = _Partners()
        """By node: those whom its planned ingress flows need, at their ends and where copies branch."""
        self._sent_to: dict[str, dict[str, dict[str, IngressFlow]]] = {}
        """By node: what it may be sending, by where that ends."""
        self._branching: dict[str, dict[str, dict[tuple[str, int], BranchFlow]]] = {}
        """By node: how what it may be sending branches, by where it does."""
        self._reached = _Partners()
        """By node: where that ends and branches."""

    def orders(self, plan: Plan, views: Views) -> Orders:
        """What may be told now."""
        rated, before = self._rated(plan), self._plan
        concerned = self._concerned(plan, views, rated.keys())
        self._plan, self._views = plan, views
        if not (concerned.agents or concerned.switches or rated) and self._is_for(plan, views):
            return self._orders
        rank = {node: i for i, node in enumerate(views.agents)} if concerned.agents else {}
        planned = before.agents if before is not None else {}
        made = dict(rated)
        for node in concerned.agents:
            flows = None if node in concerned.whole else self._changed_flows(plan, planned, node, concerned.flows)
            made[node] = self._config(plan, views, node, rank, flows)
        classified = {node: self._classified(views, node, concerned) for node in concerned.switches}
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

    # -- whom a change concerns

    def _concerned(self, plan: Plan, views: Views, rated: Collection[str]) -> _Concerned:
        """Besides those whose planned configuration is only ``rated`` anew."""
        seen = differing(self._views.agents, views.agents)
        configs = set() if self._plan is plan else differing(self._plan.agents if self._plan else {}, plan.agents)
        configs = configs.difference(rated)
        switches = differing(self._views.switches, views.switches)
        flows: set[str] = set()
        began, routed = self._note_flows(plan)
        whole, agents, classifying = self._concerned_by_flows(plan, views, seen, flows)
        # Before and after the change, either may have to be told otherwise.
        entirely = {*whole, *self._wanted.of_partners(whole), *self._reached.partners_of(whole)}
        entirely |= self._reached.of_partners(whole)
        classifying |= {*seen, *switches, *began, *self._reached.of_partners(whole)}
        self._note_planned(plan, configs)
        for node in seen:
            self._note_seen(node, self._views.agents.get(node), views.agents.get(node))
        entirely |= self._reached.partners_of(whole)
        ready = self._note_switches(views, switches, flows, entirely)
        on_ready = self._beginning(ready)
        agents |= {*seen, *configs, *switches, *entirely}
        return _Concerned(
            {node for node in agents if node in views.agents and node in plan.agents},
            {node for node in classifying | on_ready if node in views.switches},
            entirely | on_ready,
            flows,
            routed,
        )

    def _concerned_by_flows(
        self, plan: Plan, views: Views, seen: Iterable[str], changed: set[str]
    ) -> tuple[set[str], set[str], set[str]]:
        """Of agents that were seen to run, or to be sent, something else: those of which anything may be another; and
        whom the flows concern that are others at the rest, as agents and as classifying switches. These flows are added
        to ``changed``.
        """
        whole: set[str] = set()
        agents: set[str] = set()
        beginning: set[str] = set()
        for node in seen:
            pairs = _pairs(self._views.agents.get(node), views.agents.get(node))
            if not pairs:
                whole.add(node)
                continue
            sending = _otherwise_sent(pairs)
            entries = (config.ingress.get(flow) for pair in pairs for config in pair for flow in sending)
            agents |= {name for entry in entries if entry is not None for name in _partners(entry)}
            flows: set[str] = set()
            for before, after in pairs:
                flows |= differing(before.egress, after.egress)
                flows |= {flow for flow, _ in differing(before.branch, after.branch)}
            planned = (plan.flows.get(flow) for flow in flows)
            beginning |= {of.ingress for of in planned if of is not None and of.ingress is not None}
            changed |= flows | sending
        return whole, agents | beginning, beginning

    def _note_planned(self, plan: Plan, configs: Iterable[str]) -> None:
        """Nodes have other planned configurations from now on."""
        last = self._plan.agents if self._plan is not None else {}
        for node in configs:
            before, after = (of[node].ingress if node in of else {} for of in (last, plan.agents))
            flows = differing(before, after)
            gone, new = ([of[flow] for flow in flows if flow in of] for of in (before, after))
            self._wanted.change(node, gone, new)

    def _note_seen(self, node: str, old: AgentView | None, new: AgentView | None) -> None:
        """An agent may be sending other flows from now on."""
        pairs = _pairs(old, new)
        old, new = old or AgentView(None), new or AgentView(None)
        for flow in _otherwise_sent(pairs) if pairs else old.flows | new.flows:
            was, now = old.sending(flow), new.sending(flow)
            self._reached.change(node, was, now)
            for entry in was:
                self._sent_to[node][entry.egress].pop(flow, None)
                for at, copying in entry.branches:
                    self._branching[node][at].pop(copying.key, None)
            for entry in now:
                self._sent_to.setdefault(node, {}).setdefault(entry.egress, {})[flow] = entry
                for at, copying in entry.branches:
                    self._branching.setdefault(node, {}).setdefault(at, {})[copying.key] = copying

    def _note_switches(self, views: Views, switches: Iterable[str], flows: set[str], entirely: set[str]) -> set[str]:
        """Switches that are ready now, or not any more. Nodes whose switches came or went are added to ``entirely``,
        and flows that the others hand over otherwise to ``flows``.
        """
        ready = set()
        for node in switches:
            old, new = self._views.switches.get(node), views.switches.get(node)
            if is_ready(self._views, node) != is_ready(views, node):
                ready.add(node)
            if old is None or new is None:
                entirely.add(node)
            else:
                flows |= (old.possible ^ new.possible) | (old.confirmed ^ new.confirmed)
        return ready

    def _note_flows(self, plan: Plan) -> tuple[set[str], set[str]]:
        """Ingresses at which another multipath begins, or begins no more, and these flows."""
        last = self._plan.flows if self._plan is not None else {}
        touched, flows = set(), set()
        for flow in differing(last, plan.flows):
            old, new = last.get(flow), plan.flows.get(flow)
            if old is not None and new is not None and new.switches and old.switches is new.switches:
                # Nothing but its rates is another.
                continue
            begins = [each.ingress for each in (old, new) if each is not None and each.mode == MULTIPATH]
            for ingress in begins:
                self._starting.setdefault(ingress or "", {}).pop(flow, None)
            if new is not None and new.mode == MULTIPATH:
                self._starting[new.ingress or ""][flow] = new
            if old is None or new is None or not _begins_alike(old, new):
                flows.add(flow)
                touched |= {ingress for ingress in begins if ingress is not None}
        return touched, flows

    def _beginning(self, switches: set[str]) -> set[str]:
        """Ingresses of multipaths that go over one of these switches."""
        if not switches:
            return set()
        ingresses = self._starting.items()
        return {node for node, of in ingresses if any(not flow.switches.isdisjoint(switches) for flow in of.values())}

    # -- what they are told

    def _changed_flows(
        self, plan: Plan, planned: Mapping[str, AgentConfig], node: str, flows: set[str]
    ) -> set[str] | None:
        """Flows of which an agent may be told otherwise; None: that may be all of them."""
        before, after = planned.get(node), plan.agents[node]
        if before is None or node not in self._orders.agents:
            return None
        # What it is told of some flows may be what it runs, and not what is planned.
        other = differing(self._orders.agents[node].ingress, after.ingress)
        return flows | other | differing(before.ingress, after.ingress) | differing(before.egress, after.egress)

    def _config(
        self, plan: Plan, views: Views, node: str, rank: Mapping[str, int], flows: set[str] | None
    ) -> AgentConfig:
        """What an agent is told; of other than these flows that is what it was told last."""
        config, senders, view = plan.agents[node], self._reached.of(node), views.agents[node]
        told = self._orders.agents[node] if flows is not None else AgentConfig(config.hello, media=config.media)
        # Of a sender to many only what ends here.
        arriving = [there for sender in senders if (there := self._sent_to.get(sender, {}).get(node))]
        known = view.acked.ingress if view.acked is not None else {}
        begins, ends = (config.ingress, known, told.ingress), (config.egress, told.egress, *arriving)
        begin, end = (_of(sides, flows) for sides in (begins, ends))
        sent = _by_flow(arriving, end)
        ingress = _with(told.ingress, {flow: ingress_of(plan, views, node, flow) for flow in begin})
        egress = _with(told.egress, {flow: egress_of(plan, view, node, flow, sent.get(flow, ())) for flow in end})
        # What an ingress may still be sending branches as before, until it has let go: only then another branch comes.
        branching = {
            key: copying
            for sender in sorted(senders, key=rank.__getitem__)
            for key, copying in self._branching.get(sender, {}).get(node, {}).items()
        }
        branch = {**config.branch, **branching}
        # The planned configuration itself if nothing has to wait: its revision is known, and other rates need no order.
        same = (config.ingress, config.egress, config.branch) == (ingress, egress, branch)
        if same:
            return config
        is_told = config.hello is told.hello and ingress is told.ingress and egress is told.egress
        if is_told and branch == told.branch and config.media == told.media:
            return told
        return AgentConfig(config.hello, ingress, egress, branch, config.media)

    def _classified(self, views: Views, node: str, concerned: _Concerned) -> frozenset[str]:
        """Flows that the switch may hand to its agent."""
        flows, told = self._starting.get(node, {}), self._orders.classified.get(node)
        if told is None or node in concerned.whole:
            return frozenset(flow for flow, plan in flows.items() if may_start(plan, views, node))
        asked = concerned.flows | concerned.planned
        found = (told - asked) | {flow for flow in asked & flows.keys() if may_start(flows[flow], views, node)}
        return told if found == told else found


def _of(sides: Sequence[Collection[str]], flows: set[str] | None) -> set[str]:
    """All that some collections have, or what of ``flows`` they have."""
    if flows is not None and len(flows) <= FEW_FLOWS:
        return {flow for flow in flows if any(flow in side for side in sides)}
    found = set[str]().union(*sides)
    return found if flows is None else found & flows


def _told(before: Mapping[str, T], made: Mapping[str, T], nodes: Set[str]) -> Mapping[str, T]:
    """What was made for some nodes, and that of before for the others; the very mapping if it is the same."""
    if not made and before.keys() == nodes:
        return before
    found = {**before, **made}
    return found if found.keys() == nodes else {node: found[node] for node in nodes}


class _Partners:
    """Who has to do with whom, because of flows: partners of each node, and by partner the nodes."""

    def __init__(self) -> None:
        self._of: dict[str, Counter[str]] = {}
        """By node and partner: how often flows name it."""
        self._by_partner: dict[str, set[str]] = {}

    def change(self, node: str, gone: Iterable[IngressFlow], new: Iterable[IngressFlow]) -> None:
        """Of the flows of a node some are gone, others are there from now on."""
        names = self._of.setdefault(node, Counter())
        for name in (name for flow in gone for name in _partners(flow)):
            names[name] -= 1
            if not names[name]:
                del names[name]
                self._by_partner[name].discard(node)
        for name in (name for flow in new for name in _partners(flow)):
            names[name] += 1
            self._by_partner.setdefault(name, set()).add(node)

    def of(self, partner: str) -> set[str]:
        """Nodes that have this partner."""
        return self._by_partner.get(partner, set())

    def of_partners(self, partners: Iterable[str]) -> set[str]:
        """Nodes that have one of these partners."""
        return {node for partner in partners for node in self.of(partner)}

    def partners_of(self, nodes: Iterable[str]) -> set[str]:
        """The partners of some nodes."""
        return {partner for node in nodes for partner in self._of.get(node, ())}


def _partners(flow: IngressFlow) -> Iterator[str]:
    yield flow.egress
    yield from (at for at, _ in flow.branches)


def _begins_alike(old: FlowPlan, new: FlowPlan) -> bool:
    """Whether the same is to be in force before frames go into a multipath, at the same node."""
    return all(getattr(old, name) == getattr(new, name) for name in ("mode", "number", "ingress", "switches"))


_Pairs = tuple[tuple[AgentConfig, AgentConfig], ...]


def _pairs(old: AgentView | None, new: AgentView | None) -> _Pairs:
    """What an agent ran, and runs; and what it was to run, and is to. Nothing if any of it is unknown."""
    if old is None or new is None or old.acked is None or new.acked is None:
        return ()
    return (old.acked, new.acked), (old.sent or old.acked, new.sent or new.acked)


def _otherwise_sent(pairs: _Pairs) -> set[str]:
    """Flows that an agent sends, or is told to send, otherwise than before but for rates."""
    return {
        flow
        for was, runs in pairs
        for flow in differing(was.ingress, runs.ingress)
        if not _rated_alone(was, runs, flow)
    }


def _rated_alone(was: AgentConfig, runs: AgentConfig, flow: str) -> bool:
    before, after = was.ingress.get(flow), runs.ingress.get(flow)
    return before is not None and after is not None and after.is_rated_from(before)


def _with(entries: Mapping[str, T], changed: Mapping[str, T | None]) -> Mapping[str, T]:
    """With these entries changed, or gone where they are None."""
    there = {flow: entry for flow, entry in changed.items() if entry is not None}
    return patched(entries, there, changed.keys() - there.keys())


def _by_flow(arriving: Iterable[Mapping[str, IngressFlow]], flows: Set[str]) -> dict[str, list[IngressFlow]]:
    """By flow, of some: what senders may be sending."""
    found: dict[str, list[IngressFlow]] = {}
    for there in arriving:
        for flow in there.keys() & flows:
            found.setdefault(flow, []).append(there[flow])
    return found
