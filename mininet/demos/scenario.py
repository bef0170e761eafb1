"""Scenes in which flows come and go: phases with an optimum each, and the time until all rates are near it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hyroads.controller.core.network import FlowSpec
from hyroads.mininet.udp_load import UdpLoad

from . import recording
from .recording import INTERVAL_S, TOLERANCE, Panel, Recording
from .verdict import Stage

# What the project promises: all rates this near to the new optimum, this soon.
REACHED_WITHIN_S = 1.0
# Delivered rates are means over this long, so that is how much later they can show what has been reached.
DELIVERED_WINDOW_S = 0.4
# More than a flow can get, so that what arrives is what it gets; every packet beyond costs time for nothing.
OVERLOAD = 1.15
PAYLOAD_SHARE = 1400 / 1450


@dataclass(frozen=True)
class Phase:
    """From ``start_s`` (of the recording) on the flows should get ``targets`` (Mb/s of L2 payload)."""

    title: str
    start_s: float
    targets: Mapping[str, float]


class Scenario:
    """Flows with UDP load and a recording; entered while traffic runs. Flows are started and stopped by name."""

    def __init__(
        self,
        stage: Stage,
        flows: Sequence[FlowSpec],
        hosts: Iterable[str] = (),
        interval_s: float = INTERVAL_S,
    ) -> None:
        self.stage = stage
        self.flows = {flow.id: flow for flow in flows}
        addressing = stage.emulation.addressing
        ends = [end for flow in flows for end in (flow.source, flow.target)]
        places = [addressing.attachment(end) if addressing.is_plain_client(end) else None for end in ends]
        edges = [place.node if place is not None else end for end, place in zip(ends, places, strict=True)]
        self.recording = Recording(stage.emulation, edges, hosts, interval_s)
        self.load = UdpLoad(stage.emulation)
        self.phases: list[Phase] = []
        self.end_s = math.nan

    def __enter__(self) -> Scenario:
        self.load.__enter__()
        for flow in self.flows.values():
            self.load.open(flow.id, flow.source, flow.target)
        self.recording.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.recording.__exit__(*error)
        self.load.__exit__(*error)
        self.end_s = self.recording.end_s - self.recording.start_s

    # What happens

    def begin_phase(self, title: str, at_s: float, targets: Mapping[str, float]) -> None:
        """From the moment ``at_s`` (CLOCK_MONOTONIC) on these rates are the optimum."""
        self.phases.append(Phase(title, at_s - self.recording.start_s, dict(targets)))

    def play(self, words: str, title: str, targets: Mapping[str, float], begin: Callable[[], float]) -> None:
        """A whole phase: shows ``words``, calls ``begin``, which returns when it began, and lets traffic run."""
        self.stage.view.phase(words)
        self.begin_phase(title, begin(), targets)
        self.stage.pause(self.stage.hold_s)

    def start_flow(self, flow: str, offered_mbps: float) -> float:
        """Traffic and flow (POST /flows) at once; returns when."""
        began_s = self.load.set_rate(flow, offered_mbps)
        self.stage.declare(self.flows[flow])
        return began_s

    def stop_flow(self, flow: str) -> float:
        """No traffic any more, and no flow (DELETE); returns when."""
        ended_s = self.load.set_rate(flow, 0.0)
        self.stage.emulation.rest.request("DELETE", f"/flows/{flow}")
        return ended_s

    # What came of it

    def judge(
        self,
        phase: int,
        settle_s: float = REACHED_WITHIN_S,
        at_least: float = 1 - TOLERANCE,
        delivered_later_s: float = DELIVERED_WINDOW_S,
    ) -> None:
        """Adds the checks of a phase: how soon all rates are near the optimum, and what was delivered from then on."""
        this, end_s = self.phases[phase], self._end_of(phase)
        for what, allowance_s in (("allocated", 0.0), ("delivered", delivered_later_s)):
            reached_s = self.recording.time_to_reach(what, this.targets, this.start_s, end_s, TOLERANCE)
            limit_s = settle_s + allowance_s
            words = f"{this.title}: {what} rates within {TOLERANCE:.0%} of the optimum"
            shown_s, whole = min(reached_s, end_s - this.start_s), self._moments(this.start_s, end_s)
            self.stage.check(words, limit_s, shown_s, "s", at_most=1.0, during=whole)
        for flow, target in this.targets.items():
            measured = self.mean_in(phase, flow, settle_s)
            words = f"{this.title}: {flow} delivered"
            settled = self._moments(this.start_s + settle_s, end_s)
            self.stage.check(words, target, measured, at_least=at_least, at_most=1 + TOLERANCE, during=settled)

    def mean_in(self, phase: int, flow: str, settle_s: float = REACHED_WITHIN_S) -> float:
        """Delivered rate of a flow in a phase once it has settled."""
        return self.recording.mean_delivered(flow, self.phases[phase].start_s + settle_s, self._end_of(phase))

    def share_in(self, phase: int, flow: str, technology: str, settle_s: float = REACHED_WITHIN_S) -> float:
        """Share of what a flow delivered in a phase that took paths over a technology."""
        from_s, to_s = self.phases[phase].start_s + settle_s, self._end_of(phase)
        links = self.stage.declared.links
        of_technology = {link.id for link in links if link.technology == technology}
        total = part = 0.0
        for key, names in self.recording.paths(flow).items():
            mbps = self.recording.mean_path(key, from_s, to_s)
            total += mbps
            part += mbps if of_technology & set(names.split("+")) else 0.0
        return part / total if total else 0.0

    def moments(self, phase: int, settle_s: float = REACHED_WITHIN_S) -> tuple[float, float]:
        """When a phase was measured (CLOCK_MONOTONIC)."""
        return self._moments(self.phases[phase].start_s + settle_s, self._end_of(phase))

    def _moments(self, from_s: float, to_s: float) -> tuple[float, float]:
        """Times of the recording on CLOCK_MONOTONIC."""
        return from_s + self.recording.start_s, to_s + self.recording.start_s

    def span(self, phase: int) -> tuple[str, float, float]:
        """Title, beginning and end of a phase."""
        return self.phases[phase].title, self.phases[phase].start_s, self._end_of(phase)

    def _end_of(self, phase: int) -> float:
        return self.phases[phase + 1].start_s if phase + 1 < len(self.phases) else self.end_s

    def write(self, hosts: Mapping[str, str] | None = None) -> None:
        """CSV of all flows, CSV of the phases, plot; ``hosts`` (label -> host) are drawn, too."""
        folder = self.stage.folder
        self.recording.write_csv(folder / "flows.csv", list(self.flows))
        self.stage.files.append(folder / "flows.csv")
        self.stage.write_csv("phases.csv", ["start_s", "phase", "flow", "optimum_mbps"], _phase_rows(self.phases))
        if not recording.can_draw():
            self.stage.view.note("no plot: Matplotlib is not installed (pip install 'hyroads[study]')")
            return
        marks = {phase.start_s: phase.title for phase in self.phases}
        self.stage.files += recording.draw(folder, self.stage.name, self.panels(hosts or {}), marks)

    def panels(self, hosts: Mapping[str, str]) -> list[Panel]:
        """Delivered and allocated rates of flows with their optima, and what every path is allocated."""
        at = self.recording.grid()
        theory = {flow: self._spans(flow) for flow in self.flows}
        delivered = {flow: (at, self.recording.delivered(flow, at)) for flow in self.flows}
        delivered |= {label: (at, self.recording.host(host, at)) for label, host in hosts.items()}
        paths = {
            f"{flow} {links}": (at, self.recording.allocated_path(key, at))
            for flow in self.flows
            for key, links in self.recording.paths(flow).items()
        }
        return [
            Panel("delivered by the last agent", "Mb/s", delivered, theory),
            Panel("rate of every path, as the first agent was told", "Mb/s", paths),
        ]

    def _spans(self, flow: str) -> list[tuple[float, float, float]]:
        starts = [phase.start_s for phase in self.phases]
        ends = [*starts[1:], self.end_s]
        return [
            (phase.start_s, end_s, phase.targets[flow])
            for phase, end_s in zip(self.phases, ends, strict=True)
            if flow in phase.targets
        ]


def offered_mbps(largest_mbps: float) -> float:
    """UDP payload that overloads a flow which can get so much L2 payload at most."""
    return largest_mbps * OVERLOAD * PAYLOAD_SHARE


def _phase_rows(phases: Sequence[Phase]) -> Iterator[Sequence[str]]:
    for phase in phases:
        for flow, target in phase.targets.items():
            yield f"{phase.start_s:.3f}", phase.title, flow, f"{target:.4f}"
