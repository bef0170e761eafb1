"""What the rules of whole networks mean: packets traced through model switches."""

from __future__ import annotations

import random

import pytest
from examples import examples, seeds
from hypothesis import given
from hypothesis import strategies as st
from rings import ring
from switch_model import Delivery, Frame, Label, ModelNetwork, port_numbers

from hyroads.controller.core.addressing import Addressing, Labels
from hyroads.controller.core.netfile import parse
from hyroads.controller.core.network import Network
from hyroads.controller.core.routes import all_routes, broadcast_tree
from hyroads.controller.ofp.intents import ClassifiedFlow, Place, attached_only, default_places, intents_for
from hyroads.controller.ofp.match import Match
from hyroads.controller.ofp.pipeline import TREE_ADDRESS, Table
from hyroads.controller.ofp.rules import rules_for

BROADCAST = "ff:ff:ff:ff:ff:ff"
MULTICAST = "33:33:00:00:00:01"
UNKNOWN = "02:77:00:00:00:01"


class Built:
    """A network with its rules in model switches."""

    def __init__(self, network: Network, flows=None, places=None) -> None:
        self.network = network
        self.addressing = Addressing.of(network)
        self.labels = Labels.of(network, self.addressing)
        self.places = default_places(self.addressing) if places is None else places
        targets = (*self.addressing.dpid, *self.places)
        routes = all_routes(attached_only(network, self.addressing, self.places), targets)
        self.routes = routes
        self.tree = broadcast_tree(network)
        self.intents = intents_for(
            network, self.addressing, self.labels, routes, self.tree, flows=flows, places=self.places
        )
        self.rules = {}
        for node, intent in self.intents.items():
            result = rules_for(intent, port_numbers(network, self.addressing, node))
            assert result.missing_ports == ()
            self.rules[node] = result.rules
        homes = {client: (place.node, place.technology) for client, place in self.places.items()}
        self.model = ModelNetwork(network, self.addressing, self.rules, homes)

    def user_frame(self, source: str, dst: str, eth_type: int = 0x0800, **upper: object) -> Frame:
        return Frame(self.addressing.host_mac[source], dst, eth_type, payload=f"from {source}", upper=upper)

    def reachable(self) -> dict[str, set[str]]:
        """Hosts by component of the broadcast tree, for what the rules should connect."""
        group = {node: {node} for node in self.addressing.dpid}
        for edge in self.tree:
            merged = group[edge.first] | group[edge.second]
            for node in merged:
                group[node] = merged
        for client, place in self.places.items():
            group[place.node].add(client)
            group[client] = group[place.node]
        return group


networks = st.builds(
    ring,
    seed=st.integers(0, 10**6),
    size=st.integers(3, 8),
    technologies=st.integers(1, 3),
    clients=st.integers(0, 4),
)
few = examples(40)


@few
@given(network=networks)
def test_every_host_reaches_every_other_once_and_unchanged(network: Network) -> None:
    built = Built(network)
    groups = built.reachable()
    for source, group in groups.items():
        for target in group - {source}:
            frame = built.user_frame(source, built.addressing.host_mac[target], 0x1234)
            assert built.model.from_host(source, frame) == [Delivery(target, "host", frame)]
            # As many switches as the single path has nodes: nothing is sent twice or astray.
            assert built.model.steps <= len(network.nodes)


@few
@given(network=networks)
def test_the_single_path_is_the_cores_hop_by_hop(network: Network) -> None:
    """With the technology a frame came in on: the next hop may depend on it."""
    built = Built(network)
    ports = built.addressing.interface_name
    for source, group in built.reachable().items():
        for target in group - {source}:
            if built.addressing.is_plain_client(target):
                continue
            home = built.places.get(source)
            node, technology = (home.node, home.technology) if home else (source, None)
            first = ports[node, technology] if technology else built.addressing.access_port[node]
            expected = [(node, first)]
            while node != target:
                link = network.links[built.routes[target][node, technology]]
                node, technology = link.target, link.technology
                expected.append((node, ports[node, technology]))
            built.model.from_host(source, built.user_frame(source, built.addressing.host_mac[target]))
            assert built.model.visited == expected


