"""The AL entity of ``hyroads ap-agent`` on a real interface that is a port of a kernel bridge.

The neighbour's frames are bytes written by hand, by the tables of IEEE Std 1905.1-2013.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hyroads.mininet.isolation import socket_in

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]
OWN, NEIGHBOUR, NEIGHBOUR_AL, THIRD = "020000000011", "020000000022", "420000000022", "420000000033"
OWN_AL = f"{(int(OWN[:2], 16) ^ 0x40) | 2:02x}{OWN[2:]}"
GROUP = "0180c2000013"
QUERY_KIND, RESPONSE_KIND = "0005", "0006"
WITHIN_S = 20.0


def mac(text: str) -> str:
    return bytes.fromhex(text).hex(":")


class Line:
    """A cable in a namespace of its own; its end ``eth1`` is a port of a bridge, ``far`` is the neighbour's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.namespace = f"hr-al-{secrets.token_hex(2)}"
        self.agent: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Line:
        self.ip("netns", "add", self.namespace)
        for words in (
            ("link", "set", "lo", "up"),
            ("link", "add", "eth1", "address", mac(OWN), "type", "veth", "peer", "name", "far"),
            ("link", "add", "br0", "type", "bridge"),
            ("link", "set", "eth1", "master", "br0"),
            *(("link", "set", name, "up") for name in ("br0", "eth1", "far")),
        ):
            self.ip("-n", self.namespace, *words)
        place = Path("/run/netns") / self.namespace
        self.server = socket_in(place, socket.AF_INET, socket.SOCK_STREAM)
        self.server.bind(("127.0.0.1", 0))
        self.server.listen()
        self.far = socket_in(place, socket.AF_PACKET, socket.SOCK_RAW)
        self.far.bind(("far", 0x893A))
        for each in (self.server, self.far):
            each.settimeout(WITHIN_S)
        return self

    def __exit__(self, *_: object) -> None:
        if self.agent is not None:
            self.agent.kill()
            self.agent.wait()
        for each in (self.server, self.far):
            each.close()
        self.ip("netns", "del", self.namespace)

    @staticmethod
    def ip(*words: str) -> None:
        subprocess.run(("ip", *words), check=True, timeout=20)

    def start(self) -> Iterator[dict[str, Any]]:
        """Starts the agent; gives its messages to the controller after a welcome."""
        config = self.folder / "ap.json"
        config.write_text(json.dumps({"node": "a", "interfaces": [
            {"name": "eth1", "technology": "plc", "backend": "plc"}]}))  # fmt: skip
        config.chmod(0o600)
        port = self.server.getsockname()[1]
        command = [sys.executable, "-m", "hyroads.controller.cli", "ap-agent", "--config", str(config)]
        inside = ["ip", "netns", "exec", self.namespace, *command, "--channel", f"127.0.0.1:{port}"]
        self.agent = subprocess.Popen(inside, stderr=subprocess.DEVNULL)
        connection = self.server.accept()[0]
        connection.settimeout(WITHIN_S)
        lines = connection.makefile("rb")
        assert json.loads(lines.readline())["role"] == "radio"
        connection.sendall(b'{"type":"welcome","version":1,"interval_ms":100}\n')
        return map(json.loads, lines)

    def send(self, destination: str, payload: str) -> None:
        self.far.send(bytes.fromhex(destination + NEIGHBOUR + "893a" + payload).ljust(60, b"\0"))

    def heard(self, kind: str) -> bytes:
        """The next frame of a message type."""
        while True:
            frame, where = self.far.recvfrom(2048)
            if where[2] != socket.PACKET_OUTGOING and frame[16:18].hex() == kind:
                return frame


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    with Line(tmp_path) as found:
        yield found


def test_neighbour_behind_a_bridge_port_is_reported_with_capacity_and_busy_time(line):
    messages = line.start()
    greeting = line.heard("0000")
    assert greeting[:12].hex() == GROUP + OWN
    assert greeting[22:].hex().startswith(f"010006{OWN_AL}020006{OWN}000000")

    line.send(GROUP, f"00000000000100800100 06{NEIGHBOUR_AL}020006{NEIGHBOUR}000000")
    query = line.heard(QUERY_KIND)
    assert query[:6].hex() == NEIGHBOUR_AL
    metric = f"{NEIGHBOUR}{OWN}020100" + "00000000" + "000003e8" + "005a" + "0028" + "0096"
    answer = f"0000{RESPONSE_KIND}{query[18:20].hex()}0080" + f"090029{NEIGHBOUR_AL}{OWN_AL}{metric}" + "000000"
    line.send(OWN_AL, answer)
    devices = next(m["devices"] for m in messages if m["type"] == "devices" and any(d["links"] for d in m["devices"]))
    assert devices == [{
        "al": mac(NEIGHBOUR_AL),
        "heard": [{"interface": "eth1", "mac": mac(NEIGHBOUR)}],
        "links": [{"mac": mac(NEIGHBOUR), "to_al": mac(OWN_AL), "to_mac": mac(OWN), "media_type": 0x0201,
                   "capacity_mbps": 90, "busy": 0.6}],
    }]  # fmt: skip


def test_neighbour_that_asks_is_told_the_interfaces(line):
    line.start()
    line.heard("0000")
    line.send(OWN_AL, "00000002 beef 0080 000000")
    answer = line.heard("0003")
    assert answer[:6].hex() == NEIGHBOUR and answer[18:20].hex() == "beef"
    assert answer[22:].hex().startswith(f"030010{OWN_AL}01{OWN}020100")
