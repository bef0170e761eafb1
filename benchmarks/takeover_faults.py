"""What cuts controllers off, and what keeps etcd from answering (``takeover.py``)."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hyroads.mininet.programs import EmulationError, Program

DISKS = ("etcd-disk", "etcd-disk-one")
ETCD_S = {"etcd-paused": 5.0, "etcd-stopped": 60.0, "etcd-member": 5.0, "apart": 5.0, "no-etcd": 15.0}
ETCD_S |= dict.fromkeys(DISKS, 5.0)
"""How long something is away."""
DISK_BYTES = 512 << 20


def folder_of(emulation: Any, member: Program) -> Path:
    """Where a member of etcd has what it stores."""
    return emulation.directory / "etcd" / member.name


def etcd_leader(emulation: Any) -> Program:
    """The member that the others follow."""
    for member, url in zip(emulation.etcd.programs, emulation.etcd.urls, strict=True):
        request = urllib.request.Request(f"{url}/v3/maintenance/status", b"{}")
        with urllib.request.urlopen(request, timeout=5.0) as answer:
            status = json.load(answer)
        if status["leader"] == status["header"]["member_id"]:
            return member
    raise EmulationError("no member of etcd leads")


def disk(folder: Path) -> None:
    """A file system of its own, which goes with the namespace of the emulated network."""
    image = folder.with_suffix(".img")
    folder.mkdir(mode=0o700, parents=True)
    with image.open("wb") as file:
        file.truncate(DISK_BYTES)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(folder)], check=True)
    folder.chmod(0o700)


@contextmanager
def dropped(*rules: str) -> Iterator[None]:
    """Packets that leave any socket of the emulated network's controllers, and fit a rule, are lost."""
    if not rules:
        yield
        return
    chain = "add chain inet cut out { type filter hook output priority 0; }"
    lines = ["add table inet cut", chain, *(f"add rule inet cut out {rule} drop" for rule in rules)]
    subprocess.run(["nft", "-f", "-"], input="\n".join(lines), text=True, check=True)
    try:
        yield
    finally:
        subprocess.run(["nft", "delete", "table", "inet", "cut"], check=True)


def ports(numbers: list[int]) -> str:
    return "{ " + ", ".join(map(str, numbers)) + " }"


def cut_rules(emulation: Any, led: Any, *, of: tuple[str, ...]) -> list[str]:
    """What parts a controller from etcd, from devices and from its peers."""
    rules = []
    if "etcd" in of:
        etcd = [int(url.rpartition(":")[2]) for url in emulation.etcd.urls]
        rules.append(f"meta skgid {led.group} tcp dport {ports(etcd)}")
    if "peers" in of:
        peers = [other.ports["peer"] for other in emulation.led if other.control != led.control]
        rules.append(f"meta skgid {led.group} tcp dport {ports(peers)}")
        rules += [f"tcp {end}port {led.ports['peer']}" for end in "sd"]
    if "devices" in of:
        own = ports([led.ports["openflow"], led.ports["agents"]])
        rules += [f"tcp {end}port {own}" for end in "sd"]
    return rules


@contextmanager
def away(emulation: Any, led: Any, kind: str) -> Iterator[None]:
    """Something of ``ETCD_S`` is away; ``led`` is who leads."""
    members = emulation.etcd.programs
    if kind in ("apart", "no-etcd"):
        with dropped(*cut_rules(emulation, led, of=("peers",) if kind == "apart" else ("etcd",))):
            yield
    elif kind == "etcd-paused":
        for member in members:
            member.kill(signal.SIGSTOP)
        try:
            yield
        finally:
            for member in members:
                member.kill(signal.SIGCONT)
    elif kind in DISKS:
        frozen = [etcd_leader(emulation)] if kind == "etcd-disk-one" else members
        # Each thaws by itself: whoever waits for its disk can't be ended.
        words = 'fsfreeze -f "$1" && sleep "$2"; fsfreeze -u "$1"'
        freezers = [
            subprocess.Popen(["sh", "-c", words, "sh", str(folder_of(emulation, member)), str(ETCD_S[kind])])
            for member in frozen
        ]
        yield
        for freezer in freezers:
            freezer.wait()
    else:
        for member in members[:1] if kind == "etcd-member" else members:
            member.kill(signal.SIGKILL if kind == "etcd-member" else signal.SIGTERM)
            member.stop()
        yield
        emulation.etcd.start()
        emulation.etcd.wait_ready()
