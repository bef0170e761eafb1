"""The run directory of an emulated network, the network files that come with HyRoads, and what controllers see of them.

``/run/hyroads/<network>/`` holds sockets, logs and ``state.json``; the lock file beside it is held (flock) by the owner
and by the emulation's own processes, so the kernel frees it exactly when the last of them has ended, however it ended.
A small process in a session of its own waits for that, and sweeps what a dead owner left outside its own namespaces;
if it was killed, too, the next start of any emulation does.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import cgroups
from .programs import EmulationError

if TYPE_CHECKING:
    from hyroads.controller.core.addressing import Addressing
    from hyroads.controller.core.network import Network

ROOT = Path("/run/hyroads")
NETNS_ROOT = Path("/run/netns")
NETNS_PREFIX = "hr-"
STATE = "state.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_MAX_STATE_BYTES = 1 << 20
# Another emulation that starts holds the lock of every free name for a moment, to sweep it.
_SWEPT_WITHIN_S = 0.5


def namespace_name(network: str, node: str | None = None) -> str:
    """The network namespace of an emulated network, or of one of its nodes, as ``ip netns`` shows it."""
    return f"{NETNS_PREFIX}{network}" + (f"-{node}" if node is not None else "")


# Waits in a program that needs hardly any memory. A name that has been released has no file any more.
_SWEEP_LATER = "flock {descriptor} && flock -u {descriptor} && [ -e {lock} ] && exec {python} -c {sweep}"


@dataclass(eq=False)
class RunDirectory:
    """A claimed run directory; the claim ends with ``release`` or with the death of all who hold ``lock_fd``."""

    name: str
    path: Path
    lock_path: Path
    lock_fd: int
    _sweeper: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def record(self, namespaces: Iterable[str], groups: Iterable[Path] = ()) -> None:
        """Writes down, before anything is made, the names that must be removed after a crash, and sees to that.

        ``groups`` are folders of control groups.
        """
        state = {"pid": os.getpid(), "namespaces": list(namespaces), "groups": [str(group) for group in groups]}
        (self.path / STATE).write_text(json.dumps(state), encoding="utf-8")
        if self._sweeper is None:
            self._sweeper = self._sweep_later()

    def _sweep_later(self) -> subprocess.Popen[bytes]:
        # Opened anew: who inherits ``lock_fd`` holds the lock.
        descriptor = os.open(self.lock_path, os.O_RDWR | os.O_CLOEXEC)
        words = {
            "lock": str(self.lock_path),
            "python": sys.executable,
            "sweep": f"from {__name__} import sweep_name; sweep_name({str(self.lock_path)!r})",
        }
        quoted = {name: shlex.quote(word) for name, word in words.items()}
        nothing = subprocess.DEVNULL
        try:
            return subprocess.Popen(
                ["sh", "-c", _SWEEP_LATER.format(descriptor=descriptor, **quoted)],
                stdin=nothing,
                stdout=nothing,
                stderr=nothing,
                pass_fds=(descriptor,),
                start_new_session=True,
            )
        finally:
            os.close(descriptor)

    def release(self) -> None:
        """Removes what was recorded and the directory, then frees the name."""
        _remove_recorded(self.path)
        shutil.rmtree(self.path, ignore_errors=True)
        self.lock_path.unlink(missing_ok=True)
        os.close(self.lock_fd)
        if self._sweeper is not None:
            with suppress(subprocess.TimeoutExpired):
                self._sweeper.wait(_SWEPT_WITHIN_S)


def claim(name: str) -> RunDirectory:
    """Takes the name for this process and empties its directory; raises EmulationError while another holds it."""
    if not _NAME.fullmatch(name):
        raise EmulationError(f"network name {name!r}: expected letters, digits, '.', '_' or '-' (at most 64)")
    ROOT.mkdir(mode=0o755, parents=True, exist_ok=True)
    lock_path = ROOT / f"{name}.lock"
    over_s = time.monotonic() + _SWEPT_WITHIN_S
    while (descriptor := _lock(lock_path)) is None and time.monotonic() < over_s:
        time.sleep(0.02)
    if descriptor is None:
        raise EmulationError(f"network {name} is already running{_owner_text(ROOT / name)}; stop it first")
    directory = RunDirectory(name, ROOT / name, lock_path, descriptor)
    _remove_recorded(directory.path)
    shutil.rmtree(directory.path, ignore_errors=True)
    directory.path.mkdir(mode=0o755)
    return directory


def sweep() -> list[str]:
    """Removes what dead emulations left behind; returns their names. Living ones are not touched."""
    if not ROOT.is_dir():
        return []
    names = {entry.stem for entry in ROOT.glob("*.lock")} | {entry.name for entry in ROOT.iterdir() if entry.is_dir()}
    return [name for name in sorted(names) if sweep_name(str(ROOT / f"{name}.lock"))]


def sweep_name(lock: str) -> bool:
    """Removes what is left of the emulation with that lock file; False if it lives."""
    lock_path = Path(lock)
    descriptor = _lock(lock_path)
    if descriptor is None:
        return False
    directory = lock_path.with_suffix("")
    RunDirectory(directory.name, directory, lock_path, descriptor).release()
    return True


def _lock(path: Path) -> int | None:
    """An exclusive lock on the file that ``path`` names now, or None if somebody holds it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        # Between open and lock the former holder may have removed the file; then the lock protects nothing.
        try:
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        except FileNotFoundError:
            pass
        os.close(descriptor)


