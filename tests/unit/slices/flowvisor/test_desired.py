"""Slices as FlowVisor's entries: nothing lost in translation, and everything that it can't do is refused by name."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.slices.core.model import Controller, Slice, SliceModel
from hyroads.slices.core.slicefile import parse
from hyroads.slices.flowvisor.desired import PreflightError, desired_of
from hyroads.slices.flowvisor.entries import FvRule, dpid_of, dpid_text, rules_of, shared

CONTROLLER = ["tcp:10.0.0.9:6700"]


def desired(*flowspace: dict[str, Any], **more: Any) -> Any:
    slices = [{"name": "web", "controllers": CONTROLLER, "flowspace": list(flowspace), **more}]
    return desired_of(parse({"slices": slices}, "test"))


def matches(*flowspace: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(rule.match) for rule in desired(*flowspace).rules.values()]


def refusals(*flowspace: dict[str, Any], **more: Any) -> tuple[str, ...]:
    with pytest.raises(PreflightError) as caught:
        desired(*flowspace, **more)
    return caught.value.refusals


def test_every_field_of_openflow_1_0_has_its_name_there() -> None:
    assert matches(
        {
            "match": {
                "eth_src": "02:00:00:00:00:01",
                "vlan_vid": 100,
                "vlan_pcp": 3,
                "ipv4_src": "10.1.0.0/16",
                "ipv4_dst": "10.2.0.1",
                "ip_dscp": 46,
                "tcp_dst": 80,
            },
            "ports": [5],
        }
    ) == [
        {
            "dl_src": "02:00:00:00:00:01",
            "dl_type": 0x0800,
            "dl_vlan": 100,
            "dl_vpcp": 3,
            "in_port": 5,
            "nw_dst": "10.2.0.1",
            "nw_proto": 6,
            "nw_src": "10.1.0.0/16",
            "nw_tos": 184,
            "tp_dst": 80,
        }
    ]
    assert matches({"match": {"vlan_vid": "none", "eth_dst": "02:00:00:00:00:02"}}) == [
        {"dl_dst": "02:00:00:00:00:02", "dl_vlan": 65535}
    ]
    assert matches({"match": {"eth_type": 0x0806, "arp_op": 1, "arp_tpa": "10.0.0.0/8"}}) == [
        {"dl_type": 0x0806, "nw_dst": "10.0.0.0/8", "nw_proto": 1}
    ]


def test_switches_and_ports_become_an_entry_each() -> None:
    found = desired({"switches": [1, 2], "ports": [3, 4], "match": {"vlan_vid": 7}, "priority": 9}).rules.values()
    assert {(rule.dpid, rule.match["in_port"], rule.priority) for rule in found} == {
        (dpid, port, 9) for dpid in (1, 2) for port in (3, 4)
    }


def test_all_that_is_not_possible_is_refused_at_once_with_its_place() -> None:
    found = refusals(
        {"match": {"ipv6_src": "2001:db8::/32"}},
        {"match": {"vlan_vid": "any"}},
        {"match": {"eth_type": 0x0800, "ip_proto": 6, "tcp_dst": "80-81"}},
        {"match": {"eth_dst": "01:00:00:00:00:00/01:00:00:00:00:00"}},
        {"match": {"vlan_vid": 1}, "ports": ["eth0"]},
        limits={"rate_in_mbps": 5},
        controllers=["tls:10.0.0.9:1"],
    )
    assert [text.split(": ")[0] for text in found] == [
        "slice web", "slice web", *(f"slice web, rule {number}" for number in range(5)),
    ]  # fmt: skip
    for words, text in zip(
        ("tcp only", "limits no traffic", "no such field", "VLAN", "masks and ranges", "masks", "number"),
        (found[0], *found[1:]),
        strict=True,
    ):
        assert words in text


def test_slices_need_a_controller_each_of_its_own() -> None:
    assert "exactly one controller" in refusals({"match": {"vlan_vid": 1}}, controllers=[])[0]
    slices = [
        {"name": name, "controllers": CONTROLLER, "flowspace": [{"match": {"vlan_vid": number}}]}
        for number, name in enumerate(("one", "two"), 1)
    ]
    with pytest.raises(PreflightError, match=r"slices one and two have the same controller 10\.0\.0\.9:6700"):
        desired_of(parse({"slices": slices}, "test"))


def test_what_flowvisor_does_otherwise_is_told() -> None:
    warnings = " ".join(desired({"ports": [1]}, {"match": {"vlan_vid": 5}, "priority": 7}).warnings)
    for words in ("packet-outs", "rewrite vlan_vid out of", "production has no controller"):
        assert words in warnings


LOWER, UPPER = ["tcp:10.0.0.9:6701"], ["tcp:10.0.0.9:6702"]


def overlap(lower: dict[str, Any], upper: dict[str, Any], permissions: list[str]) -> str:
    """The refusal of two slices, the lower with these permissions; empty if they are possible."""
    slices = [
        {"name": "low", "controllers": LOWER, "permissions": permissions, "flowspace": [{"priority": 5, **lower}]},
        {"name": "up", "controllers": UPPER, "flowspace": [{"priority": 6, **upper}]},
    ]
    try:
        desired_of(parse({"slices": slices}, "test"))
    except PreflightError as error:
        assert len(error.refusals) == 1
        return error.refusals[0]
    return ""


@pytest.mark.parametrize(
    ("lower", "upper", "refused"),
    [
        ({"match": {"vlan_vid": 5}}, {"match": {"vlan_vid": 6}}, False),
        ({"match": {"vlan_vid": 5}}, {"match": {"vlan_vid": "none"}}, False),
        ({"match": {"vlan_vid": 5}}, {"match": {"vlan_vid": 5, "eth_type": 0x0806}}, True),
        ({"match": {"vlan_vid": 5}}, {"match": {"eth_type": 0x0806}}, True),
        ({"match": {"vlan_vid": 5}, "switches": [1]}, {"match": {"vlan_vid": 5}, "switches": [2]}, False),
        ({"match": {"vlan_vid": 5}, "ports": [1]}, {"match": {"vlan_vid": 5}, "ports": [2]}, False),
        ({"match": {"vlan_vid": 5}, "ports": [1]}, {"match": {"vlan_vid": 5}, "ports": [2, 1]}, True),
        ({"match": {"ipv4_src": "10.0.0.0/8"}}, {"match": {"ipv4_src": "10.9.0.0/16"}}, True),
        ({"match": {"ipv4_src": "10.0.0.0/16"}}, {"match": {"ipv4_src": "10.9.0.0/16"}}, False),
        ({"match": {"ipv4_src": "10.0.0.0/8"}}, {"match": {"arp_spa": "10.0.0.1"}}, False),
        ({"match": {"eth_src": "02:00:00:00:00:01"}}, {"match": {"eth_src": "02:00:00:00:00:02"}}, False),
    ],
)
def test_slices_that_share_packets_are_refused_where_the_lower_has_write(
    lower: dict[str, Any], upper: dict[str, Any], refused: bool
) -> None:
    found = overlap(lower, upper, ["read", "write"])
    assert found.startswith("slices low (") is refused and ("share packets" in found) is refused
    assert overlap(lower, upper, ["read"]) == ""


def test_production_with_write_is_above_nothing_and_so_refused_beside_other_slices() -> None:
    slices = [
        {"name": "production", "controllers": ["tcp:127.0.0.1:6653"]},
        {"name": "web", "controllers": CONTROLLER, "flowspace": [{"match": {"vlan_vid": 5}}]},
    ]
    with pytest.raises(PreflightError, match=r"slices production \(every packet, priority 0\) and web .*carry them"):
        desired_of(parse({"slices": slices}, "test"))
    slices[0]["permissions"] = ["read"]
    assert len(desired_of(parse({"slices": slices}, "test")).rules) == 2


@pytest.mark.parametrize(
    "match",
    [{"tcp_dst": 80}, {"udp_src": 53}, {"eth_type": 0x86DD, "ip_proto": 6}, {"eth_type": 0x86DD, "ip_dscp": 8}],
)
def test_what_is_in_ipv6_packets_is_refused(match: dict[str, Any]) -> None:
    (found,) = refusals({"match": match})
    assert "FlowVisor looks into IPv4 only" in found
    assert matches({"match": {"eth_type": 0x86DD}}) == [{"dl_type": 0x86DD}]


def test_datapath_ids_that_flowvisor_fails_at_are_refused() -> None:
    (found,) = refusals({"match": {"vlan_vid": 1}, "switches": [1, 1 << 63]})
    assert found.startswith("slice web, rule 0: switch 80:00:00:00:00:00:00:00: ")
    assert len(desired({"match": {"vlan_vid": 1}, "switches": [(1 << 63) - 1]}).rules) == 1


def test_names_that_flowvisor_has_for_itself_or_no_room_for_are_refused() -> None:
    assert "slice fvadmin: this name is that of FlowVisor's operator" in refusals(name="fvadmin")
    for length, refused in ((44, False), (45, True)):
        each = Slice("a" * length, controllers=(Controller("10.0.0.9"),))
        try:
            desired_of(SliceModel({each.name: each}))
        except PreflightError as error:
            assert refused and "at most 44 characters" in str(error)
        else:
            assert not refused
    assert len(FvRule("a" * 44, 6, 1, None, {}).name) == 64


def test_production_gets_what_is_left() -> None:
    slices = [{"name": "production", "controllers": ["tcp:127.0.0.1:6653"]}]
    (rule,) = desired_of(parse({"slices": slices}, "test")).rules.values()
    assert (rule.priority, dict(rule.match), rule.dpid, rule.permission) == (0, {}, None, 6)


ports = st.integers(0, 65535)
rules = st.builds(
    FvRule,
    st.sampled_from(["web", "lab"]),
    st.sampled_from([2, 6]),
    st.integers(0, 60000),
    st.one_of(st.none(), st.integers(0, 2**64 - 2)),
    st.fixed_dictionaries(
        {},
        optional={
            "in_port": ports, "dl_type": ports, "dl_vlan": ports, "tp_src": ports, "tp_dst": ports,
            "nw_proto": st.integers(0, 255), "nw_tos": st.integers(0, 255), "dl_vpcp": st.integers(0, 7),
            "nw_src": st.sampled_from(["10.0.0.1", "10.0.0.0/8"]), "dl_dst": st.just("02:00:00:00:00:01"),
        },
    ),
)  # fmt: skip


@given(rules)
def test_what_is_read_back_is_what_was_told(rule: FvRule) -> None:
    entry = rule.document()
    assert len(entry["name"]) <= 64
    signed = ("in_port", "dl_type", "dl_vlan", "tp_src", "tp_dst")
    match = {k: v - 65536 if k in signed and v > 32767 else v for k, v in entry["match"].items()}
    entry |= {"id": 1, "match": {**match, "wildcards": 0}}
    if rule.dpid is None:
        entry["dpid"] = "all_dpids"
    assert rules_of(entry) == (rule,)
    assert rules_of(entry)[0].name == rule.name


@given(st.integers(0, 2**64 - 2))
def test_datapath_ids_are_read_as_they_are_written(dpid: int) -> None:
    assert dpid_of(dpid_text(dpid)) == dpid


@given(rules, rules)
def test_two_entries_share_packets_exactly_if_no_field_keeps_them_apart(one: FvRule, other: FvRule) -> None:
    def apart(key: str) -> bool:
        mine, theirs = one.match.get(key), other.match.get(key)
        if mine is None or theirs is None:
            return False
        if key.startswith("nw_s"):
            return not IPv4Network(str(mine)).overlaps(IPv4Network(str(theirs)))
        return mine != theirs

    switches = None not in (one.dpid, other.dpid) and one.dpid != other.dpid
    common = not switches and not any(apart(key) for key in one.match)
    assert bool(list(shared([one], [other]))) is common
