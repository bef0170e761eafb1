"""``hyroads box``: on a box join, leave and doctor; at the controller list, adopt and forget.

A box has the modules for boxes alone, and Python's standard library: verbs whose modules or libraries are not installed
are left out.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator

from .main import Command

VERBS = {
    "join": "box_join:JOIN",
    "leave": "box_join:LEAVE",
    "doctor": "box_doctor:DOCTOR",
    "list": "box_remote:LIST",
    "adopt": "box_remote:ADOPT",
    "forget": "box_remote:FORGET",
    "pin": "box_remote:PIN",
    "code": "box_remote:CODE",
}
"""Verb -> module of this folder and the command's name in it."""


def verbs() -> Iterator[tuple[str, Command]]:
    """The verbs that are installed, with their names."""
    for name, place in VERBS.items():
        module, _, command = place.partition(":")
        try:
            found = importlib.import_module(f"{__package__}.{module}")
        except ModuleNotFoundError:
            continue
        yield name, getattr(found, command)


class BoxCommand(Command):
    """A command that consists of verbs, each a command of its own."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verbs with their arguments."""
        chosen = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs", required=True)
        for name, command in verbs():
            each = chosen.add_parser(name, help=command.HELP, description=command.HELP)
            command.add_arguments(each)
            each.set_defaults(run_verb=command.run)


def _run(args: argparse.Namespace) -> int:
    status: int = args.run_verb(args)
    return status


COMMAND = BoxCommand(
    "Make a machine a node of a network: join a controller and be adopted there (docs/how-to/access-point-debian.md).",
    _run,
)
