"""A guest network on a gateway with real dnsmasq, nftables and DHCP client: alone, and in ``hyroads emulate``."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import ovs_rig
import pytest

from hyroads.mininet.programs import GUEST_TOOLS

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0 or not all(map(shutil.which, GUEST_TOOLS)), reason="needs root and dnsmasq"),
]

HYROADS = [sys.executable, "-m", "hyroads.controller.cli"]
ROLES = ("gw", "guest", "outside", "campus")
PEER, GATEWAY = {"guest": "guest0", "outside": "wan0", "campus": "lan0"}, "192.168.90.1"
CAMPUS, OUTSIDE, CAMPUS_PUBLIC = "10.50.0.2", "198.18.0.2", "198.51.100.2"


def run(*words: str, check: bool = True, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, check=check, capture_output=True, text=True, timeout=30, input=text)


class Site:
    """A gateway between a guest, the outside and the campus, which routes its replies to guests, too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.prefix = f"hr-gst{os.getpid()}"
        self.programs: dict[str, subprocess.Popen[bytes]] = {}

    def name(self, role: str) -> str:
        return f"{self.prefix}-{role}"

    def inside(self, role: str, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return run("ip", "netns", "exec", self.name(role), *words, check=check)

    def build(self, stack: ExitStack) -> None:
        for role in ROLES:
            run("ip", "netns", "add", self.name(role))
            stack.callback(run, "ip", "netns", "del", self.name(role))
            self.inside(role, "ip", "link", "set", "lo", "up")
        for role, device in PEER.items():
            run("ip", "link", "add", device, "netns", self.name("gw"), "type", "veth", "peer", "name", "eth0",
                "netns", self.name(role))  # fmt: skip
            self.inside("gw", "ip", "link", "set", device, "up")
            self.inside(role, "ip", "link", "set", "eth0", "up")
        routed = (("outside", "wan0", "198.18.0.1", OUTSIDE), ("campus", "lan0", "10.50.0.1", CAMPUS))
        for role, device, ours, theirs in routed:
            self.inside("gw", "ip", "addr", "add", f"{ours}/24", "dev", device)
            self.inside(role, "ip", "addr", "add", f"{theirs}/24", "dev", "eth0")
            self.inside(role, "ip", "route", "add", "default", "via", ours)
        # A part of the campus is behind the uplink.
        self.inside("outside", "ip", "addr", "add", f"{CAMPUS_PUBLIC}/32", "dev", "lo")
        self.inside("gw", "ip", "route", "add", "198.51.100.0/24", "via", OUTSIDE)
        names = [
            "--host-record=outside.example,198.18.0.2",
            "--host-record=secret.example,10.50.0.2",
            "--local=/example/",
        ]
        self.start("dns", "outside", "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--pid-file=",
                   "--no-resolv", "--no-hosts", *names)  # fmt: skip
        stack.callback(self.stop_all)

    def start(self, name: str, role: str, *words: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.programs[name] = subprocess.Popen(
                ["ip", "netns", "exec", self.name(role), *words], stdout=log, stderr=log
            )

    def stop(self, name: str, number: int = signal.SIGTERM) -> int:
        program = self.programs.pop(name)
        program.send_signal(number)
        return program.wait(15)

    def stop_all(self) -> None:
        for name in list(self.programs):
            self.stop(name)

    def serve(self) -> None:
        """Start ``hyroads guest-network`` and wait until it serves."""
        document = {
            "interface": "guest0", "uplink": "wan0", "dns": [OUTSIDE], "isolated": ["198.51.100.0/24"],
            "state_directory": str(self.folder / "state"),
        }  # fmt: skip
        file, log = self.folder / "guest.json", self.folder / "guest-network.log"
        file.write_text(json.dumps(document))
        log.unlink(missing_ok=True)
        self.start("guest-network", "gw", *HYROADS, "guest-network", "--config", str(file))
        assert ovs_rig.wait_until(lambda: "ready" in log.read_text(), 30), log.read_text()

    def pings(self, role: str, address: str) -> bool:
        return self.inside(role, "ping", "-c", "2", "-i", "0.2", "-W", "1", address, check=False).returncode == 0

    def resolves(self, name: str) -> str:
        return self.inside("guest", "busybox", "nslookup", name, GATEWAY, check=False).stdout

    def state(self) -> tuple[str, ...]:
        """All that the process may change of its host."""
        sysctls = [f"net.ipv4.conf.{each}.forwarding" for each in ("guest0", "wan0", "lan0", "all")]
        asked = (("nft", "list", "ruleset"), ("ip", "-4", "addr", "show", "dev", "guest0"), ("sysctl", "-n", *sysctls))
        return tuple(self.inside("gw", *words).stdout for words in asked)


def pids(namespace: str) -> list[int]:
    return list(map(int, run("ip", "netns", "pids", namespace).stdout.split()))


def name_of(pid: int) -> str:
    """Of a process that may have ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        found = Site(tmp_path)
        found.build(stack)
        yield found


def test_a_guest_has_the_internet_and_nothing_of_the_campus(site: Site) -> None:
    before = site.state()
    site.serve()
    script = site.folder / "on-lease"
    script.write_text('#!/bin/sh\n[ "$1" = bound ] || exit 0\nip addr replace $ip/$mask dev $interface\n'
                      f'ip route replace default via $router\necho "$dns" > {site.folder}/dns\n')  # fmt: skip
    script.chmod(0o700)
    site.inside("guest", "udhcpc", "-i", "eth0", "-n", "-q", "-t", "10", "-T", "1", "-s", str(script))
    assert (site.folder / "dns").read_text().strip() == GATEWAY
    [shown] = site.inside("guest", "ip", "-o", "-4", "addr", "show", "eth0").stdout.splitlines()
    address = shown.split()[3]
    assert address.startswith("192.168.90.") and address.endswith("/24")
    # The outside has no route to guests: it answers the gateway's address.
    site.inside("outside", "ip", "route", "del", "default")
    assert site.pings("guest", OUTSIDE) and OUTSIDE in site.resolves("outside.example")
    assert CAMPUS not in site.resolves("secret.example"), "addresses of the campus are not told"
    for hidden in (CAMPUS, "10.50.0.1", "198.18.0.1", CAMPUS_PUBLIC):
        assert not site.pings("guest", hidden), hidden
    assert site.pings("gw", CAMPUS) and site.pings("gw", CAMPUS_PUBLIC), "all of these are there"
    for role in ("campus", "outside"):
        site.inside(role, "ip", "route", "replace", "192.168.90.0/24", "dev", "eth0", "via",
                    "10.50.0.1" if role == "campus" else "198.18.0.1")  # fmt: skip
        assert not site.pings(role, address.split("/")[0]), f"nobody begins with a guest: {role}"
    # A guest that gives itself an address of the campus, or another default route, gains nothing.
    site.inside("guest", "ip", "addr", "add", "10.50.0.9/32", "dev", "eth0")
    forged = site.inside("guest", "ping", "-c", "1", "-W", "1", "-I", "10.50.0.9", OUTSIDE, check=False)
    assert forged.returncode != 0
    # Without these rules the campus would be reached: the way is there.
    site.inside("gw", "nft", "flush", "chain", "inet", "hyroads_guest", "forward")
    site.inside("gw", "sysctl", "-qw", "net.ipv4.conf.lan0.forwarding=1")
    assert site.pings("guest", CAMPUS)
    site.inside("gw", "sysctl", "-qw", "net.ipv4.conf.lan0.forwarding=0")
    assert site.stop("guest-network") == 0
    assert site.state() == before, "the host is as before"


def test_dnsmasq_comes_back_and_a_killed_process_lets_nobody_in(site: Site) -> None:
    before = site.state()
    site.serve()
    log, leases = site.folder / "guest-network.log", site.folder / "state"
    [served] = [pid for pid in pids(site.name("gw")) if name_of(pid) == "dnsmasq"]
    assert leases.exists()
    os.kill(served, signal.SIGKILL)
    assert ovs_rig.wait_until(lambda: "starting it again" in log.read_text(), 10)
    site.stop("guest-network", signal.SIGKILL)
    assert "hyroads_guest" in site.state()[0], "the rules stay"
    site.serve()
    assert site.stop("guest-network", signal.SIGINT) == 0
    assert site.state() == before, "its successor has taken back what it left"


def test_what_is_missing_is_one_line(site: Site) -> None:
    before = site.state()
    file = site.folder / "bad.json"
    file.write_text(json.dumps({"interface": "guest7", "uplink": "wan0", "state_directory": str(site.folder)}))
    done = site.inside("gw", *HYROADS, "guest-network", "--config", str(file), check=False)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "guest7" in done.stderr
    assert site.state() == before


def test_an_emulated_network_shows_it_and_leaves_nothing(tmp_path: Path) -> None:
    name = f"gst{os.getpid()}"
    namespaces = {f"hr-{name}", *(f"hr-{name}-{each}" for each in ("guest", "outside", "a", "b", "c"))}
    log = tmp_path / "log"
    with log.open("wb") as out:
        program = subprocess.Popen(
            [*HYROADS, "emulate", "triangle", "--guest", "--name", name, "--publish", "0"], stdout=out, stderr=out
        )
    try:
        assert ovs_rig.wait_until(lambda: "Ctrl-C ends it" in log.read_text(), 90), log.read_text()
        assert {path.name for path in Path("/run/netns").iterdir()} >= namespaces
        ping = ("ip", "netns", "exec", f"hr-{name}-guest", "ping", "-c", "2", "-i", "0.2", "-W", "1")
        assert run(*ping, OUTSIDE, check=False).returncode == 0, log.read_text()
        asked = run("ip", "netns", "exec", f"hr-{name}-guest", "busybox", "nslookup", "outside.example", GATEWAY)
        assert OUTSIDE in asked.stdout
        for hidden in ("10.0.0.1", "10.0.0.2", "10.0.0.3"):
            assert run(*ping, hidden, check=False).returncode != 0
        assert run("ip", "netns", "exec", f"hr-{name}-a", "ping", "-c", "1", "10.0.0.3").returncode == 0
    finally:
        program.send_signal(signal.SIGINT)
        program.wait(30)
    assert program.returncode == 130
    assert not namespaces & {path.name for path in Path("/run/netns").iterdir()}
    assert not Path(f"/run/hyroads/{name}").exists()
