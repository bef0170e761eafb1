"""What a follower says of confirmations is the leader's word, or unknown: never confirmed by ignorance."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hyroads.controller.ha.peers import Unconfirmed
from hyroads.controller.ha.standby import Standby
from hyroads.controller.services.port import pending_as_known

EPOCH = 3


class Loop(SimpleNamespace):
    """An event loop whose devices are the test's."""

    def __init__(self) -> None:
        super().__init__(leads=True, is_at_rest=True, devices=frozenset(), now_s=0.0)

    def clock(self) -> float:
        self.now_s += 0.001
        return self.now_s

    def unconfirmed_devices(self) -> frozenset[str]:
        return self.devices


def standby(loop: Any, *, stamp: int, epoch: int | None) -> Standby:
    """One without threads, whose copy of etcd is that of revision ``stamp``."""
    found = Standby.__new__(Standby)
    found.event_loop, found.epoch, found._says_at_s = loop, epoch, 0.0
    found._mirror = SimpleNamespace(stamp=stamp)  # type: ignore[assignment]
    found._is_known, found._is_behind = True, False
    found.instance = SimpleNamespace(unconfirmed=None)  # type: ignore[assignment]
    return found


def said(leader: Standby) -> Unconfirmed | None:
    leader._says_at_s = 0.0
    leader._say_unconfirmed()
    return leader.instance.unconfirmed


def test_leader_names_devices_and_moves_on_to_a_later_revision_only_at_rest() -> None:
    loop = Loop()
    leader = standby(loop, stamp=7, epoch=EPOCH)
    loop.is_at_rest, loop.devices = False, frozenset({"switch a"})
    assert said(leader) is None
    loop.is_at_rest = True
    assert said(leader) == Unconfirmed(EPOCH, 7, frozenset({"switch a"}))
    # The switch has confirmed a first step; something else is to be sent to switch b.
    leader._mirror.stamp, loop.is_at_rest, loop.devices = 8, False, frozenset({"switch b"})
    assert said(leader) == Unconfirmed(EPOCH, 7, frozenset({"switch a", "switch b"}))
    loop.is_at_rest, loop.devices = True, frozenset()
    assert said(leader) == Unconfirmed(EPOCH, 8, frozenset())
    leader.epoch = None
    assert said(leader) is None


def test_follower_counts_nothing_as_confirmed_that_the_leader_has_not_said() -> None:
    follower = standby(Loop(), stamp=8, epoch=None)
    words: list[Unconfirmed | None] = [None]
    follower.instance.leader_waits = lambda: words[0]  # type: ignore[method-assign]
    assert follower._leader_waits() is None
    words[0] = Unconfirmed(EPOCH, 7, frozenset())
    assert follower._leader_waits() is None, "the leader has not said so of revision 8"
    words[0] = Unconfirmed(EPOCH, 8, None)
    assert follower._leader_waits() is None, "too many to be named"
    words[0] = Unconfirmed(EPOCH, 8, frozenset({"switch a"}))
    assert follower._leader_waits() == {"switch a"}
    follower._is_behind = True
    assert follower._leader_waits() is None, "etcd has more than was read"


@pytest.mark.parametrize(
    ("leads", "waits", "pending"),
    [
        (True, None, ["own"]),
        (False, None, ["leader"]),
        (False, frozenset({"switch a", "switch z"}), ["switch a"]),
        (False, frozenset(), []),
    ],
)
def test_pending_is_the_leaders_word_at_a_follower(leads: bool, waits: frozenset[str] | None, pending: Any) -> None:
    port: Any = SimpleNamespace(leads=leads, leader_waits=lambda: waits)
    assert pending_as_known(port, lambda: ["own"], lambda: ["switch a", "switch b"]) == pending
