"""What one instance decides, input by input: whom it counts as living, how long it waits, and what it then sends."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from swarm import events, swarm

from hyroads.controller.ha.election import (
    Action,
    Beat,
    Campaign,
    Election,
    Follow,
    HandOver,
    Identity,
    Lead,
    Member,
    Owner,
    Restore,
    Role,
    Rules,
    Seen,
)

A, B, C = (Identity(name, f"{name}1", f"http://{name}", f"{name}:1") for name in "abc")
RULES = Rules()
SEEN = Seen(
    9, Owner("b", "b1", 3, 7, "http://b", "b:1"), 3, 6, stamp=5, members={one.name: Member(one, 1) for one in (A, B, C)}
)
NO_OWNER = replace(SEEN, owner=None)
STEP_S = 1 / 64
"""Exact in binary, as are all times here: a bound is met or not, and never by rounding."""
SILENCE_S = RULES.silence_s


def led(by: Identity = B, epoch: int = 3, **more: object) -> Beat:
    return replace(Beat(by, Role.LEADER, epoch, warm=True), **more)


def follows(by: Identity = C, **more: object) -> Beat:
    return replace(Beat(by, Role.FOLLOWER, 3, warm=True), **more)


def hears(election: Election, epoch: int, heard_s: float, now_s: float | None = None) -> None:
    """The only device says when it heard the leader of an epoch."""
    now_s = heard_s if now_s is None else now_s
    election.devices.queried("d", now_s)
    election.devices.says("d", epoch, heard_s, now_s)


class Instance:
    """Instance a on a clock; it decides every 1/64 s, as often as a running process does."""

    def __init__(self, seen: Seen | None = SEEN, *, warm: bool = True, rules: Rules = RULES) -> None:
        self.now_s = 0.0
        self.election = Election(A, 0.0, rules=rules, warm=warm)
        if seen is not None:
            self.election.etcd_read(seen, 0.0)

    def until(self, at_s: float, *beats: Beat) -> Action | None:
        """The first action before a time, at which ``now_s`` then stands; it hears ``beats`` at every step."""
        while self.now_s < at_s:
            self.now_s += STEP_S
            for beat in beats:
                self.election.heard(beat, self.now_s)
            action = self.election.decide(self.now_s)
            if action is not None:
                return action
        return None

    def acts_at(self, most_s: float = 20.0, *beats: Beat) -> float:
        """When it campaigns, in the next ``most_s``."""
        assert self.until(self.now_s + most_s, *beats) == Campaign(
            self.election.greatest + 1, self.election._owner_revision, self.election.seen.epoch_revision
        )
        return self.now_s


def test_follower_that_hears_its_leader_never_campaigns() -> None:
    one = Instance()
    assert one.until(10.0, led()) is None
    assert one.acts_at() == 10.0 + SILENCE_S
    assert one.election.role is Role.FOLLOWER


def test_follower_counts_what_a_third_instance_heard() -> None:
    one = Instance()
    for step in range(200):
        heard = follows(leader="b", leader_epoch=3, leader_age_s=0.125 if step else 0.0)
        assert one.until(step * STEP_S, heard) is None
    last_s = one.now_s
    assert one.acts_at() == last_s - 0.125 + SILENCE_S


@pytest.mark.parametrize(
    "beat",
    [
        led(epoch=2),
        follows(leader="b", leader_epoch=2, leader_age_s=0.0),
        follows(leader="b", leader_epoch=3, leader_age_s=-1.0),
        follows(),
    ],
)
def test_beats_of_a_deposed_leader_and_of_followers_are_no_sign_of_a_leader(beat: Beat) -> None:
    one = Instance()
    assert one.acts_at(20.0, beat) == RULES.patience_s


def test_second_hand_word_of_an_earlier_leader_does_not_replace_what_was_heard_of_the_later_one() -> None:
    one = Instance(replace(SEEN, owner=None, epoch=0))
    one.election.heard(led(), 0.0)
    assert one.acts_at(20.0, follows(leader="c", leader_epoch=2, leader_age_s=0.0)) == SILENCE_S


def test_older_word_does_not_replace_newer() -> None:
    one = Instance()
    one.election.heard(led(), 0.0)
    assert one.acts_at(20.0, follows(leader="b", leader_epoch=3, leader_age_s=5.0)) == SILENCE_S


@pytest.mark.parametrize(("seen", "bound_s"), [(SEEN, RULES.patience_s), (NO_OWNER, SILENCE_S)])
def test_leader_that_was_never_heard_has_patience_and_none_has_silence(seen: Seen, bound_s: float) -> None:
    assert Instance(seen).acts_at() == bound_s
    # Without a warm instance beside it there is no reason to wait longer.
    assert Instance(seen, warm=False).acts_at() == bound_s
    assert Instance(seen, warm=False).acts_at(20.0, follows(warm=False)) == bound_s
    assert Instance(seen, warm=False).acts_at(20.0, follows()) == bound_s + RULES.cold_s
    assert Instance(seen, warm=False).acts_at(20.0, follows(role=Role.DRAINING)) == bound_s
    assert Instance(seen).acts_at(20.0, follows()) == bound_s


def test_patience_begins_again_with_another_owner() -> None:
    one = Instance()
    assert one.until(1.5) is None
    one.election.etcd_read(replace(SEEN, revision=10, owner=Owner("c", "c1", 4, 8), epoch=4), one.now_s)
    assert one.until(2.0) is None
    one.election.etcd_read(replace(one.election.seen, revision=11, stamp=6), one.now_s)
    assert one.acts_at() == 1.5 + RULES.patience_s


def test_connections_that_were_reset_end_the_wait() -> None:
    for warm, wait_s in ((True, 0.0), (False, RULES.cold_s)):
        one = Instance(warm=warm)
        assert one.until(1.0, led(), follows()) is None
        one.election.reset("b", one.now_s)
        one.until(1.0 + STEP_S, follows())
        assert one.now_s == 1.0 + STEP_S
        one.election.reset("b", one.now_s)
        if wait_s:
            assert one.acts_at(20.0, follows()) == 1.0 + wait_s
    one = Instance()
    assert one.until(1.0, led()) is None
    one.election.reset("c", one.now_s)
    one.election.reset("unknown", one.now_s)
    assert one.acts_at() == 1.0 + SILENCE_S
    # Another process of that name owns the key: what was reset was an earlier one.
    one = Instance(replace(SEEN, owner=replace(SEEN.owner, boot="b2")))
    one.election.heard(led(), 0.0)
    one.election.reset("b", 0.0)
    assert one.acts_at() == SILENCE_S


@pytest.mark.parametrize(("epoch", "bound_s"), [(3, 4.0 + SILENCE_S), (4, RULES.patience_s), (2, RULES.patience_s)])
def test_leader_that_agents_hear_is_left_alone(epoch: int, bound_s: float) -> None:
    one = Instance()
    for step in range(256):
        hears(one.election, epoch, (step + 1) * STEP_S)
        action = one.until((step + 1) * STEP_S)
        if action is not None:
            break
    found_s = one.now_s if action is not None else one.acts_at()
    assert found_s == bound_s


def test_attempts_are_some_time_apart_and_need_a_fresh_read() -> None:
    one = Instance()
    action = one.until(9.0)
    assert isinstance(action, Campaign) and one.until(3.0) is None, "one transaction at a time"
    one.election.answered(action, 3.0)
    assert one.until(4.0) is None, "what it knows is from before"
    one.election.etcd_read(replace(SEEN, revision=8), 4.0)
    assert one.until(5.0) is None, "an older read"
    one.election.etcd_read(SEEN, 5.0)
    assert one.acts_at() == 5.0 + STEP_S
    one.election.answered(Campaign(4, 7, 6), one.now_s)
    at_s = one.now_s
    one.election.etcd_read(SEEN, at_s)
    found_s = one.acts_at()
    assert at_s + RULES.again_s <= found_s < at_s + RULES.again_s + STEP_S


def test_instance_that_may_not_lead_does_not_campaign() -> None:
    one = Instance()
    one.election.drain(True)
    assert one.until(5.0) is None and one.election.role is Role.DRAINING
    one.election.drain(False)
    assert one.acts_at() == 5.0 + STEP_S
    for members in ({}, {"a": Member(replace(A, boot="a0"))}, {"b": Member(B)}):
        assert Instance(replace(SEEN, members=members)).until(5.0) is None
    assert Instance(None).until(5.0) is None and Instance(None).election.role is Role.STARTING
    one = Instance()
    one.election.etcd_failed(0.0)
    assert one.until(5.0) is None and not one.election.etcd_is_reachable


def test_own_key_makes_it_lead_and_a_greater_epoch_ends_that() -> None:
    mine = Owner("a", "a1", 4, 8)
    one = Instance(replace(SEEN, owner=mine, epoch=4))
    assert one.until(1.0) == Lead(4, 5) and one.election.leads == 4 and one.election.role is Role.LEADER
    assert one.election.leader(one.now_s) == A
    assert one.until(1.0) is None
    assert one.election.epoch_seen(4) and one.until(2.0) is None
    one.election.epoch_seen(5)
    assert isinstance(one.until(3.0), Follow) and one.election.leads is None
    assert one.election.beat(one.now_s, 0).epoch == 5
    # Its own key of an earlier epoch does not make it lead.
    one = Instance(replace(SEEN, owner=mine, epoch=4))
    one.election.epoch_seen(5)
    assert isinstance(one.until(9.0), Campaign)


def leading(seen: Seen = SEEN) -> Instance:
    one = Instance(replace(seen, owner=Owner("a", "a1", 4, 8), epoch=4))
    assert isinstance(one.until(1.0), Lead)
    return one


def test_leader_restores_its_key_only_while_the_epoch_is_its_own() -> None:
    one = leading()
    one.election.etcd_read(replace(SEEN, revision=10, owner=None, epoch=4, epoch_revision=6), one.now_s)
    assert one.until(1.0) == Restore(4, 6)
    one = leading()
    one.election.etcd_read(replace(SEEN, revision=10, owner=None, epoch=3), one.now_s)
    assert one.until(1.0) is None


@pytest.mark.parametrize(
    ("to", "beats", "members", "heir"),
    [
        (None, [follows(B), follows(C)], SEEN.members, "b"),
        ("c", [follows(B), follows(C)], SEEN.members, "c"),
        (None, [follows(B, warm=False), follows(C)], SEEN.members, "c"),
        ("b", [follows(B, warm=False), follows(C)], SEEN.members, None),
        (None, [follows(B), follows(C)], {**SEEN.members, "b": Member(B, 1, draining=True)}, "c"),
        (None, [follows(B), follows(C)], {"a": Member(A), "b": Member(replace(B, boot="b2"))}, None),
        (None, [], SEEN.members, None),
        (None, [follows(A)], SEEN.members, None),
    ],
)
def test_leadership_goes_to_a_warm_instance_that_does_not_drain(
    to: str | None, beats: list[Beat], members: dict[str, Member], heir: str | None
) -> None:
    one = leading(replace(SEEN, members=members))
    assert one.until(0.5, *beats) is None
    one.election.hand_over(to)
    found = one.until(1.0, *beats)
    assert found == (None if heir is None else HandOver(members[heir], 5, 8, 6))
    if found is not None:
        one.election.answered(found, one.now_s)
        one.election.etcd_read(one.election.seen, one.now_s)
        assert one.until(2.0, *beats) is None, "it is done, or wished again"


def test_wish_to_hand_over_ends_with_the_lead_when_taken_back_and_by_a_reset() -> None:
    one = leading()
    one.election.heard(follows(B), one.now_s)
    one.election.reset("b", one.now_s)
    one.election.hand_over("b")
    assert one.until(0.5) is None, "its connections were reset"
    one.election.heard(follows(B), one.now_s)
    one.election.keep_leading()
    assert one.until(1.0) is None
    one.election.drain(True)
    assert isinstance(one.until(1.5), HandOver)
    one = leading()
    one.election.heard(follows(B), one.now_s)
    one.election.drain(True)
    one.election.drain(False)
    assert one.until(1.5) is None


def test_leader_without_etcd_yields_after_a_while_to_one_that_reaches_it() -> None:
    one = leading()
    assert not one.election.beat(1.0, 0).yields
    one.election.etcd_failed(1.0)
    one.election.etcd_failed(2.0)
    limit_s = 1.0 + RULES.without_etcd_s
    assert not one.election.beat(limit_s, 0).yields and one.election.beat(limit_s + STEP_S, 0).yields
    asking = led(yields=True)
    assert Instance().acts_at(20.0, asking) == RULES.reach_s
    assert Instance(warm=False).until(5.0, asking) is None
    assert Instance().until(5.0, led(epoch=3), led(C, epoch=2, yields=True)) is None, "deposed"
    one = Instance()
    one.election.etcd_failed(1.0)
    one.election.etcd_read(SEEN, 2.0)
    assert one.acts_at(20.0, asking) == 2.0 + RULES.reach_s
    one = Instance()
    assert one.until(1.0, asking, led(C)) is None
    assert one.until(8.0, led(C)) is None, "it asks no more"


def test_time_in_which_the_process_did_not_run_is_no_silence_of_others() -> None:
    one = Instance()
    assert one.until(1.0, led()) is None
    one.now_s = 6.0
    hears(one.election, 3, 1.0)
    assert one.election.decide(6.0) is None
    # By the next step it has run for one step since the last beat.
    assert one.acts_at() == 6.0 + SILENCE_S
    one = Instance()
    one.now_s = 6.0
    assert one.election.decide(6.0) is None, "patience counts only while it runs"
    assert one.acts_at() == 6.0 + RULES.patience_s
    exact = Instance(rules=replace(RULES, pause_s=0.125))
    exact.election.heard(led(), 0.0)
    exact.now_s = 0.125
    assert exact.election.decide(0.125) is None
    assert exact.acts_at() == SILENCE_S, "a step as long as the bound is no pause"


def test_agents_are_asked_when_the_leader_is_silent_for_a_part_of_the_bound() -> None:
    one = Instance(rules=replace(RULES, silence_s=2.5))
    one.election.heard(led(), 1.0)
    assert not one.election.suspects(2.0) and one.election.suspects(2.0 + STEP_S)
    assert not leading().election.suspects(100.0)


def test_beat_says_whom_it_heard_lead_and_how_long_ago() -> None:
    one = Instance()
    assert one.election.beat(1.0, 8) == Beat(A, Role.FOLLOWER, 3, 8, True)
    one.election.heard(led(C, 2), 1.0)
    one.election.heard(led(B, 3), 2.0)
    found = one.election.beat(4.0, 8)
    assert (found.leader, found.leader_epoch, found.leader_age_s, found.yields) == ("b", 3, 2.0, False)
    one.election.reset("b", 4.0)
    assert one.election.beat(4.0, 8).leader == "c"
    assert one.election.peers(4.0) == {"b": (led(B, 3), 2.0), "c": (led(C, 2), 3.0)}


def test_known_leader_is_the_one_that_beats_or_the_owner_of_the_key() -> None:
    one = Instance()
    assert one.election.leader(0.0) == B, "by its key"
    one.election.heard(led(C, 4), 1.0)
    assert one.election.leader(1.0 + SILENCE_S) == C
    assert one.election.leader(1.0 + SILENCE_S + STEP_S) == B, "it is silent"
    one.election.heard(led(C, 3), 2.0)
    assert one.election.leader(2.0) == B, "its epoch is over"
    one.election.heard(led(C, 4), 2.0)
    one.election.reset("c", 2.0)
    assert one.election.leader(2.0) == B
    one.election.heard(follows(B), 2.0)
    one.election.reset("b", 2.0)
    assert one.election.leader(2.0) is None
    assert Instance(NO_OWNER).election.leader(0.0) is None and Instance(None).election.leader(0.0) is None
    mine = Instance(replace(SEEN, owner=Owner("a", "a1", 3, 7)))
    assert mine.election.leader(0.0) is None, "it does not lead yet"


def test_beat_of_an_epoch_out_of_all_proportion_is_ignored() -> None:
    one = Instance()
    assert one.until(1.0, led(epoch=3)) is None
    assert one.acts_at(20.0, led(epoch=2_000_000)) == 1.0 + SILENCE_S and one.election.greatest == 3


def test_values_that_are_not_given() -> None:
    # A read without keys and a beat that says nothing hold zeros.
    assert Rules() == Rules(0.25, 2.0, 0.5, 0.1, 5.0, 3.0, 0.1)
    assert Seen(1) == Seen(1, None, 0, 0, 0, 0, {})
    assert Member(A) == Member(A, 0, False)
    assert Identity("a", "1") == Identity("a", "1", "", "", 1)
    assert Beat(A, Role.FOLLOWER, 1) == Beat(A, Role.FOLLOWER, 1, 0, False, "", 0, -1.0, False)
    assert Lead(3) == Lead(3, 0)


def test_owner_that_goes_and_comes_begins_its_patience_again() -> None:
    one = Instance(rules=replace(RULES, silence_s=9.0))
    one.until(1.0)
    one.election.etcd_read(replace(NO_OWNER, revision=10), one.now_s)
    one.until(1.5)
    one.election.etcd_read(replace(SEEN, revision=11), one.now_s)
    assert one.acts_at() == 1.5 + RULES.patience_s


def test_what_agents_heard_lasts_over_time_in_which_the_process_did_not_run() -> None:
    one = Instance(rules=replace(RULES, patience_s=0.125))
    for step in range(1, 65):
        hears(one.election, 3, step * STEP_S)
        assert one.until(step * STEP_S) is None
    one.now_s = 6.0
    assert one.election.decide(6.0) is None
    assert one.acts_at() == 6.0 + SILENCE_S


def test_leader_heard_before_this_process_paused_counts_as_living_afterwards() -> None:
    one = Instance()
    assert one.until(1.0, led()) is None
    one.now_s = 6.0
    assert one.election.decide(6.0) is None
    assert one.acts_at() == 6.0 + SILENCE_S


def test_second_hand_word_of_a_deposed_leader_is_no_sign_of_a_leader() -> None:
    one = Instance(rules=replace(RULES, silence_s=1.0))
    one.election.heard(follows(leader="c", leader_epoch=2, leader_age_s=0.0), 0.5)
    assert one.election.suspects(0.5)
    one.election.heard(follows(leader="b", leader_epoch=3, leader_age_s=0.0), 0.5)
    assert not one.election.suspects(0.5), "a sign of this very moment counts"


def test_first_leader_of_all_has_epoch_1_and_patience_as_any_other() -> None:
    one = Instance(replace(SEEN, owner=None, epoch=0, epoch_revision=0))
    assert one.election.beat(0.0, 0).epoch == 0
    assert one.until(1.0) == Campaign(1, 0, 0)
    other = Instance(replace(SEEN, owner=Owner("b", "b1", 1, 7), epoch=1))
    assert other.acts_at() == RULES.patience_s, "it was never heard"


def test_instance_that_has_not_read_etcd_yet_sends_heartbeats() -> None:
    assert Instance(None).election.beat(9.0, 0) == Beat(A, Role.STARTING, 0, warm=True)


def test_epoch_may_be_a_million_ahead_and_no_more() -> None:
    one = Instance()
    assert not one.election.epoch_seen(1_000_004) and one.election.greatest == 3
    assert one.election.epoch_seen(1_000_003) and one.election.greatest == 1_000_003


def test_heartbeats_and_pauses_count_up_to_their_bounds() -> None:
    one = Instance(rules=replace(RULES, again_s=0.125))
    action = one.until(9.0)
    assert isinstance(action, Campaign)
    tried_s = one.now_s
    one.election.answered(action, tried_s)
    one.election.etcd_read(SEEN, tried_s)
    assert one.acts_at() == tried_s + 0.125
    yielding = Instance(rules=replace(RULES, reach_s=SILENCE_S))
    yielding.election.heard(led(yields=True), 0.0)
    hears(yielding.election, 3, SILENCE_S)
    assert yielding.acts_at() == SILENCE_S, "its request counts as long as its heartbeat"
    cold = Instance(warm=False)
    for beat in (led(), follows()):
        cold.election.heard(beat, 0.0)
    assert cold.acts_at() == SILENCE_S + STEP_S, "a warm instance goes first as long as its heartbeat counts"


INPUTS = ("read", "read", "no etcd", "beat", "reset", "agents", "drain", "hand over", "keep", "warm", "time", "time")


def give(election: Election, kind: str, rng: random.Random, now_s: float) -> None:
    """One input, the same for the same numbers but for the time."""
    who = rng.choice((A, B, C))
    if kind == "read":
        owner = rng.choice((None, Owner(who.name, who.boot, rng.randrange(2, 6), rng.randrange(5, 9))))
        members = {one.name: Member(one, 1, rng.random() < 0.2) for one in (A, B, C) if rng.random() < 0.8}
        election.etcd_read(Seen(rng.randrange(9, 14), owner, rng.randrange(6), 6, stamp=5, members=members), now_s)
    elif kind == "no etcd":
        election.etcd_failed(now_s)
    elif kind == "beat":
        role, age_s = rng.choice(list(Role)), rng.choice((-1.0, 0.0, STEP_S, 0.25))
        beat = Beat(rng.choice((B, C)), role, rng.randrange(6), warm=rng.random() < 0.5, leader="b")
        more = {"leader_epoch": rng.randrange(6), "leader_age_s": age_s, "yields": rng.random() < 0.2}
        election.heard(replace(beat, **more), now_s)
    elif kind == "reset":
        election.reset(who.name, now_s)
    elif kind == "agents":
        node, epoch, shown = rng.choice("xyz"), rng.randrange(6), rng.randrange(6)
        election.devices.count = 3
        election.devices.queried(node, now_s)
        election.devices.says(node, epoch, now_s - rng.choice((0.0, STEP_S, 0.25)), now_s)
        election.device_shows(node, shown, now_s)
    elif kind == "drain":
        election.drain(rng.random() < 0.5)
    elif kind == "hand over":
        election.hand_over(rng.choice((None, "b", "c")))
    elif kind == "keep":
        election.keep_leading()
    elif kind == "warm":
        election.warm = rng.random() < 0.5


def play_shifted(_: int, row: list[tuple[str, int]]) -> None:
    """Two instances get the same at clocks that differ by a constant: what a clock shows has no meaning of its own."""
    now_s, shift_s = 0.0, 2.0**20
    two = Election(A, now_s, rules=RULES), Election(A, now_s + shift_s, rules=RULES)
    for kind, choice in row:
        now_s += random.Random(choice).choice((STEP_S, 4 * STEP_S, 0.5, 2.0, 8.0)) if kind == "time" else 0.0
        seen = []
        for election, at_s in zip(two, (now_s, now_s + shift_s), strict=True):
            give(election, kind, random.Random(choice), at_s)
            action = election.decide(at_s)
            if action is not None and choice % 3:
                election.answered(action, at_s)
            peers = {name: age_s for name, (_, age_s) in election.peers(at_s).items()}
            seen.append((action, election.beat(at_s, 7), election.leader(at_s), election.suspects(at_s), peers))
        assert seen[0] == seen[1], kind


def test_decisions_depend_on_times_between_inputs_and_not_on_what_the_clock_shows() -> None:
    swarm(500, lambda rng: events(rng, INPUTS, 40, ("read", "time", "beat")), play_shifted)
