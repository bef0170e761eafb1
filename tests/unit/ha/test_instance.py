"""An instance: which heartbeats of other instances it believes, and when it sends its own."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from hyroads.controller.core.checking import Endpoint
from hyroads.controller.ha.election import (
    Action,
    Beat,
    Campaign,
    Follow,
    HandOver,
    Identity,
    Lead,
    Member,
    Owner,
    Restore,
    Role,
    Seen,
)
from hyroads.controller.ha.etcd import EtcdError
from hyroads.controller.ha.instance import FORGET_S, HEARD_S, STUCK_S, Changed, Heard, Instance
from hyroads.controller.ha.peer_links import Security
from hyroads.controller.ha.peers import Unconfirmed
from hyroads.controller.model.events import Event
from hyroads.controller.settings.ha import HaSettings

B, C = (Identity(name, f"{name}1") for name in "bc")


def instance(sent: list[Any] | None = None) -> Instance:
    """Instance a, which does not run: heartbeats come by calls."""
    settings = HaSettings(("http://127.0.0.1:1",), "a", "http://127.0.0.1:2", Endpoint("127.0.0.1", 3))
    etcd: Any = SimpleNamespace(prefix="/hyroads/x/")
    tell = [].append if sent is None else sent.append
    return Instance(settings, etcd, Security(), None, tell=tell, events=list)


def test_takes_what_bandits_learned_from_the_leader_alone() -> None:
    one = instance()
    one._learns("b", "f", {"pulls": 1})
    assert one.learned == {}, "no leader is known"
    one._heard(Beat(B, Role.LEADER, 3))
    one._learns("b", "f", {"pulls": 2})
    one._learns("c", "f", {"pulls": 3})
    assert one.learned == {"f": {"pulls": 2}}
    one._heard(Beat(C, Role.LEADER, 4))
    one._heard(Beat(B, Role.LEADER, 3))
    one._learns("b", "f", {"pulls": 4})
    assert one.learned == {"f": {"pulls": 2}}, "b is deposed"
    one._learns("c", "f", {"pulls": 5})
    assert one.learned == {"f": {"pulls": 5}}


def test_stamp_of_the_intents_comes_from_etcd_and_from_heartbeats_of_leaders() -> None:
    one = instance()
    one._heard(Beat(C, Role.FOLLOWER, 3, stamp=9))
    assert one.stamp == 0
    one._heard(Beat(B, Role.LEADER, 3, stamp=7))
    assert one.stamp == 7
    one._election.etcd_read(Seen(20, Owner("b", "b1", 3, 5), 3, 4, stamp=12), 0.0)
    assert one.stamp == 12
    one.written(15)
    one.written(14)
    assert one.stamp == 15


def test_first_heartbeat_of_a_leader_is_reported_once() -> None:
    sent: list[Any] = []
    one = instance(sent)
    one._heard(Beat(C, Role.FOLLOWER, 3))
    assert sent == []
    one._heard(Beat(B, Role.LEADER, 3))
    assert sent == [], "etcd does not name it"
    one._gate.names("b", 3)
    for _ in range(2):
        one._heard(Beat(B, Role.LEADER, 3))
    assert len(sent) == 1 and isinstance(sent[0], Heard) and not isinstance(sent[0], Changed)


def test_sends_no_heartbeat_while_green_threads_are_stuck() -> None:
    one = instance()
    beat = one._beat()
    assert beat is not None and beat.role is Role.STARTING
    one.turned_s -= STUCK_S + 1.0
    assert one._beat() is None
    one.is_warm(True)
    beat = one._beat()
    assert beat is not None and beat.warm


def test_word_of_the_leader_counts_while_it_leads_by_the_greatest_epoch_and_is_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, now_s = instance(), [100.0]
    monkeypatch.setattr("hyroads.controller.ha.instance._time", SimpleNamespace(monotonic=lambda: now_s[0]))

    def says(who: Identity, role: Role, epoch: int, of: int) -> Unconfirmed | None:
        one._heard(Beat(who, role, epoch))
        one._waits(who.name, Unconfirmed(of, 9, frozenset({"switch a"})))
        return one.leader_waits()

    assert one.leader_waits() is None
    assert says(C, Role.FOLLOWER, 3, 3) is None, "it does not lead"
    assert says(B, Role.LEADER, 3, 2) is None, "said when it led before"
    assert says(B, Role.LEADER, 3, 3) == Unconfirmed(3, 9, frozenset({"switch a"}))
    one._election.etcd_read(Seen(20, Owner("b", "b1", 3, 5), 3, 4), now_s[0])
    now_s[0] += HEARD_S - 0.01
    assert one.leader_waits() == Unconfirmed(3, 9, frozenset({"switch a"})), "it still leads by etcd"
    now_s[0] += 0.02
    assert one.leader_waits() is None, "not heard for long"
    assert says(B, Role.LEADER, 3, 3) is not None
    one.epoch_seen(4)
    assert one.leader_waits() is None, "a greater epoch was shown"
    assert says(B, Role.LEADER, 3, 3) is None, "and b is deposed"
    assert says(C, Role.LEADER, 4, 4) is not None


class PlainEtcd:
    """Leases by number, registered members, and what was called. It does not answer while ``fails``."""

    prefix = "/hyroads/x/"

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.leases: set[int] = set()
        self.members: dict[str, Member] = {}
        self.fails = self.refuses = False
        self.last_lease = 0

    def _called(self, *what: Any) -> None:
        if self.fails:
            raise EtcdError("no answer")
        self.calls.append(what)

    def grant(self, ttl_s: int) -> int:
        self._called("grant", ttl_s)
        self.last_lease += 1
        self.leases.add(self.last_lease)
        return self.last_lease

    def keep(self, lease: int) -> bool:
        self._called("keep", lease)
        return lease in self.leases

    def register(self, member: Member) -> bool:
        self._called("register", member)
        if self.refuses:
            return False
        self.members[member.identity.name] = member
        return True

    def seen(self) -> Seen:
        self._called("seen")
        return Seen(20, None, 2, 4, members=dict(self.members))

    def campaign(self, action: Campaign, me: Member) -> bool:
        self._called("campaign", action, me)
        return True

    def restore(self, action: Restore, me: Member) -> bool:
        self._called("restore", action, me)
        return True

    def hand_over(self, action: HandOver) -> bool:
        self._called("hand over", action)
        return True


class Bench:
    """Instance a on a plain etcd; time goes on by hand, and connections are not made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.sent, self.dialled = 100.0, list[Any](), dict[str, str]()
        clock = SimpleNamespace(monotonic=lambda: self.now_s, sleep=lambda seconds: None)
        monkeypatch.setattr("hyroads.controller.ha.instance._time", clock)
        self.etcd = PlainEtcd()
        self.one = instance(self.sent)
        self.one._etcd = self.etcd  # type: ignore[assignment]
        monkeypatch.setattr(self.one._peers, "dial", lambda addresses: setattr(self, "dialled", addresses))
        self.every_s = self.one.settings.timings.lease_s / 4
        self.me = Member(self.one._election.me, 1)

    def ask(self, after_s: float = 0.0) -> list[str]:
        """The names of what etcd was asked in one round."""
        self.now_s += after_s
        self.etcd.calls.clear()
        self.one._ask.clear()
        self.one._ask_etcd(self.every_s)
        return [call[0] for call in self.etcd.calls]

    def decide(self, *actions: Action | None) -> None:
        """Rounds of the thread that decides, in which the election says this."""
        rounds = iter(actions)

        class Ended(Exception):
            pass

        def decided(now_s: float) -> Action | None:
            for action in rounds:
                return action
            raise Ended

        self.one._election.decide = decided  # type: ignore[method-assign]
        with pytest.raises(Ended):
            self.one._run_election()


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def test_registers_once_under_a_lease_that_is_kept_every_quarter_of_it(bench: Bench) -> None:
    assert bench.ask() == ["grant", "seen", "register"] and bench.etcd.members == {"a": bench.me}
    assert bench.etcd.calls[0][1] == bench.one.settings.timings.lease_s
    assert bench.one._ask.is_set(), "etcd is read again at once"
    assert bench.ask(bench.every_s * 0.8) == ["seen"] and not bench.one._ask.is_set()
    assert bench.ask(bench.every_s * 0.1) == ["keep", "seen"]
    assert bench.ask(bench.every_s * 0.5) == ["seen"]
    bench.etcd.leases.clear()
    assert bench.ask(bench.every_s) == ["keep", "grant", "seen", "register"]
    assert bench.etcd.members["a"].lease == 2


