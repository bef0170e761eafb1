"""VLAN tags through kernel datapaths: packets traced through model switches, and sessions that learn of them."""

from __future__ import annotations

import struct
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from rings import ring
from silent_switch import SilentSwitch, reply, xid_of
from switch_model import Delivery, Frame, ModelNetwork, port_numbers

sys.path.insert(0, str(Path(__file__).parent))
from test_ofp_rules import BROADCAST, Built

from hyroads.controller.core.netfile import load_text
from hyroads.controller.core.network import Network
from hyroads.controller.model.state import TopologyContext
from hyroads.controller.ofp import match as act
from hyroads.controller.ofp import wire
from hyroads.controller.ofp.intents import ClassifiedFlow, SwitchIntent
from hyroads.controller.ofp.match import Match
from hyroads.controller.ofp.pipeline import Table
from hyroads.controller.ofp.rules import rules_for
from hyroads.controller.ofp.vlan_tags import NO_TAG, TABLES, TAG_LABEL, TagRules, with_tag_rules
from hyroads.controller.switches.server import SwitchRegistry
from hyroads.controller.switches.sessions import DesiredRules, SwitchSession

networks = st.builds(ring, seed=st.integers(0, 10**6), size=st.integers(3, 6), technologies=st.integers(1, 3))
# PCP and VID, each with all its values, as they are on the wire: without the DEI bit.
tcis = st.builds(lambda pcp, vid: pcp << 13 | vid, st.integers(0, 7), st.integers(0, 4094))
# What comes back as it was.
single = tcis.map(lambda tci: ((0x8100, tci),))
double = st.tuples(tcis, tcis).map(lambda both: ((0x88A8, both[0]), (0x8100, both[1])))
few = examples(30)
PORTS = ("host", "wifi")


class Kernels(Built):
    """A network of which every ``every``-th switch has its datapath in the kernel."""

    def __init__(self, network: Network, every: int = 1) -> None:
        super().__init__(network)
        nodes = list(self.intents)
        self.kernels = set(nodes[::every])
        for node, intent in self.intents.items():
            ports = port_numbers(network, self.addressing, node)
            self.rules[node] = rules_for(intent, ports, TagRules(node in self.kernels)).rules
        homes = {client: (place.node, place.technology) for client, place in self.places.items()}
        self.model = ModelNetwork(network, self.addressing, self.rules, homes, kernels=self.kernels)

    def frame(self, source: str, target: str, tags: tuple[tuple[int, int], ...], eth_type: int = 0x1234) -> Frame:
        return replace(self.user_frame(source, target, eth_type), tags=tags)


@few
@given(network=networks, every=st.integers(1, 3), tags=st.one_of(st.just(()), single, double))
def test_tags_arrive_as_they_were_with_datapaths_of_any_kind(network, every, tags):
    built = Kernels(network, every)
    for source, group in built.reachable().items():
        for target in group - {source}:
            frame = built.frame(source, built.addressing.host_mac[target], tags)
            assert built.model.from_host(source, frame) == [Delivery(target, "host", frame)]


@few
@given(network=networks, every=st.integers(1, 3), tags=st.one_of(single, double))
def test_tagged_broadcasts_reach_each_other_host_once(network, every, tags):
    built = Kernels(network, every)
    for source, group in built.reachable().items():
        heard = built.model.from_host(source, built.frame(source, BROADCAST, tags))
        assert sorted(delivery.node for delivery in heard) == sorted(group - {source})
        assert {delivery.frame.tags for delivery in heard} == {tags}


@few
@given(network=networks, tci=tcis, inner=tcis)
def test_what_openflow_cannot_see_of_a_tag_is_rebuilt(network, tci, inner):
    """Types and DEI; docs/reference/openflow.md, section 6."""
    built = Kernels(network)
    source, target = list(built.addressing.dpid)[:2]
    for before, after in (
        (((0x88A8, tci),), ((0x8100, tci),)),
        (((0x8100, tci), (0x8100, inner)), ((0x88A8, tci), (0x8100, inner))),
        (((0x8100, tci | 0x1000),), ((0x8100, tci),)),
    ):
        frame = built.frame(source, built.addressing.host_mac[target], before)
        (heard,) = built.model.from_host(source, frame)
        assert heard.frame == replace(frame, tags=after)


@few
@given(network=networks, tags=st.one_of(st.just(()), single, double))
def test_a_users_own_mpls_is_taken_for_no_tag(network, tags):
    """With any tags in front of it: between switches it is lost, as with datapaths in user space."""
    built = Kernels(network)
    source, target = list(built.addressing.dpid)[:2]
    frame = built.frame(source, built.addressing.host_mac[target], tags, 0x8847)
    assert built.model.from_host(source, frame) == []


def test_three_tags_are_lost():
    built = Kernels(ring())
    source, target = list(built.addressing.dpid)[:2]
    frame = built.frame(source, built.addressing.host_mac[target], ((0x88A8, 1), (0x88A8, 2), (0x8100, 3)))
    assert built.model.from_host(source, frame) == []


def test_the_model_kernel_loses_tagged_frames_without_these_rules():
    """So that the tests above can fail."""
    built = Built(ring())
    homes = {client: (place.node, place.technology) for client, place in built.places.items()}
    model = ModelNetwork(built.network, built.addressing, built.rules, homes, kernels=set(built.rules))
    source, target = list(built.addressing.dpid)[:2]
    frame = built.user_frame(source, built.addressing.host_mac[target])
    assert model.from_host(source, frame) == [Delivery(target, "host", frame)]
    assert model.from_host(source, replace(frame, tags=((0x8100, 7),))) == []