@few
@given(network=networks, dst=st.sampled_from([BROADCAST, MULTICAST]))
def test_group_frames_reach_each_other_host_exactly_once(network: Network, dst: str) -> None:
    built = Built(network)
    for source, group in built.reachable().items():
        frame = built.user_frame(source, dst, 0x0806)
        heard = built.model.from_host(source, frame)
        assert sorted(delivery.node for delivery in heard) == sorted(group - {source})
        for delivery in heard:
            client = built.addressing.is_plain_client(delivery.node)
            expected = built.addressing.host_mac[delivery.node] if client else dst
            assert delivery.frame == Frame(frame.src, expected, 0x0806, payload=frame.payload)


@few
@given(network=networks)
def test_unknown_unicast_reaches_access_ports_once_and_never_a_medium_raw(network: Network) -> None:
    built = Built(network)
    for source, group in built.reachable().items():
        frame = built.user_frame(source, UNKNOWN)
        heard = built.model.from_host(source, frame)
        assert sorted(d.node for d in heard) == sorted(n for n in group - {source} if built.addressing.has_switch(n))
        assert all(delivery.frame == frame for delivery in heard)


@few
@given(network=networks, seed=st.integers(0, 1000))
def test_label_stacks_follow_any_walk_and_end_at_the_agent(network: Network, seed: int) -> None:
    built = Built(network)
    rng = random.Random(seed)
    agents = sorted(built.addressing.agents)
    for start in agents:
        node, stack = start, []
        for _ in range(rng.randrange(1, 7)):
            ways = [one for one in network.links if one.source == node and built.addressing.has_switch(one.target)]
            link = rng.choice(ways)
            stack.append(Label(built.labels.link[link.id]))
            node = link.target
        if node not in built.addressing.agents:
            continue
        frame = Frame(
            "00:00:00:00:00:01", "00:00:00:00:00:02", 0x8847, (*stack, Label(built.labels.agent[node])), "shim"
        )
        (delivery,) = built.model.from_agent(start, "net", frame)
        assert (delivery.node, delivery.side) == (node, "net")
        assert delivery.frame.eth_type == 0x88B5
        assert delivery.frame.labels == ()
        assert delivery.frame.payload == "shim"
        assert built.model.steps == len(stack) + 1


def triangle(**changes: object) -> Network:
    """The three-node example with an access point and two plain clients in place of the laptop."""
    both = {"both": True}
    document = {
        "nodes": {"a": {"role": "gateway"}, "b": {"role": "ap"}, "p": {"role": "client"}, "q": {"role": "client"}},
        "links": [
            {"id": "ab-plc", "from": "a", "to": "b", "technology": "plc", "capacity_mbps": 10, **both},
            {"id": "ab-wifi", "from": "a", "to": "b", "technology": "wifi", "capacity_mbps": 15, **both},
            {"id": "bp", "from": "b", "to": "p", "technology": "wifi", "capacity_mbps": 30, **both},
            {"id": "bq", "from": "b", "to": "q", "technology": "wifi", "capacity_mbps": 30, **both},
            {"id": "ap", "from": "a", "to": "p", "technology": "wifi", "capacity_mbps": 3, **both},
        ],
        "interference": {"rule": "technology"},
    }
    document.update(changes)
    return parse(document, "triangle")


def test_the_last_hop_to_a_client_counts() -> None:
    """WiFi is the better way to b itself; on to a client of b's WiFi, power-line is, as it does not contend."""
    built = Built(triangle())
    ways = {route.node: route.hop.port for route in built.intents["a"].routes}
    names = built.addressing.interface_name
    assert ways["b"] == names["a", "wifi"]
    assert ways["q"] == names["a", "plc"]


def test_classified_flow_goes_to_the_agent_and_comes_back_to_the_client() -> None:
    network = triangle()
    addressing = Addressing.of(network)
    match = Match(eth_src=addressing.host_mac["p"], eth_dst=addressing.host_mac["a"])
    tcp = Match(eth_src=match.eth_src, eth_dst=match.eth_dst, eth_type=0x0800, ip_proto=6, ipv4_dst="10.0.0.0/8")
    flows = {"b": (ClassifiedFlow("f1", 16, match), ClassifiedFlow("f2", 17, tcp, precedence=5))}
    built = Built(network, flows=flows)
    frame = built.user_frame("p", addressing.host_mac["a"], 0x86DD)
    (delivery,) = built.model.from_host("p", frame)
    assert (delivery.node, delivery.side, delivery.frame.payload) == ("b", "acc", frame)
    assert [label.value for label in delivery.frame.labels] == [16]
    specific = built.user_frame("p", addressing.host_mac["a"], 0x0800, ip_proto=6, ipv4_dst="10.1.2.3")
    (delivery,) = built.model.from_host("p", specific)
    assert [label.value for label in delivery.frame.labels] == [17]
    back = built.user_frame("a", addressing.host_mac["p"])
    assert built.model.from_agent("b", "acc", back) == [Delivery("p", "host", back)]


