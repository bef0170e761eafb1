"""State -> plan: what every flow, agent and switch shall do now. Pure.

A flow is a *multipath* while the agents at both its edges can be used and a path is live; otherwise its frames follow
the single path of plain rules, which needs no agent. Paths are the declared ones that live, or the best branch of the
exploration tree (spec 01, section 1.4) on the live network; rates are the optimum of the airtime-constrained problem
over all multipath flows (spec 02). The same state gives the same plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from hyroads.controller.agent_protocol import AgentConfig, EgressFlow, HelloConfig, IngressFlow, PathConfig
from hyroads.controller.core.errors import PlanningError
from hyroads.controller.core.network import FlowSpec, Network, Policy
from hyroads.controller.core.paths import Path
from hyroads.controller.core.planner import Planner
from hyroads.controller.core.rates.problem import rate_problem
from hyroads.controller.core.rates.solver import solve
from hyroads.controller.core.routes import all_routes, broadcast_tree
from hyroads.controller.numbering import Numbers, PathName
from hyroads.controller.ofp.compile import attached_only, default_places, intents_for
from hyroads.controller.ofp.intents import ClassifiedFlow, SwitchIntent
from hyroads.controller.ofp.match import Match
from hyroads.controller.private_paths import single_technology_paths, two_networks
from hyroads.controller.state import Fabric, State

MULTIPATH, SINGLE, UNREACHABLE = "multipath", "single", "unreachable"

DEFAULT_MARGIN = 0.05
# A path that would get less than this is left out: the agents' pacing could not hold it, and an idle path only
# delays the detection of losses.
MIN_PATH_MBPS = 0.01
MIN_PATH_SHARE = 1e-3
RATE_STEP_MBPS = 1e-4
# So many interfaces of one medium may say hello at the configured interval; more of them say it less often.
HELLOS_AT_FULL_RATE = 4
PRECEDENCE_STEP = 1000


@dataclass(frozen=True, slots=True)
class Options:
    """What the settings say of planning."""

    margin: float = DEFAULT_MARGIN
    link_mtu: int = 1600
    queue_ms: int = 60
    max_hold_ms: int = 100
    hello_interval_ms: int = 40
    hello_dead_ms: int = 140


@dataclass(frozen=True, slots=True)
class PlannedPath:
    """A path of a flow: link ids, and the label stack that the ingress writes."""

    id: int
    links: PathName
    labels: tuple[int, ...]
    rate_mbps: float | None


@dataclass(frozen=True, slots=True)
class FlowPlan:
    """What happens to one flow's frames. ``ingress`` and ``egress`` are the edges that split and reorder."""

    spec: FlowSpec
    number: int
    mode: str
    reason: str | None
    ingress: str | None
    egress: str | None
    paths: tuple[PlannedPath, ...]
    switches: frozenset[str] = frozenset()
    """Nodes whose switches carry the paths of a multipath."""

    @property
    def rate_mbps(self) -> float | None:
        """Sum over the paths; None if the flow is not shaped."""
        return sum(path.rate_mbps or 0.0 for path in self.paths) if self.mode == MULTIPATH else None


@dataclass(frozen=True)
class Plan:
    """What all flows and agents shall do; ``version`` is that of the state it was made from."""

    version: int
    flows: Mapping[str, FlowPlan]
    agents: Mapping[str, AgentConfig]
    classified: Mapping[str, ClassifiedFlow]
    """Per multipath flow: the rule at its ingress."""
    numbers: Numbers
    airtime: Mapping[str, float]
    """Planned share of time that the domain of each link is busy."""
    planned_mbps: Mapping[str, float]


