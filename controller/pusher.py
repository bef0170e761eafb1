"""Brings agents and switches to a plan: asks the gate what each may be told now, and tells it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hyroads.controller.control.live import Live
from hyroads.controller.ofp.intents import SwitchIntent
from hyroads.controller.plan import Plan
from hyroads.controller.push_agents import AgentPusher
from hyroads.controller.push_gate import Orders, Views, gate
from hyroads.controller.switches import SwitchSession, Wanted


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

    def push(self, plan: Plan) -> None:
        """Tell everybody what may be told now."""
        # Agents first: rates react to a cut link before the switches' single paths do.
        orders = gate(plan, self.views())
        if self._agents.push(plan, orders):
            # What is on its way to one may let another go on.
            orders = gate(plan, self.views())
            self._agents.push(plan, orders)
        self._is_overtaken()
        if plan is not self._live.in_force:
            orders = gate(self._live.in_force, self.views())
        self._push_switches(orders)

    def views(self) -> Views:
        """What is known of all that are connected; nothing while nothing is planned."""
        if self._live.plan is None:
            return Views()
        agents = self._agents.views()
        switches = {
            node: session.view(self._wanted(node, None)) for node, session in self._switches.items() if session.is_read
        }
        return Views(agents, switches)

    def _wanted(self, node: str, only: frozenset[str] | None) -> Wanted:
        """What a switch shall do; ``only`` some flows if given."""
        plan = self._live.in_force
        flows = {
            flow: classified
            for flow, classified in plan.classified.items()
            if plan.flows[flow].ingress == node and (only is None or flow in only)
        }
        intent = self._live.network.intents[node]
        for addition in self.additions:
            intent = addition(node, intent)
        return Wanted(intent, flows)

    def _push_switches(self, orders: Orders) -> None:
        for node in list(self._switches):
            session = self._switches.get(node)
            if session is None or not session.is_read:
                continue
            new = session.want(self._wanted(node, orders.classified.get(node, frozenset())))
            # Rules of a switch take milliseconds where there are many: a slot may pass between two of them. If something
            # else happened meanwhile, the next cycle asks the gate again and goes on from here.
            if new and self._is_overtaken():
                return
