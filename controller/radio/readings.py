"""Readings of an access point's own radios for the channel: one thread per radio, so that a slow one holds up none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from hyroads.controller.radio.channel import Document, interface_document
from hyroads.controller.radio.config import AgentConfig
from hyroads.controller.radio.model import Radio, RadioError, Reading, SteadyCounters


class _Worker:
    """Reads one radio whenever it is asked to; at most one reading at a time."""

    def __init__(
        self, technology: str, radio: Radio, done: threading.Condition, complain: Callable[[str], None]
    ) -> None:
        self.technology = technology
        self.latest: Reading | None = None
        self.busy = False
        self._radio = radio
        self._done = done
        self._complain = complain
        self._wanted = threading.Event()
        self._counters = SteadyCounters()
        threading.Thread(target=self._work, daemon=True).start()

    def ask(self) -> None:
        """Read now, unless it is being read."""
        self.busy = True
        self._wanted.set()

    def _work(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            reading = self._read()
            with self._done:
                self.latest, self.busy = reading, False
                self._done.notify_all()

    def _read(self) -> Reading | None:
        """A reading whose counters only grow; None if the radio can't be read: nothing is told rather than old news."""
        try:
            reading = self._radio.read(time.monotonic())
        except (RadioError, OSError) as error:
            self._complain(f"{self.technology}: {error}")
            return None
        busy_us, active_us, _ = self._counters.add(reading.busy_us, reading.active_us)
        return replace(reading, busy_us=busy_us, active_us=active_us)


class OwnReadings:
    """:class:`~hyroads.controller.radio.channel.Readings` of one node's radios."""

    def __init__(self, config: AgentConfig, radios: Mapping[str, Radio], complain: Callable[[str], None]) -> None:
        self._node = config.node
        self._done = threading.Condition()
        self._workers = [
            _Worker(entry.technology, radios[entry.name], self._done, complain) for entry in config.interfaces
        ]

    def collect(self, nodes: Collection[str], patience_s: float) -> dict[str, Document]:
        """Asks all radios; those that don't answer in time are told of when they do."""
        if self._node not in nodes:
            return {}
        with self._done:
            for worker in self._workers:
                if not worker.busy and worker.latest is None:
                    worker.ask()
            self._done.wait_for(lambda: not any(worker.busy for worker in self._workers), patience_s)
            fresh = [(worker.technology, worker.latest) for worker in self._workers]
            for worker in self._workers:
                worker.latest = None
        interfaces = [interface_document(name, reading) for name, reading in fresh if reading is not None]
        return {self._node: {"time_s": time.monotonic(), "interfaces": interfaces}} if interfaces else {}
