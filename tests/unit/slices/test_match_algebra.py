"""The algebra of matches against enumeration: every law is checked on all headers of a small but complete space."""

from __future__ import annotations

from functools import reduce
from itertools import product

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from hyroads.slices.core.errors import MatchError
from hyroads.slices.core.fields import BY_NAME, FIELDS, TOTAL_BITS
from hyroads.slices.core.match import (
    ALL,
    TernaryMatch,
    alternatives,
    completed,
    describe,
    difference,
    intersection,
    of_fields,
    outside,
)

# Headers of the space: VLAN none or 0..3 (pcp 0..1), four kinds of payload; fields vary in two bits.
VLANS = [{"vlan_vid": 0}] + [{"vlan_vid": 0x1000 | n, "vlan_pcp": p} for n in range(4) for p in range(2)]
UPPER = (
    [{"eth_type": 0x88CC}]
    + [{"eth_type": 0x0806, "arp_op": op} for op in (1, 2)]
    + [{"eth_type": t, "ip_proto": 6, "tcp_dst": n} for t in (0x0800, 0x86DD) for n in range(4)]
    + [{"eth_type": t, "ip_proto": 17, "udp_dst": n} for t in (0x0800, 0x86DD) for n in range(4)]
    + [{"eth_type": 0x0800, "ip_proto": 58}]
    + [{"eth_type": 0x86DD, "ip_proto": 58, "icmpv6_type": n} for n in (135, 136)]
    + [{"eth_type": t, "mpls_bos": n} for t in (0x8847, 0x8848) for n in (0, 1)]
)
SPACE = [{"eth_src": mac, **vlan, **upper} for mac, vlan, upper in product(range(2), VLANS, UPPER)]


def contains(one: TernaryMatch, other: TernaryMatch) -> bool:
    """Whether every header of the other belongs to the one: in normal form this is seen in the bits."""
    return not (one.mask & ~other.mask or (one.value ^ other.value) & one.mask)


def bits_of(header: dict[str, int]) -> int:
    total = 0
    for name, value in header.items():
        total |= value << BY_NAME[name].shift
    return total


def member(fields: dict[str, tuple[int, int]], header: dict[str, int]) -> bool:
    """The meaning of a match, straight from the specification: every named field is there and agrees."""
    return all(name in header and not (header[name] ^ value) & mask for name, (value, mask) in fields.items())


HEADERS = [bits_of(header) for header in SPACE]
PRESENT = [bits_of({name: BY_NAME[name].ones for name in header}) for header in SPACE]


def headers(match: TernaryMatch) -> set[int]:
    """The members of a match in the space; a field that a header does not have matches nothing."""
    value, mask = match.value, match.mask
    return {
        i
        for i, (header, there) in enumerate(zip(HEADERS, PRESENT, strict=True))
        if not (value ^ header) & mask and not mask & ~there
    }


THOROUGH = examples(150)
BITS = {"eth_src": 1, "vlan_pcp": 1, "tcp_dst": 3, "udp_dst": 3, "mpls_bos": 1}
KNOWN = {
    "eth_type": sorted({header["eth_type"] for header in SPACE}),
    "ip_proto": [6, 17, 58],
    "icmpv6_type": [135, 136],
    "arp_op": [1, 2],
}


@st.composite
def field_sets(draw: st.DrawFn) -> dict[str, tuple[int, int]]:
    fields: dict[str, tuple[int, int]] = {}
    for name in draw(st.sets(st.sampled_from([*BITS, *KNOWN, "vlan_vid"]), max_size=4)):
        ones = BY_NAME[name].ones
        if name in KNOWN:
            fields[name] = (draw(st.sampled_from(KNOWN[name])), ones)
        elif name == "vlan_vid":
            mask = draw(st.sampled_from([0x1000, 0x1FFF, 0x1001, 0x1003, 0x0001, 0x0003]))
            fields[name] = (draw(st.sampled_from([0, 0x1000, 0x1001, 0x1002, 0x1003])) & mask, mask)
        else:
            low = draw(st.integers(1, BITS[name]))
            mask = ones & ~BITS[name] | low
            fields[name] = (draw(st.integers(0, BITS[name])) & mask, mask)
    return fields


