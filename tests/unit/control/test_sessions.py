"""Multicast sessions on model switches: who gets what, over which links, and what changes do to messages."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from rings import ring
from switch_model import Frame, Label, ModelNetwork, port_numbers

from hyroads.controller.control.sessions import (
    DRAIN_S,
    Host,
    LiveSession,
    World,
    better_tree,
    forgotten,
    group_airtime,
    planned,
    restored,
    sent_of,
    stepped,
    with_better_trees,
)
from hyroads.controller.core.multicast import GroupRate, Media
from hyroads.controller.core.routes import all_routes, broadcast_tree
from hyroads.controller.core.services.sessions import (
    GroupAddressError,
    SessionSpec,
    group_address,
    session_document,
    session_spec,
)
from hyroads.controller.model.state import TopologyContext
from hyroads.controller.ofp.intents import attached_only, default_places, intents_for
from hyroads.controller.ofp.pipeline import TREE_ADDRESS
from hyroads.controller.ofp.rules import RuleSet, network_rules, rules_of_sessions

GROUP = "239.1.2.3"
RELAXED = examples(30)


class Stage:
    """A network with one session; switches confirm when they are told to."""

    def __init__(self, network, rate=GroupRate.NEIGHBOURS) -> None:
        self.context = TopologyContext.of(network)
        self.places = default_places(self.context.addressing)
        self.attached = attached_only(network, self.context.addressing, self.places)
        self.world = World(self.context, Media(self.attached, group_rate=rate), self.places)
        targets = (*self.context.addressing.dpid, *self.places)
        routes = all_routes(self.attached, targets)
        self.intents = intents_for(
            network, self.context.addressing, self.context.labels, routes, broadcast_tree(network), places=self.places
        )
        self.live = LiveSession(SessionSpec("s", group_address(GROUP), ()))
        self.told = {}
        self.in_force = dict(self.intents)
        self.compiled = {}
        self.network_rules = {}
        """They stay as they are, as in a switch session, which makes those of sessions alone when these change."""
        self.now_s = 0.0

    def join(self, *nodes: str, sources=None) -> None:
        mac = self.context.addressing.host_mac
        hosts = tuple(Host(node, sources is None or node in sources, node, mac[node]) for node in nodes)
        self.live = planned(self.world, replace(self.live, hosts=hosts), (), quick=True)

    def tell(self) -> None:
        told = sent_of(self.world, [self.live])
        self.told = {node: told[node].added_to(intent) for node, intent in self.intents.items()}

    def confirm(self, nodes=None) -> None:
        for node in self.told if nodes is None else nodes:
            self.in_force[node] = self.told[node]

    def step(self) -> None:
        def confirmed(node: str, label: int) -> bool:
            return label in {branch.label for branch in self.in_force[node].branches}

        def enters(tree) -> bool:
            entries = self.in_force[tree.root].entries
            return tree.label in {entry.branch.label for entry in entries if entry.branch is not None}

        self.live = stepped(self.live, confirmed, enters, self.now_s)

    def settle(self) -> None:
        for _ in range(6):
            self.step()
            self.tell()
            self.confirm()
            self.now_s += DRAIN_S / 2

    def model(self) -> ModelNetwork:
        addressing = self.context.addressing
        for node, intent in self.in_force.items():
            if node not in self.compiled or self.compiled[node][0] != intent:
                ports = port_numbers(self.context.network, addressing, node)
                if node not in self.network_rules:
                    self.network_rules[node] = network_rules(intent, ports)
                own, network = rules_of_sessions(intent, ports), self.network_rules[node]
                assert own.missing_ports == network.missing_ports == ()
                self.compiled[node] = intent, RuleSet(network.rules + own.rules, (), own.groups)
        homes = {client: (place.node, place.technology) for client, place in self.places.items()}
        rules = {node: each.rules for node, (_, each) in self.compiled.items()}
        groups = {node: each.groups for node, (_, each) in self.compiled.items()}
        return ModelNetwork(self.context.network, addressing, rules, homes, groups)

    def say(self, node: str, model=None):
        """Who gets a message of a node (unchanged, but for the address of a copy), and all that was sent for it."""
        group, mac = group_address(GROUP), self.context.addressing.host_mac
        frame = Frame(mac[node], group.mac, 0x0800, payload=f"from {node}", upper={"ipv4_dst": GROUP})
        model = model or self.model()
        got = Counter()
        for delivery in model.from_host(node, frame):
            if delivery.side == "host" and delivery.frame.labels == ():
                assert delivery.frame in (frame, replace(frame, dst=mac[delivery.node]))
                got[delivery.node] += 1
        return got, model.sent


def everyone(stage: Stage, *but: str) -> list[str]:
    return [node for node in stage.context.network.nodes if node not in but]


@RELAXED
@given(st.integers(0, 10_000), st.sampled_from(list(GroupRate)))
def test_each_message_reaches_every_participant_once_and_takes_every_link_of_its_tree_once(seed, rate) -> None:
    stage, rng = Stage(ring(seed), rate), random.Random(seed)
    chosen = rng.sample(everyone(stage), 5)
    stage.join(*chosen)
    stage.settle()
    model = stage.model()
    for node in chosen:
        got, sent = stage.say(node, model)
        assert got == Counter(set(chosen) - {node})
        plan = stage.live.rollouts[node].wanted.plan
        assert {link for one in plan.transmissions for link in one} == plan.links
        from_switches = [
            one for one in plan.transmissions if stage.context.addressing.has_switch(stage.source_of(one[0]))
        ]
        assert len(sent) == len(from_switches)
        by_group = [one for one in plan.transmissions if len(one) > 1]
        assert sum(frame.dst == TREE_ADDRESS for _, _, frame in sent) == len(by_group)


@RELAXED
@given(st.integers(0, 10_000))
def test_group_frames_are_taken_from_the_parent_in_a_tree_alone(seed: int) -> None:
    """Whatever label they carry: of a tree, of a node, of an agent."""
    stage, rng = Stage(ring(seed, technologies=1), GroupRate.NEIGHBOURS), random.Random(seed)
    stage.join(*everyone(stage))
    stage.settle()
    names, model = stage.context.addressing, stage.model()
    macs = sorted({*names.interface_mac.values(), "02:77:00:00:00:01"})
    for node, told in stage.in_force.items():
        labels = {branch.label for branch in told.branches} | stage.context.labels.all
        users = {client.mac for client in told.clients}
        for port in told.macs:
            number = model.numbers[node][port]
            parents = {
                branch.parent.mac
                for branch in told.branches
                if branch.by_group and branch.parent is not None and branch.parent.port == port
            }
            for src in rng.sample(macs, 5):
                if src in parents | users:
                    continue
                for label in labels:
                    frame = Frame(src, TREE_ADDRESS, 0x8847, (Label(label),), Frame(macs[0], macs[1], 0x0800))
                    assert model.run([(node, number, frame)]) == []


def _source_of(self, link: str) -> str:
    network = self.context.network
    return network.links[network.link_index[link]].source


Stage.source_of = _source_of


def test_what_others_send_to_the_group_is_dropped_and_other_groups_are_flooded() -> None:
    stage = Stage(ring(3))
    stage.join("n0", "n2", "n4", sources=["n0"])
    assert sum(stage.say("n1")[0].values()) == len(everyone(stage)) - 1
    stage.settle()
    assert stage.say("n0")[0] == Counter(["n2", "n4"])
    assert not stage.say("n1")[0] and not stage.say("n2")[0]
    mac = stage.context.addressing.host_mac["n1"]
    other = Frame(mac, "01:00:5e:01:02:03", 0x0800, payload="other", upper={"ipv4_dst": "238.129.2.3"})
    assert len(stage.model().from_host("n1", other)) == len(everyone(stage)) - 1


@examples(30, quick=2)
@given(st.integers(0, 10_000))
def test_no_order_of_confirmations_loses_or_doubles_a_message_of_those_who_stay(seed: int) -> None:
    stage, rng = Stage(ring(seed)), random.Random(seed)
    stayers = rng.sample(everyone(stage), 3)
    others = everyone(stage, *stayers)
    stage.join(*stayers)
    stage.settle()
    for _ in range(4):
        stage.join(*stayers, *rng.sample(others, rng.randrange(4)))
        for _ in range(12):
            stage.step()
            stage.tell()
            stage.confirm(rng.sample(sorted(stage.told), rng.randrange(1, len(stage.told))))
            model = stage.model()
            for node in stayers:
                got = stage.say(node, model)[0]
                assert all(got[other] == 1 for other in stayers if other != node)
                assert max(got.values()) == 1
            stage.now_s += DRAIN_S / 4
    stage.join(*stayers)
    stage.settle()
    assert all(len(list(rollout.trees)) == 1 for rollout in stage.live.rollouts.values())


def test_hosts_that_no_file_names_take_part_where_they_were_heard() -> None:
    stage, names = Stage(ring(5)), Stage(ring(5)).context.addressing
    node, technology = next((node, k) for node, k in names.interface_name if names.has_switch(node))
    wired, radio = "02:99:00:00:00:01", "02:99:00:00:00:02"
    hosts = (
        Host(wired, True, node, wired),
        Host(radio, True, node, radio, None, technology),
        Host("n5", True, "n5", names.host_mac["n5"]),
        Host("10.9.9.9", True),
    )
    stage.live = planned(stage.world, replace(stage.live, hosts=hosts), (), quick=True)
    stage.settle()
    told = stage.in_force[node]
    (members,) = told.members
    assert members.access == (names.access_port[node],)
    port = names.interface_name[node, technology]
    assert [(client.mac, client.port) for client in members.clients] == [(radio, port)]
    entering = {entry.match.eth_src: entry.client for entry in told.entries if entry.branch is not None}
    assert entering[wired] is None and entering[radio].port == port
    number = port_numbers(stage.context.network, names, node)[port]
    model = stage.model()
    group = group_address(GROUP)
    frame = Frame(wired, group.mac, 0x0800, payload="x", upper={"ipv4_dst": GROUP})
    access = port_numbers(stage.context.network, names, node)[names.access_port[node]]
    sent = model.switches[node].receive(frame, access)
    # The other host at the access port hears it without us; the station gets a copy of its own.
    assert (number, replace(frame, dst=radio)) in sent and access not in [out for out, _ in sent]
    assert any(delivery.node == "n5" for delivery in model.run([(node, access, frame)]) if delivery.side == "host")


def test_a_session_that_ends_leaves_nothing_behind() -> None:
    stage = Stage(ring(5))
    stage.join("n0", "n1", "c0")
    stage.settle()
    stage.live = forgotten(stage.live)
    stage.settle()
    assert not stage.live.rollouts
    assert stage.in_force == stage.intents


def test_a_restarted_controller_tells_the_switches_nothing_new() -> None:
    stage = Stage(ring(8))
    stage.join("n0", "n1", "n3", "c1", "c2")
    stage.settle()
    before = stage.told
    live = restored(stage.world, stage.live.spec, stage.live.plans)
    stage.live = planned(stage.world, replace(live, hosts=stage.live.hosts), (), quick=True)
    stage.tell()
    assert stage.told == before


def test_a_dead_link_moves_only_the_trees_over_it_and_who_is_cut_off_comes_back() -> None:
    stage = Stage(ring(2))
    stage.join("n0", "n1", "n2", "n3")
    stage.settle()
    plans = stage.live.plans
    used = sorted({link for plan in plans.values() for link in plan.plan.links})[0]
    whole = stage.world
    for dead in ([used], [link.id for link in stage.attached.links if "n0" in (link.source, link.target)]):
        network = stage.attached.with_capacities(dict.fromkeys(dead, 0.0))
        stage.world = replace(whole, media=Media(network, group_rate=GroupRate.NEIGHBOURS))
        stage.live = planned(stage.world, stage.live, (), quick=True)
        for source, plan in stage.live.plans.items():
            assert not plan.plan.links & set(dead)
            if not plans[source].plan.links & set(dead):
                assert plan == plans[source]
    assert stage.live.lost["n1"] == {"n0"} and stage.live.lost["n0"] == {"n1", "n2", "n3"}
    stage.world = whole
    stage.live = planned(stage.world, stage.live, (), quick=True)
    stage.settle()
    assert stage.live.lost == {}
    assert stage.say("n0")[0] == Counter(["n1", "n2", "n3"])


def test_improving_never_costs_airtime() -> None:
    for seed in range(8):
        stage = Stage(ring(seed))
        for count in range(2, 7):
            stage.join(*(f"n{i}" for i in range(count % 6 + 1)))
        before = group_airtime(stage.world.media, [replace_rate(stage.live)], {}, {}).reserved.sum()
        trees = {source: better_tree(stage.world, stage.live, source) for source in stage.live.session.trees}
        better = with_better_trees(stage.world, stage.live, trees, ())
        after = group_airtime(stage.world.media, [replace_rate(better)], {}, {})
        assert after.reserved.sum() <= before * (1 + 1e-9)


def replace_rate(live: LiveSession) -> LiveSession:
    return replace(live, spec=replace(live.spec, rate_mbps=1.0))


def test_traffic_is_what_is_declared_or_what_is_measured_if_that_is_more() -> None:
    stage = Stage(ring(4))
    stage.join("n0", "n1", "n2")
    media, live = stage.world.media, replace_rate(stage.live)
    declared = group_airtime(media, [live], {}, {})
    assert declared.reserved.max() > 0 and not declared.own.any()
    low = group_airtime(media, [live], {("s", "n0"): 0.5}, {})
    assert (low.reserved == declared.reserved).all() and low.own.sum() == pytest.approx(
        0.5 * media.airtime(live.session.trees["n0"].links)
    )
    promised = group_airtime(media, [live], {}, {"s": 2.0})
    assert promised.reserved == pytest.approx(2 * declared.reserved)
    assert (group_airtime(media, [live], {("s", "n0"): 3.0}, {}).reserved >= declared.reserved).all()


# -- declared


@pytest.mark.parametrize(
    ("text", "mac"),
    [
        ("239.1.2.3", "01:00:5e:01:02:03"),
        ("239.129.2.3", "01:00:5e:01:02:03"),
        ("ff0e::1:3", "33:33:00:01:00:03"),
        ("03:00:00:00:00:09", "03:00:00:00:00:09"),
    ],
)
def test_group_addresses(text: str, mac: str) -> None:
    assert group_address(text).mac == mac
    assert group_address(group_address(text).text) == group_address(text)


@pytest.mark.parametrize(
    "text",
    ["", "10.0.0.1", "224.0.0.251", "ff02::fb", "ff01::5", "fe80::1", "ff:ff:ff:ff:ff:ff", "02:00:00:00:00:01",
     "01:80:c2:00:00:0e", "33:33:00:00:00:01", "239.1.2", "239.1.2.3/8", "::", "ff0e::1%eth0"],
)  # fmt: skip
def test_addresses_of_hosts_and_of_the_network_itself_are_refused(text: str) -> None:
    with pytest.raises(GroupAddressError):
        group_address(text)


def test_groups_meet_only_if_a_frame_can_be_to_both() -> None:
    low, high, mac = group_address("239.1.2.3"), group_address("239.129.2.3"), group_address("01:00:5e:01:02:03")
    assert not low.meets(high) and low.meets(low) and low.meets(mac) and mac.meets(high)


def test_a_spec_survives_its_document() -> None:
    given = {"id": "a/b", "group": "FF0E::1", "participants": ["n0", "02:00:00:00:00:02"], "sources": ["n0"]}
    spec = session_spec({**given, "rate_mbps": 2}, "x")
    assert session_spec(session_document(spec), "x") == spec
    assert [one.is_source for one in spec.participants] == [True, False]
