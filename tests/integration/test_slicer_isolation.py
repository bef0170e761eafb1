"""Attacks of a hostile controller on the slices beside it: on a real Open vSwitch, through the process.

After each attack everything of the others is as before: flow entries, groups, meters and ports of the switch, their
connections, their forwarding; and nothing of the attacker's hosts arrives at anybody else's. All of it is done twice:
in the clear, and with TLS towards the switch and all controllers, where other code reads and writes.
"""

from __future__ import annotations

import random
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ovs_rig
import pytest
from controller_process import NETWORK
from raw_guest import RawGuest, heard, packet_socket
from slicer_rig import Control, SlicerRig, available

from hyroads.controller.cli.main import main
from hyroads.controller.ofp import wire
from hyroads.slices.core import classifier
from hyroads.slices.core.classifier import discovery_mac
from hyroads.slices.core.fields import BY_NAME, VLAN_PRESENT
from hyroads.slices.core.match import completed, of_fields
from hyroads.slices.proxy.discovery import FRESH_S
from hyroads.slices.proxy.guest_view import FLOOD_GROUPS

pytestmark = [pytest.mark.root, pytest.mark.skipif(not available(), reason="needs root and Open vSwitch")]

NO_BUFFER = ANY = 0xFFFFFFFF
IN_PORT, TABLE, NORMAL, FLOOD, ALL, CONTROLLER, LOCAL = range(0xFFFFFFF8, 0xFFFFFFFF)
MAGIC = b"EVIL-EVIL-EVIL"
EVIL: dict[str, Any] = {
    "name": "evil",
    "controllers": ["tcp:127.0.0.1:6801"],
    "flowspace": [{"ports": ["p1", "p2"]}, {"ports": ["p7"], "match": {"vlan_vid": 100}}],
    "limits": {"tables": 4, "flow_entries": 400, "groups": 8, "meters": 4, "flow_mods_per_s": 20000},
}
GOOD: dict[str, Any] = {
    "name": "good",
    "controllers": ["tcp:127.0.0.1:6802"],
    "flowspace": [{"ports": ["p3", "p4"]}, {"ports": ["p7"], "match": {"vlan_vid": 200}}],
    "limits": {"tables": 4},
}
PRODUCTION = {"name": "production", "controllers": ["tcp:127.0.0.1:6803"]}


# -- messages ---------------------------------------------------------------------------------------------------------


def message(kind: int, body: bytes = b"", version: int = 4, xid: int = 7) -> bytes:
    return struct.pack("!BBHI", version, kind, 8 + len(body), xid) + body


def fields(**wanted: Any) -> bytes:
    return classifier.encode(of_fields(wanted))


def output(port: int) -> bytes:
    return struct.pack("!HHIH6x", 0, 16, port, 0xFFFF)


def action(kind: int, body: bytes = b"\0" * 4) -> bytes:
    body += b"\0" * (-(4 + len(body)) % 8)
    return struct.pack("!HH", kind, 4 + len(body)) + body


def set_field(name: str, value: int) -> bytes:
    field = BY_NAME[name]
    return action(25, classifier.field_bytes(field, value, field.ones))


def apply(*actions: bytes) -> bytes:
    return struct.pack("!HH4x", 4, 8 + sum(map(len, actions))) + b"".join(actions)


def write(*actions: bytes) -> bytes:
    return struct.pack("!HH4x", 3, 8 + sum(map(len, actions))) + b"".join(actions)


def goto(table: int) -> bytes:
    return struct.pack("!HHB3x", 1, 8, table)


def flow(instructions: bytes = b"", match: bytes = b"", **options: int) -> bytes:
    given = {**dict.fromkeys(("cookie", "mask", "table", "command", "flags"), 0), "priority": 9}
    o = {**given, **dict.fromkeys(("buffer", "port", "group"), ANY), **options}
    head = struct.pack(
        "!QQBBHHHIIIH2x", o["cookie"], o["mask"], o["table"], o["command"], 0, 0, o["priority"], o["buffer"],
        o["port"], o["group"], o["flags"],
    )  # fmt: skip
    return message(14, head + wire.match_struct(match) + instructions)


def bucket(*actions: bytes, port: int = ANY, group: int = ANY, weight: int = 0) -> bytes:
    body = b"".join(actions)
    return struct.pack("!HHII4x", 16 + len(body), weight, port, group) + body


def group_mod(command: int, number: int, *buckets: bytes, kind: int = 0) -> bytes:
    return message(15, struct.pack("!HBxI", command, kind, number) + b"".join(buckets))


def meter_mod(command: int, number: int, bands: bytes = struct.pack("!HHII4x", 1, 16, 1000, 0)) -> bytes:
    return message(29, struct.pack("!HHI", command, 1, number) + bands)


def frame(vlan: int | None = None, destination: bytes = b"\xff" * 6, source: bytes = b"\2\0\0\0\0\1") -> bytes:
    tag = b"" if vlan is None else struct.pack("!HH", 0x8100, vlan)
    return destination + source + tag + b"\x08\x99" + MAGIC + bytes(40)


def packet_out(*actions: bytes, port: int = CONTROLLER, data: bytes = frame(), buffer: int = NO_BUFFER) -> bytes:
    body = b"".join(actions)
    return message(13, struct.pack("!IIH6x", buffer, port, len(body)) + body + data)


def stats(kind: int, body: bytes = b"") -> bytes:
    return message(18, struct.pack("!HH4x", kind, 0) + body)


def flow_stats(table: int, kind: int = 1) -> bytes:
    return stats(kind, struct.pack("!B3xII4xQQ", table, ANY, ANY, 0, 0) + wire.match_struct(b""))


def nicira(kind: int, body: bytes = b"") -> bytes:
    return action(0xFFFF, struct.pack("!IH", 0x2320, kind) + body)


# -- the network ------------------------------------------------------------------------------------------------------


