"""``hyroads ha``: controllers that stand by for each other (docs/how-to/lose-a-machine.md)."""

from __future__ import annotations

import argparse
import json
import os
import warnings
from typing import Any

from hyroads.controller.core.errors import ConfigError
from hyroads.controller.files.text import read_text
from hyroads.rest.client import Client, Document

from .main import argument
from .remote import Verb, VerbCommand, columns, does, named, print_table

NO_LEADER = 1
IMPORT = "import"


def _status(client: Client, _: argparse.Namespace) -> Document:
    return client.get("/ha")


def _hand_over(client: Client, args: argparse.Namespace) -> Any:
    return client.request("POST", "/ha/handover", {"to": args.to}).document


def _drain(client: Client, args: argparse.Namespace) -> Any:
    """Only the one that is meant: no other may answer for it."""
    document = client.get("/ha")
    name = args.member or document["name"]
    if args.member is None and not client.is_one:
        raise ConfigError("MEMBER", "", "expected with several addresses: which one is meant")
    rest = {one["name"]: one["rest"] for one in document["members"]}
    if name not in rest:
        raise ConfigError("MEMBER", "", f"no member {name[:40]!a}; there are: {', '.join(sorted(rest))}")
    one = client if args.member is None else client.only(rest[name])
    with one:
        return one.request("POST", "/ha/drain", {"drain": not args.undo}).document


def _finish_upgrade(client: Client, _: argparse.Namespace) -> Any:
    return client.request("POST", "/ha/finish-upgrade").document


def _import(args: argparse.Namespace) -> int:
    """A state file into an etcd that has nothing yet; without a controller, which would have to lead for it."""
    text = read_text(args.file)
    from hyroads.controller.files.state import parse
    from hyroads.controller.runtime.files import read_files
    from hyroads.controller.runtime.persistence import FORMAT

    # Only read: a broken one is left where it is.
    parsed = parse(text, args.file, FORMAT)
    if parsed.document is None or parsed.problem is not None:
        raise ConfigError(args.file, "", parsed.problem or "there is nothing in it")
    given = {"HYROADS_CONFIG": args.config} if args.config is not None else {}
    files = read_files({**os.environ, **given})
    ha = files.settings.ha
    if ha is None:
        raise ConfigError(args.config or "settings", "ha", "expected: where is its etcd?")
    with warnings.catch_warnings():
        # The library of etcd tries whether eventlet is there, and that advises every program against itself.
        warnings.filterwarnings("ignore", r"\s*Eventlet is deprecated")
        from hyroads.controller.ha.offline import import_state

    region = files.settings.region
    prefix = ha.prefix(files.network, files.settings.network, region.name if region is not None else None)
    count = import_state(parsed.document, ha, prefix, replace=args.replace)
    if args.json:
        print(json.dumps({"file": args.file, "prefix": prefix, "objects": count}))
    else:
        print(f"{args.file}: {count} objects are in etcd now, below {prefix}")
    return 0


_MEMBERS = columns(
    "member=name | role | REST=rest | peers=peer | schema", {"heard, s ago": lambda member: member["seen_s"]}
)


def _etcd(found: Document) -> str:
    if found["reachable"]:
        return "answers"
    return f"no answer for {found['failing_since_s'] or 0:.0f} s: new flows and other changes are refused"


class HaCommand(VerbCommand):
    """All its verbs but ``import`` answer with who leads and who stands by; exit status 1 if nobody leads."""

    def _run(self, args: argparse.Namespace) -> int:
        return _import(args) if args.verb == IMPORT else super()._run(args)

    def show(self, answer: Any, verb: Verb, *, as_json: bool) -> int:
        """Print the whole as a few lines, and a table of the members."""
        leader = answer["leader"]
        if as_json:
            print(json.dumps(answer, indent=2))
        else:
            rows = {
                "asked": f"{answer['name']}, {answer['role']}",
                "leader": f"{leader['name']}, {leader['rest']}" if leader else "nobody",
                "epoch": f"{answer['epoch']}",
                "etcd": _etcd(answer["etcd"]),
                "schema": f"{answer['schema']}",
            }
            print_table(["", ""], rows.items(), header=False)
            members = ([cell(one) for cell in _MEMBERS.values()] for one in answer["members"])
            print_table(list(_MEMBERS), members)
        return 0 if leader else NO_LEADER


COMMAND = HaCommand(
    "Show and change which of several controllers leads. Exit status 1: nobody leads.",
    does("status", "who leads, who stands by, and whether etcd answers", _status),
    does(
        "handover",
        "another one leads from now on; answered once it does",
        _hand_over,
        argument("--to", metavar="NAME", help="which one (default: one that is ready)"),
    ),
    does(
        "drain",
        "a member does not lead any more until --undo, for example while its machine is upgraded",
        _drain,
        named("member", "name (default: the one at --url)", nargs="?"),
        argument("--undo", action="store_true", help="it may lead again"),
    ),
    does(
        IMPORT,
        "take what a controller without standby has saved over into etcd, before the first of several is started",
        _status,
        named("file", "its state file"),
        argument("--config", metavar="SETTINGS", help="of one of the several (default: as hyroads controller)"),
        argument("--replace", action="store_true", help="also where etcd has something already"),
    ),
    does(
        "finish-upgrade",
        "all members run the new version: state is written in its form, which the old one can't read",
        _finish_upgrade,
    ),
)
