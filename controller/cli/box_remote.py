"""``hyroads box list``, ``adopt``, ``forget``, ``pin``, ``code``: boxes as a running controller sees them."""

from __future__ import annotations

import argparse
from typing import Any

from hyroads.rest.client import Client, address

from .main import Command, argument
from .remote import NO_WAIT, Document, Verb, add_connection, connect, does, lists, named, show

CONFIRM_S = 120.0
"""How long a slow box may take to set itself up."""
FINGERPRINT_SHOWN = 16
"""How many digits of the SHA-256 of its key a box shows."""


class RemoteVerb(Command):
    """A verb over REST as a command of its own."""

    def __init__(self, verb: Verb) -> None:
        super().__init__(verb.help, self._run, *verb.arguments)
        self._verb = verb

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare how the controller is reached, and the verb's own arguments."""
        add_connection(parser)
        super().add_arguments(parser)

    def _run(self, args: argparse.Namespace) -> int:
        with connect(args, confirm_s=CONFIRM_S) as client:
            answer = self._verb.do(client, args)
        show(answer, self._verb.columns or {}, as_json=args.json)
        return 0


def _adopt(client: Client, args: argparse.Namespace) -> Any:
    ports = dict(args.port or ())
    body = {"as": args.node, **({"ports": ports} if ports else {})}
    return client.change("POST", address("boxes", args.box, "adopt"), body, wait=not args.no_wait)


def _forget(client: Client, args: argparse.Namespace) -> Any:
    return client.change("DELETE", address("boxes", args.box))


def _port(text: str) -> tuple[str, str]:
    port, equals, interface = text.partition("=")
    if not (port and equals and interface):
        raise argparse.ArgumentTypeError(f"{text!r}: expected PORT=INTERFACE")
    return port, interface


def _interfaces(box: Document) -> list[str]:
    return [f"{each['name']}{'*' if each.get('uplink') else ''}" for each in box["interfaces"]]


_LISTS = lists(
    "boxes that wait, are adopted, or have left; * marks the interface to the controller",
    "boxes",
    "box=id | state | node | system | interfaces | key | code | seen, s=seen_ago_s | pending | problem",
    {
        "interfaces": _interfaces,
        "key": lambda box: box["key"][:FINGERPRINT_SHOWN],
        "code": lambda box: box["verified"],
    },
)
LIST = RemoteVerb(_LISTS)
ADOPT = RemoteVerb(
    Verb(
        "adopt",
        "make a pending box a node; answered once its switch and agent are connected",
        _adopt,
        (
            named("box", "id"),
            argument("--as", dest="node", required=True, metavar="NODE", help="node of the network file"),
            argument(
                "--port",
                type=_port,
                action="append",
                metavar="PORT=INTERFACE",
                help="technology, or host for the access port, and the box's interface; may repeat",
            ),
            NO_WAIT,
        ),
    )
)
FORGET = RemoteVerb(Verb("forget", "remove a box: its token is worth nothing any more", _forget, (named("box", "id"),)))
PIN = RemoteVerb(
    does("pin", "the fingerprint that boxes show of this controller", lambda client, _: client.get("/box-codes"))
)
CODE = RemoteVerb(
    does(
        "code",
        "make a join code, good for one box within an hour",
        lambda client, _: client.change("POST", "/box-codes"),
    )
)
