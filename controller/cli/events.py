"""``hyroads events``: what happens in the network of a running controller, as it happens."""

from __future__ import annotations

import argparse
import json
import time

from hyroads.controller.cli.remote import add_connection, connect, words
from hyroads.rest.client import Event

HELP = "Print what happens in the network, as it happens, until Ctrl-C; with --json a line of JSON each."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_connection(parser)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="only these; link means link.up, link.down, ...")
    parser.add_argument("--since", type=int, metavar="ID", help="begin after this event")
    parser.add_argument("--kept", action="store_true", help="what the controller has kept, then end")


def run(args: argparse.Namespace) -> int:
    """Do it; the result is the exit status."""
    with connect(args) as client:
        for event in client.events(*args.kinds, last=args.since, follow=not args.kept):
            print(_json(event) if args.json else _line(event), flush=True)
    return 0


def _json(event: Event) -> str:
    return json.dumps({"id": event.id, "kind": event.kind, **event.document})


def _line(event: Event) -> str:
    document = dict(event.document)
    at = time.strftime("%H:%M:%S", time.localtime(document.pop("time_s", time.time())))
    return f"{at} {words(event.kind)}: {words(document)}"
