"""``hyroads check-config``: check a network file, list all its errors, or summarise what it declares."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from typing import Any

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.network import Contention, Network, Role, network_graph
from hyroads.controller.files.documents import read_file

from .main import Command, argument, either


def _run(args: argparse.Namespace) -> int:
    try:
        network = read_file(args.file, measured=True)
    except ConfigError as error:
        for each in (error, *error.more):
            print(each, file=sys.stderr)
        return 2
    if args.netjson:
        print(json.dumps(network_graph(network), indent=2))
        return 0
    report = summary(network, args.file)
    print(json.dumps(report, indent=2) if args.json else _table(report))
    return 0


def summary(network: Network, document: str) -> dict[str, Any]:
    """What the network consists of; ``live`` says whether it can be run, not only planned."""
    return {
        "file": document,
        "name": network.name,
        "nodes": {role.value: _nodes_of(network, role) for role in Role},
        "agents": [node.id for node in network.nodes.values() if node.agent],
        "technologies": {technology: _technology(network, technology) for technology in network.technologies},
        "interference": _domains(network),
        "flows": [
            {"id": flow.id, "from": flow.source, "to": flow.target, "weight": flow.weight, "paths": len(flow.paths)}
            for flow in network.flows
        ],
        "discover": network.discovered,
        "live": _live(network, document),
    }


def _nodes_of(network: Network, role: Role) -> list[str]:
    return [node.id for node in network.nodes.values() if node.role is role]


def _technology(network: Network, technology: str) -> dict[str, Any]:
    links = [link for link in network.links if link.technology == technology]
    capacities = [link.capacity_mbps for link in links if link.id not in network.unmeasured]
    return {
        "links": len(links),
        "shared": technology not in network.unshared,
        "contention": network.contention.get(technology, Contention.IDEAL).value,
        "to_measure": len(links) - len(capacities),
        "capacity_min_mbps": min(capacities, default=None),
        "capacity_mean_mbps": sum(capacities) / len(capacities) if capacities else None,
        "capacity_max_mbps": max(capacities, default=None),
    }


def _domains(network: Network) -> dict[str, Any]:
    """Number of distinct domains and how many there are of each size (in links)."""
    representatives = {int(c): i for i, c in enumerate(network.interference.classes())}
    domains = {network.interference.domain(link).tobytes(): link for link in representatives.values()}
    sizes = Counter(len(network.interference.domain(link)) for link in domains.values())
    declaration = network.interference.declaration()
    rule = declaration.get("rule") or next(iter(declaration))
    return {"rule": rule, "domains": len(domains), "sizes": {str(size): sizes[size] for size in sorted(sizes)}}


def _live(network: Network, document: str) -> str:
    """``yes``, or why addresses can't be given."""
    try:
        Addressing.of(network, document)
    except ConfigError as error:
        return f"no: {error.place}: {error.problem}"
    return "yes"


def _table(report: dict[str, Any]) -> str:
    lines = [f"{report['file']}: ok" + (f" ({report['name']})" if report["name"] else "")]
    lines += [
        f"  {role:<10} {len(nodes):>6}  {_shortened(nodes)}".rstrip()
        for role, nodes in report["nodes"].items()
        if nodes
    ]
    lines.append(f"  {'agents':<10} {len(report['agents']):>6}  {_shortened(report['agents'])}".rstrip())
    for name, row in report["technologies"].items():
        medium = "shared" if row["shared"] else "not shared"
        kind = "links that there could be" if report["discover"] else "links"
        lines.append(f"  {name:<10} {row['links']:>6}  {kind}, {_capacities(row)}, {medium}")
    domains = report["interference"]
    lines.append(f"  {'domains':<10} {domains['domains']:>6}  by {domains['rule']}: {_sizes(domains['sizes'])}")
    flows = [f"{flow['id']} {flow['from']} -> {flow['to']}" for flow in report["flows"]]
    lines.append(f"  {'flows':<10} {len(flows):>6}  {_shortened(flows)}".rstrip())
    if report["live"] != "yes":
        lines.append(f"  for planning only, not live: {report['live'].removeprefix('no: ')}")
    return "\n".join(lines)


def _capacities(row: dict[str, Any]) -> str:
    known = "min {capacity_min_mbps:g}, mean {capacity_mean_mbps:.4g}, max {capacity_max_mbps:g} Mb/s"
    unknown = f"{row['to_measure']} without capacity (settings: capacities: measured)" if row["to_measure"] else ""
    return " and ".join(filter(None, [known.format(**row) if row["capacity_min_mbps"] is not None else "", unknown]))


def _sizes(sizes: dict[str, int]) -> str:
    """Every size while they are few, else their spread."""
    if len(sizes) <= 8:
        return ", ".join(f"{count} of {size} links" for size, count in sizes.items())
    each = [int(size) for size, count in sizes.items() for _ in range(count)]
    return f"{each[0]} to {each[-1]} links each, median {each[len(each) // 2]}"


def _shortened(words: list[str], limit: int = 8) -> str:
    return ", ".join(words[:limit]) + (f", ... ({len(words) - limit} more)" if len(words) > limit else "")


COMMAND = Command(
    "Check a network file: print a summary and exit 0, or list all errors on stderr and exit 2.",
    _run,
    argument("file", help="network file (YAML or JSON)"),
    either(
        argument("--json", action="store_true", help="print the summary as one JSON document"),
        argument("--netjson", action="store_true", help="print the network as a NetJSON NetworkGraph"),
    ),
)
