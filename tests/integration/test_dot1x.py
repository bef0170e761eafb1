"""802.1X at an access port with the real parts: FreeRADIUS, hostapd, wpa_supplicant, the access point's agent, the
controller and Open vSwitch, on real packets.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ovs_rig
import pytest
import radius_lab
from client_lab import AGENTS, ClientLab, eventually, mesh, within
from radius_lab import PASSWORDS, PROGRAMS, SECRET, Certificates, RadiusLabServer, supplicant_text

WHY_NOT = radius_lab.missing() or ("" if ovs_rig.available() else "needs Open vSwitch")
pytestmark = [pytest.mark.root, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
FIRST, SECOND, DISCONNECT = 18120, 18130, 13799
MALLORY = "02:aa:00:00:66:01"
SLOW = pytest.mark.skipif(not os.environ.get("HYROADS_NIGHTLY"), reason="takes long: nightly")


class AuthenticatedLab(ClientLab):
    """Three access points; the access port of n0 is under 802.1X, and alice, bob, often and carol may be there."""

    def __init__(self) -> None:
        users = ["alice", "bob", "often", "carol"]
        super().__init__(mesh(3), {"access": {"quiet_s": 1.0, "dot1x": {"n0": {"users": users}}}})
        self.running: list[subprocess.Popen[bytes]] = []
        self.supplicant: subprocess.Popen[bytes] | None = None
        self.is_forgotten = True

    def __enter__(self) -> AuthenticatedLab:
        super().__enter__()
        try:
            ovs_rig.run("ip", "-n", self.namespace, "link", "set", "n0", "up")
            ovs_rig.run("ip", "-n", self.namespace, "link", "set", "lo", "up")
            self.certificates = Certificates(self.folder / "certificates")
            self.servers = [
                RadiusLabServer(self.namespace, self.folder, self.certificates, port) for port in (FIRST, SECOND)
            ]
            for server in self.servers:
                server.start()
            self.file = self.folder / "ap.json"
            self.write(SECRET)
            self.start_hostapd()
            self.agent = self.start("--channel", f"127.0.0.1:{AGENTS}")
            self.mac = self.addressing.host_mac["n0"]
            within(self.hosts["n0"], lambda: Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").write_text("1"))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.leave()
        radius_lab.ended(self.running)
        for server in getattr(self, "servers", []):
            server.stop()
        super().__exit__(*error)

    def write(self, secret: str) -> None:
        """The access point's file, and the secret that it has in common with the servers."""
        (self.folder / "radius.secret").write_text(f"{secret}\n")
        (self.folder / "radius.secret").chmod(0o600)
        file = {"secret_file": "radius.secret"}
        servers = [{"address": "127.0.0.1", "port": port, **file} for port in (FIRST, SECOND)]
        accounting = [{**each, "port": each["port"] + 1} for each in servers]
        disconnect = {"address": "127.0.0.1", "port": DISCONNECT, **file}
        group = {"servers": servers, "accounting": accounting, "disconnect": disconnect}
        followed = [{"socket": str(self.folder / "ap/wired/n0"), "technology": "host"}]
        wired = {"interface": "n0", "radius": "lab"}
        document = {"node": "n0", "hostapd": followed, "radius": {"lab": group}, "wired": wired}
        self.file.write_text(json.dumps(document))
        self.file.chmod(0o600)

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "hyroads.controller.cli", "ap-agent", "--config", str(self.file), *options]
        with (self.folder / "ap.log").open("ab") as log:
            inside = ["ip", "netns", "exec", self.namespace, *command]
            process = subprocess.Popen(inside, stdout=log, stderr=log, env={**os.environ, "PATH": PROGRAMS})
        self.running.append(process)
        return process

    def start_hostapd(self) -> None:
        """What ``hyroads ap-agent --wired`` becomes."""
        self.hostapd = self.start("--wired", "--directory", str(self.folder / "ap"))
        eventually((self.folder / "ap/wired/n0").exists, 20)

    def join(self, user: str, password: str | None) -> None:
        """The host of n0 says that it is this user."""
        self.leave()
        if not self.is_forgotten:
            # Who was rejected is forgotten by hostapd some seconds later, whatever it does meanwhile.
            eventually(lambda: self.mac not in self.ask_hostapd("all_sta"), 20)
            self.is_forgotten = True
        path = self.folder / "supplicant.conf"
        path.write_text(supplicant_text(user, self.certificates, password=password))
        words = ["ip", "netns", "exec", self.hosts["n0"], "wpa_supplicant", "-Dwired", "-ieth0", "-c", str(path)]
        with (self.folder / "supplicant.log").open("ab") as log:
            environment = {**os.environ, "PATH": PROGRAMS}
            self.supplicant = subprocess.Popen(words, stdout=log, stderr=log, env=environment)

    def leave(self) -> None:
        """And it does so no longer: the controller forgets it, and hostapd whatever it has tried."""
        if self.supplicant is not None:
            self.supplicant.kill()
            self.supplicant.wait()
            self.supplicant = None
            if self.controller is not None and self.controller.poll() is None:
                self.rest("DELETE", f"/clients/{self.mac}")
                eventually(lambda: self.user() is None)
            for control in ("ForceUnauthorized", "Auto"):
                self.ask_hostapd("raw", "EAPOL_SET", self.mac, "AdminControlledPortControl", control)

    def ask_hostapd(self, *words: str) -> str:
        words = ("hostapd_cli", "-p", str(self.folder / "ap/wired"), "-i", "n0", *words)
        inside = ["ip", "netns", "exec", self.namespace, *words]
        done = subprocess.run(
            inside, check=False, capture_output=True, text=True, timeout=20, env={**os.environ, "PATH": PROGRAMS}
        )
        return done.stdout

    def attachment(self) -> dict[str, Any] | None:
        status, client = self.rest("GET", f"/clients/{self.mac}")
        return client["attachments"][0] if status == 200 and client["attachments"] else None

    def user(self) -> str | None:
        found = self.attachment()
        return None if found is None or found["node"] is None else found["user"]

    def passes(self, count: int = 1) -> bool:
        """Whether a packet of n0's host comes to n1's, and back."""
        inside = ["ip", "netns", "exec", self.hosts["n0"], "ping", "-c", str(count), "-i", "0.2", "-W", "1"]
        return (
            subprocess.run([*inside, self.addressing.host_ip["n1"]], check=False, capture_output=True).returncode == 0
        )

    def events(self, kind: str) -> list[dict[str, Any]]:
        """What was told of a kind so far, oldest first."""
        text = self.text_of(f"/api/v1/events?follow=false&kinds={kind}")
        return [json.loads(line[5:]) for line in text.splitlines() if line.startswith("data:")]

    def dropped(self) -> float:
        found = re.search(
            r'^hyroads_unauthenticated_frames_total\{node="n0"\} ([0-9.e+]+)', self.metrics(), re.MULTILINE
        )
        return float(found[1]) if found is not None else -1.0


