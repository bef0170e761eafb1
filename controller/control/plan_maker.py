"""Routes and rates -> plan, in the words of agents and switches. It remembers what it made last; no I/O.

Routes (``control.routes``) say which paths flows have, rates (``control.loop``) what each carries. What did not change
since the plan before is taken from there as it is: a handover concerns two agents out of many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hyroads.controller.agents.configs import (
    AgentConfig,
    BranchFlow,
    EgressFlow,
    HelloConfig,
    IngressFlow,
    MediaConfig,
    PathConfig,
)
from hyroads.controller.core.addressing import Numbers, PathName
from hyroads.controller.core.frame_sizes import LINK_MTU
from hyroads.controller.core.mappings import differing, in_order_of, patched
from hyroads.controller.core.ncast import Leg
from hyroads.controller.core.network import Policy, Traffic
from hyroads.controller.model import plan as model
from hyroads.controller.model.plan import MULTIPATH, FlowPlan, Plan
from hyroads.controller.model.state import TopologyContext
from hyroads.controller.ofp.intents import ClassifiedFlow
from hyroads.controller.ofp.match import Match

from .live_network import LiveNetwork
from .routes import FlowRoute, Routes

PRECEDENCE_STEP = 1000
Arriving = Mapping[str, Mapping[str, EgressFlow]]
"""By node: ends of other regions' segments, by name."""


