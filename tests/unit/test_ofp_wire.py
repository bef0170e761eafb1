"""Bytes of rules and messages, against Ryu's serialiser and Open vSwitch's formats."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ryu.ofproto import ofproto_protocol, ofproto_v1_3
from ryu.ofproto import ofproto_v1_3_parser as ryu_parser

from hyroads.controller.core.errors import OpenFlowError, ReadbackError
from hyroads.controller.ofp import match as act
from hyroads.controller.ofp import wire
from hyroads.controller.ofp.diff import Change, Installed, as_installed, batch_of, difference, error_of, next_xid
from hyroads.controller.ofp.guard import check
from hyroads.controller.ofp.match import GROUP_ADDRESS, Match
from hyroads.controller.ofp.pipeline import ADD_ORDER
from hyroads.controller.ofp.readback import (
    PortCounters,
    parse_flow_stats,
    parse_groups,
    parse_meters,
    parse_port_stats,
)
from hyroads.controller.ofp.rule import FULL_MASK, MARK_MASK, MARK_VALUE, Rule, is_ours

DATAPATH = ofproto_protocol.ProtocolDesc(version=4)
macs = st.integers(0, 2**48 - 1).map(lambda n: n.to_bytes(6, "big").hex(":"))
u16 = st.integers(0, 0xFFFF)
ipv4 = st.ip_addresses(v=4).map(str)
ipv6 = st.ip_addresses(v=6).map(str)
labels = st.integers(0, 0xFFFFF)


def optional(**fields: st.SearchStrategy) -> st.SearchStrategy:
    return st.fixed_dictionaries({}, optional=fields)


# (fields for our Match, the same for Ryu's)
frames = optional(in_port=st.integers(1, 0xFFFF), eth_src=macs, eth_dst=macs)
mpls = st.builds(
    lambda a, b: {**a, "eth_type": 0x8847, **b}, frames, optional(mpls_label=labels, mpls_bos=st.integers(0, 1))
)
tcp4 = st.builds(
    lambda a, b: {**a, "eth_type": 0x0800, "ip_proto": 6, **b},
    frames,
    optional(ipv4_src=ipv4, ipv4_dst=ipv4, tcp_src=u16, tcp_dst=u16),
)
udp6 = st.builds(
    lambda a, b: {**a, "eth_type": 0x86DD, "ip_proto": 17, **b},
    frames,
    optional(ipv6_src=ipv6, ipv6_dst=ipv6, udp_src=u16, udp_dst=u16),
)
simple = st.one_of(
    macs.map(lambda m: (act.SetEthSrc(m), ryu_parser.OFPActionSetField(eth_src=m))),
    macs.map(lambda m: (act.SetEthDst(m), ryu_parser.OFPActionSetField(eth_dst=m))),
    labels.map(lambda n: (act.SetMplsLabel(n), ryu_parser.OFPActionSetField(mpls_label=n))),
    st.integers(0, 255).map(lambda n: (act.SetMplsTtl(n), ryu_parser.OFPActionSetMplsTtl(n))),
    st.just((act.DecMplsTtl(), ryu_parser.OFPActionDecMplsTtl())),
    u16.map(lambda n: (act.PopMpls(n), ryu_parser.OFPActionPopMpls(n))),
    st.integers(0, 1000).map(lambda n: (act.Group(n), ryu_parser.OFPActionGroup(n))),
    st.sampled_from([1, 77, act.IN_PORT]).map(lambda n: (act.Output(n), ryu_parser.OFPActionOutput(n, 0))),
    st.integers(0, 254).map(lambda n: (act.Resubmit(n), ryu_parser.NXActionResubmitTable(table_id=n))),
)


def ryus(rule: Rule, match: dict, actions: list, xid: int) -> bytes:
    instructions = [ryu_parser.OFPInstructionActions(ofproto_v1_3.OFPIT_APPLY_ACTIONS, actions)] if actions else []
    if rule.goto is not None:
        instructions.append(ryu_parser.OFPInstructionGotoTable(rule.goto))
    flow_mod = ryu_parser.OFPFlowMod(
        DATAPATH,
        cookie=rule.cookie,
        table_id=rule.table,
        priority=rule.priority,
        match=ryu_parser.OFPMatch(**match),
        out_port=ofproto_v1_3.OFPP_ANY,
        out_group=ofproto_v1_3.OFPG_ANY,
        instructions=instructions,
    )
    flow_mod.set_xid(xid)
    flow_mod.serialize()
    return bytes(flow_mod.buf)


@given(
    fields=st.one_of(frames, mpls, tcp4, udp6),
    actions=st.lists(simple, max_size=6),
    table=st.integers(0, 4),
    priority=u16,
    goto=st.none() | st.integers(1, 5),
)
def test_flow_mods_equal_ryus(fields: dict, actions: list, table: int, priority: int, goto: int | None) -> None:
    rule = Rule(table, priority, Match(**fields), tuple(ours for ours, _ in actions), goto)
    assert wire.message(rule.add_body, 9) == ryus(rule, fields, [theirs for _, theirs in actions], 9)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"eth_dst": GROUP_ADDRESS}, {"eth_dst": ("01:00:00:00:00:00", "01:00:00:00:00:00")}),
        (
            {"eth_type": 0x0800, "ipv4_dst": "10.1.2.3/16"},
            {"eth_type": 0x0800, "ipv4_dst": ("10.1.0.0", "255.255.0.0")},
        ),
        ({"eth_type": 0x0800, "ipv4_src": "10.1.2.3/32"}, {"eth_type": 0x0800, "ipv4_src": "10.1.2.3"}),
        ({"eth_type": 0x86DD, "ipv6_dst": "fd00::/8"}, {"eth_type": 0x86DD, "ipv6_dst": ("fd00::", "ff00::")}),
        ({"vlan": 7}, {"vlan_vid": 0x1007}),
        ({"vlan": 0}, {"vlan_vid": 0}),
    ],
)
def test_masks_and_vlans_equal_ryus(ours: dict, theirs: dict) -> None:
    rule = Rule(1, 2, Match(**ours))
    assert wire.message(rule.add_body, 1) == ryus(rule, theirs, [], 1)


def test_fragments_stand_behind_what_they_need_also_when_read_back() -> None:
    """Open vSwitch's NXM_NX_IP_FRAG (nicira-ext.h) needs the Ethernet type in front of it, and has a lower header."""
    fields = wire.match_fields(Match(eth_type=0x0800, ip_proto=17, is_first_fragment=True, register_4=0, register_5=9))
    assert fields.hex() == "0001080400000000" + "00010a0400000009" + "80000a020800" + "8000140111" + "0001340101"
    parts = [fields[:8], fields[8:16], fields[16:22], fields[22:27], fields[27:]]
    assert wire.canonical_fields(b"".join(sorted(parts))) == fields
    for wrong in (Match(is_first_fragment=True), Match(eth_type=0x0800, is_first_fragment=False)):
        with pytest.raises(OpenFlowError):
            wire.match_fields(wrong)