@pytest.fixture(scope="module")
def lab() -> Iterator[AuthenticatedLab]:
    with AuthenticatedLab() as lab:
        yield lab


def test_nobody_is_heard_before_he_is_authenticated(lab: AuthenticatedLab) -> None:
    before = eventually(lambda: (count := lab.dropped()) >= 0 and count + 1)
    other = lab.addressing.host_mac["n1"]
    list(lab.received("n1"))
    for number in range(50):
        lab.send("n0", lab.mac, other, payload=b"my own address %d" % number)
        lab.send("n0", MALLORY, other, payload=b"nobody's address %d" % number)
        lab.send("n0", other, lab.addressing.host_mac["n2"], payload=b"another one's address %d" % number)
    assert not lab.passes()
    came = [frame for node in ("n1", "n2") for frame in lab.received(node)]
    assert not any(b"address" in frame for frame in came)
    assert not any(bytes.fromhex(lab.mac.replace(":", "")) == frame[6:12] for frame in came)
    assert eventually(lambda: lab.dropped() >= before + 149)
    assert lab.user() is None
    assert lab.rest("GET", f"/clients/{MALLORY}")[0] == 404


def test_who_is_authenticated_gets_through_and_is_known_by_name(lab: AuthenticatedLab) -> None:
    lab.join("alice", PASSWORDS["alice"])
    eventually(lambda: lab.user() == "alice")
    found = lab.attachment()
    assert found is not None
    assert (found["node"], found["technology"], found["known_by"]) == ("n0", "host", "association")
    assert eventually(lab.passes), "its packets, and the answers"
    told = lab.events("client.joined")[-1]
    assert (told["mac"], told["user"], told["place"]["node"]) == (lab.mac, "alice", "n0")
    # Somebody else behind the same port is still a stranger, and so is who uses another one's address.
    list(lab.received("n1"))
    lab.send("n0", MALLORY, lab.addressing.host_mac["n1"], payload=b"in alice's shadow")
    lab.send("n0", lab.addressing.host_mac["n2"], lab.addressing.host_mac["n1"], payload=b"in another's name")
    assert not lab.came("n1", b"in a", 1.0)
    lab.leave()
    assert lab.events("client.left")[-1]["user"] == "alice"
    assert not lab.passes(), "who was let go is not heard any more"