class PlanMaker:
    """One per context."""

    def __init__(self, context: TopologyContext, options: model.Options) -> None:
        self._context = context
        self._options = options
        self._hellos = model.hello_configs(context, options)
        if context.view is not None:
            # What the agents there do besides is their own region's affair.
            silent = HelloConfig(options.hello_interval_ms, options.hello_dead_ms, (), ())
            self._hellos |= dict.fromkeys(context.view.far_ends & context.addressing.agents, silent)
        self._arrived: Arriving = {}
        """The ends of other regions' segments in the last plan."""
        self._made_of: Routes = {}
        """The routes of the last plan."""
        self._made_in: LiveNetwork | None = None
        self._made_with: model.Rates = {}
        """The rates of the last plan, as they were given."""
        self._link_mtu = LINK_MTU
        """Payload of links in bytes that plans count on."""
        self._rated: dict[str, Sequence[float]] = {}
        """Rates that the last plan got afterwards."""

    def rated(self, rates: model.Rates) -> None:
        """The last plan has other rates of some flows by now."""
        self._rated.update(rates)

    def plan(  # noqa: PLR0917 - all that a plan is made of
        self,
        version: int,
        live: LiveNetwork,
        routes: Routes,
        rates: model.Rates,
        numbers: Numbers,
        before: Plan | None,
        arriving: Arriving | None = None,
    ) -> Plan:
        """Plan all flows and agents; a flow without rates gets none (0) for now. ``before`` is what this gave last, or
        that with other rates. ``arriving`` are ends of other regions' segments.
        """
        is_resized, self._link_mtu = live.basis.link_mtu != self._link_mtu, live.basis.link_mtu
        changed = differing(self._made_of, routes) if before is not None and not is_resized else set(routes)
        # Other numbers than the last plan's were saved by another controller, perhaps before it had these paths.
        is_adopted = before is not None and numbers is not before.numbers
        looked_at = routes if is_adopted else changed
        known = {flow: routes[flow].known for flow in looked_at if flow in routes and routes[flow].paths}
        renumbered = numbers.with_flows(routes, self._context.numbers, looked_at if before is not None else None)
        numbers = renumbered.with_paths(known)
        last = before.flows if before is not None else {}
        asked = changed | self._rated_otherwise(rates)
        if live is not self._made_in:
            asked |= {flow for flow, plan in last.items() if plan.mode != MULTIPATH}
        if before is None or before.numbers.flows is not renumbered.flows:
            asked |= differing(before.numbers.flows, renumbered.flows) if before is not None else set()
        if is_adopted:
            asked |= {flow for flow, plan in last.items() if numbers.flows.get(flow) != plan.number}
        if before is not None and is_adopted:
            asked |= {flow for flow in last if numbers.paths.get(flow) != before.numbers.paths.get(flow)}
        made = {
            flow: self._flow(live, routes[flow], numbers, rates.get(flow, ()), None if is_resized else last.get(flow))
            for flow in asked & routes.keys()
        }
        flows = in_order_of(routes, last, asked, made)
        changed_plans = differing(last, flows) if not is_resized else {*last, *flows}
        agents = self._agents(flows, changed_plans, before, arriving or {})
        classified = self._classified(flows, changed_plans, before)
        self._made_of, self._made_in, self._made_with, self._rated = routes, live, rates, {}
        return Plan(version, flows, agents, classified, numbers)

    def _rated_otherwise(self, rates: model.Rates) -> set[str]:
        """Flows of which the last plan may have other rates than these."""
        made_with, rated = self._made_with, self._rated
        asked = differing(made_with, rates) | rated.keys()
        return {flow for flow in asked if rates.get(flow) != rated.get(flow, made_with.get(flow))}

    def _classified(
        self, flows: Mapping[str, FlowPlan], changed: Iterable[str], before: Plan | None
    ) -> Mapping[str, ClassifiedFlow]:
        """The very mapping of before, if it is to be the same at the same nodes."""
        last: Mapping[str, ClassifiedFlow] = before.classified if before is not None else {}
        made: dict[str, ClassifiedFlow | None] = {}
        alike = True
        for flow in changed:
            plan, old = flows.get(flow), before.flows.get(flow) if before is not None else None
            taken = plan if plan is not None and _is_taken(plan) else None
            if taken is not None and old is not None and flow in last and _is_taken_alike(old, taken):
                continue
            if taken is not None or flow in last:
                made[flow] = None if taken is None else _classified(self._context, taken)
                alike = False
        if before is not None and alike:
            return last
        there = {flow: classified for flow, classified in made.items() if classified is not None}
        return patched(last, there, made.keys() - there.keys())

    def _flow(
        self, live: LiveNetwork, route: FlowRoute, numbers: Numbers, rates: Sequence[float], last: FlowPlan | None
    ) -> FlowPlan:
        spec, number = route.spec, numbers.flows[route.spec.id]
        if route.reason is None and route.egress is not None:
            rates = rates or [0.0] * len(route.paths)
            ids = numbers.paths[spec.id]
            if last is not None and self._made_of.get(spec.id) is route and _has(last, number, ids):
                return last.with_rates(rates)
            return self._multipath(route, route.egress, number, ids).with_rates(rates)
        if last is not None and self._made_in is live and self._made_of.get(spec.id) is route and last.number == number:
            return last
        single = tuple(live.network.links[link].id for link in live.single_path(spec.source, spec.target))
        mode = model.SINGLE if single else model.UNREACHABLE
        paths = (model.PlannedPath(0, single, (), None),) if single else ()
        made = FlowPlan(spec, number, mode, route.reason, None, None, paths)
        return last if last is not None and last == made else made

    def _multipath(self, route: FlowRoute, egress: str, number: int, ids: Mapping[PathName, int]) -> FlowPlan:
        def planned(paths: Iterable[PathName]) -> tuple[model.PlannedPath, ...]:
            return tuple(
                model.PlannedPath(ids[path], path, _labels(self._context, path, egress), 0.0) for path in paths
            )

        paths, standby, spec = planned(route.paths), planned(route.standby), route.spec
        branches: tuple[tuple[str, BranchFlow], ...] = ()
        if route.use is not None and route.use.legs:
            branching = _Branching(self._context, paths, egress, self._link_mtu)
            paths = branching.sent(route.use.legs)
            branches = tuple(branching.branches(number, spec.id, route.use.legs))
            sealers = (route.ingress or "", egress, *(node for node, _ in branches))
            branches = tuple((node, replace(branch, sealers=sealers)) for node, branch in branches)
        switches = _switches(self._context, route.paths)
        ends = route.ingress, egress
        return FlowPlan(spec, number, MULTIPATH, None, *ends, paths, switches, route.use, standby, branches)

    def _agents(
        self, flows: Mapping[str, FlowPlan], changed: Iterable[str], before: Plan | None, arriving: Arriving
    ) -> Mapping[str, AgentConfig]:
        """Of agents that no changed flow concerns, what they had."""
        touched: dict[str, _Sides] = {}
        known = before.agents if before is not None else {}

        def sides(node: str) -> _Sides:
            if node not in touched:
                touched[node] = _Sides.of(known.get(node))
            return touched[node]

        for flow in changed:
            old, plan = before.flows.get(flow) if before is not None else None, flows.get(flow)
            if old is not None:
                for node in _nodes(old):
                    sides(node).leave(old)
            if plan is not None and plan.mode == MULTIPATH and plan.ingress is not None and plan.egress is not None:
                sides(plan.ingress).ingress[flow] = _ingress(plan, self._options, self._link_mtu)
                sides(plan.egress).egress[flow] = _egress(plan, self._options)
                for node, copying in plan.branches:
                    sides(node).branch[copying.key] = copying
        arrived = self._arrived if before is not None else {}
        for node in differing(arrived, arriving):
            egress = sides(node).egress
            for flow in arrived.get(node, ()):
                egress.pop(flow, None)
        self._arrived = arriving
        agents = {}
        for node in self._hellos:
            media = self._media(node)
            if node not in touched and node in known and known[node].media == media:
                continue
            of = sides(node)
            # The rest of such a flow, which begins here, has the same name.
            egress = {**of.egress, **arriving.get(node, {})}
            agents[node] = AgentConfig(self._hellos[node], of.ingress, egress, of.branch, media).like(known.get(node))
        return patched(known, agents)

    def _media(self, node: str) -> MediaConfig | None:
        ports = self._context.link_ports.get(node)
        return None if ports is None else MediaConfig(ports, self._link_mtu)


