"""Flows as far as one region's controller carries them (``core.region_view``). Pure."""

from __future__ import annotations

from collections.abc import Mapping

from hyroads.controller.model.state import DeclaredFlow, State, TopologyContext


class Segments:
    """The segments of all declared flows. Those that did not change are the very objects of before."""

    def __init__(self, context: TopologyContext) -> None:
        self._context = context
        self._segments_of: Mapping[str, DeclaredFlow] = {}
        """Flows as they were declared."""
        self._no_exits: frozenset[str] = frozenset()
        self._known: Mapping[str, DeclaredFlow] = {}

    def of(self, state: State) -> Mapping[str, DeclaredFlow]:
        """By flow; without regions these are the flows themselves."""
        view, mac = self._context.view, self._context.addressing.host_mac
        if view is None:
            return state.flows
        dead = self._dead_exits(state)
        if state.flows is self._segments_of and dead == self._no_exits:
            return self._known
        known, before, same = self._known, self._segments_of, dead == self._no_exits
        moved = set() if same else {flow for flow, declared in state.flows.items() if self._moves(declared, dead)}
        self._known = {
            flow: known[flow]
            if flow in known and before.get(flow) is declared and flow not in moved
            else DeclaredFlow(view.segment(declared.spec, mac, dead), declared.origin)
            for flow, declared in state.flows.items()
        }
        self._segments_of, self._no_exits = state.flows, dead
        return self._known

    def _dead_exits(self, state: State) -> frozenset[str]:
        """Links to other regions by which no flow can leave: they are down, or no agent takes it at their far end."""
        view, context = self._context.view, self._context
        exits = [out for pairs in view.pairs.values() for out, _ in pairs] if view is not None else []
        return frozenset(
            out.id for out in exits if state.link_down(context, out) or state.agent_fault(context, out.target)
        )

    def _moves(self, declared: DeclaredFlow, dead: frozenset[str]) -> bool:
        """Whether a flow leaves by another link than before."""
        view = self._context.view
        return view is not None and view.exit_of(declared.spec, dead) != view.exit_of(declared.spec, self._no_exits)
