"""Access rules at the real controller, on real Open vSwitch, with real frames; asked for over REST and SFNet."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

if os.geteuid() != 0 or shutil.which("ovs-vswitchd") is None:
    pytest.skip("needs root and Open vSwitch", allow_module_level=True)

from client_lab import ClientLab, eventually, frame, mesh, within

from hyroads.controller.ofp.access import PORT_METER_FIRST, PORT_METERS
from hyroads.plugins.sfnet import messages

pytestmark = pytest.mark.root
SFNET = 12209
SLOT_S = 0.1
X, Y = "02:aa:00:00:02:01", "02:aa:00:00:02:02"
CLIENTS = """
  c: {role: client}
links:
  - {id: c0, from: n0, to: c, technology: wifi, capacity_mbps: 100, both: true}
  - {id: c1, from: n1, to: c, technology: wifi, capacity_mbps: 90, both: true}
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientLab]:
    settings = {"state_file": str(tmp_path_factory.mktemp("state") / "state.json"), "sfnet": {"port": SFNET}}
    network = mesh(2).replace("\nlinks:\n", CLIENTS, 1)
    with ClientLab(network, {"access": {"quiet_s": 60}, **settings}) as lab:
        for node, mine, other in (("n0", X, Y), ("n1", Y, X), ("n0", X, Y)):
            lab.send(node, mine, other, payload=b"here")
            time.sleep(0.2)
        eventually(lambda: came_across(lab))
        yield lab


@pytest.fixture(autouse=True)
def no_rules(lab: ClientLab) -> Iterator[None]:
    yield
    for rule in lab.rest("GET", "/access-rules")[1]["access_rules"]:
        assert lab.rest("DELETE", f"/access-rules/{rule['id']}")[0] == 204


def came_across(
    lab: ClientLab, node: str = "n0", source: str = X, eth_type: int = 0x88B7, payload: bytes = b""
) -> bool:
    """Whether a frame gets from a host to Y."""
    payload = payload or os.urandom(16)
    lab.send(node, source, Y, payload=payload, eth_type=eth_type)
    return lab.came("n1", payload, 0.5)


def make(lab: ClientLab, **rule: Any) -> Any:
    status, document = lab.rest("POST", "/access-rules", rule)
    assert status == 201, document
    # Open vSwitch looks at what it has cached again.
    time.sleep(SLOT_S)
    return document


class Stream:
    """X sends numbered frames to Y at an even pace; ``times`` has when each came."""

    def __init__(self, lab: ClientLab, per_s: float, size: int = 64) -> None:
        self.lab, self.per_s, self.size = lab, per_s, size
        self.times: list[float] = []
        self.octets = 0
        self._over = False

    def __enter__(self) -> Stream:
        list(self.lab.received("n1"))
        self._threads = [threading.Thread(target=work) for work in (self._send, self._receive)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        for thread in self._threads:
            thread.join()

    def _send(self) -> None:
        due, data = time.monotonic(), frame(X, Y, b"stream".ljust(self.size - 14, b"."))
        while not self._over:
            self.lab.sockets["n0"].send(data)
            due += 1 / self.per_s
            time.sleep(max(0.0, due - time.monotonic()))

    def _receive(self) -> None:
        while not self._over:
            for data in self.lab.received("n1"):
                if b"stream" in data:
                    self.times.append(time.monotonic())
                    self.octets += len(data)
            time.sleep(0.001)


def test_a_deny_stops_a_running_flow_within_a_slot_and_an_end_lifts_it(lab):
    stopped = []
    with Stream(lab, 300) as stream:
        for turn in range(3):
            count = len(stream.times)
            eventually(lambda count=count: len(stream.times) > count + 50)
            asked_s = time.monotonic()
            make(lab, id=f"stop{turn}", action="deny", client=X, expires_in_s=1.2)
            time.sleep(0.4)
            last_s, count = stream.times[-1], len(stream.times)
            stopped.append(last_s - asked_s)
            eventually(lambda count=count: len(stream.times) > count, 3)
            assert 1.1 < stream.times[count] - asked_s < 2.2
    # Others may use the machine meanwhile.
    assert min(stopped) < SLOT_S and max(stopped) < 3 * SLOT_S
    assert lab.rest("GET", "/access-rules")[1]["access_rules"] == []


def test_a_limit_holds(lab):
    size, mbps = 1000, 4.0
    make(lab, id="slow", action="limit", client=X, rate_mbps=mbps)
    with Stream(lab, 1500, size) as stream:
        # What may pass at once is gone by then.
        time.sleep(1.0)
        began_s, before = time.monotonic(), stream.octets
        time.sleep(2.5)
        got_mbps = (stream.octets - before) * 8e-6 / (time.monotonic() - began_s)
    assert abs(got_mbps / mbps - 1) < 0.1
    assert lab.rest("PATCH", "/access-rules/slow", {"rate_mbps": 2})[0] == 200
    assert "rate=2000" in lab.ofctl("-O", "OpenFlow13", "dump-meters", "n0")
    lab.rest("DELETE", "/access-rules/slow")
    assert "rate=2000" not in lab.ofctl("-O", "OpenFlow13", "dump-meters", "n0")


def test_arp_and_discovery_and_dhcp_pass_unless_they_are_named(lab):
    arp = (
        struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1)
        + bytes.fromhex(X.replace(":", ""))
        + bytes(4)
        + bytes(6)
        + b"\x0a\1\1\1"
    )
    ipv6 = bytes.fromhex("6000000000203aff") + bytes(15) + b"\1" + bytes(15) + b"\2"
    solicitation, echo = ipv6 + b"\x87" + bytes(31), ipv6 + b"\x80" + bytes(31)
    dhcp = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 36, 0, 0, 64, 17, 0, bytes(4), b"\xff" * 4) + struct.pack(
        "!HHHH", 68, 67, 16, 0
    )
    control = [(0x0806, arp), (0x0800, dhcp), (0x86DD, solicitation)]
    make(lab, id="all", action="deny", client=X)
    assert not came_across(lab)

    def passes(eth_type: int, head: bytes) -> bool:
        return came_across(lab, eth_type=eth_type, payload=head + os.urandom(8))

    assert not passes(0x86DD, echo)
    assert [passes(*each) for each in control] == [True] * 3
    make(lab, id="no-arp", action="deny", client=X, match={"eth_type": 0x0806})
    assert [passes(*each) for each in control] == [False, True, True]


