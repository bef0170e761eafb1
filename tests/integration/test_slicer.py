"""Two unmodified Ryu learning switches and one for production share a real Open vSwitch through the slicer."""

from __future__ import annotations

import signal
import socket
import struct
import time
from collections.abc import Iterator

import ovs_rig
import pytest
from raw_guest import inside
from scripted_switch import ScriptedSwitch
from slicer_rig import Control, SlicerRig, available

from hyroads.controller.ofp import wire

pytestmark = [pytest.mark.root, pytest.mark.skipif(not available(), reason="needs root and Open vSwitch")]

GUESTS = {"production": 6701, "red": 6702, "blue": 6703}
SLICES = [
    {"name": "production", "controllers": ["tcp:127.0.0.1:6701"]},
    {"name": "red", "controllers": ["tcp:127.0.0.1:6702"], "flowspace": [{"ports": ["p1", "p2"]}]},
    {"name": "blue", "controllers": ["tcp:127.0.0.1:6703"], "flowspace": [{"ports": ["p3", "p4"]}]},
]
INSIDE = ((1, 2), (3, 4), (5, 6))
ACROSS = ((1, 3), (2, 5), (3, 6), (5, 1), (4, 2))


@pytest.fixture(scope="module")
def rig() -> Iterator[SlicerRig]:
    with SlicerRig() as found:
        for name, port in GUESTS.items():
            found.ryu(name, port)
        found.settings(SLICES)
        found.slicer()
        found.switch()
        assert ovs_rig.wait_until(lambda: found.log("slicer").count("connected") >= 3, 60), found.log("slicer")
        assert ovs_rig.wait_until(lambda: len(table_misses(found)) == 3, 20), found.flows()
        yield found


def table_misses(rig: SlicerRig) -> list[str]:
    """The rule that every learning switch installs first, in its own first table (table 0 is not written out)."""
    return [line for line in rig.flows() if "CONTROLLER:65535" in line and "table=" in line]


def test_each_slice_is_a_network_of_its_own(rig: SlicerRig) -> None:
    for one, other in INSIDE:
        assert rig.reaches(one, other), rig.log("slicer")
    for one, other in ACROSS:
        assert not rig.reaches(one, other)
    tables = {line.split("table=")[1].split(",")[0] for line in rig.flows() if "table=" in line}
    assert len(tables) == 3, "each guest's rules are in a table of its own"


def test_a_killed_slicer_stops_nothing_and_comes_back_to_what_is_there(rig: SlicerRig) -> None:
    assert rig.reaches(1, 2)
    before = sorted(rig.flows())
    rig.stop("slicer", signal.SIGKILL)
    assert rig.ping(rig.hosts[1], "10.0.0.2", "-c", "20") == 1.0
    assert sorted(rig.flows()) == before
    rig.ofctl("--strict", "del-flows", "s1", "table=0,priority=100,in_port=1")
    rig.ofctl("add-flow", "s1", "table=0,priority=61000,in_port=3,actions=output:1")
    rig.slicer()
    connected = rig.log("slicer").count("connected")
    assert ovs_rig.wait_until(lambda: rig.log("slicer").count("connected") >= connected + 3, 30), rig.log("slicer")
    assert sorted(rig.flows(0)) == [line for line in before if "table=" not in line], "only the difference is mended"
    for one, other in INSIDE:
        assert rig.reaches(one, other)
    for one, other in ACROSS:
        assert not rig.reaches(one, other)


def test_a_guest_comes_and_goes_alone(rig: SlicerRig) -> None:
    assert rig.reaches(1, 2)
    rig.stop("red", signal.SIGKILL)
    assert rig.ping(rig.hosts[1], "10.0.0.2", "-c", "10") == 1.0
    assert rig.reaches(3, 4) and rig.reaches(5, 6)
    connected = rig.log("slicer").count("slice red")
    rig.ryu("red", GUESTS["red"])
    assert ovs_rig.wait_until(lambda: rig.log("slicer").count("slice red") > connected, 40), rig.log("slicer")
    assert rig.reaches(2, 1) and not rig.reaches(2, 3)


def test_slices_change_while_they_run(rig: SlicerRig) -> None:
    assert rig.reaches(5, 6)
    before = sorted(rig.flows(0))
    production = [line for line in rig.flows() if "output:5" in line]
    assert production
    assert rig.ask("add-slice", "green", "--controller", "tcp:127.0.0.1:6704")["added"] == ["green"]
    assert rig.ask("add-flowspace", "green", "--port", "p5", "--port", "p6")["changed"] == ["green"]
    assert not [line for line in rig.flows() if "output:5" in line], "rules to ports that are gone are gone"
    assert rig.ask("list-slice-info", "production")["switches"]["0x1"]["ports"] == [0xFFFFFFFE]
    assert not rig.reaches(5, 6), "nobody forwards there yet"
    rig.ryu("green", 6704)
    assert ovs_rig.wait_until(lambda: "slice green at" in rig.log("slicer"), 40), rig.log("slicer")
    assert ovs_rig.wait_until(lambda: rig.reaches(5, 6), 20)
    assert not rig.reaches(5, 1) and rig.reaches(1, 2)
    [guest] = rig.ask("list-datapath-info", "1")["slices"]["green"]["controllers"]
    assert guest == {"address": "127.0.0.1:6704", "role": "equal"}
    refused = rig.slices("add-flowspace", "red", "--port", "p3")
    assert refused.returncode == 2 and "slice red, rule 1 and slice blue, rule 0" in refused.stderr
    assert rig.ask("remove-slice", "green")["removed"] == ["green"]
    assert sorted(rig.flows(0)) == before and ovs_rig.wait_until(lambda: rig.reaches(5, 6), 20)
    rig.stop("green")
    for one, other in ACROSS:
        assert not rig.reaches(one, other)


