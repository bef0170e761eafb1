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

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.measure.derive import Deriver
from hyroads.controller.measure.readings import (
    IF_COLUMNS,
    INTERFACE_FAST,
    INTERFACE_SLOW,
    NEIGHBOUR_FAST,
    NEIGHBOUR_SLOW,
    SCALARS,
    ReadingError,
    interface_columns,
    interface_indices,
    neighbour_columns,
    neighbour_indices,
    reading,
)
from hyroads.controller.measure.samples import Event, NodeSample, Silence, to_line
from hyroads.controller.measure.snmp_client import SnmpClient, SnmpError, Values
from hyroads.controller.measure.targets import CollectorConfig, Target, parse
from pysnmp.hlapi.v3arch.asyncio import SnmpEngine

NICE = 5
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

    def __init__(self, engine: SnmpEngine, target: Target, config: CollectorConfig, emit: Emit) -> None:
        self._target = target
        self._config = config
        self._emit = emit
        self._client = SnmpClient(engine, target, config.timeout_s)
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
            # What is known of the target may be the reason: the next poll starts from nothing.
            self._known = _Known()
            self._emit(Silence(self._target.name, time.monotonic(), self._failures, wait_s, str(error)[:200]))
            return wait_s
        self._failures = 0
        self._emit(sample)
        return self._config.interval_s

    async def _sample(self) -> NodeSample:
        known = self._known
        exact = [(*column, index) for index in known.interfaces for column in IF_COLUMNS]
        interfaces = await self._client.columns(
            [*SCALARS, *exact], interface_columns(INTERFACE_FAST), len(known.interfaces)
        )
        answered_s = time.monotonic()
        neighbours = await self._client.columns([], neighbour_columns(NEIGHBOUR_FAST), known.rows)
        values = {**interfaces, **neighbours}
        await self._refresh(values, answered_s)
        return self._deriver.sample(reading({**self._known.slow, **values}), answered_s)

    async def _refresh(self, values: Values, now_s: float) -> None:
        """Reads the slow columns again when their time has come, or rows have appeared or gone."""
        known, indices, rows = self._known, interface_indices(values), neighbour_indices(values)
        same = indices == known.interfaces and all((*neighbour_columns((8,))[0], *row) in known.slow for row in rows)
        if same and now_s < known.slow_until_s:
            known.rows = len(rows)
            return
        slow = await self._client.columns([], interface_columns(INTERFACE_SLOW), len(indices))
        slow.update(await self._client.columns([], neighbour_columns(NEIGHBOUR_SLOW), len(rows)))
        missing = [(*column, index) for index in indices if index not in known.interfaces for column in IF_COLUMNS]
        for start in range(0, len(missing), 30):
            values.update(await self._client.columns(missing[start : start + 30], [], 0))
        self._known = _Known(indices, len(rows), slow, now_s + self._config.slow_every_s)


async def collect(config: CollectorConfig, emit: Emit) -> None:
    """Polls all targets until cancelled."""
    engine = SnmpEngine()
    now_s = time.monotonic()
    step_s = config.interval_s / max(1, len(config.targets))
    pollers = (Poller(engine, target, config, emit) for target in config.targets)
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