@dataclass
class LiveNetwork:
    """The network without what is down; caches what depends on nothing else."""

    fabric: Fabric
    dead: frozenset[str]
    _multipaths: dict[tuple[str, str], tuple[Path, ...]] = field(default_factory=dict)
    _one_technology: dict[tuple[str, str], tuple[Path, ...]] = field(default_factory=dict)

    @cached_property
    def network(self) -> Network:
        """Dead links have capacity 0; a plain client keeps only the links to where it is attached."""
        zero = dict.fromkeys(self.dead, 0.0)
        addressing = self.fabric.addressing
        return attached_only(self.fabric.network, addressing, default_places(addressing)).with_capacities(zero)

    @cached_property
    def _planner(self) -> Planner:
        return Planner(self.network)

    def multipath(self, source: str, target: str) -> tuple[Path, ...]:
        """Paths of the best branch; empty if there is no way."""
        key = (source, target)
        if key not in self._multipaths:
            try:
                found = self._planner.plan(source, target, arms=1).multipath.links
            except PlanningError:
                found = ()
            self._multipaths[key] = found
        return self._multipaths[key]

    def private_paths(self, source: str, target: str) -> tuple[Path, ...]:
        """Two paths without a common technology; empty if there are none."""
        key = (source, target)
        pair = two_networks(self.network, self.multipath(source, target))
        if not pair and key not in self._one_technology:
            self._one_technology[key] = single_technology_paths(self.network, source, target)
        return pair or two_networks(self.network, self._one_technology[key])

    def single_path(self, source: str, target: str) -> Path:
        """Shortest path; empty if there is no way."""
        try:
            return self._planner.plan(source, target, shortest=1, depth=1, arms=1).single_path.links
        except PlanningError:
            return ()

    @cached_property
    def intents(self) -> dict[str, SwitchIntent]:
        """What every switch shall do besides classifying flows."""
        addressing, network = self.fabric.addressing, self.network
        routes = all_routes(network, (*addressing.dpid, *addressing.attachments))
        tree = sorted(broadcast_tree(network))
        return intents_for(self.fabric.network, addressing, self.fabric.labels, routes, tree)


class Cache:
    """The live networks of the last few sets of dead links, so that a link that flaps is planned once."""

    def __init__(self, fabric: Fabric, size: int = 16) -> None:
        self._fabric = fabric
        self._size = size
        self._known: dict[frozenset[str], LiveNetwork] = {}

    def live(self, state: State) -> LiveNetwork:
        """The live network of a state."""
        links = self._fabric.network.links
        dead = frozenset(link.id for link in links if state.link_fault(self._fabric, link) is not None)
        found = self._known.pop(dead, None) or LiveNetwork(self._fabric, dead)
        self._known[dead] = found
        if len(self._known) > self._size:
            del self._known[next(iter(self._known))]
        return found


def make_plan(state: State, live: LiveNetwork, numbers: Numbers, options: Options) -> Plan:
    """Plan all flows and agents."""
    numbers = numbers.with_flows(state.flows)
    drafts = {flow: _draft(state, live, flow) for flow in state.flows}
    _single_out_twins(drafts)
    rates, airtime = _rates(live.network, drafts, options.margin)
    flows: dict[str, FlowPlan] = {}
    for flow, draft in drafts.items():
        kept = _worth_it(rates.get(flow, ()))
        if draft.reason is None and not kept:
            draft.reason = "no airtime is left for it"
        if draft.reason is None and draft.is_private and len(kept) < 2:
            draft.reason = "private: no airtime is left for one of its two networks"
        names = {index: _names(live.network, draft.paths[index]) for index in kept}
        numbers = numbers.with_paths(flow, names.values()) if draft.reason is None else numbers
        flows[flow] = _finish(live, draft, numbers, {names[index]: rate for index, rate in kept.items()})
    planned = _planned_mbps(flows)
    return Plan(
        version=state.version,
        flows=flows,
        agents=_agents(live.fabric, flows, options),
        classified={flow: _classified(live.fabric, plan) for flow, plan in flows.items() if plan.mode == MULTIPATH},
        numbers=numbers,
        airtime=airtime,
        planned_mbps=planned,
    )


@dataclass
class _Draft:
    """A flow on its way to a plan; ``reason`` says why it can't be a multipath."""

    spec: FlowSpec
    ingress: str | None
    egress: str | None
    paths: tuple[Path, ...] = ()
    reason: str | None = None

    @property
    def is_private(self) -> bool:
        return self.spec.policy is Policy.PRIVATE


def _draft(state: State, live: LiveNetwork, flow: str) -> _Draft:
    fabric, spec = live.fabric, state.flows[flow].spec
    draft = _Draft(spec, _edge(fabric, spec.source), _edge(fabric, spec.target))
    draft.reason = _obstacle(state, fabric, draft)
    if draft.reason is None:
        draft.paths = _paths(live, spec)
        if not draft.paths:
            draft.reason = _no_path(draft)
    return draft


