"""The coordinator as services see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hyroads.controller.agents.markers import Marks
from hyroads.controller.core.network import FlowSpec, Network
from hyroads.controller.model.handover import Confinements, Constrained, Key
from hyroads.controller.model.plan import MULTIPATH, FlowPlan
from hyroads.controller.runtime.event_loop import Coordinator
from hyroads.controller.runtime.persistence import Saver


class CoordinatorOffice:
    """See ``services.handover_requests.Office`` and ``services.ncasts.Office``."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    @property
    def marks(self) -> Marks:
        """What came by watched paths."""
        return self._coordinator.marks

    @property
    def network(self) -> Network:
        """As the file says."""
        return self._coordinator.context.network

    @property
    def live_network(self) -> Network:
        """With the capacities that plans count on, 0 where a link is down."""
        return self._coordinator.live.network.network

    def flow_known(self, flow: str) -> bool:
        """Whether a flow is declared."""
        return flow in self._coordinator.state.flows

    @property
    def confinements(self) -> Confinements:
        """Where clients' flows are."""
        return self._coordinator.state.constrained

    def confine(self, changes: Mapping[Key, Constrained | None]) -> None:
        """Flows shall use these ways."""
        self._coordinator.confine(changes)

    def carries(self, flows: Iterable[str]) -> bool:
        """Whether packets of flows go as was asked for."""
        return self._coordinator.carries(self._declared(flows))

    def carried_out(self, flows: Iterable[str]) -> bool:
        """Whether all that was asked for is in force for flows."""
        return self._coordinator.carried_out(self._declared(flows))

    def _declared(self, flows: Iterable[str]) -> list[str]:
        """A flow that is gone has nothing left to do."""
        return [flow for flow in flows if flow in self._coordinator.state.flows]

    def flow_plan(self, flow: str) -> FlowPlan | None:
        """What is planned for a flow, if it is a multipath."""
        plan = self._coordinator.plan
        planned = plan.flows.get(flow) if plan is not None else None
        return planned if planned is not None and planned.mode == MULTIPATH else None

    def first_number(self, flow: str) -> int | None:
        """The first sequence number since the set of paths in use of a flow last changed."""
        planned = self.flow_plan(flow)
        return None if planned is None else self._coordinator.marks.first(planned.ingress or "", planned.number)

    def link_up(self, link: str) -> bool:
        """Whether a link is up, as far as is known."""
        context = self._coordinator.context
        return (
            self._coordinator.state.link_down(context, context.network.links[context.network.link_index[link]]) is None
        )

    def note_unsaved(self) -> None:
        """What is to be saved has changed."""
        self._coordinator.saver.note()
        self._coordinator.wake()

    @property
    def saver(self) -> Saver:
        """Writes what is asked for, or takes it back."""
        return self._coordinator.saver

    def is_saved(self) -> bool:
        """Whether all that is to be saved is on disk."""
        return not self._coordinator.saver.pending

    def flows(self) -> Mapping[str, FlowSpec]:
        """All declared flows."""
        return {flow: declared.spec for flow, declared in self._coordinator.state.flows.items()}

    def wait(self, timeout_s: float) -> None:
        """Until something was confirmed, or the time is over."""
        self._coordinator.progress.wait(timeout_s)