def test_a_frame_from_the_agent_is_only_delivered_here() -> None:
    built = Built(triangle())
    away = built.user_frame("p", built.addressing.host_mac["a"])
    heard = built.model.from_agent("b", "acc", away)
    assert {delivery.node for delivery in heard} == {"b"}
    group = built.model.from_agent("b", "acc", built.user_frame("a", BROADCAST))
    assert sorted(delivery.node for delivery in group) == ["b", "p", "q"]


def test_labels_and_hellos_are_not_accepted_from_users() -> None:
    built = Built(triangle())
    own = built.addressing.interface_mac["b", "wifi"]
    for label in (built.labels.agent["b"], built.labels.node["b"], built.labels.hello["b", "plc"]):
        # It is a user's frame: it neither crosses (docs/reference/openflow.md) nor reaches an agent.
        spoofed = Frame(built.addressing.host_mac["p"], own, 0x8847, (Label(label),), "spoofed")
        access = built.model.numbers["b"][built.addressing.access_port["b"]]
        wifi = built.model.numbers["b"][built.addressing.interface_name["b", "wifi"]]
        for port in (access, wifi):
            rule = next(
                rule
                for rule in sorted(built.rules["b"], key=lambda rule: -rule.priority)
                if rule.table == Table.PORT and rule.match.in_port == port and rule.match.eth_src in {None, spoofed.src}
            )
            assert rule.goto == Table.ACCESS
    hello = Frame(built.addressing.host_mac["p"], BROADCAST, 0x88B6, payload="hello")
    assert all(delivery.side == "host" for delivery in built.model.from_host("p", hello))


def test_hello_frames_go_out_on_one_interface_and_reach_the_neighbours_agents() -> None:
    built = Built(triangle())
    frame = Frame("00:00:00:00:00:01", "00:00:00:00:00:02", 0x8847, (Label(built.labels.hello["a", "plc"]),), "hello")
    (delivery,) = built.model.from_agent("a", "net", frame)
    assert (delivery.node, delivery.side) == ("b", "net")
    mac = built.addressing.interface_mac["a", "plc"]
    assert delivery.frame == Frame(mac, BROADCAST, 0x88B6, payload="hello")


class Air:
    """What somebody can send to a switch over a medium: any source address, behind any labels."""

    def __init__(self, built: Built, node: str, technology: str) -> None:
        self.built, self.node = built, node
        self.own = built.addressing.interface_mac[node, technology]
        self.number = built.model.numbers[node][built.addressing.interface_name[node, technology]]
        near = [link for link in built.network.links if (link.target, link.technology) == (node, technology)]
        macs = built.addressing.interface_mac
        self.known = {macs[link.source, technology] for link in near if built.addressing.has_switch(link.source)}
        # A frame of a client that is attached here is a user's frame, whatever it looks like.
        here = Place(node, technology)
        users = {built.addressing.host_mac[client] for client, place in built.places.items() if place == here}
        addresses = {*macs.values(), *built.addressing.host_mac.values(), UNKNOWN, BROADCAST, TREE_ADDRESS}
        self.strangers = sorted(addresses - self.known - users)

    def hears(self, src: str, *labels: int, dst: str | None = None, payload: object = None) -> list[Delivery]:
        user = Frame(UNKNOWN, self.built.addressing.host_mac[self.node], 0x0800, payload="from the air")
        stack = tuple(map(Label, labels))
        frame = Frame(src, dst or self.own, 0x8847, stack, user if payload is None else payload)
        return self.built.model.run([(self.node, self.number, frame)])


@examples(15)
@given(network=networks, seed=st.integers(0, 1000))
def test_labels_of_strangers_are_dropped_whatever_they_name(network: Network, seed: int) -> None:
    """A stranger: no switch at all, one without a link to here, or a neighbour's interface on another technology."""
    built, rng = Built(network), random.Random(seed)
    labels = sorted(built.labels.all)
    for node in built.addressing.dpid:
        for technology in built.addressing.technologies(node):
            air = Air(built, node, technology)
            tries = [(rng.choice(air.strangers), label) for label in labels]
            tries += [(stranger, rng.choice(labels)) for stranger in air.strangers]
            tries += [(stranger, built.labels.node[node]) for stranger in air.strangers]
            for stranger, label in tries:
                for dst in (air.own, TREE_ADDRESS, BROADCAST):
                    assert air.hears(stranger, label, dst=dst) == [], (stranger, label, dst)


