"""``hyroads box join``: make this machine a node of a controller's network."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping

from hyroads.controller.box.joining import Joining, Wanted
from hyroads.controller.box.system import System
from hyroads.controller.cli.main import Command, argument


def _say(line: str) -> None:
    print(line, flush=True)


def joining() -> Joining:
    """Of this machine."""
    return Joining(System(), _say, time.time, time.sleep)


def _join(args: argparse.Namespace) -> int:
    return joining().join(Wanted(args.controller.rstrip("/"), args.pin, args.code, args.name))


VERBS: Mapping[str, Command] = {
    "join": Command(
        "on a box: join a controller, wait to be adopted there, and become a node (root)",
        _join,
        argument("controller", metavar="https://HOST:PORT", help="address of the controller's REST API"),
        argument("--pin", metavar="SHA256", help="of the controller's certificate, as hyroads box pin shows it"),
        argument("--code", help="join code, as hyroads box code makes it at the controller"),
        argument("--name", help="id of this box at the controller (default: by its first factory address)"),
    )
}
