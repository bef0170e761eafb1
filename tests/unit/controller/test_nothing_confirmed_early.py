"""No request counts as confirmed before all devices that it concerns have confirmed it, however long they are away or
quiet. A device is concerned if it does not run yet what it runs once all have answered, and would never run it without
the request; a twin that makes all requests but the last shows that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from answering_loop import LAPTOP, NODES, AnsweringLoop
from hypothesis import given, settings
from hypothesis import strategies as st

from hyroads.controller.core.network import WIRED, Place
from hyroads.controller.core.services.clients import seen
from hyroads.controller.model.pending_names import agent_name, client_name, switch_name

DEVICES = [*map(switch_name, NODES), *map(agent_name, NODES), client_name(LAPTOP)]
SHORT_S, LONG_S = 1.0, 3600.0
NEVER, AWAY, BACK, QUIET = "never", "away", "back", "quiet"
"""How devices are when the last request is made: they have never connected, or are away; they are connected again, or
have been all the time, and answer nothing.
"""
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
        told("POST", "/reservations", {"id": "v", "flow": "down", "rate_mbps": 17}, rates=True),
        told("PATCH", "/reservations/v", {"rate_mbps": 15}, rates=True),
        told("DELETE", "/reservations/v", rates=True),
    ],
    "reservation of a session": [
        told("POST", "/sessions", SESSION),
        told("POST", "/reservations", {"id": "v", "session": "s", "rate_mbps": 5}, rates=True),
        told("DELETE", "/reservations/v", rates=True),
    ],
    "bound client": [
        told("PATCH", "/clients/p", {"bound_to": PLACES["e"]}),
        told("PATCH", "/clients/p", {"bound_to": None}),
    ],
    "bound host": [
        told("PATCH", f"/clients/{HOST}", {"bound_to": {"node": "b", "technology": WIRED}}),
        told("PATCH", f"/clients/{HOST}", {"bound_to": None}),
    ],
    "learned host": [told("DELETE", f"/clients/{HOST}")],
    "multi-homed client": [
        told("PUT", f"/clients/{LAPTOP}/policy", {"interfaces": {"lte": None}}),
        told("PATCH", f"/clients/{LAPTOP}/policy", {"mode": "cost-efficient"}),
        told("POST", f"/clients/{LAPTOP}/migrations", {"flow": 7, "interface": "lte"}),
    ],
}
STEPS = [(story, step) for story, requests in STORIES.items() for step in range(len(requests))]


def begun(folder: Path, never: Iterable[str] = ()) -> AnsweringLoop:
    loop = AnsweringLoop(folder, never)
    clients = loop.services.clients
    clients.take(seen(clients.state, HOST, Place("a", WIRED), loop.now_s))
    loop.after(1.0)
    return loop


def names(pending: Iterable[str]) -> frozenset[str]:
    """What is pending but for steps of the resource itself."""
    return frozenset(name for name in pending if ":" not in name)


Runs = dict[str, set[object]]


@dataclass(frozen=True)
class Absence:
    """These devices are away, or quiet, when the last of some requests is made."""

    folder: Path
    requests: list[Request]
    devices: frozenset[str]
    how: str
    away_s: float
    names: dict[str, str] = field(default_factory=dict)
    """Of what the requests before the last one have made."""

    @property
    def then_s(self) -> float:
        """How long all stays so after the request: a device that is connected answers soon, or loses its connection."""
        return max(self.away_s, SHORT_S) if self.how in {NEVER, AWAY} else SHORT_S

    def loop(self) -> AnsweringLoop:
        """A loop that has carried out all but the last request, without these devices."""
        loop = begun(self.folder, self.devices if self.how == NEVER else ())
        for request in self.requests[:-1]:
            query = "?wait=false" if request.soon else ""
            status, answer = loop.ask(request.method, f"{request.path}{query}", request.body)
            assert status == 202 if request.soon else status in {200, 201, 204}, (request, status, answer)
            if not request.soon:
                loop.after(30.0)
                assert not loop.waiting()
            self.names["id"] = (answer.get("resource") or "").rpartition("/")[2]
        if self.how in {AWAY, BACK}:
            loop.leave(self.devices)
            loop.after(self.away_s)
        if self.how in {BACK, QUIET}:
            loop.hush(self.devices)
        if self.how == BACK:
            loop.come(self.devices)
            loop.after(SHORT_S)
        return loop

    def end(self, loop: AnsweringLoop) -> Runs:
        """All come back, and answer: what each runs then."""
        if self.how in {NEVER, AWAY}:
            loop.come(self.devices)
        loop.speak()
        for _ in range(3):
            loop.after(30.0)
        return loop.runs(with_rates=self.requests[-1].rates)

    def twin(self) -> Runs:
        """What each runs in the end if the last request is not made."""
        loop = self.loop()
        loop.after(self.then_s)
        return self.end(loop)

    def wrong(self, device: str, now: Runs, then: Runs) -> set[object]:
        """What a device runs that it does not run in the end, or the other way round.

        While others are away they change what is planned when they come back, so that only those are compared; an agent
        that lacks a flow forwards nothing of it.
        """
        is_complete = self.how in {BACK, QUIET}
        if not is_complete and device not in self.devices:
            return set()
        is_more = is_complete or device.startswith("switch")
        return now[device] ^ then[device] if is_more else now[device] - then[device]

    def lacking(self, device: str, now: Runs, then: Runs) -> set[object]:
        """Of that, what a device does not run yet: what it runs too long may be on its way out."""
        return self.wrong(device, now, then) - now[device]


@dataclass(frozen=True)
class Answered:
    """A request that was accepted. What devices run is known at once if the answer says that all have confirmed it
    (``first``), and some time later (``later``); ``pending`` is what the answer names then.
    """

    status: int
    operation: str | None
    pending: list[str]
    first: Runs | None
    later: Runs

    def suspects(self, absence: Absence, end: Runs) -> dict[str, set[object]]:
        """By device that is not named: in what it differs from the end."""
        # Where all are connected, a change that is carried out in steps names those for which the present step waits.
        is_complete = absence.how in {BACK, QUIET}
        named = DEVICES if self.pending and is_complete else names(self.pending)
        found = {device: absence.wrong(device, self.later, end) for device in DEVICES if device not in named}
        for device in found if self.first is not None else ():
            found[device] |= absence.lacking(device, self.first, end)
        return {device: what for device, what in found.items() if what}


def asked(absence: Absence, loop: AnsweringLoop, *, waits: bool) -> Answered | None:
    """Make the last request; None if it is refused."""
    request = absence.requests[-1]
    path = request.path.format(**absence.names) + ("" if waits else "?wait=false")
    status, answer = loop.ask(request.method, path, request.body)
    assert status in {200, 201, 202, 204, 404, 409, 503}, (status, answer)
    if status >= 400:
        return None
    operation = str(answer["id"]) if status == 202 else None
    first = loop.runs(with_rates=request.rates) if operation is None else None
    if operation is not None:
        assert names(answer["pending"]) <= loop.waiting(), (answer, loop.waiting())
    loop.after(absence.then_s)
    pending: list[str] = []
    if operation is not None:
        pending = loop.ask("GET", f"/operations/{operation}")[1]["pending"]
        assert names(pending) <= loop.waiting(), (pending, loop.waiting())
    return Answered(status, operation, pending, first, loop.runs(with_rates=request.rates))


def check(absence: Absence, *, waits: bool) -> None:
    """Make the last request, and compare what its answers say with what devices do then."""
    loop = absence.loop()
    answered = asked(absence, loop, waits=waits)
    if answered is None:
        return
    end = absence.end(loop)
    suspects = answered.suspects(absence, end)
    if suspects:
        twin = absence.twin()
        concerned = {device for device, what in suspects.items() if what & (end[device] ^ twin[device])}
        assert not concerned, (concerned, answered.status, answered.pending)
    if answered.operation is not None:
        assert loop.ask("GET", f"/operations/{answered.operation}")[1]["state"] != "pending"
    assert not loop.waiting(), loop.waiting()


EVERYTHING = frozenset(DEVICES)
FOUND = [
    (("multipath", 0), frozenset({"agent c"}), QUIET, 0.5, False),
    (("n-cast", 1), frozenset({"agent c"}), AWAY, 0.5, False),
    (("n-cast", 1), EVERYTHING, AWAY, LONG_S, True),
    (("handover", 0), frozenset({"switch b"}), AWAY, 0.5, False),
    (("handover of a plain client", 0), frozenset({"switch a"}), AWAY, 20.0, False),
    (("handover of a plain client", 0), frozenset({"agent b"}), QUIET, 20.0, False),
    (("handover of a plain client", 0), frozenset({"switch c"}), AWAY, 20.0, False),
    (("handover of a plain client", 0), frozenset({"switch c"}), QUIET, 20.0, False),
    (("reservation", 0), frozenset(), QUIET, 0.5, True),
    (("reservation", 0), frozenset({"agent b"}), QUIET, 0.5, False),
    (("reservation", 0), frozenset({"agent b"}), AWAY, LONG_S, True),
    (("reservation", 1), frozenset({"agent b"}), AWAY, LONG_S, True),
    (("reservation", 2), frozenset({"agent b"}), AWAY, 0.5, True),
    (("reservation of a session", 1), frozenset({"switch b"}), QUIET, 0.5, True),
    (("session", 3), frozenset({"switch a"}), QUIET, 0.5, False),
    (("session", 4), frozenset({"switch b"}), AWAY, LONG_S, False),
    (("bound client", 0), frozenset({"switch a"}), AWAY, 20.0, True),
    (("bound host", 0), frozenset({"switch d"}), AWAY, 20.0, True),
    (("bound host", 0), frozenset({"switch d"}), QUIET, 20.0, True),
    (("bound host", 0), frozenset({"switch a"}), BACK, 20.0, False),
    (("rule of all", 0), frozenset({"switch b"}), QUIET, 20.0, True),
    (("rule of all", 0), frozenset({"switch b"}), BACK, 20.0, True),
    (("rule of all", 0), frozenset({"switch b"}), AWAY, 20.0, True),
    (("rule of all", 2), frozenset({"switch b"}), AWAY, LONG_S, True),
    (("learned host", 0), frozenset({"switch d"}), AWAY, 20.0, False),
    (("multi-homed client", 0), frozenset({"client laptop"}), QUIET, 20.0, True),
    (("multi-homed client", 2), frozenset({"client laptop"}), BACK, 20.0, True),
]
"""Examples that have found faults, or would."""


def checked(
    folder: Path, step: tuple[str, int], devices: frozenset[str], how: str, away_s: float, *, waits: bool
) -> None:
    story, last = step
    how = AWAY if how == NEVER and last else how
    check(Absence(folder, STORIES[story][: last + 1], devices, how, away_s), waits=waits)


@pytest.mark.parametrize(
    ("step", "devices", "how", "away_s", "waits"), FOUND, ids=[f"{step[0]} {step[1]}" for step, *_ in FOUND]
)
def test_request_waits_for_all_that_it_concerns(
    tmp_path: Path, step: tuple[str, int], devices: frozenset[str], how: str, away_s: float, waits: bool
) -> None:
    checked(tmp_path, step, devices, how, away_s, waits=waits)


def test_session_waits_for_its_switch_before_the_event_loop_turns(tmp_path: Path) -> None:
    loop = begun(tmp_path)
    assert loop.ask("POST", "/sessions", {**SESSION, "participants": ["a", "c", HOST]})[0] == 201
    status, answer = loop.ask("DELETE", f"/sessions/s/participants/{HOST}?wait=false")
    assert status == 202 and switch_name("a") in answer["pending"], answer


@given(
    st.sampled_from(STEPS),
    st.frozensets(st.sampled_from(DEVICES)),
    st.sampled_from([NEVER, AWAY, BACK, QUIET]),
    st.sampled_from([0.5, 20.0, LONG_S]),
    st.booleans(),
)
@settings(max_examples=5)
def test_no_request_is_confirmed_before_all_that_it_concerns(
    tmp_path_factory: pytest.TempPathFactory,
    step: tuple[str, int],
    devices: frozenset[str],
    how: str,
    away_s: float,
    waits: bool,
) -> None:
    checked(tmp_path_factory.mktemp("loop"), step, devices, how, away_s, waits=waits)
