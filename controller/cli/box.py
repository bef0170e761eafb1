"""``hyroads box``: what is done on a box, a verb a module."""

from __future__ import annotations

import argparse

from . import box_doctor
from .main import Command, add_all

_VERBS: dict[str, Command] = {"doctor": box_doctor.DOCTOR}


class BoxCommand(Command):
    """One verb a command."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verbs with their arguments."""
        chosen = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs", required=True)
        for name, verb in _VERBS.items():
            each = chosen.add_parser(name, help=verb.HELP, description=verb.HELP)
            add_all(each, verb.arguments)


def _run(args: argparse.Namespace) -> int:
    return _VERBS[args.verb].run(args)


COMMAND = BoxCommand("Check this box (docs/how-to/box-doctor.md).", _run)
