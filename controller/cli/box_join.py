"""``hyroads box join`` and ``leave``: this machine becomes a node of a controller's network, and is as before again."""

from __future__ import annotations

import argparse
import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hyroads.controller.box.joining import Joining, Wanted
from hyroads.controller.box.system import System
from hyroads.controller.core.errors import HyroadsError

from .main import Command, argument

LOCK = "/run/hyroads-box.lock"


def _say(line: str) -> None:
    print(line, flush=True)


def _joining() -> Joining:
    """Of this machine."""
    return Joining(System(), _say, time.time, time.sleep)


@contextmanager
def _alone() -> Iterator[None]:
    """While one join or leave runs no other does; HyroadsError."""
    try:
        lock = Path(LOCK).open("w")  # noqa: SIM115 - it is closed below
    except OSError as error:
        raise HyroadsError(f"{LOCK}: {error.strerror}: join and leave need root") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise HyroadsError("another hyroads box join or leave runs: end it first") from error
        yield


def _join(args: argparse.Namespace) -> int:
    wanted = Wanted(args.controller and args.controller.rstrip("/"), args.pin, args.code, args.name)
    with _alone():
        return _joining().join(wanted)


def _leave(_: argparse.Namespace) -> int:
    with _alone():
        return _joining().leave()


JOIN = Command(
    "On a box: join a controller, wait to be adopted there, and become a node (root).",
    _join,
    argument(
        "controller",
        nargs="?",
        metavar="https://HOST:PORT",
        help="address of the controller's REST API (default: as the network names it, by DNS, multicast DNS or DHCP)",
    ),
    argument("--pin", metavar="SHA256", help="of the controller's certificate, as hyroads box pin shows it"),
    argument("--code", help="join code, as hyroads box code makes it at the controller"),
    argument("--name", help="id of this box at the controller (default: by its first factory address)"),
)
LEAVE = Command("On a box: undo everything that join did, also of a join that was interrupted (root).", _leave)
