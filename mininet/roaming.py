"""A client that moves in an emulated network: its interfaces come and go on the medium as the controller asks for it.

The client plays its own part, as a supplicant would: it brings the new link up, and takes the old one down once the
controller asks it to leave. :func:`ping` counts what is lost, doubled or out of order meanwhile.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hyroads.controller.core.network import Place
from hyroads.controller.model.handover import links_at, places_of

from .emulation import Emulation
from .probe import out_of_order
from .programs import EmulationError

POLL_S = 0.02
OVER_WITHIN_S = 20.0
_REPLY = re.compile(r"icmp_seq=(\d+) .*time=([\d.]+) ms( \(DUP!\))?")


@dataclass(frozen=True)
class Pings:
    """What became of pings. ``sent`` counts requests; replies count by number, in their order."""

    sent: int
    replies: tuple[int, ...]
    doubled: int
    rtt_ms: tuple[float, ...] = ()

    @property
    def lost(self) -> int:
        """Requests without a reply."""
        return self.sent - len(set(self.replies))

    @property
    def out_of_order(self) -> int:
        """Replies that came after one of a higher number."""
        return out_of_order(self.replies)


class PingRun:
    """Pings from one node to another, in the background."""

    def __init__(self, emulation: Emulation, source: str, target: str, count: int, interval_s: float = 0.02) -> None:
        self._count = count
        self._limit_s = count * interval_s + 15.0
        command = ["ping", "-n", "-c", str(count), "-i", f"{interval_s:g}", "-W", "3"]
        self._process = subprocess.Popen(
            [*emulation.inside(source), *command, emulation.addressing.host_ip[target]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def result(self) -> Pings:
        """Once all are sent and answered, or given up."""
        try:
            output, _ = self._process.communicate(timeout=self._limit_s)
        except subprocess.TimeoutExpired as error:
            self._process.kill()
            self._process.communicate()
            raise EmulationError("ping did not end") from error
        return parse_ping(output, self._count)


def parse_ping(output: str, sent: int) -> Pings:
    """What ``ping`` printed."""
    found = [_REPLY.search(line) for line in output.splitlines()]
    rows = [(int(match[1]), float(match[2]), match[3] is not None) for match in found if match is not None]
    first = [(number, rtt_ms) for number, rtt_ms, again in rows if not again]
    doubled = sum(again for _, _, again in rows)
    return Pings(sent, tuple(number for number, _ in first), doubled, tuple(rtt_ms for _, rtt_ms in first))


class Roamer:
    """A client with an agent, its links, and what it asks of the controller."""

    def __init__(self, emulation: Emulation, client: str) -> None:
        self.client = client
        self._emulation = emulation
        self._network = emulation.network
        self.at: Place | None = None

    def links(self, place: Place, *, up: bool) -> None:
        """The interface at a place comes or goes, both directions at once: on the medium, or by association."""
        if (cell := self._emulation.cells.get(place.technology)) is not None:
            cell.set_associated(self.client, up)
            return
        with self._emulation.shared.client() as medium:
            for link in links_at(self._network, self.client, place):
                medium.set_link(link, up=up)

    def begin_at(self, place: Place) -> None:
        """Its flows are at this place, and all its other interfaces are off."""
        if self.at != place:
            self.ask(place, "hard")
        for other in places_of(self._network, self.client):
            if other != place:
                self.links(other, up=False)
        self.at = place

    def ask(self, place: Place, manager: str, *, wait: bool = True, **more: object) -> dict[str, Any]:
        """Ask the controller for a handover."""
        to = {"node": place.node, "technology": place.technology}
        body = {"client": self.client, "to": to, "manager": manager, **more}
        path = "/handovers" if wait else "/handovers?wait=false"
        answer: dict[str, Any] = self._emulation.rest.request("POST", path, body).document
        # Without waiting it is an operation, which names the handover.
        return answer if "phase" in answer else self.look(answer["resource"].rsplit("/", 1)[-1])

    def look(self, handover: str) -> dict[str, Any]:
        """How a handover stands."""
        return self._emulation.rest.get(f"/handovers/{handover}")

    def move(self, place: Place, manager: str, **more: object) -> dict[str, Any]:
        """A whole handover: join, wait until the controller asks to leave (or nothing is left to wait for), leave."""
        self.links(place, up=True)
        handover = self.ask(place, manager, wait=False, **more)
        left, old = False, self.at
        until_s = time.monotonic() + OVER_WITHIN_S
        while not handover["over"]:
            if handover["leave"] is not None and not left and handover["moved_after_s"] is not None:
                left = True
                if old is not None:
                    self.links(old, up=False)
            if time.monotonic() > until_s:
                raise EmulationError(f"handover of {self.client} to {place} is still {handover['phase']}")
            time.sleep(POLL_S)
            handover = self.look(handover["id"])
        if handover["phase"] == "done":
            if old is not None and not left:
                self.links(old, up=False)
            self.at = place
        return handover


def together(all_pings: Iterable[Pings]) -> tuple[int, int, int, int]:
    """Sent, lost, doubled, out of order."""
    rows = [(p.sent, p.lost, p.doubled, p.out_of_order) for p in all_pings]
    sent, lost, doubled, wrong = (sum(row[i] for row in rows) for i in range(4))
    return sent, lost, doubled, wrong
