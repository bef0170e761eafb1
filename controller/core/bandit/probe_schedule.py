"""When which flow probes (docs/explanation/bandit.md): probes of interfering flows never overlap, and nobody starves.

The original needs overheard control messages for this; a central controller knows who interferes and schedules. In
every slot the waiting requests are looked at, the oldest first (equal ages by flow id). One is granted unless a flow
that interferes is probing, or its probe would still run when an older request that it interferes with could start:
younger ones fill gaps but delay nobody. Hence the laws:

    with probes of one slot, a request waits at most one slot per older request that it interferes with;
    else at most the rest of the running probes and the probes of the older requests, one after the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.network import Network


class ScheduleError(HyroadsError):
    """Requests or running probes contradict each other."""


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """Flow ``flow`` wants to probe for ``slots`` slots in a row, and has wanted to since slot ``since``."""

    flow: str
    since: int
    slots: int = 1


@dataclass(frozen=True, slots=True)
class ProbeSlot:
    """A probe that starts in slot ``start`` and runs for ``slots`` slots."""

    flow: str
    start: int
    slots: int

    @property
    def end(self) -> int:
        """The first slot after it."""
        return self.start + self.slots


Conflicts = Mapping[str, Collection[str]]


def schedule(
    conflicts: Conflicts, requests: Sequence[ProbeRequest], first: int, slots: int, running: Iterable[ProbeSlot] = ()
) -> tuple[ProbeSlot, ...]:
    """The probes that start in the ``slots`` slots from ``first``, in order of start; ``running`` ones are respected.

    ``conflicts``: for each flow those it interferes with, either way round; a flow also conflicts with itself.
    """
    if len({request.flow for request in requests}) < len(requests):
        raise ScheduleError("a flow has at most one request at a time")
    if any(request.slots < 1 for request in requests):
        raise ScheduleError("a probe lasts at least one slot")
    graph = _symmetric(conflicts)
    waiting = sorted(requests, key=lambda request: (request.since, request.flow))
    busy_until: dict[str, int] = {}
    for probe in running:
        _occupy(graph, busy_until, probe)
    granted: list[ProbeSlot] = []
    for slot in range(first, first + slots):
        left: list[ProbeRequest] = []
        for request in waiting:
            end = slot + request.slots
            ready = request.since <= slot and busy_until.get(request.flow, 0) <= slot
            rivals = _rivals(graph, request, left)
            # An older request that was not granted in this slot can start in the next at the earliest.
            if ready and all(max(busy_until.get(older.flow, 0), slot + 1) >= end for older in rivals):
                granted.append(ProbeSlot(request.flow, slot, request.slots))
                _occupy(graph, busy_until, granted[-1])
            else:
                left.append(request)
        waiting = left
        if not waiting:
            break
    return tuple(granted)


def _rivals(graph: Mapping[str, set[str]], request: ProbeRequest, older: Iterable[ProbeRequest]) -> list[ProbeRequest]:
    """The older waiting requests that interfere with ``request``."""
    near = graph.get(request.flow, set())
    return [each for each in older if each.flow in near and each.since <= request.since]


def flow_conflicts(network: Network, links: Mapping[str, Iterable[int]]) -> dict[str, frozenset[str]]:
    """Which flows interfere: ``links`` are all links that a flow's arms use, and some of both contend."""
    domains = {
        flow: {int(m) for link in set(own) for m in network.interference.domain(link)} for flow, own in links.items()
    }
    used = {flow: set(own) for flow, own in links.items()}
    return {
        flow: frozenset(other for other in links if other != flow and domains[flow] & used[other]) for flow in links
    }


def _symmetric(conflicts: Conflicts) -> dict[str, set[str]]:
    graph: dict[str, set[str]] = {}
    for flow, others in conflicts.items():
        for other in others:
            graph.setdefault(flow, set()).add(other)
            graph.setdefault(other, set()).add(flow)
    return graph


def _occupy(graph: Mapping[str, set[str]], busy_until: dict[str, int], probe: ProbeSlot) -> None:
    for flow in (probe.flow, *graph.get(probe.flow, ())):
        busy_until[flow] = max(busy_until.get(flow, 0), probe.end)
