"""``hyroads handover``: move clients of a running controller, without loss."""

from __future__ import annotations

import argparse
from typing import Any

from hyroads.controller.cli.remote import Column, Verb, add_no_wait, add_verbs, given, one, place, run_verbs
from hyroads.rest.client import Client, address

HELP = "Move clients of a running controller, without loss; list and cancel handovers."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_verbs(parser, VERBS)


def run(args: argparse.Namespace) -> int:
    """Do it; the result is the exit status."""
    return run_verbs(args, VERBS)


def _begin(client: Client, args: argparse.Namespace) -> Any:
    more = {"flows": args.flow} if args.flow else {}
    return client.handover(args.client, args.to, wait=not args.no_wait, **given(args, "manager"), **more)


def _of_new(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("client", metavar="CLIENT", help="node id")
    parser.add_argument(
        "to", type=place, nargs="?", metavar="NODE/TECHNOLOGY", help="without it, flows use all places again"
    )
    parser.add_argument("--manager", help="hard, hoolock, bicast, vertical, vertical-bicast, or a plugin's")
    parser.add_argument("--flow", action="append", metavar="ID", help="only this flow; may repeat")
    add_no_wait(parser)


def _place(value: Any) -> str | None:
    return None if value is None else f"{value['node']}/{value['technology']}"


_COLUMNS: tuple[Column, ...] = (
    ("handover", lambda one: one["id"]),
    ("client", lambda one: one["client"]),
    ("from", lambda one: _place(one["from"])),
    ("to", lambda one: _place(one["to"])),
    ("manager", lambda one: one["manager"]),
    ("phase", lambda one: one["phase"]),
    ("moved after, s", lambda one: one["moved_after_s"]),
    ("why", lambda one: one["reason"]),
)
VERBS = (
    Verb(
        "list",
        "handovers on their way, then the latest",
        lambda client, _: list(client.listed("/handovers", "handovers")),
        columns=_COLUMNS,
    ),
    Verb("begin", "move a client; answered once its flows have moved", _begin, _of_new),
    Verb(
        "show",
        "one handover",
        lambda client, args: client.get(address("handovers", args.handover)),
        one("handover", "id"),
    ),
    Verb(
        "cancel",
        "give a handover up before anything has moved",
        lambda client, args: client.change("DELETE", address("handovers", args.handover)),
        one("handover", "id"),
    ),
)
