"""Open vSwitch's own actions in a slice; all rules of HyRoads' own controller go through."""

from __future__ import annotations

import struct
from dataclasses import replace
from itertools import product

import pytest

from hyroads.controller.core.addressing import Addressing, Labels
from hyroads.controller.core.netfile import load_text
from hyroads.controller.core.routes import all_routes, broadcast_tree
from hyroads.controller.ofp import match as act
from hyroads.controller.ofp import wire
from hyroads.controller.ofp.intents import attached_only, default_places, intents_for
from hyroads.controller.ofp.match import Match
from hyroads.controller.ofp.rules import rules_for
from hyroads.slices.core.allocation import Block
from hyroads.slices.core.classifier import ClassifierEntry, at_port
from hyroads.slices.core.errors import Refused
from hyroads.slices.core.match import ALL, completed, of_fields
from hyroads.slices.proxy.flow_mod import translate
from hyroads.slices.proxy.guest_view import GuestView, IdMap, NumberPool
from hyroads.slices.proxy.readback import flow_stats
from hyroads.slices.proxy.region import Regions

PRODUCTION, RED, WEB = Block(1, 20, 8), Block(2, 40, 4), Block(3, 50, 4)
ETHERNET, MPLS, NEXT = 0, 0x18847, 0xFFFE
RING = """
nodes: {a: {role: gateway}, b: {role: ap}, c: {role: ap}, p: {role: client}}
links:
  - {id: ab-plc, from: a, to: b, technology: plc, capacity_mbps: 10, both: true}
  - {id: ab-wifi, from: a, to: b, technology: wifi, capacity_mbps: 15, both: true}
  - {id: bc-wifi, from: b, to: c, technology: wifi, capacity_mbps: 30, both: true}
  - {id: ca-plc, from: c, to: a, technology: plc, capacity_mbps: 5, both: true}
  - {id: cp-wifi, from: c, to: p, technology: wifi, capacity_mbps: 40, both: true}
interference: {rule: technology}
"""


def view(*others: ClassifierEntry, ports: int = 20) -> GuestView:
    entries = (*others, ClassifierEntry(0, ALL, PRODUCTION))
    mine = frozenset(range(1, ports)) - {7}
    return GuestView(PRODUCTION, mine, Regions(entries), IdMap(NumberPool(1, 99), 9), IdMap(NumberPool(1, 99), 9))


AT_1 = Match(in_port=1)


def rule(*actions: act.Action, match: Match = AT_1, table: int = 0, goto: int | None = None) -> bytes:
    fields = wire.match_fields(match)
    return wire.message(wire.flow_mod_body(wire.ADD, table, 9, fields, wire.instructions(actions, goto)), 3)


RED_AT_7 = ClassifierEntry(100, at_port(ALL, 7), RED)
WEB_EVERYWHERE = [ClassifierEntry(200, match, WEB) for match in completed({"tcp_dst": 80})]
TWO_HOSTS = [
    ClassifierEntry(200, match, WEB)
    for one, other in ((0x0A000002, 0x0A000003), (0x0A000003, 0x0A000002))
    for match in completed({"ipv4_src": one, "ipv4_dst": other})
]
WEB_AT_2 = [ClassifierEntry(200, at_port(match, 2), WEB) for match in completed({"tcp_dst": 80})]
LABEL = (act.Encap(MPLS), act.SetMplsLabel(77), act.SetMplsTtl(64), act.Encap(ETHERNET))
RESTORE = (act.Decap(NEXT), act.Decap(ETHERNET))


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("most_frame_bytes", [None, 1496])
@pytest.mark.parametrize("others", [(RED_AT_7,), (), WEB_EVERYWHERE, TWO_HOSTS])
def test_every_rule_of_the_production_controller_passes_and_reads_back(
    others: tuple[ClassifierEntry, ...], most_frame_bytes: int | None, guarded: bool
) -> None:
    network = load_text(RING, "ring")
    addressing = Addressing.of(network)
    places = default_places(addressing)
    routes = all_routes(attached_only(network, addressing, places), (*addressing.dpid, *places))
    labels, tree = Labels.of(network, addressing), broadcast_tree(network)
    intents = intents_for(network, addressing, labels, routes, tree, guarded=addressing.dpid if guarded else ())
    count = 0
    for intent in intents.values():
        names = [*(port.name for port in intent.access), *intent.macs]
        names += [intent.agent.access, intent.agent.network] if intent.agent is not None else []
        numbers = {name: number for number, name in enumerate(names, 8)}
        result = rules_for(replace(intent, most_frame_bytes=most_frame_bytes), numbers)
        assert not result.missing_ports
        for each in result.rules:
            [sent] = translate(wire.message(each.add_body, 1), view(*others))
            assert readback(sent, view(*others)) == wire.message(each.add_body, 1)[48:]
            count += 1
    assert count > 60


