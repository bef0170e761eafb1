"""``hyroads reservation``: least rates for flows and sessions of a running controller."""

from __future__ import annotations

import argparse
from typing import Any

from hyroads.controller.cli.remote import Column, Verb, add_verbs, one, run_verbs
from hyroads.rest.client import Client, address

HELP = "Reserve least rates for flows and sessions; admitted only if the airtime exists."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_verbs(parser, VERBS)


def run(args: argparse.Namespace) -> int:
    """Do it; the result is the exit status."""
    return run_verbs(args, VERBS)


def _add(client: Client, args: argparse.Namespace) -> Any:
    what = {"flow": args.flow} if args.flow is not None else {"session": args.session}
    return client.change("POST", "/reservations", {"id": args.id, "rate_mbps": args.rate_mbps, **what})


def _change(client: Client, args: argparse.Namespace) -> Any:
    return client.change("PATCH", address("reservations", args.reservation), {"rate_mbps": args.rate_mbps})


def _of_new(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID")
    parser.add_argument("rate_mbps", type=float, metavar="MBPS")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--flow", metavar="ID")
    what.add_argument("--session", metavar="ID")


def _of_change(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("reservation", metavar="RESERVATION")
    parser.add_argument("rate_mbps", type=float, metavar="MBPS")


_COLUMNS: tuple[Column, ...] = (
    ("reservation", lambda one: one["id"]),
    ("for", lambda one: f"flow {one['flow']}" if one["flow"] is not None else f"session {one['session']}"),
    ("Mb/s", lambda one: one["rate_mbps"]),
    ("kept", lambda one: one["given_mbps"]),
    ("state", lambda one: one["state"]),
)
VERBS = (
    Verb("list", "all", lambda client, _: list(client.listed("/reservations", "reservations")), columns=_COLUMNS),
    Verb("show", "one", lambda c, args: c.get(address("reservations", args.reservation)), one("reservation", "id")),
    Verb("add", "reserve a rate", _add, _of_new),
    Verb("change", "reserve more or less", _change, _of_change),
    Verb(
        "release",
        "give it up",
        lambda client, args: client.change("DELETE", address("reservations", args.reservation)),
        one("reservation", "id"),
    ),
)
