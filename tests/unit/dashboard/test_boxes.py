"""What the page *Boxes* shows of documents of the controller, without a browser."""

from __future__ import annotations

from typing import Any

import pytest

from hyroads.controller.core.errors import HyroadsError
from hyroads.dashboard.state import NetworkState
from hyroads.dashboard.views import boxes

KEY, PIN = "8a6f1c3b5d7e9f20" + 48 * "0", 64 * "f"
WAITS = ["switch b", "agent b"]


def box(name: str = "b827eb-41c0a1", state: str = "pending", **more: Any) -> dict[str, Any]:
    return {"id": name, "state": state, "node": None, "connected": False, "pending": [], "key": KEY, "verified": False,
            "system": "Debian GNU/Linux 12", "interfaces": [], "ports": {}, "owner": None, "seen_ago_s": 12.4,
            "problem": None, **more}  # fmt: skip


def known(*found: Any, **documents: Any) -> NetworkState:
    state = NetworkState()
    state.take_document("/boxes", {"boxes": list(found), "next": None})
    state.take_document("/box-codes", {"pin": PIN})
    for name, document in documents.items():
        state.take_document(f"/{name}", document)
    return state


def test_pending_box_has_id_system_interfaces_age_and_the_key_that_it_shows_itself() -> None:
    interfaces = [
        {"name": "eth0", "kind": "ethernet", "mtu": 1500, "address": "", "uplink": True, "up": True},
        {"name": "wlan0", "kind": "wifi", "mtu": 1500, "address": "", "uplink": False, "up": False},
    ]
    state = known(box(interfaces=interfaces, verified=True), box("other", "adopted"))
    assert boxes.pending_rows(state) == [
        ["b827eb-41c0a1", "Debian GNU/Linux 12", "eth0 (ethernet, to the controller), wlan0 (wifi, down)", "12 s ago",
         "8a6f1c3b5d7e9f20", "yes"]
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("connected", "pending", "shown"),
    [
        (False, WAITS, "sets itself up; not connected yet: switch b, agent b"),
        (False, [], "sets itself up"),
        (True, [], "adopted"),
        (True, ["agent b"], "adopted; not connected: agent b"),
    ],
    ids=["accepted", "connected-not-confirmed", "confirmed", "lost"],
)
def test_box_is_shown_as_adopted_only_once_the_controller_has_confirmed(
    connected: bool, pending: list[str], shown: str
) -> None:
    state = known(box("b", "adopted", node="b", owner="ops", connected=connected, pending=pending, ports={"plc": "e"}))
    assert boxes.adopted_rows(state) == [["b", "b", shown, "plc e", "12 s ago", "ops"]]
    assert boxes.outcome(state, "b", "b").done is connected
    assert ("is adopted as" in boxes.outcome(state, "b", "b").text) is connected


def test_outcome_of_an_adoption_follows_the_documents_until_it_ends() -> None:
    # The list may be older than the answer to the adoption.
    assert boxes.outcome(known(box()), "b827eb-41c0a1", "b") == boxes.Outcome(
        "b827eb-41c0a1 sets itself up as b: the controller waits for it."
    )
    state = known(box("x", "adopted", node="b", pending=WAITS))
    assert boxes.outcome(state, "x", "b").text == "x sets itself up as b: the controller waits for switch b, agent b."
    assert boxes.outcome(known(box("x", "left", problem="no space")), "x", "b") == boxes.Outcome(
        "x is not adopted: no space.", done=True
    )
    assert boxes.outcome(known(), "x", "b").done


def test_box_that_has_left_is_listed_with_the_reason() -> None:
    state = known(box("x", "left", problem="no space", seen_ago_s=600.0), box("y", "left"))
    assert boxes.left_rows(state) == [["x", "no space", "10 min ago"], ["y", "its owner wanted it", "12 s ago"]]


def test_free_nodes_have_a_switch_and_nothing_of_them_is_connected() -> None:
    health = {
        "switches": [{"node": node, "connected": node == "on"} for node in ("on", "taken", "agent", "free", "b")],
        "agents": [{"node": "agent", "up": True}, {"node": "free", "up": False}],
    }
    assert boxes.free_nodes(known(box("x", "adopted", node="taken"), box(), health=health)) == ["b", "free"]
    assert boxes.free_nodes(known()) == []


def test_ports_are_typed_as_on_the_command_line() -> None:
    assert boxes.ports_of("plc=eth1, host=eth2") == {"plc": "eth1", "host": "eth2"}
    assert boxes.ports_of(" ") == {}


@pytest.mark.parametrize("text", ["plc", "plc=", "=eth1", "plc=eth1 plc=eth2"])
def test_wrong_ports_are_refused_before_the_controller_gets_them(text: str) -> None:
    with pytest.raises(HyroadsError, match="PORT=INTERFACE"):
        boxes.ports_of(text)


def test_without_boxes_the_page_says_what_to_type_on_one() -> None:
    assert boxes.empty_text(known()).endswith(f"hyroads box join https://HOST:PORT --pin {PIN}")
    assert boxes.pin_text(known()).endswith(PIN)
    assert boxes.empty_text(NetworkState()) == "Nothing is known yet."


def test_controller_that_takes_no_boxes_is_quoted() -> None:
    state = known()
    state.take_refusal("/box-codes", "boxes can't join this controller: it has no setting boxes")
    assert boxes.pin_text(state) == "The controller says: boxes can't join this controller: it has no setting boxes."
    assert "hyroads box join" not in boxes.empty_text(state)


def test_key_is_to_be_compared_unless_the_box_knew_a_join_code() -> None:
    assert boxes.check_text(known(box()), "b827eb-41c0a1").endswith("this key: 8a6f1c3b5d7e9f20")
    assert "join code" in boxes.check_text(known(box(verified=True)), "b827eb-41c0a1")
    assert boxes.check_text(known(), "x") == ""


@pytest.mark.parametrize("state", ["pending", "adopted", "left"])
def test_fields_of_a_wrong_kind_are_shown_as_text_or_left_out(state: str) -> None:
    wrong = {name: 7 for name in box() if name != "state"} | {"seen_ago_s": "x", "interfaces": [None, 7]}
    found = known(box(**{**wrong, "state": state}), None, 7, health={"switches": 7, "agents": [7]})
    shown = [*boxes.pending_rows(found), *boxes.adopted_rows(found), *boxes.left_rows(found)]
    assert [row[0] for row in shown] == ["7"] and "not known" in shown[0]
    assert boxes.free_nodes(found) == []