@dataclass
class _Sides:
    """The flows of an agent."""

    ingress: dict[str, IngressFlow]
    egress: dict[str, EgressFlow]
    branch: dict[tuple[str, int], BranchFlow]

    @classmethod
    def of(cls, config: AgentConfig | None) -> _Sides:
        """As a configuration has them."""
        if config is None:
            return cls({}, {}, {})
        return cls(dict(config.ingress), dict(config.egress), dict(config.branch))

    def leave(self, plan: FlowPlan) -> None:
        """Without a flow."""
        self.ingress.pop(plan.spec.id, None)
        self.egress.pop(plan.spec.id, None)
        for _, copying in plan.branches:
            self.branch.pop(copying.key, None)


def _nodes(plan: FlowPlan) -> set[str]:
    """Whose agents have something of a multipath."""
    ends = (node for node in (plan.ingress, plan.egress) if node is not None)
    return {*ends, *(node for node, _ in plan.branches)} if plan.mode == MULTIPATH else set()


def _is_taken(plan: FlowPlan) -> bool:
    """Whether a switch hands its frames to an agent."""
    return plan.mode == MULTIPATH and plan.spec.traffic is not Traffic.PROBE


def _has(plan: FlowPlan, number: int, ids: Mapping[PathName, int]) -> bool:
    """Whether a flow and its paths have these numbers."""
    same_ids = all(ids[path.links] == path.id for path in plan.known)
    return plan.mode == MULTIPATH and plan.number == number and same_ids


def _labels(context: TopologyContext, path: PathName, egress: str) -> tuple[int, ...]:
    """One label per hop between switches, then the egress agent's: the hop from or to a plain client has no label."""
    network, addressing = context.network, context.addressing
    links = [network.links[network.link_index[name]] for name in path]
    hops = [link.id for link in links if addressing.has_switch(link.source) and addressing.has_switch(link.target)]
    return (*(context.labels.link[name] for name in hops), context.labels.agent[egress])


