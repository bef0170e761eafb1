"""``hyroads clients``: clients of a running controller, where they are, who hands them over."""

from __future__ import annotations

import argparse
from typing import Any

from hyroads.controller.cli.remote import Column, Verb, add_no_wait, add_verbs, given, one, run_verbs
from hyroads.rest.client import Client, address

HELP = "List clients of a running controller with their attachments; set how they are handed over; forget them."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_verbs(parser, VERBS)


def run(args: argparse.Namespace) -> int:
    """Do it; the result is the exit status."""
    return run_verbs(args, VERBS)


def _prefer(client: Client, args: argparse.Namespace) -> Any:
    wishes = given(args, "manager")
    if args.steering is not None:
        wishes["steering"] = args.steering == "on"
    return client.change("PATCH", address("clients", args.client), wishes)


def _forget(client: Client, args: argparse.Namespace) -> Any:
    return client.change("DELETE", address("clients", args.client), wait=not args.no_wait)


def _of_wishes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("client", metavar="CLIENT")
    parser.add_argument("--manager", help="hard, hoolock, bicast, vertical, or a plugin's")
    parser.add_argument("--steering", choices=("on", "off"), help="whether policies may move it")


def _of_removal(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("client", metavar="CLIENT")
    add_no_wait(parser)


def _places(client: dict[str, Any]) -> list[str]:
    return [f"{one['node'] or 'nowhere'}/{one['technology'] or '?'}" for one in client["attachments"]]


_COLUMNS: tuple[Column, ...] = (
    ("client", lambda client: client["id"]),
    ("declared", lambda client: client["declared"]),
    ("places", _places),
    ("known by", lambda client: sorted({one["known_by"] for one in client["attachments"]})),
    ("addresses", lambda client: [ip["ip"] for one in client["attachments"] for ip in one["addresses"]]),
    ("manager", lambda client: client["manager"]),
    ("steering", lambda client: client["steering"]),
)
VERBS = (
    Verb("list", "all clients", lambda client, _: list(client.listed("/clients", "clients")), columns=_COLUMNS),
    Verb("show", "one client", lambda client, args: client.get(address("clients", args.client)), one("client", "id")),
    Verb("prefer", "set its handover manager, and whether policies may move it", _prefer, _of_wishes),
    Verb("forget", "forget a client that is not declared", _forget, _of_removal),
)
