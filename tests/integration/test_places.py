"""Who has a place keeps it: a real host that is silent is asked by the real controller, over real Open vSwitch, before
anybody else may be what it is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

if os.geteuid() != 0 or shutil.which("ovs-vswitchd") is None:
    pytest.skip("needs root and Open vSwitch", allow_module_level=True)

from client_lab import ClientLab, eventually, mesh
from host_frames import arp

pytestmark = pytest.mark.root
QUIET_S = 1.0
VICTIM, IP = "02:aa:00:00:20:01", "10.0.32.1"
TRIES = 40


@pytest.fixture(scope="module")
def lab() -> Iterator[ClientLab]:
    with ClientLab(mesh(3), {"access": {"quiet_s": QUIET_S}}) as lab:
        yield lab


def at(lab: ClientLab, node: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A command where the host of a node is."""
    namespace = lab.hosts[node]
    return subprocess.run(
        ["ip", "netns", "exec", namespace, *words], check=False, capture_output=True, text=True, timeout=60
    )


def pings(lab: ClientLab, node: str, target: str) -> bool:
    return at(lab, node, "ping", "-c", "1", "-W", "2", target).returncode == 0


@pytest.fixture(scope="module")
def victim(lab: ClientLab) -> str:
    """A host of nobody's file at n0: the kernel of a namespace, which says nothing by itself."""
    for words in (
        ("sysctl", "-q", "-w", "net.ipv6.conf.all.disable_ipv6=1"),
        ("ip", "link", "set", "eth0", "address", VICTIM),
        ("ip", "addr", "flush", "dev", "eth0"),
        ("ip", "addr", "add", f"{IP}/16", "dev", "eth0"),
    ):
        assert at(lab, "n0", *words).returncode == 0
    assert eventually(lambda: pings(lab, "n0", lab.addressing.host_ip["n1"]))
    assert eventually(lambda: place(lab, VICTIM)) == "n0"
    return VICTIM


def place(lab: ClientLab, mac: str) -> str | None:
    status, client = lab.rest("GET", f"/clients/{mac}")
    return client["attachments"][0]["node"] if status == 200 else None


def owner(lab: ClientLab, ip: str) -> str | None:
    for client in lab.rest("GET", "/clients")[1]["clients"]:
        for attachment in client["attachments"]:
            if any(address["ip"] == ip for address in attachment["addresses"]):
                return str(attachment["interface"])
    return None


def spoofs(lab: ClientLab, mac: str) -> list[dict[str, Any]]:
    return [fault for fault in lab.rest("GET", "/health")[1]["last_errors"] if mac in fault["where"]]


def test_the_place_of_a_silent_host_is_not_to_be_had(lab: ClientLab, victim: str) -> None:
    other = lab.addressing.host_mac["n1"]
    time.sleep(2.5 + QUIET_S)
    for number in range(TRIES):
        lab.send("n2", victim, other, payload=b"I am the victim, number %d" % number)
        time.sleep(0.15)
        assert place(lab, victim) == "n0", f"stolen at try {number}"
    assert eventually(lambda: spoofs(lab, victim))
    assert not any(b"I am the victim" in frame for frame in lab.received("n1"))
    assert pings(lab, "n1", IP), "what is sent to it still arrives there"


def test_the_address_of_a_silent_host_is_not_to_be_had(lab: ClientLab, victim: str) -> None:
    thief = "02:aa:00:00:21:01"
    lab.send("n2", thief)
    assert eventually(lambda: place(lab, thief)) == "n2"
    time.sleep(2.5 + QUIET_S)
    for number in range(TRIES):
        lab.send("n2", thief, **arp(thief, IP))
        time.sleep(0.15)
        assert owner(lab, IP) == victim, f"stolen at try {number}"
    assert eventually(lambda: spoofs(lab, thief))
    assert not any(arp(thief, IP)["payload"] in frame for frame in lab.received("n1"))


def test_a_silent_host_that_answers_is_not_forgotten_and_one_that_comes_back_wins(lab: ClientLab, victim: str) -> None:
    # It does not answer any more, and somebody else has its place.
    assert at(lab, "n0", "sysctl", "-q", "-w", "net.ipv4.conf.all.arp_ignore=8").returncode == 0
    time.sleep(2.5 + QUIET_S)
    asked_s = time.monotonic()
    lab.send("n2", victim)
    assert eventually(lambda: place(lab, victim) == "n2")
    assert time.monotonic() - asked_s > 0.3, "it had time to answer"
    # It speaks again where it was.
    assert at(lab, "n0", "sysctl", "-q", "-w", "net.ipv4.conf.all.arp_ignore=0").returncode == 0
    assert eventually(lambda: pings(lab, "n0", lab.addressing.host_ip["n1"]))
    assert place(lab, victim) == "n0"
    lab.send("n2", victim)
    time.sleep(1.0)
    assert place(lab, victim) == "n0"
