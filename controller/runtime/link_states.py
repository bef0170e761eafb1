"""Which links are up, as REST shows it. Each change of that is an event (docs/reference/rest.md, section 6)."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from itertools import compress, count
from operator import ne
from typing import Any

from hyroads.controller.core.network import Link
from hyroads.controller.model.events import link_changed
from hyroads.controller.model.state import State, TopologyContext


class LinkStates:
    """Knows of each link why it is down, and publishes ``link.up`` and ``link.down`` when that changes.

    ``switches`` and ``agents`` contain the nodes whose switch and agent are connected. The event loop calls
    :meth:`look_at` after it changes one of them, and :meth:`follow` after it changes the state. Only links that the
    change concerns are looked at.
    """

    def __init__(
        self,
        context: TopologyContext,
        state: State,
        switches: Container[str],
        agents: Container[str],
        publish: Callable[[str, Mapping[str, Any]], object],
    ) -> None:
        self._context, self._state, self._publish = context, state, publish
        self._switches, self._agents = switches, agents
        self._down: dict[str, str] = {}
        self._shown: Mapping[str, str] | None = None
        for link in context.network.links:
            fault = self._fault(link)
            if fault is not None:
                self._down[link.id] = fault

    @property
    def down(self) -> Mapping[str, str]:
        """By link id: why it is not known to carry anything now. The same object until a link changes."""
        if self._shown is None:
            self._shown = dict(self._down)
        return self._shown

    def follow(self, state: State) -> None:
        """Another state counts from now on."""
        before, self._state = self._state, state
        self._look(sorted(_concerned(before, state, self._context)))

    def look_at(self, node: str) -> None:
        """The switch or the agent of a node has connected, or its connection has ended."""
        self._look(self._context.links_at.get(node, ()))

    def _look(self, links: Iterable[str]) -> None:
        network = self._context.network
        for name in links:
            fault = self._fault(network.links[network.link_index[name]])
            if fault == self._down.get(name):
                continue
            self._shown = None
            if fault is None:
                del self._down[name]
            else:
                self._down[name] = fault
            self._publish(*link_changed(name, fault))

    def _fault(self, link: Link) -> str | None:
        """Why a link is down; None if it is up: a switch and an agent that belong at its ends must be connected. Plans
        count on switches that are away for a while (``State.link_fault``).
        """
        state = self._state
        fault = state.link_fault(self._context, link)
        if fault is not None:
            return fault
        for node in (link.source, link.target):
            if node in state.switches and node not in self._switches:
                return f"the switch of {node} is not connected"
            if node in state.agents and node not in self._agents:
                return f"the agent at {node} is not connected"
        return None


def _concerned(before: State, after: State, context: TopologyContext) -> set[str]:
    """Ids of links of which two states may say something else."""
    links = set((before.silent ^ after.silent) | (before.held ^ after.held))
    presences = (before.switches, after.switches), (before.ports, after.ports), (before.agents, after.agents)
    for was, now in presences if context.seals_links else presences[:2]:
        if was is not now:
            nodes = [node for node in {**was, **now} if was.get(node) != now.get(node)]
            links.update(link for node in nodes for link in context.links_at.get(node, ()))
    if before.capacity_mbps is not after.capacity_mbps:
        # Where nothing is measured, the network file counts. Only whether a capacity is known matters here.
        declared = (True,) * len(context.network.links)
        had, has = (map(bool, state.capacity_mbps or declared) for state in (before, after))
        links.update(context.network.links[at].id for at in compress(count(), map(ne, had, has)))
    return links