def test_registers_again_when_it_is_to_drain_or_etcd_has_forgotten_it(bench: Bench) -> None:
    bench.ask()
    bench.one.drain(True)
    assert bench.one._ask.is_set()
    assert bench.ask() == ["seen", "register"] and bench.etcd.members["a"].draining
    assert bench.one.look().role is Role.DRAINING
    bench.one.drain(False)
    assert bench.ask() == ["seen", "register"] and not bench.etcd.members["a"].draining
    bench.etcd.members.clear()
    assert bench.ask() == ["seen", "register"]


def test_warns_once_of_another_instance_of_its_name(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.etcd.members["a"] = Member(Identity("a", "other", "http://elsewhere"), 9)
    bench.etcd.refuses = True
    for _ in range(3):
        assert "register" in bench.ask() and not bench.one._ask.is_set()
    assert [record.message for record in caplog.records if "another instance" in record.message] == [
        "etcd knows another instance named a, at http://elsewhere: waiting until it is gone"
    ]
    bench.etcd.refuses = False
    bench.ask()
    assert bench.etcd.members["a"] == bench.me


@pytest.mark.parametrize(
    "action", [Campaign(3, 1, 2), Restore(3, 2), HandOver(Member(B), 3, 1, 2)], ids=["campaign", "restore", "hand over"]
)
def test_action_is_carried_out_once_under_a_lease_and_answered(bench: Bench, action: Action) -> None:
    answered: list[Any] = []
    bench.one._election.answered = lambda *what: answered.append(what)  # type: ignore[method-assign]
    bench.decide(action, None)
    assert bench.one._ask.is_set() and bench.sent == []
    assert len(bench.ask()) == 4 and len(answered) == 1
    expected = ("hand over", action) if isinstance(action, HandOver) else (bench.etcd.calls[1][0], action, bench.me)
    assert bench.etcd.calls[0][0] == "grant" and bench.etcd.calls[1] == expected
    assert bench.etcd.calls[1][0].startswith(type(action).__name__[:4].lower())
    assert answered == [(action, bench.now_s)]
    bench.ask()
    assert len(answered) == 1
    # A request that etcd does not answer is answered, too, or no other one would follow.
    bench.decide(action)
    bench.etcd.fails = True
    with pytest.raises(EtcdError):
        bench.ask()
    assert answered[1:] == [(action, bench.now_s)]


def test_what_the_controller_does_is_told_and_other_actions_are_not(bench: Bench) -> None:
    lead, follow = Lead(3), Follow("somebody else leads")
    bench.one._ask.clear()
    bench.decide(None)
    assert bench.sent == [] and not bench.one._ask.is_set()
    bench.decide(lead, None, follow)
    assert bench.sent == [lead, follow] and bench.one._ask.is_set() and bench.one._action is None


def test_each_change_of_the_intents_is_told_once(bench: Bench) -> None:
    for stamp in (0, 7, 7, 9, 8):
        bench.one._election.etcd_read(Seen(20, stamp=stamp), bench.now_s)
        bench.decide(None, None)
    assert bench.sent == [Changed(7), Changed(9)]
    bench.one.written(12)
    bench.one._election.etcd_read(Seen(20, stamp=12), bench.now_s)
    bench.decide(None)
    assert bench.sent == [Changed(7), Changed(9)], "it has made this change itself"


def test_says_since_when_etcd_does_not_answer(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    assert bench.one.look().failing_s is not None, "it has not answered yet"
    bench.ask()
    look = bench.one.look()
    assert look.failing_s is None and look.document()["etcd"] == {"reachable": True, "failing_since_s": None}
    for _ in range(3):
        bench.now_s += 2.0
        bench.one._failed(EtcdError("no answer"))
    assert bench.one.look().failing_s == 4.0 and bench.one.look().document()["etcd"]["failing_since_s"] == 4.0
    assert [record.message for record in caplog.records].count("no answer") == 1
    assert not bench.one._election.etcd_is_reachable
    bench.ask()
    bench.one._failed(EtcdError("no answer"))
    assert [record.message for record in caplog.records].count("no answer") == 2


def test_members_are_dialled_for_a_while_after_etcd_has_forgotten_them(bench: Bench) -> None:
    bench.etcd.members |= {"b": Member(replace(B, peer="b:1")), "c": Member(replace(C, peer="c:1"))}
    bench.ask()
    assert {name: bench.dialled[name] for name in "bc"} == {"b": "b:1", "c": "c:1"}
    del bench.etcd.members["c"]
    bench.etcd.members["b"] = Member(replace(B, peer="b:2"))
    bench.ask(FORGET_S)
    assert {name: bench.dialled[name] for name in "bc"} == {"b": "b:2", "c": "c:1"}
    bench.ask(0.1)
    assert bench.dialled.keys() == {"a", "b"}


def test_shows_members_of_etcd_and_those_that_it_hears(bench: Bench) -> None:
    bench.etcd.members["b"] = Member(replace(B, rest="http://b", peer="b:1"))
    bench.ask()
    bench.one._heard(Beat(replace(C, rest="http://c"), Role.LEADER, 3))
    bench.now_s += 0.1
    shown = bench.one.look().document()
    # Where its REST is, etcd says, and c is no member.
    assert shown["leader"] == {"name": "c", "rest": "", "peer": ""} and shown["epoch"] == 3
    assert [(each["name"], each["rest"], each["peer"], each["role"]) for each in shown["members"]] == [
        ("a", bench.me.identity.rest, bench.me.identity.peer, bench.one.look().role.value),
        ("b", "http://b", "b:1", "unknown"),
        ("c", "http://c", "", "leader"),
    ]
    assert [each["seen_s"] for each in shown["members"]] == [0.0, None, pytest.approx(0.1)]
    assert shown["name"] == "a" and shown["role"] == bench.one.look().role.value
    # What etcd says of an instance goes before what it says itself.
    bench.one._heard(Beat(replace(B, rest="http://other"), Role.FOLLOWER, 3))
    member = bench.one.look().document()["members"][1]
    assert (member["name"], member["rest"], member["role"]) == ("b", "http://b", "follower")
    assert bench.one.look().schema == 0
    bench.one._election.etcd_read(Seen(21, schema=5), bench.now_s)
    assert bench.one.look().schema == 5


def test_greater_epochs_wake_both_threads_and_others_neither(bench: Bench) -> None:
    for epoch, is_news in ((3, True), (3, False), (2, False), (4, True)):
        bench.one._ask.clear()
        bench.one._decide.clear()
        bench.one._heard(Beat(B, Role.FOLLOWER, epoch))
        assert bench.one._ask.is_set() is bench.one._decide.is_set() is is_news
    for wakes in (lambda: bench.one.epoch_seen(9), lambda: bench.one.hand_over(None), lambda: bench.one._reset("b")):
        bench.one._decide.clear()
        wakes()
        assert bench.one._decide.is_set()


def test_keeps_what_bandits_learned_last_of_a_bounded_number_of_flows(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hyroads.controller.ha.instance.MOST_LEARNED", 3)
    bench.one._heard(Beat(B, Role.LEADER, 3))
    rng, order = random.Random(1), list[str]()
    for number in range(60):
        flow = rng.choice("fghij")
        bench.one._learns("b", flow, {"pulls": number})
        order = [*(each for each in order if each != flow), flow][-3:]
        assert list(bench.one.learned) == order and bench.one.learned[flow] == {"pulls": number}


def test_word_of_an_earlier_epoch_does_not_replace_a_later_one(bench: Bench) -> None:
    later = Unconfirmed(4, 9, frozenset({"switch a"}))
    bench.one._heard(Beat(C, Role.LEADER, 4))
    bench.one._waits("c", later)
    bench.one._waits("b", Unconfirmed(3, 99, frozenset()))
    assert bench.one.leader_waits() == later
    newer = Unconfirmed(4, 10, frozenset())
    bench.one._waits("c", newer)
    assert bench.one.leader_waits() == newer


def test_is_elected_for_the_epoch_that_it_leads_with_alone(bench: Bench) -> None:
    bench.one._election.leads = 3
    assert [bench.one.is_elected(epoch) for epoch in (2, 3, 4)] == [False, True, False]


def test_requests_are_redirected_to_addresses_of_etcd_alone() -> None:
    one = instance()
    forged = Identity("b", "b1", "http://192.0.2.66:80", "192.0.2.66:6655")
    known = Identity("b", "b1", "http://127.0.0.2:8080", "127.0.0.2:6655")
    one._heard(Beat(forged, Role.LEADER, 3))
    for seen, rest in (
        (None, ""),
        (Seen(1), ""),
        (Seen(2, members={"b": Member(Identity("b", "b0", "http://old"))}), ""),
        (Seen(3, Owner("b", "b1", 3, 1, known.rest, known.peer), 3), known.rest),
        (Seen(4, members={"b": Member(known)}), known.rest),
    ):
        if seen is not None:
            one._election.etcd_read(seen, 0.0)
        leader = one.look().leader
        assert leader is not None and (leader.name, leader.rest) == ("b", rest)


def test_forged_event_number_of_another_instance_hides_no_event_of_the_leader() -> None:
    sent: list[Any] = []
    one = instance(sent)
    forged, honest = (Event(number, 1.0, "link.down", {}) for number in (10**18 - 1, 3_000_000_001))
    one._gate.names("b", 3)
    one._event("c", forged)
    one._event("b", honest)
    assert sent == [honest]
