"""Who leads, whatever fails: at most one of each epoch, and always somebody in the end."""

from __future__ import annotations

from random import Random

import pytest
from election_sim import Cluster
from swarm import events, swarm

from hyroads.controller.ha.election import MAX_STEP, Election, Identity, Role

NODES = ("a", "b", "c")
PAIRS = (("a", "b"), ("a", "c"), ("b", "c"))
ONE = ("kill", "start", "freeze", "thaw", "lose etcd", "find etcd", "lose devices", "drain", "hand over")
EVENTS = (*ONE, "part", "join", "etcd down", "etcd up")


def schedule(rng: Random) -> list[tuple[str, str | tuple[str, str], float]]:
    """What happens, to whom, and how long the cluster runs afterwards."""
    row = []
    for what, choice in events(rng, EVENTS, 12):
        who = (PAIRS if what in ("part", "join") else NODES)[choice % 3]
        row.append((what, who, (0.02, 0.1, 0.3, 0.7, 2.5)[choice // 3 % 5]))
    return row


def happen(cluster: Cluster, what: str, who: str | tuple[str, str]) -> None:
    if isinstance(who, tuple):
        (cluster.cut.add if what == "part" else cluster.cut.discard)(frozenset(who))
        return
    node = cluster.nodes.get(who)
    if what == "start":
        cluster.start(who)
    elif what.startswith("etcd"):
        cluster.etcd.is_up = what == "etcd up"
    elif node is None:
        return
    elif what == "kill":
        cluster.kill(who)
    elif what in ("freeze", "thaw"):
        node.is_frozen = what == "freeze"
    elif what in ("lose etcd", "find etcd"):
        node.has_etcd = what == "find etcd"
    elif what == "lose devices":
        cluster.cut.add(frozenset((who,)))
    elif what == "drain":
        node.election.drain(not node.election.drains)
    elif what == "hand over":
        node.election.hand_over(None)


def heal(cluster: Cluster) -> None:
    cluster.cut.clear()
    cluster.etcd.is_up = True
    for node in cluster.nodes.values():
        node.is_frozen, node.has_etcd = False, True
        node.election.drain(False)
        node.election.keep_leading()
    if not cluster.nodes:
        cluster.start("b")


def check_safety(cluster: Cluster) -> None:
    """No epoch has two leaders; epochs only grow; devices obey one leader after the other."""
    led = {epoch for epoch, _ in cluster.leads}
    assert len(led) == len(set(cluster.leads))
    epochs = [epoch for epoch, _ in cluster.etcd.owners]
    assert epochs == sorted(set(epochs))
    assert set(cluster.leads) <= set(cluster.etcd.owners)
    obeyed = [epoch for epoch, _ in cluster.device.obeyed]
    assert obeyed == sorted(obeyed) and set(cluster.device.obeyed) <= set(cluster.leads)


def play(seed: int, row: list[tuple[str, str | tuple[str, str], float]]) -> None:
    cluster = Cluster(3, Random(seed))
    cluster.run(1.0)
    for what, who, wait_s in row:
        happen(cluster, what, who)
        cluster.run(wait_s)
        check_safety(cluster)
    heal(cluster)
    cluster.run(6.0)
    check_safety(cluster)
    (leader,) = cluster.leaders
    assert cluster.nodes[leader].election.leads == cluster.etcd.epoch
    # Then nothing changes any more, and no follower tries.
    before, tried = list(cluster.leads), cluster.etcd.transactions
    cluster.run(3.0)
    assert cluster.leaders == [leader] and cluster.leads == before and cluster.etcd.transactions == tried


def test_one_leads_of_each_epoch_and_one_in_the_end() -> None:
    swarm(60, schedule, play)


def elected(count: int = 3, seed: int = 0) -> tuple[Cluster, str]:
    cluster = Cluster(count, Random(seed))
    cluster.run(2.0)
    (leader,) = cluster.leaders
    return cluster, leader


def until_another_leads(cluster: Cluster, old: str, most_s: float) -> float:
    began_s = cluster.now_s
    while not any(name != old for name in cluster.leaders):
        cluster.run(0.02)
        assert cluster.now_s - began_s < most_s
    return cluster.now_s - began_s


@pytest.mark.parametrize("seed", range(5))
def test_a_killed_leader_is_replaced_without_waiting_for_its_lease(seed: int) -> None:
    cluster, leader = elected(seed=seed)
    cluster.kill(leader)
    assert until_another_leads(cluster, leader, 1.0) < 0.3


@pytest.mark.parametrize("seed", range(5))
def test_a_frozen_leader_is_replaced_and_changes_nothing_when_thawed(seed: int) -> None:
    cluster, leader = elected(seed=seed)
    cluster.nodes[leader].is_frozen = True
    assert 0.2 < until_another_leads(cluster, leader, 1.0) < 0.6
    cluster.nodes[leader].is_frozen = False
    obeyed = len(cluster.device.obeyed)
    cluster.run(1.0)
    assert leader not in cluster.leaders and {boot for _, boot in cluster.device.obeyed[obeyed:]}.isdisjoint(
        {cluster.nodes[leader].election.me.boot}
    )


def test_a_leader_goes_on_without_etcd_and_keeps_its_epoch() -> None:
    cluster, leader = elected()
    epoch = cluster.nodes[leader].election.leads
    cluster.etcd.is_up = False
    cluster.run(60.0)
    assert cluster.leaders == [leader] and not cluster.nodes[leader].election.etcd_is_reachable
    cluster.etcd.is_up = True
    cluster.run(5.0)
    assert cluster.leaders == [leader] and cluster.nodes[leader].election.leads == epoch
    # Its key, whose lease has ended, is there again.
    assert cluster.etcd.owner is not None and cluster.etcd.owner.epoch == epoch


def test_a_leader_that_a_third_one_hears_is_left_alone() -> None:
    cluster, leader = elected()
    other = next(name for name in NODES if name != leader)
    cluster.cut.add(frozenset((leader, other)))
    cluster.run(10.0)
    assert cluster.leaders == [leader] and len(cluster.leads) == 1


def test_a_leader_that_agents_hear_is_left_alone() -> None:
    cluster, leader = elected(2)
    (other,) = set(cluster.nodes) - {leader}
    cluster.cut.add(frozenset((leader, other)))
    cluster.run(10.0)
    assert cluster.leaders == [leader] and len(cluster.leads) == 1
    # Cut off from everybody, or frozen, it is followed as always.
    cluster.cut.add(frozenset((leader,)))
    assert until_another_leads(cluster, leader, 2.0) < 0.6


def test_what_agents_heard_of_an_earlier_leader_counts_no_more() -> None:
    cluster, leader = elected(2)
    (other,) = set(cluster.nodes) - {leader}
    election = cluster.nodes[other].election
    cluster.nodes[leader].is_frozen = True
    for _ in range(100):
        election.devices.queried("d", cluster.now_s)
        election.devices.says("d", cluster.etcd.epoch - 1, cluster.now_s, cluster.now_s)
        cluster.run(0.02)
    assert cluster.leaders[-1] == other or election.leads is not None


def test_a_leader_that_alone_lost_etcd_yields_to_one_that_reaches_it() -> None:
    cluster, leader = elected()
    cluster.nodes[leader].has_etcd = False
    cluster.run(4.0)
    assert cluster.leaders == [leader]
    cluster.run(3.0)
    (new,) = cluster.leaders
    assert new != leader and len(cluster.leads) == 2
    cluster.nodes[leader].has_etcd = True
    cluster.run(10.0)
    assert cluster.leaders == [new] and len(cluster.leads) == 2


@pytest.mark.parametrize("seed", range(5))
def test_nobody_takes_over_because_etcd_is_away_and_comes_back(seed: int) -> None:
    cluster, leader = elected(seed=seed)
    for away_s in (5.0, 60.0):
        cluster.etcd.is_up = False
        cluster.run(away_s)
        cluster.etcd.is_up = True
        cluster.run(8.0)
        assert cluster.leaders == [leader] and len(cluster.leads) == 1


def test_nobody_takes_over_who_lost_etcd_itself() -> None:
    cluster, leader = elected(2)
    for node in cluster.nodes.values():
        node.has_etcd = False
    cluster.run(20.0)
    assert cluster.leaders == [leader] and len(cluster.leads) == 1


def test_leadership_is_handed_over_and_not_to_one_that_drains() -> None:
    cluster, leader = elected()
    first, second = (name for name in NODES if name != leader)
    cluster.nodes[first].election.drain(True)
    cluster.run(1.0)
    assert cluster.nodes[first].election.role is Role.DRAINING
    cluster.nodes[leader].election.hand_over(None)
    cluster.run(1.0)
    assert cluster.leaders == [second]
    cluster.kill(second)
    cluster.run(1.0)
    assert cluster.leaders == [leader]
    cluster.nodes[leader].election.drain(True)
    cluster.run(4.0)
    # Nobody else may lead: it stays, and goes as soon as somebody may.
    assert cluster.leaders == [leader]
    cluster.nodes[first].election.drain(False)
    cluster.run(2.0)
    assert cluster.leaders == [first]


def test_a_device_that_shows_a_later_epoch_makes_the_leader_begin_a_later_one() -> None:
    cluster, _ = elected()
    epoch = cluster.etcd.epoch
    cluster.device.epoch = epoch + 7
    cluster.run(3.0)
    assert len(cluster.leaders) == 1 and cluster.etcd.epoch > epoch + 7


def test_an_epoch_out_of_all_proportion_is_nobodys() -> None:
    election = Election(Identity("a", "1"), 0.0)
    assert not election.epoch_seen(MAX_STEP + 1) and election.greatest == 0
    assert election.epoch_seen(MAX_STEP) and election.greatest == MAX_STEP


def test_a_second_process_of_the_same_name_waits_until_the_first_is_forgotten() -> None:
    cluster, leader = elected(1)
    node = cluster.nodes.pop(leader)
    cluster.start(leader)
    cluster.run(1.0)
    assert cluster.leaders == []
    cluster.run(2.5)
    assert cluster.leaders == [leader] and cluster.nodes[leader].election.leads != node.election.leads
