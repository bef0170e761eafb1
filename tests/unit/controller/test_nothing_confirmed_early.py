"""No request counts as confirmed before all switches and agents that it concerns have confirmed it, however long they
are away. What is concerned is found out from the devices: those that run something else once all are back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from answering_loop import NODES, AnsweringLoop
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hyroads.controller.core.network import WIRED, Place
from hyroads.controller.core.services.clients import seen

DEVICES = [f"{kind} {node}" for node in NODES for kind in ("switch", "agent")]
LONG_S = 3600.0
HOST = "02:aa:00:00:00:01"


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    body: Any = field(default=None, hash=False)
    rates: bool = False
    """What it changes at agents are rates."""
    soon: bool = False
    """The next request comes at once, before this one is carried out."""


def told(method: str, path: str, body: Any = None, **more: bool) -> Request:
    return Request(method, path, body, **more)


UDP = {"eth_type": 0x0800, "ip_proto": 17}
PLACES = {
    "b": {"node": "b", "technology": "wifi1"},
    "d": {"node": "d", "technology": "wifi2"},
    "e": {"node": "d", "technology": "wifi1"},
}
SESSION = {"id": "s", "group": "239.1.1.1", "participants": ["a", "c"]}
STORIES = {
    "multipath": [
        told("POST", "/flows", {"id": "new", "from": "a", "to": "c", "match": UDP}),
        told("DELETE", "/flows/new"),
    ],
    "upward": [told("POST", "/flows", {"id": "up", "from": "c", "to": "a"}), told("DELETE", "/flows/up")],
    "single": [
        told("POST", "/flows", {"id": "one", "from": "b", "to": "d", "policy": "single"}),
        told("DELETE", "/flows/one"),
    ],
    "declared in the file": [told("DELETE", "/flows/down")],
    "rule of one": [
        told("POST", "/access-rules", {"id": "r", "action": "limit", "client": "c", "rate_mbps": 5}),
        told("PATCH", "/access-rules/r", {"rate_mbps": 7}),
        told("DELETE", "/access-rules/r"),
    ],
    "rule of all": [
        told("POST", "/access-rules", {"id": "r", "action": "deny", "match": UDP}),
        told("PATCH", "/access-rules/r", {"priority": 1500}),
        told("DELETE", "/access-rules/r"),
    ],
    "n-cast": [told("POST", "/ncasts", {"flow": "down"}), told("DELETE", "/ncasts/down")],
    "session": [
        told("POST", "/sessions", SESSION),
        told("POST", "/sessions/s/participants", {"name": "b"}),
        told("DELETE", "/sessions/s/participants/b"),
        told("PATCH", "/sessions/s", {"sources": ["a"]}),
        told("DELETE", "/sessions/s"),
    ],
    "handover": [
        told("POST", "/handovers", {"client": "c", "to": PLACES["b"], "manager": "hard"}),
        told("POST", "/handovers", {"client": "c", "to": PLACES["d"]}),
        told("POST", "/handovers", {"client": "c", "to": None}),
    ],
    "handover that is given up": [
        told("POST", "/handovers", {"client": "c", "to": PLACES["b"], "manager": "bicast"}, soon=True),
        told("DELETE", "/handovers/{id}"),
    ],
    "handover of a plain client": [
        told("POST", "/handovers", {"client": "p", "to": PLACES["e"]}),
        told("POST", "/handovers", {"client": "p", "to": PLACES["b"]}),
    ],
    "reservation": [
        told("POST", "/reservations", {"id": "v", "flow": "down", "rate_mbps": 2}, rates=True),
        told("PATCH", "/reservations/v", {"rate_mbps": 3}, rates=True),
        told("DELETE", "/reservations/v", rates=True),
    ],
    "bound client": [
        told("PATCH", "/clients/p", {"bound_to": PLACES["e"]}),
        told("PATCH", "/clients/p", {"bound_to": None}),
    ],
    "learned host": [told("DELETE", f"/clients/{HOST}")],
}
STEPS = [(story, step) for story, requests in STORIES.items() for step in range(len(requests))]


def begun(folder: Path, never: Iterable[str] = ()) -> AnsweringLoop:
    loop = AnsweringLoop(folder, never)
    clients = loop.services.clients
    clients.take(seen(clients.state, HOST, Place("a", WIRED), loop.now_s))
    loop.after(1.0)
    return loop


def names(pending: list[str]) -> frozenset[str]:
    """Of what is pending the switches and agents."""
    return frozenset(name for name in pending if name.split()[0] in {"switch", "agent"})


@dataclass(frozen=True)
class Absence:
    """These devices are away for a while when the last of some requests is made."""

    folder: Path
    requests: list[Request]
    away: frozenset[str]
    away_s: float
    never: bool = False
    """They have never connected."""
    names: dict[str, str] = field(default_factory=dict)
    """Of what the requests before the last one have made."""

    def loop(self) -> AnsweringLoop:
        """A loop that has carried out all but the last request, without these devices."""
        loop = begun(self.folder, self.away if self.never else ())
        for request in self.requests[:-1]:
            query = "?wait=false" if request.soon else ""
            status, answer = loop.ask(request.method, f"{request.path}{query}", request.body)
            assert status == 202 if request.soon else status in {200, 201, 204}, request
            if not request.soon:
                loop.after(30.0)
                assert not loop.waiting()
            self.names["id"] = (answer.get("resource") or "").rpartition("/")[2]
        if not self.never:
            loop.leave(self.away)
        loop.after(self.away_s)
        return loop

    def wrong(self, loop: AnsweringLoop) -> dict[str, set[object]]:
        """What each of these devices runs now that it does not run once all are back, and what its switch lacks now.

        An agent that lacks a flow forwards nothing of it.
        """
        with_rates = self.requests[-1].rates
        before = loop.runs(with_rates=with_rates)
        loop.come(self.away)
        for _ in range(3):
            loop.after(30.0)
        after = loop.runs(with_rates=with_rates)
        return {
            device: before[device] ^ after[device] if device.startswith("switch") else before[device] - after[device]
            for device in self.away
        }

    def concerned(self, wrong: dict[str, set[object]], but: Iterable[str]) -> set[str]:
        """The devices, but for some, at which something else is wrong than if the last request had not been made."""
        suspects = {device for device in self.away.difference(but) if wrong[device]}
        if not suspects:
            return set()
        loop = self.loop()
        loop.after(LONG_S)
        without = self.wrong(loop)
        return {device for device in suspects if wrong[device] != without[device]}


def check(absence: Absence, *, waits: bool) -> None:
    """Make the last request, and compare what its answers say with what devices have to be told for it."""
    loop, request = absence.loop(), absence.requests[-1]
    path = request.path.format(**absence.names) + ("" if waits else "?wait=false")
    status, answer = loop.ask(request.method, path, request.body)
    waiting, named = loop.waiting(), frozenset[str]()
    if status not in {200, 201, 202, 204}:
        assert status in {404, 409, 503}, (status, answer)
        return
    if status == 202:
        assert names(answer["pending"]) <= waiting, (answer, waiting)
    loop.after(LONG_S)
    if status == 202:
        answer = loop.ask("GET", f"/operations/{answer['id']}")[1]
        named = names(answer["pending"])
        assert named <= loop.waiting(), (answer, loop.waiting())
    concerned = absence.concerned(absence.wrong(loop), named)
    assert not concerned, (concerned, status, answer)
    if status == 202:
        assert loop.ask("GET", f"/operations/{answer['id']}")[1]["state"] != "pending"
    assert not loop.waiting(), loop.waiting()


EVERYTHING = frozenset(DEVICES)


@given(
    st.sampled_from(STEPS),
    st.frozensets(st.sampled_from(DEVICES)),
    st.sampled_from([0.5, 20.0, LONG_S]),
    st.booleans(),
    st.booleans(),
)
@example(("n-cast", 1), frozenset({"agent c"}), 0.5, False, False)
@example(("n-cast", 1), EVERYTHING, LONG_S, True, False)
@example(("handover", 0), frozenset({"switch b"}), 0.5, False, False)
@example(("handover of a plain client", 0), frozenset({"switch a"}), 20.0, False, False)
@example(("reservation", 1), frozenset({"agent a"}), LONG_S, False, False)
@example(("session", 4), frozenset({"switch b"}), LONG_S, False, False)
@example(("bound client", 0), frozenset({"switch a"}), 20.0, False, False)
@example(("learned host", 0), frozenset({"switch d"}), LONG_S, False, False)
@settings(max_examples=5)
def test_no_request_is_confirmed_before_all_that_it_concerns(
    tmp_path_factory: pytest.TempPathFactory,
    step: tuple[str, int],
    away: frozenset[str],
    away_s: float,
    waits: bool,
    is_new: bool,
) -> None:
    story, last = step
    requests = STORIES[story][: last + 1]
    check(Absence(tmp_path_factory.mktemp("loop"), requests, away, away_s, is_new and last == 0), waits=waits)
