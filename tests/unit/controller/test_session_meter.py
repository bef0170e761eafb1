"""What sources send, from the counters of the rules by which it enters."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hyroads.controller.control.sessions import Host, LiveSession, Rollout
from hyroads.controller.core.services.sessions import SessionSpec, group_address
from hyroads.controller.ofp import wire
from hyroads.controller.ofp.diff import Installed
from hyroads.controller.ofp.match import Match
from hyroads.controller.ofp.readback import FlowStat
from hyroads.controller.services.multicast.meter import SessionMeter

MACS = ("02:00:00:00:00:01", "02:00:00:00:00:02")


class Switch:
    """Answers at once: a rule of a host at the access port, one of a plain client, and one of nobody."""

    is_read = True

    def __init__(self) -> None:
        self.bytes = dict.fromkeys(MACS, 0)

    def ask_counters(self, matches, told) -> None:
        group = group_address("239.1.1.1").match
        for number, mac in enumerate(MACS):
            match = Match(in_port=7 if number else None, eth_src=mac, **group)
            fields = wire.match_fields(match)
            told(FlowStat(Installed(1, 51, fields, 0), self.bytes[mac] // 100, self.bytes[mac]))
        told(FlowStat(Installed(1, 50, wire.match_fields(Match(**group)), 0), 9, 9000))


class World:
    def __init__(self) -> None:
        self.now_s, self.rates, self.switch = 0.0, {}, Switch()
        hosts = tuple(Host(mac, True, node, mac) for mac, node in zip(MACS, "ab", strict=True))
        tree = SimpleNamespace(root="a", label=1)
        rollouts = {"a": Rollout(None, tree), "b": Rollout(None, tree)}
        live = LiveSession(SessionSpec("s", group_address("239.1.1.1"), ()), hosts, rollouts=rollouts)
        self.sessions = {"s": live}
        self.meter = SessionMeter({"a": self.switch}, lambda: self.sessions, self.take, lambda: self.now_s)

    def take(self, rates) -> None:
        self.rates = dict(rates)

    def second(self, **sent: int) -> None:
        self.now_s += 1.0
        for mac, count in zip(MACS, (sent.get("a", 0), sent.get("b", 0)), strict=True):
            self.switch.bytes[mac] += count
        self.meter.once()


def test_rates_follow_counters_with_what_the_label_costs() -> None:
    world = World()
    for _ in range(4):
        world.second(a=125_000, b=12_500)
    # 1250 and 125 frames of 100 bytes a second, 4 bytes of label each.
    assert world.rates == {("s", "a"): pytest.approx(1.04), ("s", "b"): pytest.approx(0.104)}
    for _ in range(3):
        world.second()
    assert world.rates == {("s", "a"): 0.0, ("s", "b"): 0.0}


def test_a_switch_that_starts_anew_or_falls_silent_counts_nothing() -> None:
    world = World()
    for _ in range(3):
        world.second(a=125_000)
    world.switch.bytes = dict.fromkeys(MACS, 0)
    world.second(a=100)
    world.second(a=100)
    assert 0 <= world.rates["s", "a"] < 0.01
    world.switch.is_read = False
    for _ in range(5):
        world.second()
    assert world.rates == {}


def test_a_session_that_ends_is_forgotten() -> None:
    world = World()
    for _ in range(3):
        world.second(a=125_000)
    world.sessions = {}
    world.second()
    world.second()
    assert world.rates == {}
