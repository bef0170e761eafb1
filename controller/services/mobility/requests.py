"""Checks requests for handovers and chooses the mobility manager: built-in, or one that a plugin brings. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.network import FlowSpec, Place, Policy
from hyroads.controller.core.services.mobility import MobilityManager, Timings
from hyroads.controller.model.handover import Constrained, first_place, last_place, links_at, places_of
from hyroads.controller.services.port import ControllerPort
from hyroads.plugins.kinds import Selection
from hyroads.plugins.mobility import bicast, hard, hoolock, vertical
from hyroads.rest.contract import OPERATOR

from .execution import multipath_plan

BUILT_IN: Mapping[str, MobilityManager] = {
    manager.name: manager
    for manager in (hard.MANAGER, hoolock.MANAGER, bicast.MANAGER, vertical.MANAGER, vertical.BICAST)
}
HARD, DEFAULT = hard.MANAGER.name, hoolock.MANAGER.name


@dataclass(frozen=True)
class Managers:
    """The mobility managers that can be used. ``foreign`` returns those of plugins, which are held to the rules
    (``services.plugins.managers``); ``selection`` says which one serves a client if the request names none.
    """

    foreign: Callable[[], Mapping[str, MobilityManager]] = dict
    selection: Selection = field(default_factory=lambda: Selection(DEFAULT))

    def named(self, asked: str | None, client: str, flow: str | None = None) -> MobilityManager:
        """The manager of a handover; :class:`ConfigError` if there is none of this name."""
        name = self.selection.name(asked=asked, client=client, flow=flow)
        known = {**self.foreign(), **BUILT_IN}
        if name not in known:
            raise ConfigError("request", "manager", f"expected one of {', '.join(sorted(known))}; got {name[:40]!r}")
        return known[name]


@dataclass(frozen=True, slots=True)
class CheckedRequest:
    """A request for a handover, checked. ``asked_s`` is monotonic, ``asked_at_s`` Unix time."""

    client: str
    to: Place
    manager: str | None
    flows: frozenset[str] | None
    timings: Timings
    id: str
    asked_s: float
    asked_at_s: float
    owner: str = OPERATOR
    """Name of the token that began it."""


def checked_request(
    port: ControllerPort, managers: Managers, body: Mapping[str, Any], now_s: float, now_at_s: float
) -> CheckedRequest:
    """Check a request; :class:`ConfigError` says what is wrong with it."""
    network, client = port.context.network, body["client"]
    node = network.nodes.get(client)
    if node is None:
        raise ConfigError("request", "client", f"no node {client[:64]!r} in the network")
    if not node.agent:
        raise ConfigError("request", "client", f"{client} is no client")
    to = checked_place(places_of(network, client), body["to"])
    flows = body.get("flows")
    mine = flows_of(port, client)
    unknown = sorted(set(flows or ()) - mine.keys())
    if unknown:
        raise ConfigError("request", "flows", f"no flow {unknown[0][:64]!r} of {client}")
    managers.named(body.get("manager"), client)
    chosen = None if flows is None else frozenset(flows)
    timings = Timings(**body.get("timings", {}))
    return CheckedRequest(client, to, body.get("manager"), chosen, timings, new_id(), now_s, now_at_s)


def checked_place(places: Sequence[Place], asked: Mapping[str, str]) -> Place:
    """The place that a request names; :class:`ConfigError` if the client can't be there."""
    to = Place(asked["node"], asked["technology"])
    if to not in places:
        known = ", ".join(map(str, places)) or "no place: no access point is in reach"
        raise ConfigError("request", "to", f"expected one of {known}; got {str(to)[:80]}")
    return to


def flows_of(port: ControllerPort, client: str) -> dict[str, FlowSpec]:
    """The flows of a client that a handover can move: not private ones, which use two networks at once on purpose; not
    single ones, which have no agent; not n-cast ones, which have paths of their own.
    """
    copied = {flow for (_, flow), constrained in port.state.constrained.items() if constrained.is_of_paths}
    return {
        name: spec
        for name, spec in ((name, flow.spec) for name, flow in port.state.flows.items())
        if client in (spec.source, spec.target)
        and spec.policy not in (Policy.PRIVATE, Policy.SINGLE)
        and name not in copied
    }


def old_place(
    port: ControllerPort, client: str, now: Constrained | None, flows: Iterable[str], new: Place
) -> Place | None:
    """The place of a client's flows: where the last handover left them, else where most of their rate goes."""
    if now is not None and now.stays is not None:
        return now.stays
    rates: dict[Place, float] = {}
    for flow in flows:
        plan = multipath_plan(port, flow)
        for path in plan.paths if plan is not None else ():
            at = first_place if plan is not None and plan.spec.source == client else last_place
            place = at(port.context.network, path.links)
            rates[place] = rates.get(place, 0.0) + (path.rate_mbps or 0.0)
    busiest = sorted(rates, key=lambda place: -rates[place])
    places = dict.fromkeys((*busiest, *places_of(port.context.network, client)))
    return next((place for place in places if place != new and links_are_up(port, client, place)), None)


def links_are_up(port: ControllerPort, client: str, place: Place) -> bool:
    """Whether a client has links to and from a place, and all of them are up."""
    context, network = port.context, port.context.network
    links = links_at(network, client, place)
    return bool(links) and all(
        port.state.link_down(context, network.links[network.link_index[link]]) is None for link in links
    )


def new_id() -> str:
    """A random id for a handover."""
    return uuid.uuid4().hex[:12]
