"""What plugins see of the network: frozen values, made once a slot, that nobody can change it by. Pure.

Among them: where clients could be (:class:`Option`), what a policy answers (:class:`Wish`), and refusals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol, TypeVar

from hyroads.controller.core.interference import Interference
from hyroads.controller.core.network import Link, Network, Place


@dataclass(frozen=True, slots=True)
class Option:
    """A place that a client could be at: the rate of its link there, alone on the medium, in Mb/s.

    ``medium`` names the interference domain: places with the same name share their airtime.
    """

    place: Place
    medium: str
    rate_mbps: float
    signal_dbm: float | None = None


@dataclass(frozen=True, slots=True)
class Radios:
    """The best attachments of a client's radios, one a technology (``core.placement``), and what they give.

    ``attached_mbps`` is what those where it is now give, 0 if they are not of the kind that is asked for. ``copies``:
    each packet shall go by all of them.
    """

    best: tuple[Place, ...]
    best_mbps: float
    attached_mbps: float
    copies: bool = False


@dataclass(frozen=True, slots=True)
class ClientView:
    """A client, where it is since when, where it could be (its place included), and what it wants at most.

    ``attached`` has the places of all its radios (none: it uses all its links at once), ``radios`` where they should
    be, as far as somebody wants to know and it was found out this time.
    """

    id: str
    place: Place | None
    since_s: float
    options: tuple[Option, ...] = ()
    demand_mbps: float = float("inf")
    attached: tuple[Place, ...] = ()
    radios: Radios | None = None

    def option(self, place: Place | None) -> Option | None:
        """What is known of a place for this client."""
        return next((option for option in self.options if option.place == place), None)


@dataclass(frozen=True, slots=True)
class LinkView:
    """A directed link; ``airtime`` is the busy share of its domain."""

    id: str
    source: str
    target: str
    technology: str
    up: bool
    capacity_mbps: float
    airtime: float


@dataclass(frozen=True, slots=True)
class FlowView:
    """A flow and the link ids of its paths."""

    id: str
    source: str
    target: str
    rate_mbps: float | None
    paths: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class NetworkView:
    """The network at a moment. Mappings are read-only, by id."""

    time_s: float
    nodes: Mapping[str, str] = field(default_factory=dict)
    """Node -> role."""
    links: Mapping[str, LinkView] = field(default_factory=dict)
    flows: Mapping[str, FlowView] = field(default_factory=dict)
    clients: Mapping[str, ClientView] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("nodes", "links", "flows", "clients"):
            # A copy that can't be written to, whatever happens to the original.
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))


Signal = Callable[[Place], float | None]
"""What an access point says of the client's signal, dBm."""


def options_of(
    network: Network,
    client: str,
    rates_mbps: Mapping[str, float],
    interference: Interference,
    signal: Signal = lambda place: None,
) -> tuple[Option, ...]:
    """Places with links to and from the client that both carry something; the rate is that of the slower direction.

    ``rates_mbps`` is 0 for links that are down. A medium is a class of links that contend with the same others.
    """
    there: dict[Place, Link] = {}
    back: dict[Place, Link] = {}
    for link in network.links:
        if link.target == client:
            there[Place(link.source, link.technology)] = link
        elif link.source == client:
            back[Place(link.target, link.technology)] = link
    classes = interference.classes()
    options = []
    for place, link in there.items():
        other = back.get(place)
        if other is None:
            continue
        rate_mbps = min(rates_mbps.get(link.id, 0.0), rates_mbps.get(other.id, 0.0))
        if rate_mbps > 0.0:
            medium = f"{place.technology} {classes[network.link_index[link.id]]}"
            options.append(Option(place, medium, rate_mbps, signal(place)))
    return tuple(options)


FIRST_BACKOFF_S = 30.0
MOST_BACKOFF_S = 3600.0
MAX_REFUSALS = 4096

Memory = TypeVar("Memory")


@dataclass(frozen=True, slots=True)
class Wish:
    """A client should move, and why. ``also``: places of its other radios; ``copies``: each packet goes by all."""

    client: str
    place: Place
    reason: str
    also: tuple[Place, ...] = ()
    copies: bool = False

    @property
    def places(self) -> tuple[Place, ...]:
        """Where the client should be."""
        return (self.place, *self.also)


@dataclass(frozen=True, slots=True)
class Refusal:
    """How often in a row a client refused a place, or failed to come, and until when it is left alone about it."""

    count: int
    until_s: float
    status: str


@dataclass(frozen=True)
class Refusals:
    """By client and place."""

    entries: Mapping[tuple[str, Place], Refusal] = field(default_factory=dict)

    def refused(self, client: str, place: Place, now_s: float, status: str) -> Refusals:
        """One more: 30 s of rest, doubled with each in a row, up to an hour."""
        old = self.entries.get((client, place))
        count = 1 if old is None else old.count + 1
        rest_s = min(MOST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(count - 1, 20))
        entries = {key: value for key, value in self.entries.items() if key != (client, place)}
        entries[client, place] = Refusal(count, now_s + rest_s, status)
        if len(entries) > MAX_REFUSALS:
            del entries[min(entries, key=lambda key: entries[key].until_s)]
        return Refusals(entries)

    def accepted(self, client: str, place: Place) -> Refusals:
        """The client came: nothing is held against the place any more."""
        entries = {key: value for key, value in self.entries.items() if key != (client, place)}
        return self if len(entries) == len(self.entries) else Refusals(entries)

    def may_ask(self, client: str, place: Place, now_s: float) -> bool:
        """Whether the client may be asked to go there again."""
        entry = self.entries.get((client, place))
        return entry is None or now_s >= entry.until_s

    def allowed(self, view: NetworkView) -> NetworkView:
        """The view without the options that clients may not be asked for now."""
        clients = {}
        for name, client in view.clients.items():
            places = {o.place for o in client.options if self.may_ask(name, o.place, view.time_s)} | {client.place}
            clients[name] = replace(client, options=tuple(o for o in client.options if o.place in places))
        return replace(view, clients=clients)


class MobilityPolicy(Protocol[Memory]):
    """What a policy plugin provides. It keeps nothing itself: ``memory`` comes back with the next call."""

    @property
    def name(self) -> str:
        """By which it is chosen."""

    def fresh(self) -> Memory:
        """What it remembers at first."""

    def decide(self, memory: Memory, view: NetworkView) -> tuple[Memory, tuple[Wish, ...]]:
        """Who should move now, most urgent first; options that were refused lately are not in the view."""
