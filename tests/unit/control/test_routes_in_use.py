"""Rules on demand on random networks, traced through model switches: frames arrive exactly once before, while and after
a pair of hosts is in use, and switches have no more rules than they need.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from rings import ring
from switch_model import Delivery, Frame, ModelNetwork, port_numbers

from hyroads.controller.control.live_network import Cache, LiveNetwork
from hyroads.controller.control.routes_in_use import RoutesInUse
from hyroads.controller.core.network import Network, Place
from hyroads.controller.core.reverse_trees import Changed, NextLinks
from hyroads.controller.core.routes import broadcast_tree
from hyroads.controller.core.topologies import campus
from hyroads.controller.model.state import State, TopologyContext, client_placed, initial
from hyroads.controller.ofp import match as act
from hyroads.controller.ofp.intents import SwitchIntent
from hyroads.controller.ofp.rules import rules_for

networks = st.builds(
    ring,
    seed=st.integers(0, 10**6),
    size=st.integers(3, 8),
    technologies=st.integers(1, 3),
    clients=st.integers(0, 3),
)
few = examples(25)


class Stage:
    """A network with rules on demand in model switches; what switches shall do is in force when it is wanted."""

    def __init__(self, network: Network) -> None:
        self.context = TopologyContext.of(network, all_routes_nodes=0)
        self.cache = Cache(self.context)
        self.routes = RoutesInUse(self.context)
        self.state: State = initial(self.context)
        self.now(self.state)

    def now(self, state: State) -> None:
        """The state of links and clients."""
        self.state = state
        self.live: LiveNetwork = self.cache.live(state)
        self.routes.on(self.live)
        while self.routes.work(3):
            pass

    def kill(self, *links: str) -> None:
        """Links fall silent; those of before are heard again."""
        self.now(replace(self.state, silent=frozenset(links), version=self.state.version + 1))

    @property
    def intents(self) -> dict[str, SwitchIntent]:
        return {node: self.routes.added_to(node, intent) for node, intent in self.live.intents.items()}

    def home(self, host: str) -> str:
        place = self.live.places.get(host)
        return place.node if place else host

    def use(self, source: str, target: str) -> bool:
        """Hosts at a node talk to a host elsewhere; whether there is a route."""
        node, mac = self.home(source), self.context.addressing.host_mac[target]
        if self.home(target) == node:
            return True
        self.routes.hold(node, target, mac)
        while self.routes.work(3):
            pass
        ready = self.routes.is_in_force(node, target, self.intents.get)
        if ready:
            self.routes.send(node, mac, target)
        return ready

    def forget(self, source: str, target: str) -> None:
        node, mac = self.home(source), self.context.addressing.host_mac[target]
        self.routes.stop(node, mac)
        self.routes.release(node, target, mac)
        while self.routes.work(3):
            pass

    def model(self) -> Model:
        return Model(self)


class Model(ModelNetwork):
    """What is sent to the controller is counted, and no delivery."""

    def __init__(self, stage: Stage) -> None:
        addressing = stage.context.addressing
        rules = {
            node: rules_for(intent, port_numbers(stage.context.network, addressing, node)).rules
            for node, intent in stage.intents.items()
        }
        homes = {client: (place.node, place.technology) for client, place in stage.live.places.items()}
        super().__init__(stage.context.network, addressing, rules, homes)
        self.stage = stage
        self.copies: list[str] = []
        for node, switch in self.switches.items():
            inner = switch.receive

            def receive(frame, in_port, inner=inner, node=node):
                out = inner(frame, in_port)
                self.copies += [node for port, _ in out if port == act.CONTROLLER]
                return [(port, copy) for port, copy in out if port != act.CONTROLLER]

            switch.receive = receive

    def send(self, source: str, target: str) -> list[Delivery]:
        """Deliveries to the target; nobody else gets it but access ports that it is flooded to."""
        addressing = self.stage.context.addressing
        frame = Frame(addressing.host_mac[source], addressing.host_mac[target], 0x1234, payload="data")
        self.copies = []
        heard = self.from_host(source, frame)
        assert len({(one.node, one.side) for one in heard}) == len(heard), "somebody got it twice"
        assert all(one.frame == frame for one in heard)
        return [one for one in heard if one.node == target]


def reachable(stage: Stage) -> dict[str, set[str]]:
    """Hosts by component of the broadcast tree."""
    tree = broadcast_tree(stage.live.network)
    group = {node: {node} for node in stage.context.addressing.dpid}
    for edge in tree:
        merged = group[edge.first] | group[edge.second]
        for node in merged:
            group[node] = merged
    for client, place in stage.live.places.items():
        group[place.node].add(client)
        group[client] = group[place.node]
    return group


def pairs(stage: Stage) -> list[tuple[str, str]]:
    return [(source, target) for source, group in reachable(stage).items() for target in group - {source}]


@few
@given(network=networks, seed=st.integers(0, 1000))
def test_frames_arrive_once_whether_or_not_their_pair_is_in_use(network: Network, seed: int) -> None:
    rng, stage = random.Random(seed), Stage(network)
    model = stage.model()
    for source, target in pairs(stage):
        assert len(model.send(source, target)) == 1
        away = stage.home(source) != stage.home(target)
        assert model.copies == ([stage.home(source)] if away else []), "the first switch alone asks"
    used = [pair for pair in pairs(stage) if rng.random() < 0.5]
    for source, target in used:
        assert stage.use(source, target)
    model = stage.model()
    for source, target in pairs(stage):
        assert len(model.send(source, target)) == 1
        if (source, target) in used:
            assert not model.copies
            assert model.steps <= len(network.nodes), "neither flooded nor astray"
    for source, target in used:
        stage.forget(source, target)
    assert stage.intents == stage.live.intents, "nothing is left of pairs that are over"


@few
@given(network=networks, seed=st.integers(0, 1000))
def test_cuts_and_moves_leave_pairs_in_use_and_nothing_goes_round(network: Network, seed: int) -> None:
    rng, stage = random.Random(seed), Stage(network)
    for source, target in pairs(stage):
        if rng.random() < 0.6:
            stage.use(source, target)
    for _ in range(6):
        if stage.context.addressing.attachments and rng.random() < 0.4:
            client = rng.choice(sorted(stage.context.addressing.attachments))
            place = rng.choice(stage.context.addressing.attachments[client])
            stage.now(client_placed(stage.state, stage.context, client, Place(place.node, place.technology)))
        else:
            stage.kill(*rng.sample([link.id for link in network.links], rng.randrange(1, 4)))
        model = stage.model()
        for source, target in pairs(stage):
            assert len(model.send(source, target)) == 1


@few
@given(network=networks, seed=st.integers(0, 1000))
def test_trees_that_a_change_spares_are_still_shortest(network: Network, seed: int) -> None:
    """Paths of trees that were kept cost what those made from nothing cost; and rules follow these alone."""
    rng, stage = random.Random(seed), Stage(network)
    for source, target in pairs(stage):
        if rng.random() < 0.4:
            stage.use(source, target)
    for _ in range(5):
        stage.kill(*rng.sample([link.id for link in network.links], rng.randrange(3)))
        fresh = NextLinks(stage.live.network)
        for tree in list(stage.routes._trees.values()):
            again = fresh.trees({tree.target: tree.sources})[tree.target]
            for source in tree.sources:
                assert _cost(fresh, tree, source) == _cost(fresh, again, source)


def _cost(links: NextLinks, tree, source: str) -> int | None:
    """What the path of a tree costs from a source; None if there is none."""
    path, node, came_in = [], source, None
    while node != tree.target:
        ways = tree.next_links.get(node)
        if not ways:
            return None
        path.append(ways.get(came_in, ways[None]))
        link = links.network.links[path[-1]]
        assert link.capacity_mbps > 0
        node, came_in = link.target, link.technology
        assert len(path) < 50
    return links.metric.cost(path)


@few
@given(network=networks, compiled=st.booleans())
def test_trees_are_the_same_with_and_without_the_compiled_kernel(network: Network, compiled: bool) -> None:
    wanted = {target: list(network.nodes)[:3] for target in network.nodes}
    wanted = {t: [s for s in sources if not network.nodes[s].is_plain_client] for t, sources in wanted.items()}
    assert NextLinks(network, compiled=compiled).trees(wanted) == NextLinks(network).trees(wanted)


def test_trees_of_a_campus_are_the_same_with_and_without_the_compiled_kernel() -> None:
    """With wires (unshared), and nodes that do not have all technologies."""
    network = campus(random.Random(1), 24)
    wanted = {"b3-4": ["b1-1", "b1-2"], "b1-1": ["b3-8"]}
    compiled, plain = (NextLinks(network, compiled=each).trees(wanted) for each in (True, False))
    assert compiled == plain
    for target, tree in compiled.items():
        assert np.array_equal(tree.costs, plain[target].costs)


def test_an_unchanged_switch_keeps_its_very_intent() -> None:
    stage = Stage(campus(random.Random(1), 40))
    nodes = list(stage.context.addressing.dpid)
    for source, target in zip(nodes, nodes[5:], strict=False):
        stage.use(source, target)
    before = stage.intents
    used = {link for tree in stage.routes._trees.values() for link in tree.links}
    spare = next(link for i, link in enumerate(stage.context.network.links) if i not in used and "wifi" in link.id)
    stage.kill(spare.id)
    after = stage.intents
    assert all(after[node] is intent for node, intent in before.items())
    cut = stage.context.network.links[min(used)]
    stage.kill(cut.id)
    touched = [node for node, intent in stage.intents.items() if intent is not before[node]]
    assert cut.source in touched
    assert len(touched) < len(nodes) / 2


def _talk(stage: Stage, rng: random.Random, each: int) -> None:
    """Each node talks to the switch room of its building, and ``each`` hosts in all to another building."""
    nodes = list(stage.context.addressing.dpid)
    for node in nodes:
        stage.use(node, f"{node.split('-')[0]}-1")
    for _ in range(each):
        stage.use(rng.choice(nodes), rng.choice(nodes))


@pytest.mark.parametrize("small, large", [(50, 200)])
def test_rules_per_switch_and_cost_of_a_cut_do_not_grow_with_the_square(small: int, large: int) -> None:
    """Four times the nodes: about as many rules per switch, about as many trees made anew per cut, and CPU of a cut
    that is linear at most (16 times were a square).
    """
    rules, trees, cpu_s = {}, {}, {}
    for count in (small, large):
        stage, rng = Stage(campus(random.Random(1), count)), random.Random(2)
        _talk(stage, rng, 20)
        numbers = {node: port_numbers(stage.context.network, stage.context.addressing, node) for node in stage.intents}
        sizes = [len(rules_for(intent, numbers[node]).rules) for node, intent in stage.intents.items()]
        rules[count] = sum(sizes) / len(sizes)
        links = [link.id for link in stage.context.network.links if "wifi" in link.id]
        made, began_s = stage.routes.made, time.process_time()
        for link in rng.sample(links, 5):
            stage.kill(link)
            stage.intents  # noqa: B018
        cpu_s[count] = time.process_time() - began_s
        trees[count] = stage.routes.made - made
    assert rules[large] <= 1.5 * rules[small]
    assert trees[large] <= 3 * max(trees[small], 10)
    assert cpu_s[large] <= 10 * cpu_s[small]


def test_a_link_that_gets_faster_is_news_only_for_those_to_whom_it_is_of_use() -> None:
    network = campus(random.Random(1), 48)
    best = max((link for link in network.links if link.technology == "wifi"), key=lambda link: link.capacity_mbps)
    before = NextLinks(network.with_capacities({best.id: 0.1}))
    change = Changed.between(before, NextLinks(network))
    assert not change.all
    building = best.source.split("-")[0]
    near = {node: [best.source] for node in network.nodes if node.startswith(f"{building}-")}
    far = {node: ["b2-3", "b3-1"] for node in network.nodes if node not in near}
    trees = before.trees({**near, **far})
    renewed = [target for target, tree in trees.items() if change.spared(tree) is None]
    assert best.target in renewed
    assert len(renewed) < len(trees) / 3
