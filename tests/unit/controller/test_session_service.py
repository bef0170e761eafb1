"""The service of sessions with switches that confirm what they are told, and its REST resource."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from instant_saver import full_disk, instant_saver
from rings import ring

from hyroads.controller.control.live_network import Basis, LiveNetwork
from hyroads.controller.control.sessions import Host
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.network import Place
from hyroads.controller.model.pending_names import switch_name
from hyroads.controller.model.state import TopologyContext
from hyroads.controller.services.multicast import supervisor
from hyroads.controller.services.multicast.meter import fixed_hosts
from hyroads.controller.services.multicast.sessions import MAX_SESSIONS, SessionService
from hyroads.rest import sessions
from hyroads.rest.api import create_app
from hyroads.rest.contract import ConflictError, NotConfirmedError, NotFoundError, NotSavedError, TooBusyError

GROUP = "239.1.2.3"


class Rig:
    """A network whose switches confirm at the next look, unless they are ``deaf``."""

    def __init__(self, seed: int = 2) -> None:
        self.context = TopologyContext.of(ring(seed))
        self.settled, self.leads, self.plan = True, True, object()
        self.live = SimpleNamespace(
            network=LiveNetwork(self.context, Basis(frozenset())),
            loop=SimpleNamespace(groups=None),
            use_groups=lambda airtime: setattr(self.live.loop, "groups", airtime),
        )
        self.service: SessionService | None = None
        self.deaf: set[str] = set()
        self.confirmed = {}
        self.progress = self
        self.published: list[tuple[str, object]] = []
        self.events = SimpleNamespace(publish=lambda kind, document: self.published.append((kind, document)))
        self.now_s = 0.0
        self.unsaved = 0
        self.saver = instant_saver()[0]

    def clock(self) -> float:
        return self.now_s

    @property
    def switches(self):
        return {node: self._session(node) for node in self.context.addressing.dpid if node not in self.deaf}

    def _session(self, node: str):
        intent = self.confirmed.get(node)
        return SimpleNamespace(confirmed=None if intent is None else SimpleNamespace(intent=intent))

    def wake(self, *, now: bool = False) -> None: ...

    def note_unsaved(self) -> None:
        self.unsaved += 1

    def wait(self, timeout_s: float) -> None:
        self.now_s += timeout_s
        self.saver.once()
        self.service.follow()
        for node, intent in self.live.network.intents.items():
            if node not in self.deaf:
                self.confirmed[node] = self.service.added_to(node, intent)

    def exception(self, where: str, error: BaseException) -> None:
        raise AssertionError(where) from error

    def cut(self, *links: str) -> None:
        self.live.network = LiveNetwork(self.context, Basis(frozenset(links)))


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.service = SessionService(rig, fixed_hosts(rig.context.addressing))
    rig.wait(0.1)
    return rig


def declared(rig: Rig, name: str = "s", group: str = GROUP, participants=("n0", "n1", "c0"), **more):
    document = {"id": name, "group": group, "participants": list(participants), **more}
    return rig.service.declare(document, wait=True)


def test_a_session_is_active_once_switches_have_confirmed(rig: Rig) -> None:
    document, new = declared(rig)
    assert new and document["state"] == "active" and document["pending"] == []
    assert [tree["source"] for tree in document["trees"]] == ["c0", "n0", "n1"]
    assert declared(rig) == (document, False)
    with pytest.raises(ConflictError):
        declared(rig, participants=("n0", "n1"))


def test_follower_shows_what_the_leader_waits_for(rig: Rig) -> None:
    declared(rig)
    rig.confirmed = {}
    assert rig.service.document("s")["state"] == "activating"
    rig.leads, node = False, sorted(rig.context.own_switches)[0]
    for waits, pending in ((None, ["leader"]), ({switch_name(node), "agent x"}, [switch_name(node)]), (set(), [])):
        rig.leader_waits = lambda waits=waits: None if waits is None else frozenset(waits)
        document = rig.service.document("s")
        assert document["pending"] == pending
        assert document["state"] == ("activating" if pending else "active")


def test_what_can_not_be_saved_is_as_if_it_had_not_been_asked_for(rig: Rig) -> None:
    before, _ = declared(rig)
    rig.wait(0.1)
    for ask in (
        lambda: declared(rig, "t", "239.1.2.4"),
        lambda: rig.service.join("s", {"name": "n2"}, wait=True),
        lambda: rig.service.leave("s", "c0", wait=True),
        lambda: rig.service.remove("s", wait=True),
    ):
        rig.saver.save = full_disk
        with pytest.raises(NotSavedError, match="No space left"):
            ask()
        # The next one is refused before anything happens.
        with pytest.raises(NotSavedError, match="nothing was changed"):
            ask()
        rig.saver.save = lambda: None
        for _ in range(3):
            rig.wait(0.1)
        after = rig.service.document("s")
        assert rig.service.names() == ("s",) and after["participants"] == before["participants"]
        assert after["state"] == "active" and len(after["trees"]) == len(before["trees"])
    assert declared(rig, "t", "239.1.2.4")[1] and rig.service.pending("t") == []


def test_a_removal_is_not_confirmed_before_it_is_saved(rig: Rig) -> None:
    rig.service.declare({"id": "s", "group": GROUP, "participants": ["n0", "n1"]}, wait=False)
    rig.saver.once()
    rig.saver.save = full_disk
    # No switch has been told of it: there is nothing else to wait for.
    with pytest.raises(NotSavedError):
        rig.service.remove("s", wait=True)
    assert rig.service.names() == ("s",)


def test_a_host_that_joins_by_itself_stays_though_that_can_not_be_saved_yet(rig: Rig) -> None:
    declared(rig, membership=True)
    rig.wait(0.1)
    rig.saver.save = full_disk
    mac = "02:99:00:00:00:07"
    rig.service.member("s", Host(mac, True, "n2", mac), joins=True)
    rig.wait(0.1)
    assert rig.saver.failure and mac in [one["name"] for one in rig.service.document("s")["participants"]]


def test_participants_may_be_named_by_mac_or_ip(rig: Rig) -> None:
    mac, ip = rig.context.addressing.host_mac["n2"], rig.context.addressing.host_ip["c1"]
    document, _ = declared(rig, participants=(mac.upper(), ip))
    assert [(one["name"], one["node"]) for one in document["participants"]] == [(mac.upper(), "n2"), (ip, "c1")]


def test_sessions_follow_their_hosts(rig: Rig) -> None:
    places = {"02:99:00:00:00:01": "n0", "02:99:00:00:00:02": "n1"}
    rig.service = SessionService(rig, lambda mac: Host(mac, True, places[mac], mac) if mac in places else None)
    rig.wait(0.1)
    before, _ = declared(rig, participants=list(places))
    assert [one["node"] for one in before["participants"]] == ["n0", "n1"]
    places["02:99:00:00:00:02"] = "n4"
    rig.service.moved("02:99:00:00:00:03")
    assert rig.service.document("s") == before
    rig.service.moved("02:99:00:00:00:02")
    for _ in range(3):
        rig.wait(0.1)
    after = rig.service.document("s")
    assert [one["node"] for one in after["participants"]] == ["n0", "n4"] and after["state"] == "active"
    assert [tree["source"] for tree in after["trees"]] == ["n0", "n4"]
    # One that nobody knows any more is where it was last.
    del places["02:99:00:00:00:02"]
    rig.service.moved("02:99:00:00:00:02")
    assert rig.service.document("s") == after


def test_sessions_follow_plain_clients_to_their_other_access_point(rig: Rig) -> None:
    declared(rig)
    addressing = rig.context.addressing
    first, second = addressing.attachments["c0"][:2]
    mac = addressing.host_mac["c0"]

    def is_served_at() -> set[str]:
        found = ((node, members.clients) for node, intent in rig.confirmed.items() for members in intent.members)
        return {node for node, clients in found if any(client.mac == mac for client in clients)}

    def sends_at() -> set[str]:
        found = ((node, entry.client) for node, intent in rig.confirmed.items() for entry in intent.entries)
        return {node for node, client in found if client is not None and client.mac == mac}

    assert is_served_at() == sends_at() == {first.node}
    places = {"c0": Place(second.node, second.technology)}
    rig.live.network = LiveNetwork(rig.context, Basis(frozenset(), places=places))
    for _ in range(30):
        rig.wait(0.1)
    assert is_served_at() == sends_at() == {second.node}
    assert rig.service.document("s")["state"] == "active"


def test_what_cannot_be_is_refused_and_changes_nothing(rig: Rig) -> None:
    declared(rig)
    with pytest.raises(ConflictError, match="is that of session 's'"):
        declared(rig, "t")
    with pytest.raises(ConfigError, match=r"participants\[1\]"):
        declared(rig, "t", "239.9.9.9", ("n0", "10.9.9.9"))
    rig.cut(*(link.id for link in rig.context.network.links if "n4" in (link.source, link.target)))
    rig.wait(0.1)
    with pytest.raises(ConflictError, match="no path from"):
        declared(rig, "t", "239.9.9.9", ("n0", "n4"))
    with pytest.raises(ConflictError, match="no path from"):
        rig.service.join("s", {"name": "n4"}, wait=True)
    assert [document["id"] for document in rig.service.documents(rig.service.names())] == ["s"]
    assert len(rig.service.document("s")["participants"]) == 3
    with pytest.raises(NotFoundError):
        rig.service.document("t")


def test_who_does_not_confirm_is_named(rig: Rig) -> None:
    rig.deaf.add("n1")
    with pytest.raises(NotConfirmedError) as caught:
        declared(rig)
    assert "switch n1" in caught.value.pending
    rig.deaf.clear()
    rig.wait(0.1)
    rig.wait(0.1)
    rig.wait(0.1)
    assert rig.service.document("s")["state"] == "active"


def test_joins_leaves_and_the_end(rig: Rig) -> None:
    declared(rig)
    joined = rig.service.join("s", {"name": "n3", "source": False}, wait=True)
    assert [one["source"] for one in joined["participants"]] == [True, True, True, False]
    assert len(joined["trees"]) == 3
    left = rig.service.leave("s", "n0", wait=True)
    assert [one["name"] for one in left["participants"]] == ["n1", "c0", "n3"]
    with pytest.raises(NotFoundError):
        rig.service.leave("s", "n0", wait=True)
    changed = rig.service.change("s", {"rate_mbps": 2.0}, wait=True)
    assert changed["rate_mbps"] == 2.0 and [one["source"] for one in changed["participants"]] == [True, True, False]
    assert rig.live.loop.groups.reserved.max() > 0
    rig.service.remove("s", wait=True)
    for _ in range(20):
        rig.wait(0.1)
    assert rig.live.loop.groups.reserved.max() == 0
    assert all(rig.confirmed[node] is intent for node, intent in rig.live.network.intents.items())
    kinds = [kind for kind, _ in rig.published]
    assert kinds == ["session.declared", *["session.changed"] * 3, "session.removed"]


def test_an_id_may_be_used_again_at_once(rig: Rig) -> None:
    for _ in range(3):
        first, _ = declared(rig)
        rig.service.remove("s", wait=True)
    again, new = declared(rig)
    assert new and again["state"] == "active"
    assert not {tree["label"] for tree in first["trees"]} & {tree["label"] for tree in again["trees"]}


def test_trees_follow_the_network_and_tell_who_is_lost(rig: Rig) -> None:
    declared(rig, participants=("n0", "n1", "n4"))
    rig.cut(*(link.id for link in rig.context.network.links if "n4" in (link.source, link.target)))
    for _ in range(3):
        rig.wait(0.1)
    document = rig.service.document("s")
    assert document["state"] == "partial"
    assert {one["name"]: one["reached"] for one in document["participants"]} == {"n0": True, "n1": True, "n4": False}
    assert rig.published[-1] == ("session.reach", {"id": "s", "lost": ["n0", "n1", "n4"]})
    rig.cut()
    for _ in range(3):
        rig.wait(0.1)
    assert rig.service.document("s")["state"] == "active"


def test_a_new_controller_goes_on_where_the_old_one_was(rig: Rig) -> None:
    before, _ = declared(rig)
    declared(rig, "t", "ff0e::9", ("n2", "n3"))
    saved, confirmed = rig.service.to_save(), dict(rig.confirmed)
    rig.service = SessionService(rig, fixed_hosts(rig.context.addressing))
    assert rig.service.restore(saved) == []
    # Also if it dies again before it knows its network.
    assert rig.service.to_save() == saved
    rig.service.follow()
    assert {node: rig.service.added_to(node, intent) for node, intent in rig.live.network.intents.items()} == confirmed
    assert rig.service.document("s") == before


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
def test_a_spoilt_state_file_costs_trees_at_most(rig: Rig, spoilt) -> None:
    declared(rig)
    (saved,) = rig.service.to_save()
    rig.service = SessionService(rig, fixed_hosts(rig.context.addressing))
    assert rig.service.restore([{**saved, **spoilt}, {"id": "x", "group": "10.0.0.1"}, 5])[0].place == "group"
    for _ in range(4):
        rig.wait(0.1)
    assert rig.service.document("s")["state"] == "active"


@pytest.mark.parametrize("large", [False, True])
def test_better_trees_follow_when_there_is_time(rig: Rig, monkeypatch: pytest.MonkeyPatch, large: bool) -> None:
    monkeypatch.setattr(supervisor.shim, "in_thread", lambda function, *arguments: function(*arguments))
    monkeypatch.setattr(supervisor.shim, "sleep", lambda seconds: None)
    monkeypatch.setattr(supervisor.shim, "spawn", lambda function, *arguments: function(*arguments))
    monkeypatch.setattr(supervisor, "QUICK_FROM", 0)
    rig.service._is_large = large
    for number, nodes in enumerate((("n0", "n3"), ("n1", "n4", "n5"), ("n2", "n0", "c0"))):
        declared(rig, f"s{number}", f"239.1.1.{number}", nodes)
        for node in ("n1", "n2", "n3"):
            rig.service.join(f"s{number}", {"name": node}, wait=True)
    before = [rig.service.document(f"s{number}") for number in range(3)]
    rig.service._improve()
    for _ in range(4):
        rig.wait(0.1)
    after = [rig.service.document(f"s{number}") for number in range(3)]
    assert {one["state"] for one in after} == {"active"}
    costs = [[sum(tree["airtime_ms_per_mb"] for tree in one["trees"]) for one in some] for some in (before, after)]
    assert all(new <= old * (1 + 1e-9) for old, new in zip(*costs, strict=True))
    rig.cut("l0", "l0~")
    for _ in range(4):
        rig.wait(0.1)
    used = {link for number in range(3) for tree in rig.service.document(f"s{number}")["trees"]
            for sent in tree["transmissions"] for link in sent}  # fmt: skip
    assert not used & {"l0", "l0~"}


def test_there_is_a_bound(rig: Rig) -> None:
    for number in range(MAX_SESSIONS):
        group = f"239.2.{number // 200}.{number % 200}"
        rig.service.declare({"id": f"s{number}", "group": group, "participants": []}, wait=False)
    with pytest.raises(TooBusyError):
        declared(rig, "more")


def test_rest(rig: Rig) -> None:
    client, base = (
        create_app(None, resources=[sessions.blueprint(rig.service)]).test_client(),
        "/api/v1/sessions",
    )
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
