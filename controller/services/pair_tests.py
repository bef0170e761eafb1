"""The service of pair tests: declares the probe flows that a test needs, removes them again, reports to REST.

``control.pair_tests`` decides, inside the slots, what is tested when.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from hyroads.controller.control.pair_tests import PairTests
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.model.state import DeclaredFlow, Origin, TopologyContext
from hyroads.controller.runtime.event_loop import EventLoop
from hyroads.controller.runtime.faults import repeat

Document = dict[str, Any]
LOOK_S = 0.05


class PairTestService:
    """One per controller; ``tests`` is None where there are none (setting ``pair_tests: off``)."""

    def __init__(self, event_loop: EventLoop, tests: PairTests | None) -> None:
        self._event_loop = event_loop
        self._tests = tests

    def start(self) -> None:
        """Declares the flows of tests from now on."""
        if self._tests is not None:
            shim.spawn(repeat, partial(self._follow, self._tests), LOOK_S, "pair tests", self._event_loop.exception)

    def _follow(self, tests: PairTests) -> None:
        """Makes the flows of tests those that are wanted; a user's flow of the same id comes first."""
        if not self._event_loop.settled:
            return
        flows = self._event_loop.state.flows
        wanted = {spec.id: DeclaredFlow(spec, Origin.TEST) for spec in tests.wanted}
        gone = [flow for flow, had in flows.items() if had.origin is Origin.TEST and flow not in wanted]
        new = [flow for name, flow in wanted.items() if name not in flows]
        if gone or new:
            self._event_loop.change_flows(new, gone)

    def tests(self) -> Document:
        """What was tested, what is being tested, and whether that changed the domains."""
        event_loop = self._event_loop
        found: Document = {"count": 0, "running": None, "pairs": []}
        if self._tests is not None:
            found = self._tests.report(event_loop.clock())
        return {"mode": event_loop.settings.pair_tests, **found}


def testable_links(context: TopologyContext) -> frozenset[str]:
    """Links between two agents: only these can be told to send dummies, and to count them."""
    has_agent, network = context.addressing.has_agent, context.network
    return frozenset(link.id for link in network.links if has_agent(link.source) and has_agent(link.target))
