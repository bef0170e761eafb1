"""A lab in a guest kernel (scripts/guest.sh): with the kernel's Open vSwitch and with emulated 802.11 radios."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

from hyroads.controller.kernel.generic_netlink import family_id
from hyroads.mininet.programs import HYROADS, EmulationError
from hyroads.mininet.radios import check_radios

from .packages import CHECKOUT

_SCRIPT = CHECKOUT / "scripts" / "guest.sh"
_MARK = Path("/run/hyroads-guest")
"""A folder that only guests have."""
_MEMORY = "6G"
"""Of User-Mode Linux: the disks of six boxes are in it."""
_BELOW = Path("/tmp")  # noqa: S108 - a guest sees only some folders below it


def is_guest() -> bool:
    """Whether this process runs in a guest kernel."""
    return _MARK.is_dir()


def check_kernel() -> None:
    """Raise EmulationError if this kernel lacks emulated radios or the datapath of Open vSwitch."""
    check_radios()
    if family_id("ovs_datapath") is None:
        raise EmulationError("this kernel has no datapath of Open vSwitch (try: modprobe openvswitch)")


def run_in_guest(words: Sequence[str], folders: Iterable[Path]) -> NoReturn:
    """Become ``hyroads`` with these arguments in a guest, which can read ``folders``.

    Raises EmulationError where no guest can be started, with the command that makes a kernel.
    """
    if not _SCRIPT.is_file():
        raise EmulationError("--kernel needs a checkout of HyRoads, for its scripts/guest.sh")
    found = subprocess.run([_SCRIPT, "--which"], capture_output=True, text=True, check=False)
    if found.returncode:
        raise EmulationError((found.stderr.strip() or "no guest kernel").splitlines()[-1])
    command = guest_command(found.stdout.split()[0], words, folders)
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
        options += ["--see", str(folder)] if folder.is_relative_to(_BELOW) else []
    return [str(_SCRIPT), *options, "--", *HYROADS, *words]
