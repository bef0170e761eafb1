"""Rules on demand on real Open vSwitch: the real controller is told that no network is small."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator

import pytest

if os.geteuid() != 0 or shutil.which("ovs-vswitchd") is None:
    pytest.skip("needs root and Open vSwitch", allow_module_level=True)

from client_lab import ClientLab, eventually, mesh

pytestmark = pytest.mark.root
QUIET_S = 1.0
NODES = 6


@pytest.fixture(scope="module")
def lab() -> Iterator[ClientLab]:
    with ClientLab(mesh(NODES), {"all_routes_nodes": 0, "access": {"quiet_s": QUIET_S}}) as lab:
        yield lab


def about(lab: ClientLab, mac: str) -> dict[str, int]:
    """How many rules switches have about a host, where they have any."""
    found = {node: sum(mac in rule for rule in lab.flows(node)) for node in lab.addressing.dpid}
    return {node: count for node, count in found.items() if count}


def everything(lab: ClientLab) -> dict[str, list[str]]:
    return {node: sorted(lab.flows(node)) for node in lab.addressing.dpid}


def forwards(lab: ClientLab, node: str, mac: str) -> bool:
    """Whether a switch sends a host's frames behind a label."""
    return any(f"dl_dst={mac}" in rule and "table=2" in rule and "encap" in rule for rule in lab.flows(node))


def test_hosts_that_never_talked_lose_no_frame_and_then_take_no_detour(lab: ClientLab) -> None:
    """The first frame is flooded; soon the first switch knows where the host is, and nobody else sees its frames."""
    source, target = lab.addressing.host_mac["n0"], lab.addressing.host_mac["n3"]
    assert not forwards(lab, "n0", target)
    for i in range(30):
        payload = b"frame %d." % i
        lab.send("n0", source, target, payload=payload)
        assert lab.came("n3", payload), f"frame {i} is lost"
    eventually(lambda: forwards(lab, "n0", target))
    time.sleep(0.6)  # what Open vSwitch has cached
    for node in ("n1", "n2", "n4", "n5"):
        list(lab.received(node))
    lab.send("n0", source, target, payload=b"straight")
    assert lab.came("n3", b"straight")
    assert not any(lab.came(node, b"straight", 0.1) for node in ("n1", "n2", "n4", "n5"))
    assert set(about(lab, target)) == {"n0", "n3"}, "no other switch knows the host"


def test_a_learned_host_is_known_where_it_is_and_to_those_who_talk_to_it(lab: ClientLab) -> None:
    x, y = "02:aa:00:00:01:01", "02:aa:00:00:01:02"
    lab.send("n1", x)
    lab.send("n4", y)
    eventually(lambda: about(lab, x) == {"n1": 3} and about(lab, y) == {"n4": 3})
    lab.send("n1", x, y, payload=b"first x to y")
    assert lab.came("n4", b"first x to y")
    lab.send("n4", y, x, payload=b"first y to x")
    assert lab.came("n1", b"first y to x")
    eventually(lambda: about(lab, x) == {"n1": 3, "n4": 1} and about(lab, y) == {"n4": 3, "n1": 1})


def test_a_host_moves_and_those_who_talk_to_it_follow(lab: ClientLab) -> None:
    x, y = "02:aa:00:00:02:01", "02:aa:00:00:02:02"
    lab.send("n1", x)
    lab.send("n4", y)
    eventually(lambda: about(lab, x) == {"n1": 3} and about(lab, y) == {"n4": 3})
    lab.send("n4", y, x, payload=b"y to x")
    assert lab.came("n1", b"y to x")
    eventually(lambda: about(lab, x) == {"n1": 3, "n4": 1})
    time.sleep(2.5 + QUIET_S)
    lab.send("n2", x, payload=b"x is here now")
    eventually(lambda: about(lab, x) == {"n2": 3, "n4": 1})
    lab.send("n4", y, x, payload=b"to the new place")
    assert lab.came("n2", b"to the new place")
    lab.send("n5", "02:aa:00:00:02:03", x, payload=b"from somebody new")
    assert lab.came("n2", b"from somebody new")


def test_a_restart_changes_no_rule(lab: ClientLab) -> None:
    """Pairs in use are read back from the switches."""
    a, b = lab.addressing.host_mac["n1"], lab.addressing.host_mac["n5"]
    lab.send("n1", a, b, payload=b"before")
    assert lab.came("n5", b"before")
    eventually(lambda: forwards(lab, "n1", b))
    time.sleep(1.0)
    before = everything(lab)
    lab.stop_controller()
    lab.start_controller()
    for _ in range(20):
        assert everything(lab) == before
        time.sleep(0.2)
    lab.send("n1", a, b, payload=b"after")
    assert lab.came("n5", b"after")
