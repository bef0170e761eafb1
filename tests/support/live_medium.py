"""A fluid medium around the real loop and the real bandits: rates go in, busy counters and agents' reports come out.

Shares no code with what is tested but the network: domains are those of the rule ``technology``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hyroads.controller.control.learning import Learning
from hyroads.controller.control.live_network import Cache
from hyroads.controller.control.loop import LiveLoop, LoopOptions
from hyroads.controller.control.probing import BusyReading
from hyroads.controller.control.reports import AgentRates
from hyroads.controller.control.routes import make_routes
from hyroads.controller.control.source import Heard
from hyroads.controller.core.closed_loop import Measurements, configured_samples
from hyroads.controller.core.demand import Offer
from hyroads.controller.core.network import FlowSpec, Network, Policy
from hyroads.controller.files.documents import read_file
from hyroads.controller.model.state import DeclaredFlow, Origin, State, TopologyContext, initial

SLOT_S = 0.1


class LiveMedium:
    """``true_mbps`` are the capacities of the medium, ``offered_mbps`` what flows offer (inf: saturated)."""

    def __init__(
        self,
        context: TopologyContext,
        flows: Sequence[FlowSpec],
        noise: float = 0.0,
        seed: int = 1,
        tcp_margin: float = 0.05,
    ) -> None:
        self.context = context
        self.network: Network = context.network
        self.state: State = initial(context, [DeclaredFlow(flow, Origin.FILE) for flow in flows])
        self.true_mbps = {link.id: link.capacity_mbps for link in self.network.links}
        self.offered_mbps: dict[str, float] = {flow.id: np.inf for flow in flows}
        self.external: dict[str, float] = {}
        self.carried: list[dict[str, float]] = []
        self.sent: list[dict[str, dict[tuple[str, ...], float]]] = []
        self.now_s = 10.0
        self._noise, self._rng = noise, np.random.default_rng(seed)
        self._factor: dict[tuple[str, str], float] = {}
        self._busy_s: dict[tuple[str, str], float] = {}
        self._log: dict[tuple[str, str], list[BusyReading]] = {}
        self._due: list[tuple[float, str]] = []
        self._told = False
        self._shares: dict[tuple[str, str], float] = {}
        self.learning = Learning(
            lambda i: self.readings(i),  # noqa: PLW0108 - tests replace it
            self.read_soon,
            seed=seed,
            tcp_margin=tcp_margin,
        )
        self.loop = LiveLoop(self.network, self, LoopOptions(), self.learning)
        self.lay_out()

    def lay_out(self) -> None:
        live = Cache(self.context).live(self.state)
        self.routes = make_routes(self.state, live)
        self.loop.lay_out(live.network, self.routes)

    # -- a source, and busy counters

    def take(self, now_s: float) -> Measurements:
        samples = () if self._told else configured_samples(self.network, now_s)
        self._told = True
        return Measurements(samples, dict(self._shares))

    def heard(self) -> Heard:
        return self._heard

    _heard = Heard()

    def read_soon(self, node: str, delay_s: float) -> None:
        self._due.append((self.now_s + delay_s, node))

    def readings(self, interface: tuple[str, str]) -> Sequence[BusyReading]:
        return self._log.get(interface, [])[-20:]

    # -- time

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / SLOT_S)):
            self.step()

    def step(self) -> None:
        self.loop.turn(self.now_s, self._agents())
        sent = {flow: dict(zip(self.routes[flow].paths, rates, strict=True)) for flow, rates in self.loop.rates.items()}
        for flow, rates in sent.items():
            total = sum(rates.values())
            fill = self.loop.fixed[flow].fill_mbps if flow in self.loop.fixed else {}
            share = min(1.0, self.offered_mbps[flow] / total) if total else 0.0
            sent[flow] = {path: max(rate * share, fill.get(path, 0.0)) for path, rate in rates.items()}
        busy = self._busy(sent)
        carried = {}
        for flow, rates in sent.items():
            through = {path: min(1.0, *(1 / max(busy[self._tech(link)], 1.0) for link in path)) for path in rates}
            carried[flow] = {path: rate * through[path] for path, rate in rates.items()}
        self.carried.append({flow: sum(rates.values()) for flow, rates in carried.items()})
        self.sent.append(sent)
        self._last = (sent, carried)
        self._count({technology: min(share, 1.0) for technology, share in busy.items()})
        self.now_s += SLOT_S

    _last: tuple[Mapping[str, Mapping[tuple[str, ...], float]], ...] = ({}, {})

    def _tech(self, link: str) -> str:
        return self.network.links[self.network.link_index[link]].technology

    def _busy(self, sent: Mapping[str, Mapping[tuple[str, ...], float]]) -> dict[str, float]:
        busy = {technology: self.external.get(technology, 0.0) for technology in self.network.technologies}
        for rates in sent.values():
            for path, rate in rates.items():
                for link in path:
                    busy[self._tech(link)] += rate / self.true_mbps[link]
        return busy

    def _count(self, busy: Mapping[str, float]) -> None:
        period = round(self.now_s / SLOT_S) % 10 == 0
        for node in self.network.nodes:
            for technology in self.network.technologies_of[node]:
                interface = (node, technology)
                if period or interface not in self._factor:
                    self._factor[interface] = 1 + self._noise * self._rng.standard_normal()
                share = float(np.clip(busy[technology] * self._factor[interface], 0.0, 1.0))
                times = [at for at, name in self._due if name == node and at < self.now_s + SLOT_S]
                before = self._busy_s.get(interface, 0.0)
                for at in sorted([*times, self.now_s + 0.05]):
                    counted = before + share * max(at - self.now_s, 0.0)
                    reading = BusyReading(at, round(counted * 1e6), round(at * 1e6))
                    self._log.setdefault(interface, []).append(reading)
                self._busy_s[interface] = before + share * SLOT_S
                self._shares[interface] = share
        self._due = [(at, name) for at, name in self._due if at >= self.now_s + SLOT_S]

    def _agents(self) -> AgentRates:
        sent, carried = self._last
        paths = {(flow, path): rate for flow, rates in carried.items() for path, rate in rates.items()}
        offers = {}
        for flow, rates in sent.items():
            allowed = sum(self.loop.rates.get(flow, ()))
            total = sum(rates.values())
            offers[flow] = Offer(total, allowed, self.offered_mbps[flow] > allowed)
        return AgentRates(paths, offers, arrived_mbps=paths)


DIAMOND = TopologyContext.of(read_file(Path(__file__).resolve().parents[2] / "mininet" / "networks" / "diamond.yaml"))
# By hand: arm 0 carries 20 over b (PLC, WiFi) and 12 over c (WiFi 5 twice, 1/30 + 1/20); arm 1 is the second best.
BEST, SECOND, MARGIN = 32.0, 27.71, 0.95


def diamond(policy: Policy, *others: FlowSpec, noise: float = 0.0, seed: int = 1) -> LiveMedium:
    """The diamond's flow f1 with this policy, and others."""
    flow = replace(DIAMOND.network.flows[0], policy=policy)
    return LiveMedium(DIAMOND, [flow, *others], noise=noise, seed=seed)


def mean(world: LiveMedium, seconds: float, flow: str = "f1") -> float:
    """What was carried of a flow on average at last."""
    return float(np.mean([slot[flow] for slot in world.carried[-round(seconds * 10) :]]))


def bandit(world: LiveMedium, flow: str = "f1") -> dict[str, Any]:
    """What REST shows of a flow's bandit."""
    document = world.learning.document(flow)
    assert document is not None
    return document
