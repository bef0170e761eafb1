"""What happens to flows over time, from the agents' own counters, for CSV files and plots."""

from __future__ import annotations

import csv
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from hyroads.controller.core.errors import HyroadsError
from hyroads.mininet.demos.settling import FloatArray, moved_bytes, time_to_reach, windowed_mbps
from hyroads.mininet.edge_client import EdgeClient
from hyroads.mininet.emulation import Emulation
from hyroads.mininet.errors import EmulationError
from hyroads.mininet.sampling import received_bytes

INTERVAL_S = 0.05
NAMES_INTERVAL_S = 1.0
WINDOW_S = 0.4
GRID_S = 0.1

PathKey = tuple[int, int]
"""(flow number, path id)"""


@dataclass
class _Series:
    """A value per moment; moments (CLOCK_MONOTONIC) in which it was not there have none."""

    times_s: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, time_s: float, value: float) -> None:
        self.times_s.append(time_s)
        self.values.append(value)

    def held(self, at_s: FloatArray, valid_s: float) -> FloatArray:
        """The last value at each moment; 0 before the first and where the last is older than ``valid_s``."""
        if not self.times_s:
            return np.zeros_like(at_s)
        times = np.asarray(self.times_s)
        index = np.searchsorted(times, at_s, side="right") - 1
        fresh = (index >= 0) & (at_s - times[np.maximum(index, 0)] <= valid_s)
        return np.where(fresh, np.asarray(self.values)[np.maximum(index, 0)], 0.0)

    def rate(self, at_s: FloatArray, window_s: float, valid_s: float) -> FloatArray:
        """Mb/s of a counter of bytes over the window before each moment; 0 where nothing is known."""
        if len(self.times_s) < 2:
            return np.zeros_like(at_s)
        rates = windowed_mbps(self.times_s, [int(v) for v in self.values], window_s)
        return _Series(self.times_s, rates.tolist()).held(at_s, valid_s)

    def mean(self, from_s: float, to_s: float) -> float:
        """Mb/s of a counter of bytes over a span."""
        return moved_bytes(self.times_s, [int(v) for v in self.values], from_s, to_s) * 8e-6 / (to_s - from_s)