def _read_state(directory: Path) -> dict[str, object]:
    try:
        with (directory / STATE).open("rb") as handle:
            state = json.loads(handle.read(_MAX_STATE_BYTES))
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def _owner_text(directory: Path) -> str:
    pid = _read_state(directory).get("pid")
    return f" (process {pid})" if isinstance(pid, int) else ""


def _remove_recorded(directory: Path) -> None:
    state = _read_state(directory)
    namespaces, groups = state.get("namespaces"), state.get("groups")
    for group in groups if isinstance(groups, list) else []:
        if isinstance(group, str):
            cgroups.remove(Path(group))
    for name in namespaces if isinstance(namespaces, list) else []:
        # Only names of our own kind, whatever a damaged file may say.
        if isinstance(name, str) and name.startswith(NETNS_PREFIX) and (NETNS_ROOT / name).exists():
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)


# What only the emulator knows of a link.
_TRUTH = ("capacity_mbps", "delay_ms", "loss")


def network_document(
    network: Network, addressing: Addressing, *, measured: bool = False, discover: bool = False
) -> dict[str, Any]:
    """The controller's network file: all, all but what is ``measured``, or only nodes and technologies (``discover``).

    Where plain clients are attached is said, as it follows from capacities else.
    """
    from hyroads.controller.core.netfile import to_document

    document = to_document(network)
    if not (measured or discover):
        return document
    for client in addressing.attachments:
        attachment = addressing.attachment(client)
        if attachment is not None:
            document["nodes"][client]["attached_to"] = attachment.node
    if not discover:
        document["links"] = [{k: v for k, v in link.items() if k not in _TRUTH} for link in document["links"]]
        return document
    for node, technologies in network.technologies_of.items():
        document["nodes"][node]["technologies"] = list(technologies)
    document["technologies"] = {k: {"shared": k not in network.unshared} for k in network.technologies}
    document |= {"links": "discover", "interference": {"rule": "hearing"}}
    flows = document.pop("flows", [])
    names = discovered_names(network, document)
    for flow in flows:
        if "paths" in flow:
            flow["paths"] = [[names[link] for link in path] for path in flow["paths"]]
    return {**document, **({"flows": flows} if flows else {})}


def discovered_names(network: Network, document: dict[str, Any]) -> dict[str, str]:
    """Id of a link in the network file -> id of the same link in a discovered network."""
    from hyroads.controller.core.netfile import parse

    found = parse(document, "discovered", measured=True).links
    ends = {(link.source, link.target, link.technology): link.id for link in found}
    return {link.id: ends[link.source, link.target, link.technology] for link in network.links}


FOLDER = Path(__file__).resolve().parent / "networks"


def find_network(name: str) -> Path:
    """The network file of that path, or of that name among those that come with HyRoads."""
    for candidate in (Path(name), FOLDER / name, FOLDER / f"{name}.yaml"):
        if candidate.is_file():
            return candidate
    known = ", ".join(sorted(path.stem for path in FOLDER.glob("*.yaml")))
    raise EmulationError(f"no network file {name} (a path, or one of: {known})")


def network_name(path: Path) -> str:
    """A name for an emulated network from its file's name: what may stand in the name of a namespace."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", path.stem).lstrip("_.-") or "network"