def test_open_vswitch_extensions_have_its_layout() -> None:
    """Structures nx_action_encap, nx_action_decap and ext_action_header in Open vSwitch's ofp-actions.c."""
    assert wire.actions((act.Encap(act.PACKET_TYPE_MPLS),)).hex() == "ffff001000002320002e000000018847"
    assert wire.actions((act.Decap(),)).hex() == "ffff001000002320002f00000000fffe"
    assert wire.actions((act.Decap(act.PACKET_TYPE_ETHERNET),)).hex() == "ffff001000002320002f000000000000"
    clone = wire.actions((act.Clone((act.PopMpls(0x8847),)),))
    assert clone.hex() == "ffff001800002320002a000000000000" + "0014000888470000"


@pytest.mark.parametrize(
    "match",
    [
        Match(ipv4_src="10.0.0.1"),
        Match(eth_type=0x0800, tcp_dst=80),
        Match(eth_type=0x0800, ip_proto=17, tcp_dst=80),
        Match(mpls_label=16),
        Match(eth_src="02:00"),
        Match(eth_type=0x0800, ipv4_src="10.0.0.300"),
        Match(eth_type=0x0800, ipv4_src="10.0.0.0/33"),
        Match(eth_type=0x8847, mpls_label=1 << 20),
        Match(vlan=4095),
        Match(in_port=-1),
    ],
)
def test_a_match_no_switch_would_take_is_refused_at_once(match: Match) -> None:
    with pytest.raises(OpenFlowError, match="expected"):
        Rule(0, 1, match)


