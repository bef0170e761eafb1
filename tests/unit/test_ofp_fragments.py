"""Fragments at access rules: they show no ports, and must not bypass a rule for this reason."""

from __future__ import annotations

from typing import Any

import pytest
from switch_model import Frame, ModelSwitch

from hyroads.controller.core.access_rules import AccessRule, parse_rule
from hyroads.controller.ofp import match as act
from hyroads.controller.ofp.access import METER_FIRST, PROTECTION, entry_of
from hyroads.controller.ofp.match import Match
from hyroads.controller.ofp.pipeline import Priority, Table
from hyroads.controller.ofp.rule import Rule

SENDER, RECEIVER = "02:00:00:00:00:0a", "02:00:00:00:00:0c"
V4 = {"eth_type": 0x0800, "ipv4_dst": "10.0.0.3"}
V6 = {"eth_type": 0x86DD, "ipv6_dst": "fd00::3"}
NO_PORTS = {"ip_proto": 17, "udp_src": 0, "udp_dst": 0}
FRAGMENTS: dict[str, dict[str, Any]] = {
    "first or later of IPv4": {**V4, **NO_PORTS},
    "first of IPv6": {**V6, **NO_PORTS},
    "later of IPv6": {**V6, "ip_proto": 44},
}
"""As Open vSwitch shows fragments of UDP to rules."""


def access_rule(action: str, priority: int = 100, **match: Any) -> AccessRule:
    rate = {"rate_mbps": 2.0} if action == "limit" else {}
    return parse_rule({"id": "r", "action": action, "priority": priority, "match": match, **rate}, "test", {})


def fate(frame: dict[str, Any], *rules: AccessRule) -> str:
    """``dropped``, ``metered`` or ``passed``: what happens to a frame behind access rules."""
    entries = [entry_of(rule, rule.client, rule.to, METER_FIRST + i) for i, rule in enumerate(rules)]
    pipeline = [
        Rule(Table.PORT, 1, Match(), goto=Table.ACCESS),
        Rule(Table.ACCESS, Priority.DEFAULT, Match(), (act.Resubmit(Table.CLASSIFY),)),
        Rule(Table.CLASSIFY, 1, Match(), (act.Output(2),)),
    ]
    switch = ModelSwitch([*pipeline, *PROTECTION.rules, *(rule for entry in entries for rule in entry.rules)])
    upper = {name: value for name, value in frame.items() if name != "eth_type"}
    if not switch.receive(Frame(SENDER, RECEIVER, frame["eth_type"], upper=upper), 1):
        return "dropped"
    return "metered" if any(rule.meter is not None for rule in switch.used) else "passed"


@pytest.mark.parametrize("frame", FRAGMENTS.values(), ids=FRAGMENTS)
@pytest.mark.parametrize("ports", [{"udp_dst": 53}, {"udp_src": 53}, {"udp_src": 7, "udp_dst": 0}, {"udp_dst": 67}])
def test_fragments_do_not_bypass_a_rule_that_names_a_port(frame, ports):
    match = {"eth_type": frame["eth_type"], **ports}
    assert fate(frame, access_rule("deny", **match)) == "dropped"
    assert fate(frame, access_rule("limit", **match)) == "metered"
    assert fate(frame, access_rule("deny"), access_rule("allow", 200, **match)) == "dropped"


@pytest.mark.parametrize("frame", FRAGMENTS.values(), ids=FRAGMENTS)
def test_fragments_do_not_bypass_a_rule_that_names_their_protocol(frame):
    match = {"eth_type": frame["eth_type"], "ip_proto": 17}
    assert fate(frame, access_rule("deny", **match)) == "dropped"
    assert fate(frame, access_rule("limit", **match)) == "metered"


@pytest.mark.parametrize("frame", FRAGMENTS.values(), ids=FRAGMENTS)
def test_a_rule_with_a_higher_priority_and_without_ports_lets_fragments_pass(frame):
    denied = access_rule("deny", eth_type=frame["eth_type"], udp_dst=53)
    assert fate(frame, denied, access_rule("allow", 200, eth_type=frame["eth_type"])) == "passed"


def test_what_cannot_belong_to_a_rule_passes():
    denied = access_rule("deny", eth_type=0x0800, udp_dst=53)
    of_other_protocols = [FRAGMENTS["first of IPv6"], FRAGMENTS["later of IPv6"], {**V4, "ip_proto": 1}]
    assert [fate(frame, denied) for frame in of_other_protocols] == ["passed"] * 3
    assert fate({**V4, "ip_proto": 17, "udp_src": 9, "udp_dst": 54}, denied) == "passed"
    assert fate(FRAGMENTS["first of IPv6"], access_rule("deny", eth_type=0x86DD, tcp_dst=25)) == "passed"
    assert fate(
        {**V6, "ip_proto": 17, "udp_src": 9, "udp_dst": 54}, access_rule("deny", eth_type=0x86DD, udp_dst=53)
    ) == ("passed")
