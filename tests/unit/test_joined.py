"""Texts joined for hashes: other texts never give the same bytes, so no two things get one label, number or key."""

from __future__ import annotations

import hashlib
import json
from itertools import combinations

from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.agents.configs import AgentConfig, HelloConfig, IngressFlow, PathConfig
from hyroads.controller.agents.frame_keys import FrameKeys
from hyroads.controller.agents.protocol import Hello
from hyroads.controller.core.addressing import hashed
from hyroads.controller.core.joined import joined
from hyroads.controller.ofp.match import Match, Output
from hyroads.controller.ofp.pipeline import Table
from hyroads.controller.ofp.rule import Rule

PARTS = st.lists(st.text(alphabet="a1:2\u00e9", max_size=4), max_size=4)


@examples(400)
@given(PARTS, PARTS)
def test_other_texts_give_other_bytes(first: list[str], second: list[str]) -> None:
    assert (joined(first) == joined(second)) is (first == second)


def test_texts_that_read_alike_when_put_together_give_other_bytes() -> None:
    alike = [("a1", "2"), ("a", "12"), ("a12",), ("", "a12"), ("a12", ""), ("1:a", "2"), ("a:1", "2"), ()]
    assert len({joined(each) for each in alike}) == len(alike)


def test_bytes_are_those_of_every_release() -> None:
    assert joined(("flow", "a1", "\u00e9")) == "4:flow2:a11:\u00e9".encode()
    digest = hashlib.blake2b(b"1:a1:b1:0", digest_size=8, person=b"hyroads-label").digest()
    assert hashed(("a", "b")) == 16 + int.from_bytes(digest, "big") % ((1 << 20) - 16)


def keys_of(flow: str, number: int, node: str = "a", boot: str = "1") -> list[str]:
    """The keys of a flow from a node to b, and that of the node's own frames."""
    known = FrameKeys({(node, "plc"): "02:00:01:01:00:01"}, lambda: 0.0)
    known.use("5e" * 32)
    for name, start in ((node, boot), ("b", "2")):
        known.heard(Hello(name, "hyroads-edge", start, None, 0, seals=True))
    ingress = {flow: IngressFlow(number, flow, "b", 60, (PathConfig(1, (20,), 1.0, 1600),))}
    message = json.loads(known.message(node, AgentConfig(HelloConfig(40, 140, (("plc", 1000),), ()), ingress)))
    return [message["hello"]["key"], message["ingress"][0]["key"]]


def test_flows_and_nodes_whose_names_and_numbers_read_alike_have_keys_of_their_own() -> None:
    flows = [keys_of("a1", 2)[1], keys_of("a", 12)[1], keys_of("a12", 1)[1], keys_of("a1", 21)[1]]
    assert len({*flows}) == len(flows)
    starts = [keys_of("f", 1, *each) for each in (("a", "11"), ("a1", "1"), ("a11", ""))]
    assert len({key for keys in starts for key in keys}) == 2 * len(starts)


def test_cookies_of_rules_with_fields_that_read_alike_differ() -> None:
    # A match ends before a table, whose number no OXM field begins with.
    assert max(Table) < 0x80
    matches = (Match(), Match(in_port=1), Match(in_port=0x8000), Match(in_port=1, eth_type=0x800))
    rules = [
        Rule(table, priority, match, actions)
        for table in (0, 1)
        for priority in (0, 1, 256)
        for match in matches
        for actions in ((), (Output(1),))
    ]
    assert all(one.cookie != other.cookie for one, other in combinations(rules, 2))
