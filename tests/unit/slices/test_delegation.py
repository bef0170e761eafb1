"""Children lie within their parents: flowspace against enumeration, limits, permissions, what others may not do."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from examples import examples
from hypothesis import assume, given
from hypothesis import strategies as st

from hyroads.controller.core.errors import ConfigError
from hyroads.slices.core.change import changed
from hyroads.slices.core.delegation import BAND, default_limits, own_limits, queue_of
from hyroads.slices.core.errors import ConflictError
from hyroads.slices.core.match import TernaryMatch
from hyroads.slices.core.model import FlowspaceRule, Permission, Slice, SliceModel
from hyroads.slices.core.slicefile import document_of, parse, parse_slice

LAB: dict[str, Any] = {
    "name": "lab",
    "permissions": ["read", "write", "delegate"],
    "flowspace": [{"switches": [1, 2], "ports": [1, 2, "up"], "match": {"vlan_vid": 100}}],
    "limits": {"tables": 8, "flow_entries": 100, "rate_in_mbps": 20, "airtime_share": {"wifi": 0.4}},
}
WEB: dict[str, Any] = {
    "name": "web",
    "flowspace": [{"priority": 105, "switches": [1], "match": {"tcp_dst": 80, "vlan_vid": 100}}],
}


def child(**more: Any) -> dict[str, Any]:
    limits = {"tables": 2, "flow_entries": 10, "rate_in_mbps": 5, "groups": 10, "meters": 10, "packet_ins_per_s": 10,
              "flow_mods_per_s": 10, **more.pop("limits", {})}  # fmt: skip
    rule = {"priority": 101, "switches": [1], "ports": [1], "match": {"vlan_vid": 100}, **more.pop("rule", {})}
    return {"name": "lab-a", "parent": "lab", "flowspace": [rule], "limits": limits, **more}


def model(*documents: dict[str, Any]) -> SliceModel:
    return parse({"slices": list(documents)}, "slices.yaml")


def refusal(*documents: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as error:
        model(*documents)
    return error.value.problem


def test_a_child_within_its_parent_is_kept_and_written() -> None:
    found = model(LAB, WEB, child())
    assert found.family("lab") == {"lab", "lab-a"} and found.slices["lab-a"].parent == "lab"
    assert parse(document_of(found), "again") == found


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"switches": [3]}, "vlan_vid=100 on switch 0x3, port 1 are not in the flowspace of its parent lab"),
        ({"switches": "all"}, "on other switches, port 1 are not in the flowspace"),
        ({"ports": [3]}, "on switch 0x1, port 3 are not in the flowspace"),
        ({"ports": "all"}, "on switch 0x1, other ports are not in the flowspace"),
        ({"ports": ["down"]}, "port down are not in the flowspace"),
        ({"match": {"vlan_vid": [100, 101]}}, "vlan_vid=101 on switch 0x1, port 1 are not"),
        ({"match": {"ipv4_dst": "10.0.0.1"}}, "are not in the flowspace"),
        ({"priority": 99}, "are not in the flowspace of its parent lab (its rules with priority 90 to 98)"),
        ({"priority": 110, "switches": [2]}, "(its rules with priority 101 to 109)"),
        ({"priority": 106}, "tcp_dst=80 on switch 0x1, port 1 are of slice web, rule 0"),
        ({"priority": 100}, "both have priority 100"),
    ],
)
def test_what_is_not_the_parents_is_refused_with_the_packets(rule: dict[str, Any], words: str) -> None:
    text = refusal(LAB, WEB, child(rule=rule))
    assert "slice lab-a, rule 0" in text and words in text


def test_below_others_and_at_its_own_places_a_child_is_free() -> None:
    model(LAB, WEB, child(rule={"priority": 104, "switches": [1, 2], "ports": [1, "up"]}))
    model(LAB, WEB, child(rule={"priority": 106, "switches": [2]}))
    model(LAB, WEB, child(rule={"priority": 106, "match": {"vlan_vid": 100, "udp_dst": 53}}))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"parent": "nobody"}, "its parent nobody is not there"),
        ({"parent": "web"}, "its parent web has no permission delegate"),
        ({"parent": "production"}, "no permission delegate"),
        ({"limits": {"flow_entries": 101}}, "has a limit flow_entries of 100, and its children together 101"),
        ({"limits": {"rate_in_mbps": 20}}, "something must stay"),
        ({"limits": {"tables": 9}}, "limit tables of 8"),
        ({"limits": {"airtime_share": {"wifi": 0.5}}}, "0.4 of the airtime of wifi, and its children together 0.5"),
        ({"limits": {"airtime_share": {"plc": 0.1}}}, "0 of the airtime of plc"),
    ],
)
def test_limits_and_parents(more: dict[str, Any], words: str) -> None:
    assert words in refusal(LAB, WEB, child(**more))


def test_without_a_rate_of_its_own_a_child_is_refused_and_permissions_are_handed_on_only() -> None:
    unlimited = child()
    del unlimited["limits"]["rate_in_mbps"]
    assert "each of its children needs one" in refusal(LAB, unlimited)
    read_only = {**LAB, "permissions": ["read", "delegate"]}
    assert "has no permission write" in refusal(read_only, child())


def test_what_is_given_is_taken_from_the_parent_but_its_tables() -> None:
    found = model(LAB, child(limits={"airtime_share": {"wifi": 0.1}}))
    left = own_limits(found, "lab")
    assert (left.flow_entries, left.rate_in_mbps, left.tables, left.groups) == (90, 15.0, 8, 990)
    assert left.airtime_share["wifi"] == pytest.approx(0.3)
    assert own_limits(found, "lab-a") == found.slices["lab-a"].limits
    quarter = default_limits(found.slices["lab"])
    assert (quarter.tables, quarter.flow_entries, quarter.rate_in_mbps, quarter.rate_out_mbps) == (2, 25, 5.0, None)


def test_children_leave_by_the_queue_of_the_nearest_parent_that_has_one() -> None:
    found = model(LAB, child())
    assert queue_of(found, "lab-a") is None and own_limits(found, "lab-a").queue is None
    held = {**LAB, "limits": {**LAB["limits"], "queue": 4, "rate_out_mbps": 9}}
    found = model(held, child())
    assert own_limits(found, "lab-a").queue == own_limits(found, "lab").queue == 4
    assert own_limits(found, "lab").rate_out_mbps == 9, "it is one rate for all of the family"
    assert own_limits(found, "production").queue is None
    found = model(held, child(limits={"queue": 5}))
    assert own_limits(found, "lab-a").queue == 5


def test_the_operator_is_told_whose_child_is_in_the_way_and_above_the_band_it_never_is() -> None:
    found = model(LAB, child(rule={"priority": 100 + BAND}))
    between = parse_slice({**WEB, "flowspace": [{"priority": 104, "match": {"vlan_vid": 100}}]}, "web")
    with pytest.raises(ConflictError, match=r"slice lab-a, rule 0: .* are of slice web, rule 0"):
        changed(found, [between])
    above = parse_slice({**WEB, "flowspace": [{"priority": 101 + BAND, "match": {"vlan_vid": 100}}]}, "web")
    assert "web" in changed(found, [above])[0].slices


def test_children_go_with_their_parent_and_not_without_a_word() -> None:
    found = model(LAB, child(permissions=["read", "write", "delegate"]), {**child(), "name": "deep", "parent": "lab-a",
                  "flowspace": [{**child()["flowspace"][0], "priority": 102}],
                  "limits": {**child()["limits"], **dict.fromkeys(("tables", "flow_entries", "groups", "meters"), 1),
                             "rate_in_mbps": 1, "packet_ins_per_s": 1, "flow_mods_per_s": 1}})  # fmt: skip
    assert set(changed(found, remove=["lab"])[0].slices) == {"production"}
    assert changed(found, remove=["lab-a"])[1].removed == {"lab-a", "deep"}
    smaller = parse_slice({**LAB, "flowspace": []}, "lab")
    with pytest.raises(ConflictError, match="not in the flowspace of its parent lab"):
        changed(found, [smaller])


def test_no_circle_and_no_deep_chain() -> None:
    one = {**LAB, "name": "a", "parent": "b"}
    assert "too many parents" in refusal(one, {**LAB, "name": "b", "parent": "a"})
    assert "too many parents" in refusal({**LAB, "name": "a", "parent": "a"})


# -- against enumeration ----------------------------------------------------------------------------------------------

BITS = 3
MATCHES = [TernaryMatch(value & mask, mask) for mask in range(1 << BITS) for value in range(1 << BITS)]
RULES = st.builds(
    FlowspaceRule,
    matches=st.tuples(st.sampled_from(MATCHES)),
    priority=st.integers(1, 14),
    switches=st.none() | st.frozensets(st.integers(1, 2), min_size=1),
    ports=st.none() | st.frozensets(st.integers(1, 2), min_size=1),
)
SLICES = st.lists(RULES, max_size=3).map(tuple)
DELEGATES = frozenset(Permission)


def owner(slices: dict[str, tuple[FlowspaceRule, ...]], dpid: int, port: int, header: int) -> tuple[str, int]:
    held = [
        (rule.priority, name)
        for name, rules in slices.items()
        for rule in rules
        if rule.on(dpid) and (rule.ports is None or port in rule.ports) and rule.matches[0].has(header)
    ]
    priority, name = max(held, default=(0, "production"))
    return name, priority


@examples(400)
@given(SLICES, SLICES, RULES)
def test_a_child_is_accepted_exactly_if_all_that_it_takes_was_its_parents(
    parent: tuple[FlowspaceRule, ...], other: tuple[FlowspaceRule, ...], rule: FlowspaceRule
) -> None:
    slices = [Slice("p", parent, permissions=DELEGATES), Slice("q", other)]
    try:
        before, _ = changed(SliceModel({}), slices)
    except ConflictError:
        assume(False)
    try:
        changed(before, [Slice("c", (rule,), limits=default_limits(slices[0]), parent="p")])
        accepted = True
    except ConflictError:
        accepted = False
    rules = {"p": parent, "q": other}
    places = [
        (dpid, port, header)
        for dpid, port, header in product((1, 2, 3), (1, 2, 3), range(1 << BITS))
        if rule.on(dpid) and (rule.ports is None or port in rule.ports) and rule.matches[0].has(header)
    ]
    if accepted:
        for place in places:
            name, priority = owner(rules, *place)
            # What somebody has above the child stays there; everything else was the parent's.
            assert priority > rule.priority or name == "p", place
    else:
        below = {
            n: tuple(r for r in rs if rule.priority - BAND <= r.priority < rule.priority) for n, rs in rules.items()
        }
        same = any(r.priority == rule.priority for rs in rules.values() for r in rs)
        assert same or any(owner(below, *place)[0] != "p" for place in places)
