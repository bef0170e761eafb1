"""The live snapshot of an access point: reads its radios when asked, at most every 100 ms, in a thread of its own.

snmpd waits for its ``pass_persist`` program, so a radio that is slow to answer must not hold up the answer: after
``PATIENCE_S`` the old snapshot is served, and ``hyroadsSnapshotAge`` says how old it is.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping

from hyroads.controller.radio.config import AgentConfig
from hyroads.controller.radio.mib import Oid, Tree, Value
from hyroads.controller.radio.model import Interface, Radio, RadioError, Reading, Snapshot, SteadyCounters, named

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
