"""``hyroads plugins``: which plugins a running controller has, and whether they run."""

from __future__ import annotations

import argparse

from hyroads.controller.cli.remote import Column, Verb, add_verbs, one, run_verbs
from hyroads.rest.client import address

HELP = "List plugins of a running controller; enable and disable them."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_verbs(parser, VERBS)


def run(args: argparse.Namespace) -> int:
    """Do it; the result is the exit status."""
    return run_verbs(args, VERBS)


_COLUMNS: tuple[Column, ...] = (
    ("plugin", lambda plugin: plugin["name"]),
    ("kind", lambda plugin: plugin["kind"]),
    ("state", lambda plugin: plugin["state"]),
    ("role", lambda plugin: plugin["role"]),
    ("faults", lambda plugin: plugin["faults"]["total"]),
    ("last", lambda plugin: (plugin["faults"]["last"] or {}).get("what")),
    ("origin", lambda plugin: plugin["origin"]),
)
_NAME = one("plugin", "name")
VERBS = (
    Verb("list", "all plugins", lambda client, _: list(client.listed("/plugins", "plugins")), columns=_COLUMNS),
    Verb("show", "one plugin", lambda client, args: client.get(address("plugins", args.plugin)), _NAME),
    Verb(
        "enable",
        "start it; what it did before is forgiven",
        lambda client, args: client.change("POST", address("plugins", args.plugin, "enable")),
        _NAME,
    ),
    Verb(
        "disable",
        "end it until it is enabled again",
        lambda client, args: client.change("POST", address("plugins", args.plugin, "disable")),
        _NAME,
    ),
)
