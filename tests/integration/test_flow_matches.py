"""Whatever match a flow may declare, a real Open vSwitch takes it and tells it back unchanged."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import ovs_rig
import pytest

from hyroads.controller.core.checking import Place, Problems
from hyroads.controller.core.netfile_sections import parse_match
from hyroads.controller.ofp import match as act
from hyroads.controller.ofp.diff import Change, difference
from hyroads.controller.ofp.match import Match
from hyroads.controller.ofp.rule import Rule

pytestmark = [pytest.mark.root, pytest.mark.skipif(not ovs_rig.available(), reason="needs root and Open vSwitch")]

NUMBERS: dict[str, list[int | str]] = {
    "eth_type": [0x0600, 0x0800, "0x0800", 0x0806, 0x8100, 0x86DD, 0x8847, 0x8848, 0x88A8, 0x88B5, 0x894F, 0xFFFF],
    "ip_proto": [0, 1, 6, 17, 58, 132, 255],
}
V4 = ["0.0.0.0", "10.0.0.3", "10.0.0.0/8", "0.0.0.0/0", "128.0.0.0/1", "10.0.0.0/255.0.0.0", "10.0.0.3/32",
      "255.255.255.255", "224.0.0.0/4", "10.0.0.0/0.0.0.255", "10.0.0.1/8"]  # fmt: skip
V6 = ["::", "::/0", "fe80::1", "fe80::1%eth0", "2001:db8::/32", "::1/128", "ff00::/8", "::ffff:10.0.0.1", "8000::/1"]
PORTS = [0, 1, 80, 65535]


def wanted() -> Iterator[dict[str, Any]]:
    """Every field with every value alone, each with a plausible type, then random mixtures."""
    values: dict[str, list[Any]] = {**NUMBERS}
    values |= dict.fromkeys(("ipv4_src", "ipv4_dst"), V4) | dict.fromkeys(("ipv6_src", "ipv6_dst"), V6)
    values |= dict.fromkeys(("udp_src", "udp_dst", "tcp_src", "tcp_dst"), PORTS)
    for name, choices in values.items():
        for value in choices:
            yield {name: value}
            yield {"eth_type": 0x0800, name: value}
            yield {"eth_type": 0x86DD, name: value}
    draw = random.Random(7)
    for _ in range(600):
        names = draw.sample(sorted(values), draw.randint(1, 4))
        yield {name: draw.choice(values[name]) for name in names}


def accepted() -> list[Match]:
    """What of it the reader of flows takes, without repetitions."""
    found: dict[tuple[tuple[str, Any], ...], None] = {}
    for document in wanted():
        problems = Problems("test")
        match = parse_match(Place(document, problems))
        if not problems.errors:
            found[tuple(sorted(match.items()))] = None
    ends = {"eth_src": "02:00:00:00:00:01", "eth_dst": "02:00:00:00:00:02"}
    return [Match(**ends, **dict(fields)) for fields in found]  # type: ignore[arg-type]


def _matches_anything(match: Match) -> bool:
    """With an address of which no bit counts."""
    addresses = (match.ipv4_src, match.ipv4_dst, match.ipv6_src, match.ipv6_dst)
    return any(address is not None and address.endswith("/0") for address in addresses)


def test_open_vswitch_takes_every_match_that_a_flow_may_declare() -> None:
    matches = accepted()
    assert len(matches) > 100
    with ovs_rig.Rig() as rig:
        rig.bridge("br", 1)
        connection = rig.connect("br")
        rules = [Rule(2, 100 + i, match, (act.Output(1),)) for i, match in enumerate(matches)]
        batch = connection.apply(Change(adds=tuple(rules)))
        assert [refusal.subject.match for refusal in batch.refusals] == []
        assert not difference(rules, connection.installed())
        # It writes them as we do, but leaves out what matches anything. So a switch that was read has them under our keys,
        # and what changes later is compared by itself (controller/switches/wanted.py).
        plain = {rule.key for rule in rules if not _matches_anything(rule.match)}
        assert len(plain) > 100 and plain <= {rule.key for rule in connection.installed()}
        connection.close()
