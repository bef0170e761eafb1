"""What a box does to its machine: files, folders and commands. Every failure is one line."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hyroads.controller.core.box_application import INTERFACE, Interface
from hyroads.controller.core.box_record import Before
from hyroads.controller.core.box_setup import Run, WriteFile
from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.files.private import put_in_place, sync_folder, write_beside
from hyroads.controller.kernel.generic_netlink import DATAPATH_FAMILY, family_id

COMMAND_WITHIN_S = 60.0
LEAST_FREE_BYTES = 1 << 20
_VIRTUAL = (None, "veth")
"""Kinds of links (ip's ``info_kind``) that are ports; bridges, VLANs and taps are not."""


class System:
    """The machine that this process runs on."""

    # -- files

    def read(self, path: str) -> Before:
        """A file as it is now; HyroadsError."""
        try:
            data, state = Path(path).read_bytes(), Path(path).stat()
        except FileNotFoundError:
            return Before(path, None)
        except OSError as error:
            raise _failed(path, error) from error
        return Before(path, data, state.st_mode & 0o7777, state.st_uid, state.st_gid)

    def write(self, file: WriteFile) -> None:
        """The file has this text, mode and owner, or is as before; HyroadsError."""
        user = _user(file.owner) if file.owner else (0, 0)
        self.put(Before(file.path, file.text.encode(), file.mode, *user))

    def put(self, file: Before) -> None:
        """The file is as described, and is gone if it was not there; HyroadsError."""
        path = Path(file.path)
        try:
            if file.data is None:
                path.unlink(missing_ok=True)
                return
            new = write_beside(path, file.data)
            os.chown(new, file.user, file.group)
            new.chmod(file.mode)
            put_in_place(new, path)
        except OSError as error:
            raise _failed(file.path, error) from error

    def has(self, path: str) -> bool:
        """Whether a file or folder is there."""
        return Path(path).exists()

    def make_folder(self, path: str, mode: int = 0o755) -> None:
        """Make a folder if it is not there; HyroadsError."""
        try:
            Path(path).mkdir(mode=mode, exist_ok=True)
            sync_folder(Path(path).parent)
        except OSError as error:
            raise _failed(path, error) from error

    def remove_folder(self, path: str) -> None:
        """Remove a folder if it is empty."""
        with contextlib.suppress(OSError):
            Path(path).rmdir()

    def check_folder(self, path: str) -> None:
        """HyroadsError if nothing can be written to a folder, or there is next to no space."""
        try:
            room = os.statvfs(path)
        except OSError as error:
            raise _failed(path, error) from error
        if room.f_flag & os.ST_RDONLY:
            raise HyroadsError(f"{path}: can't be written: the file system is read-only")
        if not os.access(path, os.W_OK):
            raise HyroadsError(f"{path}: can't be written: this needs root")
        if room.f_bavail * room.f_frsize < LEAST_FREE_BYTES:
            raise HyroadsError(f"{path}: can't be written: no space is left (expected 1 MiB)")

    # -- commands

    def run(self, run: Run, data: bytes = b"") -> bytes:
        """What a command prints; empty if it is left out. HyroadsError with its last line if it fails."""
        if run.if_there and not Path(run.if_there).exists():
            return b""
        program = run.words[0]
        try:
            done = subprocess.run(run.words, input=data, capture_output=True, timeout=COMMAND_WITHIN_S, check=False)
        except FileNotFoundError as error:
            raise HyroadsError(f"{program}: is not installed") from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise HyroadsError(f"{program}: {error}") from error
        if done.returncode:
            lines = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
            said = lines[-1] if lines else f"status {done.returncode}"
            raise HyroadsError(f"{' '.join(run.words)[:200]}: {said}")
        return done.stdout

    def has_program(self, name: str) -> bool:
        """Whether a program is installed."""
        return shutil.which(name, path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin") is not None

    def has_kernel_datapath(self) -> bool:
        """Whether the kernel has the datapath of Open vSwitch, as a loaded module or built in; HyroadsError."""
        return family_id(DATAPATH_FAMILY) is not None

    # -- what the machine is

    def operating_system(self) -> str:
        """Its name, such as ``Debian GNU/Linux 12 (bookworm)``."""
        with contextlib.suppress(OSError):
            for line in Path("/etc/os-release").read_text(encoding="utf-8", errors="replace").splitlines():
                key, _, value = line.partition("=")
                shown = "".join(each for each in value.strip("\"'") if each.isprintable())[:80]
                if key == "PRETTY_NAME" and shown:
                    return shown
        return "Linux"

    def interfaces(self, own_address: str) -> list[Interface]:
        """Its Ethernet and WiFi interfaces; ``own_address`` is the IP address by which it reaches the controller."""
        answer = json.loads(self.run(Run(("ip", "-json", "-details", "address", "show"))) or b"[]")
        return interfaces_of(answer, own_address, lambda name: Path(f"/sys/class/net/{name}/phy80211").exists())


def interfaces_of(answer: Sequence[Any], own_address: str, is_wifi: Any) -> list[Interface]:
    """What ``ip -json -details address show`` says of ports; ``is_wifi`` says of a name whether it is a radio."""
    found = []
    for each in answer:
        name = str(each.get("ifname", ""))
        kind = each.get("linkinfo", {}).get("info_kind")
        if each.get("link_type") != "ether" or kind not in _VIRTUAL or not INTERFACE.fullmatch(name):
            continue
        addresses = {entry.get("local") for entry in each.get("addr_info", ())}
        found.append(
            Interface(
                name,
                "wifi" if is_wifi(name) else "ethernet",
                int(each.get("mtu", 1500)),
                str(each.get("permaddr") or each.get("address")),
                own_address in addresses,
                "UP" in each.get("flags", ()),
            )
        )
    return found


def _user(name: str) -> tuple[int, int]:
    try:
        found = pwd.getpwnam(name)
    except KeyError as error:
        raise HyroadsError(f"user {name} is not there: install the packages hyroads-edge and hyroads-ap") from error
    return found.pw_uid, found.pw_gid


def _failed(path: str, error: OSError) -> HyroadsError:
    return HyroadsError(f"{path}: {error.strerror or error}")
