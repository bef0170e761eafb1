"""The page *What if*: the same planner and solver as the controller's, on a copy of the network as it is now. Pure.

Nothing of it reaches the controller. Capacities are those that it counts on now; other traffic is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hyroads.controller.core.errors import HyroadsError, NoRouteError
from hyroads.controller.core.netfile import parse
from hyroads.controller.core.network import Network

from ..state import NetworkState

NEW_FLOW = "(new flow)"
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Question:
    """Plain data, so that a worker process can be asked. ``flows`` are id -> (from, to)."""

    nodes: Document
    links: Sequence[Document]
    domains: Sequence[Sequence[str]]
    flows: Mapping[str, tuple[str, str]]
    without: frozenset[str] = frozenset()
    new: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class FlowAnswer:
    """What theory gives a flow: rate in Mb/s and paths; None where there is no way."""

    flow: str
    rate_mbps: float | None
    paths: Sequence[str]


def question(state: NetworkState, without: Collection[str], new: tuple[str, str] | None) -> Question:
    """From the network as it is now: links that are up and have a capacity, and flows that have paths."""
    topology = state.topology
    if topology is None:
        raise HyroadsError("the network is not known yet")
    links = []
    for link in topology.links.values():
        capacity = state.figure("links", link.id, "capacity_mbps")
        if capacity and state.figure("links", link.id, "up") != 0:
            links.append({"id": link.id, "from": link.source, "to": link.target, "technology": link.technology,
                          "capacity_mbps": capacity})  # fmt: skip
    known = {link["id"] for link in links}
    found = state.documents.get("/interference-domains", {}).get("interference_domains") or []
    domains = [[link for link in one.get("links", ()) if link in known] for one in found]
    flows = {flow: ends for flow in state.live["flows"] if (ends := _ends(state, flow)) is not None}
    nodes = {node.id: {"role": node.role} for node in topology.nodes.values()}
    return Question(nodes, links, [one for one in domains if one], flows, frozenset(without), new)


def are_cliques(domains: Sequence[Sequence[str]]) -> bool:
    """Whether no link is in two domains: then what is computed is exact, otherwise it is on the safe side."""
    return sum(map(len, domains)) == len({link for one in domains for link in one})


def _ends(state: NetworkState, flow: str) -> tuple[str, str] | None:
    links = state.topology.links if state.topology is not None else {}
    path = next(iter(state.flow_paths(flow).values()), [])
    return (links[path[0]].source, links[path[-1]].target) if path and set(path) <= links.keys() else None


def answer(asked: Question) -> tuple[list[FlowAnswer], list[FlowAnswer]]:
    """Theory for the network as it is, and as it would be; HyroadsError if the question makes no sense."""
    now = _theory(asked, frozenset(), asked.flows)
    flows = dict(asked.flows) | ({NEW_FLOW: asked.new} if asked.new is not None else {})
    return now, _theory(asked, asked.without, flows)


def _theory(asked: Question, without: Collection[str], flows: Mapping[str, tuple[str, str]]) -> list[FlowAnswer]:
    from hyroads.controller.core.planner import Planner
    from hyroads.controller.core.rates import rate_problem, solve

    if not flows:
        return []
    network = _network(asked, without, flows)
    planner, paths = Planner(network), {}
    for spec in network.flows:
        # A flow without any path has no rate.
        with suppress(NoRouteError):
            paths[spec.id] = list(planner.plan(spec.source, spec.target).multipath.links)
    routed = [spec for spec in network.flows if spec.id in paths]
    rates = {}
    if routed:
        problem = rate_problem(network, paths, flows=routed)
        rates = dict(zip(problem.layout.flow_ids, solve(problem).flow_rates_mbps.tolist(), strict=True))
    ids = [link.id for link in network.links]
    return [
        FlowAnswer(
            flow, rates.get(spec.id), [" + ".join(ids[link] for link in path) for path in paths.get(spec.id, ())]
        )
        for flow, spec in zip(flows, network.flows, strict=True)
    ]


def _network(asked: Question, without: Collection[str], flows: Mapping[str, tuple[str, str]]) -> Network:
    links = [link for link in asked.links if link["id"] not in without]
    if not links:
        raise HyroadsError("no link is left")
    left = {link["id"] for link in links}
    domains = [[link for link in one if link in left] for one in asked.domains]
    rule = {"domains": [one for one in domains if one]} if any(domains) else {"rule": "technology"}
    document = {
        "name": "what-if",
        "nodes": asked.nodes,
        "links": links,
        "interference": rule,
        "flows": [
            # Ids of live flows may be such as no file has.
            {"id": f"flow{number}", "from": source, "to": target}
            for number, (source, target) in enumerate(flows.values())
        ],
    }
    return parse(document, "what if")


def rows(now: Sequence[FlowAnswer], then: Sequence[FlowAnswer]) -> list[list[str]]:
    """Flow, theory now, theory then, paths then."""
    before = {one.flow: one for one in now}
    return [[one.flow, _rate(before.get(one.flow)), _rate(one), "; ".join(one.paths) or "no way"] for one in then]


def _rate(one: FlowAnswer | None) -> str:
    return "" if one is None else "unreachable" if one.rate_mbps is None else f"{one.rate_mbps:.2f} Mb/s"
