"""Routes and rates -> plan: what every flow, agent and switch shall do now. Pure.

Routes (``control.routes``) say which paths flows have, rates (``control.loop``) what each carries. A plan puts both
into the words of agents and switches. New rates on the same routes are a small step: :meth:`Plan.with_rates`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hyroads.controller.agent_protocol import AgentConfig, EgressFlow, HelloConfig, IngressFlow, PathConfig
from hyroads.controller.control.handover import Use
from hyroads.controller.control.live_network import LiveNetwork
from hyroads.controller.control.routes import FlowRoute, Routes
from hyroads.controller.core.network import FlowSpec, Policy, Traffic
from hyroads.controller.numbering import Numbers, PathName
from hyroads.controller.ofp.intents import ClassifiedFlow
from hyroads.controller.ofp.match import Match
from hyroads.controller.state import Fabric

MULTIPATH, SINGLE, UNREACHABLE = "multipath", "single", "unreachable"

# So many interfaces of one medium may say hello at the configured interval; more of them say it less often.
HELLOS_AT_FULL_RATE = 4
PRECEDENCE_STEP = 1000

Rates = Mapping[str, Sequence[float]]
"""Per multipath flow the rates of its paths in Mb/s, in the order of its route."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the settings say of planning."""

    link_mtu: int = 1600
    queue_ms: int = 60
    max_hold_ms: int = 100
    burst_ms: int = 0
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
    use: Use | None = None
    """What the paths of a flow that was or is handed over are used for; None: they share its packets."""

    @property
    def copies(self) -> bool:
        """Whether each packet goes by all paths that have a rate."""
        return self.use is not None and self.use.copies

    @property
    def rate_mbps(self) -> float | None:
        """What all paths carry together, copies counted once; None if the flow is not shaped."""
        if self.mode != MULTIPATH:
            return None
        rates = [path.rate_mbps or 0.0 for path in self.paths]
        return max(rates, default=0.0) if self.copies else sum(rates)


@dataclass(frozen=True)
class Plan:
    """What all flows and agents shall do; ``version`` is that of the state it was made from."""

    version: int
    flows: Mapping[str, FlowPlan]
    agents: Mapping[str, AgentConfig]
    classified: Mapping[str, ClassifiedFlow]
    """Per multipath flow: the rule at its ingress."""
    numbers: Numbers
    fill: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    """Per flow that is probed: path id -> what dummies make up at least, Mb/s."""

    def with_fill(self, fill: Mapping[str, Mapping[int, float]]) -> Plan:
        """With other flows filled up."""
        return replace(self, fill=fill)

    def with_rates(self, rates: Rates) -> Plan:
        """With other rates for some multipath flows; what is not about rates is shared."""
        flows, agents = dict(self.flows), dict(self.agents)
        touched: dict[str, dict[str, IngressFlow]] = {}
        for flow, new in rates.items():
            plan = flows[flow]
            if plan.ingress is None:
                continue
            paths = tuple(replace(path, rate_mbps=rate) for path, rate in zip(plan.paths, new, strict=True))
            flows[flow] = replace(plan, paths=paths)
            entry = self.agents[plan.ingress].ingress[flow]
            configs = tuple(replace(path, rate_mbps=rate) for path, rate in zip(entry.paths, new, strict=True))
            touched.setdefault(plan.ingress, {})[flow] = replace(entry, paths=configs)
        for node, entries in touched.items():
            agents[node] = self.agents[node].with_ingress(entries)
        return replace(self, flows=flows, agents=agents)

    def planned_mbps(self) -> dict[str, float]:
        """By link: the sum of the rates of the paths over it."""
        planned: dict[str, float] = {}
        for flow in self.flows.values():
            for path in flow.paths:
                for link in path.links:
                    planned[link] = planned.get(link, 0.0) + (path.rate_mbps or 0.0)
        return planned


