"""``hyroads flows``: list, declare and remove flows of a running controller."""

from __future__ import annotations

import argparse
from typing import Any

from hyroads.controller.cli.remote import Column, Verb, add_no_wait, add_verbs, given, one, pair, run_verbs
from hyroads.controller.core.network import Policy, Traffic
from hyroads.rest.client import Client, address

HELP = "List, declare and remove flows of a running controller."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_verbs(parser, VERBS)


def run(args: argparse.Namespace) -> int:
    """Do it; the result is the exit status."""
    return run_verbs(args, VERBS)


def _add(client: Client, args: argparse.Namespace) -> Any:
    more = given(args, "policy", "weight", "traffic", "slice")
    if args.match:
        more["match"] = dict(args.match)
    if args.path:
        more["paths"] = [path.split(",") for path in args.path]
    return client.declare_flow(args.id, args.source, args.target, wait=not args.no_wait, **more)


def _remove(client: Client, args: argparse.Namespace) -> Any:
    return client.change("DELETE", address("flows", args.flow), wait=not args.no_wait)


def _of_new(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID")
    parser.add_argument("source", metavar="FROM", help="node id")
    parser.add_argument("target", metavar="TO", help="node id")
    parser.add_argument("--policy", choices=[policy.value for policy in Policy])
    parser.add_argument("--traffic", choices=[traffic.value for traffic in Traffic])
    parser.add_argument("--slice", metavar="SLICE", help="whose shares of airtime it keeps (default production)")
    parser.add_argument("--weight", type=float)
    parser.add_argument("--match", type=pair, action="append", metavar="FIELD=VALUE", help="header field; may repeat")
    parser.add_argument("--path", action="append", metavar="LINK,LINK...", help="fixed path; may repeat")
    add_no_wait(parser)


def _of_removal(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("flow", metavar="FLOW")
    add_no_wait(parser)


COLUMNS: tuple[Column, ...] = (
    ("flow", lambda flow: flow["id"]),
    ("from", lambda flow: flow["from"]),
    ("to", lambda flow: flow["to"]),
    ("policy", lambda flow: flow["policy"]),
    ("state", lambda flow: flow["state"]),
    ("Mb/s", lambda flow: flow.get("rate_mbps")),
    ("paths", lambda flow: ["+".join(path["links"]) for path in flow["multipath"]]),
    ("why", lambda flow: flow["reason"]),
    ("pending", lambda flow: flow["pending"]),
)
VERBS = (
    Verb("list", "all flows", lambda client, _: list(client.flows()), columns=COLUMNS),
    Verb("show", "one flow", lambda client, args: client.flow(args.flow), one("flow", "id")),
    Verb("add", "declare a flow; answered once it is in force", _add, _of_new),
    Verb("remove", "remove a flow", _remove, _of_removal),
)
