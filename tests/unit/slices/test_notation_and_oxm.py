"""Values as text and matches as bytes: both ways, and against Ryu's encoding."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.ofp import wire
from hyroads.controller.ofp.match import Match
from hyroads.slices.core.classifier import decode, encode
from hyroads.slices.core.errors import MatchError
from hyroads.slices.core.fields import BY_NAME, FIELDS, Field
from hyroads.slices.core.match import TernaryMatch, completed
from hyroads.slices.core.notation import prefixes, read, write


@given(st.integers(1, 9), st.data())
def test_prefixes_are_exactly_the_range_and_few(bits: int, data: st.DataObject) -> None:
    low = data.draw(st.integers(0, (1 << bits) - 1))
    high = data.draw(st.integers(low, (1 << bits) - 1))
    found = prefixes(low, high, bits)
    numbers = [n for n in range(1 << bits) for value, mask in found if n & mask == value]
    assert numbers == list(range(low, high + 1)), "each number once"
    assert len(found) <= max(1, 2 * bits - 2)
    # Fewest: two neighbours of equal size that could be one would share all but their last cared bit.
    assert not any(m == n and a ^ b == (1 << bits) - m for (a, m) in found for (b, n) in found if a < b)


@st.composite
def values(draw: st.DrawFn) -> tuple[Field, int, int]:
    field = draw(st.sampled_from(FIELDS))
    mask = draw(st.integers(1, field.ones)) if field.maskable else field.ones
    if field.name == "vlan_vid":
        mask |= 0x1000
        return field, 0x1000 | draw(st.integers(0, 0xFFF)) & mask, mask
    return field, draw(st.integers(0, field.ones)) & mask, mask


@given(values())
def test_what_is_written_is_read_back(item: tuple[Field, int, int]) -> None:
    field, value, mask = item
    assert read(field, write(field, value, mask)) == ((value, mask),)


@given(values())
def test_matches_survive_the_wire(item: tuple[Field, int, int]) -> None:
    field, value, mask = item
    fields: dict[str, int | tuple[int, int]] = {field.name: (value, mask)}
    if field.name == "in_phy_port":
        fields["in_port"] = 1
    for match in completed(fields):
        data = encode(match)
        assert decode(data) == match
        assert decode(wire.canonical_fields(data)) == match
        for cut in range(1, len(data)):
            try:
                decode(data[:cut])
            except MatchError:
                continue


@given(st.binary(max_size=60))
def test_hostile_bytes_end_in_a_match_error_or_a_match(data: bytes) -> None:
    try:
        found = decode(data)
    except MatchError:
        return
    assert decode(encode(found)) == found


def test_the_bytes_are_those_of_our_own_controller() -> None:
    ours = Match(
        in_port=3, eth_type=0x0800, ip_proto=6, ipv4_dst="10.1.0.0/16", tcp_dst=80, eth_src="02:00:00:00:00:01"
    )
    match = decode(wire.match_fields(ours))
    assert encode(match) == wire.match_fields(ours)
    assert match.field("ipv4_dst") == (0x0A010000, 0xFFFF0000)
    assert encode(decode(wire.match_fields(Match(vlan=0)))) == wire.match_fields(Match(vlan=0))


def ryu_bytes(**fields: object) -> bytes:
    from ryu.ofproto import ofproto_v1_3_parser as parser

    from hyroads.controller.framework import ryu_shim  # makes Ryu importable with a current eventlet  # noqa: F401

    buffer = bytearray()
    match = parser.OFPMatch(**fields)
    length = match.serialize(buffer, 0)
    end = int.from_bytes(buffer[2:4], "big")
    assert length >= end
    return bytes(buffer[4:end])


@pytest.mark.parametrize(
    "fields",
    [
        {"in_port": 1, "vlan_vid": (0x1000, 0x1000)},
        {"eth_type": 0x86DD, "ipv6_flabel": (0x12340, 0xFFFF0), "ipv6_src": ("2001:db8::", "ffff:ffff::")},
        {"eth_type": 0x8847, "mpls_label": 77, "mpls_tc": 5, "mpls_bos": 1},
        {"eth_type": 0x0800, "ip_proto": 1, "icmpv4_type": 8, "icmpv4_code": 0, "ip_dscp": 46},
        {"eth_type": 0x0806, "arp_op": 2, "arp_spa": "10.0.0.1", "arp_tha": "02:00:00:00:00:01"},
        {"eth_type": 0x88E7, "pbb_isid": (0x10, 0xF0), "metadata": (5, 0xFF), "tunnel_id": 9},
        {"eth_type": 0x86DD, "ip_proto": 58, "icmpv6_type": 135, "ipv6_nd_sll": "02:00:00:00:00:01"},
        {"eth_type": 0x86DD, "ipv6_exthdr": (1, 3), "ip_proto": 132, "sctp_dst": 7},
    ],
)
def test_the_bytes_are_those_of_ryu(fields: dict[str, object]) -> None:
    data = ryu_bytes(**fields)
    assert encode(decode(data)) == wire.canonical_fields(data)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ("80000a", MatchError.BAD_LEN),
        ("80000a02", MatchError.BAD_LEN),
        ("80000a0308", MatchError.BAD_LEN),
        ("80000a020800" * 2, MatchError.DUP_FIELD),
        ("000100020800", MatchError.BAD_FIELD),
        ("00010000", MatchError.BAD_FIELD),
        ("8000fe020800", MatchError.BAD_FIELD),
        ("800050020800", MatchError.BAD_FIELD),
        ("80000b04080000ff", MatchError.BAD_WILDCARDS),
        ("80000b04080008ff", MatchError.BAD_MASK),
        ("80001a020050", MatchError.BAD_PREREQ),
        ("80000c022001", MatchError.BAD_VALUE),
        ("80000c020005", MatchError.BAD_VALUE),
        ("80004e020200", MatchError.BAD_VALUE),
    ],
)
def test_the_error_of_each_fault(data: str, code: int) -> None:
    with pytest.raises(MatchError) as caught:
        decode(bytes.fromhex(data))
    assert caught.value.code == code


def test_mask_of_a_field_that_takes_none_is_not_written() -> None:
    field = BY_NAME["eth_type"]
    half = TernaryMatch(0x0800 << field.shift, 0xFF00 << field.shift)
    with pytest.raises(MatchError, match="eth_type takes no mask") as caught:
        encode(half)
    assert caught.value.code == MatchError.BAD_MASK


def test_masks_on_transport_ports() -> None:
    (value, mask), *_ = read(BY_NAME["tcp_dst"], "80-83")
    (match, _) = completed({"tcp_dst": (value, mask)})
    assert decode(encode(match)) == match


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("tcp_dst", "80-70", "range"),
        ("tcp_dst", "70000", "0-65535"),
        ("tcp_dst", True, "number"),
        ("tcp_dst", "010x", "number"),
        ("ipv4_dst", "10.0.0.1/8", "bits outside its mask; write 10.0.0.0/8"),
        ("ipv4_dst", "10.0.0.0/33", "IPv4"),
        ("ipv4_dst", "10.0.0", "IPv4"),
        ("eth_src", "02:00", "MAC"),
        ("eth_type", "0x0800/0xff00", "takes no mask"),
        ("ip_proto", "0-256", "range"),
        ("mpls_label", "0-1000", "at most 256 values"),
        ("vlan_vid", "4096", "range"),
        ("vlan_vid", "tagged", "number"),
        ("ipv6_dst", "x" * 101, "IPv6"),
    ],
)
def test_wrong_values_are_named(name: str, value: object, problem: str) -> None:
    with pytest.raises(MatchError, match=problem):
        read(BY_NAME[name], value)


def test_vlan_words() -> None:
    vlan = BY_NAME["vlan_vid"]
    assert read(vlan, "none") == ((0, 0x1FFF),)
    assert read(vlan, "any") == ((0x1000, 0x1000),)
    assert read(vlan, 5) == ((0x1005, 0x1FFF),)
    assert sum(1 for v, m in read(vlan, "10-20") for n in range(0x1000, 0x2000) if n & m == v) == 11


def test_normal_form_drops_bits_outside_the_mask() -> None:
    (match,) = completed({"vlan_vid": (0, 0x1000)})
    assert match.field("vlan_vid") == (0, 0x1FFF)
    (match,) = completed({"vlan_vid": (5, 0x0FFF)})
    assert match == completed({"vlan_vid": 0x1005})[0]
    assert isinstance(match, TernaryMatch)
