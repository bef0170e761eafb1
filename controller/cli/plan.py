"""``hyroads plan``: single path, best multipath and arms between two nodes of a network file."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hyroads.controller.core.errors import NoRouteError, PlanningError
from hyroads.controller.files.documents import read_file

from .main import Command, argument

if TYPE_CHECKING:
    from hyroads.controller.core.interface_graph import Path
    from hyroads.controller.core.network import Network
    from hyroads.controller.core.planner import Plan

# As in core.planner, which is imported once there is a network: a wrong file name answers without it.
DEFAULT_SHORTEST, DEFAULT_ARMS = 5, 5


def _run(args: argparse.Namespace) -> int:
    network = read_file(args.file)
    from hyroads.controller.core.checking import describe, suggestion
    from hyroads.controller.core.planner import Planner, plan_document

    margin = args.margin if args.margin is not None else network.margin or 0.0
    for option, node in (("--from", args.source), ("--to", args.target)):
        if node not in network.nodes:
            near = suggestion(node, network.nodes)
            raise PlanningError(f"{option} {describe(node)}: expected the id of a node of {args.file}{near}")
    if args.source == args.target:
        raise PlanningError(f"--to {describe(args.target)}: expected another node than --from")
    planner = Planner(network, clients_relay=args.relay == "all")
    try:
        plan = planner.plan(
            args.source, args.target, shortest=args.shortest, depth=args.depth, arms=args.arms, margin=margin
        )
    except NoRouteError as error:
        raise NoRouteError(f"{args.file}: {error}") from error
    from hyroads.controller.core.optimum import multipath_optimum_mbps

    optimum_mbps = multipath_optimum_mbps(network, plan.multipath.links, margin)
    if args.json:
        print(json.dumps({**plan_document(network, plan), "optimum_mbps": optimum_mbps}, indent=2))
    else:
        _print_tables(network, plan, optimum_mbps, f"{args.source} -> {args.target}")
    return 0


def _print_tables(network: Network, plan: Plan, optimum_mbps: float, flow: str) -> None:
    from rich.console import Console
    from rich.table import Table

    from hyroads.controller.core.planner import engine

    console = Console(highlight=False)
    best = Table(
        "path", "route", "links", "Mb/s", title=f"{flow}: single path and best multipath", title_justify="left"
    )
    best.columns[3].justify = "right"
    named = [("single", plan.single_path), *((str(i), path) for i, path in enumerate(plan.multipath.paths, start=1))]
    for name, path in named:
        ids = " ".join(network.links[link].id for link in path.links)
        best.add_row(name, _described(network, path.links), ids, f"{path.rate_mbps:.3f}")
    best.add_section()
    best.add_row("total", "estimate", "airtime of the paths' own links", f"{plan.multipath.total_mbps:.3f}")
    best.add_row("total", "optimum", "airtime of every link", f"{optimum_mbps:.3f}")
    console.print(best)
    listed = Table("arm", "paths", "estimate, Mb/s", title="Arms", title_justify="left")
    listed.columns[2].justify = "right"
    for number, arm in enumerate(plan.arms, start=1):
        paths = "\n".join(_described(network, path) for path in arm.links)
        listed.add_row(str(number), paths, f"{arm.total_mbps:.3f}")
    console.print(listed)
    share = f", {plan.margin:.0%} of airtime kept free" if plan.margin else ""
    console.print(f"planned by the {engine()} engine{share}")
    relaying = _relaying_clients(network, plan.multipath.links)
    if relaying:
        console.print(f"note: plain clients relay ({', '.join(relaying)}); a deployed one can't: see --relay switches")


def _described(network: Network, path: Path) -> str:
    """Nodes and technologies of a path: ``a -plc-> b -wifi-> c``."""
    links = [network.links[index] for index in path]
    return links[0].source + "".join(f" -{link.technology}-> {link.target}" for link in links)


def _relaying_clients(network: Network, paths: Sequence[Path]) -> list[str]:
    inner = dict.fromkeys(network.links[link].target for path in paths for link in path[:-1])
    return [node for node in inner if network.nodes[node].is_plain_client]


COMMAND = Command(
    "Find the single shortest path, the best multipath and the N best arms between two nodes of a network file. "
    "Rates are Mb/s at L2 payload. Plans on the graph as it is declared: with --relay switches, plain clients "
    "(role client, no agent) do not forward for others, as in a deployed network.",
    _run,
    argument("file", metavar="NET", help="network file (YAML or JSON)"),
    argument("--from", dest="source", metavar="A", required=True, help="node where the flow enters"),
    argument("--to", dest="target", metavar="B", required=True, help="node where it leaves"),
    argument(
        "--shortest",
        type=int,
        default=DEFAULT_SHORTEST,
        metavar="N",
        help="shortest paths per vertex of the exploration tree (default: %(default)s)",
    ),
    argument(
        "--depth",
        type=int,
        metavar="K",
        help="most paths of a multipath (default: the number of technologies, at most 5)",
    ),
    argument(
        "--arms", type=int, default=DEFAULT_ARMS, metavar="N", help="distinct multipaths to list (default: %(default)s)"
    ),
    argument(
        "--margin",
        type=float,
        metavar="D",
        help="share of airtime to keep free: every rate, total and optimum is that of the capacities times 1 - D "
        "(default: the file's margin, else 0)",
    ),
    argument(
        "--relay",
        choices=("all", "switches"),
        default="all",
        help="nodes that may be in the middle (default: %(default)s)",
    ),
    argument("--json", action="store_true", help="print one JSON document"),
)
