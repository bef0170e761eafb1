"""``hyroads topology``, ``flows``, ``clients``, ``events``, ``plugins``: a running controller's network, over REST."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from typing import Any

from hyroads.controller.core.document import load_document
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.network import Policy, Traffic
from hyroads.controller.core.private_split import PRIVATE_KEYS
from hyroads.controller.files.text import read_text
from hyroads.rest.client import Client, Document, Event, address

from .main import Command, argument
from .remote import (
    NO_WAIT,
    Cell,
    Verb,
    VerbCommand,
    add_connection,
    changes,
    columns,
    connect,
    does,
    given,
    lists,
    named,
    pair,
    path,
    shows,
    words,
)


def _links(client: Client, args: argparse.Namespace) -> Any:
    return client.topology() if args.json and args.verb is None else list(client.listed("/links", "links"))


def _paths(client: Client, args: argparse.Namespace) -> Any:
    found = client.paths(args.source, args.target)
    if args.json:
        return found
    arms = [("single", [found["single_path"]]), ("multipath", found["multipath"]["paths"])]
    return [{"what": what, **each} for what, paths in arms for each in paths]


def _neighbours(client: Client, _: argparse.Namespace) -> Any:
    return [
        {"node": radio["node"], "technology": interface["technology"], "neighbour": neighbour}
        for radio in client.get("/measurements")["radios"]
        for interface in radio["interfaces"]
        for neighbour in interface["neighbours"]
    ]


def _of_neighbour(member: str) -> Cell:
    return lambda row: row["neighbour"][member]


def _place_of(interface: Document | None) -> str | None:
    return None if interface is None else f"{interface['node']}/{interface['technology']}"


def _device_links(device: Document) -> list[str]:
    return [f"{one['capacity_mbps']:g} Mb/s, {one['busy']:.0%} busy" for one in device["links"]]


def _state_of(member: str, of: str) -> Cell:
    """``up`` or ``gone`` of a part of a node; nothing where the node has no such part."""
    return lambda node: node[member] and ("up" if node[member][of] else "gone")


TOPOLOGY = VerbCommand(
    "Show the network of a running controller: links (without a verb), nodes, domains, paths, health.",
    replace(
        lists(
            "all links with their state",
            "links",
            "link=id | from | to | technology | state | Mb/s=capacity_mbps | planned=planned_mbps | airtime | external",
            {"state": lambda link: "up" if link["up"] else link["reason"]},
            name="links",
        ),
        do=_links,
    ),
    lists(
        "all nodes",
        "nodes",
        "node=id | role | switch | agent | MAC | IP",
        {
            "switch": _state_of("switch", "connected"),
            "agent": _state_of("agent", "up"),
            "MAC": lambda node: node["host"]["mac"],
            "IP": lambda node: node["host"]["ip"],
        },
        name="nodes",
    ),
    lists(
        "links that can't transmit at the same time",
        "interference-domains",
        "domain of=id | technologies | links | airtime | external",
        name="domains",
    ),
    Verb(
        "paths",
        "best path and multipath between two nodes of the idle network",
        _paths,
        (argument("source", metavar="FROM"), argument("target", metavar="TO")),
        columns(" =what | links | Mb/s=rate_mbps"),
    ),
    Verb(
        "neighbours",
        "stations that the interfaces of access points hear, of this network or unknown",
        _neighbours,
        columns=columns(
            " | ".join(("heard at", "MAC", "node", "may be", "to it, Mb/s", "from it, Mb/s", "signal, dBm")),
            {
                "heard at": _place_of,
                "MAC": _of_neighbour("mac"),
                "node": _of_neighbour("node"),
                "may be": lambda row: _place_of(row["neighbour"]["guess"]),
                "to it, Mb/s": _of_neighbour("tx_mbps"),
                "from it, Mb/s": _of_neighbour("rx_mbps"),
                "signal, dBm": _of_neighbour("signal_dbm"),
            },
        ),
    ),
    Verb(
        "devices",
        "devices of other owners that speak IEEE 1905.1, as they describe themselves",
        lambda client, _: client.get("/measurements")["devices"],
        columns=columns(
            "AL address=al | heard at | links",
            {
                "heard at": lambda device: [f"{one['node']}/{one['interface']}" for one in device["heard_by"]],
                "links": _device_links,
            },
        ),
    ),
    does(
        "measure",
        "what is measured of a link",
        lambda client, args: client.get(address("measurements", "links", args.link)),
        named("link", "id"),
    ),
    does("netjson", "a NetJSON NetworkGraph", lambda client, _: client.get("/topology", format="netjson")),
    does("health", "what is connected, in sync, wrong", lambda client, _: client.health()),
)


def _add_flow(client: Client, args: argparse.Namespace) -> Any:
    more = given(args, "policy", "weight", "traffic", "slice", "group", *PRIVATE_KEYS)
    if args.match:
        more["match"] = dict(args.match)
    if args.path:
        more["paths"] = args.path
    return client.declare_flow(args.id, args.source, args.target, wait=not args.no_wait, **more)


FLOWS = VerbCommand(
    "List, declare and remove flows of a running controller.",
    lists(
        "all flows",
        "flows",
        "flow=id | owner | from | to | policy | state | Mb/s=rate_mbps | paths | why=reason | pending",
        {"paths": lambda flow: ["+".join(each["links"]) for each in flow["multipath"]]},
    ),
    shows("one flow", "flows", "flow"),
    does(
        "add",
        "declare a flow; answered once it is in force",
        _add_flow,
        named("id"),
        named("source", "node id", metavar="FROM"),
        named("target", "node id", metavar="TO"),
        argument("--policy", choices=[policy.value for policy in Policy]),
        argument("--traffic", choices=[traffic.value for traffic in Traffic]),
        argument("--slice", metavar="SLICE", help="whose shares of airtime it keeps (default production)"),
        argument("--group", metavar="GROUP", help="flows of one group are routed apart"),
        argument("--weight", type=float),
        argument("--match", type=pair, action="append", metavar="FIELD=VALUE", help="header field; may repeat"),
        argument("--path", type=path, action="append", metavar="LINK,LINK...", help="fixed path; may repeat"),
        argument("--n-cons", type=float, metavar="N", help="private: mean run of packets on one network (default 20)"),
        argument("--cost-share", type=float, metavar="P", help="private: mean share of the first path, up to 0.5"),
        argument("--n-chp", type=float, metavar="N", help="private: mean packets between draws of the share"),
        argument(
            "--padding", action=argparse.BooleanOptionalAction, help="private: dummies in gaps (with --n-chp: on)"
        ),
        NO_WAIT,
    ),
    changes("remove", "remove a flow", "DELETE", "flows/flow"),
)


def _prefer_client(client: Client, args: argparse.Namespace) -> Any:
    wishes = given(args, "manager")
    if args.steering is not None:
        wishes["steering"] = args.steering == "on"
    return client.change("PATCH", address("clients", args.client), wishes)


def _places_of_client(client: Document) -> list[str]:
    return [f"{one['node'] or 'nowhere'}/{one['technology'] or '?'}" for one in client["attachments"]]


def _lists_of_client(name: str, help: str, titles: str) -> Verb:
    def do(client: Client, args: argparse.Namespace) -> Any:
        return list(client.listed(address("clients", args.client, name), name))

    return Verb(name, help, do, [named("client")], columns(titles))


def _interfaces_of_client(client: Client, args: argparse.Namespace) -> Any:
    return client.get(address("clients", args.client, "interfaces"))["interfaces"]


def _policy_of_client(client: Client, args: argparse.Namespace) -> Any:
    where = address("clients", args.client, "policy")
    if args.file is None:
        return client.get(where)
    policy = load_document(read_text(args.file), args.file)
    if not isinstance(policy, dict):
        raise ConfigError(args.file, "", "expected a policy: a mapping")
    return client.change("PUT", where, policy, wait=not args.no_wait)


def _choose_mode(client: Client, args: argparse.Namespace) -> Any:
    body = {"mode": args.mode, **given(args, "flow", "connection")}
    return client.change("PATCH", address("clients", args.client, "policy"), body, wait=not args.no_wait)


def _migrate_flow(client: Client, args: argparse.Namespace) -> Any:
    body = {"flow": args.flow, "interface": args.interface}
    return client.change("POST", address("clients", args.client, "migrations"), body, wait=not args.no_wait)


CLIENTS = VerbCommand(
    "List clients of a running controller with their attachments; set how they are handed over; forget them. Of "
    "multi-homed clients that report: their interfaces, connections, policies and migrations.",
    lists(
        "all clients",
        "clients",
        "client=id | declared | places | known by | users | addresses | manager | steering",
        {
            "places": _places_of_client,
            "known by": lambda client: sorted({one["known_by"] for one in client["attachments"]}),
            "users": lambda client: sorted({one["user"] for one in client["attachments"] if one.get("user")}),
            "addresses": lambda client: [ip["ip"] for one in client["attachments"] for ip in one["addresses"]],
        },
    ),
    shows("one client", "clients", "client"),
    does(
        "prefer",
        "set its handover manager, and whether policies may move it",
        _prefer_client,
        named("client"),
        argument("--manager", help="hard, hoolock, bicast, vertical, or a plugin's"),
        argument("--steering", choices=("on", "off"), help="whether policies may move it"),
    ),
    changes("forget", "forget a client that is not declared", "DELETE", "clients/client"),
    Verb(
        "interfaces",
        "interfaces of a multi-homed client",
        _interfaces_of_client,
        [named("client")],
        columns(
            "interface=name | up | at | metered | sent, Mb/s=sent_mbps | received, Mb/s=received_mbps | "
            "waiting, packets=queue_packets | month, GiB=month_gib | problem"
        ),
    ),
    _lists_of_client(
        "connections",
        "flows and MPTCP connections of a multi-homed client",
        "id | kind | name | interface | Mb/s=rate_mbps | Mb/s per weight=level_mbps | migrations | subflows",
    ),
    _lists_of_client(
        "migrations",
        "the latest migrations of a multi-homed client's flows",
        "id | flow | name | from | to=interface | took, s=took_s | asked",
    ),
    does(
        "policy",
        "show the policy of a multi-homed client, or replace it by a file's",
        _policy_of_client,
        named("client"),
        named("file", "policy (YAML or JSON); answered once the client uses it", nargs="?"),
        NO_WAIT,
    ),
    does(
        "mode",
        "choose another mode of a multi-homed client",
        _choose_mode,
        named("client"),
        named("mode", "full-speed, cost-efficient or high-robustness"),
        argument("--flow", metavar="NAME", help="of this flow of its policy alone"),
        argument("--connection", metavar="ID", help="of this MPTCP connection among its connections alone"),
        NO_WAIT,
    ),
    does(
        "migrate",
        "move a flow of a multi-homed client to another interface",
        _migrate_flow,
        named("client"),
        named("flow", "its number among the connections", type=int),
        named("interface"),
        NO_WAIT,
    ),
)
PLUGINS = VerbCommand(
    "List plugins of a running controller; enable and disable them.",
    lists(
        "all plugins",
        "plugins",
        "plugin=name | kind | state | role | faults | last | origin",
        {
            "faults": lambda plugin: plugin["faults"]["total"],
            "last": lambda plugin: (plugin["faults"]["last"] or {}).get("what"),
        },
    ),
    shows("one plugin", "plugins", "plugin", "name"),
    changes("enable", "start it; what it did before is forgiven", "POST", "plugins/plugin/enable", "name", waits=False),
    changes("disable", "end it until it is enabled again", "POST", "plugins/plugin/disable", "name", waits=False),
)


def _run_events(args: argparse.Namespace) -> int:
    with connect(args) as client:
        for event in client.events(*args.kinds, last=args.since, follow=not args.past_only):
            print(_event_json(event) if args.json else _event_line(event), flush=True)
    return 0


EVENTS = Command(
    "Print what happens in the network, as it happens, until Ctrl-C; with --json a line of JSON each.",
    _run_events,
    add_connection,
    argument("kinds", nargs="*", metavar="KIND", help="only these; link means link.up, link.down, ..."),
    argument("--since", type=int, metavar="ID", help="begin after this event"),
    argument("--kept", dest="past_only", action="store_true", help="what the controller has kept, then end"),
)


def _event_json(event: Event) -> str:
    return json.dumps({"id": event.id, "kind": event.kind, **event.document})


def _event_line(event: Event) -> str:
    document = dict(event.document)
    at = time.strftime("%H:%M:%S", time.localtime(document.pop("time_s", time.time())))
    return f"{at} {words(event.kind)}: {words(document)}"
