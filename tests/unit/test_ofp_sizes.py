"""What becomes of hosts' frames that do not fit links: rules in model switches, and the bytes of what they need."""

from __future__ import annotations

from dataclasses import replace

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from rings import ring
from switch_model import Delivery, Frame, ModelNetwork, port_numbers

from hyroads.controller.core.addressing import Addressing, Labels
from hyroads.controller.core.network import Network
from hyroads.controller.core.routes import all_routes, broadcast_tree
from hyroads.controller.ofp import match as act
from hyroads.controller.ofp import wire
from hyroads.controller.ofp.access import is_access
from hyroads.controller.ofp.hosts import is_learned
from hyroads.controller.ofp.intents import default_places, intents_for
from hyroads.controller.ofp.match import GROUP_ADDRESS, Match
from hyroads.controller.ofp.pipeline import TO_FIT
from hyroads.controller.ofp.rules import rules_for
from hyroads.controller.ofp.sizes import size_rules

MOST = 1496
MULTICAST = "01:00:5e:01:01:01"
SYN = {"ip_proto": 6, "tcp_flags": 0x002}
networks = st.builds(
    ring, seed=st.integers(0, 10**6), size=st.integers(3, 6), technologies=st.integers(1, 3), clients=st.just(0)
)


class Sized:
    """A network whose links carry frames of ``MOST`` bytes behind a label, and its rules in model switches."""

    def __init__(self, network: Network, most: int | None = MOST) -> None:
        network = replace(network, nodes={name: replace(node, agent=True) for name, node in network.nodes.items()})
        self.addressing = Addressing.of(network)
        labels, routes = Labels.of(network, self.addressing), all_routes(network, tuple(self.addressing.dpid))
        intents = intents_for(
            network, self.addressing, labels, routes, broadcast_tree(network), places=default_places(self.addressing)
        )
        rules = {}
        for node, intent in intents.items():
            sized = replace(intent, most_frame_bytes=most)
            rules[node] = rules_for(sized, port_numbers(network, self.addressing, node)).rules
        self.model = ModelNetwork(network, self.addressing, rules, {})
        self.first, self.second, *_ = self.addressing.dpid

    def frame(self, dst: str, size: int, **upper: object) -> Frame:
        return Frame(self.addressing.host_mac[self.first], dst, 0x0800, payload="x", upper=upper, size=size)

    def sent(self, frame: Frame) -> list[Delivery]:
        return self.model.from_host(self.first, frame)


def is_to_agent(sized: Sized, deliveries: list[Delivery], frame: Frame) -> bool:
    """Whether the agent of the first switch, and nobody else, gets the whole frame behind the label for it."""
    if len(deliveries) != 1:
        return False
    found = deliveries[0]
    behind = [label.value for label in found.frame.labels] == [TO_FIT] and found.frame.payload == frame
    return (found.node, found.side) == (sized.first, "acc") and behind


@examples(20)
@given(network=networks)
def test_large_frames_and_syns_for_hosts_elsewhere_go_to_the_agent_of_the_first_switch(network: Network) -> None:
    sized = Sized(network)
    elsewhere = sized.addressing.host_mac[sized.second]
    for dst in (elsewhere, "02:77:00:00:00:01", MULTICAST):
        large = sized.frame(dst, MOST + 1)
        assert is_to_agent(sized, sized.sent(large), large)
    syn = sized.frame(elsewhere, 74, **SYN)
    assert is_to_agent(sized, sized.sent(syn), syn)
    small = sized.frame(elsewhere, MOST)
    assert sized.sent(small) == [Delivery(sized.second, "host", small)]


@examples(20)
@given(network=networks)
def test_what_the_agent_returns_takes_the_single_path(network: Network) -> None:
    sized = Sized(network)
    for upper in ({}, SYN):
        frame = sized.frame(sized.addressing.host_mac[sized.second], 700, **upper)
        assert sized.model.from_agent(sized.first, "net", frame) == [Delivery(sized.second, "host", frame)]
    for dst in (MULTICAST, "02:77:00:00:00:01"):
        copied = sized.frame(dst, 700)
        reached = [delivery.node for delivery in sized.model.from_agent(sized.first, "net", copied)]
        assert sorted([*reached, sized.first]) == sorted(sized.addressing.dpid), "all but the sender's"


def test_frames_between_hosts_of_one_switch_may_be_large() -> None:
    sized = Sized(ring(1, 3, 1, 0))
    here = sized.addressing.host_mac[sized.first]
    frame = Frame("02:77:00:00:00:02", here, 0x0800, payload="x", upper=SYN, size=1514)
    arrived = sized.model.from_agent(sized.first, "acc", frame)
    assert arrived == [Delivery(sized.first, "host", frame)]


def test_no_frame_is_checked_where_links_carry_all() -> None:
    sized = Sized(ring(1, 3, 1, 0), most=None)
    large = sized.frame(sized.addressing.host_mac[sized.second], 1514, **SYN)
    assert sized.sent(large) == [Delivery(sized.second, "host", large)]


def test_bytes_are_those_that_open_vswitch_reads() -> None:
    # ovs-ofctl's "check_pkt_larger(1496)->NXM_NX_REG3[1]" and "reg3=0x3" of OpenFlow 1.3.
    assert wire.actions((act.CheckLarger(1496, 1),)).hex() == "ffff001800002320003105d8000100010604000000000000"
    assert wire.actions((act.SetRegister3(1),)).hex() == "00190010000106040000000100000000"
    assert wire.match_fields(Match(register_3=3)).hex() == "0001060400000003"
    assert wire.match_fields(Match(register_3=3, eth_dst=GROUP_ADDRESS)).startswith(bytes.fromhex("00010604"))
    with pytest.raises(Exception, match="register_3"):
        wire.match_fields(Match(register_3=1 << 32))


def test_rules_are_the_switch_s_own_when_they_are_read_back() -> None:
    """A new controller gives each rule that it finds to the layer that owns it."""
    for rule in size_rules(1496, 100, 101):
        assert not is_access(rule.table, rule.priority) and not is_learned(rule.priority), rule