class Lab:
    """Hosts 1, 2 are evil's, 3, 4 good's, 5, 6 production's; behind port 7 are both, by VLAN."""

    def __init__(self, rig: SlicerRig, *, tls: bool) -> None:
        self.rig = rig
        slices, context = [PRODUCTION, EVIL, GOOD], None
        if tls:
            folder, context = certified(rig)
            slices = [
                {**each, "controllers": [c.replace("tcp:", "tls:") for c in each["controllers"]]} for each in slices
            ]
            own = {
                "key": f"{folder}/slicer-slicer.key",
                "certificate": f"{folder}/slicer-slicer.pem",
                "ca": f"{folder}/ca.pem",
            }
            rig.settings(slices, tls=own, controllers_tls=own)
        else:
            rig.settings(slices)
        rig.switch(hosts=range(1, 9))
        if tls:
            rig.vsctl("set-ssl", *(f"{folder}/{name}" for name in ("a/node.key", "a/node.pem", "ca.pem")))
            rig.vsctl("set-controller", "s1", "ssl:127.0.0.1:6633")
        self.slices = {each["name"]: each for each in slices}
        ports = {"evil": 6801, "good": 6802, "production": 6803}
        self.guests = {name: RawGuest(rig.namespace, port, context) for name, port in ports.items()}
        rig.slicer()
        for guest in self.guests.values():
            guest.accept()
        self.evil, self.good = self.guests["evil"], self.guests["good"]
        self.control = Control(str(rig.folder / "control"))
        self.hosts = {i: packet_socket(namespace) for i, namespace in rig.hosts.items()}
        self.blocks = {name: self.control.ask("GET", "slices", name)["switches"]["0x1"] for name in self.guests}
        assert not self.good.errors(
            flow(apply(output(4)), fields(in_port=3), cookie=0xBEEF, priority=100),
            flow(apply(output(3)), fields(in_port=4), cookie=0xBEEF, priority=100),
            flow(apply(output(CONTROLLER)), fields(in_port=7), cookie=0xBEEF, priority=100),
            group_mod(0, 1, bucket(output(4))),
            meter_mod(0, 1),
        )
        assert not self.guests["production"].errors(
            flow(apply(output(6)), fields(in_port=5)), flow(apply(output(5)), fields(in_port=6))
        )
        self.clean()
        self.before = self.others()

    def others(self) -> tuple[object, ...]:
        """What is in the switch besides the attacker's rules."""
        first, count = self.blocks["evil"]["tables"]["first"], self.blocks["evil"]["tables"]["count"]
        mine = {f"table={table}," for table in range(first, first + count)}
        rules = sorted(line for line in self.rig.flows() if not any(table in line for table in mine))
        groups = sorted(line.strip() for line in self.rig.ofctl("dump-groups", "s1").splitlines() if "group_id" in line)
        meters = self.rig.ofctl("dump-meters", "s1").splitlines()[1:]
        ports = [line for line in self.rig.ofctl("dump-ports-desc", "s1").splitlines() if "config:" in line]
        return rules, groups, meters, ports

    def clean(self) -> None:
        """The attacker's own things are gone, by its own means."""
        self.evil.tell(flow(table=255, command=3), group_mod(2, 0xFFFFFFFC), meter_mod(2, ANY, b""))
        self.evil.tell(group_mod(2, ANY))

    def clean_network(self) -> None:
        for each in self.hosts.values():
            heard(each, b"")

    def reconnect(self) -> None:
        self.evil.close()
        self.evil.accept()

    def send_from_evil(self) -> None:
        """Frames of all kinds from the attacker's hosts."""
        for host in (1, 2):
            for destination in (b"\xff" * 6, b"\2\0\0\0\0\3", b"\2\0\0\0\0\5"):
                for vlan in (None, 100, 200):
                    self.hosts[host].send(frame(vlan, destination))
        self.hosts[7].send(frame(100, source=b"\2\0\0\0\0\7"))

    def leaks(self) -> dict[int, list[bytes]]:
        """Frames of the attacker at hosts of others; behind port 7 VLAN 100 is its own."""
        time.sleep(0.05)
        found = {host: heard(self.hosts[host], MAGIC) for host in range(3, 9)}
        found[7] = [each for each in found[7] if each[12:16] != b"\x81\0\0\x64" and each[6:12] != b"\2\0\0\0\0\7"]
        return {host: frames for host, frames in found.items() if frames}

    def check(self) -> None:
        """Everything of the others is as before."""
        self.clean_network()
        self.send_from_evil()
        assert not self.leaks()
        self.clean()
        assert self.others() == self.before
        assert self.good.tell(message(2, b"still here?"))[0][8:] == b"still here?"
        self.hosts[3].send(frame(None, b"\2\0\0\0\0\4", b"\2\0\0\0\0\3").replace(MAGIC, b"GOOD-GOOD-GOOD"))
        assert ovs_rig.wait_until(lambda: heard(self.hosts[4], b"GOOD-GOOD-GOOD"), 2)


