"""``hyroads place``: which neighbour each radio of a client should attach to."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from hyroads.controller.core.errors import NoRouteError, PlanningError
from hyroads.controller.core.network import ClientMode
from hyroads.controller.files.documents import read_file

from .main import Command, argument

if TYPE_CHECKING:
    from hyroads.controller.core.network import Network
    from hyroads.controller.core.placement import Placement

MODES = tuple(mode.value for mode in ClientMode)


def _run(args: argparse.Namespace) -> int:
    network = read_file(args.file)
    from hyroads.controller.core.placement import place_radios

    margin = args.margin if args.margin is not None else network.margin or 0.0
    try:
        placement = place_radios(network, args.client, args.peer, ClientMode(args.mode), margin=margin)
    except NoRouteError as error:
        raise NoRouteError(f"{args.file}: {error}") from error
    except PlanningError as error:
        raise PlanningError(f"{args.file}: {error}") from error
    if args.json:
        print(json.dumps(placement.document(), indent=2))
    else:
        _print_table(network, placement, f"{args.peer} -> {args.client}, {args.mode}")
    return 0


def _print_table(network: Network, placement: Placement, title: str) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table("radio", "neighbour", "role", "metered", title=title, title_justify="left")
    for technology, role in placement.roles.items():
        metered = "yes" if technology in network.metered else "no"
        table.add_row(technology, placement.attachments.get(technology, "-"), role.value, metered)
    console.print(table)
    copies = "every copy" if "copy" in placement.roles.values() else "all active radios together"
    console.print(f"{placement.total_mbps:.3f} Mb/s, {copies}")


COMMAND = Command(
    "Place the radios of a client (one a technology, at most 4): which neighbour each attaches to, and what it is "
    "used for, so that a flow from the peer to the client gets the most. Rates are Mb/s at L2 payload, over all paths "
    "at once; plain clients (role client, no agent) forward nothing.",
    _run,
    argument("file", metavar="NET", help="network file (YAML or JSON)"),
    argument("--client", metavar="C", required=True, help="client whose radios are placed"),
    argument("--peer", metavar="S", required=True, help="node where the flow enters"),
    argument(
        "--mode",
        choices=MODES,
        default=MODES[0],
        help="full-speed: greatest total; cost-efficient: metered technologies are backup while others carry anything; "
        "high-robustness: copies on all radios, over the most different neighbours (default: %(default)s)",
    ),
    argument("--margin", type=float, metavar="D", help="share of airtime to keep free (default: the file's, else 0)"),
    argument("--json", action="store_true", help="print one JSON document"),
)
