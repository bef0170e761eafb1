"""A hostile guest's packet-outs with frames that are read in different ways, on a real Open vSwitch.

Port 8 is shared by headers, so whose a frame is there is a matter of reading it. For each frame the same bytes from the
host behind port 8 reach the other slice's host: that is how the switch reads them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from struct import pack
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import ovs_rig
from raw_guest import heard
from slicer_rig import SlicerRig, available
from test_slicer_isolation import (
    EVIL,
    GOOD,
    MAGIC,
    TABLE,
    Lab,
    action,
    apply,
    fields,
    flow,
    frame,
    output,
    packet_out,
    set_field,
)

pytestmark = [pytest.mark.root, pytest.mark.skipif(not available(), reason="needs root and Open vSwitch")]

MACS = b"\2\0\0\0\0\4\2\0\0\0\0\x08"
HTTP, THEIRS = 80, 0x0A000004
MINE = 0x0A090909
TARGET = bytes.fromhex("fe80000000000000000000000000000a")
# Whoever is narrow has these, with the higher priority; the other has everything else at the port.
NARROW: list[dict[str, Any]] = [
    {"tcp_dst": HTTP},
    {"udp_dst": HTTP},
    {"vlan_vid": 200},
    {"eth_type": 0x86DD, "ip_proto": 6},
    {"arp_op": 1},
    {"ipv6_nd_target": "fe80::a"},
    {"ipv4_dst": "10.9.9.9"},
    {"arp_tpa": "10.9.9.9"},
]


def tcp(port: int = HTTP, offset: int = 5) -> bytes:
    return pack("!HH8xB7x", 1000, port, offset << 4) + MAGIC


def udp(port: int = HTTP) -> bytes:
    return pack("!HHHH", 1000, port, 8 + len(MAGIC), 0) + MAGIC


def ipv4(
    upper: bytes, proto: int = 6, total: int = 0, fragment: int = 0, first: int = 0x45, target: int = THEIRS
) -> bytes:
    total = 20 + len(upper) + total
    return b"\x08\0" + pack("!BBHHHBBHII", first, 0, total, 1, fragment, 64, proto, 0, 0x0A000008, target) + upper


def ipv6(upper: bytes, proto: int = 6, *extensions: tuple[int, bytes]) -> bytes:
    following = proto
    for kind, body in reversed(extensions):
        upper, following = bytes((following,)) + body + upper, kind
    head = pack("!IHBB", 6 << 28, len(upper), following, 64)
    return b"\x86\xdd" + head + TARGET[:-1] + b"\x08" + TARGET[:-1] + b"\x04" + upper


def tag(vlan: int, kind: int = 0x8100) -> bytes:
    return pack("!HH", kind, vlan)


def snap(inner: bytes) -> bytes:
    return pack("!H", 6 + len(inner)) + b"\xaa\xaa\3\0\0\0" + inner


def arp(operation: int, hardware: int = 1) -> bytes:
    head = pack("!HHHBBH", 0x0806, hardware, 0x0800, 6, 4, operation)
    return head + MACS[6:] + pack("!I", 0x0A000008) + bytes(6) + pack("!I", THEIRS) + MAGIC


OPTION, AUTHENTICATION = (60, bytes(7)), (51, b"\1" + bytes(10))
LATER, FIRST = (44, b"\0\0\x08" + bytes(4)), (44, b"\0\0\1" + bytes(4))
SOURCE_OPTION = b"\1\1" + MACS[6:]
SOLICITATION = b"\x87\0" + bytes(6) + TARGET

# Our parser once read something else in these, which belongs to the wide slice.
HIDDEN = {
    "nine IPv6 option headers": ipv6(tcp(), 6, *(OPTION,) * 9),
    "an authentication header": ipv6(tcp(), 6, AUTHENTICATION),
    "802.1Q twice": tag(100) + tag(100) + ipv4(tcp()),
    "802.1ad and 802.1Q": tag(100, 0x88A8) + tag(100) + ipv4(tcp()),
    "SNAP": snap(ipv4(tcp())),
    "a tag and SNAP": tag(100) + snap(ipv4(tcp())),
    "802.1Q twice and IPv6": tag(100) + tag(100) + ipv6(tcp()),
}
# Our parser once read in these what belongs to the narrow slice.
FALSE = {
    "a total length beyond the frame": ipv4(tcp(), total=1),
    "a total length of the header and less": ipv4(tcp(), total=-1 - len(tcp())),
    "an IPv4 header that is too short": ipv4(tcp(), first=0x44, target=THEIRS & 0xFFFF0000 | HTTP),
    "an IPv4 header longer than its packet": ipv4(bytes(39), first=0x4F) + b"\0" + tcp(),
    "a first fragment": ipv4(tcp(), fragment=0x2000),
    "a TCP header that is cut": ipv4(tcp()[:8], total=0) + MAGIC,
    "a TCP header that is too short": ipv4(tcp(offset=4)),
    "a TCP header longer than its packet": ipv4(tcp(offset=15)),
    "a later IPv6 fragment": ipv6(tcp(), 6, LATER),
    "a first IPv6 fragment": ipv6(udp(), 17, FIRST),
    "an IPv6 payload length beyond the frame": ipv6(tcp())[:6] + pack("!H", 999) + ipv6(tcp())[8:],
    "an option header beyond its packet": ipv6(tcp(), 6, (60, b"\xff" + bytes(6))),
    "ARP of another hardware": arp(1, hardware=6),
    "a neighbour solicitation with an option twice": ipv6(SOLICITATION + SOURCE_OPTION * 2, 58) + MAGIC,
}


def share(lab: Lab, narrow: dict[str, Any], wide: dict[str, Any]) -> None:
    """Port 8 belongs to one slice, but for what the other has there."""
    for each in (EVIL, GOOD):
        lab.control.ask("PUT", "slices", each["name"], document=each)
    for each, rules in ((narrow, [{"priority": 300, "match": NARROW}]), (wide, [{"priority": 200}])):
        flowspace = [*each["flowspace"], *({"ports": ["p8"], **rule} for rule in rules)]
        lab.control.ask("PUT", "slices", each["name"], document={**each, "flowspace": flowspace})
    assert not lab.good.errors(flow(apply(output(4)), fields(in_port=8), cookie=0xBEEF, priority=100))


@pytest.fixture(scope="module")
def network() -> Iterator[Lab]:
    with SlicerRig() as rig:
        yield Lab(rig, tls=False)


@pytest.fixture
def lab(network: Lab) -> Iterator[Lab]:
    yield network
    network.good.errors(flow(b"", fields(in_port=8), cookie=0xBEEF, priority=100, command=4))
    for each in (EVIL, GOOD):
        network.control.ask("PUT", "slices", each["name"], document=each)
    network.check()


def assert_refused(lab: Lab, data: bytes) -> None:
    """The switch takes the frame for the other slice's, and the attacker can neither send it in nor out there."""

    def comes() -> bool:
        # For a moment the switch may go on with what it remembers of the flowspace before.
        lab.hosts[8].send(data)
        time.sleep(0.05)
        return data in heard(lab.hosts[4], MAGIC)

    assert ovs_rig.wait_until(comes, 5), "this is how the switch reads it"
    time.sleep(0.1)
    lab.clean_network()
    for out in (TABLE, 8):
        refused_out(lab, packet_out(output(out), port=8, data=data))


