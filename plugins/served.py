"""The calls that a plugin's process answers, by kind. What goes in and out is JSON of the types named here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.services.choices import MobilityPolicy, Wish
from hyroads.controller.core.services.mobility import Event as MobilityEvent
from hyroads.controller.core.services.mobility import Handover, MobilityManager, Request
from hyroads.plugins.api import App, Event, Network
from hyroads.plugins.codec import decode, encode
from hyroads.plugins.kinds import Kind

from .api import NetworkView

Arguments = Mapping[str, Any]
Served = dict[str, Callable[[Arguments], object]]
MAX_WISHES = 1000


def serve(kind: Kind, plugin: object, network: Network) -> Served:
    """By name of the call."""
    match kind:
        case Kind.APP:
            return _app(cast("App", plugin), network)
        case Kind.POLICY:
            return _policy(cast("MobilityPolicy[Any]", plugin))
        case Kind.MOBILITY:
            return _manager(cast("MobilityManager", plugin))


def _app(app: App, network: Network) -> Served:
    def event(given: Arguments) -> object:
        app.on_event(network, decode(Event, given["event"]))
        return None

    return {"start": lambda _: app.start(network), "event": event, "tick": lambda _: app.tick(network)}


def _policy(policy: MobilityPolicy[Any]) -> Served:
    memory = policy.fresh()

    def decide(given: Arguments) -> object:
        nonlocal memory
        memory, wishes = policy.decide(memory, decode(NetworkView, given["view"]))
        if len(wishes) > MAX_WISHES or not all(isinstance(wish, Wish) for wish in wishes):
            raise HyroadsError(f"expected at most {MAX_WISHES} wishes")
        return encode(tuple(wishes))

    return {"decide": decide}


def _manager(manager: MobilityManager) -> Served:
    """Each step answers the new state with what is wanted and when it is due: one round trip a step."""

    def told(handover: Handover) -> object:
        if not isinstance(handover, Handover):
            raise HyroadsError(f"expected a Handover, got {type(handover).__name__}")
        state = encode(handover)
        return {"handover": state, "due_s": manager.due_s(handover), "wanted": encode(manager.wanted(handover))}

    def start(given: Arguments) -> object:
        return told(manager.start(decode(Request, given["request"]), given["now_s"]))

    def on(given: Arguments) -> object:
        event = decode(MobilityEvent, given["event"])
        return told(manager.on(decode(Handover, given["handover"]), event, given["now_s"]))

    def tick(given: Arguments) -> object:
        return told(manager.tick(decode(Handover, given["handover"]), given["now_s"]))

    return {"start": start, "on": on, "tick": tick}
