"""Users who join slices with their own traffic: what becomes the slice's, and what never does."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core.checking import Place, Problems
from hyroads.controller.core.errors import ConfigError
from hyroads.slices.core.change import changed, check
from hyroads.slices.core.delegation import Principal
from hyroads.slices.core.delegation import check as check_owner
from hyroads.slices.core.errors import ConflictError, NotAllowedError
from hyroads.slices.core.match import ALL, TernaryMatch, of_fields
from hyroads.slices.core.model import OptIn, SliceModel, token_hash
from hyroads.slices.core.opt_in import (
    TakenError,
    documents,
    joined,
    left,
    member,
    member_changes,
    member_of,
    open_to,
    read_documents,
    requests_of,
    seated,
)
from hyroads.slices.core.slicefile import document_of, parse, parse_matches
from hyroads.slices.core.users import User, load_users, users_of

MANY = (ALL,)


def users(document: Mapping[str, Any]) -> dict[str, User]:
    problems = Problems("users")
    found = users_of(Place(document, problems))
    problems.raise_if_any()
    return found


def user(number: int, **more: Any) -> dict[str, Any]:
    return {"token_sha256": token_hash(f"user {number}"), **more}


USERS = users(
    {
        "ann": user(1, addresses=["10.0.0.1", "fd00::1"], macs=["02:00:00:00:00:01"]),
        "bob": user(2, addresses=["10.0.0.2"], macs=["02:00:00:00:00:02"]),
        "eve": user(3, addresses=["10.0.0.3"]),
    }
)
WEB = {"name": "web", "opt_in": {"match": [{"tcp_dst": 80}, {"tcp_src": 80}]}}
LAB = {"name": "lab", "opt_in": {}}


def model(*slices: dict[str, Any]) -> SliceModel:
    return parse({"slices": list(slices)}, "slices.yaml")


def owner(of: SliceModel, header: TernaryMatch) -> str:
    """Whose a packet is that is given by all its bits, at any port."""
    held = [
        (rule.priority, name)
        for name, each in of.slices.items()
        for rule in each.rules
        if any(match.has(header.value) for match in rule.matches)
    ]
    return max(held, default=(0, "production"))[1]


def packet(**fields: Any) -> TernaryMatch:
    base = {"eth_src": 0x020000000063, "eth_dst": 0x020000000064, "eth_type": 0x800}
    return of_fields({**base, **fields})


# -- containment ------------------------------------------------------------------------------------------------------


HOSTS = [0x0A000001, 0x0A000002, 0x0A000003, 0x0A000009]
MACS = [0x020000000001, 0x020000000002, 0x020000000009]


def test_a_users_rules_have_the_users_own_packets_and_all_of_them() -> None:
    joined_model = joined(model(LAB), "lab", USERS["ann"], MANY)
    for source, target, mac, other in product(HOSTS, HOSTS, MACS, MACS):
        header = packet(eth_src=mac, eth_dst=other, ipv4_src=source, ipv4_dst=target)
        hers = HOSTS[0] in {source, target} or MACS[0] in {mac, other}
        assert (owner(joined_model, header) == "lab") == hers, (source, target, mac, other)
    for spa, tpa in product(HOSTS, HOSTS):
        header = packet(eth_type=0x806, arp_spa=spa, arp_tpa=tpa)
        assert (owner(joined_model, header) == "lab") == (HOSTS[0] in {spa, tpa})


def test_ipv6_with_its_neighbour_discovery() -> None:
    lab = joined(model(LAB), "lab", replace(USERS["ann"], macs=()), MANY)
    ann, other = 0xFD << 120 | 1, 0xFD << 120 | 2
    assert owner(lab, packet(eth_type=0x86DD, ipv6_src=ann, ipv6_dst=other)) == "lab"
    assert owner(lab, packet(eth_type=0x86DD, ipv6_src=other, ipv6_dst=ann)) == "lab"
    asked = {"eth_type": 0x86DD, "ip_proto": 58, "ipv6_src": other, "ipv6_dst": 0xFF02 << 112}
    for kind in (135, 136):
        assert owner(lab, packet(**asked, icmpv6_type=kind, ipv6_nd_target=ann)) == "lab"
        assert owner(lab, packet(**asked, icmpv6_type=kind, ipv6_nd_target=other)) == "production"


def test_only_what_the_slice_takes_and_the_user_gives() -> None:
    asked = parse_matches({"ipv4_dst": "10.0.0.9"}, "opt-in")
    web = joined(model(WEB), "web", USERS["ann"], asked)
    tcp = {"ip_proto": 6, "ipv4_src": HOSTS[0], "tcp_src": 5000}
    assert owner(web, packet(**tcp, ipv4_dst=HOSTS[3], tcp_dst=80)) == "web"
    assert owner(web, packet(**tcp, ipv4_dst=HOSTS[3], tcp_dst=81)) == "production"
    assert owner(web, packet(**tcp, ipv4_dst=HOSTS[1], tcp_dst=80)) == "production"
    with pytest.raises(ConflictError, match="nothing of the user's own traffic"):
        joined(model(WEB), "web", USERS["eve"], parse_matches({"ipv4_src": "10.0.0.1", "ipv4_dst": "10.0.0.2"}, "x"))
    with pytest.raises(ConflictError, match="matches, expected at most 256"):
        joined(model(LAB), "lab", USERS["ann"], parse_matches({"tcp_dst": list(range(1, 200, 2))}, "x"))


FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "ipv4_src": st.sampled_from(["10.0.0.0/30", "10.0.0.1", "10.0.0.2"]),
        "ipv4_dst": st.sampled_from(["10.0.0.0/8", "10.0.0.1", "10.0.0.9"]),
        "tcp_dst": st.sampled_from([80, "80-95"]),
        "eth_src": st.sampled_from(["02:00:00:00:00:01", "02:00:00:00:00:02"]),
    },
)


@examples(200)
@given(FIELDS, FIELDS, st.sampled_from(sorted(USERS)))
def test_whatever_is_asked_nothing_of_anybody_else_comes_in(
    takes: dict[str, Any], gives: dict[str, Any], name: str
) -> None:
    who = USERS[name]
    policy, asked = OptIn(matches=parse_matches(takes, "x")), parse_matches(gives, "x")
    try:
        rules = member_of(who, policy, asked).rules
    except ConflictError:
        rules = ()
    for source, target, mac, port in product(HOSTS, HOSTS, MACS, (80, 81, 99)):
        header = packet(eth_src=mac, ipv4_src=source, ipv4_dst=target, ip_proto=6, tcp_src=9, tcp_dst=port).value
        own = {source, target} & {int(a) for a in who.addresses} or mac in who.macs
        wanted = own and all(any(match.has(header) for match in some) for some in (policy.matches, asked))
        assert any(match.has(header) for rule in rules for match in rule.matches) == bool(wanted)


def test_between_users_of_two_slices_the_sender_decides() -> None:
    both = joined(joined(model(LAB, WEB | {"opt_in": {}}), "lab", USERS["ann"], MANY), "web", USERS["bob"], MANY)
    ann, bob = HOSTS[:2]
    assert owner(both, packet(ipv4_src=ann, ipv4_dst=bob)) == "lab"
    assert owner(both, packet(ipv4_src=bob, ipv4_dst=ann)) == "web"
    assert owner(both, packet(eth_src=MACS[1], ipv4_src=ann, ipv4_dst=0x0A000009)) == "web", "by MAC address first"


# -- who may, and when ------------------------------------------------------------------------------------------------


def test_who_may_join() -> None:
    some = model(LAB | {"opt_in": {"users": ["ann", "bob"], "most_users": 1}}, {"name": "shut", "flowspace": []})
    lab = some.slices["lab"]
    assert open_to(lab, "ann") and not open_to(lab, "eve") and not open_to(some.slices["shut"], "ann")
    one = joined(some, "lab", USERS["ann"], MANY)
    with pytest.raises(ConflictError, match="1 users already"):
        joined(one, "lab", USERS["bob"], MANY)
    for name, who in (("lab", "eve"), ("shut", "ann"), ("production", "ann")):
        with pytest.raises(ConflictError, match="is not open for user"):
            joined(some, name, USERS[who], MANY)
    assert joined(one, "lab", USERS["ann"], MANY) == one, "the same again changes nothing"
    less = joined(one, "lab", USERS["ann"], parse_matches({"tcp_dst": 22}, "x"))
    assert list(member_changes(one, less, ["lab"])) == [("changed", "lab", "ann")]
    assert left(less, "lab", "ann") == some
    assert list(member_changes(less, some, ["lab"])) == [("removed", "lab", "ann")]


def test_a_slice_that_closes_keeps_its_users_and_gets_no_more() -> None:
    one = joined(model(LAB), "lab", USERS["ann"], MANY)
    shut, dropped = seated(model(LAB | {"opt_in": {"open": False}}), requests_of(one), USERS, one)
    assert member(shut.slices["lab"], "ann") is not None and not dropped
    with pytest.raises(ConflictError, match="not open"):
        joined(shut, "lab", USERS["bob"], MANY)
    assert joined(shut, "lab", USERS["ann"], parse_matches({"tcp_dst": 22}, "x")) != shut


def test_traffic_of_another_slice_at_the_same_priority_is_refused_and_above_it_stays() -> None:
    beside = {"name": "beside", "flowspace": [{"match": {"ipv4_src": "10.0.0.0/24"}, "priority": 53}]}
    with pytest.raises(TakenError, match="slice lab, user ann and slice beside, rule 0: both have priority 53"):
        joined(model(LAB, beside), "lab", USERS["ann"], MANY)
    above = {"name": "above", "flowspace": [{"match": {"ipv4_src": "10.0.0.0/24"}}]}
    one = joined(model(LAB, above), "lab", USERS["eve"], MANY)
    assert owner(one, packet(ipv4_src=HOSTS[2], ipv4_dst=HOSTS[3])) == "above"
    assert owner(one, packet(ipv4_src=0x0A010009, ipv4_dst=HOSTS[2])) == "lab"
    with pytest.raises(TakenError):
        joined(joined(model(LAB, WEB), "lab", USERS["ann"], MANY), "web", USERS["ann"], MANY)


def test_users_are_in_nobodys_way() -> None:
    one = model(LAB, WEB)
    for name in USERS:
        one = joined(one, "lab" if name != "bob" else "web", USERS[name], MANY)
    # Bob sends by this; the operator wants it for somebody else.
    new, _ = changed(one.declared, parse({"slices": [{"name": "n", "flowspace": [
        {"match": {"ipv4_src": "10.0.0.2"}, "priority": 53}]}]}, "x").slices.values())  # fmt: skip
    after, dropped = seated(new, requests_of(one), USERS, one)
    assert [(each.slice, each.user) for each in dropped] == [("web", "bob")]
    assert "slice n" in dropped[0].reason
    assert after.slices["lab"] is one.slices["lab"] and not after.slices["web"].members
    check(after, after.slices)


def test_who_is_no_user_any_more_or_not_of_the_slice_is_taken_out() -> None:
    one = joined(joined(model(LAB), "lab", USERS["ann"], MANY), "lab", USERS["bob"], MANY)
    fewer = {name: each for name, each in USERS.items() if name != "ann"}
    after, dropped = seated(one.declared, requests_of(one), fewer, one)
    assert [m.user for m in after.slices["lab"].members] == ["bob"] and [d.user for d in dropped] == ["ann"]
    moved = {**USERS, "ann": replace(USERS["ann"], addresses=USERS["ann"].addresses[:0])}
    after, dropped = seated(one.declared, requests_of(one), moved, one)
    assert not dropped and owner(after, packet(ipv4_src=HOSTS[0], ipv4_dst=HOSTS[3])) == "production"
    for slices in ([LAB | {"opt_in": {"users": []}}], [{"name": "lab"}], []):
        after, dropped = seated(model(*slices), requests_of(one), USERS, one)
        assert len(dropped) == 2 and not documents(after)


@pytest.mark.parametrize("seed", range(5))
def test_of_many_users_exactly_those_go_who_do_not_fit(seed: int) -> None:
    rng = random.Random(seed)
    many = users({f"u{n}": user(n, addresses=[f"10.0.{n // 250}.{n % 250 + 1}"]) for n in range(300)})
    one, dropped = seated(model(LAB), {"lab": requests_of_all(many)}, many)
    assert not dropped and len(one.slices["lab"].members) == 300
    gone = rng.sample(sorted(many), 7)
    taken = [{"match": {"ipv4_dst": str(many[name].addresses[0])}, "priority": 51} for name in gone]
    after, dropped = seated(model(LAB, {"name": "new", "flowspace": taken}), requests_of(one), many, one)
    assert {each.user for each in dropped} == set(gone)
    check(after, after.slices)


def requests_of_all(many: Mapping[str, User]) -> Any:
    document = [{"slice": "lab", "user": name, "match": [{}]} for name in many]
    return read_documents(document, "state")["lab"]


# -- children ---------------------------------------------------------------------------------------------------------


PARENT = {
    "name": "campus",
    "owner_token_sha256": token_hash("owner"),
    "permissions": ["read", "write", "delegate"],
    "flowspace": [{"match": {"vlan_vid": 100}}],
    "opt_in": {"priority": 100 + 200},
}
COUNTED = ("tables", "flow_entries", "groups", "meters", "packet_ins_per_s", "flow_mods_per_s")
SMALL = {"limits": dict.fromkeys(COUNTED, 1)}


def child(**opt_in: Any) -> dict[str, Any]:
    return {
        "name": "part",
        "parent": "campus",
        **SMALL,
        "opt_in": {"priority": 101, "match": {"vlan_vid": 100}, **opt_in},
    }


def test_what_users_bring_into_a_child_is_its_parents() -> None:
    one = joined(model(PARENT, child()), "part", USERS["eve"], MANY)
    assert owner(one, packet(vlan_vid=0x1064, ipv4_src=HOSTS[2])) == "part"
    assert owner(one, packet(vlan_vid=0x1065, ipv4_src=HOSTS[2])) == "production"
    for wrong in ({"match": {}}, {"match": {"vlan_vid": 101}}, {"priority": 106}, {"priority": 100}):
        with pytest.raises(ConfigError, match="slice part, opt_in: "):
            model(PARENT, child(**wrong))


def test_what_users_brought_is_not_the_parents_to_give_out() -> None:
    one = joined(model(PARENT), "campus", USERS["eve"], MANY)
    rule = {"match": {"ipv4_src": "10.0.0.3"}, "priority": 305}
    part = model(PARENT, child()).slices["part"]
    rules = model({"name": "x", "flowspace": [rule]}).slices["x"].flowspace
    taking = replace(part, opt_in=None, flowspace=rules)
    assert owner(one, packet(ipv4_src=HOSTS[2])) == "campus"
    with pytest.raises(ConflictError, match="are not in the flowspace of its parent campus"):
        changed(one, [taking])


def test_an_owner_opens_closes_and_names_fewer_users() -> None:
    before = model(PARENT | {"opt_in": {"users": ["ann", "bob"]}}, {"name": "other"})
    campus, own = before.slices["campus"], Principal(slices=frozenset({"campus"}))
    assert campus.opt_in is not None
    for allowed in ({"open": False}, {"users": frozenset({"ann"})}, {"most_users": 3}):
        check_owner(before, own, [replace(campus, opt_in=replace(campus.opt_in, **allowed))], (), ())
    for denied in ({"users": None}, {"users": frozenset({"ann", "eve"})}, {"most_users": 101}, {"priority": 7},
                   {"matches": (TernaryMatch(1, 1),)}, {"ports": frozenset({1})}):  # fmt: skip
        with pytest.raises(NotAllowedError, match="not opt_in"):
            check_owner(before, own, [replace(campus, opt_in=replace(campus.opt_in, **denied))], (), ())
    with pytest.raises(NotAllowedError, match="not opt_in"):
        check_owner(before, own, [replace(campus, opt_in=None)], (), ())


# -- documents --------------------------------------------------------------------------------------------------------


def test_documents_survive_writing_and_reading() -> None:
    slices = [LAB | {"opt_in": {"open": False, "users": ["ann"], "match": {"tcp_dst": [80, 443]}, "priority": 7,
                                "switches": [1], "ports": ["p1", 2], "most_users": 3}}, WEB]  # fmt: skip
    before = model(*slices)
    assert parse(document_of(before), "again") == before
    one = joined(model(LAB, WEB), "lab", USERS["ann"], parse_matches({"tcp_dst": "80-95"}, "x"))
    assert parse(document_of(one), "again") == one.declared, "users are no part of the slices' document"
    after, dropped = seated(one.declared, read_documents(documents(one), "state"), USERS)
    assert after == one and not dropped


def test_a_slice_that_is_open_has_its_tables_before_anybody_joins() -> None:
    some = model({"name": "a", "opt_in": {"switches": [2]}}, {"name": "b"}).slices
    assert some["a"].switches(frozenset({1, 2})) == {2} and not some["b"].switches(frozenset({1, 2}))


@pytest.mark.parametrize(
    ("opt_in", "place"),
    [
        ({"priority": 59_997}, "opt_in.priority"),
        ({"priority": 0}, "opt_in.priority"),
        ({"users": "ann"}, "opt_in.users"),
        ({"users": [7]}, "opt_in.users[0]"),
        ({"match": {"in_port": 1}}, "opt_in.match.in_port"),
        ({"most_users": -1}, "opt_in.most_users"),
        ({"open": "yes"}, "opt_in.open"),
        ({"colour": 1}, "opt_in.colour"),
        ([], "opt_in"),
    ],
)
def test_one_clear_error(opt_in: Any, place: str) -> None:
    with pytest.raises(ConfigError) as error:
        model({"name": "a", "opt_in": opt_in})
    assert error.value.place == f"slices[0].{place}"


def test_production_is_not_joined() -> None:
    with pytest.raises(ConfigError, match="expected none"):
        model({"name": "production", "opt_in": {"open": True}})


@pytest.mark.parametrize(
    ("more", "place", "words"),
    [
        ({"eve": user(9)}, "eve", "expected addresses, or macs"),
        ({"eve": user(1, addresses=["10.0.0.9"])}, "eve", "the same token as user ann"),
        ({"eve": user(9, addresses=["10.0.0.1"])}, "eve", "the same address as user ann"),
        ({"eve": user(9, macs=["02:00:00:00:00:01"])}, "eve", "the same address as user ann"),
        ({"eve": user(9, addresses=["10.0.0.0/8"])}, "eve.addresses[0]", "an IPv4 or IPv6 address"),
        ({"eve": user(9, addresses=[167772161])}, "eve.addresses[0]", "an IPv4 or IPv6 address"),
        ({"eve": user(9, addresses=["224.0.0.1"])}, "eve.addresses[0]", "one host"),
        ({"eve": user(9, addresses=["255.255.255.255"])}, "eve.addresses[0]", "one host"),
        ({"eve": user(9, addresses=["::"])}, "eve.addresses[0]", "one host"),
        ({"eve": user(9, macs=["01:00:5e:00:00:01"])}, "eve.macs[0]", "unicast"),
        ({"eve": user(9, macs=["0a:53:4c:43:00:01"])}, "eve.macs[0]", "the slicer marks"),
        ({"eve": user(9, addresses=[f"10.1.0.{n}" for n in range(17)])}, "eve.addresses", "at most 16"),
        ({"me": user(9, addresses=["10.0.0.9"])}, "me", "whoever asks"),
        ({"eve": {"addresses": ["10.0.0.9"]}}, "eve.token_sha256", "missing"),
        ({"eve": {"token_sha256": "my token", "addresses": ["10.0.0.9"]}}, "eve.token_sha256", "64 hexadecimal"),
    ],
)
def test_wrong_users_are_named(more: dict[str, Any], place: str, words: str) -> None:
    ann = {"ann": user(1, addresses=["10.0.0.1"], macs=["02:00:00:00:00:01"])}
    with pytest.raises(ConfigError) as error:
        users({**ann, **more})
    assert error.value.place == place and words in error.value.problem
    assert "my token" not in str(error.value)


def test_users_of_a_file() -> None:
    text = f"ann: {{token_sha256: {'0' * 64}, addresses: [10.0.0.1]}}"
    assert load_users(text, "users.yaml")["ann"].addresses == USERS["ann"].addresses[:1]
