"""Deploys plans: sends agents and switches what differs from what they run, in a safe order.

The update ordering (``control.update_order``) says what each may be sent now. An agent gets a whole configuration, or
only rates where nothing else differs. What is confirmed is recorded, and lets the next step go out.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from hyroads.controller.agents.frame_keys import FrameKeys
from hyroads.controller.agents.lead import STALE, InForce, in_force_of, lead_document
from hyroads.controller.agents.protocol import AgentConfig, rates_document
from hyroads.controller.agents.sessions import NO_ANSWER, Session
from hyroads.controller.control.live import Live
from hyroads.controller.control.update_order import AgentView, Orders, SwitchView, UpdateOrder, Views, pending_of
from hyroads.controller.model.plan import MULTIPATH, FlowPlan, Plan, differing
from hyroads.controller.ofp.intents import ClassifiedFlow, SwitchIntent
from hyroads.controller.switches.server import SwitchRegistry
from hyroads.controller.switches.sessions import DesiredRules

LOG = logging.getLogger("hyroads.controller")
# What deserves to be sent was decided with the rates (core.closed_loop.to_push); this is only rounding.
RATE_TOLERANCE = 1e-6
RETRY_AFTER_S = 1.0
TOLD_AT_LEAST, TOLD_IF_URGENT = 100, 10
"""Switches that are told something in each cycle, whatever happens meanwhile, and if links are cut."""

Fill = dict[tuple[int, int], float]
"""(flow number, path id) -> what dummies make up at least, Mb/s."""


@dataclass
class AgentLink:
    """A joined agent and what it runs; ``known`` once its configuration from before our start was looked at."""

    session: Session
    acked: AgentConfig | None
    known: bool
    sent: AgentConfig | None = None
    rates: dict[tuple[int, int], float] = field(default_factory=dict)
    fill: Fill = field(default_factory=dict)
    retry_at_s: float = 0.0
    errors: int = 0
    compared: AgentConfig | None = None
    """The wanted configuration whose rates it has."""
    on_their_way: Mapping[tuple[int, int], float] | None = None
    """Rates that it was sent and has not confirmed; None: nothing of the kind is under way."""
    revision: int = 0
    """Of the configuration that it ran when it joined, or when it was told who leads."""
    fresh: AgentConfig | None = None
    """What it runs while it has no configuration."""
    is_asked: bool = False
    """It was told that we lead, and has not answered."""
    keyed: int = 0
    """Which keys (:meth:`FrameKeys.version`) the configuration that it confirmed has."""

    def may_send(self, number: int, path: int) -> bool | None:
        """Whether it sends by a path, as far as it confirmed and whatever is on its way; None: that is not certain."""
        key = (number, path)
        have, coming = self.rates.get(key), (self.on_their_way or {}).get(key)
        if have is None:
            return False if coming is None else None
        return have > 0 if coming is None or (coming > 0) == (have > 0) else None


@dataclass(eq=False)
class AgentDeployer:
    """All joined agents. One request at a time is under way to each; ``wake`` is called when it is answered.

    With one controller nobody is told who leads. With several, each calls :meth:`lead` or :meth:`follow` before agents
    join, and whenever that changes. ``greater_epoch_seen(epoch, who)`` is called for each agent that shows a greater
    epoch than any that was known here.
    """

    clock: Callable[[], float]
    counters: Counter[str]
    fault: Callable[[str, str], None]
    wake: Callable[[], None]
    greater_epoch_seen: Callable[[int, str], None] = lambda epoch, who: None
    runs: Callable[[str, Mapping[tuple[int, int], float]], None] = lambda node, rates: None
    """Told the rates with which an agent goes on when we begin to lead, by flow number and path id."""
    keys: FrameKeys = field(default_factory=FrameKeys)

    def __post_init__(self) -> None:
        self._links: dict[str, AgentLink] = {}
        self._views: Mapping[str, AgentView] = {}
        self._latest: Plan | None = None
        self._epoch: int | None = None
        self._greatest_epoch = 0
        self._follows = False
        self.others: list[Callable[[int | None], None]] = []
        """Who else tells devices that we lead, with this epoch, or that we do not (None)."""

    def lead(self, epoch: int) -> None:
        """We lead: say so on every session, also of agents that join later, and then send what differs."""
        self._epoch, self._greatest_epoch, self._follows = epoch, max(epoch, self._greatest_epoch), False
        self._latest = None
        for other in self.others:
            other(epoch)
        for node, link in list(self._links.items()):
            # What it runs by now the leader before us may have changed; requests of ours that are still under way
            # belong to the old entry.
            self._links[node] = again = AgentLink(link.session, None, known=False, fresh=link.fresh)
            self._ask(again)
        self.wake()

    def follow(self) -> None:
        """Another one leads: send nothing that changes anything."""
        self._epoch, self._follows, self._latest = None, True, None
        for other in self.others:
            other(None)

    def epoch_seen(self, epoch: int, who: str) -> None:
        """A device says which epoch is the greatest that it knows of; 0: none."""
        if epoch > self._greatest_epoch:
            self._greatest_epoch = epoch
            self.greater_epoch_seen(epoch, who)

    def _ask(self, link: AgentLink) -> None:
        if self._epoch is None:
            return
        link.is_asked = True
        link.session.request(
            lead_document(self._epoch),
            lambda problem: self._lead_answered(link, problem),
            told=lambda answer: self._recognised(link, in_force_of(answer)),
        )

    def _recognised(self, link: AgentLink, runs: InForce | None) -> None:
        """An agent says what it runs."""
        if runs is None:
            return
        link.revision, link.rates = runs.revision, dict(runs.rates)
        self.runs(link.session.node, runs.rates)
        if runs.revision == 0:
            link.acked, link.known = link.fresh, True

    def _lead_answered(self, link: AgentLink, problem: str | None) -> None:
        if problem == NO_ANSWER:
            self._ask(link)
            return
        # One that obeys another leader gets nothing until we lead again.
        link.is_asked = problem == STALE
        if problem is not None:
            self._refused(link, "who leads", problem)
        self.wake()

    def get(self, node: str) -> AgentLink | None:
        """The agent of a node if it has joined."""
        return self._links.get(node)

    def __len__(self) -> int:
        return len(self._links)

    def joined(self, session: Session, runs: AgentConfig | None) -> None:
        """An agent joined; ``runs`` is None if that is not known yet."""
        link = AgentLink(session, runs, known=runs is not None, revision=session.hello.revision, fresh=runs)
        self._links[session.node] = link
        session.epoch_told = lambda epoch: self.epoch_seen(epoch, f"agent {session.node}")
        self.epoch_seen(session.hello.epoch, f"agent {session.node}")
        self.keys.heard(session.hello)
        self._ask(link)

    def left(self, session: Session) -> bool:
        """A session ended; False if another one of the same agent has taken its place."""
        link = self._links.get(session.node)
        if link is None or link.session is not session:
            return False
        del self._links[session.node]
        self._views = {node: view for node, view in self._views.items() if node != session.node}
        return True

    @property
    def is_waiting(self) -> bool:
        """Whether an agent has a configuration to confirm."""
        return any(link.sent is not None for link in self._links.values())

    def views(self) -> Mapping[str, AgentView]:
        """What the update ordering needs to know; the very mapping of the last time if nothing changed."""
        known = self._views
        changed = {
            node: AgentView(link.acked, link.sent)
            for node, link in self._links.items()
            if (view := known.get(node)) is None or view.acked is not link.acked or view.sent is not link.sent
        }
        if changed:
            self._views = {**known, **changed}
        return self._views

    def synced(self, plan: Plan, node: str) -> bool:
        """Whether an agent is here and confirmed what is planned for it."""
        link = self._links.get(node)
        if link is None or link.acked is None or link.sent is not None:
            return False
        return link.acked.revision == plan.agents[node].revision and link.keyed == self.keys.version(node)

    def carries(self, flow: FlowPlan) -> bool:
        """Whether the first edge of a multipath sends by the planned paths and no others, as far as it confirmed. It
        may not know paths that stand by.
        """
        link = self._links.get(flow.ingress or "")
        if link is None or link.sent is not None:
            return False
        known = all((flow.number, path.id) in link.rates for path in flow.paths)
        sends = ((link.may_send(flow.number, path.id), path.rate_mbps) for path in flow.known)
        return known and all(does is (wanted != 0) for does, wanted in sends)

    def retry_due(self) -> bool:
        """Whether the time has come to try again what an agent refused."""
        now_s = self.clock()
        due = [link for link in self._links.values() if link.retry_at_s and now_s > link.retry_at_s]
        for link in due:
            link.retry_at_s = 0.0
        return bool(due)

    def push(self, plan: Plan, orders: Orders, is_overtaken: Callable[[], bool] = lambda: False) -> bool:
        """Send what differs from what an agent runs; whether any has a new configuration on its way.

        Configurations first: other paths matter more than other rates. One takes milliseconds where there are many
        flows. ``is_overtaken`` lets others run in between, and says whether the orders are outdated by now: then the
        rest is left to the next time.
        """
        if self._follows:
            return False
        self._latest, sent = plan, False
        now_s = self.clock()
        ready = [
            (link, config)
            for node, config in orders.agents.items()
            if (link := self._links.get(node)) is not None
            and not (link.sent is not None or link.is_asked or link.retry_at_s > now_s)
        ]
        for link, config in ready:
            if not link.known:
                self._recognise(link, (plan.agents[link.session.node], config))
            if not self._runs(link, config):
                self._send(link, config)
                sent = True
                # New rates that a slot has sent meanwhile are not taken back.
                if is_overtaken() or self._latest is not plan:
                    self.wake()
                    return sent
        for link, _ in ready:
            # Others may have run since.
            if link.sent is None and self._links.get(link.session.node) is link:
                self._send_rates(link, plan)
        return sent

    def _runs(self, link: AgentLink, config: AgentConfig) -> bool:
        """Whether what an agent confirmed is a configuration, but for rates. Who else must be able to seal a flow's
        frames it is not told: another answer to that is confirmed as well, unless keys are others because of it.
        """
        have, node = link.acked, link.session.node
        if have is None or link.keyed != self.keys.version(node) or have.revision != config.revision:
            return False
        if have is config or (have.egress, have.branch) == (config.egress, config.branch):
            return True
        if self.keys.revision(node, have) != self.keys.revision(node, config):
            return False
        link.acked = config
        self.wake()
        return True

    def push_rates(self, plan: Plan) -> None:
        """Send only rates that changed, without looking at anything else, as each slot does.

        Fill is said again each time, because it ends by itself.
        """
        if self._follows:
            return
        self._latest = plan
        now_s = self.clock()
        for link in self._links.values():
            if link.sent is None and not link.is_asked and link.retry_at_s <= now_s:
                self._send_rates(link, plan, refill=True)

    def _send_rates(self, link: AgentLink, plan: Plan, *, refill: bool = False) -> None:
        """Rates of the flows and paths that the agent has; the newest follow once it has answered."""
        if link.on_their_way is not None or link.acked is None:
            return
        wanted = plan.agents[link.session.node]
        if wanted is link.compared and not (plan.fill or link.fill):
            return
        known = link.acked.rates
        fill = {key: mbps for key, mbps in _fill_of(plan, wanted).items() if key in known}
        # A flow that is named without fill has none from now on.
        emptied = {number for number, _ in link.fill} - {number for number, _ in fill}
        changed = {
            key: rate
            for key, rate in wanted.rates.items()
            if key in known and (key[0] in emptied or _differs(link.rates.get(key), rate))
        }
        if not changed and not (fill and (refill or fill != link.fill)):
            link.compared = wanted
            return
        link.compared = None
        link.on_their_way = changed
        self.counters["agent_rates"] += 1
        document = rates_document(changed, fill)
        link.session.request(document, lambda problem: self._rates_answered(link, changed, fill, problem))

    def _rates_answered(
        self, link: AgentLink, rates: Mapping[tuple[int, int], float], fill: Fill, problem: str | None
    ) -> None:
        link.on_their_way = None
        if problem is not None:
            self._refused(link, "rates", problem)
        else:
            link.rates.update(rates)
            link.fill = fill
        if self._latest is not None and link.sent is None and problem is None:
            self._send_rates(link, self._latest)

    def _send(self, link: AgentLink, config: AgentConfig) -> None:
        link.sent = config
        self.counters["agent_configs"] += 1
        node = link.session.node
        document, keyed = self.keys.document(node, config), self.keys.version(node)
        link.session.request(document, lambda problem: self._answered(link, config, keyed, problem))

    def _recognise(self, link: AgentLink, candidates: tuple[AgentConfig, ...]) -> None:
        """An agent that ran before says by its revision whether it has what we want.

        If it did not say its rates, they are sent once more, which disturbs nothing.
        """
        link.known, node = True, link.session.node
        same = (config for config in candidates if self.keys.revision(node, config) == link.revision)
        link.acked = next(same, None)
        if link.acked is not None:
            link.keyed = self.keys.version(node)
            LOG.info("agent %s runs the wanted configuration", node)

    def _refused(self, link: AgentLink, what: str, problem: str) -> None:
        link.errors += 1
        link.retry_at_s = self.clock() + RETRY_AFTER_S
        if problem == STALE:
            # Another one leads by now: no fault of the agent's.
            self.counters["refused_as_stale"] += 1
        elif not link.session.closed:
            self.fault(f"agent {link.session.node}", f"{what} refused: {problem}")

    def _answered(self, link: AgentLink, config: AgentConfig, keyed: int, problem: str | None) -> None:
        link.sent = None
        if problem is None:
            link.keyed = keyed
            link.acked, link.rates, link.fill, link.compared = config, dict(config.rates), {}, None
        else:
            self._refused(link, "configuration", problem)
        self.wake()


def _differs(have: float | None, want: float) -> bool:
    return have is None or abs(have - want) > RATE_TOLERANCE * max(want, have)


def _fill_of(plan: Plan, wanted: AgentConfig) -> Fill:
    """What of the plan's fill concerns an agent's flows."""
    return {
        (entry.number, path): mbps
        for flow, entry in wanted.ingress.items()
        for path, mbps in plan.fill.get(flow, {}).items()
        if mbps > 0
    }


_NONE: Mapping[str, ClassifiedFlow] = {}


class Addition(Protocol):
    """What a service wants of switches, besides what the network needs."""

    @property
    def changed_nodes(self) -> set[str]:
        """Nodes for which :meth:`added_to` may give something else than before; whoever asks it removes them."""

    def added_to(self, node: str, intent: SwitchIntent) -> SwitchIntent:
        """The intent of a node's switch with that; the same object as long as nothing of it changes."""


