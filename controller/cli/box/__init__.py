"""``hyroads box``: on a box join, leave and doctor; at the controller list, adopt and forget.

Each module of ``MODULES`` has ``VERBS``, commands by name. A box has the modules for boxes alone: verbs of modules that
are not installed are left out.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator
from importlib.util import find_spec

from hyroads.controller.cli.main import Command

MODULES = ("join", "leave", "doctor", "remote")


def verbs() -> Iterator[tuple[str, Command]]:
    """The verbs that are installed, with their names."""
    for name in MODULES:
        module = f"{__name__}.{name}"
        if find_spec(module) is not None:
            yield from importlib.import_module(module).VERBS.items()


class BoxCommand(Command):
    """A command that consists of the verbs of its modules."""

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
