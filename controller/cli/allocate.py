"""``hyroads allocate``: the rates of all flows of a network file."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from hyroads.controller.core.errors import ConfigError, NoRouteError, PlanningError
from hyroads.controller.core.flow_groups import GroupFlow, May, group_paths
from hyroads.controller.core.network import FlowSpec, Network, Policy
from hyroads.controller.core.planner import Planner
from hyroads.controller.core.rates import RateProblem, rate_problem, solve
from hyroads.controller.core.rates.controller_mode import ControllerSettings, distance
from hyroads.controller.core.rates.controller_mode import run as run_controller
from hyroads.controller.core.rates.groups import groups_of, solve_with_groups, with_parts_of_weight
from hyroads.controller.files.documents import read_file

from .main import Command, argument

Paths = Mapping[str, Sequence[tuple[int, ...]]]
"""Flow id -> link indices of each path."""
DEFAULT_SLOTS = 2000
MAX_SLOTS = 1_000_000
# Rates have converged when they stayed at the optimum for so many slots: one that swings passes it, too.
SETTLED_SLOTS = 20


@dataclass(frozen=True)
class Rates:
    """Rates of the problem's paths in Mb/s, after how many slots, their utility (flows of a group have one), and
    whether they have converged to the optimum.

    ``converged`` is None where that is no question (the solver's rates), ``complaint`` what there is to say if not.
    """

    path_rates_mbps: NDArray[np.float64]
    slots: int
    utility: float
    converged: bool | None = None
    complaint: str = ""


def _run(args: argparse.Namespace) -> int:
    network = read_file(args.file)
    if not network.flows:
        raise ConfigError(args.file, "flows", "expected at least one flow to allocate rates to")
    margin = args.margin if args.margin is not None else network.margin or 0.0
    if not 0.0 <= margin < 1.0:
        raise PlanningError(f"margin {margin:g}: expected a share of airtime, 0 <= margin < 1")
    slots = DEFAULT_SLOTS if args.slots is None else args.slots
    if not 1 <= slots <= MAX_SLOTS:
        raise PlanningError(f"slots {slots}: expected a whole number from 1 to {MAX_SLOTS}")
    try:
        paths = flow_paths(network, margin)
    except NoRouteError as error:
        raise NoRouteError(f"{args.file}: flows: {error}") from error
    rates, problem = _MODES[args.mode](network, paths, margin, slots)
    report = document(network, problem, rates)
    if args.json:
        print(json.dumps(report, indent=2, allow_nan=False))
    else:
        _print_table(network, report, f"{args.mode}, {rates.slots} slot{'s' * (rates.slots > 1)}", margin)
        if rates.complaint:
            print(f"NOT CONVERGED: {rates.complaint}")
    if rates.complaint:
        print(f"hyroads allocate: {args.file}: not converged: {rates.complaint}", file=sys.stderr)
    return 0


def flow_paths(network: Network, margin: float) -> dict[str, list[tuple[int, ...]]]:
    """Per flow, the paths of the file or, where there are none, the planned multipath (or single path)."""
    index = network.link_index
    fixed = {flow.id: [tuple(index[link] for link in path) for path in flow.paths] for flow in network.flows}
    missing = [flow for flow in network.flows if not flow.paths]
    return {**fixed, **_planned(network, missing, margin)} if missing else fixed


def document(network: Network, problem: RateProblem, rates: Rates) -> dict[str, Any]:
    """The JSON document: rates, utility, airtime, slots, and with the slotted controller whether it has converged.

    ``utility`` is null where it is minus infinity (a log utility at rate 0).
    """
    layout = problem.layout
    ids = [link.id for link in network.links]
    flow_rates = layout.flow_rates(rates.path_rates_mbps)
    flows = {
        flow: {
            "rate_mbps": float(flow_rates[number]),
            "paths": [
                {"links": [ids[link] for link in layout.paths[path]], "rate_mbps": float(rates.path_rates_mbps[path])}
                for path in range(layout.path_count)[where]
            ],
        }
        for number, (flow, where) in enumerate(zip(layout.flow_ids, layout.path_slices(), strict=True))
    }
    busy = problem.airtime(rates.path_rates_mbps) + problem.external
    return {
        "flows": flows,
        "utility": rates.utility if math.isfinite(rates.utility) else None,
        "max_airtime": float(busy.max(initial=0.0)),
        "slots": rates.slots,
        **({} if rates.converged is None else {"converged": rates.converged}),
    }


def _planned(network: Network, flows: list[FlowSpec], margin: float) -> dict[str, list[tuple[int, ...]]]:
    planner = Planner(network, clients_relay=True)
    paths: dict[str, list[tuple[int, ...]]] = {}
    for flow in flows:
        plan = planner.plan(flow.source, flow.target, margin=margin)
        paths[flow.id] = [plan.single_path.links] if flow.policy is Policy.SINGLE else list(plan.multipath.links)
    return {**paths, **_together(planner, network.flows, [flow for flow in flows if flow.policy is not Policy.SINGLE])}


def _together(
    planner: Planner, flows: Sequence[FlowSpec], free: Sequence[FlowSpec]
) -> dict[str, list[tuple[int, ...]]]:
    """Paths of those ``free`` flows that are in a group, around those of its flows whose paths the file tells."""
    index = planner.network.link_index
    found: dict[str, list[tuple[int, ...]]] = {}
    for group in dict.fromkeys(flow.group for flow in free if flow.group is not None):
        members = [flow for flow in flows if flow.group == group and (flow.paths or flow in free)]
        ends = [
            GroupFlow(
                flow.source,
                flow.target,
                tuple(tuple(index[link] for link in path) for path in flow.paths),
                May.STAY if flow.paths else May.MOVE,
            )
            for flow in members
        ]
        if len(members) > 1:
            chosen = group_paths(planner, ends).paths
            found |= {flow.id: list(paths) for flow, paths in zip(members, chosen, strict=True)}
    return found


def _by_solver(network: Network, paths: Paths, margin: float, _slots: int) -> tuple[Rates, RateProblem]:
    problem = rate_problem(network, paths, margin=margin)
    found = solve_with_groups(problem, groups_of(network.flows))
    return Rates(found.path_rates_mbps, 1, found.utility), problem


def _by_controller(network: Network, paths: Paths, margin: float, slots: int) -> tuple[Rates, RateProblem]:
    problem = rate_problem(network, paths, flows=with_parts_of_weight(network.flows), margin=margin)
    latest = deque(run_controller(problem, ControllerSettings(), slots), maxlen=SETTLED_SLOTS)
    optimum_mbps = solve(problem).flow_rates_mbps
    seen = [distance(problem, state.path_rates_mbps, optimum_mbps) for state in latest]
    last = latest[-1]
    utility = problem.utilities.total(problem.layout.flow_rates(last.path_rates_mbps))
    if len(seen) == SETTLED_SLOTS and all(each.is_converged for each in seen):
        return Rates(last.path_rates_mbps, last.slot, utility, converged=True), problem
    off, airtime = max(each.rate_share for each in seen), max(each.airtime for each in seen)
    complaint = (
        f"in the last {len(seen)} of {last.slot} slots rates were up to {off:.1%} from the optimum and airtime up to "
        f"{airtime:.1%} beyond the margin (rates must stay within 1 % for {SETTLED_SLOTS} slots; give more --slots)"
    )
    return Rates(last.path_rates_mbps, last.slot, utility, converged=False, complaint=complaint), problem


_Mode = Callable[[Network, Paths, float, int], tuple[Rates, RateProblem]]
_MODES: Mapping[str, _Mode] = {"solver": _by_solver, "controller": _by_controller}


def _print_table(network: Network, report: dict[str, Any], how: str, margin: float) -> None:
    technology = {link.id: link.technology for link in network.links}
    target = {link.id: link.target for link in network.links}
    table = Table("flow", "path", "Mb/s", title=f"Rates ({how})", title_justify="left")
    table.columns[2].justify = "right"
    for flow in network.flows:
        entry = report["flows"][flow.id]
        for path in entry["paths"]:
            hops = "".join(f" -{technology[link]}-> {target[link]}" for link in path["links"])
            table.add_row(flow.id, flow.source + hops, f"{path['rate_mbps']:.3f}")
        table.add_row(flow.id, "together", f"[bold]{entry['rate_mbps']:.3f}[/bold]", end_section=True)
    console = Console(highlight=False)
    console.print(table)
    utility = "minus infinity (a flow has rate 0)" if report["utility"] is None else f"{report['utility']:.6f}"
    console.print(f"utility {utility}; busiest domain {report['max_airtime']:.2%} of the time, {margin:.0%} kept free")


COMMAND = Command(
    "Allocate rates (Mb/s at L2 payload) to all flows of a network file so that sum_f w_f U(x_f) is largest and no "
    "interference domain of any link is busy for more than 1 - margin of the time. Flows without paths in the file "
    "are planned first, those of a group together.",
    _run,
    argument("file", metavar="NET", help="network file (YAML or JSON) with flows"),
    argument(
        "--margin", type=float, metavar="D", help="share of airtime to keep free (default: the file's margin, else 0)"
    ),
    argument(
        "--mode",
        choices=tuple(_MODES),
        default="solver",
        help="solver: the optimum, exact, in one slot; controller: the slotted controller (default: %(default)s)",
    ),
    argument("--slots", type=int, metavar="N", help=f"slots of the controller mode (default: {DEFAULT_SLOTS})"),
    argument("--json", action="store_true", help="print one JSON document"),
)
