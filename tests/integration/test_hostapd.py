"""A real hostapd and a real supplicant, on a cable (802.1X): what the follower tells, also when hostapd ends.

Radios are not to be had on every machine, so transitions are tested with a peer that speaks the protocol
(tests/unit/radio/test_hostapd.py).
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from client_lab import within

from hyroads.controller.access_point.hostapd import HostapdFollower
from hyroads.controller.access_point.hostapd_conf import Place, radio_text
from hyroads.controller.access_point.radius import RadiusGroup, RadiusServer
from hyroads.controller.access_point.wireless import (
    WPA2,
    WPA2_ENTERPRISE,
    WPA3,
    WPA3_ENTERPRISE,
    Bss,
    Radio,
    RadioAbilities,
    Wireless,
)

PROGRAMS = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
HOSTAPD, SUPPLICANT = (shutil.which(name, path=PROGRAMS) for name in ("hostapd", "wpa_supplicant"))

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0 or not HOSTAPD or not SUPPLICANT, reason="needs root, hostapd, supplicant"),
]
MAC = "02:aa:00:00:20:01"


class Wire:
    """An authenticator and a supplicant on two ends of a cable, in a namespace of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.namespace = f"hr-hostapd-{secrets.token_hex(2)}"
        self.running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Wire:
        self.run("ip", "netns", "add", self.namespace)
        inside = ("ip", "-n", self.namespace, "link")
        self.run(*inside, "add", "ap", "type", "veth", "peer", "name", "sta", "address", MAC)
        for name in ("ap", "sta"):
            self.run(*inside, "set", name, "up")
        (self.folder / "users").write_text('"user" MD5 "password"\n')
        (self.folder / "hostapd.conf").write_text(
            f"interface=ap\ndriver=wired\nctrl_interface={self.folder}/c\nieee8021x=1\neap_server=1\n"
            f"eap_user_file={self.folder}/users\nuse_pae_group_addr=1\n"
        )
        (self.folder / "sta.conf").write_text(
            "ap_scan=0\nnetwork={\nkey_mgmt=IEEE8021X\neap=MD5\n"
            'identity="user"\npassword="password"\neapol_flags=0\n}\n'
        )
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.running:
            if process.poll() is None:
                process.kill()
                process.wait()
        subprocess.run(("ip", "netns", "del", self.namespace), check=False)

    @staticmethod
    def run(*words: str) -> None:
        subprocess.run(words, check=True, timeout=20)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        log = (self.folder / "log").open("ab")
        process = subprocess.Popen(("ip", "netns", "exec", self.namespace, *words), stdout=log, stderr=log)
        self.running.append(process)
        return process

    def log_off(self) -> None:
        """The frame by which a supplicant says that it leaves (IEEE 802.1X)."""

        def send() -> None:
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
                raw.bind(("sta", 0))
                raw.send(bytes.fromhex("0180c2000003" + MAC.replace(":", "") + "888e" + "01020000").ljust(60, b"\0"))

        within(self.namespace, send)

    def hostapd(self) -> subprocess.Popen[bytes]:
        return self.start(str(HOSTAPD), str(self.folder / "hostapd.conf"))

    def supplicant(self) -> subprocess.Popen[bytes]:
        return self.start(str(SUPPLICANT), "-Dwired", "-ista", "-c", str(self.folder / "sta.conf"))


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[Wire]:
    with Wire(tmp_path) as found:
        yield found


def told(follower: HostapdFollower, event: str, within_s: float = 15.0) -> dict[str, Any]:
    """The next message with this event."""
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        for document in follower.poll(time.monotonic()):
            if document.get("event") == event:
                return document
        time.sleep(0.02)
    raise AssertionError(f"no {event} within {within_s} s")


