"""The real controller, one of several, which tells by a socket what it does and when (``takeover.py``).

    python benchmarks/led_controller.py SETTINGS PORT

Each line that comes is answered by a line of JSON.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
from collections import deque
from typing import Any

from hyroads.controller.app import HyRoads
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.framework.launcher import ryu_manager

POLL_S = 0.001
MOST_SEEN = 500
SEEN = ("link.down", "agent.down", "switch.down", "flow.moved")
"""What makes a controller change something, and is told with the time of the monotonic clock."""
PORT = "HYROADS_LED_PORT"


class LedController(HyRoads):
    """The application, and the socket."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.epoch: int | None = None
        self.stepped_down_s: float | None = None
        self.times: dict[str, float] = {}
        loop = self.event_loop
        self._really_lead, self._really_follow = loop.lead, loop.follow
        loop.lead, loop.follow = self._lead, self._follow
        self.seen: deque[tuple[float, str, str]] = deque(maxlen=MOST_SEEN)
        self._really_publish = loop.events.publish
        loop.events.publish = self._publish

    def start(self) -> None:
        super().start()
        shim.spawn(self._serve, shim.listen("127.0.0.1", int(os.environ[PORT])))

    def _publish(self, kind: str, document: dict[str, Any]) -> Any:
        if kind in SEEN:
            what = next((document[key] for key in ("link", "node", "id") if key in document), "")
            self.seen.append((time.monotonic(), kind, what))
        return self._really_publish(kind, document)

    def _follow(self) -> None:
        if self.epoch is not None:
            self.stepped_down_s = time.monotonic()
        self.epoch = None
        self._really_follow()

    def _lead(self, epoch: int) -> None:
        self.epoch, self.stepped_down_s = epoch, None
        self.times = {"lead": time.monotonic()}
        self._really_lead(epoch)
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

    def _serve(self, listener: Any) -> None:
        while True:
            connection, _ = shim.accept(listener)
            shim.spawn(self._answer, connection)

    def _answer(self, connection: Any) -> None:
        lines = shim.LineReader(connection, 200)
        while lines.next(None) is not None:
            connection.sendall(json.dumps(self._status()).encode() + b"\n")

    def _status(self) -> dict[str, Any]:
        loop = self.event_loop
        sessions = loop.switches.values()
        slots = loop.slots
        return {
            "epoch": self.epoch,
            "warm": self.standby is not None and self.standby.health()["warm"],
            "switches": sum(session.is_read for session in sessions),
            "agents": len(loop.agents),
            "unsynced": loop.unsynced(),
            "settled": loop.settled,
            "known": self.standby is not None and self.standby._is_known,
            "flow_mods": sum(session.counters.flow_mods for session in sessions),
            "counters": dict(loop.counters),
            "times": self.times,
            "stepped_down_s": self.stepped_down_s,
            "missed": slots.missed,
            "seen": list(self.seen),
            "ha": self.standby.document() if self.standby is not None else None,
        }


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)
    os.environ.update({"HYROADS_CONFIG": sys.argv[1], PORT: sys.argv[2]})
    sys.exit(ryu_manager(["--default-log-level=30", __file__]))
