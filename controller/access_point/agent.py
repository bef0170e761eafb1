"""The live snapshot of an access point: reads its radios when asked, at most every 100 ms, in a thread of its own.

snmpd waits for its ``pass_persist`` program, so a radio that is slow to answer must not hold up the answer: after
``PATIENCE_S`` the old snapshot is served, and ``hyroadsSnapshotAge`` says how old it is.

Readings of an access point's own radios for the channel: one thread per radio, so that a slow one holds up none.

Complaints on stderr, each at most once in ten seconds: a radio that fails, fails ten times a second.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from .channel import Document, interface_document
from .config import AgentConfig
from .mib import Oid, Tree, Value
from .model import Interface, Radio, RadioError, Reading, Snapshot, SteadyCounters, named

REFRESH_S = 0.1
PATIENCE_S = 0.2
COMPLAIN_EVERY_S = 10.0


def _now_us() -> int:
    return time.monotonic_ns() // 1000


class LiveObjects:
    """The objects of HYROADS-MIB as they are now; ``get`` and ``following`` refresh them."""

    def __init__(self, config: AgentConfig, radios: Mapping[str, Radio]) -> None:
        self._config = config
        self._radios = radios
        self._boot = os.urandom(8)
        self._counters = {name: SteadyCounters() for name in radios}
        self._complained_s: dict[str, float] = {}
        self._tree = Tree(Snapshot(config.node, self._boot, _now_us(), ()))
        self._fresh = threading.Condition()
        self._wanted = threading.Event()
        self._busy = False
        self._read_once = False
        threading.Thread(target=self._refresh_for_ever, daemon=True).start()

    def get(self, oid: Oid) -> Value | None:
        """The object, or None."""
        return self._current().get(oid, _now_us())

    def following(self, oid: Oid) -> Oid | None:
        """The first object after ``oid``."""
        return self._current().following(oid)

    def _current(self) -> Tree:
        tree = self._tree
        if self._read_once and _now_us() - tree.clock_us < REFRESH_S * 1e6:
            return tree
        with self._fresh:
            already_late = self._busy
            self._wanted.set()
            # A refresh that kept one request waiting in vain does not keep the following ones waiting too.
            if not already_late:
                self._busy = True
                self._fresh.wait_for(lambda: not self._busy, PATIENCE_S)
            return self._tree

    def _refresh_for_ever(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            tree = Tree(self._snapshot())
            with self._fresh:
                self._tree, self._busy, self._read_once = tree, False, True
                self._fresh.notify_all()

    def _snapshot(self) -> Snapshot:
        clock_us = _now_us()
        interfaces = (self._interface(i, radio) for i, radio in enumerate(self._radios.values()))
        return Snapshot(self._config.node, self._boot, clock_us, tuple(i for i in interfaces if i is not None))

    def _interface(self, place: int, radio: Radio) -> Interface | None:
        """The interface, or None: what could not be read is not served, rather than served old."""
        entry = self._config.interfaces[place]
        try:
            index = socket.if_nametoindex(entry.name)
            reading: Reading = radio.read(time.monotonic())
        except (RadioError, OSError) as error:
            self._complain(entry.name, error)
            return None
        busy_us, active_us, busy_share = self._counters[entry.name].add(reading.busy_us, reading.active_us)
        neighbours = named(reading.neighbours, dict(self._config.neighbours))
        return Interface(index, entry.name, entry.technology, entry.medium, busy_us, active_us, busy_share, neighbours)

    def _complain(self, name: str, error: Exception) -> None:
        now_s = time.monotonic()
        if now_s - self._complained_s.get(name, -COMPLAIN_EVERY_S) >= COMPLAIN_EVERY_S:
            self._complained_s[name] = now_s
            print(f"hyroads ap-agent: {name}: {error}", file=sys.stderr, flush=True)


RadioMaker = Callable[[AgentConfig, int], Radio]


def make_radios(config: AgentConfig, makers: Mapping[str, RadioMaker]) -> dict[str, Radio]:
    """A radio per interface, in the order of the configuration."""
    return {entry.name: makers[entry.backend](config, place) for place, entry in enumerate(config.interfaces)}


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
    """:class:`~hyroads.controller.access_point.channel.Readings` of one node's radios."""

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


EVERY_S = 10.0
MAX_KNOWN = 256


class Complaints:
    """Callable with a complaint, from any thread."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._lock = threading.Lock()
        self._until_s: dict[str, float] = {}

    def __call__(self, what: str) -> None:
        """Says it, unless it was said just now."""
        now_s = time.monotonic()
        with self._lock:
            if now_s < self._until_s.get(what, 0.0):
                return
            if len(self._until_s) >= MAX_KNOWN:
                self._until_s.clear()
            self._until_s[what] = now_s + EVERY_S
        print(f"{self._program}: {what}", file=sys.stderr, flush=True)
