"""``hyroads schema``: the JSON Schema of a kind of file, made from its parser, for editors."""

from __future__ import annotations

import argparse
import json

from hyroads.controller.client import policy as client
from hyroads.controller.core import netfile
from hyroads.controller.core.file_schema import Parse, schema_of
from hyroads.controller.guest import settings as guest
from hyroads.controller.settings import controller as settings
from hyroads.slices.core import slicefile
from hyroads.slices.server import settings as slicer
from hyroads.slices.snmpvisor import config as snmpvisor

from .main import Command, argument

NAME = "document"


def _network(document: object) -> object:
    """The parser of network files; technologies count only if a link is of them."""
    if isinstance(document, dict) and "technologies" in document:
        document = {"links": [{"technology": "x"}], **document}
    return netfile.parse(document, NAME, measured=True)


KINDS: dict[str, tuple[str, Parse]] = {
    "network": ("a network file", _network),
    "settings": ("settings of the controller", lambda document: settings.parse(document, NAME, {})),
    "slicer": ("settings of the slicer", lambda document: slicer.parse_settings(document, NAME)),
    "slices": ("a file of slices", lambda document: slicefile.parse(document, NAME)),
    "client": ("a policy of a multi-homed client", lambda document: client.parse(document, NAME)),
    "guest-network": ("settings of a guest network", lambda document: guest.parse(document, NAME)),
    "snmpvisor": ("settings of SNMPVisor", lambda document: snmpvisor.parse(document, NAME)),
}
"""By the word of the command: what it is, and its parser."""


def _run(args: argparse.Namespace) -> int:
    about, parse = KINDS[args.kind]
    print(json.dumps(schema_of(parse, f"HyRoads: {about}"), indent=2))
    return 0


COMMAND = Command(
    "Print the JSON Schema of a kind of file. Editors complete its keys by it, and mark what is wrong.",
    _run,
    argument("kind", choices=tuple(KINDS), help="; ".join(f"{kind}: {about}" for kind, (about, _) in KINDS.items())),
)
