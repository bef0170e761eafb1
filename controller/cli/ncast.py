"""``hyroads ncast``: send copies of live flows by several paths."""

from __future__ import annotations

import argparse
from typing import Any

from hyroads.controller.cli.remote import Column, Verb, add_no_wait, add_verbs, one, run_verbs
from hyroads.rest.client import Client, address

HELP = "Send each packet of live flows by several paths, on and off without loss."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_verbs(parser, VERBS)


def run(args: argparse.Namespace) -> int:
    """Do it; the result is the exit status."""
    return run_verbs(args, VERBS)


def _switch_on(client: Client, args: argparse.Namespace) -> Any:
    body: dict[str, Any] = {"flow": args.flow}
    if args.path:
        body["paths"] = [path.split(",") for path in args.path]
        body["copies"] = len(args.path)
    if args.copies is not None:
        body["copies"] = args.copies
    return client.change("POST", "/ncasts", body, wait=not args.no_wait)


def _switch_off(client: Client, args: argparse.Namespace) -> Any:
    return client.change("DELETE", address("ncasts", args.flow), wait=not args.no_wait)


def _of_flow(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("flow", metavar="FLOW")
    add_no_wait(parser)


def _of_new(parser: argparse.ArgumentParser) -> None:
    _of_flow(parser)
    parser.add_argument("--copies", type=int, help="how many (default: 2, or as many as paths)")
    parser.add_argument("--path", action="append", metavar="LINK,LINK...", help="this path; may repeat")


_COLUMNS: tuple[Column, ...] = (
    ("flow", lambda ncast: ncast["flow"]),
    ("copies", lambda ncast: ncast["copies"]),
    ("phase", lambda ncast: ncast["phase"]),
    ("paths", lambda ncast: ["+".join(path) for path in ncast["paths"]]),
    ("expected loss", lambda ncast: ncast["expected_loss"]),
    ("why", lambda ncast: ncast["reason"]),
)
VERBS = (
    Verb("list", "flows that are n-cast", lambda client, _: list(client.listed("/ncasts", "ncasts")), columns=_COLUMNS),
    Verb("show", "one", lambda client, args: client.get(address("ncasts", args.flow)), one("flow", "id")),
    Verb("on", "n-cast a flow; answered once copies are sent", _switch_on, _of_new),
    Verb("off", "back to one path", _switch_off, _of_flow),
)
