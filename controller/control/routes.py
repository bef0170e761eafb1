"""Which way every flow goes: its edges and its paths, without rates. Pure.

A flow is a *multipath* while the agents at both its edges can be used and a path is live; otherwise its frames follow
the single path of plain rules, which needs no agent. Paths are the declared ones that live, or the best branch of the
exploration tree (Henri, EPFL thesis 9056, 2018, chapter 2), or, for a flow with a bandit, those of all its arms.

Routes change in two steps, so that a cut link is answered at once: :func:`make_routes` only takes away what is dead and
plans flows that have nothing left (or are new); :func:`improved` then moves the flows for which a change is worth it.

Handovers constrain the ends of flows to places. Paths by the other places of the client stand by: both edges are
configured for them, and nothing is sent there, so that a handover to such a place is one message to the first edge.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations

from hyroads.controller.core.addressing import PathName
from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.infer.change import Carried, Change, ChangeSettings, affected_flows, minimal_replan
from hyroads.controller.core.interface_graph import Path
from hyroads.controller.core.network import FlowSpec, Network, Place, Policy, Traffic
from hyroads.controller.core.tree import path_rate, update
from hyroads.controller.model import handover as model
from hyroads.controller.model.handover import Constrained, Ends, PathConstraint
from hyroads.controller.model.state import State

from . import group_routes
from .group_routes import Member, Since
from .live_network import LiveNetwork, costly_first, two_networks

# An edge is configured for no more paths of a flow because of those that stand by (agents take 32).
MOST_PATHS = 16


def constrained_paths(live: LiveNetwork, spec: FlowSpec, ends: Ends, known: Iterable[PathName]) -> tuple[PathName, ...]:
    """Paths through every constraint: those that are known there and that live, else the best ones; none if there are
    none in any (the place is gone).
    """
    paths: dict[PathName, None] = {}
    for constraint in ends.constraints():
        remaining = tuple(path for path in known if constraint.has(live.network, path) and lives(live, path))
        paths |= dict.fromkeys(remaining or _through(live, spec, constraint))
    return tuple(paths)


def standing_by(
    live: LiveNetwork, ends: Ends, paths: Sequence[PathName], known: Iterable[PathName]
) -> tuple[PathName, ...]:
    """Of known paths those that live and lead by other places than those in use, the latest first."""
    if ends.is_of_paths:
        return ()
    constraints = ends.constraints()
    here = {path for path in known if any(constraint.has(live.network, path) for constraint in constraints)}
    others = (path for path in known if path not in here and path not in paths and lives(live, path))
    return _some(others, paths)


def filled(
    live: LiveNetwork, spec: FlowSpec, ends: Ends, paths: Sequence[PathName], standby: Sequence[PathName]
) -> tuple[PathName, ...]:
    """With the best paths by places where a client is and by which none stands by."""
    found = dict.fromkeys(standby)
    for constraint in _elsewhere(live, spec, ends):
        if not any(constraint.has(live.network, path) for path in found):
            found |= dict.fromkeys(path for path in _through(live, spec, constraint) if path not in paths)
    return _some(found, paths)


def lives(live: LiveNetwork, path: PathName) -> bool:
    """Whether all its links do."""
    return all(map(live.lives, path))


def named(network: Network, paths: Iterable[Path]) -> tuple[PathName, ...]:
    """Link ids instead of positions."""
    return tuple(tuple(network.links[link].id for link in path) for path in paths)


def _some(standby: Iterable[PathName], paths: Sequence[PathName]) -> tuple[PathName, ...]:
    return tuple(standby)[: max(0, MOST_PATHS - len(paths))]


def _elsewhere(live: LiveNetwork, spec: FlowSpec, ends: Ends) -> list[PathConstraint]:
    """The constraints with one end at another place, where its client is now."""
    here = ends.constraints()
    sources = _others(ends.source, live.departures, spec.source)
    targets = _others(ends.target, live.arrivals, spec.target)
    first = (replace(constraint, first=place) for constraint in here for place in sources)
    last = (replace(constraint, last=place) for constraint in here for place in targets)
    return list(dict.fromkeys((*first, *last)))


def _others(end: Constrained | None, places: Mapping[str, tuple[Place, ...]], node: str) -> list[Place]:
    if end is None or end.is_of_paths:
        return []
    return [place for place in places.get(node, ()) if place not in end.known]


def _through(live: LiveNetwork, spec: FlowSpec, constraint: PathConstraint) -> tuple[PathName, ...]:
    """The best paths through a constraint: declared ones if any leads there."""
    network = live.network
    if constraint.path is not None:
        return (constraint.path,) if lives(live, constraint.path) else ()
    declared = tuple(path for path in spec.paths if constraint.has(network, path) and lives(live, path))
    closed = constraint.closed(network, spec.source, spec.target)
    return declared or named(network, live.through(spec.source, spec.target, closed))


# The order in which paths are loaded matters for what a multipath carries; for more paths only the given one is tried.
_MAX_ORDERED = 3
# A latency flow chooses between so many.
TECHNOLOGIES = 2
DEFAULTS = ChangeSettings()


@dataclass(frozen=True, slots=True)
class FlowRoute:
    """A flow's edges and paths, as link ids. ``reason`` says why it can't be a multipath; then it has no paths.

    ``arms`` are the multipaths that a bandit may use, as indices into ``paths``, the planner's best first; empty for
    a flow without a bandit. ``ends`` says what the flow's ends are constrained to by handovers, ``use`` what follows
    from that for its paths; None: all paths are used. Paths that stand by are configured and have no part in anything
    else.
    """

    spec: FlowSpec
    ingress: str | None
    egress: str | None
    paths: tuple[PathName, ...] = ()
    arms: tuple[tuple[int, ...], ...] = ()
    reason: str | None = None
    ends: Ends = model.NOWHERE
    use: model.Use | None = None
    standby: tuple[PathName, ...] = ()

    @property
    def known(self) -> tuple[PathName, ...]:
        """All paths that its edges are configured for."""
        return self.paths + self.standby

    def is_alike(self, other: FlowRoute) -> bool:
        """Whether another route of the flow goes the same ways."""
        return self.paths == other.paths and self.arms == other.arms

    @property
    def path_groups(self) -> model.PathGroups:
        """How rates are given to its paths."""
        return model.path_groups(self.use, len(self.paths))


Routes = Mapping[str, FlowRoute]
PathsAndArms = tuple[tuple[PathName, ...], tuple[tuple[int, ...], ...]]
"""As in :class:`FlowRoute`."""


def make_routes(
    state: State, live: LiveNetwork, before: Routes | None = None, *, same_network: bool = False
) -> dict[str, FlowRoute]:
    """Routes of all declared flows; a flow of ``before`` keeps its paths while one of them lives. With ``same_network``
    those were made for this very network: only what is asked of flows may differ.
    """
    before = before or {}
    routes: dict[str, FlowRoute] = {}
    taken: dict[tuple[object, ...], str] = {}
    edges = Edges(state, live)
    for flow, declared in state.flows.items():
        key = frames_of(declared.spec)
        route = route_of(edges, declared.spec, before.get(flow), same_network=same_network, twin=taken.get(key))
        routes[flow] = route
        if route.reason is None and declared.spec.traffic is not Traffic.PROBE:
            taken.setdefault(key, flow)
    return _with_groups(live, routes, before)


def warm(
    live: LiveNetwork, alone: Iterable[FlowSpec], planned: Iterable[FlowSpec], let_others: Callable[[], object]
) -> None:
    """Works out what :func:`make_routes` and the plan will ask of a network, which it then remembers: single paths of
    some flows, and the paths that others get. ``let_others`` is called before each flow, as in :func:`improved`.
    """
    with suppress(HyroadsError):
        # Whoever asks for it gets the same error.
        live.planner  # noqa: B018 - cached
        live.intents  # noqa: B018
        for spec in alone:
            let_others()
            live.single_path(spec.source, spec.target)
        for spec in planned:
            let_others()
            _paths(live, spec)


def is_warm(live: LiveNetwork, alone: Iterable[FlowSpec], planned: Iterable[FlowSpec]) -> bool:
    """Whether a network remembers all that :func:`warm` would work out."""
    usual = all(
        not (spec.paths or spec.policy.learns or spec.policy in {Policy.PRIVATE, Policy.LATENCY}) for spec in planned
    )
    both = ((spec, is_alone) for specs, is_alone in ((alone, True), (planned, False)) for spec in specs)
    return usual and all(live.remembers(spec.source, spec.target, alone=is_alone) for spec, is_alone in both)


def asked(
    live: LiveNetwork, specs: Iterable[FlowSpec], known: Routes, taken: Container[tuple[object, ...]] = ()
) -> tuple[list[FlowSpec], list[FlowSpec]]:
    """Of some flows those that need a single path, and those that have to be planned in a network. ``known`` are routes
    of before, ``taken`` what other multipaths take of what :func:`frames_of` tells.
    """
    alone: list[FlowSpec] = []
    planned: list[FlowSpec] = []
    seen: set[tuple[object, ...]] = set()
    for spec in specs:
        frames, before = frames_of(spec), known.get(spec.id)
        is_taken = frames in seen or frames in taken if before is None else before.reason is not None
        if spec.policy is Policy.SINGLE or is_taken:
            alone.append(spec)
        elif before is None or _unchanged(live, spec, before) is None:
            planned.append(spec)
        seen.add(frames)
    return alone, planned


def improved(
    routes: Routes,
    live: LiveNetwork,
    changes: Iterable[Change],
    settings: ChangeSettings = DEFAULTS,
    *,
    let_others: Callable[[], object] = lambda: None,
) -> dict[str, FlowRoute]:
    """Routes after significant changes of capacity: only flows that a change affects may differ, and only for a gain.

    Flows with declared paths get all that live, those with bandits all arms of the changed network. ``let_others`` is
    called before each flow is planned: in a thread it may wait there for who has more urgent work.
    """
    network = live.network
    multipaths = {flow: route for flow, route in routes.items() if route.reason is None}
    carried = {flow: Carried(each.spec.source, each.spec.target, each.paths) for flow, each in multipaths.items()}
    affected = affected_flows(network, carried, changes, settings)
    # Flows that are handed over are left alone until they are settled, then planned inside their constraints.
    constrained = [flow for flow in affected if routes[flow].ends]
    result, groups = dict(routes), _groups(live, routes, routes)
    grouped = {flow for members in groups.values() for flow in members if _is_chosen_together(routes[flow])}
    for members in groups.values():
        better = group_routes.gained(network, members, affected, live.apart, settings.gain)
        result |= {flow: replace(routes[flow], paths=paths) for flow, paths in better.items() if paths}
    affected = tuple(flow for flow in affected if flow not in constrained and flow not in grouped)
    planned = [flow for flow in affected if _is_planned(routes[flow].spec)]
    moved: dict[str, tuple[PathName, ...]] = {}
    for way, for_latency in ((live.multipath, False), (live.latency_paths, True)):
        flows = [flow for flow in planned if (routes[flow].spec.policy is Policy.LATENCY) is for_latency]
        moved |= minimal_replan(
            network,
            {flow: carried[flow] for flow in flows},
            flows,
            plan=partial(_plan, network, way, let_others),
            value=partial(multipath_mbps, network),
            settings=settings,
        )
    for flow in affected:
        paths, arms = (moved[flow], ()) if flow in moved else _paths(live, routes[flow].spec)
        if paths:
            result[flow] = replace(routes[flow], paths=paths, arms=arms)
    result |= {flow: _replanned(live, routes[flow]) for flow in constrained}
    return result


def _replanned(live: LiveNetwork, route: FlowRoute) -> FlowRoute:
    """A constrained flow in the changed network, if that brings enough."""
    if route.ends.is_moving:
        return route
    paths = constrained_paths(live, route.spec, route.ends, ()) or _paths(live, route.spec)[0]
    before, after = (multipath_mbps(live.network, each) for each in (route.paths, paths))
    if after <= (1 + DEFAULTS.gain) * before:
        return route
    standby = standing_by(live, route.ends, paths, route.known)
    return _using(live, replace(route, paths=paths, standby=standby))


def rested(routes: Routes, live: LiveNetwork, moved: Collection[str]) -> dict[str, FlowRoute]:
    """Routes with paths that stand by for the flows that are constrained and not on their way. Those that have just
    ``moved`` took what stood by, and get something better if there is.
    """
    result = dict(routes)
    for flow, route in routes.items():
        if route.reason is not None or not route.ends or route.ends.is_moving:
            continue
        better = _replanned(live, route) if flow in moved else route
        standby = filled(live, better.spec, better.ends, better.paths, better.standby)
        result[flow] = better if standby == better.standby else replace(better, standby=standby)
    return result


def multipath_mbps(network: Network, paths: Sequence[PathName]) -> float:
    """What paths carry when they are loaded one after the other, in the best order (Henri 2018, chapter 2)."""
    indices = [tuple(network.link_index[link] for link in path) for path in paths]
    orders = permutations(indices) if len(indices) <= _MAX_ORDERED else [tuple(indices)]
    return max((_loaded_mbps(network, order) for order in orders), default=0.0)


def _loaded_mbps(network: Network, paths: Sequence[Path]) -> float:
    capacities, total = network.capacities, 0.0
    for path in paths:
        if all(capacities[link] > 0 for link in path):
            total += path_rate(network.interference, capacities, path)
            capacities = update(network.interference, capacities, path)
    return total


def _plan(
    network: Network,
    way: Callable[[str, str], tuple[Path, ...]],
    let_others: Callable[[], object],
    source: str,
    target: str,
) -> tuple[PathName, ...]:
    let_others()
    return named(network, way(source, target))


def _is_planned(spec: FlowSpec) -> bool:
    """Whether the planner alone chooses one multipath, or one path per technology (for latency)."""
    return not spec.paths and spec.policy is not Policy.PRIVATE and not spec.policy.learns


def _groups(live: LiveNetwork, routes: Routes, before: Routes) -> dict[str, dict[str, Member]]:
    """The groups of at least two multipath flows: name -> flow id -> member."""
    found: dict[str, dict[str, Member]] = {}
    for flow, route in routes.items():
        if route.spec.group is not None and route.reason is None:
            paths = tuple(path for path in route.paths if lives(live, path))
            member = Member(route.spec.source, route.spec.target, paths, _since(route, before.get(flow)))
            found.setdefault(route.spec.group, {})[flow] = member
    return {group: members for group, members in found.items() if len(members) > 1}


def _is_chosen_together(route: FlowRoute) -> bool:
    """Whether a group's flow gets its paths with the others of its group."""
    return _is_planned(route.spec) and route.spec.policy is not Policy.LATENCY and not route.ends


