"""Brings agents and switches to a plan: asks the gate what each may be told now, tells it; knows what is in force."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from hyroads.controller.control.live import Live
from hyroads.controller.ofp.intents import ClassifiedFlow, SwitchIntent
from hyroads.controller.plan import MULTIPATH, Plan
from hyroads.controller.push_agents import AgentPusher
from hyroads.controller.push_gate import Orders, Views, gate, pending_of
from hyroads.controller.switches import SwitchSession, Wanted

_NONE: Mapping[str, ClassifiedFlow] = {}


class Pusher:
    """``is_overtaken`` lets a slot pass that is due, and says whether something has happened meanwhile."""

    def __init__(
        self,
        live: Live,
        agents: AgentPusher,
        switches: Mapping[str, SwitchSession],
        is_overtaken: Callable[[], bool],
    ) -> None:
        self.additions: list[Callable[[str, SwitchIntent], SwitchIntent]] = []
        """What services want of a node's switch, besides what the network needs."""
        self._live = live
        self._agents = agents
        self._switches = switches
        self._is_overtaken = is_overtaken
        # What was asked last and what the answer was: most of the time nothing has changed since.
        self._asked: tuple[Plan, Views] | None = None
        self._orders = Orders({}, {})
        self._classified: Mapping[str, ClassifiedFlow] = {}
        self._flows_at: Mapping[str, Mapping[str, ClassifiedFlow]] = {}

    def push(self, plan: Plan) -> None:
        """Tell everybody what may be told now."""
        # Agents first: rates react to a cut link before the switches' single paths do.
        if self._agents.push(plan, self._gate(plan)):
            # What is on its way to one may let another go on.
            self._agents.push(plan, self._gate(plan))
        self._is_overtaken()
        self._push_switches(self._gate(self._live.in_force))

    def _gate(self, plan: Plan) -> Orders:
        views = self.views()
        if self._asked is None or self._asked[0] is not plan or self._asked[1] != views:
            self._asked, self._orders = (plan, views), gate(plan, views)
        return self._orders

    def views(self) -> Views:
        """What is known of all that are connected; nothing while nothing is planned."""
        if self._live.plan is None:
            return Views()
        agents = self._agents.views()
        switches = {
            node: session.view(self._wanted(node, None)) for node, session in self._switches.items() if session.is_read
        }
        return Views(agents, switches)

    def carries(self, flows: Iterable[str], version: int) -> bool:
        """Whether first edges send by the paths that the state of this version gives to flows, and by no others."""
        plan = self._live.plan
        if plan is None or plan.version != version:
            return False
        planned = (plan.flows[flow] for flow in flows)
        return all(flow.mode != MULTIPATH or self._agents.carries(flow) for flow in planned)

    def carried_out(self, flows: Collection[str], version: int) -> bool:
        """Whether the state of this version is in force for flows, at all agents and switches."""
        if not self.carries(flows, version):
            return False
        views = self.views()
        return not any(pending_of(self._live.in_force, views, flow) for flow in flows)

    def unsynced(self, switches: Iterable[str], agents: Iterable[str]) -> list[str]:
        """Those of these nodes' switches and agents that are missing or not yet at what is wanted."""
        plan = self._live.plan
        missing = [f"switch {node}" for node in switches if node not in self._switches]
        missing += [f"switch {node}" for node, session in self._switches.items() if not session.synced]
        return missing + [f"agent {node}" for node in agents if plan is None or not self._agents.synced(plan, node)]

    def _wanted(self, node: str, only: frozenset[str] | None) -> Wanted:
        """What a switch shall do; ``only`` some flows if given."""
        flows = self._planned_at(node)
        if only is not None and not flows.keys() <= only:
            flows = {flow: classified for flow, classified in flows.items() if flow in only}
        intent = self._live.network.intents[node]
        for addition in self.additions:
            intent = addition(node, intent)
        return Wanted(intent, flows)

    def _planned_at(self, node: str) -> Mapping[str, ClassifiedFlow]:
        """What the plan in force lets a node classify; plans share it as long as it is the same."""
        plan = self._live.in_force
        if plan.classified is not self._classified:
            found: dict[str, dict[str, ClassifiedFlow]] = {}
            for flow, classified in plan.classified.items():
                found.setdefault(plan.flows[flow].ingress or "", {})[flow] = classified
            self._classified, self._flows_at = plan.classified, found
        return self._flows_at.get(node, _NONE)

    def _push_switches(self, orders: Orders) -> None:
        for node in list(self._switches):
            session = self._switches.get(node)
            if session is None or not session.is_read:
                continue
            new = session.want(self._wanted(node, orders.classified.get(node, frozenset())))
            # Rules of a switch take milliseconds where there are many: a slot may pass between two of them. If
            # something else happened meanwhile, the next cycle asks the gate again and goes on from here.
            if new and self._is_overtaken():
                return
