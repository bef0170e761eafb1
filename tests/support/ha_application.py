"""An application of several controllers: it declares, moves and removes, and knows what was confirmed."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

from hyroads.mininet.standbys import Standbys
from hyroads.rest.client import ClientError

PLACES = {("a", "wifi1"): "ac-wifi1", ("b", "wifi2"): "bc-wifi2", ("b", "plc"): "bc-plc"}
"""Where the client of the network ``roaming`` may be, and the last link of its flows there."""
MOST_FLOWS = 12
IPV4 = 0x0800


class Application(threading.Thread):
    """One request after another, each confirmed or an error, until :meth:`finish`; which ones follows from ``seed``.

    ``move_share`` of them are handovers of the client c between its places (the network roaming). Requests are made
    again by the client alone (rest.client), as any application's.
    """

    def __init__(self, standbys: Standbys, seed: int, *, move_share: float = 0.3, pause_s: float = 0.05) -> None:
        super().__init__(daemon=True)
        self._rest = standbys.anybody(timeout_s=3.0)
        self._random = random.Random(seed)
        self._move_share, self._pause_s = move_share, pause_s
        self._over = threading.Event()
        self._next = 0
        self.flows: dict[str, int] = {}
        """Those that are there, with their numbers as they were when they were confirmed."""
        self.place: tuple[str, str] | None = None
        self.done = {"declare": 0, "move": 0, "remove": 0}
        self.failed: list[str] = []
        self.unknown: set[str] = set()
        """Flows whose declaration or removal got no answer: they may be there or not."""
        self.took_s: list[tuple[str, float]] = []

    def run(self) -> None:
        while not self._over.wait(self._random.uniform(0.0, 2 * self._pause_s)):
            began_s = time.monotonic()
            what = self._choose()
            try:
                getattr(self, f"_{what}")()
                self.done[what] += 1
            except ClientError as error:
                self.failed.append(f"{what}: {error}")
            self.took_s.append((what, round(time.monotonic() - began_s, 3)))

    def finish(self) -> None:
        """No more; returns when the last request has been answered."""
        self._over.set()
        self.join(60.0)
        assert not self.is_alive()

    def _choose(self) -> str:
        if self._random.random() < self._move_share:
            return "move"
        full = len(self.flows) / MOST_FLOWS
        return "remove" if self._random.random() < full else "declare"

    def _declare(self) -> None:
        self._next += 1
        flow = f"f{self._next}"
        self.unknown.add(flow)
        # Nothing is sent in it, and others shall not have less until that is known.
        match = {"eth_type": IPV4, "udp_dst": 10_000 + self._next}
        found = self._rest.declare_flow(flow, "g", "c", match=match, weight=0.001)
        self.unknown.discard(flow)
        self.flows[flow] = found.get("number", 0)

    def _remove(self) -> None:
        flow = self._random.choice(sorted(self.flows))
        self.unknown.add(flow)
        del self.flows[flow]
        self._rest.remove_flow(flow)
        self.unknown.discard(flow)

    def _move(self) -> None:
        place = self._random.choice([place for place in PLACES if place != self.place])
        self.place = None
        self._rest.handover("c", place, manager="hard")
        self.place = place

    def wrong(self, found: list[dict[str, Any]]) -> list[str]:
        """What a controller's list of flows says otherwise than what was confirmed."""
        said = {flow["id"]: flow.get("number", 0) for flow in found if flow["id"].startswith("f")}
        wrong = [f"{flow} is missing" for flow in self.flows.keys() - said.keys()]
        wrong += [f"{flow} is still there" for flow in said.keys() - self.flows.keys() - self.unknown]
        wrong += [
            f"{flow} has number {said[flow]} instead of {number}"
            for flow, number in self.flows.items()
            if flow in said and said[flow] != number
        ]
        numbers = list(said.values())
        wrong += [f"number {number} twice" for number in set(numbers) if numbers.count(number) > 1]
        if self.place is not None:
            last = {path["links"][-1] for flow in found for path in flow["multipath"] if flow["to"] == "c"}
            if last != {PLACES[self.place]}:
                wrong.append(f"c is at {self.place}, and flows go over {sorted(last)}")
        return wrong
