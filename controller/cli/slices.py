"""``hyroads slices``: reads and changes the slices of a running slicer, with verbs like FlowVisor's."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from typing import Any

from hyroads.controller.core.document import load_document
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.files.documents import read_text
from hyroads.rest.client import UNIX, Client, address

from . import slice_queues
from .remote import connect

HELP = "List and change the slices of a running slicer (docs/reference/slicer.md)."

SOCKET = "/run/hyroads/slicer.sock"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    default = os.environ.get("HYROADS_SLICER_SOCKET", SOCKET)
    parser.add_argument("--socket", default=default, metavar="PATH", help="the slicer's control socket (%(default)s)")
    parser.add_argument("--url", default=os.environ.get("HYROADS_SLICER_URL"), help="of the slicer's REST API instead")
    parser.add_argument("--token-file", metavar="FILE", help="with --url: file (mode 0600) with a bearer token")
    parser.add_argument("--ca", metavar="FILE", help="with --url: certificates that the slicer's is checked by")
    parser.add_argument("--json", action="store_true", help="print JSON")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb, (_, words, arguments) in VERBS.items():
        each = verbs.add_parser(verb, help=words, description=words)
        each.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")
        arguments(each)


def run(args: argparse.Namespace) -> int:
    """Does it; the result is the exit status."""
    with connect(args) if args.url else Client(f"{UNIX}{args.socket}") as client:
        answer = VERBS[args.verb][0](client, args)
    if args.json:
        print(json.dumps(answer, indent=2))
    else:
        print(_text(answer))
    return 0


# -- verbs ------------------------------------------------------------------------------------------------------------


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


def _list_slice_info(client: Client, args: argparse.Namespace) -> Any:
    return client.get(address("slices", args.name))


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
    document = _options(args)
    return _change(client, "PUT", address("slices", args.name), document | _given("parent", args.parent))


def _update_slice(client: Client, args: argparse.Namespace) -> Any:
    return _change(client, "PATCH", address("slices", args.name), _options(args))


def _options(args: argparse.Namespace) -> dict[str, Any]:
    limits = dict(_pair(item) for item in args.limit or ())
    return {
        **_given("controllers", args.controller),
        **_given("permissions", args.permission),
        **_given("owner_token_sha256", args.owner_token_sha256),
        **_given("limits", limits),
    }


def _given(name: str, value: Any) -> dict[str, Any]:
    return {name: value} if value else {}


def _pair(item: str) -> tuple[str, Any]:
    name, equals, value = item.partition("=")
    if not equals or not name:
        raise ConfigError("arguments", item, "expected NAME=VALUE")
    return name, load_document(value, item)


def _remove_slice(client: Client, args: argparse.Namespace) -> Any:
    return _change(client, "DELETE", address("slices", args.name))


def _add_flowspace(client: Client, args: argparse.Namespace) -> Any:
    rule = {
        **({} if args.priority is None else {"priority": args.priority}),
        **_given("name", args.name),
        **_given("switches", [_number(switch) for switch in args.switch or ()]),
        **_given("ports", [int(port) if port.isdigit() else port for port in args.port or ()]),
        **_given("match", dict(_pair(item) for item in args.match or ())),
    }
    return _change(client, "POST", address("slices", args.slice, "flowspace"), rule)


def _remove_flowspace(client: Client, args: argparse.Namespace) -> Any:
    return _change(client, "DELETE", address("slices", args.slice, "flowspace", args.rule))


def _load(client: Client, args: argparse.Namespace) -> Any:
    document = load_document(read_text(args.file), args.file)
    if not isinstance(document, dict):
        raise ConfigError(args.file, "", "expected a mapping with slices")
    return _change(client, "PUT", "/slices", document)


def _get_config(client: Client, _: argparse.Namespace) -> Any:
    return {"slices": _slices(client)}


def _reload(client: Client, _: argparse.Namespace) -> Any:
    return _change(client, "POST", "/reload")


def _list_datapaths(client: Client, _: argparse.Namespace) -> Any:
    return [{**each, "slices": ", ".join(each["slices"])} for each in client.listed("/switches", "switches")]


def _list_datapath_info(client: Client, args: argparse.Namespace) -> Any:
    return client.get(address("switches", f"{_number(args.dpid):#x}"))


def _number(dpid: str) -> int:
    try:
        return int(dpid, 0)
    except ValueError as error:
        raise ConfigError("arguments", dpid[:40], "expected a datapath id like 1 or 0x1f") from error


# -- arguments --------------------------------------------------------------------------------------------------------


def _none(_: argparse.ArgumentParser) -> None:
    pass


def _name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="SLICE")


def _maybe_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="SLICE", nargs="?")


def _slice_options(parser: argparse.ArgumentParser) -> None:
    _name(parser)
    parser.add_argument("--controller", action="append", metavar="tcp:HOST:PORT", help="may be repeated")
    parser.add_argument("--permission", action="append", choices=("read", "write", "delegate"))
    parser.add_argument("--owner-token-sha256", metavar="HASH")
    parser.add_argument("--limit", action="append", metavar="NAME=VALUE", help="as in the file, e.g. flow_entries=500")


def _new_slice_options(parser: argparse.ArgumentParser) -> None:
    _slice_options(parser)
    parser.add_argument("--parent", metavar="SLICE", help="the slice that gives it a part of its flowspace")


def _rule_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("slice", metavar="SLICE")
    parser.add_argument("--name", default="")
    parser.add_argument("--priority", type=int, help="1 to 60000 (100; of a child: just above its parent's)")
    parser.add_argument("--switch", action="append", metavar="DPID", help="default: all; may be repeated")
    parser.add_argument("--port", action="append", help="number or name; default: all; may be repeated")
    words = "as in the file, e.g. 'tcp_dst=[80, 443]'; may be repeated"
    parser.add_argument("--match", action="append", metavar="FIELD=VALUE", help=words)


def _rule(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("slice", metavar="SLICE")
    parser.add_argument("rule", metavar="RULE", help="its name or number")


def _file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE")


def _dpid(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dpid", metavar="DPID")


VERBS: dict[str, tuple[Callable[[Client, argparse.Namespace], Any], str, Callable[[argparse.ArgumentParser], None]]] = {
    "list-slices": (_list_slices, "all slices", _none),
    "list-slice-info": (_list_slice_info, "one slice, and what it has on each switch", _name),
    "add-slice": (_add_slice, "a new slice without flowspace", _new_slice_options),
    "update-slice": (_update_slice, "other controllers, permissions or limits", _slice_options),
    "remove-slice": (_remove_slice, "a slice and all that it has in switches", _name),
    "list-flowspace": (_list_flowspace, "flowspace rules of all slices or one", _maybe_name),
    "add-flowspace": (_add_flowspace, "one more flowspace rule", _rule_options),
    "remove-flowspace": (_remove_flowspace, "a flowspace rule less", _rule),
    "get-config": (_get_config, "all slices as a document", _none),
    "set-config": (_load, "exactly the slices of a file, at once or not at all", _file),
    "reload": (_reload, "read the settings' slices again", _none),
    "list-datapaths": (_list_datapaths, "the switches", _none),
    "queues": (slice_queues.run, slice_queues.WORDS, slice_queues.arguments),
    "list-datapath-info": (_list_datapath_info, "one switch: ports, and what each slice has there", _dpid),
}


# -- text -------------------------------------------------------------------------------------------------------------


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