def refused_out(lab: Lab, message: bytes) -> None:
    """The guest gets the error for what would leave the slice, and nothing of it comes anywhere."""
    errors = lab.evil.errors(message)
    assert not lab.leaks()
    assert errors == [(2, 6)]


@pytest.mark.parametrize("name", HIDDEN)
def test_what_open_vswitch_sees_behind_unusual_headers_is_not_let_out(lab: Lab, name: str) -> None:
    share(lab, narrow=GOOD, wide=EVIL)
    assert_refused(lab, MACS + HIDDEN[name])


@pytest.mark.parametrize("name", FALSE)
def test_what_open_vswitch_does_not_read_is_not_let_out(lab: Lab, name: str) -> None:
    share(lab, narrow=EVIL, wide=GOOD)
    assert_refused(lab, MACS + FALSE[name])


def test_a_second_tag_is_open_whatever_the_bridge_looks_behind(lab: Lab) -> None:
    lab.rig.vsctl("set", "Open_vSwitch", ".", "other_config:vlan-limit=1")
    try:
        share(lab, narrow=EVIL, wide=GOOD)
        assert_refused(lab, MACS + tag(100) + tag(100) + ipv4(tcp()))
    finally:
        lab.rig.vsctl("set", "Open_vSwitch", ".", "other_config:vlan-limit=0")