def test_values_that_do_not_fit_are_refused() -> None:
    for actions in [(act.SetMplsLabel(1 << 20),), (act.PopMpls(1 << 16),), (act.Output(1 << 32),)]:
        with pytest.raises(OpenFlowError):
            Rule(0, 1, Match(), actions)
    with pytest.raises(OpenFlowError, match="do not fit one"):
        Rule(0, 1, Match(), (act.Output(1),) * 5000)


def test_requests_equal_ryus() -> None:
    request = ryu_parser.OFPFlowStatsRequest(
        DATAPATH, 0, 3, ofproto_v1_3.OFPP_ANY, ofproto_v1_3.OFPG_ANY, 5, FULL_MASK, ryu_parser.OFPMatch()
    )
    ports = ryu_parser.OFPPortStatsRequest(DATAPATH, 0, ofproto_v1_3.OFPP_ANY)
    barrier = ryu_parser.OFPBarrierRequest(DATAPATH)
    for message in (request, ports, barrier):
        message.set_xid(3)
        message.serialize()
    assert wire.flow_stats_request(3, table=3, cookie=5, cookie_mask=FULL_MASK) == bytes(request.buf)
    assert wire.port_stats_request(3) == bytes(ports.buf)
    assert wire.barrier_request(3) == bytes(barrier.buf)


def test_cookies_tell_rules_apart_and_carry_the_mark() -> None:
    rules = [
        Rule(1, 2, Match()),
        Rule(2, 2, Match()),
        Rule(1, 3, Match()),
        Rule(1, 2, Match(in_port=1)),
        Rule(1, 2, Match(), (act.Output(1),)),
        Rule(1, 2, Match(), goto=3),
    ]
    assert len({rule.cookie for rule in rules}) == len(rules)
    assert all(is_ours(rule.cookie) and rule.cookie & MARK_MASK == MARK_VALUE for rule in rules)
    assert not is_ours(0)


# -- difference and batch ---------------------------------------------------------------------------------------------


class Switch:
    """What OpenFlow 1.3 says a switch does with flow-mods, for the oracle of the difference."""

    def __init__(self, rules: tuple[Installed, ...]) -> None:
        self.rules = {rule.key: rule for rule in rules}

    def take(self, change: Change) -> list[set]:
        """Applies the change one message at a time; returns the keys present after each."""
        history = []
        for rule in as_installed(change.adds):
            self.rules[rule.key] = rule
            history.append(set(self.rules))
        for rule in change.deletes:
            if self.rules.get(rule.key) == rule:
                del self.rules[rule.key]
            history.append(set(self.rules))
        return history


some_rules = st.lists(
    st.builds(
        lambda table, priority, port, out: Rule(table, priority, Match(in_port=port), (act.Output(out),)),
        st.integers(0, 4),
        st.integers(1, 2),
        st.integers(1, 3),
        st.integers(1, 3),
    ),
    max_size=12,
    unique_by=lambda rule: rule.key,
)


@given(wanted=some_rules, before=some_rules, strangers=some_rules)
def test_difference_leads_there_minimally_without_a_gap(wanted: list, before: list, strangers: list) -> None:
    foreign = tuple(Installed(r.table, r.priority, r.match_fields, 0x11) for r in strangers)
    taken = {rule.key for rule in foreign}
    ours = tuple(rule for rule in as_installed(before) if rule.key not in taken)
    switch = Switch(ours + foreign)
    change = difference(wanted, ours + foreign)
    history = switch.take(change)
    possible = [rule for rule in wanted if rule.key not in taken]
    assert set(switch.rules.values()) == set(as_installed(possible)) | set(foreign)
    assert {rule.key for rule in change.conflicts} == {rule.key for rule in wanted} & taken
    # Nothing that is right before and after is touched, nothing is sent twice.
    old = {rule.key: rule.cookie for rule in ours}
    needed = sum(old.get(rule.key) != rule.cookie for rule in possible) + len(set(old) - {r.key for r in wanted})
    assert len(change.adds) + len(change.deletes) == needed
    # A key that is there before and after is there all the time.
    stays = set(old) & {rule.key for rule in possible} | taken
    assert all(stays <= keys for keys in history)
    positions = [ADD_ORDER.index(rule.table) for rule in change.adds]
    assert positions == sorted(positions)
    assert not difference(wanted, tuple(switch.rules.values()))


def test_two_different_rules_with_one_key_are_an_error() -> None:
    with pytest.raises(OpenFlowError, match="two rules with priority 5"):
        difference([Rule(0, 5, Match(), (act.Output(1),)), Rule(0, 5, Match(), (act.Output(2),))], ())


