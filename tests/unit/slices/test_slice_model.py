"""Files, conflicts and changes of slices; ownership of packets against enumeration."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from itertools import islice, product

import pytest
import yaml
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from hyroads.controller.core.errors import ConfigError
from hyroads.slices.core import change
from hyroads.slices.core.change import changed, check, conflicts, difference_of
from hyroads.slices.core.delegation import default_limits, reasons
from hyroads.slices.core.errors import ConflictError
from hyroads.slices.core.match import TernaryMatch, completed, describe
from hyroads.slices.core.model import (
    EMPTY,
    PRODUCTION,
    FlowspaceRule,
    Limits,
    OverlapIndex,
    Permission,
    Slice,
    SliceModel,
    token_hash,
)
from hyroads.slices.core.slicefile import document_of, load_text, parse, parse_slice, slice_document

CAMPUS = """
slices:
  - name: production
    controllers: [tcp:127.0.0.1:6653]
  - name: research
    owner_token_sha256: 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b
    controllers: ["tls:[2001:db8::1]:6654"]
    permissions: [read, write, delegate]
    flowspace:
      - {ports: [ap1-research], switches: [1, 0x2]}
      - {match: {vlan_vid: 100}, priority: 200}
    limits: {rate_in_mbps: 20, rate_out_mbps: 30, queue: 3, dscp: 10, airtime_share: {wifi-5: 0.25}, tables: 4}
    ssids: [{name: research, security: wpa2, passphrase_file: /etc/hyroads/research.key}]
  - name: web-of-ann
    flowspace:
      - name: both directions
        priority: 300
        match:
          - {ipv4_src: 10.0.0.5, tcp_dst: [80, 443, 8000-8003]}
          - {ipv4_dst: 10.0.0.5, tcp_src: [80, 443, 8000-8003]}
