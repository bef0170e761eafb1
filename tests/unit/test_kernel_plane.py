"""The kernel plane without a kernel: what is derived from a configuration, and netlink messages byte by byte."""

from __future__ import annotations

import copy
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from examples import scaled
from hypothesis import given, settings
from hypothesis import strategies as st

from hyroads.controller.client import conntrack, kernel_rules, nfnetlink
from hyroads.controller.client.kernel_document import Configuration, read_configuration
from hyroads.controller.client.kernel_install import change_of
from hyroads.controller.client.kernel_items import Link, Plan, mark_key
from hyroads.controller.client.kernel_plane import number_rules
from hyroads.controller.client.kernel_rules import PACKET_MARK, TUNNEL_PATHS, client_plan, flow_mark, slots
from hyroads.controller.client.kernel_waypoint import endpoint_key, read_sessions, seen_ports, waypoint_plan
from hyroads.controller.client.nfnetlink import Change, batch
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.kernel.netlink import (
    Message,
    NetlinkError,
    acknowledged_number,
    attribute,
    attributes,
    messages,
    nested,
)

RULE = {"name": "rest", "match": {}, "interfaces": ["wlan0", "wwan0"]}
DOCUMENT: dict[str, Any] = {
    "address4": "100.72.0.2",
    "address6": None,
    "interfaces": [{"name": "wlan0"}, {"name": "wwan0", "backup": True}],
    "waypoint": {"address": "192.0.2.1", "port": 6656, "session": 7, "key": "00" * 16},
    "rules": [{**RULE, "name": "call", "match": {"protocol": "udp"}, "via": "waypoint"}, RULE],
}


def link(name: str, index: int, **changes: Any) -> Link:
    addresses = {4: f"10.1.{index}.2"}
    return Link(name, index, **{"carrier": True, "addresses": addresses, "gateways": {4: f"10.1.{index}.1"}, **changes})


def links(**changes: Any) -> dict[str, Link]:
    return {"wlan0": link("wlan0", 1, **changes), "wwan0": link("wwan0", 2)}


def marks(elements: Any) -> dict[int, int]:
    return {struct.unpack("=I", key)[0]: struct.unpack("=I", value)[0] for key, value in elements.items()}


def plan(document: dict[str, Any] | None = None, **changes: Any) -> Plan:
    return client_plan(read_configuration(document or DOCUMENT), links(**changes), {"call": 1, "rest": 2})


@given(st.dictionaries(st.integers(1, 16), st.floats(0.1, 1000), min_size=1, max_size=16))
@settings(max_examples=scaled(100))
def test_slots_are_in_proportion_and_mixed(weights: dict[int, float]) -> None:
    """At any time each number has had its part, but for less than its number of competitors."""
    mixed, total = slots(weights), sum(weights.values())
    assert len(mixed) == kernel_rules.SLOTS
    counts: Counter[int] = Counter()
    for place, number in enumerate(mixed, 1):
        counts[number] += 1
        assert all(abs(counts[each] - place * weights[each] / total) < len(weights) for each in weights)
    assert all(abs(counts[each] - 64 * weights[each] / total) <= 1 + len(weights) / 2 for each in weights)


def test_new_flows_take_the_backup_only_if_no_other_interface_can() -> None:
    used = {mark & 0xFF for mark in marks(plan().elements["pick"]).values()}
    assert used == {1, TUNNEL_PATHS + 1}
    used = {mark & 0xFF for mark in marks(plan(carrier=False).elements["pick"]).values()}
    assert used == {2, TUNNEL_PATHS + 2}