def test_batch_ends_with_a_barrier_and_correlates_errors() -> None:
    adds = (Rule(4, 1, Match(in_port=1)), Rule(3, 1, Match(in_port=1)))
    deletes = as_installed([Rule(0, 9, Match())])
    batch = batch_of(Change(adds, deletes), 100)
    kinds, xids, offset = [], [], 0
    while offset < len(batch.data):
        _, kind, length, xid = wire.HEADER.unpack_from(batch.data, offset)
        kinds.append(kind)
        xids.append(xid)
        offset += length
    assert kinds == [wire.FLOW_MOD, wire.FLOW_MOD, wire.BARRIER_REQUEST, wire.FLOW_MOD, wire.BARRIER_REQUEST]
    assert xids == list(range(100, 105))
    assert (batch.first_xid, batch.last_xid, batch.messages) == (100, 104, 5)
    error = wire.message(b"\0\5\0\2" + bytes(64), 101, wire.ERROR)
    check(error)
    assert batch.on_error(*error_of(error))
    assert not batch.on_error(99, 5, 2)
    assert batch.on_barrier(102)
    assert not batch.done
    assert not batch.on_barrier(105)
    assert batch.on_barrier(104)
    assert batch.done
    assert not batch.ok
    assert [refusal.subject for refusal in batch.refusals] == [adds[1]]
    assert str(batch.refusals[0]) == "table 3 priority 1: flow-mod failed, code 2"


def test_an_empty_change_is_confirmed_too() -> None:
    batch = batch_of(Change(), 7)
    assert batch.data == wire.barrier_request(7)
    assert batch.on_barrier(7)
    assert batch.ok


def test_transaction_ids_start_again_before_they_run_out() -> None:
    assert next_xid(5) == 6
    assert next_xid(0xFFFF_0000) == 1


# -- read-back --------------------------------------------------------------------------------------------------------


def flow_stats_reply(rules: list[Rule], more: bool = False) -> bytes:
    body = b""
    for rule in rules:
        match = wire.match_struct(rule.match_fields)
        length = 48 + len(match) + len(rule.instructions)
        head = length.to_bytes(2, "big") + bytes([rule.table, 0]) + bytes(8) + rule.priority.to_bytes(2, "big")
        body += head + bytes(10) + rule.cookie.to_bytes(8, "big") + bytes(16) + match + rule.instructions
    return wire.message(b"\0\1" + bytes([0, more]) + bytes(4) + body, 1, wire.MULTIPART_REPLY)


@given(rules=some_rules, more=st.booleans())
def test_read_back_gives_what_was_installed(rules: list, more: bool) -> None:
    reply = flow_stats_reply(rules, more)
    check(reply)
    flows, follow = parse_flow_stats(reply)
    assert tuple(flow.rule for flow in flows) == as_installed(rules)
    assert follow is more
    assert not difference(rules, [flow.rule for flow in flows])


def test_a_switch_may_report_fields_in_another_order() -> None:
    rule = Rule(3, 5, Match(in_port=1, eth_type=0x8847, mpls_label=99))
    fields = [rule.match_fields[0:8], rule.match_fields[8:14], rule.match_fields[14:]]
    shuffled = Installed(3, 5, b"".join(reversed(fields)), rule.cookie ^ 1)
    assert shuffled.key == rule.key
    change = difference([rule], [shuffled])
    assert (change.adds, change.deletes) == ((rule,), ())


@given(rules=some_rules.filter(bool), data=st.data())
def test_read_back_of_hostile_bytes_ends_in_its_own_error(rules: list, data: st.DataObject) -> None:
    reply = bytearray(flow_stats_reply(rules))
    for _ in range(data.draw(st.integers(1, 4))):
        reply[data.draw(st.integers(0, len(reply) - 1))] = data.draw(st.integers(0, 255))
    try:
        parse_flow_stats(bytes(reply))
    except ReadbackError as error:
        assert "expected" in str(error)


@given(noise=st.binary(max_size=200))
def test_noise_is_no_read_back(noise: bytes) -> None:
    for parse in (parse_flow_stats, parse_groups, parse_meters, parse_port_stats):
        with pytest.raises(ReadbackError):
            parse(noise)


