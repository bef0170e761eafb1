"""``hyroads topology``: nodes, links, interference domains, possible paths, health of a running controller."""

from __future__ import annotations

import argparse
from typing import Any

from hyroads.controller.cli.remote import Column, Verb, add_verbs, one, run_verbs
from hyroads.rest.client import Client, address

HELP = "Show the network of a running controller: links (without a verb), nodes, domains, paths, health."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_verbs(parser, VERBS)


def run(args: argparse.Namespace) -> int:
    """Do it; the result is the exit status."""
    return run_verbs(args, VERBS)


def _links(client: Client, args: argparse.Namespace) -> Any:
    return client.topology() if args.json and args.verb is None else list(client.listed("/links", "links"))


def _paths(client: Client, args: argparse.Namespace) -> Any:
    found = client.paths(args.source, args.target)
    if args.json:
        return found
    arms = [("single", [found["single_path"]]), ("multipath", found["multipath"]["paths"])]
    return [{"what": what, **path} for what, paths in arms for path in paths]


def _between(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="FROM")
    parser.add_argument("target", metavar="TO")


_LINK: tuple[Column, ...] = (
    ("link", lambda link: link["id"]),
    ("from", lambda link: link["from"]),
    ("to", lambda link: link["to"]),
    ("technology", lambda link: link["technology"]),
    ("state", lambda link: "up" if link["up"] else link["reason"]),
    ("Mb/s", lambda link: link["capacity_mbps"]),
    ("planned", lambda link: link["planned_mbps"]),
    ("airtime", lambda link: link["airtime"]),
    ("external", lambda link: link["external"]),
)
_NODE: tuple[Column, ...] = (
    ("node", lambda node: node["id"]),
    ("role", lambda node: node["role"]),
    ("switch", lambda node: node["switch"] and ("up" if node["switch"]["connected"] else "gone")),
    ("agent", lambda node: node["agent"] and ("up" if node["agent"]["up"] else "gone")),
    ("MAC", lambda node: node["host"]["mac"]),
    ("IP", lambda node: node["host"]["ip"]),
)
_DOMAIN: tuple[Column, ...] = (
    ("domain of", lambda domain: domain["id"]),
    ("technologies", lambda domain: domain["technologies"]),
    ("links", lambda domain: domain["links"]),
    ("airtime", lambda domain: domain["airtime"]),
    ("external", lambda domain: domain["external"]),
)
_PATH: tuple[Column, ...] = (
    ("", lambda path: path["what"]),
    ("links", lambda path: path["links"]),
    ("Mb/s", lambda path: path["rate_mbps"]),
)
VERBS = (
    Verb("links", "all links with their state", _links, columns=_LINK),
    Verb("nodes", "all nodes", lambda client, _: list(client.listed("/nodes", "nodes")), columns=_NODE),
    Verb(
        "domains",
        "links that can't transmit at the same time",
        lambda client, _: list(client.listed("/interference-domains", "interference_domains")),
        columns=_DOMAIN,
    ),
    Verb("paths", "best path and multipath between two nodes of the idle network", _paths, _between, _PATH),
    Verb(
        "measure",
        "what is measured of a link",
        lambda client, args: client.get(address("measurements", "links", args.link)),
        one("link", "id"),
    ),
    Verb("netjson", "a NetJSON NetworkGraph", lambda client, _: client.get("/topology", format="netjson")),
    Verb("health", "what is connected, in sync, wrong", lambda client, _: client.health()),
)
