"""Deploys plans: sends agents and switches what differs from what they run, in a safe order.

The update ordering (``control.update_order``) says what each may be sent now. What is confirmed is recorded, and lets
the next step go out. Agents are in ``agent_deployer``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from hyroads.controller.control.flow_order import Absent, SwitchView, Views, pending_of
from hyroads.controller.control.live import Live
from hyroads.controller.control.update_order import Orders, UpdateOrder
from hyroads.controller.core.mappings import differing, patched
from hyroads.controller.model.pending_names import agent_name, switch_name
from hyroads.controller.model.plan import MULTIPATH, Plan
from hyroads.controller.ofp.intents import ClassifiedFlow, SwitchIntent
from hyroads.controller.switches.server import SwitchRegistry
from hyroads.controller.switches.sessions import DesiredRules, SwitchSession

from .agent_deployer import AgentDeployer

TOLD_AT_LEAST, TOLD_IF_URGENT = 100, 10
"""Switches that are told something in each cycle, whatever happens meanwhile, and if links are cut."""

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
        self._seen: Mapping[str, SwitchView] = {}
        """By node whose switch was read."""
        self._last_seen: dict[str, SwitchView] = {}
        """What switches may classify that are not connected any more, by node."""
        self._absent: tuple[Views, Absent] | None = None
        """Absent nodes, and the views that they follow from."""
        self._stale: set[str] = set()
        """Nodes of which something changed that is not in ``_wanted`` and ``_seen`` yet."""
        self._untold: set[str] = set()
        """Nodes whose switches may have to be told something."""
        self._told_last = ""
        self._permitted_for: Mapping[str, frozenset[str]] = {}
        """Flows that switches may classify, as they were told last."""
        self._sent: dict[str, tuple[SwitchSession, DesiredRules]] = {}
        """What switches were told last, by node, and the session in which they were."""

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
        seen: dict[str, SwitchView] = {}
        gone: list[str] = []
        for node in list(self._stale):
            session, view = self.switches.get(node), None
            if session is not None:
                wanted = self._desired(node, intents[node], flows_at.get(node, _NONE))
                view = session.view(wanted) if session.is_read else None
                self._untold.add(node)
            if view is None:
                gone.append(node)
                self._note_gone(node)
            else:
                seen[node] = view
            self._stale.discard(node)
        self._seen = patched(self._seen, seen, gone)

    def _note_gone(self, node: str) -> None:
        """Keep what a switch may classify after its connection has ended."""
        view = self._seen.get(node)
        if view is not None:
            # Its last batch may be in force although no barrier reply has come.
            possible = view.possible | self._permitted_for.get(node, frozenset())
            self._last_seen[node] = SwitchView(view.ready, view.confirmed, possible)

    def lead(self) -> None:
        """Forget what absent switches had: an earlier leader may have changed it since."""
        self._last_seen.clear()
        self._absent = None

    def absent(self, switches: Iterable[str], agents: Iterable[str]) -> Absent:
        """Those of these nodes whose switches and agents can't confirm anything now, with the last view of each. The
        same object as long as views do not change.
        """
        views = self.views()
        if self._absent is None or self._absent[0] is not views:
            known = {node for node, view in views.agents.items() if view.acked is not None}
            absent = Absent(
                {node: self.agents.last_views.get(node) for node in agents if node not in known},
                {node: self._last_seen.get(node) for node in switches if node not in views.switches},
            )
            self._absent = views, absent
        return self._absent[1]

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
        plan, views = self.live.plan, self.views()
        missing = [switch_name(node) for node in switches if node not in self.switches]
        missing += [switch_name(node) for node in self.switches if not self._is_synced(node, views)]
        return missing + [agent_name(node) for node in agents if plan is None or not self.agents.synced(plan, node)]

    def _is_synced(self, node: str, views: Views) -> bool:
        """Whether a switch has confirmed all that is wanted of it, also flows that it may not classify yet."""
        session, sent = self.switches[node], self._sent.get(node)
        is_told = sent is not None and sent[0] is session and sent[1] is self._wanted.get(node)
        return session.synced and is_told and node in views.switches

    def _planned(self) -> Mapping[str, Mapping[str, ClassifiedFlow]]:
        """By node what the plan in force lets it classify; plans share it as long as it is the same."""
        plan = self.live.in_force
        here: dict[str, dict[str, ClassifiedFlow]] = {}
        gone: dict[str, list[str]] = {}
        for flow in differing(self._classified, plan.classified):
            before = self._ingress_of.pop(flow, None)
            if before is not None:
                gone.setdefault(before, []).append(flow)
            if flow in plan.classified:
                self._ingress_of[flow] = node = plan.flows[flow].ingress or ""
                here.setdefault(node, {})[flow] = plan.classified[flow]
        for node in here.keys() | gone.keys():
            known = self._flows_at.get(node, _NONE)
            self._flows_at[node] = patched(known, here.get(node, {}), gone.get(node, ()))
            self._stale.add(node)
        self._classified = plan.classified
        return self._flows_at

    def _permitted(self, node: str, wanted: DesiredRules, only: frozenset[str]) -> DesiredRules:
        """What a switch shall do, of flows only some."""
        known = self._allowed.get(node)
        if known is None or known[0] is not wanted or known[1] != only:
            barred = wanted.flows.keys() - only
            permitted = DesiredRules(wanted.intent, patched(wanted.flows, {}, barred)) if barred else wanted
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
            wanted = self._permitted(node, self._wanted[node], permitted)
            is_new, self._sent[node] = now.want(wanted), (now, wanted)
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