def test_who_is_rejected_gets_nothing_through(lab: AuthenticatedLab) -> None:
    faults = len(lab.events("client.rejected"))
    list(lab.received("n1"))
    lab.join("alice", "not her password")
    eventually(lambda: len(lab.events("client.rejected")) > faults, 20)
    told = lab.events("client.rejected")[-1]
    assert (told["mac"], told["place"]) == (lab.mac, {"node": "n0", "technology": "host"})
    assert not lab.passes(3)
    assert not any(bytes.fromhex(lab.mac.replace(":", "")) == frame[6:12] for frame in lab.received("n1"))
    assert lab.user() is None
    assert eventually(lambda: [e for e in lab.rest("GET", "/health")[1]["last_errors"] if "rejected" in e["what"]])
    assert len(lab.events("client.rejected")) == faults + 1, "one event"
    lab.leave()
    lab.is_forgotten = False


@SLOW
def test_a_certificate_is_as_good_as_a_password(lab: AuthenticatedLab) -> None:
    lab.join("carol", None)
    eventually(lambda: lab.user() == "carol")
    assert eventually(lab.passes)
    lab.leave()


@SLOW
def test_a_session_that_the_server_limits_ends_and_another_goes_on(lab: AuthenticatedLab) -> None:
    lab.join("bob", PASSWORDS["bob"])
    eventually(lambda: lab.user() == "bob")
    assert eventually(lab.passes)
    eventually(lambda: lab.user() is None, 15)
    assert not lab.passes()
    lab.join("often", PASSWORDS["often"])
    eventually(lambda: lab.user() == "often")
    asked = lab.servers[0].count("Sent Access-Accept")
    left = len(lab.events("client.left"))
    eventually(lambda: lab.servers[0].count("Sent Access-Accept") >= asked + 2, 20)
    assert lab.user() == "often"
    assert len(lab.events("client.left")) == left, "it is authenticated anew without losing its place"
    lab.leave()


@SLOW
def test_a_server_may_disconnect(lab: AuthenticatedLab) -> None:
    lab.join("alice", PASSWORDS["alice"])
    eventually(lambda: lab.user() == "alice")
    assert within(lab.namespace, lambda: radius_lab.disconnect_request(DISCONNECT, lab.mac)) == 41
    eventually(lambda: lab.user() is None)
    assert not lab.passes()
    lab.leave()


@SLOW
def test_an_unplugged_cable_ends_it_at_hostapd_too(lab: AuthenticatedLab) -> None:
    lab.join("alice", PASSWORDS["alice"])
    eventually(lambda: lab.user() == "alice")
    inside = ("ip", "-n", lab.hosts["n0"], "link", "set", "eth0")
    ovs_rig.run(*inside, "down")
    eventually(lambda: lab.user() is None)
    eventually(lambda: "[AUTHORIZED]" not in lab.ask_hostapd("all_sta"))
    lab.leave()
    ovs_rig.run(*inside, "up")
    with contextlib.suppress(OSError):
        # It says once that the network was down.
        lab.send("n0", MALLORY)
    time.sleep(1.0)
    assert not lab.passes(3), "whoever is at the cable now has to be authenticated"