@st.composite
def matches(draw: st.DrawFn) -> TernaryMatch:
    while True:
        try:
            return draw(st.sampled_from(completed(draw(field_sets()))))
        except MatchError:
            pass


@THOROUGH
@given(field_sets())
def test_a_match_means_what_the_specification_says(fields: dict[str, tuple[int, int]]) -> None:
    try:
        found = completed(fields)
    except MatchError:
        # Refused only if nothing can match, or if a prerequisite is given but leaves open whether there is a tag.
        tag_value, tag_mask = fields.get("vlan_vid", (0x1000, 0x1000))
        unsure = "vlan_pcp" in fields and not tag_value & tag_mask & 0x1000
        assert unsure or not any(member(fields, header) for header in SPACE)
        return
    sets = [headers(match) for match in found]
    assert set().union(*sets) == {i for i, header in enumerate(SPACE) if member(fields, header)}
    assert sum(map(len, sets)) == len(set().union(*sets)), "alternatives are disjoint"


@THOROUGH
@given(matches(), matches())
def test_intersection_containment_and_overlap_are_those_of_sets(one: TernaryMatch, other: TernaryMatch) -> None:
    mine, theirs = headers(one), headers(other)
    assert mine
    assert one.overlaps(other) == other.overlaps(one) == bool(mine & theirs)
    both = intersection(one, other)
    assert (headers(both) if both else set()) == mine & theirs
    if contains(one, other):
        assert mine >= theirs
        assert both == other
    assert contains(ALL, one)
    assert (contains(one, other) and contains(other, one)) == (one == other)


@THOROUGH
@given(matches(), matches())
def test_containment_is_complete(one: TernaryMatch, other: TernaryMatch) -> None:
    # Where the small space tells the sets apart in every bit, containment of sets is containment of matches.
    if headers(one) >= headers(other) and not contains(one, other):
        rest = difference(other, one)
        assert rest, "something of the other is outside"
        assert all(not part.overlaps(one) and contains(other, part) for part in rest)


@THOROUGH
@given(matches(), matches())
def test_difference_is_exact_and_disjoint(one: TernaryMatch, other: TernaryMatch) -> None:
    parts = difference(one, other)
    mine = headers(one)
    sets = [{i for i in mine if part.has(HEADERS[i])} for part in parts]
    assert set().union(*sets) == mine - headers(other)
    assert sum(map(len, sets)) == len(set().union(*sets))
    assert all(contains(one, part) and not part.overlaps(other) for part in parts)
    assert all(not a.overlaps(b) for i, a in enumerate(parts) for b in parts[:i])
    assert bool(parts) != contains(other, one)


def test_difference_of_tags_is_exact() -> None:
    """All pairs of matches of the tag's bit and two bits of its number, against the frames with and without a tag."""
    frames = [bits_of({"vlan_vid": vid}) for vid in (0, *range(0x1000, 0x1004))]
    found = set()
    for mask, value in product((0, 1, 2, 3, 0x1000, 0x1001, 0x1003, 0x1FFF), (0, 0x1000, 0x1001, 0x1002, 0x1003)):
        if value & mask & 3 and not (value | ~mask) & 0x1000:
            continue
        found.add(of_fields({"vlan_vid": (value & mask, mask)}))
    for one, other in product(found, found):
        parts = difference(one, other)
        for frame in frames:
            assert sum(part.has(frame) for part in parts) == (one.has(frame) and not other.has(frame))


@THOROUGH
@given(matches(), st.lists(matches(), max_size=5))
def test_outside_a_union(one: TernaryMatch, cover: list[TernaryMatch]) -> None:
    mine = headers(one)
    rest = reduce(outside, cover, (one,))
    found = {i for i in mine if any(part.has(HEADERS[i]) for part in rest)}
    assert found == mine - set().union(*map(headers, cover))


