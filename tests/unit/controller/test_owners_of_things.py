"""Whose things are, at a whole controller: made, shown, changed and removed over REST, saved and restored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from answering_loop import AnsweringLoop

from hyroads.controller.services.owners import OwnerService
from hyroads.rest.contract import OPERATOR, Token

OPS = Token("ops", "o" * 16, "admin")
VIDEO = Token("video", "v" * 16, "application", clients=frozenset({"c"}))
BACKUP = Token("backup", "b" * 16, "application", clients=frozenset({"c"}))
NIGHT = replace(BACKUP, name="night", clients=frozenset(), may_change=frozenset({"video", OPERATOR}))
UDP = {"eth_type": 0x0800, "ip_proto": 17}
MADE = {
    "/flows/mine": ("/flows", {"id": "mine", "from": "a", "to": "c", "match": UDP, "group": "call"}),
    "/sessions/talk": ("/sessions", {"id": "talk", "group": "239.1.1.1", "participants": ["a", "b"]}),
    "/reservations/least": ("/reservations", {"id": "least", "flow": "mine", "rate_mbps": 2.0}),
    "/ncasts/mine": ("/ncasts", {"flow": "mine", "copies": 2}),
    "/access-rules/no-mail": ("/access-rules", {"id": "no-mail", "action": "deny", "client": "c", "match": UDP}),
}
CHANGES = {
    "/sessions/talk": ("PATCH", "", {"participants": ["a", "b", "c"]}),
    "/reservations/least": ("PATCH", "", {"rate_mbps": 1.0}),
    "/access-rules/no-mail": ("PATCH", "", {"expires_in_s": 60.0}),
}
ON_THEIRS = [
    ("/flows", {"id": "joins", "from": "a", "to": "d", "group": "call"}),
    ("/ncasts", {"flow": "mine", "copies": 2}),
    ("/ncasts", {"flow": "down", "copies": 2}),
    ("/reservations", {"id": "locks", "flow": "mine", "rate_mbps": 0.1}),
    ("/reservations", {"id": "locks", "flow": "down", "rate_mbps": 0.1}),
    ("/reservations", {"id": "locks", "session": "talk", "rate_mbps": 0.1}),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnsweringLoop]:
    """A controller where VIDEO has made one thing of each kind."""
    loop = AnsweringLoop(tmp_path_factory.mktemp("owners"))
    loop.services.access_rules.use([OPS, VIDEO, BACKUP, NIGHT])
    for collection, body in MADE.values():
        status, document = loop.ask("POST", collection, body, VIDEO)
        assert status in {201, 202}, (collection, document)
        loop.settle()
    return loop


def test_owner_is_shown(made: AnsweringLoop) -> None:
    for address, (collection, _) in MADE.items():
        assert made.ask("GET", address)[1]["owner"] == "video", address
        name = collection[1:].replace("-", "_")
        assert {one["owner"] for one in made.ask("GET", collection)[1][name]} <= {"video", OPERATOR}
    assert made.ask("GET", "/flows/down")[1]["owner"] == OPERATOR
    assert {owner for _, owner in owners_of_flows(made)} == {OPERATOR, "video"}


def owners_of_flows(loop: AnsweringLoop) -> list[tuple[str, str]]:
    return [(one["id"], one["owner"]) for one in loop.ask("GET", "/flows")[1]["flows"]]


def test_another_application_changes_and_removes_nothing(made: AnsweringLoop) -> None:
    before = owners_of_flows(made)
    for address in (*MADE, "/flows/down"):
        assert made.ask("DELETE", f"{address}?wait=false", None, BACKUP)[0] == 403, address
    for address, (method, below, body) in CHANGES.items():
        assert made.ask(method, address + below, body, BACKUP)[0] == 403, address
    assert made.ask("POST", "/sessions/talk/participants", {"name": "c"}, BACKUP)[0] == 403
    assert made.ask("DELETE", "/sessions/talk/participants/a", None, BACKUP)[0] == 403
    for collection, body in ON_THEIRS:
        assert made.ask("POST", collection, body, BACKUP)[0] == 403, (collection, body)
    # What it repeats is there already: nothing changes, nor whose it is.
    for address in ("/flows/mine", "/sessions/talk", "/reservations/least"):
        collection, body = MADE[address]
        status, again = made.ask("POST", collection, body, BACKUP)
        assert (status, again["owner"]) == (200, "video"), address
    assert owners_of_flows(made) == before
    assert made.ask("DELETE", "/flows/nothing", None, BACKUP)[0] == 404


@pytest.mark.parametrize("who", [VIDEO, OPS, NIGHT], ids=["owner", "admin", "leave"])
def test_owner_admin_and_whom_it_gave_leave_change_it(made: AnsweringLoop, who: Token) -> None:
    for address, (method, below, body) in CHANGES.items():
        assert made.ask(method, f"{address}{below}?wait=false", body, who)[0] in {200, 202}, address
        made.settle()
        assert made.ask("GET", address)[1]["owner"] == "video", address


def test_owners_are_saved_and_what_has_none_belongs_to_the_operator(made: AnsweringLoop) -> None:
    saved = made.services.to_save(made.loop.state)
    owners = made.services.owners
    other = OwnerService(owners.tokens, owners.kinds)
    assert other.restore(saved["quotas"]) == []
    for kind, name in (("flows", "mine"), ("sessions", "talk"), ("reservations", "least"), ("ncasts", "mine")):
        assert other.owner((kind, name)) == "video"
    assert [rule["owner"] for rule in saved["access_rules"]] == ["video"]
    of_0_3 = OwnerService(owners.tokens, owners.kinds)
    assert of_0_3.restore(None) == [] and of_0_3.owner(("sessions", "talk")) == OPERATOR
    rules = made.services.access_rules
    rules.become([{**saved["access_rules"][0], "owner": "local", "by_admin": True}])
    assert rules.owner("no-mail") == OPERATOR
    assert rules.become(saved["access_rules"]) == [] and rules.owner("no-mail") == "video"


def test_handover_belongs_to_who_began_it(tmp_path: Path) -> None:
    loop = AnsweringLoop(tmp_path)
    there, back = ({"client": "c", "to": {"node": node, "technology": wifi}} for node, wifi in PLACES)
    old = loop.ask("POST", "/handovers?wait=false", there, VIDEO)
    handover = f"/handovers/{loop.ask('GET', '/handovers')[1]['handovers'][-1]['id']}"
    assert old[0] == 202 and loop.ask("GET", handover)[1]["owner"] == "video"
    # A new one would cancel it.
    assert loop.ask("POST", "/handovers?wait=false", back, BACKUP)[0] == 403
    assert loop.ask("DELETE", handover, None, BACKUP)[0] == 403
    assert loop.ask("GET", handover)[1]["reason"] is None
    assert loop.ask("POST", "/handovers?wait=false", back, NIGHT)[0] in {202, 409}


PLACES = (("b", "wifi1"), ("d", "wifi2"))


def test_reserved_rate_and_airtime_have_quotas(tmp_path: Path) -> None:
    loop = AnsweringLoop(tmp_path)
    metered = replace(VIDEO, quotas=(("reserved_mbps", 6.0), ("reserved_airtime", 0.4)))
    loop.services.owners.tokens = [metered, OPS]

    def reserve(name: str, flow: str, mbps: float, who: Token = metered) -> tuple[int, Any]:
        body = {"id": name, "flow": flow, "rate_mbps": mbps}
        status, document = loop.ask("POST", "/reservations?wait=false", body, who)
        loop.settle()
        return status, document

    for number, target in (("1", "c"), ("2", "b")):
        flow = {"id": f"q{number}", "from": "a", "to": target, "match": {**UDP, "udp_dst": 5000 + int(number)}}
        assert loop.ask("POST", "/flows?wait=false", flow, metered)[0] == 202
        loop.settle()
    assert reserve("r1", "q1", 4.0)[0] == 202
    status, problem = reserve("r2", "q2", 3.0)
    assert (status, problem["quota"], problem["limit"], problem["used"]) == (403, "reserved_mbps", 6.0, 4.0)
    assert loop.ask("GET", "/reservations/r2")[0] == 404
    # 4 Mb/s of the 20 of a radio are a fifth of its airtime.
    used = {one["quota"]: one["used"] for one in loop.ask("GET", "/quotas/video")[1]["quotas"]}
    assert used["reserved_mbps"] == 4.0 and used["reserved_airtime"] == pytest.approx(0.2, rel=0.05)
    assert loop.ask("PATCH", "/reservations/r1?wait=false", {"rate_mbps": 6.5}, metered)[0] == 403
    assert loop.ask("PATCH", "/reservations/r1?wait=false", {"rate_mbps": 6.5}, OPS)[0] == 403
    loop.services.owners.tokens = [replace(metered, quotas=(("reserved_airtime", 0.3),)), OPS]
    status, problem = loop.ask("PATCH", "/reservations/r1?wait=false", {"rate_mbps": 8.0}, metered)
    assert (status, problem["quota"]) == (403, "reserved_airtime")
    assert loop.ask("PATCH", "/reservations/r1?wait=false", {"rate_mbps": 5.0}, metered)[0] == 202
    loop.settle()
    assert loop.ask("DELETE", "/reservations/r1?wait=false", None, metered)[0] == 202
    loop.settle()
    assert reserve("r2", "q2", 3.0)[0] == 202
