"""Queries and commands of the REST API (``rest.contract.Service``); shapes: docs/reference/rest.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from hyroads.controller import version
from hyroads.controller.control.flow_order import Views
from hyroads.controller.control.telemetry import TelemetryIngest
from hyroads.controller.core.netfile_sections import flow_document
from hyroads.controller.core.network import PRODUCTION, Policy
from hyroads.controller.core.port_readings import small_ports
from hyroads.controller.core.private_split import PRIVATE_KEYS, split_document
from hyroads.controller.files.state import Content
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.model.pending_names import PLAN, agent_name, switch_name
from hyroads.controller.model.plan import MULTIPATH, SINGLE, FlowPlan
from hyroads.controller.model.state import DeclaredFlow, Origin, Presence
from hyroads.controller.runtime.faults import wait_until
from hyroads.controller.runtime.persistence import parse_flow
from hyroads.controller.runtime.saver import Change
from hyroads.controller.switches.sessions import SwitchSession
from hyroads.rest.contract import ConflictError, Document, NotConfirmedError, NotFoundError
from hyroads.rest.metrics import Exposition, RequestTimes

from .metrics import NetworkMetrics
from .network import NetworkDocuments, health_document, interfaces_document, slices_document
from .network import flow_document as loop_flow

CONFIRM_WITHIN_S = 5.0
MAX_FLOWS = 40_000
NO_CONTENT = Content()


@dataclass(eq=False)
class ControllerService(NetworkDocuments):
    """All calls come from green threads of the controller; those with ``wait`` let others run meanwhile."""

    ingest: TelemetryIngest | None = None
    """What radios, SNMP and ports tell; None: nothing."""
    content: Content = NO_CONTENT
    requests: RequestTimes = field(default_factory=RequestTimes)
    """How long REST requests take."""
    syn_copies: Callable[[SwitchSession], str | None] = lambda _: "off"
    """Whether a switch copies SYNs to the controller; None: not known."""
    standby: Callable[[], Document | None] = lambda: None
    """Of several controllers: our part in it; None: there is one."""
    waits: Callable[[], Iterable[str]] = tuple
    """What services wait for: switches and agents, as answers name them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        network = NetworkMetrics(self.event_loop, self.ingest, self.distinct_domains, self.traffic)
        self._metrics = Exposition("controller", version(), [network.collect], self.requests)

    def foreign_topology(self) -> tuple[list[Document], list[Document]]:
        """Nodes of other owners that access points hear by IEEE 1905.1, and their links."""
        return ([], []) if self.ingest is None else self.ingest.foreign.topology()

    # -- flows

    def flow_ids(self) -> Sequence[str]:
        """Ids of all flows, in order of declaration."""
        flows = self.event_loop.state.flows
        return tuple(flow for flow, declared in flows.items() if declared.origin is not Origin.TEST)

    def flows(self, flows: Sequence[str]) -> list[Document]:
        """The flows of these ids; unknown ids are left out."""
        views = self.event_loop.views()
        # Others run meanwhile, and may remove one.
        return [self._flow(flow, views) for flow in shim.cooperatively(flows) if flow in self.event_loop.state.flows]

    def flow(self, flow: str) -> Document:
        """The flow of this id; NotFoundError if there is none."""
        return self._flow(flow, self.event_loop.views())

    def _flow(self, flow: str, views: Views) -> Document:
        declared = self.event_loop.state.flows.get(flow)
        if declared is None or declared.origin is Origin.TEST:
            raise NotFoundError(f"no flow {flow[:64]!r}")
        plan = self.event_loop.plan
        planned = plan.flows.get(flow) if plan else None
        is_private = declared.spec.policy is Policy.PRIVATE
        split = split_document(declared.spec.split) if is_private else dict.fromkeys(PRIVATE_KEYS)
        head = {
            "paths": [],
            "match": {},
            "traffic": "any",
            "slice": PRODUCTION,
            "group": None,
            **flow_document(declared.spec),
            **split,
            "origin": declared.origin.value,
        }
        if planned is None:
            return {**head, "state": "activating", "reason": None, "pending": [PLAN], "multipath": []}
        return {**head, **self._planned(planned, views)}

    def declare_flow(self, document: Mapping[str, Any], *, wait: bool) -> tuple[Document, bool]:
        """Declare a flow; returns it, and whether it is new. ConfigError, ConflictError, NotConfirmedError."""
        event_loop = self.event_loop
        spec = parse_flow(document, event_loop.context.network, "request")
        event_loop.settings.slices.check_flow(spec, "request")
        known = event_loop.state.flows.get(spec.id)
        if known is not None and known.spec != spec:
            raise ConflictError(f"flow {spec.id!r} exists with other content")
        change = None
        if known is None:
            event_loop.saver.check()
            if len(event_loop.state.flows) >= MAX_FLOWS:
                raise ConflictError(f"there are {MAX_FLOWS} flows already")
            in_file = event_loop.declared.flow_of.get(spec.id)
            change = event_loop.saver.change(f"flow {spec.id}", partial(self._take_back, spec.id))
            event_loop.declare(DeclaredFlow(spec, Origin.FILE if in_file == spec else Origin.API))
        if wait:
            self._confirmed(spec.id, change)
        return self.flow(spec.id), known is None

    def remove_flow(self, flow: str, *, wait: bool) -> None:
        """Remove a flow; NotFoundError, NotConfirmedError."""
        event_loop = self.event_loop
        declared = event_loop.state.flows.get(flow)
        if declared is None:
            raise NotFoundError(f"no flow {flow[:64]!r}")
        if declared.origin is Origin.MPTCP:
            raise ConflictError(f"flow {flow!r} is a subflow of an MPTCP connection, and goes with it")
        if declared.origin is Origin.REGION:
            region = flow.rpartition("@")[2]
            raise ConflictError(f"flow {flow!r} is the rest of a flow of region {region}: remove that one there")
        event_loop.saver.check()
        change = event_loop.saver.change(f"flow {flow}", partial(self._take_back, flow, declared))
        event_loop.remove(flow)
        if wait:
            self._confirmed(flow, change)

    def _take_back(self, flow: str, before: DeclaredFlow | None = None) -> None:
        """A flow is again as it was."""
        if before is not None:
            self.event_loop.declare(before)
        elif flow in self.event_loop.state.flows:
            self.event_loop.remove(flow)

    def flow_pending(self, flow: str) -> list[str]:
        """Switches and agents that have not confirmed a flow; NotFoundError if it was removed."""
        self.event_loop.saver.check_refused(f"flow {flow}")
        if flow not in self.event_loop.state.flows:
            raise NotFoundError(f"flow {flow[:64]!r} was removed")
        return self.event_loop.pending(flow, self.event_loop.views())

    def removal_pending(self, flow: str) -> list[str]:
        """Switches and agents that still have a removed flow; ConflictError if it was declared again."""
        self.event_loop.saver.check_refused(f"flow {flow}")
        if flow in self.event_loop.state.flows:
            raise ConflictError(f"flow {flow[:64]!r} was declared again")
        return self.event_loop.pending(flow, self.event_loop.views())

    def _confirmed(self, flow: str, change: Change | None) -> None:
        event_loop = self.event_loop

        def pending() -> list[str]:
            return event_loop.pending(flow, event_loop.views())

        def is_over() -> bool:
            # What is still to be saved is pending, too, and is found out in no time.
            is_saved = not event_loop.saver.pending
            return (is_saved and not pending()) or (change is not None and change.refusal is not None)

        is_confirmed = wait_until(is_over, CONFIRM_WITHIN_S, event_loop.clock, event_loop.progress)
        # Also of a change that somebody else has asked for a moment ago.
        event_loop.saver.check_refused(f"flow {flow}")
        if not is_confirmed:
            raise NotConfirmedError(f"flow {flow}", pending())

    def _planned(self, plan: FlowPlan, views: Views) -> Document:
        state = plan.mode
        if not self.event_loop.leads:
            state = self._state_at_leader(plan)
        elif plan.mode == MULTIPATH:
            switch = views.switches.get(plan.ingress or "")
            state = MULTIPATH if switch and plan.spec.id in switch.confirmed else "activating"
        elif plan.mode == SINGLE and not self._enters_on_single_path(plan, views):
            state = "activating"
        return {
            "number": plan.number,
            "state": state,
            "reason": plan.reason,
            "pending": self.event_loop.pending(plan.spec.id, views),
            "ingress": plan.ingress,
            "egress": plan.egress,
            "sealed": self._is_sealed(plan),
            "rate_mbps": plan.rate_mbps,
            # Of a flow that is new the loop knows nothing, and whoever declared it need not wait until it does.
            **loop_flow(self.event_loop.live.laid_out, plan.spec.id),
            "multipath": [{"id": p.id, "links": list(p.links), "rate_mbps": p.rate_mbps} for p in plan.paths],
        }

    def _is_sealed(self, plan: FlowPlan) -> bool:
        """Whether each frame of a flow has a seal where it travels between switches."""
        if plan.mode != MULTIPATH:
            return plan.mode == SINGLE and self.event_loop.context.seals_links
        ends = (node for node in (plan.ingress, plan.egress) if node is not None)
        return self.event_loop.keys.seals((*ends, *(node for node, _ in plan.branches)))

    def _state_at_leader(self, plan: FlowPlan) -> str:
        """The state of a flow while another controller leads: as planned once all devices that the flow needs there
        have confirmed to that controller.
        """
        waits = self.event_loop.leader_waits()
        if plan.mode == MULTIPATH:
            needed = {switch_name(node) for node in plan.switches}
            agents = (plan.ingress, plan.egress, *(node for node, _ in plan.branches))
            needed |= {agent_name(node) for node in agents if node is not None}
            is_confirmed = waits is not None and not needed & waits
        else:
            nodes = self._entries(plan.spec.source)
            is_confirmed = waits is not None and any(switch_name(node) not in waits for node in nodes)
        return plan.mode if is_confirmed or plan.mode not in (MULTIPATH, SINGLE) else "activating"

    def _entries(self, source: str) -> list[str]:
        """Nodes at whose switches frames of a node enter."""
        addressing = self.event_loop.context.addressing
        return [source] if addressing.has_switch(source) else [a.node for a in addressing.attachments.get(source, ())]

    def _enters_on_single_path(self, plan: FlowPlan, views: Views) -> bool:
        """Whether a switch at which frames of a flow can enter is ready, and hands none of them to an agent."""
        known = [views.switches[node] for node in self._entries(plan.spec.source) if node in views.switches]
        return any(switch.ready and plan.spec.id not in switch.possible for switch in known)

    def measurements(self) -> Document:
        """The latest reports of agents, radios and the SNMP collector, and what slices take of the airtime."""
        event_loop = self.event_loop
        return {
            **event_loop.reports.document(event_loop.plan),
            "interfaces": interfaces_document(event_loop.live.loop, event_loop.clock()),
            "slices": slices_document(event_loop.live.loop),
            **(self.ingest.document() if self.ingest is not None else {}),
        }

    def metrics(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return self._metrics.render()

    # -- health

    def health(self) -> Document:
        """Health: what is connected, what is in sync, and recent faults."""
        event_loop = self.event_loop
        unsynced = list(dict.fromkeys([*event_loop.unsynced(), *sorted(self.waits())]))
        small = list(small_ports(event_loop.state.readings))
        shared = event_loop.addresses.now.shared
        is_carried = not any(port.is_too_small for port in small)
        counters = event_loop.counters
        flow_mods = sum(session.counters.flow_mods for session in event_loop.switches.values())
        names = ("exceptions", "openflow_errors", "malformed_openflow", "malformed_agent", "plans")
        began_s = event_loop.started_s
        return {
            "ok": event_loop.settled
            and not unsynced
            and not counters["exceptions"]
            and not event_loop.saver.failure
            and is_carried
            and not shared,
            "version": version(),
            "uptime_s": event_loop.clock() - began_s,
            "settling": not event_loop.settled,
            "network": self.network_name,
            "switches": [self._switch_health(node, unsynced) for node in event_loop.state.switches],
            "agents": [self._agent_health(node, unsynced) for node in event_loop.state.agents],
            "pending": [*unsynced, *event_loop.saver.unsaved],
            "shared_addresses": [each.document() for each in shared],
            "small_ports": [port.document() for port in small],
            "state_file": self._state_file(),
            "ha": self.standby(),
            "counters": {**{name: counters[name] for name in names}, "flow_mods": flow_mods},
            "plan": None
            if event_loop.plan is None
            else {"duration_ms": event_loop.plan_ms, "at_s": event_loop.planned_at_s - began_s},
            "slots": health_document(event_loop.live.loop, event_loop.slots, event_loop.settings),
            "last_errors": [
                {"time_s": fault.time_s - began_s, "where": fault.where, "what": fault.what}
                for fault in event_loop.faults
            ],
        }

    def _state_file(self) -> Document | None:
        content, saver = self.content, self.event_loop.saver
        if self.event_loop.settings.state_file is None:
            return None
        return {
            "ok": saver.failure is None,
            "reason": saver.failure,
            "failing_s": None if saver.failure is None else self.event_loop.clock() - saver.failing_since_s,
            "started_from": content.origin.value,
            "broken": [asdict(each) for each in content.broken],
        }

    def _switch_health(self, node: str, unsynced: Sequence[str]) -> Document:
        session = self.event_loop.switches.get(node)
        return {
            "node": node,
            "dpid": self.event_loop.context.addressing.dpid[node],
            "connected": session is not None,
            "synced": session is not None and session.synced and switch_name(node) not in unsynced,
            "rules": session.rule_count if session else 0,
            "flow_mods": session.counters.flow_mods if session else 0,
            "errors": session.counters.errors if session else 0,
            "vlan_tags": session.vlan_tags if session else None,
            "syn_copies": self.syn_copies(session) if session else None,
        }

    def _agent_health(self, node: str, unsynced: Sequence[str]) -> Document:
        event_loop = self.event_loop
        link = event_loop.agents.get(node)
        up = event_loop.state.agents[node] is Presence.UP and link is not None
        synced = event_loop.plan is not None and event_loop.agents.synced(event_loop.plan, node)
        return {
            "node": node,
            "up": up,
            "synced": synced and agent_name(node) not in unsynced,
            "revision": link.acked.revision if link and link.acked else None,
            "rtt_ms": link.session.rtt_ms if link else None,
            "errors": link.errors if link else 0,
            "ports": [
                {"port": reading.name, "mtu_bytes": reading.mtu, "mac": reading.mac}
                for reading in event_loop.state.readings.get(node, {}).values()
            ],
        }
