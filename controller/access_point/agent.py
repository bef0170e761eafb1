"""Readings of an access point's own radios: for its snmpd (:class:`LiveObjects`) and for the radio channel.

A radio is read when somebody asks, each in a thread of its own, so that a slow one holds up neither the others nor an
answer: snmpd waits for its ``pass_persist`` program. What fails is said on stderr, at most once in ten seconds each.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from .config import AgentConfig, InterfaceConfig
from .hostapd import Document
from .ieee1905_entity import OwnLink
from .mib import Oid, Tree, Value
from .model import Interface, Radio, RadioError, Reading, Snapshot, SteadyCounters
from .reading_changes import interface_document

REFRESH_US = 100_000
PATIENCE_S = 0.2
COMPLAIN_EVERY_S = 10.0
MAX_KNOWN = 256

RadioMaker = Callable[[AgentConfig, int], Radio]


def make_radios(config: AgentConfig, makers: Mapping[str, RadioMaker]) -> dict[str, Radio]:
    """A radio per interface, in the order of the configuration."""
    return {entry.name: makers[entry.backend](config, place) for place, entry in enumerate(config.interfaces)}


class _Worker:
    """Reads one radio whenever it is asked to; at most one reading at a time."""

    def __init__(
        self, entry: InterfaceConfig, radio: Radio, done: threading.Condition, complain: Callable[[str], None]
    ) -> None:
        self.entry = entry
        self.latest: Reading | None = None
        """Its counters only grow; None if the radio can't be read: nothing is told rather than old news."""
        self.busy_share = 0.0
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
            reading: Reading | None = None
            try:
                reading = self._radio.read(time.monotonic())
            except (RadioError, OSError) as error:
                self._complain(f"{self.entry.name}: {error}")
            else:
                counters = reading.busy_us, reading.active_us
                busy_us, active_us, self.busy_share = self._counters.add(*counters, time.monotonic())
                reading = replace(reading, busy_us=busy_us, active_us=active_us)
            with self._done:
                self.latest, self.busy = reading, False
                self._done.notify_all()


class OwnReadings:
    """:class:`~hyroads.controller.access_point.channel.Readings` of one node's radios."""

    def __init__(self, config: AgentConfig, radios: Mapping[str, Radio], complain: Callable[[str], None]) -> None:
        self._node = config.node
        self._last: dict[str, tuple[Reading, float]] = {}
        """By interface: the last reading, and its busy share."""
        self._done = threading.Condition()
        self._workers = [_Worker(entry, radios[entry.name], self._done, complain) for entry in config.interfaces]

    def ask(self) -> None:
        """Reads each radio that is not being read, and whose latest reading was taken."""
        with self._done:
            for worker in self._workers:
                if not worker.busy and worker.latest is None:
                    worker.ask()

    def all_read(self, patience_s: float) -> bool:
        """Whether no radio is being read any more, at the latest after so long."""
        with self._done:
            return self._done.wait_for(lambda: not any(worker.busy for worker in self._workers), patience_s)

    def take(self) -> list[tuple[InterfaceConfig, Reading, float]]:
        """Interfaces with what was read since the last call and the busy share of the last second."""
        with self._done:
            fresh = [(worker.entry, worker.latest, worker.busy_share) for worker in self._workers]
            for worker in self._workers:
                worker.latest = None
        read = [(entry, reading, share) for entry, reading, share in fresh if reading is not None]
        self._last.update({entry.name: (reading, share) for entry, reading, share in read})
        return read

    def link(self, interface: str, mac: str) -> OwnLink | None:
        """What the last reading of an interface says of the link to a neighbour; None if it has no estimate."""
        reading, share = self._last.get(interface, (None, 0.0))
        rows = () if reading is None else reading.neighbours
        row = next((row for row in rows if row.mac == mac and row.tx_capacity_kbps), None)
        return None if row is None else OwnLink(row.tx_capacity_kbps / 1000, round(100 * (1 - share)))

    def collect(self, nodes: Collection[str], patience_s: float) -> dict[str, Document]:
        """Asks all radios; those that don't answer in time are told of when they do."""
        if self._node not in nodes:
            return {}
        self.ask()
        self.all_read(patience_s)
        interfaces = [interface_document(entry.technology, reading) for entry, reading, _ in self.take()]
        return {self._node: {"time_s": time.monotonic(), "interfaces": interfaces}} if interfaces else {}


class LiveObjects:
    """The objects of HYROADS-MIB as they are now; ``get`` and ``following`` read the radios at most every 100 ms.

    After ``PATIENCE_S`` the old snapshot is served, and ``hyroadsSnapshotAge`` says how old it is.
    """

    def __init__(self, config: AgentConfig, radios: Mapping[str, Radio]) -> None:
        self._config = config
        self._boot = os.urandom(8)
        self._complain = Complaints("hyroads ap-agent")
        self._readings = OwnReadings(config, radios, self._complain)
        self._asked_us: int | None = None
        # So old that the first question reads.
        self._tree = Tree(Snapshot(config.node, self._boot, _now_us() - REFRESH_US, ()))

    def get(self, oid: Oid) -> Value | None:
        """The object, or None."""
        return self._current().at(oid, _now_us())

    def following(self, oid: Oid) -> Oid | None:
        """The first object after ``oid``."""
        return self._current().following(oid)

    def _current(self) -> Tree:
        # A reading that kept one request waiting in vain does not keep the following ones waiting too.
        self._renew(0.0)
        if self._asked_us is None and _now_us() - self._tree.clock_us >= REFRESH_US:
            self._asked_us = _now_us()
            self._readings.ask()
            self._renew(PATIENCE_S)
        return self._tree

    def _renew(self, patience_s: float) -> None:
        """What was asked for is the snapshot once all radios are read."""
        if self._asked_us is not None and self._readings.all_read(patience_s):
            found = (self._interface(*fresh) for fresh in self._readings.take())
            interfaces = tuple(interface for interface in found if interface is not None)
            self._tree = Tree(Snapshot(self._config.node, self._boot, self._asked_us, interfaces))
            self._asked_us = None

    def _interface(self, entry: InterfaceConfig, reading: Reading, busy_share: float) -> Interface | None:
        try:
            index = socket.if_nametoindex(entry.name)
        except OSError as error:
            self._complain(f"{entry.name}: {error}")
            return None
        counters = reading.busy_us, reading.active_us, busy_share
        # A name that a back end gave stays.
        nodes = self._config.neighbours
        named = tuple(n if n.node else replace(n, node=nodes.get(n.mac, "")) for n in reading.neighbours)
        return Interface(index, entry.name, entry.technology, entry.medium, *counters, named, reading.busy_source)


def _now_us() -> int:
    return time.monotonic_ns() // 1000


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
            self._until_s[what] = now_s + COMPLAIN_EVERY_S
        # The log may be full, or its reader gone; that is no reason to end.
        with contextlib.suppress(OSError):
            print(f"{self._program}: {what}", file=sys.stderr, flush=True)
