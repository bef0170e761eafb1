"""What the desk of reservations needs of the coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from hyroads.controller.control.allocators import Grant
from hyroads.controller.control.routes import FlowRoute
from hyroads.controller.coordinator import Coordinator
from hyroads.controller.core.network import Network
from hyroads.controller.core.rates import RateProblem
from hyroads.controller.saver import Saver


class ReservationOffice:
    """The coordinator, as ``services.reservations.Office`` wants it."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def clock(self) -> float:
        """See ``Office``."""
        return self._coordinator.clock()

    def network(self) -> Network:
        """See ``Office``."""
        return self._coordinator.fabric.network

    def ready(self) -> bool:
        """See ``Office``."""
        return self._coordinator.settled and self._coordinator.plan is not None

    def has_minimums(self) -> bool:
        """See ``Office``."""
        return self._coordinator.live.loop.options.mode == "solver"

    def problem(self) -> RateProblem:
        """See ``Office``."""
        loop = self._coordinator.live.loop
        others = loop.state.external.per_link(self._coordinator.clock())
        everything = np.full(loop.state.problem.layout.flow_count, np.inf)
        return loop.state.problem.changed(external=others, demand_mbps=everything)

    def routes(self) -> Mapping[str, FlowRoute]:
        """See ``Office``."""
        return self._coordinator.live.loop.routes

    def guarantee(self, minimum_mbps: Mapping[str, float]) -> None:
        """See ``Office``."""
        self._coordinator.live.loop.guarantee(minimum_mbps)

    def granted(self) -> Mapping[str, Grant]:
        """See ``Office``."""
        return self._coordinator.live.loop.granted

    @property
    def saver(self) -> Saver:
        """See ``Office``."""
        return self._coordinator.saver

    def publish(self, kind: str, document: Mapping[str, Any]) -> object:
        """See ``Office``."""
        return self._coordinator.events.publish(kind, document)
