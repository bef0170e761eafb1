"""What the live view shows: shares and rates over the time between two looks at medium and controller."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from hyroads.mininet.emulation import Emulation
from hyroads.mininet.errors import EmulationError
from hyroads.mininet.medium_client import LinkStats

BITS = 8
MEGA = 1e6


@dataclass(frozen=True)
class LinkSample:
    """A link of the medium; ``sending`` and ``busy`` are shares of time (the link itself; its whole domain)."""

    id: str
    up: bool
    capacity_mbps: float
    rate_mbps: float
    sending: float
    busy: float


@dataclass(frozen=True)
class PathSample:
    """A path of a flow; None where the controller has no figure yet."""

    flow: str
    links: tuple[str, ...]
    rate_mbps: float | None
    received_mbps: float | None
    delay_ms: float | None


@dataclass(frozen=True)
class Sample:
    """One look; ``throughput_mbps`` is what arrived at each watched host, Ethernet payload included."""

    elapsed_s: float
    links: tuple[LinkSample, ...]
    paths: tuple[PathSample, ...]
    throughput_mbps: Mapping[str, float]
    controller_answers: bool


class Sampler:
    """Takes samples; every one covers the time since the one before."""

    def __init__(self, emulation: Emulation, hosts: tuple[str, ...]) -> None:
        self._emulation = emulation
        self._hosts = hosts
        self._start_s = time.monotonic()
        self._links: dict[str, tuple[float, ...]] = {}
        self._bytes: dict[str, tuple[float, int]] = {}

    def take(self) -> Sample:
        """One sample; a controller that does not answer leaves ``paths`` empty."""
        with self._emulation.shared.client() as client:
            statistics = client.stats()
        paths, answers = self._paths()
        return Sample(
            elapsed_s=time.monotonic() - self._start_s,
            links=tuple(self._link(link, statistics.elapsed_s) for link in statistics.links.values()),
            paths=paths,
            throughput_mbps={host: self._throughput(host) for host in self._hosts},
            controller_answers=answers,
        )

    def _link(self, link: LinkStats, elapsed_s: float) -> LinkSample:
        totals = (elapsed_s, link.bytes, link.airtime * elapsed_s, link.busy * elapsed_s)
        before = self._links.get(link.id, (0.0,) * 4)
        if before[0] >= elapsed_s:
            # The medium's counters were set to zero in between.
            before = (0.0,) * 4
        self._links[link.id] = totals
        span_s, sent, sending_s, busy_s = (now - then for now, then in zip(totals, before, strict=True))
        span_s = max(span_s, 1e-9)
        return LinkSample(
            link.id,
            link.up,
            link.capacity_mbps,
            sent * BITS / MEGA / span_s,
            _share(sending_s, span_s),
            _share(busy_s, span_s),
        )

    def _paths(self) -> tuple[tuple[PathSample, ...], bool]:
        if not self._emulation.controller.alive:
            return (), False
        try:
            flows = self._emulation.rest.measurements()["flows"]
        except EmulationError:
            return (), False
        keys = ("rate_mbps", "received_mbps", "delay_ms")
        return tuple(
            PathSample(flow["id"], tuple(path["links"]), *(path[key] for key in keys))
            for flow in flows
            for path in flow["paths"]
        ), True

    def _throughput(self, host: str) -> float:
        now = (time.monotonic(), received_bytes(self._emulation, host))
        before = self._bytes.get(host, now)
        self._bytes[host] = now
        return (now[1] - before[1]) * BITS / MEGA / max(now[0] - before[0], 1e-9)


def _share(part_s: float, span_s: float) -> float:
    """A share of time; rounding of the totals may take it a hair outside."""
    return min(1.0, max(0.0, part_s / span_s))


def received_bytes(emulation: Emulation, host: str) -> int:
    """Bytes that a node's own host has received, from the kernel's counters."""
    node = emulation.node(host)
    name = node.defaultIntf().name
    with open(f"/proc/{node.pid}/net/dev", encoding="ascii") as lines:  # noqa: PTH123  # a file of the kernel
        for line in lines:
            interface, _, counters = line.partition(":")
            if interface.strip() == name:
                return int(counters.split()[0])
    raise EmulationError(f"{host}: no interface {name}")
