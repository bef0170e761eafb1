"""Who should move where: the plugin interface of policies, and refusals with their back-off. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from hyroads.controller.core.services.place import Place
from hyroads.controller.core.services.view import NetworkView

FIRST_BACKOFF_S = 30.0
MOST_BACKOFF_S = 3600.0
MAX_REFUSALS = 4096

Memory = TypeVar("Memory")


@dataclass(frozen=True, slots=True)
class Wish:
    """A client should move, and why."""

    client: str
    place: Place
    reason: str


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
        clients = {
            name: replace(
                client,
                options=tuple(
                    option
                    for option in client.options
                    if option.place == client.place or self.may_ask(name, option.place, view.time_s)
                ),
            )
            for name, client in view.clients.items()
        }
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