def test_a_station_that_is_let_in_and_leaves_is_told_of(wire):
    wire.hostapd()
    complaints: list[str] = []
    follower = HostapdFollower(str(wire.folder / "c" / "ap"), "host", complaints.append)
    supplicant = wire.supplicant()
    joined = told(follower, "joined")
    assert (joined["mac"], joined["technology"]) == (MAC, "host")
    assert [document["mac"] for document in follower.snapshot()] == [MAC]
    # A follower that comes later reads the list.
    late = HostapdFollower(str(wire.folder / "c" / "ap"), "host", complaints.append)
    assert told(late, "joined")["mac"] == MAC
    late.close()
    # hostapd takes the request as it is written; a cable has nobody who answers it.
    assert follower.transition(MAC, "02:00:00:00:00:01,0x0,81,6,7") is None
    assert follower.transition(MAC, "02:00:00:00:00:01") is not None
    assert follower.transition("02:aa:00:00:20:02", "02:00:00:00:00:01,0x0,81,6,7") is not None
    supplicant.kill()
    supplicant.wait()
    wire.log_off()
    assert told(follower, "left")["mac"] == MAC
    follower.close()


def test_whoever_hostapd_let_in_is_gone_with_it(wire):
    hostapd = wire.hostapd()
    complaints: list[str] = []
    follower = HostapdFollower(str(wire.folder / "c" / "ap"), "host", complaints.append)
    wire.supplicant()
    assert told(follower, "joined")["mac"] == MAC
    complaints.clear()
    hostapd.kill()
    hostapd.wait()
    assert told(follower, "left")["mac"] == MAC
    assert complaints
    assert not follower.snapshot()
    follower.close()


HARMLESS = "correct horse battery staple"
MEANT = ["12345678|vlanid=7|id=x", "12345678|mac=02:00:00:00:00:01", "12345678|pk=a:b", ' #"\\{}%=$`|  ', "x" * 63]


def said_of(file: Path, level: str) -> str:
    """What hostapd says until it has taken a file."""
    with subprocess.Popen([str(HOSTAPD), level, str(file)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if "AP-ENABLED" in line or "rror" in line:
                break
        process.kill()
    text = "".join(said)
    assert "AP-ENABLED" in text, text
    return text


@pytest.mark.parametrize("security", [WPA2, WPA3])
@pytest.mark.parametrize("passphrase", [HARMLESS, *MEANT])
def test_hostapd_takes_a_passphrase_as_it_is(tmp_path, security, passphrase):
    """No radio is needed for hostapd to read its file and to say, being asked to tell secrets, what it has read."""
    able = RadioAbilities("lo", (6,), options=("sae_pwe=2",))
    bss = Bss("lo", "lo", b"a|b\nc", security, passphrase, enabled=True, bssid="02:00:00:00:00:01")
    wireless = Wireless({"lo": Radio(6)}, {"lo": bss})
    file = tmp_path / "lo.conf"
    file.write_text(radio_text(able, Radio(6), wireless, Place(str(tmp_path / "control"), "none")))
    text = said_of(file, "-ddK")
    title = "SAE: password - " if security == WPA3 else "PSK (ASCII passphrase) - "
    dump = text.split(f"{title}hexdump_ascii(len={len(passphrase)}):\n")[1]
    # Sixteen bytes a line: five blanks, each byte in two digits and a blank, and then as characters.
    rows = dump.splitlines()[: -(-len(passphrase) // 16)]
    assert bytes.fromhex("".join(row[5:53] for row in rows)).decode() == passphrase
    assert "identifier" not in text


@pytest.mark.parametrize("security", [WPA2_ENTERPRISE, WPA3_ENTERPRISE])
def test_hostapd_takes_networks_with_radius_servers(tmp_path, security):
    """As it reads its file: all servers, and who may disconnect; a secret may have any character that ours may have."""
    secret = "#a|b{c}%$\\`'\"=d"
    servers = [RadiusServer(f"127.0.0.{n}", 1812, "s", secret) for n in (1, 2)]
    sender = RadiusServer("127.0.0.1", 0, "s", secret)
    group = RadiusGroup(tuple(servers), tuple(servers[:1]), sender, "ap1", "127.0.0.1", 600)
    bss = Bss("lo", "lo", b"staff", security, "", enabled=True, bssid="02:00:00:00:00:01", radius="campus")
    place = Place(str(tmp_path / "control"), "none", {"campus": group})
    file = tmp_path / "lo.conf"
    file.write_text(radio_text(RadioAbilities("lo", (6,)), Radio(6), Wireless({"lo": Radio(6)}, {"lo": bss}), place))
    text = said_of(file, "-dd")
    assert "Authentication server 127.0.0.1:1812" in text
    assert "unknown" not in text.lower(), text
