"""Three boxes with ports of 1500 bytes, on real Open vSwitch: what hosts send arrives, or they hear why not."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator

import pytest

if os.geteuid() != 0 or shutil.which("ovs-vswitchd") is None:
    pytest.skip("needs root and Open vSwitch", allow_module_level=True)

from boxes import SINGLE_MBPS, Boxes

pytestmark = pytest.mark.root
TCP, UDP = 0.85, 0.95
TRIES = 3
"""A shared machine may not give a transfer its time."""


@pytest.fixture(scope="module")
def boxes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Boxes]:
    with Boxes(tmp_path_factory.mktemp("boxes"), {"plc": 1500, "wifi": 2304}) as boxes:
        yield boxes


def small_ports(boxes: Boxes) -> dict[str, int]:
    return {port["port"]: port["mtu_bytes"] for port in boxes.health().get("small_ports", ())}


def told_mtu(boxes: Boxes, to: str, payload: int) -> int | None:
    """The path MTU that a host is told when it pings without fragments; None: all answers came."""
    family = ["-6"] if ":" in to else []
    boxes.at("gw", "ip", *family, "route", "flush", "cache")
    words = ["ping", *family, "-c", "2", "-i", "0.2", "-W", "1", "-M", "do", "-s", str(payload), to]
    done = boxes.at("gw", *words)
    if " 0% packet loss" in done.stdout:
        return None
    found = re.search(r"mtu\W+(\d+)", done.stdout + done.stderr)
    assert found is not None, done.stdout + done.stderr
    return int(found[1])


def arrives(boxes: Boxes, to: str, payload: int) -> bool:
    """Whether pings arrive that may be fragmented. In IPv6 each end learns the path MTU by its first packet."""
    family = ["-6"] if ":" in to else []
    words = ["ping", *family, "-c", "4", "-i", "0.2", "-W", "1", "-M", "dont", "-s", str(payload), to]
    found = re.search(r"(\d+) received", boxes.at("gw", *words).stdout)
    return found is not None and int(found[1]) >= (2 if family else 4)


def tcp_is_fast(boxes: Boxes, rate_mbps: float) -> None:
    """TCP gets 0.85 of the rate; on a busy machine 0.85 of what datagrams get at that time, and half of the rate."""
    figures = []
    for _ in range(TRIES):
        offered = ("-u", "-b", f"{rate_mbps}M", "-l", "1394")
        datagrams, tcp = (boxes.received_mbps(*options) for options in (offered, ("-C", "cubic")))
        figures.append((tcp, datagrams))
        if tcp >= TCP * min(rate_mbps, datagrams) and tcp >= rate_mbps / 2:
            return
    pytest.fail(f"TCP and datagrams got {figures} of {rate_mbps} Mb/s")


def full_datagrams_arrive(boxes: Boxes, rate_mbps: float) -> None:
    """Datagrams of 1472 bytes are fragmented on their way."""
    offered = 0.5 * rate_mbps
    received: list[float] = []
    while max(received, default=0.0) < UDP * offered and len(received) < TRIES:
        received.append(boxes.received_mbps("-u", "-b", f"{offered}M", "-l", "1472"))
    assert max(received) >= UDP * offered, received


def test_small_ports_are_named(boxes: Boxes) -> None:
    boxes.until(lambda: small_ports(boxes) == {"gw-plc": 1500, "up-plc": 1500}, 5.0)
    assert boxes.health()["ok"]


def test_hosts_hear_what_fits_the_single_path(boxes: Boxes) -> None:
    assert told_mtu(boxes, "10.0.0.3", 1472) == 1482
    assert told_mtu(boxes, "fd00::3", 1452) == 1482
    # A datagram of QUIC or WireGuard fits.
    assert told_mtu(boxes, "10.0.0.3", 1452) is None
    assert arrives(boxes, "10.0.0.3", 1472) and arrives(boxes, "10.0.0.3", 4000) and arrives(boxes, "fd00::3", 4000)


def test_single_path_carries_tcp_and_datagrams(boxes: Boxes) -> None:
    tcp_is_fast(boxes, SINGLE_MBPS)
    full_datagrams_arrive(boxes, SINGLE_MBPS)


def test_multipath_carries_tcp_and_datagrams(boxes: Boxes) -> None:
    flow = '{"id":"web","from":"gw","to":"attic"}'
    boxes.rest("/flows", "-X", "POST", "-H", "Content-Type: application/json", "-d", flow)
    found = boxes.until(lambda: (f := boxes.rest("/flows/web")).get("state") == "multipath" and not f["pending"] and f)
    # Frames that do not fit go in pieces.
    assert told_mtu(boxes, "10.0.0.3", 1472) is None
    assert arrives(boxes, "10.0.0.3", 1472) and arrives(boxes, "fd00::3", 4000)
    tcp_is_fast(boxes, found["rate_mbps"])
    full_datagrams_arrive(boxes, found["rate_mbps"])


def test_a_port_that_becomes_smaller_is_followed_within_five_seconds(boxes: Boxes) -> None:
    boxes.rig.inside("ip", "link", "set", "attic-wifi", "mtu", "1400")
    boxes.until(lambda: small_ports(boxes).get("attic-wifi") == 1400, 5.0)
    boxes.until(lambda: not boxes.health()["pending"], 5.0)
    # Back: acknowledgements, by the single path.
    assert arrives(boxes, "10.0.0.3", 1472)
    tcp_is_fast(boxes, boxes.rest("/flows/web")["rate_mbps"])
    boxes.rest("/flows/web", "-X", "DELETE")
    boxes.until(lambda: boxes.rest("/flows").get("flows") == [])
    assert told_mtu(boxes, "10.0.0.3", 1472) == 1382
    tcp_is_fast(boxes, SINGLE_MBPS)