@examples(15)
@given(network=networks)
def test_shims_of_strangers_reach_no_agent_and_those_of_neighbours_do(network: Network) -> None:
    built = Built(network)
    for link in network.links:
        if link.target not in built.addressing.agents:
            continue
        air, agent = Air(built, link.target, link.technology), built.labels.agent[link.target]
        for stranger in air.strangers:
            assert air.hears(stranger, agent, payload="shim") == []
        for neighbour in air.known:
            (delivery,) = air.hears(neighbour, agent, payload="shim")
            assert (delivery.node, delivery.side, delivery.frame.eth_type) == (link.target, "net", 0x88B5)


@few
@given(network=networks)
def test_labels_of_the_near_end_of_every_link_are_taken(network: Network) -> None:
    """Also before anybody knows what the link can carry, and where no route uses it."""
    built = Built(network.with_capacities({link.id: 0.0 for link in network.links[::2]}))
    for link in network.links:
        if not (built.addressing.has_switch(link.source) and built.addressing.has_switch(link.target)):
            continue
        air = Air(built, link.target, link.technology)
        near = built.addressing.interface_mac[link.source, link.technology]
        assert [(one.node, one.side) for one in air.hears(near, built.labels.node[link.target])] == [
            (link.target, "host")
        ]
        assert air.hears(near, built.labels.node[link.target], dst=UNKNOWN) == []


def test_a_link_of_one_direction_takes_labels_in_that_direction() -> None:
    links = [
        {"id": "ab", "from": "a", "to": "b", "technology": "plc", "capacity_mbps": 10},
        {"id": "bc", "from": "b", "to": "c", "technology": "plc", "capacity_mbps": 10, "both": True},
        {"id": "ca", "from": "c", "to": "a", "technology": "plc", "capacity_mbps": 10, "both": True},
    ]
    nodes = {"a": {"role": "gateway"}, "b": {"role": "ap"}, "c": {"role": "ap"}}
    built = Built(triangle(nodes=nodes, links=links))
    plc = {node: built.addressing.interface_mac[node, "plc"] for node in nodes}
    assert Air(built, "a", "plc").hears(plc["b"], built.labels.node["a"]) == []
    (delivery,) = Air(built, "b", "plc").hears(plc["a"], built.labels.node["b"])
    assert (delivery.node, delivery.side) == ("b", "host")


def discovered() -> Network:
    """Links are to be found; h is a client with an agent on two technologies."""
    document = {
        "nodes": {
            "a": {"role": "gateway", "technologies": ["plc", "wifi"]},
            "b": {"role": "ap", "technologies": ["plc", "wifi"]},
            "c": {"role": "ap", "technologies": ["wifi"], "agent": False},
            "h": {"role": "client", "technologies": ["plc", "wifi"]},
            "p": {"role": "client", "technologies": ["wifi"]},
        },
        "links": "discover",
        "interference": {"rule": "technology"},
    }
    return parse(document, "discovered", measured=True)


def test_a_client_with_an_agent_may_turn_up_at_any_node_that_could_hear_it() -> None:
    """Before a link to it is found, its candidates have rules: no label is lost while a handover goes on."""
    built = Built(discovered(), places={})
    for node in ("a", "b", "c"):
        air = Air(built, node, "wifi")
        moved = built.addressing.interface_mac["h", "wifi"]
        (delivery,) = air.hears(moved, built.labels.node[node])
        assert (delivery.node, delivery.side) == (node, "host")
        # Its address on power line is not one that a WiFi interface has.
        assert air.hears(built.addressing.interface_mac["h", "plc"], built.labels.node[node]) == []


@pytest.mark.parametrize(
    "network", [discovered(), triangle(), ring(seed=2, size=8, technologies=3)], ids=["found", "triangle", "ring"]
)
def test_who_may_send_labels_costs_a_rule_for_each_neighbour_interface(network: Network) -> None:
    built = Built(network, places={})
    for node, rules in built.rules.items():
        media = {built.model.numbers[node][name] for name in built.intents[node].macs}
        mine = [rule for rule in rules if rule.table == Table.PORT and rule.match.eth_type == 0x8847]
        into = {
            (link.source, link.technology)
            for link in network.links
            if link.target == node and built.addressing.has_switch(link.source)
        }
        assert len([rule for rule in mine if rule.match.in_port in media]) == len(into)