def test_a_wrong_file_changes_nothing_and_a_right_one_all(rig: SlicerRig) -> None:
    def reload(slices: list[dict[str, object]]) -> str:
        seen = len(rig.log("slicer"))
        rig.settings(slices)
        rig.processes["slicer"].send_signal(signal.SIGHUP)
        assert ovs_rig.wait_until(lambda: "reload:" in rig.log("slicer")[seen:], 20)
        return rig.log("slicer")[seen:]

    before = sorted(rig.flows(0))
    assert "nothing changed: " in reload([*SLICES, {"name": "green", "flowspace": [{"ports": ["p1"]}]}])
    assert sorted(rig.flows(0)) == before
    assert "reload: blue" in reload([*SLICES[:2], {**SLICES[2], "flowspace": [{"ports": ["p3"]}]}])
    assert not rig.reaches(3, 4)
    assert "reload: blue" in reload(SLICES)
    assert sorted(rig.flows(0)) == before and ovs_rig.wait_until(lambda: rig.reaches(3, 4), 20)


def test_ports_come_and_go(rig: SlicerRig) -> None:
    rig.vsctl("del-port", "s1", "p2")
    assert ovs_rig.wait_until(lambda: rig.ask("list-slice-info", "red")["switches"]["0x1"]["ports"] == [1], 10)
    assert not [line for line in rig.flows(0) if "in_port=2" in line]
    rig.port("s1", "p2", 2)
    assert ovs_rig.wait_until(lambda: rig.ask("list-slice-info", "red")["switches"]["0x1"]["ports"] == [1, 2], 10)
    assert ovs_rig.wait_until(lambda: rig.reaches(1, 2), 20) and not rig.reaches(1, 3)


def test_a_switch_that_says_nothing_keeps_nobody_waiting(rig: SlicerRig) -> None:
    """It says who it is and answers no question; slices change meanwhile."""
    peer = inside(rig.namespace, lambda: socket.create_connection(("127.0.0.1", 6633), 5))
    with peer:
        features = struct.pack("!QIBB2xII", 0x99, 0, 254, 0, 0x4F, 0)
        peer.sendall(wire.message(b"", 1, 0) + wire.message(features, 2, 6))
        assert peer.recv(1 << 16)
        start = time.monotonic()
        assert rig.ask("add-slice", "quiet")["added"] == ["quiet"]
        assert rig.ask("remove-slice", "quiet")["removed"] == ["quiet"]
        assert time.monotonic() - start < 10 and rig.reaches(1, 2)


def socket_of(rig: SlicerRig) -> socket.socket:
    """A connection to the slicer, as of a switch."""
    return inside(rig.namespace, lambda: socket.create_connection(("127.0.0.1", 6633), 5))


def test_a_switch_that_hangs_delays_no_other_and_is_named(rig: SlicerRig) -> None:
    hung = ScriptedSwitch(socket_of(rig), 0x77)
    hung.start()
    control = Control(str(rig.folder / "control"))

    def confirmed() -> bool:
        return {each["dpid"]: each["confirmed"] for each in rig.ask("list-datapaths")}.get("0x77", False)

    assert ovs_rig.wait_until(confirmed, 20), rig.log("slicer")
    hung.hang()
    operation = control.ask(
        "PUT", "slices", "late", document={"flowspace": [{"priority": 50, "match": {"vlan_vid": 77}}]}
    )
    assert operation["state"] == "pending" and "switch 0x77" in operation["pending"]
    assert ovs_rig.wait_until(lambda: "dl_vlan=77" in "".join(rig.flows(0)), 20), "in force where it is not hung"
    assert rig.reaches(1, 2) and not confirmed()
    hung.wake()
    assert ovs_rig.wait_until(confirmed, 20), rig.log("slicer")
    assert control.ask("GET", "operations", operation["id"])["state"] == "confirmed"
    hung.hang()
    hung.socket.close()
    removed = control.ask("DELETE", "slices", "late")
    assert removed["state"] == "pending" and removed["pending"] == ["switch 0x77"]
    with socket_of(rig) as again:
        back = ScriptedSwitch(again, 0x77)
        back.start()
        assert ovs_rig.wait_until(lambda: control.ask("GET", "operations", removed["id"])["state"] == "confirmed", 20)


def test_a_switch_comes_and_goes(rig: SlicerRig) -> None:
    connected = rig.log("slicer").count("connected")
    rig.vsctl("del-controller", "s1")
    assert ovs_rig.wait_until(lambda: rig.log("slicer").count("switch 0x1: gone") >= 1, 10)
    time.sleep(0.5)
    rig.vsctl("set-controller", "s1", "tcp:127.0.0.1:6633", "--", "set", "controller", "s1", "max_backoff=1000")
    assert ovs_rig.wait_until(lambda: rig.log("slicer").count("connected") >= connected + 3, 30), rig.log("slicer")
    for one, other in INSIDE:
        assert ovs_rig.wait_until(lambda one=one, other=other: rig.reaches(one, other), 20)
    assert not rig.reaches(1, 3)
    assert rig.stop("slicer") == 0, "a clean end"
    assert "error of the slicer's own" not in rig.log("slicer")
    rig.slicer()