class Recording:
    """Records while it is entered; then holds the series of flows, and of hosts that were asked for.

    ``flows`` are the ids of the flows, ``nodes`` those whose agents may be an edge of one, ``hosts`` those whose
    received bytes count (plain traffic).
    """

    def __init__(
        self,
        emulation: Emulation,
        nodes: Iterable[str],
        hosts: Iterable[str] = (),
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._emulation = emulation
        self._nodes = tuple(dict.fromkeys(nodes))
        self._hosts = tuple(hosts)
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recording", daemon=True)
        self._clients: dict[str, EdgeClient] = {}
        self._allocated: defaultdict[PathKey, _Series] = defaultdict(_Series)
        self._sent: defaultdict[PathKey, _Series] = defaultdict(_Series)
        self._received: defaultdict[PathKey, _Series] = defaultdict(_Series)
        self._host_bytes: defaultdict[str, _Series] = defaultdict(_Series)
        self._links: dict[PathKey, tuple[str, ...]] = {}
        self.numbers: dict[str, int] = {}
        self.missed = 0
        self._defect: Exception | None = None
        self.start_s = self.end_s = time.monotonic()

    def __enter__(self) -> Recording:
        self.start_s = time.monotonic()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(10.0)
        self.end_s = time.monotonic()
        if self._defect is not None and error is None:
            raise EmulationError(f"the recording ended early: {self._defect!r}") from self._defect

    # Recording

    def _run(self) -> None:
        try:
            self._record()
        except Exception as error:  # noqa: BLE001 - a thread's defect must not pass for rates of 0: see __exit__
            self._defect = error

    def _record(self) -> None:
        names_s = 0.0
        while not self._stop.is_set():
            began_s = time.monotonic()
            for node in self._nodes:
                self._agent(node)
            for host in self._hosts:
                self._host_bytes[host].add(time.monotonic(), received_bytes(self._emulation, host))
            if began_s - names_s >= NAMES_INTERVAL_S:
                names_s = began_s
                self.learn_names()
            self._stop.wait(max(0.0, began_s + self._interval_s - time.monotonic()))
        self.learn_names()
        for client in self._clients.values():
            client.close()

    def _agent(self, node: str) -> None:
        try:
            if node not in self._clients:
                self._clients[node] = EdgeClient(self._emulation.directory / f"edge-{node}.sock", timeout_s=1.0)
            report = self._clients[node].stats()
        except HyroadsError:
            # An agent that is being restarted: the gap shows in the series.
            self.missed += 1
            self._clients.pop(node, None)
            return
        for flow in report["ingress"]:
            for path in flow["paths"]:
                key = (flow["number"], path["id"])
                self._allocated[key].add(report["time_s"], path["rate_mbps"] or 0.0)
                self._sent[key].add(report["time_s"], path["sent_bytes"])
        for flow in report["egress"]:
            for path in flow["paths"]:
                self._received[flow["number"], path["id"]].add(report["time_s"], path["received_bytes"])

    def learn_names(self) -> None:
        """Asks the controller which flows and paths the agents' numbers stand for."""
        try:
            flows = self._emulation.rest.request("GET", "/flows")["flows"]
        except EmulationError:
            return
        for flow in flows:
            # A flow that is not planned yet has no number.
            if "number" not in flow:
                continue
            self.numbers[flow["id"]] = flow["number"]
            for path in flow["multipath"]:
                self._links[flow["number"], path["id"]] = tuple(path["links"])

    # Afterwards; all times count from ``start_s``, all rates are Mb/s of L2 payload

    def grid(self, step_s: float = GRID_S) -> FloatArray:
        """Moments of the recording."""
        return np.arange(0.0, self.end_s - self.start_s, max(step_s, self._interval_s))

    def allocated(self, flow: str, at_s: FloatArray) -> FloatArray:
        """The rate that the first agent holds the flow to."""
        return self._sum(self._keys(flow, self._allocated), lambda key: self.allocated_path(key, at_s), at_s)

    def delivered(self, flow: str, at_s: FloatArray, window_s: float = WINDOW_S) -> FloatArray:
        """What the last agent received over the window before each moment."""
        return self._sum(self._keys(flow, self._received), lambda key: self.delivered_path(key, at_s, window_s), at_s)

    def allocated_path(self, key: PathKey, at_s: FloatArray) -> FloatArray:
        """The same of one path."""
        return self._allocated[key].held(at_s + self.start_s, 3 * self._interval_s)

    def sent_path(self, key: PathKey, at_s: FloatArray, window_s: float = WINDOW_S) -> FloatArray:
        """What the first agent sent on a path."""
        return self._sent[key].rate(at_s + self.start_s, window_s, 3 * self._interval_s)

    def delivered_path(self, key: PathKey, at_s: FloatArray, window_s: float = WINDOW_S) -> FloatArray:
        """What the last agent received on a path."""
        return self._received[key].rate(at_s + self.start_s, window_s, 3 * self._interval_s)

    def host(self, host: str, at_s: FloatArray, window_s: float = WINDOW_S) -> FloatArray:
        """What a host's interface received, Ethernet header included."""
        return self._host_bytes[host].rate(at_s + self.start_s, window_s, 3 * self._interval_s)

    def paths(self, flow: str) -> dict[PathKey, str]:
        """The paths that the flow has had -> their links joined by +."""
        keys = self._keys(flow, self._allocated)
        return {key: "+".join(self._links.get(key, (f"path {key[1]}",))) for key in keys}

    def mean_delivered(self, flow: str, from_s: float, to_s: float) -> float:
        """Mean over a span."""
        return sum(self.mean_path(key, from_s, to_s) for key in self._keys(flow, self._received))

    def mean_path(self, key: PathKey, from_s: float, to_s: float) -> float:
        """Mean of what the last agent received on a path over a span."""
        return self._received[key].mean(from_s + self.start_s, to_s + self.start_s)

    def mean_host(self, host: str, from_s: float, to_s: float) -> float:
        """Mean of what a host's interface received over a span."""
        return self._host_bytes[host].mean(from_s + self.start_s, to_s + self.start_s)

    def time_to_reach(
        self, what: str, targets: Mapping[str, float], since_s: float, until_s: float, tolerance: float
    ) -> float:
        """Seconds until ``allocated`` or ``delivered`` rates of all flows are near their targets, and stay so."""
        at = self.grid(self._interval_s)
        rates = {"allocated": self.allocated, "delivered": self.delivered}[what]
        values = {flow: rates(flow, at) for flow in targets}
        return time_to_reach(at, values, targets, since_s=since_s, until_s=until_s, tolerance=tolerance)

    def write_csv(self, path: Path, flows: Sequence[str]) -> None:
        """One row per moment and path: flow, links, allocated, sent and delivered Mb/s."""
        at = self.grid()
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["time_s", "flow", "path", "allocated_mbps", "sent_mbps", "delivered_mbps"])
            for flow in flows:
                for key, links in self.paths(flow).items():
                    columns = (self.allocated_path(key, at), self.sent_path(key, at), self.delivered_path(key, at))
                    for row in zip(at.tolist(), *(column.tolist() for column in columns), strict=True):
                        writer.writerow([f"{row[0]:.2f}", flow, links, *(f"{value:.4f}" for value in row[1:])])

    def _keys(self, flow: str, series: Mapping[PathKey, Any]) -> list[PathKey]:
        number = self.numbers.get(flow)
        return sorted(key for key in list(series) if key[0] == number)

    def _sum(self, keys: Sequence[PathKey], of: Any, at_s: FloatArray) -> FloatArray:
        return np.asarray(sum((of(key) for key in keys), np.zeros_like(at_s)))
