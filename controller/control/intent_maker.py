"""The intents of all switches, from one live network to the next: what a change does not touch stays the very object it
was, so that nobody compiles or compares it again. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import compress
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.core.frame_sizes import LINK_MTU, NEEDED_MTU, single_frame
from hyroads.controller.core.interface_graph import FloatArray
from hyroads.controller.core.network import Network, Place
from hyroads.controller.core.routes import TreeEdge, all_routes, broadcast_tree
from hyroads.controller.model.state import TopologyContext
from hyroads.controller.ofp.intents import BareIntents, SwitchIntent, intents_for

TREES = 3
"""So many broadcast trees are remembered."""


@dataclass(frozen=True, eq=False)
class _Spanned:
    """The broadcast tree of a network with these capacities, and its links, int[edges, 2]: there and back."""

    capacities: FloatArray
    tree: tuple[TreeEdge, ...]
    links: NDArray[np.intp]


@dataclass
class IntentMaker:
    """One for all live networks of a context."""

    context: TopologyContext
    _last: dict[str, SwitchIntent] = field(default_factory=dict)
    _bare: BareIntents | None = None
    _spanned: tuple[_Spanned, ...] = ()
    """The last networks' broadcast trees."""

    def intents(
        self, network: Network, places: Mapping[str, Place], link_mtu: int = LINK_MTU
    ) -> dict[str, SwitchIntent]:
        """Node -> intent on a network without what is down, with plain clients at ``places``, whose links carry
        ``link_mtu`` bytes of payload.
        """
        tree = self._tree(network)
        made = self._on_demand(places, tree) if self.context.on_demand else self._whole(network, places, tree)
        if link_mtu < NEEDED_MTU:
            most = single_frame(link_mtu, is_sealed=self.context.seals_links)
            made = {node: replace(intent, most_frame_bytes=most) for node, intent in made.items()}
        last, self._last = self._last, made
        if self.context.view is not None:
            made = {node: made[node] for node in self.context.own_switches}
        for node, intent in made.items():
            if (known := last.get(node)) is not None and known is not intent and known == intent:
                made[node] = known
        return made

    def _tree(self, network: Network) -> tuple[TreeEdge, ...]:
        """The broadcast tree. Where links have only gone, what is left of one from before is in it, and all of one of
        which no link has gone.
        """
        capacities = network.capacities
        for spanned in self._spanned:
            gone = np.flatnonzero(spanned.capacities != capacities)
            # Weights are in units of the greatest capacity.
            if capacities[gone].any() or spanned.capacities.max(initial=0.0) != capacities.max(initial=0.0):
                continue
            is_left: list[bool] = np.all(capacities[spanned.links] > 0, axis=1).tolist()
            if all(is_left):
                return spanned.tree
            return self._span(network, compress(spanned.tree, is_left))
        return self._span(network)

    def _span(self, network: Network, known: Iterable[TreeEdge] = ()) -> tuple[TreeEdge, ...]:
        tree = tuple(sorted(broadcast_tree(network, known), key=attrgetter("first", "second", "forward", "backward")))
        links = np.array([(edge.forward, edge.backward) for edge in tree], dtype=np.intp).reshape(-1, 2)
        self._spanned = (_Spanned(network.capacities, tree, links), *self._spanned[: TREES - 1])
        return tree

    @property
    def _relays(self) -> frozenset[str]:
        return frozenset() if self.context.view is None else self.context.view.borders

    def _whole(
        self, network: Network, places: Mapping[str, Place], tree: tuple[TreeEdge, ...]
    ) -> dict[str, SwitchIntent]:
        """With routes to all nodes, and all hosts."""
        context, addressing = self.context, self.context.addressing
        return intents_for(
            context.network,
            addressing,
            context.labels,
            all_routes(network, (*addressing.dpid, *addressing.attachments)),
            tree,
            places=places,
            guarded=context.guarded,
            dhcp=context.dhcp,
            routers=context.routers,
            closed=context.closed_ports,
            relays=self._relays,
            seals=context.seals_links,
        )

    def _on_demand(self, places: Mapping[str, Place], tree: tuple[TreeEdge, ...]) -> dict[str, SwitchIntent]:
        """Without routes and hosts: those in use are added on the way to the switches."""
        context = self.context
        if self._bare is None:
            self._bare = BareIntents(
                context.network,
                context.addressing,
                context.labels,
                guarded=context.guarded,
                dhcp=context.dhcp,
                routers=context.routers,
                closed=context.closed_ports,
                relays=self._relays,
                seals=context.seals_links,
            )
        return self._bare.of(places, tree)
