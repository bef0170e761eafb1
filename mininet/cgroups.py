"""A control group for each box: two systemds in one group would take each other's groups for their own."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

PREFIX = "hr-"
ROOT = Path("/sys/fs/cgroup")
_AGAIN_S = 0.05


def own_folders(membership: str, mounts: str) -> tuple[Path, ...]:
    """The folders of this process in the hierarchies that systemd uses: its named one and that of version 2.

    ``membership`` is the text of /proc/self/cgroup, ``mounts`` that of /proc/self/mountinfo.
    """
    paths: dict[str, str] = {}
    for line in membership.splitlines():
        number, controllers, path = line.split(":", 2)
        if controllers == "name=systemd" or number == "0":
            paths[controllers] = path
    found = []
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        root, point = before.split()[3:5]
        kind, _, options = after.split()[:3]
        name = "" if kind == "cgroup2" else "name=systemd" if kind == "cgroup" and "name=systemd" in options else None
        if name in paths:
            path = paths[name].removeprefix(root) if root != "/" else paths[name]
            found.append(Path(point) / path.lstrip("/"))
    return tuple(found)


def lab_folders(lab: str) -> tuple[Path, ...]:
    """The folders of a lab below those of this process; they are not made yet."""
    here = Path("/proc/self")
    own = own_folders((here / "cgroup").read_text(), (here / "mountinfo").read_text())
    return tuple(folder / f"{PREFIX}{lab}" for folder in own)


def make(folders: Sequence[Path], box: str) -> tuple[Path, ...]:
    """The groups of a box, as folders."""
    made = tuple(folder / box for folder in folders)
    for folder in made:
        folder.mkdir(parents=True, exist_ok=True)
    return made


def remove(folder: Path, within_s: float = 5.0) -> None:
    """Remove a lab's group with all groups in it; only folders below /sys/fs/cgroup that a lab has named.

    The kernel keeps a group until the last of its processes has ended. That may take a moment after they were killed,
    so this tries again for ``within_s``.
    """
    if not folder.is_relative_to(ROOT) or ".." in folder.parts or not folder.name.startswith(PREFIX):
        return
    until_s = time.monotonic() + within_s
    while True:
        for path, _, _ in os.walk(folder, topdown=False):
            with suppress(OSError):
                Path(path).rmdir()
        if not folder.exists() or time.monotonic() >= until_s:
            return
        time.sleep(_AGAIN_S)
