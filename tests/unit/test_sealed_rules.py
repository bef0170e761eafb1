"""What the rules of switches mean whose agents seal links: packets traced through model switches."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from rings import ring
from switch_model import Delivery, Frame, Label, ModelNetwork, Sealed, port_numbers

from hyroads.controller.core.addressing import Addressing, Labels
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.network import Network, Role
from hyroads.controller.core.routes import all_routes, broadcast_tree
from hyroads.controller.model.state import Presence, TopologyContext, initial
from hyroads.controller.ofp.intents import attached_only, default_places, intents_for
from hyroads.controller.ofp.pipeline import Table
from hyroads.controller.ofp.rules import rules_for

BROADCAST = "ff:ff:ff:ff:ff:ff"


def agents_everywhere(**options: int) -> Network:
    """A ring in which each switch has an agent."""
    network = ring(**options)
    nodes = {
        name: replace(node, agent=True) if node.role is Role.SWITCH else node for name, node in network.nodes.items()
    }
    return replace(network, nodes=nodes)


networks = st.builds(
    agents_everywhere,
    seed=st.integers(0, 10**6),
    size=st.integers(3, 6),
    technologies=st.integers(1, 3),
    clients=st.integers(0, 4),
)


class Built:
    """A network with its rules in model switches."""

    def __init__(self, network: Network, *, seals: bool = True) -> None:
        self.network = network
        self.addressing = addressing = Addressing.of(network)
        self.labels = Labels.of(network, addressing)
        places = default_places(addressing)
        routes = all_routes(attached_only(network, addressing, places), (*addressing.dpid, *places))
        self.tree = broadcast_tree(network)
        intents = intents_for(network, addressing, self.labels, routes, self.tree, places=places, seals=seals)
        rules = {
            node: rules_for(intent, port_numbers(network, addressing, node)).rules for node, intent in intents.items()
        }
        homes = {client: (place.node, place.technology) for client, place in places.items()}
        self.model = ModelNetwork(network, addressing, rules, homes, seals=seals)
        self.hosts = [*addressing.dpid, *homes]

    def frame(self, source: str, dst: str) -> Frame:
        return Frame(self.addressing.host_mac[source], dst, 0x1234, payload=f"from {source}")

    def unsealed(self) -> list[Frame]:
        """What the last frame's switches sent to each other without a seal."""
        clients = {self.addressing.host_mac[node] for node in self.model.homes}
        return [f for _, _, f in self.model.sent if f.dst not in clients and not isinstance(f.payload, Sealed)]


@examples(20)
@given(network=networks)
def test_every_host_reaches_every_other_once_behind_seals(network: Network) -> None:
    built = Built(network)
    for source in built.hosts:
        for target in built.hosts:
            if source != target:
                frame = built.frame(source, built.addressing.host_mac[target])
                assert built.model.from_host(source, frame) == [Delivery(target, "host", frame)]
                assert built.unsealed() == []


@examples(20)
@given(network=networks)
def test_a_broadcast_reaches_each_other_host_once_behind_seals(network: Network) -> None:
    built = Built(network)
    for source in built.hosts:
        deliveries = built.model.from_host(source, built.frame(source, BROADCAST))
        assert sorted(d.node for d in deliveries) == sorted(set(built.hosts) - {source})
        assert built.unsealed() == []


def injected(built: Built, rng: random.Random) -> list[Delivery]:
    """What comes of frames behind each label, sent to a switch from a neighbour's address on its medium."""
    addressing, labels = built.addressing, built.labels
    links = [
        link
        for link in built.network.links
        if addressing.has_switch(link.source) and addressing.has_switch(link.target)
    ]
    found = []
    for link in rng.sample(links, min(4, len(links))):
        source, to = ((node, link.technology) for node in (link.source, link.target))
        port = addressing.interface_name[to]
        target = rng.choice(built.hosts)
        inner = Frame("02:66:00:00:00:01", rng.choice([BROADCAST, addressing.host_mac[target]]), 0x1234)
        ends = addressing.interface_mac[source], addressing.interface_mac[to]
        known = [*labels.node.values(), labels.flood, *labels.link.values(), *labels.agent.values()]
        stacks = [(label,) for label in known] + [(first, rng.choice(known)) for first in labels.link.values()]
        for stack in stacks:
            frame = Frame(*ends, 0x8847, tuple(Label(label) for label in stack), inner)
            if stack[-1] in labels.link.values():
                # A path ends at an agent: Open vSwitch would find no label behind this one.
                continue
            found += built.model.run([(link.target, built.model.numbers[link.target][port], frame)])
    return found


@examples(20)
@given(network=networks, seed=st.integers(0, 2**32))
def test_labels_from_a_neighbours_address_reach_no_host(network: Network, seed: int) -> None:
    deliveries = injected(Built(network), random.Random(seed))
    assert {delivery.side for delivery in deliveries} <= {"net"}, "the agent finds no seal"


def test_the_same_labels_reach_hosts_where_links_are_not_sealed() -> None:
    network = agents_everywhere(seed=7, size=5, technologies=2, clients=2)
    assert {delivery.side for delivery in injected(Built(network, seals=False), random.Random(1))} == {"host", "net"}


@pytest.mark.parametrize("seals", [False, True])
def test_only_switches_that_seal_have_rules_for_it(seals: bool) -> None:
    built = Built(agents_everywhere(seed=7, size=4, technologies=2, clients=1), seals=seals)
    for switch in built.model.switches.values():
        assert (Table.LINK in switch.tables) == seals


def test_switch_without_an_agent_is_named_where_links_are_sealed() -> None:
    network = agents_everywhere(seed=7, size=4, technologies=2, clients=1)
    lacking = replace(network, nodes={**network.nodes, "n2": replace(network.nodes["n2"], agent=False)})
    TopologyContext.of(network, seals_links=True)
    TopologyContext.of(lacking)
    with pytest.raises(ConfigError, match=r"nodes\.n2\.agent.*seal_frames: all"):
        TopologyContext.of(lacking, seals_links=True)


@pytest.mark.parametrize("seals", [False, True])
def test_sealed_links_of_a_switch_whose_agent_is_away_are_down(seals: bool) -> None:
    network = agents_everywhere(seed=7, size=4, technologies=2, clients=1)
    context = TopologyContext.of(network, seals_links=seals)
    state = replace(initial(context), agents={"n1": Presence.DOWN})
    for link in network.links:
        is_lost = seals and "n1" in {link.source, link.target} and context.is_between_switches(link)
        assert (state.link_down(context, link) == "agent lost") == is_lost