def test_an_agent_gets_tags_as_labels_behind_the_number_of_the_flow():
    network = ring()
    built = Kernels(network)
    source, target = list(built.addressing.agents)[:2]
    flow = ClassifiedFlow("f", 16, Match(eth_dst=built.addressing.host_mac[target]))
    intent = replace(built.intents[source], flows=(flow,))
    ports = port_numbers(network, built.addressing, source)
    built.rules[source] = rules_for(intent, ports, TagRules(takes_off=True)).rules
    model = ModelNetwork(network, built.addressing, built.rules, {}, kernels=built.kernels)
    frame = built.frame(source, built.addressing.host_mac[target], ((0x88A8, 0xA005), (0x8100, 0x0FFE)))
    (handed,) = model.from_host(source, frame)
    assert (handed.node, handed.side) == (source, "acc")
    assert [(label.value, label.bottom) for label in handed.frame.labels] == [
        (16, False),
        (TAG_LABEL | 0xB005, False),
        (TAG_LABEL | 0x1FFE, True),
    ]
    assert handed.frame.payload == replace(frame, tags=())


def test_without_a_kernel_datapath_no_rule_changes():
    rules = Built(ring()).rules["n0"]
    assert with_tag_rules(rules, None) == rules
    assert not any(rule.table in TABLES for rule in rules)


def test_labels_for_tags_and_for_none_are_told_apart():
    """VID 4095 is reserved; any other tag has a label of its own, and none is that for no tag."""
    labels = {TAG_LABEL | 0x1000 | pcp << 13 | vid for pcp in range(8) for vid in range(4096)}
    assert len(labels) == 8 * 4096
    assert NO_TAG not in labels


def answer(session: SwitchSession, most_bands: int) -> None:
    """What Open vSwitch says of its meters: one band in Linux, several in user space."""
    asked = session.connection.sent[0]
    session.on_meter_features(reply(asked, struct.pack("!IIIBBxx", 1 << 16, 2, 0x1F, most_bands, 0)))


def read(session: SwitchSession) -> None:
    rules, groups = session.connection.take()[2:4]
    session.on_flow_stats(reply(rules))
    session.on_groups(reply(groups))


def confirm(session: SwitchSession, refused: int | None = None) -> set[int]:
    """Answers the barriers of what was sent, after refusals of rules of one table; the tables that rules went to."""
    tables = set()
    for message in session.connection.take():
        if message[1] == wire.FLOW_MOD:
            tables.add(message[24])
            if message[24] == refused:
                session.on_error(wire.message(struct.pack("!HH", 2, 5) + message[:64], xid_of(message), wire.ERROR))
        elif message[1] == wire.BARRIER_REQUEST:
            session.on_barrier(xid_of(message))
    return tables


NETWORK = """
nodes: {a: {role: gateway}, b: {role: ap}}
links: [{id: ab, from: a, to: b, technology: plc, capacity_mbps: 10, both: true}]
interference: {rule: technology}
"""


class Registry:
    """Two switches that connect one after the other."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        context = TopologyContext.of(load_text(NETWORK, "two"))
        counters: dict[str, int] = {"openflow_errors": 0}
        tell = lambda _, what: self.faults.append(what)  # noqa: E731
        self.registry = SwitchRegistry(context, lambda: 0.0, counters, tell, lambda: None)

    def connect(self, number: int, most_bands: int) -> SwitchSession:
        session = self.registry.opened(SilentSwitch(number, PORTS))
        answer(session, most_bands)
        read(session)
        session.want(DesiredRules(SwitchIntent("a", number, 100, 101), {}))
        return session


def test_switches_in_user_space_get_no_rules_for_tags():
    found = Registry()
    session = found.connect(1, 8)
    assert session.vlan_tags == "whole"
    assert not confirm(session) & TABLES
    assert session.synced


def test_one_kernel_datapath_makes_all_switches_understand_its_tags():
    found = Registry()
    first = found.connect(1, 8)
    confirm(first)
    second = found.connect(2, 1)
    assert second.vlan_tags == "rebuilt"
    assert confirm(second) >= TABLES
    # The one in user space understands them, and goes on sending frames whole.
    assert first.vlan_tags == "whole"
    assert first.tags == TagRules(takes_off=False)
    assert confirm(first) >= TABLES - {Table.UNTAG_INNER}
    assert first.synced and second.synced
    # A controller that starts anew finds all as it shall be.
    assert not second.connection.sent


def test_what_comes_later_is_told_at_once():
    found = Registry()
    found.connect(1, 1)
    session = found.registry.opened(SilentSwitch(2, PORTS))
    assert session.tags == TagRules(takes_off=False)


def test_a_switch_that_refuses_the_rules_for_tags_does_all_else():
    """A slicer, for one: a slice can't write tags."""
    found = Registry()
    session = found.connect(1, 1)
    confirm(session, refused=Table.UNTAG)
    assert session.vlan_tags == "lost"
    assert sum("VLAN tags" in fault for fault in found.faults) == 1
    while session.connection.sent:
        confirm(session)
    assert session.synced
    # Also if another switch asks for it again.
    session.carry(TagRules(takes_off=True))
    assert session.tags is None


def test_a_switch_without_meters_is_left_as_it_is():
    found = Registry()
    session = found.registry.opened(SilentSwitch(1, PORTS))
    asked = session.connection.sent[0]
    session.on_error(wire.message(struct.pack("!HH", 1, 2) + asked[:8], xid_of(asked), wire.ERROR))
    assert session.vlan_tags is None
    assert found.faults == []


@pytest.mark.parametrize("action", [act.PopVlan(), act.PushVlan(0x8100), act.Move(16, act.VLAN_TCI, act.REGISTER_0)])
def test_actions_are_whole_words(action):
    assert len(wire.actions((action,))) % 8 == 0