def readback(sent: bytes, mine: GuestView) -> bytes:
    """Match and instructions of a flow-mod as the switch would report them, turned back."""
    rest = sent[48:]
    head = struct.pack("!HBxIIHHHH4xQQQ", 48 + len(rest), sent[24], 0, 0, 9, 0, 0, 0, 0, 0, 0)
    return flow_stats(head + rest, mine)[48:]


@pytest.mark.parametrize(
    "message",
    [
        rule(*LABEL, act.Output(2)),
        rule(*RESTORE, act.Resubmit(4), table=3),
        rule(act.Clone((*LABEL, act.Output(2))), goto=2),
        rule(act.Clone((act.Clone((act.Output(3),)),)), act.Output(2)),
    ],
)
def test_what_stays_inside_passes(message: bytes) -> None:
    [sent] = translate(message, view(RED_AT_7))
    assert len(sent) == len(message) and readback(sent, view(RED_AT_7)) == message[48:]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        # To another's port, also from inside a copy and after any header.
        (rule(*LABEL, act.Output(7)), 4),
        (rule(act.Clone((act.Output(7),))), 4),
        (rule(act.Clone((*LABEL, act.Group(5)))), 9),
        # Tables of others.
        (rule(act.Resubmit(8)), 5),
        (rule(act.Resubmit(20)), 5),
        (rule(act.Resubmit(255)), 5),
        (rule(act.Resubmit(3)).replace(b"\xff\xf8\x03", b"\0\x07\x03"), 5),
        # Without an Ethernet header a packet neither leaves nor goes on.
        (rule(act.Encap(MPLS), act.Output(2)), 5),
        (rule(act.Decap(NEXT), act.Output(2)), 5),
        (rule(act.Decap(NEXT), act.Resubmit(3)), 5),
        (rule(act.Encap(MPLS), goto=1), 5),
        (rule(act.Decap(NEXT)), 5),
        (rule(act.Encap(ETHERNET), act.Output(2)), 5),
        (rule(act.Decap(ETHERNET), act.Output(2)), 5),
        (rule(act.Encap(0x1894F)), 5),
        (rule(*[act.Decap(NEXT)] * 2), 5),
        # Loads, learning, notes, conjunctions, other experimenters.
        *((rule(act.Decap()).replace(b"\0\x2f\0\0", struct.pack("!HH", kind, 0)), 3) for kind in (7, 16, 33, 35)),
        (rule(act.Decap()).replace(b"\0\0\x23\x20", b"\0\0\x23\x21"), 2),
    ],
)  # fmt: skip
def test_what_would_leave_is_refused(message: bytes, code: int) -> None:
    with pytest.raises(Refused) as refused:
        translate(message, view(RED_AT_7))
    assert (refused.value.kind, refused.value.code) == (2, code)


def guest(*others: ClassifierEntry) -> GuestView:
    """The slice red, with everything at ports 1 and 2 that is not others'."""
    found = view(*others, *(ClassifierEntry(100, at_port(ALL, port), RED) for port in (1, 2)))
    found.block, found.ports = RED, frozenset({1, 2})
    return found


def test_a_header_that_comes_out_of_a_guests_packet_is_nobodys_for_sure() -> None:
    """Somebody's web traffic at the same ports: what is decapsulated, or comes back from another table, may be it."""
    shared = guest(*WEB_EVERYWHERE)
    for actions in ((*RESTORE, act.Output(2)), (act.Resubmit(3), act.Output(2))):
        with pytest.raises(Refused):
            translate(rule(*actions), shared)
        assert translate(rule(*actions), guest())
    assert translate(rule(*LABEL, act.Output(2)), shared), "behind a label it is no web traffic"


def test_what_production_put_into_a_packet_is_its_own_when_it_comes_out() -> None:
    """Else one slice of web traffic would take all frames between switches from production."""
    shared = view(*WEB_EVERYWHERE)
    for actions in ((*RESTORE, act.Output(2)), (act.Resubmit(4), act.Output(2))):
        assert translate(rule(*actions), shared)
    with pytest.raises(Refused):
        translate(rule(*RESTORE, act.Output(7)), view(RED_AT_7))
    at_2 = [ClassifierEntry(200, at_port(each.match, 2), WEB) for each in WEB_EVERYWHERE]
    assert translate(rule(act.Clone((*RESTORE, act.Output(2)))), view(*at_2))
    with pytest.raises(Refused):
        translate(rule(act.Clone((*RESTORE, act.Output(2))), act.Output(2)), view(*at_2))


SIZES = (
    rule(act.Resubmit(2), table=3, match=Match()),
    rule(act.Resubmit(3), table=3, match=Match()),
    rule(act.Clone((act.Resubmit(0),)), match=Match()),
    rule(act.SetRegister2(1), match=Match()),
    rule(act.SetRegister3(4), match=Match()),
    rule(act.CheckLarger(1496, 1), match=Match()),
    rule(act.SetRegister4(7), match=Match()),
    rule(act.Move(16, act.UDP_SRC, act.REGISTER_4), match=Match(eth_type=0x0800, ip_proto=17)),
    rule(match=Match(eth_type=0x0800, is_first_fragment=True)),
    rule(match=Match(register_4=1)),
    rule(match=Match(register_5=1)),
    rule(match=Match(register_2=0)),
    rule(match=Match(register_3=1)),
    rule(match=Match(eth_type=0x0800, ip_proto=6, tcp_flags=2)),
)
"""What the checks of frames' sizes and of fragments need."""


