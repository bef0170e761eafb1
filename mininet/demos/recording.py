"""What happens to flows over time, from the agents' own counters: when rates settle, CSV files and plots.

Plots need Matplotlib, which is optional (the extra ``study``).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.core.csv_text import csv_text
from hyroads.controller.core.errors import HyroadsError
from hyroads.mininet.control_sockets import EdgeClient
from hyroads.mininet.emulation import Emulation
from hyroads.mininet.live_view import received_bytes
from hyroads.mininet.programs import Watch
from hyroads.rest.client import ClientError

FloatArray = NDArray[np.float64]

TOLERANCE = 0.05


def time_to_reach(
    times_s: FloatArray,
    values: Mapping[str, FloatArray],
    targets: Mapping[str, float],
    *,
    since_s: float,
    until_s: float,
    tolerance: float = TOLERANCE,
) -> float:
    """Seconds from ``since_s`` to the first sample from which on every value is within ``tolerance`` of its target
    until ``until_s``; infinite if the last one is not, or if there is none."""
    inside = (times_s >= since_s) & (times_s <= until_s)
    times_s = times_s[inside]
    if not len(times_s):
        return float("inf")
    good = np.ones(len(times_s), dtype=bool)
    for name, target in targets.items():
        good &= np.abs(values[name][inside] - target) <= tolerance * target
    wrong = np.flatnonzero(~good)
    first = int(wrong[-1]) + 1 if len(wrong) else 0
    return float(times_s[first] - since_s) if first < len(times_s) else float("inf")


def windowed_mbps(times_s: Sequence[float], counts: Sequence[int], window_s: float) -> FloatArray:
    """Mean rate in Mb/s over the ``window_s`` before each sample, from a counter of bytes; 0 at first.

    A counter that falls was set to zero in between: what it shows then is what came since.
    """
    times, total = np.asarray(times_s, dtype=float), _total(counts)
    before = np.maximum(times - window_s, times[0] if len(times) else 0.0)
    span_s = times - before
    moved = total - np.interp(before, times, total) if len(times) else total
    return np.asarray(np.divide(moved * 8e-6, span_s, out=np.zeros_like(total), where=span_s > 0))


def moved_bytes(times_s: Sequence[float], counts: Sequence[int], from_s: float, to_s: float) -> float:
    """What a counter of bytes counted in a span, whenever in it somebody looked."""
    # A recording that goes on may have one moment more than values.
    known = min(len(times_s), len(counts))
    if not known:
        return 0.0
    times_s, counts = times_s[:known], counts[:known]
    at_from, at_to = np.interp([from_s, to_s], np.asarray(times_s, dtype=float), _total(counts)).tolist()
    return float(at_to - at_from)


def _total(counts: Sequence[int]) -> FloatArray:
    """What has come since the first sample, by sample."""
    raw = np.asarray(counts, dtype=float)
    steps = np.diff(raw, prepend=raw[:1])
    return np.asarray(np.cumsum(np.where(steps < 0, raw, steps)))


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


class Recording(Watch):
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
        *,
        names_every_s: float = NAMES_INTERVAL_S,
    ) -> None:
        super().__init__("recording")
        self._names_every_s = names_every_s
        self._emulation = emulation
        self._nodes = tuple(dict.fromkeys(nodes))
        self._hosts = tuple(hosts)
        self._interval_s = interval_s
        self._clients: dict[str, EdgeClient] = {}
        self._allocated: defaultdict[PathKey, _Series] = defaultdict(_Series)
        self._sent: defaultdict[PathKey, _Series] = defaultdict(_Series)
        self._received: defaultdict[PathKey, _Series] = defaultdict(_Series)
        self._host_bytes: defaultdict[str, _Series] = defaultdict(_Series)
        self._links: dict[PathKey, tuple[str, ...]] = {}
        self.numbers: dict[str, int] = {}
        self.missed = 0
        self.start_s = self.end_s = time.monotonic()

    def __enter__(self) -> Self:
        self.start_s = time.monotonic()
        return super().__enter__()

    def _ended(self) -> None:
        self.end_s = time.monotonic()

    def _watch(self) -> None:
        names_s = 0.0
        while not self._stop.is_set():
            began_s = time.monotonic()
            for node in self._nodes:
                self._agent(node)
            for host in self._hosts:
                self._host_bytes[host].add(time.monotonic(), received_bytes(self._emulation, host))
            if began_s - names_s >= self._names_every_s:
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
            flows = self._emulation.rest.get("/flows")["flows"]
        except ClientError:
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
        rows: list[list[str]] = []
        for flow in flows:
            for key, links in self.paths(flow).items():
                columns = (self.allocated_path(key, at), self.sent_path(key, at), self.delivered_path(key, at))
                for time_s, *mbps in zip(at.tolist(), *(column.tolist() for column in columns), strict=True):
                    rows.append([f"{time_s:.2f}", flow, links, *(f"{value:.4f}" for value in mbps)])
        header = ["time_s", "flow", "path", "allocated_mbps", "sent_mbps", "delivered_mbps"]
        path.write_text(csv_text(header, rows), encoding="utf-8")

    def _keys(self, flow: str, series: Mapping[PathKey, Any]) -> list[PathKey]:
        number = self.numbers.get(flow)
        return sorted(key for key in list(series) if key[0] == number)

    def _sum(self, keys: Sequence[PathKey], of: Any, at_s: FloatArray) -> FloatArray:
        return np.asarray(sum((of(key) for key in keys), np.zeros_like(at_s)))


SUFFIXES = (".png", ".svg")
_SIZE_INCHES = (9.0, 3.2)
_DPI = 130


@dataclass(frozen=True)
class Panel:
    """A diagram over time: measured ``lines`` (label -> times, values), and ``theory`` as steps of the same colour.

    ``theory`` maps a label to (from, to, value) spans.
    """

    title: str
    y_label: str
    lines: Mapping[str, tuple[FloatArray, FloatArray]]
    theory: Mapping[str, Sequence[tuple[float, float, float]]] = field(default_factory=dict)


def can_draw() -> bool:
    """Whether Matplotlib is there."""
    return find_spec("matplotlib") is not None


def draw(folder: Path, name: str, panels: Sequence[Panel], marks: Mapping[float, str]) -> list[Path]:
    """Draws the panels one above the other, as PNG and SVG; ``marks`` are moments with their words."""
    # Without pyplot: no global state, no window system.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_SIZE_INCHES[0], _SIZE_INCHES[1] * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for number, (panel, where) in enumerate(zip(panels, axes, strict=True)):
        _draw_panel(where, panel)
        for time_s, words in marks.items():
            where.axvline(time_s, color="0.7", linewidth=0.8, linestyle=":")
            if number == 0:
                where.annotate(words, (time_s, 1.0), xycoords=("data", "axes fraction"), fontsize="x-small",
                               rotation=20, ha="left", va="bottom", color="0.35")  # fmt: skip
    axes[-1].set_xlabel("time (s)")
    files = [folder / f"{name}{suffix}" for suffix in SUFFIXES]
    for path in files:
        figure.savefig(path, dpi=_DPI, metadata={"Date": None} if path.suffix == ".svg" else None)
    return files


def _draw_panel(where: Any, panel: Panel) -> None:
    for number, (label, (times_s, values)) in enumerate(panel.lines.items()):
        colour = f"C{number % 10}"
        where.plot(times_s, values, label=label, linewidth=1.2, color=colour)
        for index, (from_s, to_s, value) in enumerate(panel.theory.get(label, ())):
            words = "theory" if number == 0 and index == 0 else None
            where.hlines(value, from_s, to_s, colour, linestyles="--", linewidth=1.0, label=words)
    where.set(ylabel=panel.y_label)
    where.set_title(panel.title, loc="left", fontsize="medium", pad=22 if panel.theory else 6)
    where.set_ylim(bottom=0)
    where.margins(x=0)
    where.grid(alpha=0.25)
    where.legend(fontsize="x-small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
