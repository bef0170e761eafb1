"""The desk of sessions with switches that confirm what they are told, and its REST resource."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))
from hyroads.controller.control.live_network import Basis, LiveNetwork
from hyroads.controller.control.sessions import Host
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.services.place import Place
from hyroads.controller.services import session_keeper
from hyroads.controller.services.session_office import fixed_hosts
from hyroads.controller.services.sessions import MAX_SESSIONS, SessionDesk
from hyroads.controller.state import Fabric
from hyroads.rest import sessions
from hyroads.rest.api import create_app
from hyroads.rest.contract import ConflictError, NotConfirmedError, NotFoundError, NotSavedError, TooBusyError
from instant_saver import full_disk, instant_saver
from rings import ring

GROUP = "239.1.2.3"


class Office:
    """A network whose switches confirm at the next look, unless they are ``deaf``."""

    def __init__(self, seed: int = 2) -> None:
        self.fabric = Fabric.of(ring(seed))
        self.live: LiveNetwork | None = LiveNetwork(self.fabric, Basis(frozenset()))
        self.desk: SessionDesk | None = None
        self.deaf: set[str] = set()
        self.confirmed = {}
        self.events: list[tuple[str, object]] = []
        self.traffic = None
        self.now_s = 0.0
        self.unsaved = 0
        self.saver = instant_saver()[0]

    def clock(self) -> float:
        return self.now_s

    def live_network(self):
        return self.live

    def confirmed_intent(self, node: str):
        return self.confirmed.get(node)

    def nodes_connected(self):
        return [node for node in self.fabric.addressing.dpid if node not in self.deaf]

    def wake(self) -> None: ...

    def note_unsaved(self) -> None:
        self.unsaved += 1

    def is_saved(self) -> bool:
        return True

    def wait(self, timeout_s: float) -> None:
        self.now_s += timeout_s
        self.saver.once()
        self.desk.follow()
        for node, intent in self.live.intents.items():
            if node not in self.deaf:
                self.confirmed[node] = self.desk.added_to(node, intent)

    def publish(self, kind: str, document) -> None:
        self.events.append((kind, document))

    def exception(self, where: str, error: BaseException) -> None:
        raise AssertionError(where) from error

    def take_airtime(self, traffic) -> None:
        self.traffic = traffic

    def cut(self, *links: str) -> None:
        self.live = LiveNetwork(self.fabric, Basis(frozenset(links)))


@pytest.fixture
def office() -> Office:
    office = Office()
    office.desk = SessionDesk(office, fixed_hosts(office.fabric.addressing))
    office.wait(0.1)
    return office


def declared(office: Office, name: str = "s", group: str = GROUP, participants=("n0", "n1", "c0"), **more):
    document = {"id": name, "group": group, "participants": list(participants), **more}
    return office.desk.declare(document, wait=True)


def test_a_session_is_active_once_switches_have_confirmed(office: Office) -> None:
    document, new = declared(office)
    assert new and document["state"] == "active" and document["pending"] == []
    assert [tree["source"] for tree in document["trees"]] == ["c0", "n0", "n1"]
    assert declared(office) == (document, False)
    with pytest.raises(ConflictError):
        declared(office, participants=("n0", "n1"))


def test_what_can_not_be_saved_is_as_if_it_had_not_been_asked_for(office: Office) -> None:
    before, _ = declared(office)
    office.wait(0.1)
    for ask in (
        lambda: declared(office, "t", "239.1.2.4"),
        lambda: office.desk.join("s", {"name": "n2"}, wait=True),
        lambda: office.desk.leave("s", "c0", wait=True),
        lambda: office.desk.remove("s", wait=True),
    ):
        office.saver._save = full_disk
        with pytest.raises(NotSavedError, match="No space left"):
            ask()
        # The next one is refused before anything happens.
        with pytest.raises(NotSavedError, match="nothing was changed"):
            ask()
        office.saver._save = lambda: None
        for _ in range(3):
            office.wait(0.1)
        after = office.desk.document("s")
        assert office.desk.names() == ("s",) and after["participants"] == before["participants"]
        assert after["state"] == "active" and len(after["trees"]) == len(before["trees"])
    assert declared(office, "t", "239.1.2.4")[1] and office.desk.pending("t") == []


def test_a_removal_is_not_confirmed_before_it_is_saved(office: Office) -> None:
    office.desk.declare({"id": "s", "group": GROUP, "participants": ["n0", "n1"]}, wait=False)
    office.saver.once()
    office.saver._save = full_disk
    # No switch has been told of it: there is nothing else to wait for.
    with pytest.raises(NotSavedError):
        office.desk.remove("s", wait=True)
    assert office.desk.names() == ("s",)


def test_a_host_that_joins_by_itself_stays_though_that_can_not_be_saved_yet(office: Office) -> None:
    declared(office, membership=True)
    office.wait(0.1)
    office.saver._save = full_disk
    mac = "02:99:00:00:00:07"
    office.desk.member("s", Host(mac, True, "n2", mac), joins=True)
    office.wait(0.1)
    assert office.saver.failure and mac in [one["name"] for one in office.desk.document("s")["participants"]]


def test_participants_may_be_named_by_mac_or_ip(office: Office) -> None:
    mac, ip = office.fabric.addressing.host_mac["n2"], office.fabric.addressing.host_ip["c1"]
    document, _ = declared(office, participants=(mac.upper(), ip))
    assert [(one["name"], one["node"]) for one in document["participants"]] == [(mac.upper(), "n2"), (ip, "c1")]


def test_sessions_follow_their_hosts(office: Office) -> None:
    places = {"02:99:00:00:00:01": "n0", "02:99:00:00:00:02": "n1"}
    office.desk = SessionDesk(office, lambda mac: Host(mac, True, places[mac], mac) if mac in places else None)
    office.wait(0.1)
    before, _ = declared(office, participants=list(places))
    assert [one["node"] for one in before["participants"]] == ["n0", "n1"]
    places["02:99:00:00:00:02"] = "n4"
    office.desk.moved("02:99:00:00:00:03")
    assert office.desk.document("s") == before
    office.desk.moved("02:99:00:00:00:02")
    for _ in range(3):
        office.wait(0.1)
    after = office.desk.document("s")
    assert [one["node"] for one in after["participants"]] == ["n0", "n4"] and after["state"] == "active"
    assert [tree["source"] for tree in after["trees"]] == ["n0", "n4"]
    # One that nobody knows any more is where it was last.
    del places["02:99:00:00:00:02"]
    office.desk.moved("02:99:00:00:00:02")
    assert office.desk.document("s") == after


def test_sessions_follow_plain_clients_to_their_other_access_point(office: Office) -> None:
    declared(office)
    addressing = office.fabric.addressing
    first, second = addressing.attachments["c0"][:2]
    mac = addressing.host_mac["c0"]

    def is_served_at() -> set[str]:
        found = ((node, members.clients) for node, intent in office.confirmed.items() for members in intent.members)
        return {node for node, clients in found if any(client.mac == mac for client in clients)}

    def sends_at() -> set[str]:
        found = ((node, entry.client) for node, intent in office.confirmed.items() for entry in intent.entries)
        return {node for node, client in found if client is not None and client.mac == mac}

    assert is_served_at() == sends_at() == {first.node}
    places = {"c0": Place(second.node, second.technology)}
    office.live = LiveNetwork(office.fabric, Basis(frozenset(), places=places))
    for _ in range(30):
        office.wait(0.1)
    assert is_served_at() == sends_at() == {second.node}
    assert office.desk.document("s")["state"] == "active"


def test_what_cannot_be_is_refused_and_changes_nothing(office: Office) -> None:
    declared(office)
    with pytest.raises(ConflictError, match="is that of session 's'"):
        declared(office, "t")
    with pytest.raises(ConfigError, match=r"participants\[1\]"):
        declared(office, "t", "239.9.9.9", ("n0", "10.9.9.9"))
    office.cut(*(link.id for link in office.fabric.network.links if "n4" in (link.source, link.target)))
    office.wait(0.1)
    with pytest.raises(ConflictError, match="no way from"):
        declared(office, "t", "239.9.9.9", ("n0", "n4"))
    with pytest.raises(ConflictError, match="no way from"):
        office.desk.join("s", {"name": "n4"}, wait=True)
    assert [document["id"] for document in office.desk.documents(office.desk.names())] == ["s"]
    assert len(office.desk.document("s")["participants"]) == 3
    with pytest.raises(NotFoundError):
        office.desk.document("t")


def test_who_does_not_confirm_is_named(office: Office) -> None:
    office.deaf.add("n1")
    with pytest.raises(NotConfirmedError) as caught:
        declared(office)
    assert "switch n1" in caught.value.pending
    office.deaf.clear()
    office.wait(0.1)
    office.wait(0.1)
    office.wait(0.1)
    assert office.desk.document("s")["state"] == "active"


def test_joins_leaves_and_the_end(office: Office) -> None:
    declared(office)
    joined = office.desk.join("s", {"name": "n3", "source": False}, wait=True)
    assert [one["source"] for one in joined["participants"]] == [True, True, True, False]
    assert len(joined["trees"]) == 3
    left = office.desk.leave("s", "n0", wait=True)
    assert [one["name"] for one in left["participants"]] == ["n1", "c0", "n3"]
    with pytest.raises(NotFoundError):
        office.desk.leave("s", "n0", wait=True)
    changed = office.desk.change("s", {"rate_mbps": 2.0}, wait=True)
    assert changed["rate_mbps"] == 2.0 and [one["source"] for one in changed["participants"]] == [True, True, False]
    assert office.traffic.reserved.max() > 0
    office.desk.remove("s", wait=True)
    for _ in range(20):
        office.wait(0.1)
    assert office.traffic.reserved.max() == 0
    assert all(office.confirmed[node] is intent for node, intent in office.live.intents.items())
    kinds = [kind for kind, _ in office.events]
    assert kinds == ["session.declared", *["session.changed"] * 3, "session.removed"]


def test_an_id_may_be_used_again_at_once(office: Office) -> None:
    for _ in range(3):
        first, _ = declared(office)
        office.desk.remove("s", wait=True)
    again, new = declared(office)
    assert new and again["state"] == "active"
    assert not {tree["label"] for tree in first["trees"]} & {tree["label"] for tree in again["trees"]}


def test_trees_follow_the_network_and_tell_who_is_lost(office: Office) -> None:
    declared(office, participants=("n0", "n1", "n4"))
    office.cut(*(link.id for link in office.fabric.network.links if "n4" in (link.source, link.target)))
    for _ in range(3):
        office.wait(0.1)
    document = office.desk.document("s")
    assert document["state"] == "partial"
    assert {one["name"]: one["reached"] for one in document["participants"]} == {"n0": True, "n1": True, "n4": False}
    assert office.events[-1] == ("session.reach", {"id": "s", "lost": ["n0", "n1", "n4"]})
    office.cut()
    for _ in range(3):
        office.wait(0.1)
    assert office.desk.document("s")["state"] == "active"


def test_a_new_controller_goes_on_where_the_old_one_was(office: Office) -> None:
    before, _ = declared(office)
    declared(office, "t", "ff0e::9", ("n2", "n3"))
    saved, confirmed = office.desk.to_save(), dict(office.confirmed)
    office.desk = SessionDesk(office, fixed_hosts(office.fabric.addressing))
    assert office.desk.restore(saved) == []
    # Also if it dies again before it knows its network.
    assert office.desk.to_save() == saved
    office.desk.follow()
    assert {node: office.desk.added_to(node, intent) for node, intent in office.live.intents.items()} == confirmed
    assert office.desk.document("s") == before


@pytest.mark.parametrize(
    "spoilt",
    [
        {"trees": {"n0": {"label": 3, "transmissions": [["l0"]], "receivers": []}}},
        {"trees": {"n0": {"label": 77, "transmissions": [["nothing"]], "receivers": []}}},
        {"trees": {"n0": {"label": 77, "transmissions": [["l0"], ["l0~"]], "receivers": []}}},
        {"trees": {"n0": {"label": 77, "transmissions": [[["l0"]]], "receivers": ["n1"]}}},
        {"trees": {"gone": {}}, "participants": ["n0", "n1"], "sources": ["n1"]},
        {"trees": 7},
    ],
)
def test_a_spoilt_state_file_costs_trees_at_most(office: Office, spoilt) -> None:
    declared(office)
    (saved,) = office.desk.to_save()
    office.desk = SessionDesk(office, fixed_hosts(office.fabric.addressing))
    assert office.desk.restore([{**saved, **spoilt}, {"id": "x", "group": "10.0.0.1"}, 5])[0].place == "group"
    for _ in range(4):
        office.wait(0.1)
    assert office.desk.document("s")["state"] == "active"


@pytest.mark.parametrize("large", [False, True])
def test_better_trees_follow_when_there_is_time(office: Office, monkeypatch: pytest.MonkeyPatch, large: bool) -> None:
    monkeypatch.setattr(session_keeper.shim, "aside", lambda function, *arguments: function(*arguments))
    monkeypatch.setattr(session_keeper.shim, "sleep", lambda seconds: None)
    monkeypatch.setattr(session_keeper.shim, "spawn", lambda function, *arguments: function(*arguments))
    monkeypatch.setattr(session_keeper, "QUICK_FROM", 0)
    office.desk._is_large = large
    for number, nodes in enumerate((("n0", "n3"), ("n1", "n4", "n5"), ("n2", "n0", "c0"))):
        declared(office, f"s{number}", f"239.1.1.{number}", nodes)
        for node in ("n1", "n2", "n3"):
            office.desk.join(f"s{number}", {"name": node}, wait=True)
    before = [office.desk.document(f"s{number}") for number in range(3)]
    office.desk._improve()
    for _ in range(4):
        office.wait(0.1)
    after = [office.desk.document(f"s{number}") for number in range(3)]
    assert {one["state"] for one in after} == {"active"}
    costs = [[sum(tree["airtime_ms_per_mb"] for tree in one["trees"]) for one in some] for some in (before, after)]
    assert all(new <= old * (1 + 1e-9) for old, new in zip(*costs, strict=True))
    office.cut("l0", "l0~")
    for _ in range(4):
        office.wait(0.1)
    used = {link for number in range(3) for tree in office.desk.document(f"s{number}")["trees"]
            for sent in tree["transmissions"] for link in sent}  # fmt: skip
    assert not used & {"l0", "l0~"}


def test_there_is_a_bound(office: Office) -> None:
    for number in range(MAX_SESSIONS):
        group = f"239.2.{number // 200}.{number % 200}"
        office.desk.declare({"id": f"s{number}", "group": group, "participants": []}, wait=False)
    with pytest.raises(TooBusyError):
        declared(office, "more")


def test_rest(office: Office) -> None:
    client, base = create_app(None, resources=[sessions.blueprint(office.desk)]).test_client(), "/api/v1/sessions"
    body = {"id": "a/b", "group": GROUP, "participants": ["n0", "n1"]}
    answer = client.post(base, json=body)
    assert answer.status_code == 201 and answer.headers["Location"].endswith("/sessions/a%2Fb")
    assert client.post(base, json=body).status_code == 200
    assert client.post(base, json={**body, "id": "c", "wat": 1}).status_code == 422
    assert client.post(base, json={**body, "id": "c", "group": "224.0.0.1"}).get_json()["errors"].keys() == {"group"}
    assert client.post(base, json={**body, "id": "c"}).status_code == 409
    assert [one["id"] for one in client.get(base).get_json()["sessions"]] == ["a/b"]
    joined = client.post(f"{base}/a%2Fb/participants", json={"name": "n2"})
    assert joined.status_code == 200 and len(joined.get_json()["trees"]) == 3
    assert client.delete(f"{base}/a%2Fb/participants/n2?wait=false").status_code == 202
    assert client.patch(f"{base}/a%2Fb", json={"sources": ["n0"]}).get_json()["participants"][1]["source"] is False
    assert client.get(f"{base}/a%2Fb").get_json()["participants"][0]["reached"]
    assert client.delete(f"{base}/a%2Fb").status_code == 204
    assert client.get(f"{base}/a%2Fb").status_code == 404