@dataclass(frozen=True)
class _Branching:
    """What copies that share links are in the words of agents: label stacks that end at the next agent."""

    context: TopologyContext
    paths: Sequence[model.PlannedPath]
    egress: str
    mtu: int

    def sent(self, legs: Sequence[Leg]) -> tuple[model.PlannedPath, ...]:
        """The paths of the flow as the first edge sends them."""
        found = list(self.paths)
        for leg in legs:
            found[leg.path] = replace(found[leg.path], trunk=self._labels(leg))
            for other in {each.path for each in leg.all()} - {leg.path}:
                found[other] = replace(found[other], copied_from=self.paths[leg.path].id)
        return tuple(found)

    def branches(self, number: int, flow: str, legs: Sequence[Leg]) -> Iterator[tuple[str, BranchFlow]]:
        """The agents at which these legs and those behind them part."""
        for leg in legs:
            if leg.onward:
                copies = tuple(PathConfig(self._id(each), self._labels(each), None, self.mtu) for each in leg.onward)
                yield self._end(leg), BranchFlow(number, flow, self._id(leg), copies)
                yield from self.branches(number, flow, leg.onward)

    def _id(self, leg: Leg) -> int:
        return self.paths[leg.path].id

    def _labels(self, leg: Leg) -> tuple[int, ...]:
        links = self.paths[leg.path].links[leg.start : leg.end]
        return _labels(self.context, links, self._end(leg))

    def _end(self, leg: Leg) -> str:
        network, links = self.context.network, self.paths[leg.path].links
        return network.links[network.link_index[links[leg.end - 1]]].target if leg.onward else self.egress


def _switches(context: TopologyContext, paths: Iterable[PathName]) -> frozenset[str]:
    """Nodes on some paths whose switches are ours."""
    network = context.network
    links = (network.links[network.link_index[name]] for path in paths for name in path)
    ends = (end for link in links for end in (link.source, link.target))
    return frozenset(end for end in ends if context.addressing.has_switch(end) and end in context.own)


def _classified(context: TopologyContext, plan: FlowPlan) -> ClassifiedFlow:
    """The rule of a flow; one that says more about a frame goes before one that says less."""
    spec, mac = plan.spec, context.addressing.host_mac
    match = Match(**{"eth_src": mac[spec.source], "eth_dst": mac[spec.target], **spec.match})  # type: ignore[arg-type]
    # The number only orders flows whose matches overlap without one being narrower.
    precedence = len(spec.match) * PRECEDENCE_STEP + plan.number % PRECEDENCE_STEP
    return ClassifiedFlow(spec.id, plan.number, match, precedence)


def _is_taken_alike(old: FlowPlan, new: FlowPlan) -> bool:
    """Whether the same frames go into the same multipath at the same node."""
    return old.spec == new.spec and old.number == new.number and old.ingress == new.ingress


def _ingress(plan: FlowPlan, options: model.Options, link_mtu: int) -> IngressFlow:
    """What the first edge of a flow does; links carry ``link_mtu`` bytes of payload."""
    # Where paths change places between those in use and those that stand by, the configuration stays the same.
    known = plan.paths if plan.use is None else sorted(plan.known, key=lambda path: path.id)
    return IngressFlow(
        plan.number,
        plan.spec.id,
        plan.egress or "",
        options.queue_ms,
        tuple(
            PathConfig(path.id, path.labels, path.rate_mbps, link_mtu, path.trunk, path.copied_from) for path in known
        ),
        plan.spec.split if plan.spec.policy is Policy.PRIVATE else None,
        plan.copies,
        options.burst_ms,
        plan.branches,
    )


def _egress(plan: FlowPlan, options: model.Options) -> EgressFlow:
    """What the last edge of a flow does. While the flow moves it tells at once what comes by which path."""
    ids = tuple(path.id for path in plan.paths)
    # Waiting for the slower path would cost a latency flow what it is split for; only TCP needs the order. A flow that
    # moves needs it, for what it waits for.
    ordered = plan.spec.policy is not Policy.LATENCY or plan.spec.is_tcp
    common = (plan.number, plan.spec.id, tuple(sorted(path.id for path in plan.known)), options.max_hold_ms)
    use = plan.use
    sealers = (plan.ingress or "", plan.egress or "", *(node for node, _ in plan.branches))
    if use is None:
        return EgressFlow(*common, ordered, sealers=sealers)
    return EgressFlow(
        *common,
        ordered or use.is_moving,
        held=tuple(sorted(ids[i] for i in use.waits)),
        hold_ms=use.hold_ms,
        watched=tuple(sorted(ids)) if use.is_moving else (),
        drop_late=True,
        sealers=sealers,
    )