# What Open vSwitch does not write into a frame, and what it makes of one.
SET_HTTP, SET_MINE = set_field("tcp_dst", HTTP), set_field("ipv4_dst", MINE)
REWRITTEN = {
    "a port in a later fragment": ([SET_HTTP], ipv4(tcp(81), fragment=1)),
    "a port in a first fragment": ([SET_HTTP], ipv4(tcp(81), fragment=0x2000)),
    "a port in a TCP header that is cut": ([SET_HTTP], ipv4(tcp(81)[:8]) + MAGIC),
    "an address in a packet of protocol 0": ([SET_MINE], ipv4(tcp(81), proto=0)),
    "an address in a packet of a wrong length": ([SET_MINE], ipv4(tcp(81), total=1)),
    "an address in ARP without operation": (
        [set_field("arp_op", 0), set_field("arp_tpa", MINE)],
        arp(2),
    ),
    "an address in what ARP is not": ([set_field("arp_tpa", MINE)], arp(2, hardware=6)),
}


@pytest.mark.parametrize("name", REWRITTEN)
def test_a_rewriting_that_open_vswitch_leaves_out_is_not_believed(lab: Lab, name: str) -> None:
    share(lab, narrow=EVIL, wide=GOOD)
    actions, inner = REWRITTEN[name]
    refused_out(lab, packet_out(*actions, output(8), data=MACS + inner))


@pytest.mark.parametrize("eth_type", [0x8100, 0x88A8, 0x0020])
def test_what_is_behind_a_label_does_not_become_anothers_frame(lab: Lab, eth_type: int) -> None:
    """Taken off with a tag's type, the label leaves a tag of the other's; with a length, any header."""
    share(lab, narrow=GOOD, wide=EVIL)
    behind = pack("!H", 200) + ipv4(tcp()) if eth_type > 0x600 else snap(ipv4(tcp()))[2:]
    data = MACS + b"\x88\x47" + pack("!I", 16 << 12 | 1 << 8 | 64) + behind
    pop = action(20, pack("!H", eth_type))
    refused_out(lab, packet_out(pop, output(8), data=data))


def test_usual_frames_of_the_slice_still_pass(lab: Lab) -> None:
    share(lab, narrow=EVIL, wide=GOOD)
    for inner in (ipv4(tcp()), ipv6(tcp()), ipv6(tcp(), 6, OPTION), tag(200) + ipv4(tcp(81)), arp(1)):
        lab.clean_network()
        assert not lab.evil.errors(packet_out(output(8), data=MACS + inner))
        assert ovs_rig.wait_until(lambda: heard(lab.hosts[8], MAGIC) == [MACS + inner], 2)  # noqa: B023
    assert not lab.evil.errors(packet_out(SET_HTTP, output(8), data=MACS + ipv4(tcp(81))))
    assert ovs_rig.wait_until(lambda: len(heard(lab.hosts[8], MAGIC)) == 1, 2)


@pytest.mark.parametrize(
    "kinds", [(), (0x8100,), (0x88A8,), (0x8100, 0x8100), (0x88A8, 0x8100), (0x8100, 0x88A8, 0x8100)]
)
def test_the_laboratory_sees_every_tag(lab: Lab, kinds: tuple[int, ...]) -> None:
    tags = b"".join(tag(0x2000 | 100 + i, kind) for i, kind in enumerate(kinds))
    data = MACS + tags + frame()[12:]
    lab.clean_network()
    lab.hosts[5].send(data)
    assert ovs_rig.wait_until(lambda: heard(lab.hosts[6], MAGIC) == [data], 2)