def test_production_copies_fields_to_registers_alone() -> None:
    for target in (act.REGISTER_0, act.REGISTER_1, act.MPLS_LABEL):
        with pytest.raises(Refused):
            translate(rule(act.Move(16, act.UDP_SRC, target)), view(RED_AT_7))


@pytest.mark.parametrize("message", SIZES)
def test_only_production_resubmits_backwards_and_uses_registers_and_flags(message: bytes) -> None:
    [sent] = translate(message, view(RED_AT_7))
    assert readback(sent, view(RED_AT_7)) == message[48:]
    red = view(RED_AT_7)
    red.block, red.ports = RED, frozenset({7})
    with pytest.raises(Refused):
        translate(message, red)


def test_registers_hide_nothing_that_is_checked() -> None:
    known = Match(in_port=1, register_3=0)
    with pytest.raises(Refused):
        translate(rule(*LABEL, act.Output(7), match=known), view(RED_AT_7))
    with pytest.raises(Refused):
        translate(rule(act.SetRegister3(1), act.Output(2), match=known), view(*WEB_AT_2))
    elsewhere = rule(act.CheckLarger(1496, 1)).replace(b"\0\x01\x06\x04", b"\0\0\x08\x02")
    with pytest.raises(Refused):
        translate(elsewhere, view())


THEIRS, OURS = "02:00:00:00:00:77", "02:00:00:00:00:78"


@pytest.mark.parametrize("leaving", [act.Resubmit(3), act.Group(5), act.Output(2), act.Output(0xFFFF_FFFB)])
@pytest.mark.parametrize(
    ("before", "is_ours"),
    [((), True), ((act.SetEthDst(OURS),), True), ((act.SetEthDst(THEIRS),), False),
     ((act.SetEthDst(THEIRS), act.SetEthDst(OURS)), True), ((act.SetEthDst(OURS), act.SetEthDst(THEIRS)), False)],
)  # fmt: skip
def test_rewritten_packet_goes_on_only_while_it_is_the_slices(
    before: tuple[act.Action, ...], is_ours: bool, leaving: act.Action
) -> None:
    """Frames to one address are another slice's at the same ports."""
    to_them = of_fields({"eth_dst": 0x0200_0000_0077})
    red = guest(*(ClassifierEntry(200, at_port(to_them, port), WEB) for port in (1, 2)))
    red.groups.put(5, 50)
    for message in (rule(*before, leaving), rule(act.Clone((*before, leaving)))):
        if is_ours:
            assert translate(message, red)
            continue
        with pytest.raises(Refused) as refused:
            translate(message, red)
        assert (refused.value.kind, refused.value.code) == (2, 6)


STEPS = {
    "label": (act.Encap(MPLS), False, True), "multicast label": (act.Encap(MPLS + 1), False, True),
    "Ethernet": (act.Encap(ETHERNET), True, False), "other": (act.Encap(0x1894F), None, None),
    "no Ethernet": (act.Decap(NEXT), False, True), "inner Ethernet": (act.Decap(ETHERNET), True, False),
    "other out": (act.Decap(MPLS), None, None),
}  # fmt: skip
"""The action, in which state it is possible (True: without an Ethernet header), and the state afterwards."""


def test_headers_are_put_on_and_taken_off_in_turns_and_a_packet_leaves_with_ethernet() -> None:
    views = view(), guest()
    for names in (names for n in (1, 2, 3) for names in product(STEPS, repeat=n)):
        is_bare, is_possible = False, True
        for name in names:
            _, needed, after = STEPS[name]
            is_possible = is_possible and needed is is_bare
            is_bare = is_bare if after is None else after
        actions = [STEPS[name][0] for name in names]
        for one, end in product(views, ((), (act.Output(2),))):
            if is_possible and not is_bare:
                assert translate(rule(*actions, *end), one), names
                continue
            with pytest.raises(Refused) as refused:
                translate(rule(*actions, *end), one)
            assert (refused.value.kind, refused.value.code) == (2, 5), names


def test_groups_and_action_sets_have_none() -> None:
    body = wire.actions((act.Decap(),))
    write = struct.pack("!HH4x", 3, 8 + len(body)) + body
    message = wire.message(wire.flow_mod_body(wire.ADD, 0, 9, b"", write), 3)
    with pytest.raises(Refused) as refused:
        translate(message, view())
    assert (refused.value.kind, refused.value.code) == (2, 2)


def test_nesting_is_bounded() -> None:
    action: act.Action = act.Output(2)
    for _ in range(5):
        action = act.Clone((action,))
    with pytest.raises(Refused):
        translate(rule(action), view())
