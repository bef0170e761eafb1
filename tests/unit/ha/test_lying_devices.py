"""Fewer than half of the devices lie, in any way: there is one leader, and never none for long. On virtual time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from election_sim import TICK_S, Cluster, Device, Node
from swarm import events, swarm

from hyroads.controller.ha.device_words import QUARANTINE_S, READ_AGAIN_S, DeviceWords

Word = tuple[int, float] | None
"""An epoch, and when its leader was heard; None: no answer."""
STRATEGIES: dict[str, Callable[[Random, Device, float], Word]] = {
    "hears it": lambda rng, device, now_s: (device.epoch, now_s),
    "never heard it": lambda rng, device, now_s: (device.epoch, 0.0),
    "silent": lambda rng, device, now_s: None,
    "next epoch": lambda rng, device, now_s: (device.epoch + rng.randint(1, 3), now_s),
    "greater and greater": lambda rng, device, now_s: (round(now_s / TICK_S), now_s),
    "greatest": lambda rng, device, now_s: (2**63 - 1, now_s),
    "earlier epoch": lambda rng, device, now_s: (max(0, device.epoch - rng.randint(1, 3)), now_s),
    "true": lambda rng, device, now_s: (device.epoch, device.heard_s),
    "future": lambda rng, device, now_s: (device.epoch, now_s + 1e6),
}
AT_ONCE, PONGS = 8, 3


class Lied(Cluster):
    """A cluster of three with ``count`` devices, of which some lie by weights of this run's own."""

    def __init__(self, seed: int, count: int, liars: int) -> None:
        self.devices = [Device() for _ in range(count)]
        self.lies = Random(seed)
        names = list(STRATEGIES)
        self.ways = {number: self.lies.choices(names, k=3) for number in self.lies.sample(range(count), liars)}
        self.none_s = self.longest_s = 0.0
        self.reads = 0
        self.turns = 0
        super().__init__(3, Random(seed))

    def word(self, number: int) -> Word:
        device = self.devices[number]
        if number not in self.ways:
            return device.epoch, device.heard_s
        return STRATEGIES[self.lies.choice(self.ways[number])](self.lies, device, self.now_s)

    def _devices(self, node: Node) -> None:
        election, now_s, count = node.election, self.now_s, len(self.devices)
        election.devices.count = count
        if election.leads is not None:
            for device in self.devices:
                if election.leads >= device.epoch:
                    device.heard_s = now_s
                device.change(election.leads, election.me.boot)
        # Each is heard at another step, as devices are.
        for number in range(round(now_s / TICK_S) % PONGS, count, PONGS):
            word = self.word(number)
            if word is not None and word[0] and election.device_shows(f"d{number}", word[0], now_s):
                node.asks_s, self.reads = now_s, self.reads + 1
        if election.suspects(now_s):
            for _ in range(min(AT_ONCE, count)):
                self.turns += 1
                number = self.turns % count
                election.devices.queried(f"d{number}", now_s)
                word = self.word(number)
                if word is not None:
                    election.devices.says(f"d{number}", *word, now_s)

    @property
    def honest(self) -> list[Device]:
        return [device for number, device in enumerate(self.devices) if number not in self.ways]

    def acting(self) -> list[str]:
        """Whom honest devices obey."""
        return [
            name
            for name, node in self.nodes.items()
            if not node.is_frozen
            and node.election.leads is not None
            and all(device.epoch <= node.election.leads for device in self.honest)
        ]

    def watch(self, seconds: float) -> None:
        """Run, and look at each step who leads."""
        for _ in range(round(seconds / TICK_S)):
            self.run(TICK_S)
            acting = self.acting()
            assert len(acting) <= 1, acting
            self.none_s = 0.0 if acting else self.none_s + TICK_S
            self.longest_s = max(self.longest_s, self.none_s)


Row = list[tuple[str, int]]


def schedule(rng: Random) -> Row:
    return events(rng, ("kill", "freeze", "wait"), 2)


def play(seed: int, row: Row) -> None:
    rng = Random(seed)
    count = rng.choice((3, 4, 7, 15))
    cluster = Lied(seed, count, rng.randint(0, (count - 1) // 2))
    cluster.run(2.0)
    for what, _ in row:
        (leader,) = cluster.leaders
        owners = len(cluster.etcd.owners)
        if what == "kill":
            cluster.kill(leader)
        elif what == "freeze":
            cluster.nodes[leader].is_frozen = True
        cluster.watch(1.2)
        if what == "wait":
            assert len(cluster.etcd.owners) == owners and cluster.leaders == [leader], "no device made it change"
        elif what == "kill":
            cluster.start(leader)
        else:
            cluster.nodes[leader].is_frozen = False
        cluster.watch(1.5)
        assert len(cluster.etcd.owners) == owners + (what != "wait")
    assert cluster.longest_s <= 1.0
    led = {epoch for epoch, _ in cluster.leads}
    assert len(led) == len(set(cluster.leads)), "an epoch has one leader"
    for device in cluster.honest:
        assert [epoch for epoch, _ in device.obeyed] == sorted(epoch for epoch, _ in device.obeyed)


def test_devices_that_lie_never_make_two_leaders_or_none() -> None:
    swarm(200, schedule, play)


@pytest.mark.parametrize("way", STRATEGIES)
@pytest.mark.parametrize("event", ["kill", "freeze"])
def test_takeover_is_as_fast_as_without_lies(way: str, event: str) -> None:
    cluster = Lied(1, 21, 10)
    cluster.ways = {number: [way] for number in cluster.ways}
    cluster.run(3.0)
    (leader,) = cluster.leaders
    if event == "kill":
        cluster.kill(leader)
    else:
        cluster.nodes[leader].is_frozen = True
    cluster.watch(1.0)
    assert cluster.longest_s <= 0.5 and cluster.leaders != [leader]


def test_device_that_shows_greater_epochs_costs_a_bounded_number_of_reads_and_is_quarantined() -> None:
    cluster = Lied(1, 5, 1)
    cluster.ways = {number: ["greater and greater"] for number in cluster.ways}
    cluster.run(10.0)
    assert len(cluster.etcd.owners) == 1 and len(cluster.leaders) == 1
    found = [each for node in cluster.nodes.values() for each in node.election.contradictions()]
    (liar,) = cluster.ways
    assert len(found) == 3 and {each.node for each in found} == {f"d{liar}"}
    assert "etcd" in found[0].why and cluster.reads <= 3 * 2.0 / READ_AGAIN_S


def test_epoch_that_most_devices_show_is_taken_though_etcd_has_lost_its_own() -> None:
    cluster = Lied(1, 5, 0)
    cluster.run(2.0)
    for device in cluster.devices[:3]:
        device.epoch = 50
    cluster.run(2.0)
    assert cluster.etcd.epoch == 51 and len(cluster.leaders) == 1


def test_device_that_says_it_hears_a_dead_leader_is_quarantined() -> None:
    words, now_s = DeviceWords(3), 10.0
    for node, heard_s in (("a", 9.0), ("b", 9.05), ("c", 10.0)):
        words.queried(node, now_s)
        words.says(node, 3, heard_s, now_s)
    assert not words.lives(3, now_s, 0.25)
    (found,) = words.outvoted(3, now_s, 0.25)
    assert found.node == "c" and "most devices do not" in found.why
    for node in "abc":
        words.queried(node, now_s + 1)
        words.says(node, 3, now_s + 1, now_s + 1)
    assert words.lives(3, now_s + 1, 0.25), "honest ones count as before"
    assert words.shows("c", 9, 3, now_s + 1) is False
    assert words.shows("c", 9, 3, now_s + QUARANTINE_S) is True