def _since(route: FlowRoute, before: FlowRoute | None) -> Since:
    if not _is_chosen_together(route):
        return Since.FIXED
    if before is None or before.reason is not None or before.spec != route.spec:
        return Since.NEW
    return Since.BEFORE if set(route.paths) <= set(before.paths) else Since.LOST


def _with_groups(live: LiveNetwork, routes: dict[str, FlowRoute], before: Routes) -> dict[str, FlowRoute]:
    """Routes in which new flows of groups, and those that lost their paths, go around the others of their group."""
    result = dict(routes)
    for members in _groups(live, routes, before).values():
        paths = group_routes.joined(live.network, members, live.apart, DEFAULTS.gain)
        changed = {flow: found for flow, found in paths.items() if found and found != members[flow].paths}
        result |= {flow: replace(routes[flow], paths=found) for flow, found in changed.items()}
    return result


def frames_of(spec: FlowSpec) -> tuple[object, ...]:
    """What tells the frames of a flow from others: of flows with the same ends and match only the first has any."""
    return spec.source, spec.target, tuple(sorted(spec.match.items())) if spec.match else ()


class Edges:
    """The edges of flows in a state; what holds for a node is found out once, for all flows."""

    def __init__(self, state: State, live: LiveNetwork) -> None:
        self.state = state
        self.live = live
        self._found: dict[str, tuple[str | None, str | None]] = {}

    def of(self, node: str) -> tuple[str | None, str | None]:
        """The edge of flows from or to a node, None if it is not attached, and why its agent can't be used now."""
        found = self._found.get(node)
        if found is None:
            edge = _edge(self.live, node)
            fault = f"{node} is not attached anywhere" if edge is None else None
            found = self._found[node] = edge, fault or self.state.agent_fault(self.live.context, edge or node)
        return found


