"""What there is on a box: files, users, interfaces, services, and Open vSwitch's settings.

A program of its own, which runs in the boxes of a lab without anything of HyRoads and prints a JSON object: name ->
state. Left out is all that Debian itself changes whenever packages come and go: logs, caches, lists of packages, and
backups of the lists of users.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

TOPS = ("/boot", "/etc", "/home", "/opt", "/root", "/srv", "/usr", "/var")
LEFT_OUT = {
    *("/var/cache/apt", "/var/cache/ldconfig", "/var/lib/apt", "/var/lib/dpkg", "/var/log", "/var/tmp"),  # noqa: S108 - nothing is written there
    # systemd's own: times of its timers, a seed for randomness.
    *("/var/lib/systemd", "/etc/.pwd.lock"),
    *(f"/etc/{name}-" for name in ("passwd", "group", "shadow", "gshadow", "subuid", "subgid")),
    # The database of Open vSwitch; its rows are compared.
    *(f"{folder}/openvswitch/{name}" for folder in ("/etc", "/var/lib") for name in ("conf.db", ".conf.db.~lock~")),
}
COMPARED_BY_CONTENT = ("/etc", "/root", "/var")
OF_DATAPATHS = ("ovs-netdev", "ovs-system")
"""Devices that Open vSwitch makes with its first bridge, and keeps."""
SWITCH_COLUMNS = ("bridges", "ssl", "manager_options", "other_config")


def files() -> Iterator[tuple[str, str]]:
    """Path -> mode, owner, and content or target."""
    for top in TOPS:
        for folder, folders, names in os.walk(top):
            folders[:] = [name for name in folders if f"{folder}/{name}" not in LEFT_OUT and name != "__pycache__"]
            for name in (*folders, *names):
                path = Path(folder, name)
                if str(path) not in LEFT_OUT:
                    yield str(path), _file(path)


def _file(path: Path) -> str:
    state = path.lstat()
    shown = f"{stat.filemode(state.st_mode)} {state.st_uid}:{state.st_gid}"
    if stat.S_ISLNK(state.st_mode):
        return f"{shown} -> {path.readlink()}"
    if not stat.S_ISREG(state.st_mode):
        return shown
    if not str(path).startswith(COMPARED_BY_CONTENT):
        return f"{shown} {state.st_size} bytes"
    return f"{shown} {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"


def interfaces() -> Iterator[tuple[str, str]]:
    """Interface -> its address, MTU and whether it is up."""
    for link in json.loads(_said("ip", "-json", "link")):
        if link["ifname"] not in OF_DATAPATHS:
            state = "up" if "UP" in link["flags"] else "down"
            yield f"interface {link['ifname']}", f"{link.get('address')} {link['mtu']} {state}"


def services() -> Iterator[tuple[str, str]]:
    """Unit file -> whether it is enabled, and unit -> that it has failed."""
    for line in _said("systemctl", "list-unit-files", "--no-legend", "--plain").splitlines():
        name, state, *_ = line.split()
        yield f"unit file {name}", state
    for line in _said("systemctl", "list-units", "--failed", "--no-legend", "--plain").splitlines():
        yield f"unit {line.split()[0]}", "failed"


def processes() -> Iterator[tuple[str, str]]:
    """Programs of HyRoads that run."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"hyroads" in words[0] or (words[1:] and b"hyroads" in words[1]):
            yield f"process {words[0].decode('utf-8', 'replace')}", "runs"


def switch() -> Iterator[tuple[str, str]]:
    """Setting of Open vSwitch -> its value."""
    for column in SWITCH_COLUMNS:
        yield f"Open vSwitch {column}", _said("ovs-vsctl", "--timeout=10", "get", "Open_vSwitch", ".", column).strip()


def _said(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def differences(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """What has come, gone or changed, a line each."""
    found = [f"{name} is left" for name in after if name not in before]
    found += [f"{name} is gone" for name in before if name not in after]
    changed = [name for name in before if name in after and before[name] != after[name]]
    return sorted([*found, *(f"{name}: {before[name]} became {after[name]}" for name in changed)])


if __name__ == "__main__":
    json.dump(dict([*files(), *interfaces(), *services(), *processes(), *switch()]), sys.stdout)