"""


def test_the_campus_example() -> None:
    model = load_text(CAMPUS, "campus.yaml")
    research, web = model.slices["research"], model.slices["web-of-ann"]
    assert str(research.controllers[0]) == "tls:[2001:db8::1]:6654"
    assert research.permissions == set(Permission)
    assert research.flowspace[0].ports == {"ap1-research"} and research.flowspace[0].switches == {1, 2}
    assert research.limits.airtime_share == {"wifi-5": 0.25}
    assert research.owned_by(token_hash("secret")) and not research.owned_by(token_hash("other"))
    assert not web.owned_by("") and not research.owned_by("secret")
    assert [describe(match) for match in web.flowspace[0].matches][:3] == [
        "eth_type=0x0800, ip_proto=6, ipv4_src=10.0.0.5, tcp_dst=80",
        "eth_type=0x0800, ip_proto=6, ipv4_src=10.0.0.5, tcp_dst=443",
        "eth_type=0x0800, ip_proto=6, ipv4_src=10.0.0.5, tcp_dst=0x1f40/0xfffc",
    ]
    assert research.switches(frozenset({1, 5})) == {1, 5}
    assert token_hash("secret") == research.owner_token_sha256


def test_production_is_always_there() -> None:
    assert set(EMPTY.slices) == {PRODUCTION}
    assert set(load_text("slices: []", "x.yaml").slices) == {PRODUCTION}


def test_documents_survive_writing_and_reading() -> None:
    model = load_text(CAMPUS, "campus.yaml")
    document = document_of(model)
    assert parse(document, "again") == model
    assert load_text(json.dumps(document), "again.json") == model
    assert load_text(yaml.safe_dump(document), "again.yaml") == model
    for each in model.slices.values():
        assert parse_slice(slice_document(each), "one") == each


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("slices: {}", "slices", "expected a list"),
        ("slices: [{name: a b}]", "slices[0].name", "letters, digits"),
        ("slices: [{name: a}, {name: a}]", "slices[1].name", "duplicate slice 'a'"),
        ("slices: [{name: a, flowspce: []}]", "slices[0].flowspce", "did you mean 'flowspace'"),
        ("slices: [{name: production, flowspace: [{}]}]", "slices[0].flowspace", "owns what no other slice does"),
        ("slices: [{name: a, owner_token_sha256: secret}]", "slices[0].owner_token_sha256", "64 hexadecimal"),
        ("slices: [{name: a, controllers: [http://x]}]", "slices[0].controllers[0]", "like tcp:192.0.2.1:6653"),
        ("slices: [{name: a, controllers: ['tcp:x:99999']}]", "slices[0].controllers[0]", "like tcp:"),
        ("slices: [{name: a, permissions: [all]}]", "slices[0].permissions[0]", "read, write or delegate"),
        ("slices: [{name: a, flowspace: [{priority: 60001}]}]", "slices[0].flowspace[0].priority", "from 1 to 60000"),
        ("slices: [{name: a, flowspace: [{ports: [0]}]}]", "slices[0].flowspace[0].ports[0]", "port number from 1"),
        ("slices: [{name: a, flowspace: [{switches: []}]}]", "slices[0].flowspace[0].switches", "datapath ids"),
        (
            "slices: [{name: a, flowspace: [{match: {in_port: 1}}]}]",
            "slices[0].flowspace[0].match.in_port",
            "use ports",
        ),
        (
            "slices: [{name: a, flowspace: [{match: {metadata: 1}}]}]",
            "slices[0].flowspace[0].match.metadata",
            "not part",
        ),
        (
            "slices: [{name: a, flowspace: [{match: {tcp_port: 1}}]}]",
            "slices[0].flowspace[0].match.tcp_port",
            "unknown",
        ),
        ("slices: [{name: a, flowspace: [{match: {tcp_dst: [80, x]}}]}]", "flowspace[0].match.tcp_dst[1]", "a number"),
        (
            "slices: [{name: a, flowspace: [{match: {tcp_dst: 1, udp_dst: 2}}]}]",
            "flowspace[0].match",
            "no packet has all",
        ),
        ("slices: [{name: a, flowspace: [{match: []}]}]", "flowspace[0].match", "mapping of match fields"),
        ("slices: [{name: a, flowspace: [{match: {tcp_dst: 1-65534, tcp_src: 1-65534}}]}]", "match", "at most 1024"),
        ("slices: [{name: a, limits: {rate_out_mbps: 5}}]", "slices[0].limits.rate_out_mbps", "needs queue"),
        ("slices: [{name: a, limits: {dscp: 46}}]", "slices[0].limits.dscp", "needs queue"),
        ("slices: [{name: a, limits: {dscp: 64, queue: 1}}]", "slices[0].limits.dscp", "from 0 to 63"),
        ("slices: [{name: a, limits: {queue: 0}}]", "slices[0].limits.queue", "from 1 to 61439"),
        (
            "slices: [{name: a, limits: {queue: 1, rate_out_mbps: 1, rate_out_least_mbps: 2}}]",
            "slices[0].limits.rate_out_least_mbps",
            "at most rate_out_mbps",
        ),
        (
            "slices: [{name: a, limits: {queue: 7}}, {name: b, limits: {queue: 7}}]",
            "slices",
            "slice a and slice b have the same queue 7",
        ),
        ("slices: [{name: a, limits: {rate_in_mbps: 0}}]", "slices[0].limits.rate_in_mbps", "above 0"),
        ("slices: [{name: a, limits: {airtime_share: {w: 2}}}]", "slices[0].limits.airtime_share.w", "from 0 to 1"),
        ("slices: [{name: a, ssids: [{name: x, security: wpa2}]}]", "slices[0].ssids[0].passphrase_file", "file name"),
        ("slices: [{name: a, ssids: [{name: " + "x" * 33 + "}]}]", "slices[0].ssids[0].name", "1 to 32 bytes"),
        (
            "slices: [{name: a, limits: {airtime_share: {w: 0.7}}}, {name: b, limits: {airtime_share: {w: 0.7}}}]",
            "slices",
            "airtime shares of w add up to 1.4",
        ),
    ],
)
def test_one_clear_error(text: str, place: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_text(text, "s.yaml")
    assert caught.value.document == "s.yaml"
    assert caught.value.place.endswith(place)
    assert problem in caught.value.problem
    assert "\n" not in str(caught.value)


def test_a_token_in_the_place_of_its_hash_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        load_text("slices: [{name: a, owner_token_sha256: my-real-token}]", "s.yaml")
    assert "my-real-token" not in str(caught.value)


def one(name: str, fields: dict[str, object], **more: object) -> Slice:
    return Slice(name, (FlowspaceRule(completed(fields), **more),))


def test_overlaps_of_equal_priority_are_conflicts_with_a_reason() -> None:
    model, change = changed(EMPTY, [one("a", {"ipv4_dst": (0x0A010000, 0xFFFF0000)})])
    assert change.added == {"a"} and change.names == {"a"}
    with pytest.raises(ConflictError) as caught:
        changed(model, [one("b", {"tcp_dst": 80})])
    assert str(caught.value) == (
        "slice b, rule 0 and slice a, rule 0: both have priority 100 and match "
        "eth_type=0x0800, ip_proto=6, ipv4_dst=10.1.0.0/16, tcp_dst=80 on every switch"
    )
    assert changed(model, [one("b", {"tcp_dst": 80}, priority=200)])[1].added == {"b"}
    assert changed(model, [one("b", {"udp_dst": 80, "eth_type": 0x86DD})])[1].added == {"b"}


@pytest.mark.parametrize(
    ("mine", "theirs", "reason"),
    [
        ({"switches": frozenset({1})}, {"switches": frozenset({2})}, None),
        ({"switches": frozenset({1, 2})}, {"switches": frozenset({2})}, "on switch 0x2"),
        ({"ports": frozenset({1})}, {"ports": frozenset({2})}, None),
        ({"ports": frozenset({1, "x"})}, {"ports": frozenset({"x"})}, "on every switch, port x"),
        ({"ports": frozenset({"y"})}, {"ports": frozenset({"x"})}, None),
        ({"ports": frozenset({1})}, {"ports": frozenset({"x"})}, "where port x may be port 1"),
        ({"ports": frozenset({1}), "switches": frozenset({7})}, {}, "on switch 0x7, port 1"),
    ],
)
def test_switches_and_ports_keep_slices_apart(mine: dict, theirs: dict, reason: str | None) -> None:
    model, _ = changed(EMPTY, [one("a", {}, **theirs)])
    if reason is None:
        changed(model, [one("b", {}, **mine)])
        return
    with pytest.raises(ConflictError, match=reason):
        changed(model, [one("b", {}, **mine)])


def test_airtime_shares_may_add_up_to_all_of_it_and_no_more() -> None:
    def with_shares(*shares: float) -> list[Slice]:
        return [Slice(f"s{i}", limits=Limits(airtime_share={"wifi": share})) for i, share in enumerate(shares)]

    model, _ = changed(EMPTY, with_shares(0.5, 0.25, 0.25))
    assert len(model.slices) == 4
    with pytest.raises(ConflictError, match="airtime"):
        changed(EMPTY, with_shares(0.5, 0.25, 0.26))


def test_a_refused_change_leaves_everything_as_it_was() -> None:
    model, _ = changed(EMPTY, [one("a", {"tcp_dst": 80})])
    before = dict(model.slices)
    with pytest.raises(ConflictError):
        changed(model, [one("c", {"udp_dst": 1}), one("b", {"tcp_dst": 80})], remove=["a", "nobody"])
    with pytest.raises(ConflictError):
        changed(model, remove=[PRODUCTION])
    assert dict(model.slices) == before


def test_a_change_is_checked_as_a_whole() -> None:
    model, _ = changed(EMPTY, [one("a", {"tcp_dst": 80})])
    new, change = changed(model, [one("b", {"tcp_dst": 80})], remove=["a"])
    assert (change.added, change.removed, change.changed) == ({"b"}, {"a"}, frozenset())
    assert not difference_of(new, new) and difference_of(model, new) == change
    with pytest.raises(ConflictError):
        changed(EMPTY, [one("a", {"tcp_dst": 80}), one("b", {"tcp_dst": 80})])
    with pytest.raises(TypeError):
        new.slices["x"] = one("x", {})  # type: ignore[index]


SMALL = st.builds(
    lambda v, m: TernaryMatch((v & m) << 16, m << 16), st.integers(0, 15), st.integers(0, 15)
)  # four bits of one field


ENTRIES = st.lists(st.tuples(st.integers(1, 2), SMALL), max_size=30)


@settings(deadline=None)
@given(ENTRIES, ENTRIES)
def test_the_index_finds_exactly_what_overlaps(
    mine: list[tuple[int, TernaryMatch]], theirs: list[tuple[int, TernaryMatch]]
) -> None:
    one, other = (OverlapIndex((p, match, n) for n, (p, match) in enumerate(entries)) for entries in (mine, theirs))
    found = sorted((n, k) for n, match, k, against in one.overlaps(other) if match.overlaps(against))
    assert len(found) == len(list(one.overlaps(other)))
    assert found == [
        (n, k)
        for n, (p, match) in enumerate(mine)
        for k, (q, against) in enumerate(theirs)
        if p == q and match.overlaps(against)
    ]


@examples(60)
@given(st.integers(0, 10**6))
def test_conflicts_are_exactly_the_packets_with_two_owners(seed: int) -> None:
    """Every packet of a space of 16 headers, 2 ports and 2 switches, with at most one owner of highest priority."""
    rng = random.Random(seed)

    def rule() -> FlowspaceRule:
        mask = rng.randrange(16)
        match = TernaryMatch((rng.randrange(16) & mask) << 16, mask << 16)
        ports = rng.choice([None, frozenset({1}), frozenset({2})])
        return FlowspaceRule((match,), rng.randrange(1, 4), rng.choice([None, frozenset({1})]), ports)

    slices = [Slice(name, tuple(rule() for _ in range(rng.randrange(1, 3)))) for name in "abc"]
    model = SliceModel({each.name: each for each in slices})
    ambiguous = any(
        len({each.name for each in slices for r in each.flowspace if r.priority == p and owns(r, h, port, dpid)}) > 1
        for h in range(16)
        for port in (1, 2)
        for dpid in (1, 2)
        for p in range(1, 4)
    )
    assert bool(list(conflicts(model, frozenset(model.slices)))) == ambiguous
    if not ambiguous:
        assert changed(EMPTY, slices)[0] == model


def every_pair(model: SliceModel) -> set[tuple[str, int, str, int]]:
    """All pairs of rules (slice, number, slice, number) of different slices that would own the same packets. Which
    number a port's name stands for is not known, so a name and a number may be one port.
    """

    def may_meet(one: FlowspaceRule, other: FlowspaceRule) -> bool:
        mine, theirs = (range(4) if rule.switches is None else rule.switches for rule in (one, other))
        if not set(mine) & set(theirs):
            return False
        pairs = product(one.ports or [None], other.ports or [None])
        return any(None in pair or pair[0] == pair[1] or type(pair[0]) is not type(pair[1]) for pair in pairs)

    rules = [(each.name, n, rule) for each in model.slices.values() for n, rule in enumerate(each.rules)]
    return {
        (name, n, other, k)
        for name, n, rule in rules
        for other, k, against in rules
        if name < other and rule.priority == against.priority and may_meet(rule, against)
        if any(match.overlaps(their) for match in rule.matches for their in against.matches)
    }


NAMED = re.compile(r"slice (\w), rule (\d+) and slice (\w), rule (\d+): both have priority")


@examples(100)
@given(st.integers(0, 10**6))
def test_every_pair_of_rules_in_conflict_is_named_once_however_ports_are_written(seed: int) -> None:
    rng = random.Random(seed)

    def rule() -> FlowspaceRule:
        masks = [rng.randrange(16) for _ in range(rng.randrange(1, 3))]
        matches = tuple(TernaryMatch((rng.randrange(16) & mask) << 16, mask << 16) for mask in masks)
        ports = rng.choice([None, *(frozenset(some) for some in ((1,), (2, "x"), ("x",), ("y", 1), ("y",)))])
        return FlowspaceRule(matches, rng.randrange(1, 3), rng.choice([None, frozenset({1}), frozenset({2, 3})]), ports)

    each = [Slice(name, tuple(rule() for _ in range(rng.randrange(1, 4)))) for name in "abcd"]
    model = SliceModel({one.name: one for one in each})
    for asked in (frozenset("abcd"), frozenset(rng.sample("abcd", 2))):
        found = [NAMED.match(text) for text in conflicts(model, asked)]
        named = [(a, int(n), b, int(k)) for match in found if match for a, n, b, k in [match.groups()]]
        named = [pair if pair[0] < pair[2] else (*pair[2:], *pair[:2]) for pair in named]
        assert len(named) == len(set(named)) == len(found)
        assert set(named) == {pair for pair in every_pair(model) if {pair[0], pair[2]} & asked}
    at_once = list(islice(conflicts(model, frozenset("abcd")), 11))
    if at_once:
        with pytest.raises(ConflictError) as caught:
            check(model, "abcd")
        assert str(caught.value).split("; ") == at_once[:10], "at most ten reasons"


@examples(300)
@given(st.integers(0, 10**6))
def test_change_is_refused_exactly_if_the_new_slices_do_not_fit(seed: int) -> None:
    """Names, queues, airtime and rules of what results, whichever slices the change names, against a look at all."""
    rng = random.Random(seed)

    def some(name: str, parents: list[Slice]) -> Slice:
        limits = {"queue": rng.choice([None, None, None, 1, 2, 3])}
        share = rng.choice([{}, {"w": 0.5}, {"w": 0.25, "v": 0.75}, {"v": 0.5}])
        if parents and rng.random() < 0.6:
            parent = rng.choice(parents)
            mine = {technology: of / 2 for technology, of in parent.limits.airtime_share.items()}
            return Slice(name, limits=replace(default_limits(parent), airtime_share=mine, **limits), parent=parent.name)
        rule = FlowspaceRule((TernaryMatch(rng.randrange(4) << 16, 3 << 16),), rng.randrange(1, 4))
        return Slice(name, (rule,), permissions=frozenset(Permission), limits=Limits(airtime_share=share, **limits))

    model = EMPTY
    for _ in range(6):
        there = sorted(model.slices.keys() - {PRODUCTION})
        parents = [model.slices[name] for name in there if not model.slices[name].parent]
        remove = rng.sample([*there, "nothing", PRODUCTION], 1) if there and rng.random() < 0.5 else []
        gone = {name for name, each in model.slices.items() if name in remove or each.parent in remove}
        put = [some(name, [each for each in parents if each.name not in gone]) for name in rng.sample("abcde", 2)]
        expected = {name: each for name, each in model.slices.items() if name not in gone}
        expected |= {each.name: each for each in put}
        fits = set(remove) <= set(there) and not any(reasons(SliceModel(expected), frozenset(expected)))
        queues = [each.limits.queue for each in expected.values() if each.limits.queue is not None]
        shares = [each.limits.airtime_share for each in expected.values() if not each.parent]
        fits &= len(queues) == len(set(queues))
        fits &= all(sum(share.get(technology, 0) for share in shares) <= 1 for technology in "wv")
        fits &= not every_pair(SliceModel(expected))
        try:
            new, difference = changed(model, put, remove)
        except ConflictError:
            assert not fits
            continue
        assert fits and dict(new.slices) == expected
        assert difference.added == new.slices.keys() - model.slices.keys()
        assert difference.removed == model.slices.keys() - new.slices.keys()
        both = new.slices.keys() & model.slices.keys()
        assert difference.changed == {name for name in both if new.slices[name] != model.slices[name]}
        assert difference.names == difference.added | difference.removed | difference.changed
        model = new


@pytest.mark.parametrize(("bound", "most"), [("MAX_SLICES", 4), ("MAX_MATCHES", 5)])
def test_slices_and_matches_may_be_as_many_as_the_bound(bound: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three slices beside production, with five matches."""
    slices = [one("a", {"udp_dst": 1}), one("b", {"tcp_dst": 80}), one("c", {"eth_type": 0x0806})]
    monkeypatch.setattr(change, bound, most)
    assert changed(EMPTY, slices)[1].added == {"a", "b", "c"}
    monkeypatch.setattr(change, bound, most - 1)
    with pytest.raises(ConflictError, match=f"expected at most .*{most - 1}"):
        changed(EMPTY, slices)


def owns(rule: FlowspaceRule, header: int, port: int, dpid: int) -> bool:
    return rule.on(dpid) and port in (rule.ports or {port}) and any(m.has(header << 16) for m in rule.matches)


def test_limits_have_values_that_make_sense_without_a_file() -> None:
    assert Limits().tables >= 1
    assert Slice("x").permissions == {Permission.READ, Permission.WRITE}