def test_no_family_is_picked_that_an_interface_lacks() -> None:
    document = {**DOCUMENT, "address6": "fd68::2"}
    picked = marks(plan(document).elements["pick"])
    by_family = Counter((key // kernel_rules.SLOTS % 2, mark & 0xFF) for key, mark in picked.items())
    # IPv6 has no direct way out here, but a tunnel carries both.
    assert by_family == {(0, 1): 64, (0, TUNNEL_PATHS + 1): 64, (1, TUNNEL_PATHS + 1): 64}


def test_a_lost_carrier_moves_tunnelled_flows_stops_direct_ones_and_later_resets_them() -> None:
    tunnelled, direct = flow_mark(1, TUNNEL_PATHS + 1), flow_mark(2, 1)
    before = plan().elements
    assert marks(before["route"])[tunnelled] == PACKET_MARK + TUNNEL_PATHS + 1
    assert marks(before["route"])[direct] == PACKET_MARK + 1
    lost = plan(carrier=False).elements
    assert marks(lost["route"])[tunnelled] == PACKET_MARK + TUNNEL_PATHS + 2
    assert direct not in marks(lost["route"]) and not lost["refused"]
    gone = plan(carrier=False, down_s=3.0).elements
    assert mark_key(direct) in gone["refused"] and mark_key(flow_mark(2, 2)) not in gone["refused"]


def test_a_rule_that_no_longer_accepts_an_interface_moves_its_flows() -> None:
    document = copy.deepcopy(DOCUMENT)
    document["rules"][0]["interfaces"] = ["wwan0"]
    route = marks(plan(document).elements["route"])
    assert route[flow_mark(1, TUNNEL_PATHS + 1)] == PACKET_MARK + TUNNEL_PATHS + 2


def test_everything_about_an_interface_goes_when_it_does() -> None:
    configuration = read_configuration(DOCUMENT)
    both = client_plan(configuration, links(), {"call": 1, "rest": 2})
    one = client_plan(configuration, {"wwan0": link("wwan0", 2)}, {"call": 1, "rest": 2})
    gone = [item.add for item in both.items if item not in one.items]
    assert gone and all("wlan0" in each or "6651" in each or "6667" in each or "hrk70" in each for each in gone)
    assert one.ruleset == both.ruleset
    again = client_plan(configuration, {**links(), "wlan0": link("wlan0", 9)}, {"call": 1, "rest": 2})
    # The same name, but another device: what hung on the first must be made again.
    assert any("dev wlan0" in item.add and item not in both.items for item in again.items)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"interfaces": []}, "interfaces"),
        ({"interfaces": [{"name": "a b"}]}, r"interfaces\[0\]\.name"),
        ({"interfaces": [{"name": "-batch"}]}, r"interfaces\[0\]\.name"),
        ({"interfaces": [{"name": "eth0\nlink del eth1"}]}, r"interfaces\[0\]\.name"),
        ({"interfaces": [{"name": "wlan0", "rate_mbps": 0}]}, r"interfaces\[0\]\.rate_mbps"),
        ({"interfaces": [{"name": "wlan0", "rate_mbps": float("nan")}]}, r"interfaces\[0\]\.rate_mbps"),
        ({"rules": [{**RULE, "interfaces": []}]}, "no interface is left"),
        ({"rules": [{**RULE, "interfaces": ["wlan1"]}]}, "did you mean 'wlan0'"),
        ({"rules": [{**RULE, "copies": True}]}, "makes no copies"),
        ({"rules": [{**RULE, "spread": "packet"}]}, "does not spread"),
        ({"rules": [{**RULE, "match": {"protocol": "tcp"}}]}, "last rule"),
        ({"rules": [{**RULE, "match": {"tcp_dst": 80}}]}, r"match\.tcp_dst: unknown key"),
        ({"rules": [{**RULE, "match": {"source": "0/0; flush ruleset"}}, RULE]}, r"match\.source"),
        ({"rules": [{**RULE, "match": {"destination_port": [9, 8]}}, RULE]}, "above the highest"),
        ({"rules": []}, "expected 1 to"),
        ({"waypoint": None}, "there is no waypoint"),
        ({"waypoint": {"address": "nowhere", "port": 1, "session": 1}}, r"waypoint\.address"),
        ({"address4": None}, "both null"),
        ({"address4": "fd00::1"}, "address4"),
        ({"colour": 1}, "colour: unknown key"),
    ],
)
def test_a_wrong_document_is_refused_by_its_place(change: dict[str, Any], place: str) -> None:
    with pytest.raises(ConfigError, match=place):
        read_configuration({**DOCUMENT, **change})


json = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.sampled_from(sorted(DOCUMENT)), each, max_size=5),
    max_leaves=12,
)


@given(json)
@settings(max_examples=scaled(200))
def test_any_document_is_read_or_refused(document: Any) -> None:
    for read in (read_configuration, read_sessions):
        try:
            read(document)
        except ConfigError:
            continue


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("nft") is None, reason="needs root and nftables")
@pytest.mark.root
def test_nft_takes_the_text_whatever_the_matches_are() -> None:
    found = 0
    rules = []
    for protocol in (None, "udp", "tcp", "icmp", 47):
        for source in (None, "10.0.0.0/8", "fd00::/8"):
            for ports in (None, [5060, 5061]):
                for dscp in (None, 46):
                    match = {"protocol": protocol, "source": source, "destination_port": ports, "dscp": dscp}
                    rules.append({**RULE, "name": f"r{(found := found + 1)}", "match": match})
    document = {**DOCUMENT, "address6": "fd68::2", "rules": [*rules, RULE]}
    configuration = read_configuration(document)
    numbers = number_rules([rule.name for rule in configuration.rules], {})
    text = kernel_rules.script(kernel_rules.TABLE, client_plan(configuration, links(), numbers))
    waypoint = waypoint_plan(read_sessions([]), 6656)
    for each in (text, waypoint.ruleset):
        done = subprocess.run(
            ["unshare", "-n", "nft", "-f", "-"], input=each, text=True, capture_output=True, timeout=20, check=False
        )
        assert done.returncode == 0, done.stderr


def test_numbers_of_rules_stay_and_are_reused_last() -> None:
    numbers = number_rules(["a", "b"], {})
    assert number_rules(["b", "c"], numbers) == {"a": 1, "b": 2, "c": 3}
    full = {f"r{n}": n for n in range(1, 256)}
    renewed = number_rules(["new", "r7"], full)
    assert renewed["new"] == 1 and renewed["r7"] == 7 and "r1" not in renewed and len(set(renewed.values())) == 255


def test_a_waypoint_sends_back_by_a_usable_path() -> None:
    paths = [{"number": 1, "endpoint": "10.1.1.2"}, {"number": 3, "endpoint": "fd00::3", "usable": False}]
    elements = waypoint_plan(read_sessions([{"session": 7, "address4": "100.72.0.2", "paths": paths}]), 6656).elements
    route = marks(elements["route"])
    assert route[7 << 8 | 1] == route[7 << 8 | 3]
    assert list(elements["endpoints4"]) == [endpoint_key("10.1.1.2", 7 << 4)]
    assert list(elements["endpoints6"]) == [endpoint_key("fd00::3", 7 << 4 | 2)]
    seen = endpoint_key("192.0.2.254", 0x72) + struct.pack(">H2x", 31007)
    assert seen_ports({seen: b"", seen[:-1]: b""}) == {0x72: 31007}


# What nft 1.0.6 sends for "add element inet w m { 7 : 8 }" (--debug=mnl), without the set's number in the same batch,
# which only who has just made the set knows.
NFT_SENDS = "010000000600010077000000060002006d000000200003801c0001800c00018008000100070000000c0002800800010008000000"


def test_an_element_is_written_as_nft_writes_it() -> None:
    data, acknowledged = batch([Change("w", "m", (mark_key(1),), {mark_key(7): mark_key(8)})])
    kinds = [each.kind for each in messages(data)]
    assert (kinds, acknowledged) == ([0x10, nfnetlink.DELETE_ELEMENTS, nfnetlink.NEW_ELEMENTS, 0x11], 2)
    add = list(messages(data))[2]
    if sys.byteorder == "little":
        assert add.payload.hex() == NFT_SENDS
    assert nfnetlink.read_elements(add.payload[4:]) == {mark_key(7): mark_key(8)}
    begin = next(messages(data))
    assert begin.payload == b"\0\0\0\x0a"


