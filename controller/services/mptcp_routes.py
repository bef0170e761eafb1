"""Flows for the subflows of MPTCP connections: declares them as connections come, and removes them as they go.

The planner routes the flows of one group apart (docs/explanation/routing.md, *Groups of flows*). Each flow costs a plan
and rules, so only connections that live on are routed, and of those at most so many: where there is no room a
connection takes the place of the one that has sent nothing for longest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hyroads.controller.core.network import FlowSpec
from hyroads.controller.core.subflows import MptcpConnection, subflow_flows
from hyroads.controller.model.state import DeclaredFlow, Origin
from hyroads.rest.metrics import Gauge

from .port import ControllerPort

TICK_S = 0.25
ROUTE_AFTER_S = 0.5
"""A download of a page is over before its paths would be there."""
IDLE_S = 10.0
UNUSED_S = 2.0
"""A connection that has not carried anything since it is routed may have been over before."""
ENDED_S = 300.0
"""Not every end is seen. A connection that was idle for so long is routed again when it gets another subflow."""
ACTIVE_MBPS = 0.01
MOST_WAITING = 1024


@dataclass(slots=True, eq=False)
class _Known:
    """A connection with subflows to route. ``since_s``: its subflows are those of ``group``; ``active_s``: one of its
    flows carried something; ``used``: and did since it is routed; ``gave_way``: it was routed, and idle when another
    one needed the room; ``ended``: it was idle for so long that it may be over.
    """

    group: MptcpConnection
    since_s: float
    active_s: float
    flows: Mapping[str, FlowSpec] = field(default_factory=dict)
    used: bool = False
    gave_way: bool = False
    ended: bool = False


class SubflowRoutes:
    """One per controller. ``group`` tells the subflows of a connection that can be routed (None: there are none),
    ``delivered`` what a flow carries, in Mb/s (None: unknown). At most ``most`` connections are routed at a time: from
    the second subflow on, until the last one has ended.

    ``followers`` are called with the id of a connection that is routed from now on (True), with other subflows
    perhaps, or no longer (False).
    """

    def __init__(
        self,
        port: ControllerPort,
        group: Callable[[str], MptcpConnection | None],
        delivered: Callable[[str], float | None],
        *,
        clock: Callable[[], float],
        most: int,
    ) -> None:
        self._port, self._group, self._delivered = port, group, delivered
        self._clock, self._most = clock, most
        self._waiting: dict[str, _Known] = {}
        self._routed: dict[str, _Known] = {}
        self.followers: list[Callable[[str, bool], None]] = []
        self._touched: dict[str, None] = {}

    # -- the state file

    @property
    def routed(self) -> tuple[str, ...]:
        """Ids of the connections that are routed, in the order in which they came."""
        return tuple(self._routed)

    def become(self, names: Iterable[str]) -> None:
        """The connections that are routed are those that an earlier controller, or the one that leads, has routed."""
        before, now_s = self._routed, self._clock()
        self._waiting.clear()
        self._touched.clear()
        groups = ((name, group) for name in names if (group := self._group(name)) is not None)
        # What they have carried so far nobody knows: they are not the first to give way.
        self._routed = {name: _Known(group, now_s, now_s, _flows(group), used=True) for name, group in groups}
        for name in dict.fromkeys((*before, *self._routed)):
            for follower in self.followers:
                follower(name, name in self._routed)

    def lead(self) -> None:
        """From now on connections are looked at here."""
        now_s = self._clock()
        for known in self._routed.values():
            known.active_s = now_s

    # -- connections come and go

    def changed(self, name: str) -> None:
        """A connection has other subflows, or is gone."""
        group = self._group(name)
        known = self._routed.get(name) or self._waiting.get(name)
        if group is None or (len(group.subflows) < 2 and name not in self._routed):
            if self._routed.pop(name, None) is not None:
                self._touched[name] = None
            self._waiting.pop(name, None)
        elif known is None:
            now_s = self._clock()
            self._waiting[name] = _Known(group, now_s, now_s)
            if len(self._waiting) > MOST_WAITING:
                del self._waiting[next(iter(self._waiting))]
        elif known.group != group:
            known.group, known.since_s, known.gave_way, known.ended = group, self._clock(), False, False
            if name in self._routed:
                known.flows = _flows(group)
                self._touched[name] = None

    def once(self) -> None:
        """Make the flows of connections those that are wanted; called each ``TICK_S``."""
        if not self._port.settled:
            return
        now_s = self._clock()
        for known in self._routed.values():
            if any((self._delivered(flow) or 0.0) > ACTIVE_MBPS for flow in known.flows):
                known.active_s, known.used = now_s, True
        self._choose(now_s)
        wanted = {flow: spec for known in self._routed.values() for flow, spec in known.flows.items()}
        flows = self._port.state.flows
        ours = {flow: had.spec for flow, had in flows.items() if had.origin is Origin.MPTCP}
        gone = [flow for flow, spec in ours.items() if wanted.get(flow) != spec]
        # A user's flow of the same id comes first.
        new = [spec for flow, spec in wanted.items() if ours.get(flow) != spec and (flow in ours or flow not in flows)]
        if gone or new:
            self._port.change_flows([DeclaredFlow(spec, Origin.MPTCP) for spec in new], gone)
        touched, self._touched = self._touched, {}
        for name in touched:
            for follower in self.followers:
                follower(name, name in self._routed)

    def _choose(self, now_s: float) -> None:
        """Connections that wait are routed, the latest first; those that are routed and idle make room for new ones."""
        for name in [name for name, known in self._routed.items() if now_s - known.active_s >= ENDED_S]:
            self._stop(name)
            self._waiting[name].ended = True
        idle = [name for name, known in self._routed.items() if now_s - known.active_s >= _idle_after_s(known)]
        idle.sort(key=lambda name: -self._routed[name].active_s)
        for name, known in reversed(list(self._waiting.items())):
            if known.ended or now_s - known.since_s < ROUTE_AFTER_S:
                continue
            if len(self._routed) >= self._most:
                if not idle:
                    return
                if known.gave_way:
                    continue
                self._stop(idle.pop())
            self._routed[name] = self._waiting.pop(name)
            self._touched[name] = None
            known.active_s, known.used, known.flows = now_s, False, _flows(known.group)

    def _stop(self, name: str) -> None:
        self._waiting[name] = known = self._routed.pop(name)
        self._touched[name] = None
        known.gave_way, known.flows = True, {}

    def metrics(self) -> Iterator[Any]:
        """For Prometheus."""
        text = "MPTCP connections whose subflows are flows"
        yield Gauge("hyroads_mptcp_routed_connections", text, value=len(self._routed))


def _idle_after_s(known: _Known) -> float:
    return IDLE_S if known.used else UNUSED_S


def _flows(group: MptcpConnection) -> dict[str, FlowSpec]:
    return {spec.id: spec for spec in subflow_flows(group)}