def _no_path(draft: _Draft) -> str:
    if draft.is_private:
        return "private: no two live paths without a common technology"
    return "no declared path is live" if draft.spec.paths else "no path is live"


def _edge(fabric: Fabric, node: str) -> str | None:
    """The node whose agent can be the edge of a flow from or to ``node``."""
    if not fabric.addressing.is_plain_client(node):
        return node
    attachment = fabric.addressing.attachment(node)
    return attachment.node if attachment else None


def _obstacle(state: State, fabric: Fabric, draft: _Draft) -> str | None:
    if draft.spec.policy is Policy.SINGLE:
        return "its policy is single"
    if draft.ingress is None or draft.egress is None:
        return f"{draft.spec.source if draft.ingress is None else draft.spec.target} is not attached anywhere"
    if draft.ingress == draft.egress:
        return f"both ends are at {draft.ingress}"
    return state.agent_fault(fabric, draft.ingress) or state.agent_fault(fabric, draft.egress)


def _paths(live: LiveNetwork, spec: FlowSpec) -> tuple[Path, ...]:
    private = spec.policy is Policy.PRIVATE
    if not spec.paths:
        return (live.private_paths if private else live.multipath)(spec.source, spec.target)
    index, links = live.network.link_index, live.network.links
    declared = [tuple(index[name] for name in path) for path in spec.paths]
    usable = tuple(path for path in declared if all(links[link].capacity_mbps > 0 for link in path))
    return two_networks(live.network, usable) if private else usable


def _single_out_twins(drafts: Mapping[str, _Draft]) -> None:
    """Of flows with the same ends and the same match only the first can have frames."""
    first: dict[tuple[object, ...], str] = {}
    for flow, draft in drafts.items():
        key = (draft.spec.source, draft.spec.target, tuple(sorted(draft.spec.match.items())))
        if draft.reason is None and first.setdefault(key, flow) != flow:
            draft.reason = f"flow {first[key]} matches the same frames"


def _rates(
    network: Network, drafts: Mapping[str, _Draft], margin: float
) -> tuple[dict[str, Sequence[float]], dict[str, float]]:
    """Rates per flow, in the order of its paths, and the airtime of the domain of every link."""
    active = {flow: draft for flow, draft in drafts.items() if draft.reason is None}
    if not active:
        return {}, {}
    specs = [draft.spec for draft in active.values()]
    problem = rate_problem(network, {flow: d.paths for flow, d in active.items()}, flows=specs, margin=margin)
    solution = solve(problem)
    rates = np.floor(solution.path_rates_mbps / RATE_STEP_MBPS) * RATE_STEP_MBPS
    slices = problem.layout.path_slices()
    by_flow: dict[str, Sequence[float]] = {
        flow: [round(r, 6) for r in rates[part].tolist()] for flow, part in zip(active, slices, strict=True)
    }
    airtime = problem.airtime(solution.path_rates_mbps).tolist()
    return by_flow, {link.id: busy for link, busy in zip(network.links, airtime, strict=True)}


def _worth_it(rates: Sequence[float]) -> dict[int, float]:
    """Index of a path -> rate, without the paths that get next to nothing."""
    least = max(MIN_PATH_MBPS, MIN_PATH_SHARE * math.fsum(rates))
    return {index: rate for index, rate in enumerate(rates) if rate >= least}


def _names(network: Network, path: Path) -> PathName:
    return tuple(network.links[link].id for link in path)


def _finish(live: LiveNetwork, draft: _Draft, numbers: Numbers, rates: Mapping[PathName, float]) -> FlowPlan:
    spec, number = draft.spec, numbers.flows[draft.spec.id]
    if draft.reason is None and draft.egress is not None:
        ids = numbers.paths[spec.id]
        paths = tuple(
            PlannedPath(ids[path], path, _labels(live.fabric, path, draft.egress), rate) for path, rate in rates.items()
        )
        switches = _switches(live.fabric, rates)
        return FlowPlan(spec, number, MULTIPATH, None, draft.ingress, draft.egress, paths, switches)
    single = _names(live.network, live.single_path(spec.source, spec.target))
    if not single:
        return FlowPlan(spec, number, UNREACHABLE, draft.reason, None, None, ())
    return FlowPlan(spec, number, SINGLE, draft.reason, None, None, (PlannedPath(0, single, (), None),))