def test_clients_of_one_access_point_talk_through_it() -> None:
    built = Built(triangle())
    frame = built.user_frame("p", built.addressing.host_mac["q"])
    assert built.model.from_host("p", frame) == [Delivery("q", "host", frame)]
    assert built.model.steps == 1


def test_a_client_is_reached_where_it_is_attached() -> None:
    network = triangle()
    for at in ("a", "b"):
        built = Built(network, places={"p": Place(at, "wifi"), "q": Place("b", "wifi")})
        frame = built.user_frame("q", built.addressing.host_mac["p"])
        assert built.model.from_host("q", frame) == [Delivery("p", "host", frame)]
        back = built.user_frame("p", built.addressing.host_mac["q"])
        assert built.model.from_host("p", back) == [Delivery("q", "host", back)]
    nowhere = Built(network, places={"q": Place("b", "wifi")})
    assert nowhere.model.from_host("p", nowhere.user_frame("p", nowhere.addressing.host_mac["q"])) == []


def test_a_stale_tree_ends_by_itself() -> None:
    """Two switches that still flood along different trees make a loop; the TTL ends it."""
    network = ring(seed=3, size=4, technologies=1, clients=0)
    built = Built(network)
    edges = network.links
    cycle = {}
    for i in range(4):
        hops = []
        for link in edges:
            if link.source == f"n{i}" and link.target in {f"n{(i + 1) % 4}", f"n{(i + 3) % 4}"}:
                port = built.addressing.interface_name[link.source, link.technology]
                neighbour = next(n for n in built.intents[f"n{i}"].neighbours if n.node == link.target)
                hops.append((port, neighbour.mac))
        cycle[f"n{i}"] = hops
    from dataclasses import replace

    from hyroads.controller.ofp.intents import Hop

    for node, hops in cycle.items():
        intent = replace(built.intents[node], tree=tuple(Hop(*hop) for hop in dict.fromkeys(hops)))
        built.rules[node] = rules_for(intent, port_numbers(network, built.addressing, node)).rules
    model = ModelNetwork(network, built.addressing, built.rules, {})
    heard = model.from_host("n0", built.user_frame("n0", BROADCAST))
    assert 3 < len(heard) <= 2 * 64 + 1


def test_missing_ports_leave_out_only_what_needs_them() -> None:
    built = Built(triangle())
    numbers = port_numbers(built.network, built.addressing, "b")
    gone = built.addressing.interface_name["b", "plc"]
    partial = rules_for(built.intents["b"], {name: n for name, n in numbers.items() if name != gone})
    assert partial.missing_ports == (gone,)
    full = {rule.key: rule for rule in built.rules["b"]}
    assert all(rule.key in full for rule in partial.rules)
    wifi = numbers[built.addressing.interface_name["b", "wifi"]]
    kept = {rule.key for rule in partial.rules}
    assert all(key in kept for key, rule in full.items() if rule.match.in_port == wifi and rule.table == Table.PORT)


def test_goto_and_resubmit_follow_the_pipeline() -> None:
    allowed = {
        Table.PORT: {Table.CHECK, Table.ACCESS, Table.LABEL, Table.DELIVER},
        Table.CHECK: {Table.ACCESS},
        Table.ACCESS: {Table.CLASSIFY},
        Table.CLASSIFY: {Table.FORWARD},
        Table.FORWARD: {Table.LABEL, Table.DELIVER},
        Table.LABEL: {Table.DELIVER, Table.MEMBERS},
        Table.DELIVER: {Table.LABEL},
        Table.MEMBERS: set(),
    }
    for rules in Built(ring(seed=1)).rules.values():
        for rule in rules:
            if rule.goto is not None:
                assert rule.goto in allowed[Table(rule.table)]


def test_rules_grow_with_links_not_with_paths() -> None:
    """A label costs one rule and one variant per outgoing link, however many paths use it."""
    built = Built(ring(seed=5, size=8))
    for node, rules in built.rules.items():
        links = len(built.intents[node].neighbours)
        labels = {neighbour.label for neighbour in built.intents[node].neighbours}
        by_link = [rule for rule in rules if rule.table == Table.LABEL and rule.match.mpls_label in labels]
        assert len(by_link) == 2 * links


@pytest.mark.parametrize("seed", seeds(5))
def test_building_twice_gives_the_same_rules(seed: int) -> None:
    network = ring(seed=seed)
    assert Built(network).rules == Built(network).rules