def route_of(
    edges: Edges, spec: FlowSpec, before: FlowRoute | None, *, same_network: bool, twin: str | None
) -> FlowRoute:
    """The route of a flow; ``twin`` is an earlier flow that takes all its frames, if there is one."""
    live = edges.live
    (ingress, fault), (egress, far_fault) = edges.of(spec.source), edges.of(spec.target)
    reason = _obstacle(spec, ingress, egress, fault or far_fault)
    if reason is None and twin is not None and spec.traffic is not Traffic.PROBE:
        reason = same_frames(twin)
    if reason is not None:
        fresh = FlowRoute(spec, ingress, egress, reason=reason)
        return before if before == fresh else fresh
    constrained = edges.state.constrained
    ends = model.ends_of(spec, constrained) if spec.policy is not Policy.PRIVATE else model.NOWHERE
    fresh = FlowRoute(spec, ingress, egress, ends=ends)
    if before is not None and _is_asked_alike(before, fresh) and (same_network or (ends and _stays(live, before))):
        return before
    if ends:
        return _constrained(live, fresh, before)
    remaining = None if before is None or before.ends else _unchanged(live, spec, before)
    paths, arms = remaining or _paths(live, spec)
    made = FlowRoute(spec, ingress, egress, paths, arms, None if paths else _no_path(spec))
    return before if before is not None and before == made else made


