"""Which flows cross this region, and the rounds in which its controller tells neighbours of their rates.

A line for each neighbour and round (``control.region_rates``)::

    {"type":"rates","seq":12,"flows":{"down":["<version>",17.2,0.027,null]}}

Null in place of an offer or a demand stands for no bound.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hyroads.controller.control.region_rates import Crossing, RegionRates, parse_rates
from hyroads.controller.core.mappings import differing
from hyroads.controller.core.netfile_sections import flow_document
from hyroads.controller.core.network import PRODUCTION, FlowSpec
from hyroads.controller.core.region_view import RegionView
from hyroads.controller.model.state import DeclaredFlow, Origin
from hyroads.controller.runtime.event_loop import EventLoop


def crossing_of(
    flows: Mapping[str, DeclaredFlow], view: RegionView, node_of_mac: Mapping[str, str]
) -> dict[str, Crossing]:
    """The flows that come from another region, or go on to one."""
    found = {}
    for flow, declared in flows.items():
        before = flow.rpartition("@")[2] if declared.origin is Origin.REGION else None
        after = _beside(view, declared.spec)
        if before is not None or after is not None:
            name_before = view.id_before(flow, before, declared.spec.source) if before is not None else ""
            version = _version(view.whole(declared.spec, node_of_mac))
            found[flow] = Crossing(flow, version, before, after, name_before)
    return found


def _beside(view: RegionView, spec: FlowSpec) -> str | None:
    """The neighbour to which a flow goes on; None if it ends here, or there is no way."""
    return view.exits.get(view.region_of[spec.target])


def _version(whole: FlowSpec) -> str:
    """The same in all regions for the same flow, whatever they call it."""
    document = flow_document(replace(whole, id="", slice=PRODUCTION, group=None, paths=()))
    return hashlib.blake2b(json.dumps(document, sort_keys=True).encode(), digest_size=8).hexdigest()


@dataclass(eq=False)
class RateExchange:
    """Brings together the loop's slots and the rounds of its region."""

    loop: EventLoop
    view: RegionView
    node_of_mac: Mapping[str, str]
    rates: RegionRates = field(init=False)
    _flows: Mapping[str, DeclaredFlow] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rates = RegionRates(self.view.name)
        self.loop.live.loop.around = self.rates.allocate

    def round(self, line_of: Callable[[Mapping[str, Any]], bytes]) -> dict[str, bytes]:
        """Line by neighbour."""
        self._follow()
        told = self.rates.round(self.loop.clock()) if self.loop.settled else {}
        return {
            neighbour: line_of(
                {
                    "type": "rates",
                    "seq": self.rates.seq,
                    "flows": {flow: side.document() for flow, side in sides.items()},
                }
            )
            for neighbour, sides in told.items()
        }

    def take(self, neighbour: str, seq: int, document: Mapping[str, Any]) -> None:
        """What a neighbour tells; RegionRatesError."""
        self._follow()
        self.rates.heard(neighbour, seq, parse_rates(document), self.loop.clock())

    def _follow(self) -> None:
        flows = self.loop.state.flows
        changed = differing(self._flows, flows)
        self._flows = flows
        if changed:
            same = {flow: each for flow, each in self.rates.crossing.items() if flow not in changed}
            others = {flow: flows[flow] for flow in changed if flow in flows}
            self.rates.use(same | crossing_of(others, self.view, self.node_of_mac))