def test_counters_of_physical_ports_are_read() -> None:
    def port(number: int, *counts: int) -> bytes:
        return number.to_bytes(4, "big") + bytes(4) + b"".join(n.to_bytes(8, "big") for n in counts) + bytes(32 + 8)

    body = port(1, *range(10, 18)) + port(0xFFFFFFFE, *range(8))
    ports, more = parse_port_stats(wire.message(b"\0\x04" + bytes(6) + body, 1, wire.MULTIPART_REPLY))
    assert ports == [PortCounters(1, *range(10, 18))]
    assert not more


@pytest.mark.parametrize("in_packets", [False, True])
def test_a_meter_is_described_as_it_was_added(in_packets: bool) -> None:
    adds = [wire.meter_mod_body(wire.METER_ADD, number, 50, 60, in_packets=in_packets) for number in (7, 9)]
    # struct ofp_meter_config: length, flags, number, bands.
    flags = 4 | (2 if in_packets else 1)
    entries = [struct.pack("!HHIHHII4x", 24, flags, number, 1, 16, 50, 60) for number in (7, 9)]
    assert [wire.meter_config(add) for add in adds] == entries
    message = wire.message(b"\0\x0a" + bytes(6) + b"".join(entries), 1, wire.MULTIPART_REPLY)
    assert parse_meters(message) == ({7: entries[0], 9: entries[1]}, False)
    for end in (17, 30, 39):
        with pytest.raises(ReadbackError):
            parse_meters(wire.message(message[8:end], 1, wire.MULTIPART_REPLY))


# Of OpenFlow 1.3.5, section 7.2.3.8: what has to be matched beside a field, and on which values; the field's own range.
NEEDS: dict[str, tuple[str, tuple[int, ...]]] = {
    "ip_proto": ("eth_type", (0x0800, 0x86DD)),
    "ipv4_src": ("eth_type", (0x0800,)), "ipv4_dst": ("eth_type", (0x0800,)),
    "ipv6_src": ("eth_type", (0x86DD,)), "ipv6_dst": ("eth_type", (0x86DD,)), "arp_spa": ("eth_type", (0x0806,)),
    "mpls_label": ("eth_type", (0x8847,)), "mpls_bos": ("eth_type", (0x8847,)),
    "tcp_src": ("ip_proto", (6,)), "tcp_dst": ("ip_proto", (6,)), "tcp_flags": ("ip_proto", (6,)),
    "udp_src": ("ip_proto", (17,)), "udp_dst": ("ip_proto", (17,)), "icmpv6_type": ("ip_proto", (58,)),
    "nd_target": ("icmpv6_type", (135, 136)),
}  # fmt: skip
LARGEST = {
    "in_port": 0xFFFFFFFF, "eth_type": 0xFFFF, "vlan": 4094, "ip_proto": 255, "tcp_src": 0xFFFF, "tcp_dst": 0xFFFF,
    "udp_src": 0xFFFF, "udp_dst": 0xFFFF, "icmpv6_type": 255, "mpls_label": 0xFFFFF, "mpls_bos": 1, "tcp_flags": 4095,
    "register_2": 0xFFFFFFFF, "register_3": 0xFFFFFFFF,
}  # fmt: skip


def ways(name: str) -> list[dict[str, int]]:
    """All that may be matched beside a field, so that it can be."""
    needed, values = NEEDS.get(name, ("", ()))
    below = ways(needed) if needed else [{}]
    if name == "icmpv6_type":
        below = [one for one in below if one["eth_type"] == 0x86DD]
    return [{**one, needed: value} for one in below for value in values] if needed else [{}]


@pytest.mark.parametrize("name", sorted({*NEEDS, *LARGEST}))
def test_field_is_encoded_with_what_it_needs_and_in_its_range_alone(name: str) -> None:
    value = {"eth_type": 0x0800}.get(
        name, LARGEST.get(name, "::1" if name[-3:] in ("src", "dst", "get") else "10.0.0.1")
    )
    value = "10.0.0.1" if name.startswith("ipv4") else value
    for beside in ways(name):
        assert wire.match_fields(Match(**{**beside, name: value}))
        if name in LARGEST:
            assert wire.match_fields(Match(**{**beside, name: LARGEST[name]}))
            for wrong in (LARGEST[name] + 1, -1):
                with pytest.raises(OpenFlowError):
                    wire.match_fields(Match(**{**beside, name: wrong}))
        if name in NEEDS:
            for other in (None, 0, 1, 0x0801):
                with pytest.raises(OpenFlowError):
                    wire.match_fields(Match(**{**beside, NEEDS[name][0]: other, name: value}))


