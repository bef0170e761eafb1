"""``hyroads slices``: reads and changes the slices of a running slicer, with verbs like FlowVisor's."""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from hyroads.controller.core.document import load_document
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.files.text import read_text
from hyroads.rest.client import Client, Document, address
from hyroads.rest.endpoint import UNIX

from . import slice_queues
from .main import Command, add_all, argument
from .remote import Verb, connect, does, named, pair

SOCKET = os.environ.get("HYROADS_SLICER_SOCKET", "/run/hyroads/slicer.sock")


def _verbs(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb in VERBS:
        each = verbs.add_parser(verb.name, help=verb.help, description=verb.help)
        each.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")
        add_all(each, verb.arguments)


def _run(args: argparse.Namespace) -> int:
    verb = next(each for each in VERBS if each.name == args.verb)
    with connect(args) if args.url else Client(f"{UNIX}{args.socket}") as client:
        answer = verb.do(client, args)
    print(json.dumps(answer, indent=2) if args.json else _text(answer))
    return 0


COMMAND = Command(
    "List and change the slices of a running slicer (docs/reference/slicer.md).",
    _run,
    argument("--socket", default=SOCKET, metavar="PATH", help="the slicer's control socket (%(default)s)"),
    argument("--url", default=os.environ.get("HYROADS_SLICER_URL"), help="of the slicer's REST API instead"),
    argument("--token-file", metavar="FILE", help="with --url: file (mode 0600) with a bearer token"),
    argument("--ca", metavar="FILE", help="with --url: certificates that the slicer's is checked by"),
    argument("--json", action="store_true", help="print JSON"),
    _verbs,
)


def _slices(client: Client) -> list[dict[str, Any]]:
    return list(client.listed("/slices", "slices"))


def _list_slices(client: Client, _: argparse.Namespace) -> Any:
    # Of others' slices an owner sees the name alone.
    return [
        {
            "name": each["name"],
            "controllers": ", ".join(each.get("controllers", ())) or "-",
            "rules": len(each["flowspace"]) if "flowspace" in each else "-",
            "permissions": ", ".join(each.get("permissions", ())) or "-",
            "parent": each.get("parent", "-"),
        }
        for each in _slices(client)
    ]


def _list_flowspace(client: Client, args: argparse.Namespace) -> Any:
    path = "/flowspace" if args.name is None else address("slices", args.name, "flowspace")
    return list(client.listed(path, "flowspace"))


def _change(client: Client, method: str, path: str, document: Any = None) -> Any:
    answer = client.request(method, path, document)
    if answer.status == 202:
        # Some switch has not confirmed in time.
        return client.confirmed(answer.document)
    return answer.document


def _add_slice(client: Client, args: argparse.Namespace) -> Any:
    if any(each["name"] == args.name for each in _slices(client)):
        raise ConfigError("slices", "name", f"there is a slice {args.name} already (update-slice changes it)")
    document = _options(args) | ({"parent": args.parent} if args.parent else {})
    return _change(client, "PUT", address("slices", args.name), document)


def _update_slice(client: Client, args: argparse.Namespace) -> Any:
    return _change(client, "PATCH", address("slices", args.name), _options(args))


def _options(args: argparse.Namespace) -> Document:
    given = {
        "controllers": args.controller,
        "permissions": args.permission,
        "owner_token_sha256": args.owner_token_sha256,
        "limits": dict(args.limit or ()),
    }
    return {name: value for name, value in given.items() if value}


def _add_flowspace(client: Client, args: argparse.Namespace) -> Any:
    given = {"name": args.name, "switches": args.switch, "ports": args.port, "match": dict(args.match or ())}
    rule = {name: value for name, value in given.items() if value}
    rule |= {} if args.priority is None else {"priority": args.priority}
    return _change(client, "POST", address("slices", args.slice, "flowspace"), rule)


def _list_opt_ins(client: Client, _: argparse.Namespace) -> Any:
    return [
        {
            "slice": each["slice"],
            "user": each["user"],
            "joined": "yes" if each["joined"] else "no",
            "open": "yes" if each["open"] else "no",
            "packets": _packets(each["match"] or each["takes"]),
        }
        for each in client.listed("/opt-ins", "opt_ins")
    ]


def _packets(matches: list[dict[str, Any]]) -> str:
    """The first match in words, and how many more there are."""
    words = ", ".join(f"{name}={value}" for name, value in matches[0].items()) if matches else ""
    more = f" (and {len(matches) - 1} more)" if len(matches) > 1 else ""
    return f"{words or 'all'}{more}"


def _opt_in(client: Client, args: argparse.Namespace) -> Any:
    document = {"match": dict(args.match)} if args.match else {}
    return _change(client, "PUT", address("opt-ins", args.slice, args.user), document)


def _load(client: Client, args: argparse.Namespace) -> Any:
    document = load_document(read_text(args.file), args.file)
    if not isinstance(document, dict):
        raise ConfigError(args.file, "", "expected a mapping with slices")
    return _change(client, "PUT", "/slices", document)


def _list_datapaths(client: Client, _: argparse.Namespace) -> Any:
    return [{**each, "slices": ", ".join(each["slices"])} for each in client.listed("/switches", "switches")]


def _number(dpid: str) -> int:
    try:
        return int(dpid, 0)
    except ValueError as error:
        raise ConfigError("arguments", dpid[:40], "expected a datapath id like 1 or 0x1f") from error


def _port(port: str) -> int | str:
    return int(port) if port.isdigit() else port


_NAME = named("name", metavar="SLICE")
_SLICE = (
    _NAME,
    argument("--controller", action="append", metavar="tcp:HOST:PORT", help="may be repeated"),
    argument("--permission", action="append", choices=("read", "write", "delegate")),
    argument("--owner-token-sha256", metavar="HASH"),
    argument("--limit", type=pair, action="append", metavar="NAME=VALUE", help="as in the file, e.g. flow_entries=500"),
)
_RULE = (
    named("slice"),
    argument("--name", default=""),
    argument("--priority", type=int, help="1 to 60000 (100; of a child: just above its parent's)"),
    argument("--switch", type=_number, action="append", metavar="DPID", help="default: all; may be repeated"),
    argument("--port", type=_port, action="append", help="number or name; default: all; may be repeated"),
    argument("--match", type=pair, action="append", metavar="FIELD=VALUE",
             help="as in the file, e.g. 'tcp_dst=[80, 443]'; may be repeated"),
)  # fmt: skip
_USER = (named("slice"), argument("--user", default="me", help="default: who has the token"))
VERBS = (
    does("list-slices", "all slices", _list_slices),
    does(
        "list-slice-info",
        "one slice, and what it has on each switch",
        lambda client, args: client.get(address("slices", args.name)),
        _NAME,
    ),
    does(
        "add-slice",
        "a new slice without flowspace",
        _add_slice,
        *_SLICE,
        argument("--parent", metavar="SLICE", help="the slice that gives it a part of its flowspace"),
    ),
    does("update-slice", "other controllers, permissions or limits", _update_slice, *_SLICE),
    does(
        "remove-slice",
        "a slice and all that it has in switches",
        lambda client, args: _change(client, "DELETE", address("slices", args.name)),
        _NAME,
    ),
    does(
        "list-flowspace",
        "flowspace rules of all slices or one",
        _list_flowspace,
        named("name", metavar="SLICE", nargs="?"),
    ),
    does("add-flowspace", "one more flowspace rule", _add_flowspace, *_RULE),
    does(
        "remove-flowspace",
        "a flowspace rule less",
        lambda client, args: _change(client, "DELETE", address("slices", args.slice, "flowspace", args.rule)),
        named("slice"),
        named("rule", "its name or number"),
    ),
    does("list-opt-ins", "which users have joined which slices; of a user: the slices to join", _list_opt_ins),
    does(
        "opt-in",
        "add a user's own traffic to a slice that is open for users",
        _opt_in,
        *_USER,
        argument(
            "--match",
            type=pair,
            action="append",
            metavar="FIELD=VALUE",
            help="only this part of it, as in the file; may be repeated",
        ),
    ),
    does(
        "opt-out",
        "take a user's traffic back from a slice",
        lambda client, args: _change(client, "DELETE", address("opt-ins", args.slice, args.user)),
        *_USER,
    ),
    does("get-config", "all slices as a document", lambda client, _: {"slices": _slices(client)}),
    does("set-config", "exactly the slices of a file, at once or not at all", _load, named("file")),
    does("reload", "read the settings' slices again", lambda client, _: _change(client, "POST", "/reload")),
    does("list-datapaths", "the switches", _list_datapaths),
    Verb("queues", slice_queues.WORDS, slice_queues.run, slice_queues.ARGUMENTS),
    does(
        "list-datapath-info",
        "one switch: ports, and what each slice has there",
        lambda client, args: client.get(address("switches", f"{args.dpid:#x}")),
        named("dpid", type=_number),
    ),
)


def _text(answer: Any) -> str:
    if isinstance(answer, list) and answer and all(isinstance(row, dict) for row in answer):
        return _rows(answer)
    if isinstance(answer, list) and answer:
        return "\n".join(map(str, answer))
    if isinstance(answer, dict) and answer.keys() == {"added", "changed", "removed"}:
        words = [f"{what} {', '.join(names)}" for what, names in answer.items() if names]
        return "; ".join(words) or "nothing changed"
    if isinstance(answer, dict) and {"what", "state"} <= answer.keys():
        return f"{answer['what']}: {answer['state']}"
    return json.dumps(answer, indent=2) if answer else "none"


def _rows(rows: list[dict[str, Any]]) -> str:
    heads = list(dict.fromkeys(name for row in rows for name in row))
    cells = [heads, *([_cell(row.get(name, "")) for name in heads] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells)


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
