"""Handovers of clients without an agent: the same service and the same document, carried out by placing them."""

from __future__ import annotations

from typing import Any

import pytest
from handover_rig import Rig

from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.network import Place
from hyroads.controller.services.mobility.handovers import HandoverService
from hyroads.rest.contract import ConflictError, NotFoundError

A, B = Place("a", "wifi"), Place("b", "wifi")


class Clients:
    """The plain client ``p``, whose switches confirm when the test says so."""

    def __init__(self) -> None:
        self.at: Place | None = A
        self.unheard: set[Place] = set()
        self.confirms = True
        self.moves: list[Place] = []
        self.asked: list[Place] = []
        self.refuses: str | None = None

    def places(self, client: str) -> tuple[Place, ...]:
        return (A, B) if client == "p" else ()

    def place(self, client: str) -> Place | None:
        return self.at

    def is_here(self, client: str, place: Place) -> bool:
        return place not in self.unheard

    def flows(self, client: str) -> frozenset[str]:
        return frozenset({"to-p"})

    def ask(self, client: str, place: Place) -> None:
        self.asked.append(place)

    def refusal(self, client: str) -> str | None:
        return self.refuses

    def move(self, client: str, place: Place) -> None:
        self.moves.append(place)
        self.at = place

    def is_in_force(self, client: str) -> bool:
        return self.confirms

    def unconfirmed(self, client: str) -> list[str]:
        return [] if self.confirms else ["switch a"]


class Lab:
    def __init__(self) -> None:
        self.rig, self.clients = Rig(), Clients()
        self.events: list[tuple[str, Any]] = []
        self.service = HandoverService(
            self.rig,
            lambda kind, document: self.events.append((kind, document)),
            lambda: self.rig.now_s,
            lambda: 0.0,
            plain=self.clients,
        )

    def ask(self, to: Place = B, **more: object) -> dict[str, Any]:
        place = {"node": to.node, "technology": to.technology}
        return self.service.request({"client": "p", "to": place, **more})

    def after(self, seconds: float) -> None:
        self.rig.now_s += seconds
        self.service.advance()

    def document(self, handover: dict[str, Any]) -> dict[str, Any]:
        return self.service.document(handover["id"])


@pytest.fixture
def lab() -> Lab:
    return Lab()


def test_it_is_placed_and_answered_as_others_are(lab: Lab) -> None:
    document = lab.ask()
    lab.after(0.0)
    document = lab.document(document)
    assert lab.clients.at == B and document["phase"] == "done" and document["over"]
    assert (document["manager"], document["flows"]) == ("hard", ["to-p"])
    assert document["from"] == {"node": "a", "technology": "wifi"} and document["carry"] == [document["to"]]
    assert document["moved_after_s"] == document["over_after_s"] == 0.0
    kinds = [kind for kind, _ in lab.events]
    assert (kinds[0], kinds[-1]) == ("handover.begun", "handover.done") and "handover.moved" in kinds
    other = lab.rig.service.request({"client": "c", "to": {"node": "b", "technology": "plc"}, "manager": "hard"})
    assert other.keys() == document.keys()


def test_it_has_moved_once_switches_confirmed(lab: Lab) -> None:
    lab.clients.confirms = False
    document = lab.ask()
    assert document["phase"] == "switching" and document["moved_after_s"] is None and lab.clients.moves == [B]
    lab.after(0.5)
    lab.clients.confirms = True
    lab.after(0.5)
    document = lab.document(document)
    assert document["phase"] == "done" and document["moved_after_s"] == pytest.approx(1.0)


def test_switches_that_never_confirm_do_not_hold_it_for_ever(lab: Lab) -> None:
    lab.clients.confirms = False
    document = lab.ask()
    for _ in range(3):
        lab.after(5.1)
    late = lab.document(document)
    assert late["over"] and late["moved_after_s"] is None and late["pending"] == ["switch a"]
    lab.clients.confirms = True
    assert lab.document(document)["pending"] == []


def test_who_is_not_heard_there_is_waited_for(lab: Lab) -> None:
    lab.clients.unheard = {B}
    document = lab.ask()
    assert document["phase"] == "associating" and lab.clients.moves == [] and lab.clients.asked == [B]
    assert "handover.join" in [kind for kind, _ in lab.events]
    lab.after(1.0)
    lab.clients.unheard = set()
    lab.after(1.0)
    assert lab.document(document)["phase"] == "done" and lab.clients.moves[0] == B


def test_who_does_not_come_stays(lab: Lab) -> None:
    lab.clients.unheard = {B}
    document = lab.ask(timings={"associate_s": 2.0})
    lab.after(2.1)
    document = lab.document(document)
    assert document["phase"] == "failed" and "did not join b/wifi" in document["reason"]
    assert lab.clients.moves == [] and lab.clients.at == A


def test_a_refusal_is_the_reason(lab: Lab) -> None:
    lab.clients.unheard = {B}
    document = lab.ask()
    lab.clients.refuses = "802.11v status 7"
    lab.after(0.1)
    document = lab.document(document)
    assert document["phase"] == "failed" and document["reason"] == "refused by the client: 802.11v status 7"


def test_who_leaves_before_it_is_confirmed_is_put_back(lab: Lab) -> None:
    lab.clients.confirms = False
    document = lab.ask()
    lab.clients.unheard = {B}
    lab.after(0.1)
    document = lab.document(document)
    assert document["phase"] == "failed" and document["reason"] == "the client left b/wifi"
    assert lab.clients.moves == [B, A] and lab.clients.at == A


def test_it_can_be_given_up_before_anything_has_moved(lab: Lab) -> None:
    lab.clients.unheard = {B}
    document = lab.ask()
    assert lab.service.cancel(document["id"])["phase"] == "failed"
    with pytest.raises(ConflictError, match="is over"):
        lab.service.cancel(document["id"])
    with pytest.raises(NotFoundError):
        lab.service.document("nothing")


def test_a_second_one_waits_for_what_has_moved(lab: Lab) -> None:
    lab.clients.confirms = False
    lab.ask()
    second = lab.ask(A)
    assert second["phase"] == "waiting" and second["manager"] == "hard"
    lab.clients.confirms = True
    for _ in range(3):
        lab.after(0.1)
    assert lab.document(second)["phase"] == "done" and lab.clients.at == A


@pytest.mark.parametrize(
    ("body", "place", "what"),
    [
        ({"to": {"node": "c", "technology": "wifi"}}, "to", "expected one of a/wifi, b/wifi; got c/wifi"),
        ({"to": {"node": "b", "technology": "plc"}}, "to", "expected one of"),
        ({"to": None}, "to", "has no agent"),
        ({"to": {"node": "b", "technology": "wifi"}, "manager": "bicast"}, "manager", "expected hard; got 'bicast'"),
        ({"to": {"node": "b", "technology": "wifi"}, "flows": ["to-p"]}, "flows", "move together"),
    ],
)
def test_bad_requests(lab: Lab, body: dict[str, Any], place: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what) as error:
        lab.service.request({"client": "p", **body})
    assert error.value.place == place and lab.clients.moves == [] and lab.events == []


def test_being_there_already_is_a_conflict(lab: Lab) -> None:
    with pytest.raises(ConflictError, match="p is at a/wifi already"):
        lab.ask(A)