@given(st.dictionaries(st.binary(min_size=4, max_size=24), st.binary(min_size=4, max_size=4), max_size=30))
@settings(max_examples=scaled(50))
def test_many_elements_come_back_from_their_messages(elements: dict[bytes, bytes]) -> None:
    many = {**elements, **{struct.pack("=I", n): mark_key(n) for n in range(1000)}}
    data, _ = batch([Change("t", "s", (), many)])
    found: dict[bytes, bytes] = {}
    for each in messages(data):
        if each.kind == nfnetlink.NEW_ELEMENTS:
            found |= nfnetlink.read_elements(each.payload[4:])
    assert found == many


def test_only_what_differs_is_changed() -> None:
    change = change_of("t", "m", {b"a": b"1", b"b": b"2", b"c": b"3"}, {b"b": b"2", b"c": b"4", b"d": b"5"})
    assert (set(change.remove), change.add) == ({b"a", b"c"}, {b"c": b"4", b"d": b"5"})


def entry(**changes: bytes) -> bytes:
    """A connection as the kernel lists it."""
    addresses = attribute(1, socket.inet_aton("100.72.0.2")) + attribute(2, socket.inet_aton("192.0.2.9"))
    protocol = attribute(1, b"\x06") + attribute(2, struct.pack(">H", 40000)) + attribute(3, struct.pack(">H", 80))
    parts = {
        "tuple": nested(1, nested(1, addresses), nested(2, protocol)),
        "mark": attribute(8, struct.pack(">I", 0x111)),
        "id": attribute(12, struct.pack(">I", 99)),
        "sent": nested(9, attribute(2, struct.pack(">Q", 5000))),
        **changes,
    }
    return b"".join(parts.values())


def test_a_connection_is_read() -> None:
    found = conntrack.read_connection(socket.AF_INET, entry())
    assert found is not None
    assert (found.id, found.mark, found.protocol) == (99, 0x111, "tcp")
    assert (found.source, found.destination) == (("100.72.0.2", 40000), ("192.0.2.9", 80))
    assert (found.sent_bytes, found.received_bytes) == (5000, None)
    assert conntrack.read_connection(socket.AF_UNIX, entry()) is None
    assert conntrack.read_connection(socket.AF_INET, entry(mark=b"")) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"mark": attribute(8, b"\x01")},
        {"sent": nested(9, attribute(2, b"\x01"))},
        {"tuple": nested(1, nested(1, attribute(1, b"\x01\x02")))},
        {"tuple": attribute(1, b"\xff\xff")},
    ],
)
def test_a_connection_that_makes_no_sense_is_an_error(wrong: dict[str, bytes]) -> None:
    with pytest.raises(NetlinkError):
        conntrack.read_connection(socket.AF_INET, entry(**wrong))


@given(st.binary(max_size=120), st.integers(0, 120), st.integers(0, 255))
@settings(max_examples=scaled(300))
def test_whatever_the_kernel_says_is_read_or_refused(noise: bytes, place: int, value: int) -> None:
    damaged = bytearray(entry())
    damaged[place % len(damaged)] = value
    for data in (noise, bytes(damaged)):
        for read in (
            lambda data: list(attributes(data)),
            lambda data: list(messages(data)),
            nfnetlink.read_elements,
            lambda data: conntrack.read_connection(socket.AF_INET, data),
            lambda data: acknowledged_number(Message(2, 0x300, data)),
        ):
            try:
                read(data)
            except NetlinkError:
                continue


def test_the_words_of_the_kernel_come_with_its_refusal() -> None:
    payload = struct.pack("=i", -17) + bytes(16) + attribute(1, b"no such\x1b set\0")
    with pytest.raises(NetlinkError) as refused:
        acknowledged_number(Message(2, 0x300, payload))
    assert refused.value.number == 17
    assert str(refused.value) == "the kernel refused: File exists (EEXIST): no such\\x1b set"


def test_an_attribute_that_netlink_can_not_hold_is_an_error() -> None:
    with pytest.raises(NetlinkError, match="too long"):
        attribute(1, bytes(70000))


def test_configuration_needs_no_more_than_the_brief_says() -> None:
    assert isinstance(read_configuration({**DOCUMENT, "type": "configure", "seq": 3}), Configuration)