@dataclass(eq=False)
class Deployer:
    """``is_overtaken`` lets a slot pass that is due, and says whether something has happened meanwhile, ``is_urgent``
    whether links were cut that are to be deployed before anything else.

    Only switches of which something changed are looked at: ``registry`` names those whose sessions did.
    """

    live: Live
    agents: AgentDeployer
    registry: SwitchRegistry
    is_overtaken: Callable[[], bool]
    is_urgent: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        self.switches = self.registry.sessions
        self.additions: list[Addition] = []
        self._order = UpdateOrder()
        self._views = Views()
        # By node what its switch shall do, all of it and what it may be told now: the very objects of the last time as
        # long as they are the same, so that nobody compares them.
        self._wanted: dict[str, DesiredRules] = {}
        self._allowed: dict[str, tuple[DesiredRules, frozenset[str], DesiredRules]] = {}
        self._classified: Mapping[str, ClassifiedFlow] = {}
        self._flows_at: dict[str, Mapping[str, ClassifiedFlow]] = {}
        self._ingress_of: dict[str, str] = {}
        self._intents: Mapping[str, SwitchIntent] = {}
        self._seen: dict[str, SwitchView] = {}
        """By node whose switch was read."""
        self._stale: set[str] = set()
        """Nodes of which something changed that is not in ``_wanted`` and ``_seen`` yet."""
        self._untold: set[str] = set()
        """Nodes whose switches may have to be told something."""
        self._told_last = ""
        self._permitted_for: Mapping[str, frozenset[str]] = {}
        """Flows that switches may classify, as they were told last."""

    def push(self, plan: Plan, agents_told: Callable[[], None] = lambda: None) -> None:
        """Tell everybody what may be told now. ``agents_told`` is called if all agents have confirmed configurations:
        while it is urgent, what one confirms may let another one go on.
        """
        # Agents first: rates react to a cut link before the switches' single paths do.
        if self.agents.push(plan, self._order.orders(plan, self.views()), self.is_overtaken):
            # What is on its way to one may let another go on. The plan in force may be another one by now.
            plan = self.live.in_force
            self.agents.push(plan, self._order.orders(plan, self.views()), self.is_overtaken)
        if not (self.is_urgent() and self.agents.is_waiting):
            agents_told()
        self.is_overtaken()
        self._push_switches(self._order.orders(self.live.in_force, self.views()))

    def views(self) -> Views:
        """What is known of all that are connected; nothing while nothing is planned. The very object of the last time
        if nothing changed.
        """
        if self.live.plan is None:
            return Views()
        self._look()
        agents, last = self.agents.views(), self._views
        if agents is not last.agents or self._seen is not last.switches:
            self._views = Views(agents, self._seen)
        return self._views

    def _look(self) -> None:
        """Take in what changed of switches, and of what they shall do."""
        intents, flows_at = self.live.network.intents, self._planned()
        self._stale |= differing(self._intents, intents)
        self._intents = intents
        for changed in (self.registry.touched, *(addition.changed_nodes for addition in self.additions)):
            self._stale |= changed
            changed.clear()
        seen: dict[str, SwitchView | None] = {}
        for node in list(self._stale):
            session, view = self.switches.get(node), None
            if session is not None:
                wanted = self._desired(node, intents[node], flows_at.get(node, _NONE))
                view = session.view(wanted) if session.is_read else None
                self._untold.add(node)
            if view is not self._seen.get(node):
                seen[node] = view
            self._stale.discard(node)
        if seen:
            self._seen = {node: view for node, view in {**self._seen, **seen}.items() if view is not None}

    def _desired(self, node: str, intent: SwitchIntent, flows: Mapping[str, ClassifiedFlow]) -> DesiredRules:
        """What a node's switch shall do, with all flows."""
        for addition in self.additions:
            intent = addition.added_to(node, intent)
        wanted = self._wanted.get(node)
        if wanted is None or wanted.intent is not intent or wanted.flows is not flows:
            wanted = self._wanted[node] = DesiredRules(intent, flows)
        return wanted

    def carries(self, flows: Iterable[str], version: int) -> bool:
        """Whether first edges send by the paths that the state of this version gives to flows, and by no others."""
        plan = self.live.plan
        if plan is None or plan.version != version:
            return False
        planned = (plan.flows[flow] for flow in flows)
        return all(flow.mode != MULTIPATH or self.agents.carries(flow) for flow in planned)

    def carried_out(self, flows: Collection[str], version: int) -> bool:
        """Whether the state of this version is in force for flows, at all agents and switches."""
        if not self.carries(flows, version):
            return False
        views = self.views()
        return not any(pending_of(self.live.in_force, views, flow) for flow in flows)

    def unsynced(self, switches: Iterable[str], agents: Iterable[str]) -> list[str]:
        """Those of these nodes' switches and agents that are missing or not yet at what is wanted."""
        plan = self.live.plan
        missing = [f"switch {node}" for node in switches if node not in self.switches]
        missing += [f"switch {node}" for node, session in self.switches.items() if not session.synced]
        return missing + [f"agent {node}" for node in agents if plan is None or not self.agents.synced(plan, node)]

    def _planned(self) -> Mapping[str, Mapping[str, ClassifiedFlow]]:
        """By node what the plan in force lets it classify; plans share it as long as it is the same."""
        plan = self.live.in_force
        changed = differing(self._classified, plan.classified)
        nodes = {node for flow in changed if (node := self._ingress_of.pop(flow, None)) is not None}
        for flow in changed & plan.classified.keys():
            self._ingress_of[flow] = node = plan.flows[flow].ingress or ""
            nodes.add(node)
        for node in nodes:
            known = self._flows_at.get(node, _NONE)
            remaining = {flow: classified for flow, classified in known.items() if flow not in changed}
            new = {flow: plan.classified[flow] for flow in changed if self._ingress_of.get(flow) == node}
            self._flows_at[node] = {**remaining, **new}
        self._stale |= nodes
        self._classified = plan.classified
        return self._flows_at

    def _permitted(self, node: str, wanted: DesiredRules, only: frozenset[str]) -> DesiredRules:
        """What a switch shall do, of flows only some."""
        known = self._allowed.get(node)
        if known is None or known[0] is not wanted or known[1] != only:
            flows = wanted.flows
            if not flows.keys() <= only:
                flows = {flow: classified for flow, classified in flows.items() if flow in only}
            permitted = wanted if flows is wanted.flows else DesiredRules(wanted.intent, flows)
            known = self._allowed[node] = (wanted, only, permitted)
        return known[2]

    def _push_switches(self, orders: Orders) -> None:
        self._untold |= differing(self._permitted_for, orders.classified)
        self._permitted_for = orders.classified
        # Who was told last comes last: where plans change all the time the first ones would keep the others waiting.
        nodes = sorted(self._untold)
        first = bisect_right(nodes, self._told_last)
        told = 0
        for node, session in [(node, self.switches.get(node)) for node in nodes[first:] + nodes[:first]]:
            permitted, now = orders.classified.get(node), self.switches.get(node)
            if now is None or not now.is_read or node not in self._wanted:
                # It is marked again once it was read.
                self._untold.discard(node)
                continue
            if permitted is None or now is not session:
                # One that was read while others were told is not in the orders: that is no order to have nothing.
                continue
            is_new = now.want(self._permitted(node, self._wanted[node], permitted))
            self._untold.discard(node)
            # Rules of a switch take milliseconds where there are many: a slot may pass between two of them. If
            # something else happened meanwhile, the next cycle asks the update ordering again and goes on from here.
            # In a large network something happens all the time, so some are told nevertheless.
            if is_new:
                self._told_last, told = node, told + 1
                is_overtaken, is_urgent = self.is_overtaken(), self.is_urgent()
                if (is_overtaken or is_urgent) and told >= (TOLD_IF_URGENT if is_urgent else TOLD_AT_LEAST):
                    if not is_overtaken:
                        self.agents.wake()
                    return
