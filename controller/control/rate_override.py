"""The hook for flows whose rates are decided elsewhere: bandits and their probes (docs/explanation/live.md).

A :class:`RateOverride` is asked once per slot, before the rates of the others are computed. The flows it names get
exactly the rates it says; the others share the airtime that these leave. It hears of significant changes of capacity.
:class:`RateOverrides` makes one of several, each of which decides the flows of its own policies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hyroads.controller.core.addressing import PathName
from hyroads.controller.core.closed_loop import SlotResult
from hyroads.controller.core.estimate.busy_time import Interface
from hyroads.controller.core.estimate.link_estimate import Sample
from hyroads.controller.core.infer.change import Change
from hyroads.controller.core.network import Network

from .reports import AgentRates
from .routes import Routes


@dataclass(frozen=True)
class Fixed:
    """Rates of one flow by path, Mb/s; a path that is not named gets 0. ``fill_mbps`` is what dummies make up at
    least (docs/explanation/live.md). ``reserved_mbps`` is what the other flows leave to it on average,
    None: all of its rates. ``by`` names who decided, for REST.
    """

    rates_mbps: Mapping[PathName, float]
    fill_mbps: Mapping[PathName, float] = field(default_factory=dict)
    reserved_mbps: Mapping[PathName, float] | None = None
    by: str = "override"


@dataclass(frozen=True, eq=False)
class SlotView:
    """What an override sees when a slot begins, at ``now_s``.

    ``network`` has the links of the network file in their order, with the capacities that plans count on (0: down).
    ``routes`` has every flow with its paths and arms. ``agents`` are rates and offers and
    ``samples`` measured capacities that came in since the last slot; ``last`` is the result of the last slot
    (estimates, prices, rates), None at first.
    """

    now_s: float
    slot: int
    network: Network
    routes: Routes
    agents: AgentRates
    last: SlotResult | None
    samples: Sequence[Sample] = ()


class RateOverride:
    """Decides the rates of some flows; this one of none. It must answer at once, and never raise for what the network
    does.
    """

    def decide(self, view: SlotView) -> Mapping[str, Fixed]:
        """Flow -> its rates from now on; flows that are not named are the solver's."""
        return {}

    def alerted(self, changes: tuple[Change, ...], now_s: float) -> None:
        """Capacities changed significantly, links came or went; the routes may follow in the next slot."""

    def use_margins(self, margin: float, tcp_margin: float) -> None:
        """Other shares of airtime are left free from now on: of all domains, of those of TCP flows."""

    def without_busy_time(self) -> frozenset[Interface]:
        """The interfaces that it would read and that have no busy time; what arrives stands in for them."""
        return frozenset()

    def document(self, flow: str) -> dict[str, Any] | None:
        """What it knows of a flow, for REST; None if it has nothing to do with it."""
        return None


class RateOverrides(RateOverride):
    """A :class:`RateOverride` made of others by name; where two name the same flow, the first of them decides."""

    def __init__(self, named: Mapping[str, RateOverride]) -> None:
        self._named = dict(named)

    def decide(self, view: SlotView) -> Mapping[str, Fixed]:
        """What all say, each signed with its name."""
        fixed: dict[str, Fixed] = {}
        for name, override in self._named.items():
            for flow, rates in override.decide(view).items():
                fixed.setdefault(flow, replace(rates, by=name))
        return fixed

    def alerted(self, changes: tuple[Change, ...], now_s: float) -> None:
        """All hear of it."""
        for override in self._named.values():
            override.alerted(changes, now_s)

    def use_margins(self, margin: float, tcp_margin: float) -> None:
        """All use them."""
        for override in self._named.values():
            override.use_margins(margin, tcp_margin)

    def without_busy_time(self) -> frozenset[Interface]:
        """Those of all."""
        return frozenset().union(*(override.without_busy_time() for override in self._named.values()))

    def document(self, flow: str) -> dict[str, Any]:
        """Name -> what that override knows of the flow, null where it has nothing to do with it."""
        return {name: override.document(flow) for name, override in self._named.items()}
