"""Queues of slices on a real Open vSwitch: in rules, groups and packet-outs, unseen by guests, marks on real frames."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import ovs_rig
import pytest
from raw_guest import RawGuest, inside
from slicer_rig import SlicerRig, available

from hyroads.controller.ofp import wire
from hyroads.slices.core import classifier
from hyroads.slices.core.match import of_fields

pytestmark = [pytest.mark.root, pytest.mark.skipif(not available(), reason="needs root and Open vSwitch")]

QUEUE, DSCP = 3, 46
RED: dict[str, Any] = {
    "name": "red",
    "controllers": ["tcp:127.0.0.1:6811"],
    "flowspace": [{"ports": ["p1", "p2"]}],
    "limits": {"queue": QUEUE, "rate_out_mbps": 5, "rate_out_least_mbps": 1, "dscp": DSCP},
}
PRODUCTION = {"name": "production", "controllers": ["tcp:127.0.0.1:6812"]}
FLOOD, ANY = 0xFFFFFFFB, 0xFFFFFFFF


def output(port: int) -> bytes:
    return struct.pack("!HHIH6x", 0, 16, port, 0)


def apply(*actions: bytes) -> bytes:
    return struct.pack("!HH4x", 4, 8 + sum(map(len, actions))) + b"".join(actions)


def rule(in_port: int, instructions: bytes, priority: int = 9) -> bytes:
    fields = classifier.encode(of_fields({"in_port": in_port}))
    return wire.message(wire.flow_mod_body(wire.ADD, 0, priority, fields, instructions), 5)


def group(number: int, port: int) -> bytes:
    bucket = struct.pack("!HHII4x", 32, 0, ANY, ANY) + output(port)
    return wire.message(struct.pack("!HBxI", 0, 0, number) + bucket, 6, 15)


def packet_out(in_port: int, port: int, frame: bytes) -> bytes:
    actions = output(port)
    return wire.message(struct.pack("!IIH6x", ANY, in_port, len(actions)) + actions + frame, 8, 13)


def both_ways(guest: RawGuest, one: int, other: int) -> None:
    assert guest.errors(rule(one, apply(output(other))), rule(other, apply(output(one)))) == []


@pytest.fixture(scope="module")
def rig() -> Iterator[SlicerRig]:
    with SlicerRig() as found:
        found.settings([RED, PRODUCTION])
        found.red, found.production = RawGuest(found.namespace, 6811), RawGuest(found.namespace, 6812)
        found.slicer()
        found.switch(hosts=range(1, 5))
        found.red.accept()
        found.production.accept()
        both_ways(found.red, 1, 2)
        both_ways(found.production, 3, 4)
        yield found


def queues(rig: SlicerRig, *words: str) -> subprocess.CompletedProcess[str]:
    """``hyroads slices queues`` on the rig's switch, with a file of its slices."""
    command = (sys.executable, "-m", "hyroads.controller.cli", "slices", "--json", "queues", *words)
    return subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=60, env={**os.environ, **rig.env}
    )


def carried_out(rig: SlicerRig, *words: str) -> list[str]:
    done = queues(rig, *words)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, list)
    return found


def slice_file(rig: SlicerRig) -> str:
    path = rig.folder / "slices.json"
    path.write_text(json.dumps({"slices": [RED, PRODUCTION]}))
    return str(path)


