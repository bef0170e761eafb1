"""``hyroads fair``: fair rates of flows that each accept some of the interfaces only."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rich.console import Console
from rich.table import Table

from hyroads.controller.core.checking import Place, Problems
from hyroads.controller.core.document import load_document
from hyroads.controller.core.fair.maxmin import Allocation, FairnessError, Flow, Shares, allocate, floor_mbps
from hyroads.controller.core.fair.midrr import AS_PUBLISHED, MOST_SERVICES, Setting, simulate
from hyroads.controller.files.text import read_text

from .main import Command, argument

VARIANTS = {"counter": Setting(), "one-bit": AS_PUBLISHED}
_MOST_MBPS = 1e6
_MOST_WEIGHT = 1e6


def _run(args: argparse.Namespace) -> int:
    shares = parse(read_text(args.file), args.file)
    fair = allocate(shares)
    reached = None
    if args.simulate is not None:
        try:
            reached = simulate(shares, args.simulate, VARIANTS[args.variant])
        except FairnessError as error:
            raise FairnessError(f"--simulate: {error}") from error
    if args.json:
        print(json.dumps(_document(shares, fair, reached), indent=2, allow_nan=False))
    else:
        _print_tables(shares, fair, reached)
    return 0


def parse(text: str, document: str) -> Shares:
    """Interfaces and flows of a file's text; :class:`ConfigError` names every wrong place."""
    problems = Problems(document)
    section = Place(load_document(text, document), problems).section(("interfaces", "flows"), ("interfaces", "flows"))
    capacity: dict[str, float] = {}
    flows: dict[str, Flow] = {}
    if (place := section.optional("interfaces")) is not None:
        capacity = {
            name: mbps.number(0.0, 0.0, _MOST_MBPS, what="a capacity of 0 or more Mb/s")
            for name, mbps in place.entries()
        }
    if (place := section.optional("flows")) is not None:
        flows = {name: _flow(entry, capacity) for name, entry in place.entries()}
    problems.raise_if_any()
    return Shares(capacity, flows)


def _flow(place: Place, capacity: dict[str, float]) -> Flow:
    section = place.section(("weight", "interfaces", "demand"), ("interfaces",))
    weight, demand, names = 1.0, None, list[str]()
    if "weight" in section:
        weight = section["weight"].number(1.0, 0.0, _MOST_WEIGHT, open_low=True, what="a weight above 0")
    if "demand" in section and section["demand"].value is not None:
        demand = section["demand"].number(0.0, 0.0, _MOST_MBPS, what="a demand of 0 or more Mb/s, or null")
    if "interfaces" in section:
        names = [item.reference(capacity, "interface") for item in section["interfaces"].items()]
        if section["interfaces"].value == []:
            section["interfaces"].expected("at least one interface")
    return Flow(weight, frozenset(names), demand)


def _document(shares: Shares, fair: Allocation, reached: dict[str, float] | None) -> dict[str, Any]:
    """``rates`` are the simulated ones if there are any; ``clusters`` and ``fair_rates`` are always the exact ones."""
    return {
        "rates": dict(fair.rate_mbps if reached is None else reached),
        "fair_rates": dict(fair.rate_mbps),
        "floors": {name: floor_mbps(shares, name) for name in shares.flows},
        "interfaces": {name: dict(parts) for name, parts in fair.served_mbps.items()},
        "clusters": [
            {"flows": list(each.flows), "interfaces": list(each.interfaces), "level_mbps": each.level_mbps}
            for each in fair.clusters
        ],
    }


def _print_tables(shares: Shares, fair: Allocation, reached: dict[str, float] | None) -> None:
    console = Console(highlight=False)
    heads = ["flow", "weight", "interfaces", "demand, Mb/s", "floor, Mb/s", "fair rate, Mb/s"]
    table = Table(*heads, *(["miDRR, Mb/s", "off, %"] if reached is not None else []))
    for name, flow in shares.flows.items():
        rate = fair.rate_mbps[name]
        cells = [
            name,
            f"{flow.weight:g}",
            " ".join(sorted(flow.interfaces)),
            "-" if flow.demand_mbps is None else f"{flow.demand_mbps:g}",
            f"{floor_mbps(shares, name):.4g}",
            f"{rate:.6g}",
        ]
        if reached is not None:
            cells += [f"{reached[name]:.6g}", f"{100 * (reached[name] / rate - 1):+.2f}" if rate > 0 else "-"]
        table.add_row(*cells)
    console.print(table)
    clusters = Table("cluster", "flows", "interfaces", "rate per weight, Mb/s", title="Flows of one level")
    for number, each in enumerate(fair.clusters, start=1):
        level = "all demands met" if each.level_mbps is None else f"{each.level_mbps:.6g}"
        clusters.add_row(str(number), " ".join(each.flows), " ".join(each.interfaces), level)
    console.print(clusters)


COMMAND = Command(
    "Weighted max-min fair rates (Mb/s) of flows that each accept some of the interfaces only. FILE (YAML or JSON) "
    "says {interfaces: {NAME: MBPS, ...}, flows: {NAME: {weight: 1, interfaces: [NAME, ...], demand: null|MBPS}}}.",
    _run,
    argument("file", metavar="FILE", help="interfaces and flows (YAML or JSON)"),
    argument("--simulate", type=float, metavar="SECONDS", help="also schedule so many seconds of packets by miDRR"),
    argument(
        "--variant",
        choices=tuple(VARIANTS),
        default="counter",
        help=f"what a packet scheduler remembers of others' services: a counter up to {MOST_SERVICES}, or one bit as "
        "published (default: %(default)s)",
    ),
    argument("--json", action="store_true", help="print one JSON document"),
)