@given(
    st.lists(st.tuples(st.integers(0, 0xFFFFFF), st.binary(max_size=8)), max_size=6),
    st.randoms(),
    st.binary(max_size=3),
)
def test_fields_in_any_order_are_the_same_match(
    fields: list[tuple[int, bytes]], rng: random.Random, rest: bytes
) -> None:
    parts = [number.to_bytes(3, "big") + bytes((len(value),)) + value for number, value in fields]
    in_order = b"".join(sorted(parts))
    rng.shuffle(parts)
    assert wire.canonical_fields(b"".join(parts) + rest) == in_order + rest


OTHER_NAMES = {
    "MULTIPART_DESCRIPTION": "OFPMP_DESC", "MULTIPART_QUEUE_STATS": "OFPMP_QUEUE", "PACKET_IN": "OFPT_PACKET_IN",
    "QUEUE_CONFIG_REQUEST": "OFPT_QUEUE_GET_CONFIG_REQUEST", "QUEUE_CONFIG_REPLY": "OFPT_QUEUE_GET_CONFIG_REPLY",
    "GET_ASYNC_REQUEST": "OFPT_GET_ASYNC_REQUEST", "ALL_TABLES": "OFPTT_ALL", "ANY": "OFPP_ANY",
    "NO_BUFFER": "OFP_NO_BUFFER", "VERSION": "OFP_VERSION",
}  # fmt: skip


def test_numbers_of_the_protocol_are_ryus() -> None:
    numbers = {name: value for name, value in vars(wire).items() if name.isupper() and name[0] != "_"}
    compared = 0
    for name, value in numbers.items():
        parts = [OTHER_NAMES.get(name, ""), f"OFPT_{name}", f"OFPMP_{name.removeprefix('MULTIPART_')}"]
        parts += [f"OFPFC_{name}", f"OFPGC_{name.removeprefix('GROUP_')}", f"OFPMC_{name.removeprefix('METER_')}"]
        is_of = {
            "MULTIPART_REQUEST": parts[1],
            "MULTIPART_REPLY": parts[1],
            "GROUP_MOD": parts[1],
            "METER_MOD": parts[1],
        }
        is_of |= {f"GROUP_{word}": f"OFPGC_{word}" for word in ("ADD", "MODIFY", "DELETE")}
        is_of |= {f"METER_{word}": f"OFPMC_{word}" for word in ("ADD", "MODIFY", "DELETE")}
        found = [each for each in (is_of.get(name), *parts) if each and hasattr(ofproto_v1_3, each)]
        if type(value) is int and found:
            assert value == getattr(ofproto_v1_3, found[0]), name
            compared += 1
    assert compared >= 45


@given(st.binary(max_size=60), st.integers(0, 0xFFFFFFFF), st.integers(0, 0xFFFFFFFF))
def test_packet_outs_have_one_output_and_the_whole_frame(frame: bytes, in_port: int, out: int) -> None:
    """Layout of section 7.3.7."""
    output = struct.pack("!HHIH6x", 0, 16, out, 0xFFFF if out == 0xFFFFFFFD else 0)
    body = struct.pack("!IIH6x", 0xFFFFFFFF, in_port, 16) + output + frame
    assert wire.packet_out(5, frame, in_port=in_port, out=out) == struct.pack("!BBHI", 4, 13, 8 + len(body), 5) + body


@pytest.mark.parametrize("label", [-1, 0, 0xFFFFF, 0x100000])
def test_labels_have_20_bits(label: int) -> None:
    if 0 <= label <= 0xFFFFF:
        assert wire.actions((act.SetMplsLabel(label),)) == struct.pack("!HHII4x", 25, 16, 0x80004404, label)
    else:
        with pytest.raises(OpenFlowError):
            wire.actions((act.SetMplsLabel(label),))


def test_meter_of_the_controller_counts_packets_and_has_a_burst_of_a_second() -> None:
    delete = struct.pack("!BBHIHHI", 4, 29, 16, 9, 2, 6, 0xFFFFFFFD)
    add = struct.pack("!BBHIHHI", 4, 29, 32, 9, 0, 6, 0xFFFFFFFD) + struct.pack("!HHII4x", 1, 16, 300, 300)
    assert wire.controller_meter(9, 300) == delete + add
