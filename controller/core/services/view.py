"""What plugins see of the network: frozen values, made once a slot, that nobody can change it by. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar

from hyroads.controller.core.services.place import Place

_Value = TypeVar("_Value")


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
class ClientView:
    """A client, where it is since when, where it could be (its place included), and what it wants at most."""

    id: str
    place: Place | None
    since_s: float
    options: tuple[Option, ...] = ()
    demand_mbps: float = float("inf")

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
            object.__setattr__(self, name, _read_only(getattr(self, name)))


def _read_only(table: Mapping[str, _Value]) -> Mapping[str, _Value]:
    """A copy that can't be written to, whatever happens to the original."""
    return MappingProxyType(dict(table))
