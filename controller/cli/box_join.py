"""``hyroads box join`` and ``leave``: this machine becomes a node of a controller's network, and is as before again."""

from __future__ import annotations

import argparse
import time

from hyroads.controller.box.joining import Joining, Wanted
from hyroads.controller.box.system import System

from .main import Command, argument


def _say(line: str) -> None:
    print(line, flush=True)


def _joining() -> Joining:
    """Of this machine."""
    return Joining(System(), _say, time.time, time.sleep)


def _join(args: argparse.Namespace) -> int:
    return _joining().join(Wanted(args.controller and args.controller.rstrip("/"), args.pin, args.code, args.name))


def _leave(_: argparse.Namespace) -> int:
    return _joining().leave()


JOIN = Command(
    "On a box: join a controller, wait to be adopted there, and become a node (root).",
    _join,
    argument(
        "controller",
        nargs="?",
        metavar="https://HOST:PORT",
        help="address of the controller's REST API (default: as DNS names it, SRV records of _hyroads._tcp)",
    ),
    argument("--pin", metavar="SHA256", help="of the controller's certificate, as hyroads box pin shows it"),
    argument("--code", help="join code, as hyroads box code makes it at the controller"),
    argument("--name", help="id of this box at the controller (default: by its first factory address)"),
)
LEAVE = Command("On a box: undo everything that join did, also of a join that was interrupted (root).", _leave)