def marks(rig: SlicerRig, one: int, other: int) -> int:
    """The DSCP of a datagram from one host, as it comes to another."""

    def listen() -> socket.socket:
        heard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        heard.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        heard.bind(("0.0.0.0", 4242))
        heard.settimeout(10)
        return heard

    with inside(rig.hosts[other], listen) as heard:
        sender = inside(rig.hosts[one], lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        with sender:
            sender.sendto(b"mark me", (f"10.0.0.{other}", 4242))
            _, [(_, _, data)], _, _ = heard.recvmsg(100, 100)
    return data[0] >> 2


def test_outputs_of_the_slice_go_through_its_queue_and_others_do_not(rig: SlicerRig) -> None:
    assert rig.reaches(1, 2) and rig.reaches(3, 4)
    actions = sorted(line.split("actions=")[1] for line in rig.flows() if "output" in line)
    assert actions == ["output:3", "output:4", f"set_queue:{QUEUE},output:1", f"set_queue:{QUEUE},output:2"]


def test_groups_and_floods_have_it_too(rig: SlicerRig) -> None:
    red = rig.red
    assert red.errors(group(77, 2), rule(2, apply(output(FLOOD)), 3)) == []
    described = rig.ofctl("dump-groups", "s1")
    buckets = [line for line in described.splitlines() if "output:2" in line and "group_id" in line]
    # The slice's own group, and its two for FLOOD and ALL.
    assert len(buckets) == 3
    assert all(line.count(f"set_queue:{QUEUE},output") == line.count("output:") for line in buckets), buckets
    assert red.errors(wire.message(struct.pack("!HBxI", 2, 0, 77), 6, 15)) == []


def test_a_guest_reads_back_what_it_wrote(rig: SlicerRig) -> None:
    red = rig.red
    assert red.errors(group(78, 2)) == []
    question = struct.pack("!HH4xB3xII4xQQ", 1, 0, 0xFF, ANY, ANY, 0, 0) + wire.match_struct(b"")
    answers = red.tell(wire.message(question, 9, wire.MULTIPART_REQUEST))
    body = b"".join(message[16:] for message in answers)
    assert apply(output(1)) in body and apply(output(2)) in body and struct.pack("!HHI", 21, 8, QUEUE) not in body
    [described] = red.tell(wire.message(struct.pack("!HH4x", 7, 0), 9, wire.MULTIPART_REQUEST))
    assert described[16:].endswith(struct.pack("!HHII4x", 32, 0, ANY, ANY) + output(2))
    assert red.errors(wire.message(struct.pack("!HBxI", 2, 0, 78), 6, 15)) == []
    assert red.errors(rule(1, apply(struct.pack("!HHI", 21, 8, QUEUE), output(2)))) == [(2, 8)]


def test_queues_are_made_once_marked_frames_come_out_and_nothing_is_left(rig: SlicerRig) -> None:
    file = slice_file(rig)
    assert marks(rig, 1, 2) == 0
    assert len(carried_out(rig, file, "--bridge", "s1", "--rate-mbps", "100", "--apply")) == 4
    assert carried_out(rig, file, "--bridge", "s1", "--rate-mbps", "100", "--apply") == []
    assert ovs_rig.wait_until(lambda: marks(rig, 1, 2) == DSCP)
    assert marks(rig, 2, 1) == DSCP
    assert marks(rig, 3, 4) == 0, "production has no queue"
    listing = rig.vsctl("--columns=dscp,other_config", "list", "queue")
    assert listing.count('max-rate="5000000"') == listing.count('min-rate="1000000"') == 4
    # Open vSwitch makes a class of the kernel's HTB of each; 4 is queue 3.
    classes = rig.inside("tc", "class", "show", "dev", "p1").splitlines()
    assert any("htb 1:4 " in line and "rate 1Mbit ceil 5Mbit" in line for line in classes), classes
    [call, *_] = carried_out(rig, file, "--port", "p1", "--rate-mbps", "50", "--apply")
    assert "destroy qos" in call
    assert len(carried_out(rig, "--clear")) == 4
    assert not rig.vsctl("list", "qos").strip() and not rig.vsctl("list", "queue").strip()
    assert ovs_rig.wait_until(lambda: marks(rig, 1, 2) == 0)


def test_packet_outs_are_marked_as_well(rig: SlicerRig) -> None:
    red = rig.red
    carried_out(rig, slice_file(rig), "--bridge", "s1", "--apply")
    assert ovs_rig.wait_until(lambda: marks(rig, 1, 2) == DSCP)
    udp = struct.pack("!HHHH", 4241, 4242, 15, 0) + b"told it"
    ip = bytearray(
        struct.pack("!BBHHHBBH4s4s", 0x45, 0, 35, 1, 0, 64, 17, 0, bytes((10, 0, 0, 1)), bytes((10, 0, 0, 2)))
    )
    total = sum(struct.unpack("!10H", ip))
    ip[10:12] = (~((total & 0xFFFF) + (total >> 16)) & 0xFFFF).to_bytes(2, "big")
    frame = bytes.fromhex("020000000002 020000000001 0800") + bytes(ip) + udp

    def listen() -> socket.socket:
        heard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        heard.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        heard.bind(("0.0.0.0", 4242))
        heard.settimeout(10)
        return heard

    with inside(rig.hosts[2], listen) as heard:
        assert red.errors(packet_out(1, 2, frame)) == []
        data, [(_, _, tos)], _, _ = heard.recvmsg(100, 100)
    assert data == b"told it" and tos[0] >> 2 == DSCP
    carried_out(rig, "--clear")


def test_another_queue_changes_rules_in_place(rig: SlicerRig) -> None:
    assert rig.reaches(1, 2)

    def counted() -> dict[str, str]:
        lines = [line for line in rig.ofctl("dump-flows", "s1").splitlines() if "set_queue" in line]
        return {line.split("actions=")[1].strip(): line.split("n_packets=")[1].split(",")[0] for line in lines}

    before = counted()
    assert all(int(packets) > 0 for actions, packets in before.items() if "output:1" in actions)
    rig.ask("update-slice", "red", "--limit", "queue=8")
    after = counted()
    assert set(after) == {actions.replace(f"set_queue:{QUEUE}", "set_queue:8") for actions in before}
    for actions, packets in before.items():
        assert int(after[actions.replace(f"set_queue:{QUEUE}", "set_queue:8")]) >= int(packets), "counters stay"
    floods = [line for line in rig.ofctl("dump-groups", "s1").splitlines() if "set_queue" in line]
    assert floods and all("set_queue:8" in line for line in floods)
    refused = rig.slices("update-slice", "production", "--limit", "queue=8")
    assert refused.returncode == 2 and "the same queue 8" in refused.stderr
    rig.ask("update-slice", "red", "--limit", f"queue={QUEUE}")
    assert set(counted()) == set(before)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "FILE"),
        (("nowhere.yaml", "--port", "p1"), "nowhere.yaml"),
        (("FILE",), "--port"),
        (("FILE", "--bridge", "s9"), "no bridge named s9"),
        (("FILE", "--port", "p1", "--rate-mbps", "0"), "--rate-mbps"),
        (("FILE", "--clear"), "FILE"),
    ],
)
def test_wrong_words_are_one_line(rig: SlicerRig, words: tuple[str, ...], problem: str) -> None:
    file = slice_file(rig)
    done = queues(rig, *(file if word == "FILE" else word for word in words))
    assert done.returncode == 2 and problem in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


def test_a_qos_of_somebody_else_is_left_alone(rig: SlicerRig) -> None:
    rig.vsctl("--", "--id=@q", "create", "qos", "type=linux-noop", "--", "set", "port", "p4", "qos=@q")
    done = queues(rig, slice_file(rig), "--bridge", "s1", "--apply")
    assert done.returncode == 2 and "port p4 has a QoS that is not ours" in done.stderr
    assert not rig.vsctl("list", "queue").strip(), "nothing is half applied"
    assert carried_out(rig, "--clear") == []
    assert "linux-noop" in rig.vsctl("list", "qos")
    rig.vsctl("clear", "port", "p4", "qos", "--", "--all", "destroy", "qos")
