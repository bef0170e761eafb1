"""A lab in a guest kernel (scripts/guest.sh): with the kernel's Open vSwitch and with emulated 802.11 radios."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

from hyroads.controller.kernel.generic_netlink import DATAPATH_FAMILY, family_id
from hyroads.mininet.programs import HYROADS, EmulationError
from hyroads.mininet.radios import check_radios

from .packages import CHECKOUT

_SCRIPT = CHECKOUT / "scripts" / "guest.sh"
_MARK = Path("/run/hyroads-guest")
"""A folder that only guests have."""
_VIRTUAL_TIME = "time-travel"
"""Option of User-Mode Linux whose clock stands still while a processor works."""
_MEMORY = "6G"
"""Of User-Mode Linux: the disks of six boxes are in it."""
_BELOW = Path("/tmp")  # noqa: S108 - a guest sees only some folders below it


def is_guest() -> bool:
    """Whether this process runs in a guest kernel."""
    return _MARK.is_dir()


def has_virtual_time() -> bool:
    """Whether this kernel's clock stands still while a processor works: computing takes no time then."""
    return _VIRTUAL_TIME in Path("/proc/cmdline").read_text(encoding="ascii", errors="replace")


def check_kernel() -> None:
    """Raise EmulationError if this kernel lacks emulated radios or the datapath of Open vSwitch."""
    check_radios()
    if family_id(DATAPATH_FAMILY) is None:
        raise EmulationError("this kernel has no datapath of Open vSwitch (try: modprobe openvswitch)")


def guest_kind() -> str:
    """The kind of guest kernel that this machine has: own, qemu or uml.

    Raises EmulationError where there is none, with the command that makes one.
    """
    if not _SCRIPT.is_file():
        raise EmulationError("--kernel needs a checkout of HyRoads, for its scripts/guest.sh")
    found = subprocess.run([_SCRIPT, "--which"], capture_output=True, text=True, check=False)
    if found.returncode:
        said = (found.stderr.strip() or "no guest kernel").splitlines()[-1]
        raise EmulationError(said.removeprefix("hyroads guest: "))
    return found.stdout.split()[0]


def run_in_guest(kind: str, words: Sequence[str], folders: Iterable[Path]) -> NoReturn:
    """Become ``hyroads`` with these arguments in a guest of this kind, which can read ``folders``."""
    command = guest_command(kind, words, folders)
    sys.stdout.flush()
    sys.stderr.flush()
    # Signals reach the script, which ends the guest with all that runs in it.
    os.execv(command[0], command)  # noqa: S606 - no shell is needed


def guest_command(kind: str, words: Sequence[str], folders: Iterable[Path]) -> list[str]:
    """The command line of the guest; ``kind`` is own, qemu or uml.

    On User-Mode Linux time stands still while a processor works: one processor is too slow for six boxes otherwise.
    """
    options = ["--memory", _MEMORY, *(["--time-travel"] if kind == "uml" else [])]
    for folder in folders:
        options += ["--see", str(folder)] if _BELOW in folder.parents else []
    return [str(_SCRIPT), *options, "--", *HYROADS, *words]