@SLOW
def test_without_hostapd_nobody_has_a_place(lab: AuthenticatedLab) -> None:
    lab.join("alice", PASSWORDS["alice"])
    eventually(lambda: lab.user() == "alice")
    lab.hostapd.kill()
    lab.hostapd.wait()
    eventually(lambda: lab.user() is None)
    assert not lab.passes()
    (lab.folder / "ap/wired/n0").unlink(missing_ok=True)
    lab.start_hostapd()
    lab.join("alice", PASSWORDS["alice"])
    eventually(lambda: lab.user() == "alice", 30)
    assert eventually(lab.passes)
    lab.leave()


@SLOW
def test_who_may_not_be_there_is_let_go_whatever_the_server_says(lab: AuthenticatedLab) -> None:
    refused = len(lab.events("client.refused"))
    lab.join("dave", PASSWORDS["dave"])
    eventually(lambda: len(lab.events("client.refused")) > refused)
    assert lab.events("client.refused")[-1]["user"] == "dave"
    eventually(lambda: "[AUTHORIZED]" not in lab.ask_hostapd("all_sta"))
    assert lab.user() is None
    assert not lab.passes()
    lab.leave()
    # For a minute it need not try again.
    lab.hostapd.kill()
    lab.hostapd.wait()
    (lab.folder / "ap/wired/n0").unlink(missing_ok=True)
    lab.start_hostapd()


@SLOW
def test_a_controller_that_is_restarted_lets_known_users_go_on(lab: AuthenticatedLab) -> None:
    lab.join("alice", PASSWORDS["alice"])
    eventually(lambda: lab.user() == "alice")
    assert eventually(lab.passes)
    ip = lab.addressing.host_ip["n0"]
    eventually(lambda: any(f"arp_spa={ip}" in rule for rule in lab.flows("n0")))
    words = [
        "ip",
        "netns",
        "exec",
        lab.hosts["n0"],
        "ping",
        "-q",
        "-i",
        "0.1",
        "-c",
        "80",
        lab.addressing.host_ip["n1"],
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as pings:
        lab.stop_controller()
        lab.start_controller()
        said = pings.communicate()[0]
    received = re.search(r"(\d+) received", said)
    assert received is not None
    assert int(received[1]) >= 79, said
    eventually(lambda: lab.user() == "alice", 20)
    lab.leave()
    assert not lab.passes()


@SLOW
def test_a_server_that_is_away_is_told_of_once_and_another_takes_over(lab: AuthenticatedLab) -> None:
    silent, back = len(lab.events("radius.silent")), len(lab.events("radius.back"))
    for server in lab.servers:
        server.stop()
    lab.join("alice", PASSWORDS["alice"])
    eventually(lambda: len(lab.events("radius.silent")) > silent, 20)
    assert lab.events("radius.silent")[-1]["server"] == f"127.0.0.1#{FIRST}"
    assert not lab.passes(3)
    assert lab.user() is None
    lab.servers[1].start()
    began_s = time.monotonic()
    eventually(lambda: lab.user() == "alice", 120)
    print(f"the second server took over after {time.monotonic() - began_s:.0f} s")
    assert lab.servers[1].count("Sent Access-Accept") == 1
    assert eventually(lab.passes)
    lab.leave()
    lab.servers[1].stop()
    lab.servers[0].start()
    lab.join("alice", PASSWORDS["alice"])
    eventually(lambda: lab.user() == "alice", 120)
    eventually(lambda: len(lab.events("radius.back")) > back, 10)
    lab.servers[1].start()
    lab.leave()


@SLOW
def test_a_wrong_secret_lets_nobody_in(lab: AuthenticatedLab) -> None:
    silent = len(lab.events("radius.silent"))
    lab.hostapd.kill()
    lab.hostapd.wait()
    (lab.folder / "ap/wired/n0").unlink(missing_ok=True)
    lab.write("another-secret-than-theirs")
    lab.start_hostapd()
    lab.join("alice", PASSWORDS["alice"])
    eventually(lambda: len(lab.events("radius.silent")) > silent, 30)
    assert "secret" in lab.events("radius.silent")[-1]["message"]
    assert not lab.passes(3)
    assert lab.user() is None