def fragment(version: int, offset: int) -> tuple[int, bytes]:
    """EtherType and beginning of a fragment of UDP to port 53, behind ``offset`` units of 8 bytes; more follow."""
    udp, field = struct.pack("!HHHH", 40000, 53, 32, 0), offset << 3 | 1
    if version == 4:
        head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 44, 7, 0x2000 | offset, 64, 17, 0, b"\x0a\0\0\1", b"\x0a\0\0\2")
        return 0x0800, head + udp
    addresses = bytes(15) + b"\1" + bytes(15) + b"\2"
    return 0x86DD, struct.pack("!IHBB", 6 << 28, 32, 44, 64) + addresses + struct.pack("!BBHI", 17, 0, field, 7) + udp


@pytest.mark.parametrize("offset", [0, 185], ids=["first", "later"])
@pytest.mark.parametrize("version", [4, 6])
def test_no_fragment_bypasses_a_rule_that_names_a_port(lab, version, offset):
    eth_type, head = fragment(version, offset)

    def passes() -> bool:
        return came_across(lab, eth_type=eth_type, payload=head + os.urandom(16))

    assert passes()
    make(lab, id="no-dns", action="deny", client=X, match={"eth_type": eth_type, "udp_dst": 53})
    assert not passes()
    make(lab, id="to-y", action="allow", client=X, to=Y, priority=1500)
    assert passes()


def test_allow_above_deny_and_a_client_that_moves_is_followed(lab):
    make(lab, id="none", action="deny", client="c", priority=500)
    mac = lab.addressing.host_mac["c"]
    event = {"type": "station", "technology": "wifi", "mac": mac, "event": "joined"}
    for at in ("n0", "n1"):
        lab.roam("c", at, "wifi")
        with lab.radio(at) as session:
            payload = os.urandom(16)
            session.sendall(json.dumps(event).encode() + b"\n")
            # While it moves, too, none of its frames may pass.
            for _ in range(20):
                lab.send("c", mac, Y, payload=payload)
                time.sleep(0.01)
            assert eventually(lambda at=at: lab.rest("GET", "/clients/c")[1]["attachments"][0]["node"] == at)
            assert not lab.came("n1", payload, 0.3)
            make(lab, id="mail", action="allow", client="c", to=Y, priority=501)
            assert eventually(lambda: came_across(lab, "c", mac))
            lab.rest("DELETE", "/access-rules/mail")
            assert not came_across(lab, "c", mac)


def left(lab: ClientLab) -> list[str]:
    """Rules and meters of limits at n1; ports have meters of their own."""
    of_ports = range(PORT_METER_FIRST, PORT_METER_FIRST + PORT_METERS)

    def is_limit(line: str) -> bool:
        found = re.search(r"meter[=:](\d+)", line)
        return found is not None and int(found[1]) not in of_ports

    meters = lab.ofctl("-O", "OpenFlow13", "dump-meters", "n1").splitlines()
    return [line for line in (*lab.flows("n1"), *meters) if is_limit(line)]


def test_a_restart_keeps_rules_in_force_and_their_end(lab):
    make(lab, id="stay", action="deny", client=X)
    make(lab, id="short", action="limit", client=Y, rate_mbps=1, expires_in_s=1)
    with Stream(lab, 200) as stream:
        lab.stop_controller()
        lab.start_controller()
        assert eventually(lambda: [r["id"] for r in lab.rest("GET", "/access-rules")[1]["access_rules"]] == ["stay"])
        eventually(lambda: lab.rest("GET", "/access-rules/stay")[1]["state"] == "active")
        time.sleep(0.3)
    assert stream.times == []
    assert left(lab) == []
    assert lab.rest("DELETE", "/access-rules/stay")[0] == 204
    assert eventually(lambda: came_across(lab))


def test_over_sfnet(lab):
    def ask(*lines: dict[str, Any]) -> list[Any]:
        def talk() -> list[Any]:
            with socket.create_connection(("127.0.0.1", SFNET), 10) as connection:
                stream = connection.makefile("rwb")
                hello = {"type": "hello", "version": 1, "token": None}
                answers = []
                for line in (hello, *lines):
                    stream.write(messages.line_of(line))
                    stream.flush()
                    answers.append(json.loads(stream.readline()))
                return answers[1:]

        return within(lab.namespace, talk)

    rule = {"id": "app", "action": "deny", "client": X, "expires_in_s": 600}
    [made] = ask({"id": 1, "method": "POST", "path": "/access-rules", "body": rule})
    assert (made["status"], made["body"]["owner"], made["body"]["state"]) == (201, "sfnet", "active")
    assert not came_across(lab)
    [gone] = ask({"id": 2, "method": "DELETE", "path": "/access-rules/app"})
    assert gone["status"] == 204 and came_across(lab)
    assert Path(lab.settings["state_file"]).exists()
