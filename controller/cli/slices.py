"""``hyroads slices``: reads and changes the slices of a running slicer, with verbs like FlowVisor's."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from typing import Any

from hyroads.controller.core.document import load_document
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.netfile_io import read_text

HELP = "List and change the slices of a running slicer (docs/slicing.md, section 9)."

SOCKET = "/run/hyroads/slicer.sock"

Ask = Callable[..., Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    default = os.environ.get("HYROADS_SLICER_SOCKET", SOCKET)
    parser.add_argument("--socket", default=default, metavar="PATH", help="the slicer's control socket (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb, (_, words, arguments) in VERBS.items():
        each = verbs.add_parser(verb, help=words, description=words)
        each.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")
        arguments(each)


def run(args: argparse.Namespace) -> int:
    """Does it; the result is the exit status."""
    from hyroads.slices.server.client import ControlClient

    answer = VERBS[args.verb][0](ControlClient(args.socket).ask, args)
    if args.json:
        print(json.dumps(answer, indent=2))
    else:
        print(_text(answer))
    return 0


# -- verbs ------------------------------------------------------------------------------------------------------------


def _list_slices(ask: Ask, _: argparse.Namespace) -> Any:
    return [
        {
            "name": each["name"],
            "controllers": ", ".join(each["controllers"]) or "-",
            "rules": len(each["flowspace"]),
            "permissions": ", ".join(each["permissions"]),
        }
        for each in ask("GET", "slices")["slices"]
    ]


def _list_slice_info(ask: Ask, args: argparse.Namespace) -> Any:
    return ask("GET", "slices", args.name)


def _list_flowspace(ask: Ask, args: argparse.Namespace) -> Any:
    every = ask("GET", "slices")["slices"]
    return [
        {"slice": each["name"], "rule": number, **rule}
        for each in every
        if args.name in {None, each["name"]}
        for number, rule in enumerate(each["flowspace"])
    ]


def _plain(ask: Ask, name: str) -> dict[str, Any]:
    document = ask("GET", "slices", name)
    del document["switches"]
    return dict(document)


def _add_slice(ask: Ask, args: argparse.Namespace) -> Any:
    if any(each["name"] == args.name for each in ask("GET", "slices")["slices"]):
        raise ConfigError("slices", "name", f"there is a slice {args.name} already (update-slice changes it)")
    return ask("PUT", "slices", args.name, document=_options({}, args))


def _update_slice(ask: Ask, args: argparse.Namespace) -> Any:
    return ask("PUT", "slices", args.name, document=_options(_plain(ask, args.name), args))


def _options(document: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    if args.controller:
        document["controllers"] = args.controller
    if args.permission:
        document["permissions"] = args.permission
    if args.owner_token_sha256:
        document["owner_token_sha256"] = args.owner_token_sha256
    limits = document.setdefault("limits", {})
    for item in args.limit or ():
        name, value = _pair(item)
        limits[name] = value
    return document


def _pair(item: str) -> tuple[str, Any]:
    name, equals, value = item.partition("=")
    if not equals or not name:
        raise ConfigError("arguments", item, "expected NAME=VALUE")
    return name, load_document(value, item)


def _remove_slice(ask: Ask, args: argparse.Namespace) -> Any:
    return ask("DELETE", "slices", args.name)


def _add_flowspace(ask: Ask, args: argparse.Namespace) -> Any:
    document = _plain(ask, args.slice)
    rule: dict[str, Any] = {"priority": args.priority}
    if args.name:
        rule["name"] = args.name
    if args.switch:
        rule["switches"] = args.switch
    if args.port:
        rule["ports"] = [int(port) if port.isdigit() else port for port in args.port]
    if args.match:
        rule["match"] = dict(_pair(item) for item in args.match)
    document["flowspace"].append(rule)
    return ask("PUT", "slices", args.slice, document=document)


def _remove_flowspace(ask: Ask, args: argparse.Namespace) -> Any:
    document = _plain(ask, args.slice)
    rules = document["flowspace"]
    wanted = {str(number) for number, rule in enumerate(rules) if args.rule in {str(number), rule.get("name")}}
    if not wanted:
        raise ConfigError("arguments", args.rule, f"slice {args.slice} has no such rule (list-flowspace shows them)")
    document["flowspace"] = [rule for number, rule in enumerate(rules) if str(number) not in wanted]
    return ask("PUT", "slices", args.slice, document=document)


def _load(ask: Ask, args: argparse.Namespace) -> Any:
    return ask("PUT", "slices", document=load_document(read_text(args.file), args.file))


def _get_config(ask: Ask, _: argparse.Namespace) -> Any:
    return ask("GET", "slices")


def _reload(ask: Ask, _: argparse.Namespace) -> Any:
    return ask("POST", "reload")


def _list_datapaths(ask: Ask, _: argparse.Namespace) -> Any:
    return [{**each, "slices": ", ".join(each["slices"])} for each in ask("GET", "switches")["switches"]]


def _list_datapath_info(ask: Ask, args: argparse.Namespace) -> Any:
    return ask("GET", "switches", args.dpid)


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


def _rule_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("slice", metavar="SLICE")
    parser.add_argument("--name", default="")
    parser.add_argument("--priority", type=int, default=100)
    parser.add_argument("--switch", action="append", metavar="DPID", help="default: all; may be repeated")
    parser.add_argument("--port", action="append", help="number or name; default: all; may be repeated")
    parser.add_argument("match", nargs="*", metavar="FIELD=VALUE", help="as in the file, e.g. 'tcp_dst=[80, 443]'")


def _rule(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("slice", metavar="SLICE")
    parser.add_argument("rule", metavar="RULE", help="its name or number")


def _file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE")


def _dpid(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dpid", metavar="DPID")


VERBS: dict[str, tuple[Callable[[Ask, argparse.Namespace], Any], str, Callable[[argparse.ArgumentParser], None]]] = {
    "list-slices": (_list_slices, "all slices", _none),
    "list-slice-info": (_list_slice_info, "one slice, and what it has on each switch", _name),
    "add-slice": (_add_slice, "a new slice without flowspace", _slice_options),
    "update-slice": (_update_slice, "other controllers, permissions or limits", _slice_options),
    "remove-slice": (_remove_slice, "a slice and all that it has in switches", _name),
    "list-flowspace": (_list_flowspace, "flowspace rules of all slices or one", _maybe_name),
    "add-flowspace": (_add_flowspace, "one more flowspace rule", _rule_options),
    "remove-flowspace": (_remove_flowspace, "a flowspace rule less", _rule),
    "get-config": (_get_config, "all slices as a document", _none),
    "set-config": (_load, "exactly the slices of a file, at once or not at all", _file),
    "reload": (_reload, "read the settings' slices again", _none),
    "list-datapaths": (_list_datapaths, "the switches", _none),
    "list-datapath-info": (_list_datapath_info, "one switch: ports, and what each slice has there", _dpid),
}


# -- text -------------------------------------------------------------------------------------------------------------


def _text(answer: Any) -> str:
    if isinstance(answer, list) and answer and all(isinstance(row, dict) for row in answer):
        return _rows(answer)
    if isinstance(answer, dict) and answer.keys() == {"added", "changed", "removed"}:
        words = [f"{what} {', '.join(names)}" for what, names in answer.items() if names]
        return "; ".join(words) or "nothing changed"
    return json.dumps(answer, indent=2) if answer else "none"


def _rows(rows: list[dict[str, Any]]) -> str:
    heads = list(dict.fromkeys(name for row in rows for name in row))
    cells = [heads, *([_cell(row.get(name, "")) for name in heads] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells)


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