def same_frames(twin: str | None) -> str:
    """Why a flow is no multipath whose frames an earlier flow takes."""
    return f"flow {twin} matches the same frames"


def _constrained(live: LiveNetwork, route: FlowRoute, before: FlowRoute | None) -> FlowRoute:
    """A constrained flow's route: what it had, as far as that lives. Without a path in any constraint it takes what
    there is.
    """
    spec, ends, fresh = route.spec, route.ends, before is None or before.spec != route.spec or not before.paths
    known = () if before is None or fresh else before.known
    paths = constrained_paths(live, spec, ends, known) or _paths(live, spec)[0]
    if not paths:
        return replace(route, reason=_no_path(spec))
    # What is to stand by is worked out at the start; later on that is not urgent (see ``rested``).
    standby = filled(live, spec, ends, paths, ()) if fresh else standing_by(live, ends, paths, known)
    return _using(live, replace(route, paths=paths, standby=standby))


def _is_asked_alike(before: FlowRoute, now: FlowRoute) -> bool:
    """Whether a flow that is a multipath shall be the same between the same edges, within the same bounds."""
    if before.reason is not None or before.ends != now.ends or before.spec != now.spec:
        return False
    return (before.ingress, before.egress) == (now.ingress, now.egress)


def _stays(live: LiveNetwork, before: FlowRoute) -> bool:
    """Whether a constrained flow has all that it can have: a live path in every constraint, and none that is dead."""
    has = [constraint.has for constraint in before.ends.constraints()]
    in_all = all(any(leads(live.network, path) for path in before.paths) for leads in has)
    return in_all and all(lives(live, path) for path in before.known)


