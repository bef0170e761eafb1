"""The collector: polls all access points, in a process of its own, and writes a line of JSON for each answer.

    python -m hyroads.controller.measure.collector < configuration > samples

pysnmp needs asyncio and 1 to 3 ms of CPU per poll: inside the controller it would hold up OpenFlow. Polls of different
targets are spread over the interval. A target that does not answer is asked less and less often, and said so.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from hyroads.controller.access_point.mib import INTERFACE_ENTRY, NEIGHBOUR_ENTRY, NODE_NAME
from hyroads.controller.core.errors import HyroadsError

from .derive import Deriver
from .readings import (
    IF_COLUMNS,
    INTERFACE_FAST,
    INTERFACE_SLOW,
    NEIGHBOUR_FAST,
    NEIGHBOUR_SLOW,
    SCALARS,
    ReadingError,
    columns_of,
    interface_indices,
    neighbour_rows,
    reading,
)
from .samples import Event, NodeSample, Silence, to_line
from .snmp_client import Engines, SnmpClient, SnmpError, Values
from .targets import CollectorConfig, Target, parse

NICE = 10
START_OVER_EACH = 8
_PR_SET_PDEATHSIG = 1

Emit = Callable[[Event], None]


@dataclass
class _Known:
    """What is asked for by name in the next poll, and what is read only now and then."""

    interfaces: tuple[int, ...] = ()
    rows: int = 0
    slow: Values = field(default_factory=dict)
    slow_until_s: float = 0.0


class Poller:
    """Polls one target for ever."""

    def __init__(self, engines: Engines, target: Target, config: CollectorConfig, emit: Emit) -> None:
        self._target = target
        self._config = config
        self._emit = emit
        self._client = SnmpClient(engines, target, config.timeout_s)
        self._known = _Known()
        self._deriver = Deriver(target.name)
        self._failures = 0

    async def run(self, start_s: float) -> None:
        """Polls at ``start_s`` and then each interval of time.monotonic(); a missed turn is not made up for."""
        next_s = start_s
        while True:
            await asyncio.sleep(max(0.0, next_s - time.monotonic()))
            wait_s = await self.poll()
            now_s = time.monotonic()
            next_s += wait_s
            if next_s < now_s:
                next_s += self._config.interval_s * (1 + (now_s - next_s) // self._config.interval_s)

    async def poll(self) -> float:
        """One poll; returns the time until the next."""
        try:
            sample = await self._sample()
        except (SnmpError, ReadingError) as error:
            self._failures += 1
            wait_s = min(self._config.max_backoff_s, self._config.interval_s * 2.0 ** min(self._failures - 1, 10))
            if self._failures > 1 or isinstance(error, ReadingError):
                # What is known of the target may be the reason: the next poll starts from nothing. Not after a single
                # lost datagram, for that costs four requests where there may be too many already.
                self._known = _Known()
            if self._failures % START_OVER_EACH == 2:  # at the second failure, and now and then
                self._client.start_over()
            self._emit(Silence(self._target.name, time.monotonic(), self._failures, wait_s, str(error)[:200]))
            return wait_s
        self._failures = 0
        self._emit(sample)
        return self._config.interval_s

    async def _sample(self) -> NodeSample:
        """One GETBULK: what is known by name, and the neighbour table with a row to spare."""
        if time.monotonic() >= self._known.slow_until_s:
            await self._discover()
        known = self._known
        columns = (*columns_of(INTERFACE_ENTRY, INTERFACE_FAST), *IF_COLUMNS)
        exact = [(*column, index) for index in known.interfaces for column in columns]
        values = await self._client.columns([*SCALARS, *exact], columns_of(NEIGHBOUR_ENTRY, NEIGHBOUR_FAST), known.rows)
        answered_s = time.monotonic()
        rows = neighbour_rows(values)
        name = columns_of(NEIGHBOUR_ENTRY, NEIGHBOUR_SLOW)[0]
        if not all((*name, *row) in known.slow for row in rows):
            await self._discover()
        self._known.rows = len(rows)
        return self._deriver.sample(reading({**self._known.slow, **values}), answered_s)

    async def _discover(self) -> None:
        """Reads names and what else hardly changes: when its time has come, or when rows have appeared."""
        known, interfaces = self._known, columns_of(INTERFACE_ENTRY, INTERFACE_SLOW)
        slow = await self._client.columns([NODE_NAME], interfaces, len(known.interfaces))
        slow.update(await self._client.columns([], columns_of(NEIGHBOUR_ENTRY, NEIGHBOUR_SLOW), known.rows))
        until_s = time.monotonic() + self._config.slow_every_s
        self._known = _Known(interface_indices(slow), len(neighbour_rows(slow, NEIGHBOUR_SLOW[0])), slow, until_s)


async def collect(config: CollectorConfig, emit: Emit) -> None:
    """Polls all targets until cancelled."""
    engines = Engines()
    now_s = time.monotonic()
    step_s = config.interval_s / max(1, len(config.targets))
    pollers = (Poller(engines, target, config, emit) for target in config.targets)
    await asyncio.gather(*(poller.run(now_s + i * step_s) for i, poller in enumerate(pollers)))


def _write(event: Event) -> None:
    """A whole line in one call; the reader's pause is ours."""
    line = memoryview(to_line(event))
    while line:
        line = line[os.write(sys.stdout.fileno(), line) :]


def main() -> int:
    """Reads the configuration from stdin, writes samples to stdout until that is closed."""
    # The controller must not leave a collector behind, however it ends.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    os.nice(NICE)
    try:
        asyncio.run(collect(parse(sys.stdin.read()), _write))
    except HyroadsError as error:
        print(f"hyroads: {error}", file=sys.stderr)
        return 2
    except (BrokenPipeError, KeyboardInterrupt):
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