def test_every_field_has_its_own_bits_and_prerequisites_come_first() -> None:
    covered = 0
    for field in FIELDS:
        assert not covered & field.ones << field.shift
        covered |= field.ones << field.shift
        if field.name != "ip_dscp":
            assert all(BY_NAME[name].shift > field.shift for name, _ in field.needs)
    assert covered == (1 << TOTAL_BITS) - 1


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"tcp_dst": 80}, MatchError.BAD_PREREQ),
        ({"tcp_dst": 80, "ip_proto": 6}, MatchError.BAD_PREREQ),
        ({"tcp_dst": 80, "ip_proto": 17, "eth_type": 0x0800}, MatchError.BAD_PREREQ),
        ({"ipv4_dst": 1, "eth_type": 0x86DD}, MatchError.BAD_PREREQ),
        ({"vlan_pcp": 1, "vlan_vid": 0}, MatchError.BAD_PREREQ),
        ({"in_phy_port": 1}, MatchError.BAD_PREREQ),
        ({"icmpv4_type": 8, "ip_proto": 1, "eth_type": 0x86DD}, MatchError.BAD_PREREQ),
        ({"vlan_vid": 5}, MatchError.BAD_VALUE),
        ({"vlan_vid": 0x2000}, MatchError.BAD_VALUE),
        ({"reg0": 1}, MatchError.BAD_FIELD),
    ],
)
def test_what_openflow_does_not_allow(fields: dict[str, int], code: int) -> None:
    with pytest.raises(MatchError) as caught:
        of_fields(fields)
    assert caught.value.code == code


def test_missing_prerequisites_are_filled_in() -> None:
    assert [describe(match) for match in completed({"tcp_dst": 80})] == [
        "eth_type=0x0800, ip_proto=6, tcp_dst=80",
        "eth_type=0x86dd, ip_proto=6, tcp_dst=80",
    ]
    assert len(completed({"ipv6_nd_target": 1})) == 2
    assert [describe(match) for match in completed({"tcp_dst": 80, "ipv4_dst": 1})] == [
        "eth_type=0x0800, ip_proto=6, ipv4_dst=0.0.0.1, tcp_dst=80"
    ]
    with pytest.raises(MatchError, match="no packet has all of tcp_dst, udp_dst"):
        completed({"tcp_dst": 80, "udp_dst": 80})
    with pytest.raises(MatchError, match=r"ipv4_dst needs eth_type=0x0800"):
        completed({"ipv4_dst": 1, "tcp_dst": 80, "eth_type": 0x86DD})
    with pytest.raises(MatchError, match="at most 10"):
        alternatives({"tcp_dst": [(n, 0xFFFF) for n in range(11)]}, 10)
    assert len(alternatives({"tcp_dst": [(n, 0xFFFF) for n in range(10)]}, 10)) == 20, "over IPv4 and IPv6"


def prerequisites(name: str) -> list[dict[str, int]]:
    """All ways to match what a field needs, its whole chain (OpenFlow Switch Specification 1.3.5, section 7.2.3.8)."""
    found: list[dict[str, int]] = [{}]
    for needed, values in BY_NAME[name].needs:
        found = [
            {**there, **below, needed: value}
            for there in found
            for value in values
            for below in prerequisites(needed)
            if all(there.get(each, number) == number for each, number in below.items())
        ]
    return found


@pytest.mark.parametrize("name", [field.name for field in FIELDS])
def test_field_is_matched_exactly_with_what_it_needs_and_no_wider(name: str) -> None:
    field, given = BY_NAME[name], {name: 0}
    given |= {"vlan_pcp": {"vlan_vid": 0x1000}, "in_phy_port": {"in_port": 0}}.get(name, {})
    for needs in prerequisites(name):
        found = of_fields({**given, **needs})
        assert found.field(name) == (0, field.ones)
        for other, value in needs.items():
            ones = BY_NAME[other].ones
            wrong: list[tuple[int, int]] = [(value & ~bit, ones & ~bit) for bit in (1, 1 << BY_NAME[other].bits - 1)]
            for instead in (*wrong, (value, 0), (value ^ ones, ones)):
                with pytest.raises(MatchError) as caught:
                    of_fields({**given, **needs, other: instead})
                assert caught.value.code == MatchError.BAD_PREREQ


