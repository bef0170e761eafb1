"""``hyroads session``: multicast sessions of a running controller."""

from __future__ import annotations

import argparse
from typing import Any

from hyroads.controller.cli.remote import Column, Verb, add_no_wait, add_verbs, given, one, run_verbs
from hyroads.rest.client import Client, address

HELP = "Declare multicast sessions, join and leave them."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_verbs(parser, VERBS)


def run(args: argparse.Namespace) -> int:
    """Do it; the result is the exit status."""
    return run_verbs(args, VERBS)


def _add(client: Client, args: argparse.Namespace) -> Any:
    body = {"id": args.id, "group": args.group, "participants": args.participants, **given(args, "rate_mbps")}
    if args.source:
        body["sources"] = args.source
    if args.membership:
        body["membership"] = True
    return client.change("POST", "/sessions", body, wait=not args.no_wait)


def _join(client: Client, args: argparse.Namespace) -> Any:
    body = {"name": args.participant, "source": not args.listen_only}
    return client.change("POST", address("sessions", args.session, "participants"), body, wait=not args.no_wait)


def _leave(client: Client, args: argparse.Namespace) -> Any:
    path = address("sessions", args.session, "participants", args.participant)
    return client.change("DELETE", path, wait=not args.no_wait)


def _remove(client: Client, args: argparse.Namespace) -> Any:
    return client.change("DELETE", address("sessions", args.session), wait=not args.no_wait)


def _of_new(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID")
    parser.add_argument("group", metavar="GROUP", help="multicast IP or group MAC address")
    parser.add_argument("participants", metavar="PARTICIPANT", nargs="*", help="node id, MAC or IP address")
    parser.add_argument("--source", action="append", metavar="PARTICIPANT", help="may send (default: all); may repeat")
    parser.add_argument("--rate-mbps", type=float, help="what each source is counted with")
    parser.add_argument("--membership", action="store_true", help="hosts join and leave by IGMP and MLD, too")
    add_no_wait(parser)


def _of_removal(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    add_no_wait(parser)


def _of_leave(parser: argparse.ArgumentParser) -> None:
    _of_removal(parser)
    parser.add_argument("participant", metavar="PARTICIPANT", help="node id, MAC or IP address")


def _of_join(parser: argparse.ArgumentParser) -> None:
    _of_leave(parser)
    parser.add_argument("--listen-only", action="store_true", help="does not send")


_COLUMNS: tuple[Column, ...] = (
    ("session", lambda session: session["id"]),
    ("group", lambda session: session["group"]),
    ("state", lambda session: session["state"]),
    ("participants", lambda session: [one["name"] for one in session["participants"]]),
    ("not reached", lambda session: [one["name"] for one in session["participants"] if not one["reached"]]),
    ("Mb/s", lambda session: session["rate_mbps"]),
    ("pending", lambda session: session["pending"]),
)
VERBS = (
    Verb("list", "all sessions", lambda client, _: list(client.listed("/sessions", "sessions")), columns=_COLUMNS),
    Verb("show", "one", lambda client, args: client.get(address("sessions", args.session)), one("session", "id")),
    Verb("add", "declare a session; answered once its trees are in force", _add, _of_new),
    Verb("join", "one more participant", _join, _of_join),
    Verb("leave", "one participant less", _leave, _of_leave),
    Verb("remove", "end a session", _remove, _of_removal),
)
