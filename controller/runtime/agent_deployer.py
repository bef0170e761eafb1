"""Sends agents what differs from what they run: a whole configuration, or rates alone where nothing else differs.

Only agents of which something changed are looked at: what they are to run, what they have confirmed, or their keys.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hyroads.controller.agents.configs import AgentConfig, rates_document
from hyroads.controller.agents.frame_keys import FrameKeys
from hyroads.controller.agents.lead import STALE, InForce, in_force_of, lead_document
from hyroads.controller.agents.sessions import NO_ANSWER, Session
from hyroads.controller.control.flow_order import AgentView
from hyroads.controller.control.update_order import Orders
from hyroads.controller.core.mappings import differing
from hyroads.controller.model.pending_names import agent_name
from hyroads.controller.model.plan import FlowPlan, Plan

LOG = logging.getLogger("hyroads.controller")
# What deserves to be sent was decided with the rates (core.closed_loop.to_push); this is only rounding.
RATE_TOLERANCE = 1e-6
RETRY_AFTER_S = 1.0

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
    epoch than ours, and than it has shown before.
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
        self.last_views: dict[str, AgentView] = {}
        """What agents may run that have left since we lead, by node."""
        self._unseen: set[str] = set()
        """Nodes whose agents came, went, or run or were sent another configuration since :meth:`views` looked."""
        self._to_configure: set[str] = set()
        self._to_rate: set[str] = set()
        """Nodes whose agents may have to be sent a configuration, and rates. Of all others it is known that they have
        what the last ``_ordered`` and ``_rated`` say.
        """
        self._ordered: Mapping[str, AgentConfig] = {}
        self._rated: Mapping[str, AgentConfig] = {}
        self._latest: Plan | None = None
        self._epoch: int | None = None
        self._shown: dict[str, int] = {}
        """By device the greatest epoch that it has shown."""
        self._follows = False
        self.others: list[Callable[[int | None], None]] = []
        """Who else tells devices that we lead, with this epoch, or that we do not (None)."""

    def lead(self, epoch: int) -> None:
        """We lead: say so on every session, also of agents that join later, and then send what differs."""
        self._epoch, self._follows = epoch, False
        self._latest = None
        for other in self.others:
            other(epoch)
        self.last_views.clear()
        for node, link in list(self._links.items()):
            # What it runs by now the leader before us may have changed; requests of ours that are still under way
            # belong to the old entry.
            again = AgentLink(link.session, None, known=False, fresh=link.fresh)
            self._put(node, again)
            self._ask(again)
        self.wake()

    def _put(self, node: str, link: AgentLink) -> None:
        self._links[node] = link
        self._changed(node)

    def _changed(self, node: str) -> None:
        """What its agent runs, or may be sent, is another than before."""
        self._unseen.add(node)
        self._to_configure.add(node)
        self._to_rate.add(node)

    def follow(self) -> None:
        """Another one leads: send nothing that changes anything."""
        self._epoch, self._follows, self._latest = None, True, None
        for other in self.others:
            other(None)

    def epoch_seen(self, epoch: int, who: str) -> None:
        """A device says which epoch is the greatest that it knows of; 0: none."""
        if epoch > max(self._shown.get(who, 0), self._epoch or 0):
            self._shown[who] = epoch
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
        self._changed(link.session.node)

    def _lead_answered(self, link: AgentLink, problem: str | None) -> None:
        if problem == NO_ANSWER:
            self._ask(link)
            return
        # One that obeys another leader gets nothing until we lead again.
        link.is_asked = problem == STALE
        if problem is not None:
            self._refused(link, "who leads", problem)
        self._changed(link.session.node)
        self.wake()

    def get(self, node: str) -> AgentLink | None:
        """The agent of a node if it has joined."""
        return self._links.get(node)

    @property
    def nodes(self) -> frozenset[str]:
        """Nodes whose agents have joined."""
        return frozenset(self._links)

    def __contains__(self, node: object) -> bool:
        return node in self._links

    def __len__(self) -> int:
        return len(self._links)

    def joined(self, session: Session, runs: AgentConfig | None) -> None:
        """An agent joined; ``runs`` is None if that is not known yet."""
        link = AgentLink(session, runs, known=runs is not None, revision=session.hello.revision, fresh=runs)
        self._put(session.node, link)
        session.epoch_told = lambda epoch: self.epoch_seen(epoch, agent_name(session.node))
        self.epoch_seen(session.hello.epoch, agent_name(session.node))
        self.keys.heard(session.hello)
        self._ask(link)

    def left(self, session: Session) -> bool:
        """A session ended; False if another one of the same agent has taken its place."""
        link = self._links.get(session.node)
        if link is None or link.session is not session:
            return False
        del self._links[session.node]
        self.last_views[session.node] = AgentView(link.acked, link.sent)
        self._unseen.add(session.node)
        return True

    @property
    def is_waiting(self) -> bool:
        """Whether an agent has a configuration to confirm."""
        return any(link.sent is not None for link in self._links.values())

    def views(self) -> Mapping[str, AgentView]:
        """What the update ordering needs to know; the very mapping of the last time if nothing changed."""
        known, unseen = self._views, self._unseen
        if not unseen:
            return known
        self._unseen = set()
        found: dict[str, AgentView | None] = {}
        for node in unseen:
            link, view = self._links.get(node), known.get(node)
            if link is None or view is None or view.acked is not link.acked or view.sent is not link.sent:
                found[node] = None if link is None else AgentView(link.acked, link.sent)
        if any(view is not known.get(node) for node, view in found.items()):
            self._views = {node: view for node, view in {**known, **found}.items() if view is not None}
        return self._views

    def synced(self, plan: Plan, node: str) -> bool:
        """Whether an agent is here and confirmed what is planned for it."""
        link = self._links.get(node)
        if link is None or link.acked is None or link.sent is not None:
            return False
        return link.acked.revision == plan.agents[node].revision and link.keyed == self.keys.version(node)

    def unrated(self, plan: Plan) -> set[str]:
        """Nodes whose agents are here and have not confirmed the rates of a plan for the flows that they send."""
        return {node for node, link in self._links.items() if not self._is_rated(link, plan.agents.get(node))}

    def _is_rated(self, link: AgentLink, wanted: AgentConfig | None) -> bool:
        have = link.acked
        if wanted is None or have is None or link.sent is not None or link.on_their_way is not None:
            return wanted is None
        rates = wanted.rates.items()
        return not any(key in have.rates and _differs(link.rates.get(key), rate) for key, rate in rates)

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
        self._to_configure |= differing(self._ordered, orders.agents) | self.keys.changed_nodes
        self._ordered = orders.agents
        self.keys.changed_nodes.clear()
        for node in sorted(self._to_configure):
            link, config = self._links.get(node), orders.agents.get(node)
            if link is None or config is None:
                # It is looked at again when the agent joins, or something is wanted of it.
                self._to_configure.discard(node)
            elif self._is_free(link):
                self._to_configure.discard(node)
                if not link.known:
                    self._recognise(link, (plan.agents[node], config))
                if not self._runs(link, config):
                    self._send(link, config)
                    sent = True
                    # New rates that a slot has sent meanwhile are not taken back.
                    if is_overtaken() or self._latest is not plan:
                        self.wake()
                        return sent
        self._rate(plan)
        return sent

    def _is_free(self, link: AgentLink) -> bool:
        """Whether an agent can be told something else now."""
        return link.sent is None and not link.is_asked and link.retry_at_s <= self.clock()

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
        self._unseen.add(node)
        self.wake()
        return True

    def push_rates(self, plan: Plan) -> None:
        """Send only rates that changed, without looking at anything else, as each slot does.

        Fill is said again each time, because it ends by itself.
        """
        if self._follows:
            return
        self._latest = plan
        self._rate(plan, refill=True)

    def _rate(self, plan: Plan, *, refill: bool = False) -> None:
        self._to_rate |= differing(self._rated, plan.agents)
        self._rated = plan.agents
        if plan.fill:
            self._to_rate.update(plan.flows[flow].ingress or "" for flow in plan.fill)
        for node in sorted(self._to_rate):
            link = self._links.get(node)
            if link is None or node not in plan.agents:
                self._to_rate.discard(node)
            elif self._is_free(link):
                self._send_rates(link, plan, refill=refill)
                if link.compared is plan.agents[node] and not link.fill:
                    self._to_rate.discard(node)

    def _send_rates(self, link: AgentLink, plan: Plan, *, refill: bool = False) -> None:
        """Rates of the flows and paths that the agent has; the newest follow once it has answered."""
        if link.on_their_way is not None or link.acked is None:
            return
        wanted = plan.agents[link.session.node]
        if wanted is link.compared and not (plan.fill or link.fill):
            return
        if not (plan.fill or link.fill) and wanted.rates == link.rates:
            link.compared = wanted
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
        self._to_rate.add(link.session.node)
        if self._latest is not None and link.sent is None and problem is None:
            self._send_rates(link, self._latest)

    def _send(self, link: AgentLink, config: AgentConfig) -> None:
        node, link.sent = link.session.node, config
        self._unseen.add(node)
        self.counters["agent_configs"] += 1
        message, keyed = self.keys.message(node, config), self.keys.version(node)
        link.session.request(message, lambda problem: self._answered(link, config, keyed, problem))

    def _recognise(self, link: AgentLink, candidates: tuple[AgentConfig, ...]) -> None:
        """An agent that ran before says by its revision whether it has what we want.

        If it did not say its rates, they are sent once more, which disturbs nothing.
        """
        link.known, node = True, link.session.node
        same = (config for config in candidates if self.keys.revision(node, config) == link.revision)
        link.acked = next(same, None)
        self._unseen.add(node)
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
            self.fault(agent_name(link.session.node), f"{what} refused: {problem}")

    def _answered(self, link: AgentLink, config: AgentConfig, keyed: int, problem: str | None) -> None:
        link.sent = None
        if problem is None:
            link.keyed = keyed
            link.acked, link.rates, link.fill, link.compared = config, dict(config.rates), {}, None
        else:
            self._refused(link, "configuration", problem)
        self._changed(link.session.node)
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