def certified(rig: SlicerRig) -> tuple[Path, ssl.SSLContext]:
    """A folder with an authority, the slicer's certificate and that of the switch, and what guests listen with."""
    folder = rig.folder / "identities"
    for words in (
        ("authority",),
        ("server", "slicer", "--role", "slicer"),
        ("server", "guest", "127.0.0.1"),
        ("node", "a", "--network", str(NETWORK)),
    ):
        assert main(["identity", *words, "--folder", str(folder)]) == 0
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "guest.pem", folder / "guest.key")
    context.load_verify_locations(folder / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    return folder, context


# TLS is around the same bytes: by day the longer way is enough.
@pytest.fixture(scope="module", params=[pytest.param(False, marks=pytest.mark.nightly), True], ids=["plain", "tls"])
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    with SlicerRig() as rig:
        yield Lab(rig, tls=request.param)


# -- one message, or a few --------------------------------------------------------------------------------------------

MINE = fields(in_port=1)
PUSH = action(17, b"\x81\0")
FORGED = b"\1\x80\xc2\0\0\x0e" + discovery_mac(3).to_bytes(6, "big") + b"\x88\xcc\2\7" + bytes(7) + MAGIC
MARK = discovery_mac(3)
FROM_MARK = set_field("eth_src", MARK)
MASKED = action(
    25, struct.pack("!HBB", 0x8000, BY_NAME["eth_src"].number << 1 | 1, 12) + MARK.to_bytes(6, "big") + b"\xff" * 6
)
NXM_ETH_SRC, NXM_ETH_DST = 0x0406, 0x0206
ATTACKS: dict[str, tuple[list[bytes], tuple[int, int] | None]] = {
    # Out of ports that are not its own.
    "output to another's port": ([flow(apply(output(3)))], (2, 4)),
    "output to production's port": ([flow(apply(output(5)))], (2, 4)),
    "output to the host of the switch": ([flow(apply(output(LOCAL)))], (2, 4)),
    "output NORMAL": ([flow(apply(output(NORMAL)))], (2, 4)),
    "output TABLE in a rule": ([flow(apply(output(TABLE)))], (2, 4)),
    "output to port 0": ([flow(apply(output(0)))], (2, 4)),
    "output to ANY": ([flow(apply(output(ANY)))], (2, 4)),
    "output to a port that is not there": ([flow(apply(output(99)))], (2, 4)),
    "output in an action set": ([flow(write(output(3)))], (2, 4)),
    "output after a harmless one": ([flow(apply(output(2), output(3)))], (2, 4)),
    "output untagged at a shared port": ([flow(apply(output(7)), MINE)], (2, 6)),
    "output another's VLAN at a shared port": (
        [flow(apply(PUSH, set_field("vlan_vid", 0x10C8), output(7)), MINE)],
        (2, 6),
    ),
    "output popped at a shared port": ([flow(apply(action(18), output(IN_PORT)), fields(in_port=7))], (2, 6)),
    "flood where one port is shared": ([flow(apply(output(FLOOD)), MINE)], (2, 6)),
    "a rewrite in an action set": ([flow(write(set_field("vlan_vid", 0x10C8), output(7)))], (2, 6)),
    "a rewrite before another table": (
        [flow(apply(set_field("vlan_vid", 0x10C8)) + goto(1), fields(in_port=7))],
        (2, 6),
    ),
    "a tag twice": ([flow(apply(PUSH, PUSH, set_field("vlan_vid", 0x10C8), output(7)), MINE)], (2, 6)),
    "MPLS at a shared port": ([flow(apply(action(19, b"\x88\x47"), output(7)), MINE)], (2, 6)),
    "queue of the port": ([flow(apply(action(21), output(2)))], (2, 8)),
    # Matches.
    "match on another's port": ([flow(apply(output(2)), fields(in_port=3))], (4, 7)),
    "match on the slice's bits of metadata": ([flow(apply(output(2)), fields(metadata=3 << 48))], (4, 7)),
    "match everything at the highest priority": ([flow(apply(output(2)), priority=65535)], None),
    "match another's VLAN at a shared port": (
        [flow(apply(output(IN_PORT)), fields(in_port=7, vlan_vid=0x10C8), priority=65535)],
        None,
    ),
    "drop everything": ([flow(priority=65535)], None),
    # Tables.
    "a table of another": ([flow(apply(output(2)), table=9)], (5, 2)),
    "the last table": ([flow(apply(output(2)), table=254)], (5, 2)),
    "add to all tables": ([flow(apply(output(2)), table=255)], (5, 2)),
    "goto another's table": ([flow(goto(9))], (3, 2)),
    "goto backwards": ([flow(goto(1), table=2)], (3, 2)),
    "goto itself": ([flow(goto(2), table=2)], (3, 2)),
    "write the slice's metadata": ([flow(struct.pack("!HH4xQQ", 2, 24, 3 << 48, 0xFFFF << 48))], (3, 3)),
    "write all metadata": ([flow(struct.pack("!HH4xQQ", 2, 24, 0, (1 << 64) - 1))], None),
    "set metadata": ([flow(apply(set_field("metadata", 3 << 48)))], (2, 13)),
    "set the ingress port": ([flow(apply(set_field("in_port", 3)))], (2, 13)),
    # Deletes and changes of everything.
    "delete everything": ([flow(table=255, command=3)], None),
    "delete by another's cookie": ([flow(table=255, command=3, cookie=0xBEEF, mask=(1 << 64) - 1)], None),
    "delete by the slicer's cookie": ([flow(table=255, command=3, cookie=0x53 << 56, mask=0xFF << 56)], None),
    "delete by another's port": ([flow(table=255, command=3, port=3)], None),
    "delete by another's group": ([flow(table=255, command=3, group=1)], None),
    "delete by a group of the slicer": ([flow(table=255, command=3, group=FLOOD_GROUPS + 2)], None),
    "strict delete of another's rule": ([flow(b"", fields(in_port=3), command=4, priority=100)], (4, 7)),
    "change everything": ([flow(apply(output(2)), command=1)], None),
    "change the classifier": ([flow(goto(1), fields(in_port=1), command=2, priority=100)], None),
    # Groups and meters.
    "a group to another's port": ([group_mod(0, 1, bucket(output(3)))], (2, 4)),
    "a group that watches another's port": ([group_mod(0, 1, bucket(output(2), port=3, weight=1), kind=3)], (6, 14)),
    "a group that rewrites": ([group_mod(0, 1, bucket(set_field("vlan_vid", 0x10C8), output(7)))], (2, 6)),
    "another's group in a group": ([group_mod(0, 2, bucket(action(22, struct.pack("!I", 1))))], (2, 9)),
    "a group in itself": (
        [group_mod(0, 1, bucket(output(2))), group_mod(1, 1, bucket(action(22, struct.pack("!I", 1))))],
        (6, 7),
    ),
    "a group by another's number": ([flow(apply(action(22, struct.pack("!I", 1))))], (2, 9)),
    "the slicer's flood group of another": ([flow(apply(action(22, struct.pack("!I", FLOOD_GROUPS + 6))))], (2, 9)),
    "change a group that is not there": ([group_mod(1, 1, bucket(output(2)))], (6, 8)),
    "delete all groups": ([group_mod(2, 0xFFFFFFFC), group_mod(2, ANY)], None),
    "delete the slicer's group": ([group_mod(2, FLOOD_GROUPS + 6)], None),
    "groups over the quota": ([group_mod(0, n, bucket(output(2))) for n in range(10, 30)], (6, 3)),
    "a bucket of no length": ([group_mod(0, 1, bytes(16))], (6, 13)),
    "delete all meters": ([meter_mod(2, ANY, b"")], None),
    "the controller's meter": ([meter_mod(0, 0xFFFFFFFD)], (12, 2)),
    "another's meter": ([flow(struct.pack("!HHI", 6, 8, 1) + apply(output(2)))], (5, 0)),
    "meters over the quota": ([meter_mod(0, n) for n in range(1, 12)], (12, 10)),
    "a meter band of no length": ([meter_mod(0, 1, bytes(16))], (1, 6)),
    # Packet-outs.
    "a packet from another's port": ([packet_out(output(2), port=3)], (1, 11)),
    "a packet from production's port": ([packet_out(output(2), port=5)], (1, 11)),
    "a packet to another's port": ([packet_out(output(3))], (2, 4)),
    "a packet of another's VLAN": ([packet_out(output(7), data=frame(200))], (2, 6)),
    "a packet that gets another's VLAN": ([packet_out(PUSH, set_field("vlan_vid", 0x10C8), output(7))], (2, 6)),
    "a packet without VLAN at a shared port": ([packet_out(output(7))], (2, 6)),
    "a packet to all": ([packet_out(output(ALL)), packet_out(output(FLOOD), port=1)], None),
    "a packet into another's table": ([packet_out(output(TABLE), port=3)], (1, 11)),
    "a packet of another's VLAN into the tables": ([packet_out(output(TABLE), port=7, data=frame(200))], (2, 6)),
    "a packet to NORMAL": ([packet_out(output(NORMAL))], (2, 4)),
    "a buffer that nobody told it of": ([packet_out(output(2), buffer=1, data=b"")], (1, 8)),
    "a rule with another's buffer": ([flow(apply(output(2)), buffer=1)], (1, 8)),
    "discovery as another slice": (
        [packet_out(output(7), data=FORGED)],
        (2, 6),
    ),
    # The mark of another's discovery.
    "a rule that writes the mark": ([flow(apply(FROM_MARK, output(2)), MINE)], (2, 6)),
    "a rule that writes any mark": ([flow(apply(set_field("eth_src", MARK | 0xFF00), output(2)), MINE)], (2, 6)),
    "a rule that writes the mark for a while": ([flow(apply(FROM_MARK, set_field("eth_src", 5), output(2)))], (2, 6)),
    "the mark in an action set": ([flow(write(FROM_MARK, output(2)))], (2, 6)),
    "the mark in a group": ([group_mod(0, 1, bucket(FROM_MARK, output(2)))], (2, 6)),
    "the mark behind a tag": ([flow(apply(PUSH, FROM_MARK, output(2)), MINE)], (2, 6)),
    "the mark in a copy": ([flow(apply(nicira(42, bytes(6) + FROM_MARK + output(2))))], (2, 6)),
    "the mark with a mask": ([flow(apply(MASKED, output(2)))], (2, 1)),
    "the mark loaded": ([flow(apply(nicira(7, struct.pack("!HIQ", 47, NXM_ETH_SRC, MARK))))], (2, 3)),
    "the mark moved": ([flow(apply(nicira(6, struct.pack("!HHHII", 48, 0, 0, NXM_ETH_DST, NXM_ETH_SRC))))], (2, 3)),
    "the mark popped": ([flow(apply(nicira(28, struct.pack("!HIH6x", 0, NXM_ETH_SRC, 48))))], (2, 3)),
    "a packet that gets the mark": ([packet_out(FROM_MARK, output(TABLE), port=1)], (2, 6)),
    "a packet that gets it in a copy": (
        [packet_out(nicira(42, bytes(6) + FROM_MARK + output(2)), port=1)],
        (2, 6),
    ),
    # The switch itself.
    "port-mod of another's port": ([message(16, struct.pack("!I4x6s2xIII4x", 3, b"\2\0\0\0\0\3", 1, 1, 0))], (7, 4)),
    "port-mod of its own port": ([message(16, struct.pack("!I4x6s2xIII4x", 1, b"\2\0\0\0\0\1", 1, 1, 0))], (7, 4)),
    "table-mod": ([message(17, struct.pack("!B3xI", 255, 3))], (8, 2)),
    "fragments dropped for all": ([message(9, struct.pack("!HH", 1, 0))], None),
    "table features": ([stats(12, bytes(64))], (13, 5)),
    "a bundle": ([message(4, struct.pack("!IIIHH", 0x4F4E4600, 2300, 1, 0, 1))], (1, 3)),
    "Open vSwitch's packet-in format": ([message(4, struct.pack("!III", 0x2320, 16, 1))], (1, 3)),
    "Open vSwitch's controller id": ([message(4, struct.pack("!II6xH", 0x2320, 20, 0))], (1, 3)),
    "Open vSwitch's flow monitor": ([stats(0xFFFF, struct.pack("!III", 0x2320, 2, 0) + bytes(16))], (1, 3)),
    "master with any generation": ([message(24, struct.pack("!I4xQ", 2, n)) for n in (5, 1 << 63, 1)], (11, 0)),
    "a role that is none": ([message(24, struct.pack("!I4xQ", 9, 0))], (11, 2)),
    "queues of another's port": ([message(22, struct.pack("!I4x", 3))], (9, 0)),
    "a message of no type": ([message(77)], (1, 1)),
    "an old version": ([message(14, bytes(64), version=1)], (1, 0)),
    "a new version": ([message(14, bytes(64), version=6)], (1, 0)),
    # Open vSwitch's own actions.
    "resubmit to another's table": ([flow(apply(nicira(14, struct.pack("!HB3x", 0xFFF8, 9))))], (2, 5)),
    "resubmit to itself": ([flow(apply(nicira(14, struct.pack("!HB3x", 0xFFF8, 0))))], (2, 5)),
    "resubmit as another's port": ([flow(apply(nicira(14, struct.pack("!HB3x", 3, 1))))], (2, 5)),
    "resubmit without table": ([flow(apply(nicira(1, struct.pack("!H4x", 3))))], (2, 3)),
    "registers": ([flow(apply(nicira(7, bytes(14))))], (2, 3)),
    "learn rules for others": ([flow(apply(nicira(16, bytes(22))))], (2, 3)),
    "connection tracking": ([flow(apply(nicira(35, bytes(14))))], (2, 3)),
    "a copy to another's port": ([flow(apply(nicira(42, bytes(6) + output(3))))], (2, 4)),
    "unpack a packet for a shared port": (
        [flow(apply(nicira(47, struct.pack("!2xI", 0xFFFE)), nicira(47, struct.pack("!2xI", 0)), output(7)), MINE)],
        (2, 6),
    ),
    "output by a register": ([flow(apply(nicira(15, bytes(14))))], (2, 3)),
    # Loops and lengths that lie.
    "an action of no length": ([flow(apply(struct.pack("!HHI", 0, 0, 2)))], (2, 1)),
    "an action beyond its list": ([flow(apply(struct.pack("!HHIH6x", 0, 160, 2, 0)))], (2, 1)),
    "an instruction of no length": ([flow(bytes(8))], (3, 7)),
    "an instruction beyond its message": ([flow(struct.pack("!HH4x", 4, 800))], (3, 7)),
    "a field of no length": ([message(14, flow()[8:48] + struct.pack("!HHI", 1, 8, 0x80000800) + bytes(8))], (4, 1)),
    "a field twice": ([message(14, flow()[8:48] + wire.match_struct(MINE * 2))], (4, 10)),
    "a match that is too long": ([message(14, flow()[8:48] + struct.pack("!HHI", 1, 999, 0))], (4, 1)),
    "a match of no kind": ([message(14, flow()[8:48] + struct.pack("!HHI", 0, 4, 0))], (4, 0)),
    "actions longer than their packet": ([message(13, struct.pack("!IIH6x", NO_BUFFER, 1, 999) + output(2))], (1, 6)),
    # What others have, asked for.
    "rules of another's table": ([flow_stats(9)], (1, 9)),
    "sums over another's table": ([flow_stats(200, 2)], (1, 9)),
    "counters of another's port": ([stats(4, struct.pack("!I4x", 3))], (1, 11)),
    "queues' counters of another's port": ([stats(5, struct.pack("!II", 3, ANY))], (1, 11)),
    "counters of another's meter": ([stats(9, struct.pack("!I4x", 1))], (12, 3)),
    "an unknown question": ([stats(99)], (1, 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_gets_the_error_of_a_switch_and_changes_nothing(lab: Lab, name: str) -> None:
    messages, expected = ATTACKS[name]
    errors = lab.evil.errors(*messages)
    assert errors[-1:] == ([] if expected is None else [expected]), lab.rig.log("slicer")[-2000:]
    lab.check()


# -- rewriting every field --------------------------------------------------------------------------------------------

FIELDS: dict[str, tuple[int, int]] = {
    "eth_dst": (0x020000000001, 0x020000000003),
    "eth_src": (0x020000000001, 0x020000000003),
    "vlan_vid": (VLAN_PRESENT | 100, VLAN_PRESENT | 200),
    **dict.fromkeys(("vlan_pcp", "ip_dscp", "ip_ecn", "arp_op", "mpls_tc", "icmpv4_type", "icmpv4_code"), (1, 2)),
    **dict.fromkeys(("ipv4_src", "ipv4_dst", "arp_spa", "arp_tpa"), (167772161, 167772163)),
    **dict.fromkeys(("tcp_src", "tcp_dst", "udp_src", "udp_dst", "sctp_src", "sctp_dst"), (80, 443)),
    **dict.fromkeys(("arp_sha", "arp_tha", "ipv6_nd_sll", "ipv6_nd_tll"), (2199023255553, 2199023255555)),
    **dict.fromkeys(("ipv6_src", "ipv6_dst", "ipv6_nd_target"), (65152 << 112 | 1, 65152 << 112 | 3)),
    **dict.fromkeys(("ipv6_flabel", "mpls_label", "icmpv6_code"), (16, 17)),
    "mpls_bos": (0, 1),
}


def text(name: str, value: int) -> str | int:
    if name.endswith(("_src", "_dst", "sha", "tha", "sll", "tll")) and BY_NAME[name].bits == 48:
        return ":".join(f"{byte:02x}" for byte in value.to_bytes(6, "big"))
    if BY_NAME[name].bits == 32:
        return socket.inet_ntoa(value.to_bytes(4, "big"))
    if BY_NAME[name].bits == 128:
        return socket.inet_ntop(socket.AF_INET6, value.to_bytes(16, "big"))
    return value & 0xFFF if name == "vlan_vid" else value


@pytest.mark.parametrize("name", FIELDS)
def test_no_field_can_be_rewritten_into_anothers_flowspace(lab: Lab, name: str) -> None:
    """At port 8 the slices are told apart by this field alone."""
    mine, theirs = FIELDS[name]
    for each, value in ((lab.slices["evil"], mine), (lab.slices["good"], theirs)):
        rule = {"ports": ["p8"], "priority": 300, "match": {name: text(name, value)}}
        lab.control.ask("PUT", "slices", each["name"], document={**each, "flowspace": [*each["flowspace"], rule]})
    try:
        prerequisites = completed({name: mine})[0]
        match = classifier.encode(of_fields({"in_port": 1, **{f.name: (v, m) for f, v, m in prerequisites.fields()}}))
        assert not lab.evil.errors(flow(apply(output(8)), match)), "what is its own may leave"
        assert lab.evil.errors(flow(apply(set_field(name, theirs), output(8)), match)) == [(2, 6)]
        needed = {f.name: (v, m) for f, v, m in prerequisites.fields() if f.name != name}
        whole = classifier.encode(of_fields({"in_port": 1, **needed}))
        assert lab.evil.errors(flow(apply(output(8)), whole)) == [(2, 6)], "and what may be another's may not"
    finally:
        lab.evil.tell(flow(table=255, command=3))
        for each in (lab.slices["evil"], lab.slices["good"]):
            lab.control.ask("PUT", "slices", each["name"], document=each)
    lab.check()


# -- floods, silence and noise ----------------------------------------------------------------------------------------


def test_every_type_truncated_and_filled_with_noise(lab: Lab) -> None:
    rng = random.Random(5)
    bodies = [b"", *(rng.randbytes(size) for size in (1, 4, 8, 16, 40, 64, 200) for _ in range(6))]
    whole = [each for messages, _ in ATTACKS.values() for each in messages if each[0] == 4]
    cut = [message(each[1], each[8 : rng.randrange(8, len(each) + 1)]) for each in whole for _ in range(3)]
    for kind in range(36):
        noise = [message(kind, body) for body in bodies if kind != 20 or body]
        lab.evil.tell(*noise)
    lab.evil.tell(*cut)
    lab.check()


@pytest.mark.parametrize("data", [b"\4\x0e\0\0\0\0\0\1", b"\4\x0e\0\7\0\0\0\1", b"\4\x0e"])
def test_a_length_that_is_none_costs_the_attacker_its_connection_only(lab: Lab, data: bytes) -> None:
    lab.evil.send(data)
    if len(data) >= 8:
        with pytest.raises((ConnectionError, OSError)):
            lab.evil.tell()
    lab.reconnect()
    lab.check()


def test_no_hello_and_a_wrong_hello(lab: Lab) -> None:
    lab.evil.close()
    lab.evil.listener.settimeout(30)
    peer = lab.evil.secured(lab.evil.listener.accept()[0])
    peer.sendall(message(0, version=1))
    peer.settimeout(10)
    data = b""
    while chunk := peer.recv(100):
        data += chunk
    assert data[17] == 1, "hello failed"
    peer.close()
    lab.evil.accept()
    lab.check()


def test_entries_over_the_quota_are_refused_until_there_is_room(lab: Lab) -> None:
    rules = [flow(b"", fields(in_port=1, eth_src=n), priority=3) for n in range(450)]
    refused = lab.evil.errors(*rules)
    assert 50 <= len(refused) <= 100 and set(refused) == {(5, 1)}, "what was deleted lately may still count"
    assert not lab.good.errors(flow(b"", fields(in_port=3, eth_src=1), priority=3))
    assert not lab.good.errors(flow(b"", fields(in_port=3, eth_src=1), priority=3, command=4))
    lab.evil.tell(flow(table=255, command=3))
    assert ovs_rig.wait_until(lambda: not lab.evil.errors(rules[0]), 5), "counted again"
    lab.check()


@pytest.mark.parametrize(
    "flood",
    [
        packet_out(output(2)),
        flow(apply(output(2)), MINE),
        flow(apply(output(3)), MINE),
        message(20),
        message(2, bytes(1000)),
        flow_stats(255),
        stats(13),
    ],
    ids=["packet-outs", "flow-mods", "refused flow-mods", "barriers", "echoes", "statistics", "descriptions"],
)
def test_a_flood_does_not_stop_others(lab: Lab, flood: bytes) -> None:
    """Thousands of messages, the answers to which nobody reads, while another slice works."""
    assert lab.evil.connection is not None
    lab.evil.connection.setblocking(False)
    sent, end, slowest = 0, time.monotonic() + 1.0, 0.0
    while time.monotonic() < end:
        try:
            sent += lab.evil.connection.send(flood * max(1, 20000 // len(flood)))
        except (BlockingIOError, ssl.SSLWantWriteError):
            time.sleep(0.001)
        start = time.monotonic()
        assert not lab.good.errors(flow(apply(output(4)), fields(in_port=3), cookie=0xBEEF, priority=100))
        slowest = max(slowest, time.monotonic() - start)
    assert sent > 20000 and slowest < 1.0
    lab.evil.connection.setblocking(True)
    lab.reconnect()
    lab.check()


def test_a_guest_that_does_not_read_hears_less_and_others_all(lab: Lab) -> None:
    lab.evil.tell(flow(apply(output(CONTROLLER)), priority=1))
    lab.good.listen_for(0.05)
    for _ in range(3000):
        lab.hosts[1].send(frame().ljust(1400, b"x"))
    for _ in range(20):
        lab.hosts[7].send(frame(200, source=b"\2\0\0\0\0\7").replace(MAGIC, b"GOOD-GOOD-GOOD"))
    mine = [each for each in lab.good.listen_for(1.0) if each[1] == 10]
    assert len(mine) == 20 and all(MAGIC not in each for each in mine)
    lab.reconnect()
    lab.check()


def test_packet_ins_beyond_the_rate_are_dropped_for_that_slice(lab: Lab) -> None:
    limited = {**lab.slices["evil"], "limits": {**EVIL["limits"], "packet_ins_per_s": 100}}
    lab.control.ask("PUT", "slices", "evil", document=limited)
    lab.evil.tell(flow(apply(output(CONTROLLER)), priority=1))
    lab.evil.listen_for(0.2)
    for _ in range(500):
        lab.hosts[1].send(frame())
    assert 10 <= sum(each[1] == 10 for each in lab.evil.listen_for(0.5)) <= 100
    there = lab.control.ask("GET", "slices", "evil")["switches"]["0x1"]
    assert there["dropped_packet_ins"] > 100
    lab.control.ask("PUT", "slices", "evil", document=lab.slices["evil"])
    lab.check()


def test_a_slice_gets_its_rate_and_no_more(lab: Lab) -> None:
    """A quarter of a megabit may come at once, then one a second."""

    def received() -> tuple[int, float]:
        """How many of 500 frames, and how many the rate allows in the time that sending them took."""
        heard(lab.hosts[2], b"")
        start = time.monotonic()
        for _ in range(500):
            lab.hosts[1].send(frame().ljust(1400, b"x"))
            time.sleep(0.0002)
        time.sleep(0.2)
        allowed = (0.25 + time.monotonic() - start) * 1e6 / (8 * 1400)
        return len(heard(lab.hosts[2], MAGIC)), allowed

    def within() -> bool:
        count, allowed = received()
        return 10 <= count <= min(400, 1.5 * allowed + 10)

    assert not lab.evil.errors(flow(apply(output(2)), MINE))
    limited = {**lab.slices["evil"], "limits": {**EVIL["limits"], "rate_in_mbps": 1}}
    lab.control.ask("PUT", "slices", "evil", document=limited)
    assert not lab.evil.errors(flow(apply(output(2)), MINE))
    assert "kbps" in lab.rig.ofctl("dump-meters", "s1") and within()
    assert not lab.evil.errors(meter_mod(2, ANY, b"")) and within(), "no guest deletes it"
    lab.control.ask("PUT", "slices", "evil", document=lab.slices["evil"])
    assert received()[0] >= 300
    lab.check()


def test_what_others_have_is_not_in_any_answer(lab: Lab) -> None:
    """Descriptions, statistics and features: the attacker's ports, tables and numbers only."""
    questions = [flow_stats(255), stats(13), stats(4, struct.pack("!I4x", ANY)), stats(7), stats(3)]
    questions += [stats(6, struct.pack("!I4x", 0xFFFFFFFC)), stats(10, struct.pack("!I4x", ANY)), flow_stats(255, 2)]
    lab.evil.tell(flow(apply(output(2)), MINE))
    answers = {}
    for each in lab.evil.tell(*questions):
        assert each[1] == 19, each
        kind = int.from_bytes(each[8:10], "big")
        answers[kind] = answers.get(kind, b"") + each[16:]
    ports = {int.from_bytes(answers[13][at : at + 4], "big") for at in range(0, len(answers[13]), 64)}
    counted = {int.from_bytes(answers[4][at : at + 4], "big") for at in range(0, len(answers[4]), 112)}
    assert ports == counted == {1, 2, 7} and len(answers[3]) == 4 * 24
    assert b"\xbe\xef" not in answers[1] and answers[2][16:20] == b"\0\0\0\1"
    assert not answers.get(7) and not answers.get(6) and not answers.get(10)
    lab.check()


# -- discovery --------------------------------------------------------------------------------------------------------

NEAREST_BRIDGE, EVERYBODY, HOST_3 = b"\1\x80\xc2\0\0\x0e", b"\xff" * 6, b"\2\0\0\0\0\3"
TLVS = b"\2\7\4" + bytes(6) + b"\4\5\7port\6\2\0\x78"
MAGIC_TLV = b"\xfe\x12\0\0\0\0" + MAGIC
OF_AUTHENTICATOR = b"\xfe\x1a\x0a\x53\x4c\2" + bytes(22)
OLD_AUTHENTICATOR = b"\xfe\x18\x0a\x53\x4c\1" + bytes(14)
TAGS = {
    "untagged": b"",
    "priority": b"\x81\0\0\0",
    "evil's VLAN": b"\x81\0\0\x64",
    "good's VLAN": b"\x81\0\0\xc8",
    "802.1ad": b"\x88\xa8\0\x64",
    "two": b"\x81\0\0\xc8\x81\0\0\xc8",
    "802.1ad and 802.1Q": b"\x88\xa8\0\xc8\x81\0\0\xc8",
    "three": b"\x81\0\0\x64" * 3,
    "SNAP": b"\0\x64\xaa\xaa\3\0\0\0",
}


def lldp(destination: bytes = NEAREST_BRIDGE, source: bytes = HOST_3, kind: int = 0x88CC, tag: bytes = b"") -> bytes:
    return destination + source + tag + kind.to_bytes(2, "big") + TLVS + MAGIC_TLV + bytes(40)


def forged(tag: bytes) -> Iterator[bytes]:
    """Frames with the mark of good, of both types, to groups and to a host, with and without an authenticator."""
    source = MARK.to_bytes(6, "big")
    for kind in (0x88CC, 0x8942):
        for destination in (NEAREST_BRIDGE, EVERYBODY, HOST_3, bytes(6)):
            for proof in (b"", OF_AUTHENTICATOR, OLD_AUTHENTICATOR):
                head = destination + source + tag + kind.to_bytes(2, "big")
                yield head + TLVS + MAGIC_TLV + proof + bytes(40)


class Ears:
    """Good sends to its hosts and to its controller whatever comes into its tables; what of ``MAGIC`` does?"""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    def __enter__(self) -> Ears:
        rule = flow(apply(output(3), output(4), output(CONTROLLER)), priority=1)
        assert not self.lab.good.errors(rule)
        self.lab.good.listen_for(0.05)
        self.lab.clean_network()
        return self

    def __exit__(self, *words: object) -> None:
        self.lab.good.tell(flow(priority=1, command=4))

    def packet_ins(self, seconds: float = 0.15) -> list[bytes]:
        return [each for each in self.lab.good.listen_for(seconds) if each[1] == 10 and MAGIC in each]

    def heard(self) -> dict[str, int]:
        found = {"controller": len(self.packet_ins())}
        found |= {f"host {host}": len(heard(self.lab.hosts[host], MAGIC)) for host in (3, 4)}
        return {who: count for who, count in found.items() if count}


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("host", [1, 5, 7])
def test_a_forged_mark_of_a_host_reaches_nobody(lab: Lab, host: int, tag: str) -> None:
    """From the attacker's port, production's, and the shared one: neither good's hosts nor its controller."""
    with Ears(lab) as good:
        for each in forged(TAGS[tag]):
            lab.hosts[host].send(each)
        assert not good.heard()
    lab.check()


@pytest.mark.parametrize("tag", TAGS)
def test_a_forged_mark_of_a_controller_is_refused(lab: Lab, tag: str) -> None:
    with Ears(lab) as good:
        for each in forged(TAGS[tag]):
            for port in (CONTROLLER, 1, 2, 7):
                for to in (TABLE, CONTROLLER, IN_PORT):
                    errors = lab.evil.errors(packet_out(output(to), port=port, data=each))
                    assert len(errors) == 1, (each, port, to)
            mine = (TAGS[tag], each[:1]) == (b"", b"\1") or (TAGS[tag], each[:1]) == (b"", b"\xff")
            # A whole discovery frame leaves with the attacker's own mark.
            assert lab.evil.errors(packet_out(output(2), data=each)) == ([] if mine else [(2, 6)])
        assert not good.heard()
        caught = [each for each in heard(lab.hosts[2], MAGIC) if each[6:12] == MARK.to_bytes(6, "big")]
        assert not caught
    lab.check()


def test_what_rules_make_of_a_hosts_marked_frame_reaches_nobody(lab: Lab) -> None:
    """Its own host sends the mark to a host; its rules turn the destination into a group, in tables and groups."""
    to_group = set_field("eth_dst", int.from_bytes(NEAREST_BRIDGE, "big"))
    with Ears(lab) as good:
        assert not lab.evil.errors(
            group_mod(0, 1, bucket(to_group, output(2)), bucket(to_group, output(IN_PORT))),
            flow(apply(to_group, output(2), output(IN_PORT), output(CONTROLLER))),
            flow(apply(action(22, struct.pack("!I", 1))), fields(in_port=2)),
        )
        lab.evil.listen_for(0.05)
        for host in (1, 2):
            for tag in TAGS.values():
                for each in forged(tag):
                    lab.hosts[host].send(each)
        assert not good.heard()
        assert not [each for each in lab.evil.listen_for(0.1) if each[1] == 10 and MAGIC in each]
    lab.check()


@pytest.mark.parametrize("kind", [0x88CC, 0x8942])
def test_a_genuine_mark_is_for_its_slice_and_of_no_use_to_others(lab: Lab, kind: int) -> None:
    """Caught at good's own host: sent again by others, tagged, late, twice, or to where it came from."""
    with Ears(lab) as good:
        sent = lldp(NEAREST_BRIDGE if kind == 0x88CC else EVERYBODY, kind=kind)
        assert not lab.good.errors(packet_out(output(3), data=sent))
        found: list[bytes] = []
        assert ovs_rig.wait_until(lambda: found.extend(heard(lab.hosts[3], MAGIC)) or found, 2)
        [genuine] = found
        assert genuine[6:12] == MARK.to_bytes(6, "big") and good.heard() == {}
        for host in (1, 2, 5, 6, 7):
            for tag in (b"", *TAGS.values()):
                lab.hosts[host].send(genuine[:12] + tag + genuine[12:])
            lab.hosts[host].send(HOST_3 + genuine[6:])
        # At the shared port good has VLAN 200, and its discovery.
        [told] = good.packet_ins()
        assert sent in told and told[14:16] == b"\1\0"
        assert not good.heard(), "with a tag, also good's own, it is no discovery"
        for host, times in ((3, 0), (4, 1), (4, 0)):
            lab.hosts[host].send(genuine)
            assert [sent in each for each in good.packet_ins()] == [True] * times, (host, times)
        assert not good.heard()
    lab.check()


def test_an_old_genuine_mark_is_none(lab: Lab) -> None:
    with Ears(lab) as good:
        lab.good.tell(packet_out(output(3), data=lldp()))
        found: list[bytes] = []
        assert ovs_rig.wait_until(lambda: found.extend(heard(lab.hosts[3], MAGIC)) or found, 2)
        time.sleep(FRESH_S + 0.2)
        lab.hosts[4].send(found[0])
        assert not good.heard()
    lab.check()


def test_discovery_of_others_does_not_come_into_tables_of_a_slice(lab: Lab) -> None:
    """Of slices that there are, and of numbers that nobody has."""
    assert not lab.evil.errors(flow(apply(output(CONTROLLER), output(2)), MINE))
    lab.evil.listen_for(0.05)
    for number in (1, 2, 3, 4, 77, 0xFFFF):
        lab.hosts[1].send(lldp(source=discovery_mac(number).to_bytes(6, "big")))
    assert not [each for each in lab.evil.listen_for(0.2) if each[1] == 10]
    assert not heard(lab.hosts[2], MAGIC)
    lab.check()


def test_the_cookie_of_a_guests_rule_is_in_its_discovery(lab: Lab) -> None:
    """Some controllers, like Faucet, take packet-ins with their own cookie only."""
    with Ears(lab) as good:
        rule = flow(apply(output(CONTROLLER)), fields(eth_type=0x88CC), cookie=0xFACE, priority=50)
        assert not lab.good.errors(rule, packet_out(output(3), data=lldp()))
        found: list[bytes] = []
        assert ovs_rig.wait_until(lambda: found.extend(heard(lab.hosts[3], MAGIC)) or found, 2)
        lab.hosts[4].send(found[0])
        [told] = good.packet_ins()
        assert told[16:24] == (0xFACE).to_bytes(8, "big")
        lab.good.tell(flow(b"", fields(eth_type=0x88CC), priority=50, command=4))
    lab.check()