def _using(live: LiveNetwork, route: FlowRoute) -> FlowRoute:
    network, addressing = live.network, live.context.addressing
    ends = {route.spec.source, route.spec.target, route.ingress, route.egress}

    def may_branch(node: str) -> bool:
        # A link lives only while the agents at its ends say hello: where a live path leads through, one runs.
        return addressing.has_agent(node) and node not in ends

    return replace(route, use=model.Use.of(network, route.paths, route.ends, may_branch))


def _unchanged(live: LiveNetwork, spec: FlowSpec, before: FlowRoute) -> PathsAndArms | None:
    """What is left of a flow's paths and arms; None if it has to be planned."""
    if before.spec != spec or spec.paths:
        return None
    alive = [lives(live, path) for path in before.paths]
    if not any(alive) or (spec.policy is Policy.PRIVATE and not all(alive)):
        return None
    if spec.policy is Policy.LATENCY and sum(alive) < TECHNOLOGIES:
        # A technology that comes back is of use even if it is the slower one by far.
        return None
    place = {old: new for new, old in enumerate(index for index, is_alive in enumerate(alive) if is_alive)}
    arms = tuple(tuple(place[i] for i in arm) for arm in before.arms if all(alive[i] for i in arm))
    if before.arms and not arms:
        return None
    return tuple(before.paths[index] for index in place), arms


def _paths(live: LiveNetwork, spec: FlowSpec) -> PathsAndArms:
    """The paths of a flow in the live network, and its arms."""
    network, private = live.network, spec.policy is Policy.PRIVATE
    if spec.paths:
        usable = tuple(path for path in spec.paths if lives(live, path))
        if private:
            index = network.link_index
            usable = named(network, two_networks(network, [tuple(index[link] for link in path) for path in usable]))
        return usable, ()
    if private:
        pair = live.private_paths(spec.source, spec.target)
        return named(network, pair if spec.split.cost_share is None else costly_first(network, pair)), ()
    if spec.policy is Policy.LATENCY:
        return named(network, live.latency_paths(spec.source, spec.target)), ()
    if not spec.policy.learns:
        return named(network, live.multipath(spec.source, spec.target)), ()
    arms = live.arms(spec.source, spec.target)
    union = tuple(dict.fromkeys(path for arm in arms for path in arm))
    return named(network, union), tuple(tuple(union.index(path) for path in arm) for arm in arms if arm)


def _no_path(spec: FlowSpec) -> str:
    if spec.policy is Policy.PRIVATE:
        return "private: no two live paths without a common technology"
    return "no declared path is live" if spec.paths else "no path is live"


def _edge(live: LiveNetwork, node: str) -> str | None:
    """The node whose agent can be the edge of a flow from or to ``node``."""
    if not live.context.addressing.is_plain_client(node):
        return node
    place = live.places.get(node)
    return place.node if place is not None else None


def _obstacle(spec: FlowSpec, ingress: str | None, egress: str | None, fault: str | None) -> str | None:
    if spec.policy is Policy.SINGLE:
        return "its policy is single"
    if ingress is not None and ingress == egress:
        return f"both ends are at {ingress}"
    return fault
