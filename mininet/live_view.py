"""What a demo shows while it runs: phases and results, and figures of the network.

Of an emulated network these are the links' busy time, the paths' rates and the throughput, over the time between two
looks at medium and controller.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hyroads.rest.client import ClientError

from .control_sockets import LinkStats
from .emulation import Emulation
from .programs import EmulationError

BITS = 8
MEGA = 1e6
BAR_WIDTH = 24
PLAIN_INTERVAL_S = 2.0
MAX_NOTES = 8
QUIET_MBPS = 0.05
# A line of a large network shows the links and paths that carry most.
SHOWN = 6


class Figures(Protocol):
    """What a look at a network found."""

    def line(self) -> str:
        """All that matters on one line."""

    def tables(self) -> Sequence[Text | Table]:
        """All of it, for a terminal."""


class View:
    """Shows what goes on, as lines: phases and results at once, the figures now and then."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._began_s = time.monotonic()
        self._shown_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to end."""

    def phase(self, text: str) -> None:
        """Says what is being done now."""
        self._print(f"== {text}")

    def note(self, text: str) -> None:
        """Adds a result."""
        self._print(f"   {text}")

    def update(self, look: Callable[[], Figures]) -> None:
        """A line every two seconds."""
        if time.monotonic() - self._shown_s < PLAIN_INTERVAL_S:
            return
        self._shown_s = time.monotonic()
        self._print(f"   {self._shown_s - self._began_s:6.1f} s  {look().line()}")

    def _print(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


class LiveView(View):
    """A terminal's live view."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._phase = ""
        self._notes: list[str] = []
        self._tables: Sequence[Text | Table] = ()
        self._live = Live(console=Console(file=stream), refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.__exit__(None, None, None)

    def phase(self, text: str) -> None:
        """Says what is being done now."""
        self._phase = text
        self._show()

    def note(self, text: str) -> None:
        """Adds a result."""
        self._notes = [*self._notes, text][-MAX_NOTES:]
        self._show()

    def update(self, look: Callable[[], Figures]) -> None:
        """Shows what a look finds."""
        self._tables = look().tables()
        self._show()

    def _show(self) -> None:
        title = Text(f"{self._phase}   {time.monotonic() - self._began_s:.0f} s", style="bold")
        notes = (Text(note, style="red" if note.startswith("FAIL") else "green") for note in self._notes)
        self._live.update(Group(title, *self._tables, *notes))


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

    links: tuple[LinkSample, ...]
    paths: tuple[PathSample, ...]
    throughput_mbps: Mapping[str, float]
    controller_answers: bool

    def line(self) -> str:
        """What carries something, the busiest of it."""
        in_use = [link for link in self.links if link.rate_mbps > QUIET_MBPS]
        busiest = sorted(in_use, key=lambda link: -link.rate_mbps)[:SHOWN]
        busy = " ".join(f"{link.id}:{link.busy:.0%}" for link in in_use if link in busiest)
        known = [path for path in self.paths if (path.received_mbps or 0.0) > QUIET_MBPS]
        largest = sorted(known, key=lambda path: -(path.received_mbps or 0.0))[:SHOWN]
        paths = " ".join(f"{'+'.join(path.links)}={path.received_mbps:.2f}" for path in known if path in largest)
        hosts = " ".join(f"{host}={mbps:.2f}" for host, mbps in self.throughput_mbps.items() if mbps > QUIET_MBPS)
        parts = [f"busy {busy or '-'}", *([f"paths Mb/s {paths}"] if paths else []), f"throughput Mb/s {hosts or '-'}"]
        return "  ".join(parts)

    def tables(self) -> Sequence[Text | Table]:
        """Links, paths and throughput."""
        return _links_table(self), _paths_table(self), _throughput_line(self)


class Sampler:
    """Takes samples; every one covers the time since the one before."""

    def __init__(self, emulation: Emulation, hosts: tuple[str, ...]) -> None:
        self._emulation = emulation
        self._hosts = hosts
        self._links: dict[str, tuple[float, ...]] = {}
        self._bytes: dict[str, tuple[float, int]] = {}

    def take(self) -> Sample:
        """One sample; a controller that does not answer leaves ``paths`` empty."""
        with self._emulation.shared.client() as client:
            statistics = client.stats()
        paths, answers = self._paths()
        return Sample(
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
        if not any(program.alive for program in self._emulation.controllers):
            return (), False
        try:
            flows = self._emulation.rest.measurements()["flows"]
        except ClientError:
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


def _links_table(sample: Sample) -> Table:
    table = Table(title="links of the shared medium", title_justify="left", expand=False)
    for heading in ("link", "capacity Mb/s", "rate Mb/s", "sending", "domain busy", ""):
        table.add_column(heading, justify="left" if heading in ("link", "") else "right")
    for link in sample.links:
        cells = (link.id, f"{link.capacity_mbps:g}", f"{link.rate_mbps:.2f}", f"{link.sending:.0%}", f"{link.busy:.0%}")
        table.add_row(*cells, _bar(link.busy) if link.up else "down", style=None if link.up else "red")
    return table


def _paths_table(sample: Sample) -> Table:
    title = "paths" if sample.controller_answers else "paths (the controller does not answer)"
    table = Table(title=title, title_justify="left", expand=False)
    for heading in ("flow", "path", "allocated Mb/s", "received Mb/s", "delay ms"):
        table.add_column(heading, justify="left" if heading in ("flow", "path") else "right")
    for path in sample.paths:
        figures = (_figure(value) for value in (path.rate_mbps, path.received_mbps, path.delay_ms))
        table.add_row(path.flow, " + ".join(path.links), *figures)
    return table


def _throughput_line(sample: Sample) -> Text:
    hosts = "   ".join(f"{host} {mbps:6.2f}" for host, mbps in sample.throughput_mbps.items())
    return Text(f"received by hosts, Mb/s:   {hosts}")


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _bar(share: float) -> str:
    filled = round(share * BAR_WIDTH)
    return "█" * filled + "·" * (BAR_WIDTH - filled)
