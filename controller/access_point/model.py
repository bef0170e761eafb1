"""What the radio back ends produce and the SNMP agent serves: readings, and snapshots of a whole node."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from hyroads.controller.core.errors import HyroadsError

UNKNOWN_SIGNAL_DBM = 127
BUSY_WINDOW_US = 1_000_000
BUSY_SOURCES = ("", "sniffer", "counters", "none")
"""How busy time is known: by the radio's driver; by every delimiter on a power line; by counters of a power-line
adapter's own network, which is a lower bound; not at all."""


class RadioError(HyroadsError):
    """A radio could not be read, or said something that makes no sense."""


def mac_bytes(mac: str) -> bytes:
    """The six bytes of ``02:00:00:00:00:01``."""
    return bytes.fromhex(mac.replace(":", ""))


@dataclass(frozen=True, slots=True)
class PowerLineEnd:
    """What is known of a neighbour on a power line: the address of its adapter, the share of blocks to it that can't be
    decoded (None: not known), and the BLE in Mb/s of each tone-map slot to it (empty: not known).
    """

    adapter: str
    block_errors: float | None = None
    slot_ble_mbps: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Who is heard on an interface. Capacities are L2 payload; 0: no estimate, ``signal_dbm`` None: not known.

    ``plc`` is None if the interface is not on a power line.
    """

    mac: str
    node: str = ""
    tx_capacity_kbps: int = 0
    rx_capacity_kbps: int = 0
    tx_loss: float = 0.0
    signal_dbm: int | None = None
    last_heard_ms: int = 0
    modulation: str = ""
    plc: PowerLineEnd | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of one radio: counters since some start, and neighbours.

    ``active_us`` is for how long the medium was observed, ``busy_us`` for how much of that it was busy. ``busy_source``
    says how that is known; see :data:`BUSY_SOURCES`. ``adapter`` is the address of the interface's own power-line
    adapter, empty without one.
    """

    busy_us: int
    active_us: int
    neighbours: tuple[Neighbour, ...]
    busy_source: str = ""
    adapter: str = ""


@dataclass(frozen=True, slots=True)
class Interface:
    """One interface of a snapshot; ``busy_us`` and ``active_us`` never decrease while ``boot`` stays."""

    index: int
    name: str
    technology: str
    medium: str
    busy_us: int
    active_us: int
    busy_share: float
    neighbours: tuple[Neighbour, ...]
    busy_source: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a node serves, taken at ``clock_us`` of its own monotonic clock."""

    node: str
    boot: bytes
    clock_us: int
    interfaces: tuple[Interface, ...]


class Radio(Protocol):
    """A back end for one interface."""

    def read(self, now_s: float) -> Reading:
        """A reading now; raises :class:`RadioError`."""


class SteadyCounters:
    """Turns the counters of drivers into ones that only grow, and keeps the busy share of the last second.

    Drivers count in two ways: since some start (a reset, a change of channel), or since the last reading (ath10k and
    others). The time between two readings shows which: the observed time either grew by about that, or is about that.
    """

    def __init__(self) -> None:
        self._last: tuple[int, int, float] | None = None
        self._busy_us = 0
        self._active_us = 0
        self._history: deque[tuple[int, int]] = deque([(0, 0)])

    def add(self, busy_us: int, active_us: int, now_s: float) -> tuple[int, int, float]:
        """The next reading, taken at ``now_s`` (monotonic); returns (busy_us, active_us, busy_share)."""
        before = self._last or (busy_us, active_us, now_s)
        base = (0, 0) if _is_restart(before, (busy_us, active_us, now_s)) else before[:2]
        self._last = (busy_us, active_us, now_s)
        active_step = max(0, active_us - base[1])
        # A driver may count a frame's end before the time it took; a medium is never busier than observed.
        self._busy_us += min(max(0, busy_us - base[0]), active_step)
        self._active_us += active_step
        return self._busy_us, self._active_us, self._share()

    def _share(self) -> float:
        history = self._history
        if self._active_us > history[-1][1]:
            history.append((self._busy_us, self._active_us))
        while len(history) > 2 and self._active_us - history[1][1] >= BUSY_WINDOW_US:
            history.popleft()
        busy, active = self._busy_us - history[0][0], self._active_us - history[0][1]
        return busy / active if active > 0 else 0.0


def _is_restart(before: tuple[int, int, float], now: tuple[int, int, float]) -> bool:
    """Whether the counters (busy time, observed time, both in us; when, in s) started after the reading ``before``."""
    if now[0] < before[0] or now[1] < before[1]:
        return True
    elapsed_us = (now[2] - before[2]) * 1e6
    return abs(now[1] - elapsed_us) < abs(now[1] - before[1] - elapsed_us)
