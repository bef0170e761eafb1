"""``hyroads topology``, ``flows``, ``clients``, ``events``, ``plugins``: a running controller's network, over REST."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from hyroads.controller.core.network import Policy, Traffic
from hyroads.rest.client import Client, Event, address

from .remote import Column, Verb, VerbCommand, add_connection, add_no_wait, connect, given, one, pair, words


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


_LINK_COLUMNS: tuple[Column, ...] = (
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
_NODE_COLUMNS: tuple[Column, ...] = (
    ("node", lambda node: node["id"]),
    ("role", lambda node: node["role"]),
    ("switch", lambda node: node["switch"] and ("up" if node["switch"]["connected"] else "gone")),
    ("agent", lambda node: node["agent"] and ("up" if node["agent"]["up"] else "gone")),
    ("MAC", lambda node: node["host"]["mac"]),
    ("IP", lambda node: node["host"]["ip"]),
)
_DOMAIN_COLUMNS: tuple[Column, ...] = (
    ("domain of", lambda domain: domain["id"]),
    ("technologies", lambda domain: domain["technologies"]),
    ("links", lambda domain: domain["links"]),
    ("airtime", lambda domain: domain["airtime"]),
    ("external", lambda domain: domain["external"]),
)
_PATH_COLUMNS: tuple[Column, ...] = (
    ("", lambda path: path["what"]),
    ("links", lambda path: path["links"]),
    ("Mb/s", lambda path: path["rate_mbps"]),
)
TOPOLOGY = VerbCommand(
    "Show the network of a running controller: links (without a verb), nodes, domains, paths, health.",
    (
        Verb("links", "all links with their state", _links, columns=_LINK_COLUMNS),
        Verb("nodes", "all nodes", lambda client, _: list(client.listed("/nodes", "nodes")), columns=_NODE_COLUMNS),
        Verb(
            "domains",
            "links that can't transmit at the same time",
            lambda client, _: list(client.listed("/interference-domains", "interference_domains")),
            columns=_DOMAIN_COLUMNS,
        ),
        Verb(
            "paths",
            "best path and multipath between two nodes of the idle network",
            _paths,
            _between,
            _PATH_COLUMNS,
        ),
        Verb(
            "measure",
            "what is measured of a link",
            lambda client, args: client.get(address("measurements", "links", args.link)),
            one("link", "id"),
        ),
        Verb("netjson", "a NetJSON NetworkGraph", lambda client, _: client.get("/topology", format="netjson")),
        Verb("health", "what is connected, in sync, wrong", lambda client, _: client.health()),
    ),
)


def _add_flow(client: Client, args: argparse.Namespace) -> Any:
    more = given(args, "policy", "weight", "traffic", "slice")
    if args.match:
        more["match"] = dict(args.match)
    if args.path:
        more["paths"] = [path.split(",") for path in args.path]
    return client.declare_flow(args.id, args.source, args.target, wait=not args.no_wait, **more)


def _remove_flow(client: Client, args: argparse.Namespace) -> Any:
    return client.change("DELETE", address("flows", args.flow), wait=not args.no_wait)


def _arguments_of_new_flow(parser: argparse.ArgumentParser) -> None:
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


def _arguments_of_removal_flow(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("flow", metavar="FLOW")
    add_no_wait(parser)


_FLOW_COLUMNS: tuple[Column, ...] = (
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
FLOWS = VerbCommand(
    "List, declare and remove flows of a running controller.",
    (
        Verb("list", "all flows", lambda client, _: list(client.flows()), columns=_FLOW_COLUMNS),
        Verb("show", "one flow", lambda client, args: client.flow(args.flow), one("flow", "id")),
        Verb("add", "declare a flow; answered once it is in force", _add_flow, _arguments_of_new_flow),
        Verb("remove", "remove a flow", _remove_flow, _arguments_of_removal_flow),
    ),
)


def _prefer_client(client: Client, args: argparse.Namespace) -> Any:
    wishes = given(args, "manager")
    if args.steering is not None:
        wishes["steering"] = args.steering == "on"
    return client.change("PATCH", address("clients", args.client), wishes)


def _forget_client(client: Client, args: argparse.Namespace) -> Any:
    return client.change("DELETE", address("clients", args.client), wait=not args.no_wait)


def _arguments_of_wishes_client(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("client", metavar="CLIENT")
    parser.add_argument("--manager", help="hard, hoolock, bicast, vertical, or a plugin's")
    parser.add_argument("--steering", choices=("on", "off"), help="whether policies may move it")


def _arguments_of_removal_client(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("client", metavar="CLIENT")
    add_no_wait(parser)


def _places_of_client(client: dict[str, Any]) -> list[str]:
    return [f"{one['node'] or 'nowhere'}/{one['technology'] or '?'}" for one in client["attachments"]]


_CLIENT_COLUMNS: tuple[Column, ...] = (
    ("client", lambda client: client["id"]),
    ("declared", lambda client: client["declared"]),
    ("places", _places_of_client),
    ("known by", lambda client: sorted({one["known_by"] for one in client["attachments"]})),
    ("addresses", lambda client: [ip["ip"] for one in client["attachments"] for ip in one["addresses"]]),
    ("manager", lambda client: client["manager"]),
    ("steering", lambda client: client["steering"]),
)
CLIENTS = VerbCommand(
    "List clients of a running controller with their attachments; set how they are handed over; forget them.",
    (
        Verb(
            "list", "all clients", lambda client, _: list(client.listed("/clients", "clients")), columns=_CLIENT_COLUMNS
        ),
        Verb(
            "show", "one client", lambda client, args: client.get(address("clients", args.client)), one("client", "id")
        ),
        Verb(
            "prefer",
            "set its handover manager, and whether policies may move it",
            _prefer_client,
            _arguments_of_wishes_client,
        ),
        Verb("forget", "forget a client that is not declared", _forget_client, _arguments_of_removal_client),
    ),
)


_PLUGIN_COLUMNS: tuple[Column, ...] = (
    ("plugin", lambda plugin: plugin["name"]),
    ("kind", lambda plugin: plugin["kind"]),
    ("state", lambda plugin: plugin["state"]),
    ("role", lambda plugin: plugin["role"]),
    ("faults", lambda plugin: plugin["faults"]["total"]),
    ("last", lambda plugin: (plugin["faults"]["last"] or {}).get("what")),
    ("origin", lambda plugin: plugin["origin"]),
)
_PLUGIN_NAME = one("plugin", "name")
PLUGINS = VerbCommand(
    "List plugins of a running controller; enable and disable them.",
    (
        Verb(
            "list", "all plugins", lambda client, _: list(client.listed("/plugins", "plugins")), columns=_PLUGIN_COLUMNS
        ),
        Verb("show", "one plugin", lambda client, args: client.get(address("plugins", args.plugin)), _PLUGIN_NAME),
        Verb(
            "enable",
            "start it; what it did before is forgiven",
            lambda client, args: client.change("POST", address("plugins", args.plugin, "enable")),
            _PLUGIN_NAME,
        ),
        Verb(
            "disable",
            "end it until it is enabled again",
            lambda client, args: client.change("POST", address("plugins", args.plugin, "disable")),
            _PLUGIN_NAME,
        ),
    ),
)


class _Events:
    """The command ``events``."""

    HELP = "Print what happens in the network, as it happens, until Ctrl-C; with --json a line of JSON each."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's arguments."""
        add_connection(parser)
        parser.add_argument("kinds", nargs="*", metavar="KIND", help="only these; link means link.up, link.down, ...")
        parser.add_argument("--since", type=int, metavar="ID", help="begin after this event")
        parser.add_argument(
            "--kept", dest="past_only", action="store_true", help="what the controller has kept, then end"
        )

    def run(self, args: argparse.Namespace) -> int:
        """Do it; the result is the exit status."""
        with connect(args) as client:
            for event in client.events(*args.kinds, last=args.since, follow=not args.past_only):
                print(_event_json(event) if args.json else _event_line(event), flush=True)
        return 0


def _event_json(event: Event) -> str:
    return json.dumps({"id": event.id, "kind": event.kind, **event.document})


def _event_line(event: Event) -> str:
    document = dict(event.document)
    at = time.strftime("%H:%M:%S", time.localtime(document.pop("time_s", time.time())))
    return f"{at} {words(event.kind)}: {words(document)}"


EVENTS = _Events()
