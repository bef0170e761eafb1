"""``hyroads plan``: single path, best multipath and arms between two nodes of a network file."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hyroads.controller.core.checking import describe, suggestion
from hyroads.controller.core.errors import NoRouteError, PlanningError
from hyroads.controller.core.interface_graph import Path, link_ids, path_nodes
from hyroads.controller.core.network import Network
from hyroads.controller.core.planner import DEFAULT_ARMS, DEFAULT_SHORTEST, Plan, Planner, engine, plan_document
from hyroads.controller.files.documents import read_file

if TYPE_CHECKING:
    from rich.table import Table

HELP = (
    "Find the single shortest path, the best multipath and the N best arms between two nodes of a network file. "
    "Rates are Mb/s at L2 payload. Plans on the graph as it is declared: with --relay switches, plain clients "
    "(role client, no agent) do not forward for others, as in a deployed network."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("file", metavar="NET", help="network file (YAML or JSON)")
    parser.add_argument("--from", dest="source", metavar="A", required=True, help="node where the flow enters")
    parser.add_argument("--to", dest="target", metavar="B", required=True, help="node where it leaves")
    parser.add_argument(
        "--shortest",
        type=int,
        default=DEFAULT_SHORTEST,
        metavar="N",
        help="shortest paths per vertex of the exploration tree (default: %(default)s)",
    )
    parser.add_argument(
        "--depth",
        type=int,
        metavar="K",
        help="most paths of a multipath (default: the number of technologies, at most 5)",
    )
    parser.add_argument(
        "--arms", type=int, default=DEFAULT_ARMS, metavar="N", help="distinct multipaths to list (default: %(default)s)"
    )
    parser.add_argument(
        "--margin",
        type=float,
        metavar="D",
        help="share of airtime to keep free: every rate, total and optimum is that of the capacities times 1 - D "
        "(default: the file's margin, else 0)",
    )
    parser.add_argument(
        "--relay",
        choices=("all", "switches"),
        default="all",
        help="nodes that may be in the middle (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Plan one flow; the result is the exit status."""
    # Optima and tables come with large libraries, which a wrong file does not need.
    network = read_file(args.file)
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
        print(json.dumps(document(network, plan, optimum_mbps), indent=2))
    else:
        _print_tables(network, plan, optimum_mbps, f"{args.source} -> {args.target}")
    return 0


def document(network: Network, plan: Plan, optimum_mbps: float) -> dict[str, Any]:
    """What ``--json`` prints (docs/explanation/routing.md)."""
    return {**plan_document(network, plan), "optimum_mbps": optimum_mbps}


def _print_tables(network: Network, plan: Plan, optimum_mbps: float, flow: str) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    best = Table(
        "path", "route", "links", "Mb/s", title=f"{flow}: single path and best multipath", title_justify="left"
    )
    best.columns[3].justify = "right"
    named = [("single", plan.single_path), *((str(i), path) for i, path in enumerate(plan.multipath.paths, start=1))]
    for name, path in named:
        route, ids = _described(network, path.links), " ".join(link_ids(network, path.links))
        best.add_row(name, route, ids, f"{path.rate_mbps:.3f}")
    best.add_section()
    best.add_row("total", "estimate", "airtime of the paths' own links", f"{plan.multipath.total_mbps:.3f}")
    best.add_row("total", "optimum", "airtime of every link", f"{optimum_mbps:.3f}")
    console.print(best)
    console.print(_arms_table(network, plan))
    share = f", {plan.margin:.0%} of airtime kept free" if plan.margin else ""
    console.print(f"planned by the {engine()} engine{share}")
    relaying = _relaying_clients(network, plan.multipath.links)
    if relaying:
        console.print(f"note: plain clients relay ({', '.join(relaying)}); a deployed one can't: see --relay switches")


def _arms_table(network: Network, plan: Plan) -> Table:
    from rich.table import Table

    table = Table("arm", "paths", "estimate, Mb/s", title="Arms", title_justify="left")
    table.columns[2].justify = "right"
    for number, arm in enumerate(plan.arms, start=1):
        paths = "\n".join(_described(network, path) for path in arm.links)
        table.add_row(str(number), paths, f"{arm.total_mbps:.3f}")
    return table


def _described(network: Network, path: Path) -> str:
    """Nodes and technologies of a path: ``a -plc-> b -wifi-> c``."""
    words = path_nodes(network, path)[:1]
    for index in path:
        words.append(f"-{network.links[index].technology}-> {network.links[index].target}")
    return " ".join(words)


def _relaying_clients(network: Network, paths: Sequence[Path]) -> list[str]:
    inner = dict.fromkeys(node for path in paths for node in path_nodes(network, path)[1:-1])
    return [node for node in inner if network.nodes[node].is_plain_client]
