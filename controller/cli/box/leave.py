"""``hyroads box leave``: this machine is as it was before it joined."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from hyroads.controller.cli.main import Command

from .join import joining


def _leave(args: argparse.Namespace) -> int:
    return joining().leave()


VERBS: Mapping[str, Command] = {
    "leave": Command("on a box: undo everything that join did, also a join that was interrupted (root)", _leave)
}
