"""A plan: what every flow, agent and switch shall do now. Pure. ``plan_maker`` makes it from routes and rates.

New rates on the same routes are a small step: :meth:`Plan.with_rates`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hyroads.controller.agents.configs import AgentConfig, BranchFlow, HelloConfig, IngressFlow
from hyroads.controller.core.addressing import Numbers, PathName
from hyroads.controller.core.carrier_sensing_rule import audible
from hyroads.controller.core.mappings import patched
from hyroads.controller.core.network import FlowSpec
from hyroads.controller.ofp.intents import ClassifiedFlow

from .handover import Use, separate_links
from .state import TopologyContext

MULTIPATH, SINGLE, UNREACHABLE = "multipath", "single", "unreachable"

# So many interfaces that hear each other may say hello at the configured interval; more of them say it less often.
HELLOS_AT_FULL_RATE = 4
# Wires are not shared: hello frames cost the CPU of those who hear them, and no airtime.
WIRED_HELLOS_AT_FULL_RATE = 64
MAX_HELLO_INTERVAL_MS, MAX_HELLO_DEAD_MS = 60_000, 600_000
"""What agents take (docs/reference/dataplane.md, section 2)."""

Rates = Mapping[str, Sequence[float]]
"""Per multipath flow the rates of its paths in Mb/s, in the order of its route."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the settings say of planning."""

    queue_ms: int = 60
    max_hold_ms: int = 100
    burst_ms: int = 0
    hello_interval_ms: int = 40
    hello_dead_ms: int = 140


@dataclass(frozen=True, slots=True)
class PlannedPath:
    """A path of a flow: link ids, and the label stack that the ingress writes.

    Where copies branch on the way, it writes ``trunk`` instead, which leads to the first branch, or nothing for a path
    that is ``copied_from`` another (its id).
    """

    id: int
    links: PathName
    labels: tuple[int, ...]
    rate_mbps: float | None
    trunk: tuple[int, ...] = ()
    copied_from: int | None = None


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
    standby: tuple[PlannedPath, ...] = ()
    """Paths that both edges are configured for and that carry nothing."""
    branches: tuple[tuple[str, BranchFlow], ...] = ()
    """Agents at which copies branch, and what each does."""

    @property
    def known(self) -> tuple[PlannedPath, ...]:
        """All paths that both edges are configured for."""
        return self.paths + self.standby

    @property
    def rate_of(self) -> dict[int, float | None]:
        """Path id -> Mb/s."""
        return {path.id: path.rate_mbps for path in self.known}

    def with_rates(self, rates_mbps: Sequence[float]) -> FlowPlan:
        """With these rates of its paths; the same object if they are what it has."""
        if all(path.rate_mbps == rate for path, rate in zip(self.paths, rates_mbps, strict=True)):
            return self
        paths = (replace(path, rate_mbps=rate) for path, rate in zip(self.paths, rates_mbps, strict=True))
        return replace(self, paths=tuple(paths))

    @property
    def separate_links(self) -> tuple[PathName, ...]:
        """By path, the links that its frames travel for themselves: what copies share is with the first of them."""
        return separate_links(self.use, [path.links for path in self.paths])

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
    """Per multipath flow: the rule at its ingress; plans with the same rules at the same nodes share it."""
    numbers: Numbers
    fill: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    """Per flow that is probed: path id -> rate in Mb/s up to which padding fills the path."""
    structure: object = field(default_factory=object, compare=False, repr=False)
    """What plans have in common that differ in rates and padding alone."""

    def with_fill(self, fill: Mapping[str, Mapping[int, float]]) -> Plan:
        """With padding on other paths; ``fill`` is as in the field."""
        return replace(self, fill=fill)

    def with_rates(self, rates: Rates) -> Plan:
        """With other rates for some multipath flows; what is not about rates is shared."""
        flows: dict[str, FlowPlan] = {}
        touched: dict[str, dict[str, IngressFlow]] = {}
        for flow, new in rates.items():
            plan = self.flows[flow]
            if plan.ingress is None:
                continue
            flows[flow] = plan.with_rates(new)
            entry = self.agents[plan.ingress].ingress[flow]
            touched.setdefault(plan.ingress, {})[flow] = entry.with_rates(flows[flow].rate_of)
        agents = {node: self.agents[node].with_ingress(entries) for node, entries in touched.items()}
        return replace(self, flows=patched(self.flows, flows), agents=patched(self.agents, agents))

    def planned_mbps(self) -> dict[str, float]:
        """By link: the sum of the rates of the paths over it; what copies share counts once."""
        planned: dict[str, float] = {}
        for flow in self.flows.values():
            for path, links in zip(flow.paths, flow.separate_links, strict=True):
                for link in links:
                    planned[link] = planned.get(link, 0.0) + (path.rate_mbps or 0.0)
        return planned


def hello_configs(context: TopologyContext, options: Options) -> dict[str, HelloConfig]:
    """Hello frames of every agent: sent on all its interfaces, expected on links from other agents.

    An agent sends less often where many are heard: by as much as the most crowded of those who hear it needs. Whoever
    expects its frames waits accordingly.
    """
    addressing, network = context.addressing, context.network
    agents = [node for node in network.nodes if node in context.own_agents]
    scale = _hello_scales(context, options)
    expect: dict[str, list[tuple[str, str]]] = {node: [] for node in agents}
    patience = dict(scale)
    for link in network.links:
        if addressing.has_agent(link.source) and link.target in expect:
            expect[link.target].append((link.id, addressing.interface_mac[link.source, link.technology]))
            patience[link.target] = max(patience[link.target], scale[link.source])
    return {
        node: HelloConfig(
            interval_ms=round(options.hello_interval_ms * scale[node]),
            dead_ms=round(options.hello_dead_ms * patience[node]),
            send=tuple((k, context.labels.hello[node, k]) for k in addressing.technologies(node)),
            expect=tuple(expect[node]),
        )
        for node in agents
    }


def _hello_scales(context: TopologyContext, options: Options) -> dict[str, float]:
    """By how much each agent's hello frames are rarer than configured."""
    addressing, network = context.addressing, context.network
    heard = audible(network)
    speakers = {
        (node, k): [other for other in (node, *heard.get((node, k), ())) if addressing.has_agent(other)]
        for node in network.nodes
        if addressing.has_agent(node)
        for k in addressing.technologies(node)
    }
    most = min(MAX_HELLO_INTERVAL_MS / options.hello_interval_ms, MAX_HELLO_DEAD_MS / options.hello_dead_ms)
    scale = {node: 1.0 for node in network.nodes if addressing.has_agent(node)}
    for (node, k), others in speakers.items():
        crowd = max(len(speakers.get((other, k), ())) for other in others)
        full_rate = WIRED_HELLOS_AT_FULL_RATE if k in network.unshared else HELLOS_AT_FULL_RATE
        scale[node] = min(most, max(scale[node], crowd / full_rate))
    return scale
