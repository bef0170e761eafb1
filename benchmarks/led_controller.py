"""The real controller, told by a socket whether it leads (``takeover.py``): what an election will do by itself.

    python benchmarks/led_controller.py SETTINGS PORT

Requests are words on a line: ``lead EPOCH``, ``follow``, ``status``; each is answered by a line of JSON. It begins as a
follower. One that a device shows a greater epoch follows by itself.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from hyroads.controller.app import HyRoads
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.framework.launcher import ryu_manager

POLL_S = 0.001
PORT = "HYROADS_LED_PORT"


class LedController(HyRoads):
    """The application, and the socket."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.epoch: int | None = None
        self.stepped_down_s: float | None = None
        self.times: dict[str, float] = {}
        self.seen: list[tuple[int, str]] = []
        self.event_loop.epoch_listeners.append(self._epoch_seen)
        self._follow()

    def start(self) -> None:
        super().start()
        shim.spawn(self._serve, shim.listen("127.0.0.1", int(os.environ[PORT])))

    def _follow(self) -> None:
        self.epoch = None
        self.event_loop.registry.follow()
        self.event_loop.agents.follow()

    def _lead(self, epoch: int) -> None:
        self.epoch, self.stepped_down_s, self.seen = epoch, None, []
        self.times = {"lead": time.monotonic()}
        self.event_loop.registry.lead(epoch)
        self.event_loop.agents.lead(epoch)
        shim.spawn(self._watch, epoch)

    def _watch(self, epoch: int) -> None:
        """When all switches have confirmed the role, all agents are obeying, and nothing is pending."""
        loop = self.event_loop
        for what, is_so in (
            ("master", lambda: all(session.may_change for session in loop.switches.values())),
            ("obeyed", lambda: not any(link.is_asked for link in loop.agents._links.values())),
            ("in force", lambda: not loop.unsynced()),
        ):
            while self.epoch == epoch and not is_so():
                shim.sleep(POLL_S)
            self.times[what] = time.monotonic()

    def _epoch_seen(self, epoch: int, who: str) -> None:
        self.seen.append((epoch, who))
        if self.epoch is not None and epoch > self.epoch:
            self.stepped_down_s = time.monotonic()
            self._follow()

    def _serve(self, listener: Any) -> None:
        while True:
            connection, _ = shim.accept(listener)
            shim.spawn(self._answer, connection)

    def _answer(self, connection: Any) -> None:
        lines = shim.LineReader(connection, 200)
        while (line := lines.next(None)) is not None:
            word, *rest = line.decode().split()
            if word == "lead":
                self._lead(int(rest[0]))
            elif word == "follow":
                self._follow()
            connection.sendall(json.dumps(self._status()).encode() + b"\n")

    def _status(self) -> dict[str, Any]:
        loop = self.event_loop
        sessions = loop.switches.values()
        return {
            "epoch": self.epoch,
            "settled": loop.settled,
            "switches": sum(session.is_read for session in sessions),
            "agents": len(loop.agents),
            "unsynced": loop.unsynced(),
            "flow_mods": sum(session.counters.flow_mods for session in sessions),
            "counters": dict(loop.counters),
            "times": self.times,
            "stepped_down_s": self.stepped_down_s,
            "seen": self.seen,
        }


if __name__ == "__main__":
    os.environ.update({"HYROADS_CONFIG": sys.argv[1], PORT: sys.argv[2]})
    sys.exit(ryu_manager(["--default-log-level=30", __file__]))