@pytest.mark.parametrize("name", [field.name for field in FIELDS])
def test_any_two_fields_are_completed_by_all_that_both_need_together(name: str) -> None:
    for other in FIELDS:
        ways = [one | two for one in prerequisites(name) for two in prerequisites(other.name) if agree(one, two)]
        # A field that is given counts with its own value, which is 0 here and allowed by no other field.
        ways = [way for way in ways if not {name, other.name} & way.keys()]
        given = dict.fromkeys((name, other.name), 0)
        if "vlan_vid" in given:
            given["vlan_vid"] = 0x1000
        if "in_phy_port" in given:
            given["in_port"] = 0
        if not ways:
            with pytest.raises(MatchError):
                completed(given)
            continue
        more: dict[str, tuple[int, int]] = (
            {"vlan_vid": (0x1000, 0x1000)} if "vlan_pcp" in given and "vlan_vid" not in given else {}
        )
        assert set(completed(given)) == {of_fields({**given, **more, **way}) for way in ways}


def agree(one: dict[str, int], other: dict[str, int]) -> bool:
    return all(one[name] == other[name] for name in one.keys() & other.keys())


@pytest.mark.parametrize("name", [field.name for field in FIELDS if not field.needs])
def test_values_and_masks_have_the_bits_of_their_field(name: str) -> None:
    field = BY_NAME[name]
    more = {"vlan_pcp": {"vlan_vid": 0x1000}, "in_phy_port": {"in_port": 0}}.get(name, {})
    assert of_fields({**more, name: field.ones}).field(name) == (field.ones, field.ones)
    assert of_fields({**more, name: (field.ones, field.ones)}).field(name) == (field.ones, field.ones)
    for wrong in (field.ones + 1, -1, (field.ones + 1, field.ones), (0, field.ones + 1), (0, -1), (-1, field.ones)):
        with pytest.raises(MatchError) as caught:
            of_fields({**more, name: wrong})
        assert caught.value.code == MatchError.BAD_VALUE


@pytest.mark.parametrize(
    ("vid", "found"),
    [
        ((0x1000, 0x1000), (0x1000, 0x1000)), ((0, 0x1000), (0, 0x1FFF)), ((5, 0x1FFF), None), ((0, 5), (0, 5)),
        ((5, 5), (0x1005, 0x1005)), ((0x1005, 0x1FFF), (0x1005, 0x1FFF)), ((0x1005, 5), (0x1005, 0x1005)),
        ((0, 0), (0, 0)),
    ],
)  # fmt: skip
def test_vlan_number_asks_for_a_tag_and_no_tag_for_no_number(
    vid: tuple[int, int], found: tuple[int, int] | None
) -> None:
    if found is None:
        with pytest.raises(MatchError):
            of_fields({"vlan_vid": vid})
    else:
        assert of_fields({"vlan_vid": vid}).field("vlan_vid") == found


@pytest.mark.parametrize("most", range(5, 8))
def test_alternatives_are_as_many_as_the_bound_and_no_more(most: int) -> None:
    lists = {"eth_src": [(n, 0xFFFF_FFFF_FFFF) for n in range(3)], "eth_type": [(0x0800, 0xFFFF), (0x0806, 0xFFFF)]}
    if most < 6:
        with pytest.raises(MatchError, match="make 6 matches, expected at most 5"):
            alternatives(lists, most)
    else:
        assert {describe(match) for match in alternatives(lists, most)} == {
            f"eth_src=00:00:00:00:00:0{n}, eth_type={kind}" for n in range(3) for kind in ("0x0800", "0x0806")
        }