def make_plan(
    version: int, live: LiveNetwork, routes: Routes, rates: Rates, *, numbers: Numbers, options: Options
) -> Plan:
    """Plan all flows and agents; a flow without rates gets none (0) for now."""
    numbers = numbers.with_flows(routes)
    for flow, route in routes.items():
        numbers = numbers.with_paths(flow, route.paths) if route.paths else numbers
    flows = {flow: _flow(live, route, numbers, rates.get(flow, ())) for flow, route in routes.items()}
    return Plan(
        version=version,
        flows=flows,
        agents=_agents(live.fabric, flows, options),
        classified={flow: _classified(live.fabric, plan) for flow, plan in flows.items() if _takes_frames(plan)},
        numbers=numbers,
    )


def _flow(live: LiveNetwork, route: FlowRoute, numbers: Numbers, rates: Sequence[float]) -> FlowPlan:
    spec, number = route.spec, numbers.flows[route.spec.id]
    if route.reason is None and route.egress is not None:
        egress, ids = route.egress, numbers.paths[spec.id]
        shaped = zip(route.paths, rates or [0.0] * len(route.paths), strict=True)
        paths = tuple(PlannedPath(ids[path], path, _labels(live.fabric, path, egress), rate) for path, rate in shaped)
        switches = _switches(live.fabric, route.paths)
        return FlowPlan(spec, number, MULTIPATH, None, route.ingress, egress, paths, switches, route.use)
    single = tuple(live.network.links[link].id for link in live.single_path(spec.source, spec.target))
    if not single:
        return FlowPlan(spec, number, UNREACHABLE, route.reason, None, None, ())
    return FlowPlan(spec, number, SINGLE, route.reason, None, None, (PlannedPath(0, single, (), None),))


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


def _classified(fabric: Fabric, plan: FlowPlan) -> ClassifiedFlow:
    """The rule of a flow; one that says more about a frame goes before one that says less."""
    spec, mac = plan.spec, fabric.addressing.host_mac
    match = Match(eth_src=mac[spec.source], eth_dst=mac[spec.target], **dict(spec.match))  # type: ignore[arg-type]
    # The number only orders flows whose matches overlap without one being narrower.
    precedence = len(spec.match) * PRECEDENCE_STEP + plan.number % PRECEDENCE_STEP
    return ClassifiedFlow(spec.id, plan.number, match, precedence)


def _takes_frames(plan: FlowPlan) -> bool:
    """Whether frames of users go into a flow's multipath."""
    return plan.mode == MULTIPATH and plan.spec.traffic is not Traffic.DUMMIES


def _agents(fabric: Fabric, flows: Mapping[str, FlowPlan], options: Options) -> dict[str, AgentConfig]:
    ingress: dict[str, dict[str, IngressFlow]] = {}
    egress: dict[str, dict[str, EgressFlow]] = {}
    for flow, plan in flows.items():
        if plan.mode != MULTIPATH or plan.ingress is None or plan.egress is None:
            continue
        paths = tuple(PathConfig(path.id, path.labels, path.rate_mbps, options.link_mtu) for path in plan.paths)
        entry = IngressFlow(
            plan.number,
            flow,
            plan.egress,
            options.queue_ms,
            paths,
            plan.spec.policy is Policy.PRIVATE,
            plan.copies,
            options.burst_ms,
        )
        ingress.setdefault(plan.ingress, {})[flow] = entry
        egress.setdefault(plan.egress, {})[flow] = _egress(plan, options)
    hellos = hello_configs(fabric, options)
    return {node: AgentConfig(hello, ingress.get(node, {}), egress.get(node, {})) for node, hello in hellos.items()}


def _egress(plan: FlowPlan, options: Options) -> EgressFlow:
    """What the last edge of a flow does. While the flow moves it tells at once what comes by which path."""
    ids = tuple(path.id for path in plan.paths)
    # Waiting for the slower path would cost a latency flow what it is split for; only TCP needs the order. A flow that
    # moves needs it, for what it waits for.
    ordered = plan.spec.policy is not Policy.LATENCY or plan.spec.is_tcp
    common = (plan.number, plan.spec.id, tuple(sorted(ids)), options.max_hold_ms)
    use = plan.use
    if use is None:
        return EgressFlow(*common, ordered)
    return EgressFlow(
        *common,
        ordered or use.is_moving,
        held=tuple(sorted(ids[i] for i in use.waits)),
        hold_ms=use.hold_ms,
        watched=tuple(sorted(ids)) if use.is_moving else (),
        drop_late=True,
    )


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
