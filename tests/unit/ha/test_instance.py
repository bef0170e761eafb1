"""An instance: which heartbeats of other instances it believes, and when it sends its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hyroads.controller.core.checking import Endpoint
from hyroads.controller.ha.election import Beat, Identity, Owner, Role, Seen
from hyroads.controller.ha.instance import HEARD_S, STUCK_S, Changed, Heard, Instance
from hyroads.controller.ha.peer_links import Security
from hyroads.controller.ha.peers import Unconfirmed
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