def _labels(fabric: Fabric, path: PathName, egress: str) -> tuple[int, ...]:
    """One label per hop between switches, then the egress agent's: the hop from or to a plain client has no label."""
    network, addressing = fabric.network, fabric.addressing
    links = [network.links[network.link_index[name]] for name in path]
    hops = [link.id for link in links if addressing.has_switch(link.source) and addressing.has_switch(link.target)]
    return (*(fabric.labels.link[name] for name in hops), fabric.labels.agent[egress])


def _switches(fabric: Fabric, paths: Iterable[PathName]) -> frozenset[str]:
    """Nodes with a switch on some paths."""
    network = fabric.network
    links = (network.links[network.link_index[name]] for path in paths for name in path)
    ends = (end for link in links for end in (link.source, link.target))
    return frozenset(end for end in ends if fabric.addressing.has_switch(end))


def _planned_mbps(flows: Mapping[str, FlowPlan]) -> dict[str, float]:
    planned: dict[str, float] = {}
    for flow in flows.values():
        for path in flow.paths:
            for link in path.links:
                planned[link] = planned.get(link, 0.0) + (path.rate_mbps or 0.0)
    return planned


def _classified(fabric: Fabric, plan: FlowPlan) -> ClassifiedFlow:
    """The rule of a flow; one that says more about a frame goes before one that says less."""
    spec, mac = plan.spec, fabric.addressing.host_mac
    match = Match(eth_src=mac[spec.source], eth_dst=mac[spec.target], **dict(spec.match))  # type: ignore[arg-type]
    # The number only orders flows whose matches overlap without one being narrower.
    precedence = len(spec.match) * PRECEDENCE_STEP + plan.number % PRECEDENCE_STEP
    return ClassifiedFlow(spec.id, plan.number, match, precedence)


def _agents(fabric: Fabric, flows: Mapping[str, FlowPlan], options: Options) -> dict[str, AgentConfig]:
    ingress: dict[str, dict[str, IngressFlow]] = {}
    egress: dict[str, dict[str, EgressFlow]] = {}
    for flow, plan in flows.items():
        if plan.mode != MULTIPATH or plan.ingress is None or plan.egress is None:
            continue
        paths = tuple(PathConfig(path.id, path.labels, path.rate_mbps, options.link_mtu) for path in plan.paths)
        entry = IngressFlow(plan.number, flow, plan.egress, options.queue_ms, paths, plan.spec.policy is Policy.PRIVATE)
        ingress.setdefault(plan.ingress, {})[flow] = entry
        ids = tuple(sorted(path.id for path in plan.paths))
        egress.setdefault(plan.egress, {})[flow] = EgressFlow(plan.number, flow, ids, options.max_hold_ms)
    hellos = hello_configs(fabric, options)
    return {node: AgentConfig(hello, ingress.get(node, {}), egress.get(node, {})) for node, hello in hellos.items()}


def hello_configs(fabric: Fabric, options: Options) -> dict[str, HelloConfig]:
    """Hello frames of every agent: sent on all its interfaces, expected on links from other agents."""
    addressing, network = fabric.addressing, fabric.network
    agents = [node for node in network.nodes if addressing.has_agent(node)]
    speakers = [sum(k in network.technologies_of[node] for node in agents) for k in network.technologies]
    scale = max(1.0, max(speakers, default=0) / HELLOS_AT_FULL_RATE)
    expect: dict[str, list[tuple[str, str]]] = {node: [] for node in agents}
    for link in network.links:
        if addressing.has_agent(link.source) and link.target in expect:
            expect[link.target].append((link.id, addressing.interface_mac[link.source, link.technology]))
    return {
        node: HelloConfig(
            interval_ms=round(options.hello_interval_ms * scale),
            dead_ms=round(options.hello_dead_ms * scale),
            send=tuple((k, fabric.labels.hello[node, k]) for k in addressing.technologies(node)),
            expect=tuple(expect[node]),
        )
        for node in agents
    }
