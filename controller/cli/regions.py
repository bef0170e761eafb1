"""``hyroads regions``: divide a network into regions with a controller each, or judge those that its file declares."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from hyroads.controller.core.errors import HyroadsError, PlanningError
from hyroads.controller.core.network import Role
from hyroads.controller.files.documents import read_file

from .main import Command, argument

if TYPE_CHECKING:
    from hyroads.controller.core.network import Network
    from hyroads.controller.core.regions import Division

SEED = 1


def _run(args: argparse.Namespace) -> int:
    network = read_file(args.file)
    from hyroads.controller.core.regions import judged, proposed

    try:
        if args.most is not None:
            division = proposed(network, args.most, by_metis)
        elif network.regions:
            division = judged(network, network.regions)
        else:
            raise PlanningError("declares no regions: give --most N to propose some")
    except PlanningError as error:
        raise PlanningError(f"{args.file}: {error}") from error
    if args.json:
        print(json.dumps(division.document(), indent=2))
    else:
        _print_table(network, division)
    return 0


def by_metis(edges: Sequence[Mapping[int, int]], sizes: Sequence[int], count: int) -> list[int]:
    """Parts of a weighted graph with little weight between them, by METIS (Karypis and Kumar, SIAM J. Sci. Comput.
    20(1), 1998); the same ones each time.
    """
    if count <= 1:
        return [0] * len(sizes)
    try:
        pymetis = import_module("pymetis")
    except ImportError:
        raise HyroadsError("needs pymetis: pip install 'hyroads[regions]'") from None
    starts = [0]
    for neighbours in edges:
        starts.append(starts[-1] + len(neighbours))
    ends = [other for neighbours in edges for other in neighbours]
    weights = [weight for neighbours in edges for weight in neighbours.values()]
    graph = pymetis.CSRAdjacency(starts, ends)
    found = pymetis.part_graph(
        count, graph, vweights=list(sizes), eweights=weights or None, options=pymetis.Options(seed=SEED)
    )
    return list(found.vertex_part)


def _print_table(network: Network, division: Division) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table("region", "nodes", "gateways", "links out", "shared links", title=network.name or None)
    link_of = {link.id: link for link in network.links}
    for name, nodes in division.regions.items():
        gateways = sum(network.nodes[node].role is Role.GATEWAY for node in nodes)
        out = sum(link_of[link].source in nodes for link in division.cut_links)
        shared = sum(link_of[link].source in nodes for link in division.shared_links)
        table.add_row(name, *map(str, (len(nodes), gateways, out, shared)))
    console.print(table)
    share = len(division.shared_links) / max(1, len(network.links))
    if division.shared_links:
        console.print(
            f"{share:.1%} of all links are in interference domains of several regions: their airtime has to be divided"
        )
    else:
        console.print("no interference domain has links of two regions")


COMMAND = Command(
    "Divide a network into regions with a controller each, or judge those that its file declares. A good border "
    "crosses no interference domain: it is wired, or between channels or buildings. The printed document's "
    "`regions` is the section of the network file.",
    _run,
    argument("file", metavar="NET", help="network file (YAML or JSON)"),
    argument("--most", type=int, metavar="N", help="propose regions of at most N nodes (default: judge the file's)"),
    argument("--json", action="store_true", help="print one JSON document"),
)
