"""Which switches need which routes: single paths of those that talk to each other, and no others. Pure.

Somebody (a pair of hosts, a declared flow, a host that moved) *holds* the route from a source's switch to a
destination, a node with a switch or a plain client. The routes of all sources to one destination are a reverse tree
(``core.reverse_trees``): each switch on it has one rule for the destination's label. When the network changes, trees
that the change spares stay; the others are made anew, a few at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from itertools import islice

from hyroads.controller.core.reverse_trees import Changed, NextLinks, ReverseTree
from hyroads.controller.model.state import TopologyContext
from hyroads.controller.ofp.intents import Hop, NodeRoute, SwitchIntent, hop_to

from .live_network import LiveNetwork

COMPARED_AT_ONCE = 400
"""So many trees are compared with what is cheaper in one turn: 10 us each."""

Confirmed = Callable[[str], SwitchIntent | None]
"""What a node's switch has confirmed last; None: nothing."""


class RoutesInUse:
    """Routes that are held, and the hosts that switches send to by name of their destination's label."""

    def __init__(self, context: TopologyContext) -> None:
        self._context = context
        self._holders: dict[str, dict[str, set[Hashable]]] = {}
        self._trees: dict[str, ReverseTree] = {}
        self._stale: dict[str, None] = {}
        self._unjudged: dict[str, list[Changed]] = {}
        """Trees that changes may have spared: what is cheaper elsewhere takes a while to compare with each of them."""
        self._routes: dict[str, dict[str, NodeRoute]] = {}
        self._hosts: dict[str, dict[str, int]] = {}
        self._intents: dict[str, tuple[SwitchIntent, SwitchIntent]] = {}
        self._live: LiveNetwork | None = None
        self._next: NextLinks | None = None
        self.changed_nodes: set[str] = set()
        """Nodes for which :meth:`added_to` may give something else than before; whoever asks it removes them."""
        self.made = 0
        """Trees worked out so far."""

    # -- who needs what

    def hold(self, source: str, destination: str, holder: Hashable) -> None:
        """A route is needed; :meth:`work` makes it."""
        holders = self._holders.setdefault(destination, {})
        if source not in holders:
            self._stale[destination] = None
        holders.setdefault(source, set()).add(holder)

    def release(self, source: str, destination: str, holder: Hashable) -> None:
        """One holder needs it no longer; nothing happens if it did not hold it."""
        holders = self._holders.get(destination, {})
        if holder not in holders.get(source, ()):
            return
        holders[source].discard(holder)
        if not holders[source]:
            del holders[source]
            self._stale[destination] = None
            if not holders:
                del self._holders[destination]

    def send(self, source: str, mac: str, destination: str) -> None:
        """A switch sends a host's frames behind the label of a destination, as long as it has a route there."""
        if self._hosts.setdefault(source, {}).get(mac) != self._context.labels.node[destination]:
            self._hosts[source][mac] = self._context.labels.node[destination]
            self._changed(source)

    def stop(self, source: str, mac: str) -> None:
        """A switch does not know the host any more."""
        if self._hosts.get(source, {}).pop(mac, None) is not None:
            self._changed(source)

    # -- routes

    def on(self, live: LiveNetwork) -> None:
        """The network is this one from now on."""
        if live is self._live:
            return
        moved = self._live is None or self._live.places != live.places
        self._live = live
        if self._next is None:
            return
        before, self._next = self._next, NextLinks(live.single, self._next)
        changed = Changed.between(before, self._next)
        for destination, tree in list(self._trees.items()):
            at_home = moved and self._context.addressing.is_plain_client(destination)
            if at_home or changed.all or not changed.links.isdisjoint(tree.links):
                self._stale[destination] = None
            elif changed.gains or destination in self._unjudged:
                self._unjudged.setdefault(destination, []).append(changed)
            else:
                self._judge(destination, tree, [changed])

    def _judge(self, destination: str, tree: ReverseTree, changes: list[Changed]) -> None:
        """Keep a tree that all changes spare."""
        spared: ReverseTree | None = tree
        for changed in changes:
            spared = changed.spared(spared) if spared is not None else None
        if spared is None:
            self._stale[destination] = None
        else:
            self._trees[destination] = spared

    def _judge_some(self) -> None:
        """Look at as many trees as takes a few milliseconds."""
        compared = 0
        while self._unjudged and compared < COMPARED_AT_ONCE:
            destination, changes = next(iter(self._unjudged.items()))
            del self._unjudged[destination]
            tree = self._trees.get(destination)
            if tree is not None and destination not in self._stale:
                compared += sum(1 + len(changed.gains) for changed in changes)
                self._judge(destination, tree, changes)

    def work(self, most: int) -> bool:
        """Make up to ``most`` trees that are missing or outdated; whether some are left."""
        self._judge_some()
        if not self._stale or self._live is None:
            return bool(self._unjudged)
        if self._next is None:
            self._next = NextLinks(self._live.single)
        some = list(islice(self._stale, most))
        for destination in some:
            del self._stale[destination]
            # A new tree is of the newest network.
            self._unjudged.pop(destination, None)
        wanted = {destination: holders for destination in some if (holders := self._holders.get(destination))}
        trees = self._next.trees(wanted)
        self.made += len(trees)
        for destination in some:
            self._put(destination, trees.get(destination))
        return bool(self._stale or self._unjudged)

    def _put(self, destination: str, tree: ReverseTree | None) -> None:
        before = self._trees.pop(destination, None)
        if tree is not None:
            self._trees[destination] = tree
        routes = {} if tree is None else self._routes_of(tree)
        for node in {*(before.next_links if before else ()), *routes}:
            mine = self._routes.setdefault(node, {})
            if mine.get(destination) == routes.get(node):
                continue
            self._changed(node)
            if node in routes:
                mine[destination] = routes[node]
            else:
                del mine[destination]

    def _routes_of(self, tree: ReverseTree) -> dict[str, NodeRoute]:
        target, label = tree.target, self._context.labels.node[tree.target]
        home = self._home(target)
        found = {}
        for node, ways in tree.next_links.items():
            default = ways.get(None)
            if default is None or node == home:
                continue
            names = self._context.addressing.interface_name
            by_port = {names[node, k]: self._hop(link) for k, link in ways.items() if k is not None and link != default}
            found[node] = NodeRoute(target, label, self._hop(default), by_port)
        return found

    def _home(self, destination: str) -> str:
        """The node whose switch delivers to a destination."""
        place = self._live.places.get(destination) if self._live is not None else None
        return place.node if place is not None else destination

    def _hop(self, link: int) -> Hop:
        used = self._context.network.links[link]
        return hop_to(self._context.addressing, used.source, used.target, used.technology)

    # -- what switches shall do, and have confirmed

    def added_to(self, node: str, intent: SwitchIntent) -> SwitchIntent:
        """The intent of a switch with its routes; the same object as long as nothing of it changes."""
        known = self._intents.get(node)
        if known is not None and known[0] is intent:
            return known[1]
        routes = sorted(self._routes.get(node, {}).values(), key=lambda route: route.label)
        hosts = dict(sorted(self._hosts.get(node, {}).items()))
        added = replace(intent, routes=tuple(routes), remote_hosts=hosts) if routes or hosts else intent
        self._intents[node] = (intent, added)
        return added

    def _changed(self, node: str) -> None:
        self._intents.pop(node, None)
        self.changed_nodes.add(node)

    def is_in_force(self, source: str, destination: str, confirmed: Confirmed) -> bool:
        """Whether all switches from a source to a destination have confirmed the route; if there is none it is not."""
        tree = self._trees.get(destination)
        if destination in self._stale or destination in self._unjudged or tree is None:
            return False
        waiting, seen = [source], set()
        home = self._home(destination)
        while waiting:
            node = waiting.pop()
            if node in seen or node == home:
                continue
            seen.add(node)
            route, intent = self._routes.get(node, {}).get(destination), confirmed(node)
            if route is None or intent is None or route not in intent.routes:
                return False
            links = self._context.network.links
            waiting += {links[link].target for link in tree.next_links[node].values()}
        return True

    def has_route(self, source: str, destination: str) -> bool:
        """Whether a destination can be reached from a source, as far as its tree was made."""
        return source == self._home(destination) or destination in self._routes.get(source, {})

    @property
    def count(self) -> int:
        """Destinations that are held."""
        return len(self._holders)

    def sources(self, destination: str) -> Mapping[str, set[Hashable]]:
        """Sources that hold routes to a destination, with their holders."""
        return self._holders.get(destination, {})
