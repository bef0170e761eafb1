"""Readings one after the other: busy shares, and what is done with those that can't be right."""

from __future__ import annotations

import random

import pytest
from examples import seeds

from hyroads.controller.agents.telemetry import RadioInterface, RadioNeighbour, RadioReport
from hyroads.controller.control.probing import busy_share
from hyroads.controller.control.radio_table import FLAGS, HISTORY, RadioTable

ROWS = (RadioNeighbour("02:00:00:00:00:02", 15.0, None, 0.0, None, 0),)
WIFI = ("a", "wifi")


class Feed:
    """A node whose counters are told in seconds; its clock is 1000 s ahead."""

    def __init__(self) -> None:
        self.table = RadioTable(frozenset({WIFI, ("a", "plc")}))
        self.table.up("a", "boot-1", 0.0)
        self.now_s = 0.0

    def read(
        self, now_s: float, busy_s: float, active_s: float, *, delay_s: float = 0.001, technology: str = "wifi"
    ) -> None:
        interface = RadioInterface(technology, round(busy_s * 1e6), round(active_s * 1e6), ROWS)
        self.table.report("a", RadioReport(None, 1000 + now_s - delay_s, (interface,)), now_s)
        self.now_s = now_s

    def busy(self) -> float | None:
        taken = {fresh.interface: fresh for fresh in self.table.take(self.now_s)}
        return taken[WIFI].busy if WIFI in taken else None

    def flags(self, now_s: float | None = None) -> set[str]:
        flags = set(self.table.flags("a", self.now_s if now_s is None else now_s))
        assert flags <= FLAGS.keys()
        return flags


def test_a_share_is_over_the_time_since_the_one_before() -> None:
    feed = Feed()
    feed.read(0.1, 5.0, 10.0)
    assert feed.busy() is None  # one reading is no difference
    feed.read(0.2, 5.05, 10.1)
    assert feed.busy() == 0.5
    feed.read(0.3, 5.05, 10.2)
    feed.read(0.4, 5.15, 10.3)
    assert feed.busy() == 0.5  # 0.1 of 0.2: nothing between two slots is lost
    assert feed.busy() is None and feed.flags() == set()


def test_samples_carry_the_time_of_the_reading_on_our_clock() -> None:
    feed = Feed()
    feed.read(0.1, 0, 0.1, delay_s=0.001)
    feed.read(0.3, 0, 0.2, delay_s=0.101)
    (fresh,) = feed.table.take(0.3)
    assert abs(fresh.time_s - 0.2) < 0.002


def test_readings_that_were_long_under_way_are_not_used() -> None:
    feed = Feed()
    feed.read(0.1, 0.0, 0.1)
    feed.table.take(0.1)
    for i in range(1, 5):
        feed.read(2.0 + i / 100, 0.05 * i, 0.1 + 0.1 * i, delay_s=1.9 - 0.09 * i)
        assert feed.flags() == {"old"} and list(feed.table.take(feed.now_s)) == []
        assert not feed.table.is_fresh(WIFI, feed.now_s)
    feed.read(2.1, 0.3, 0.7)
    assert feed.flags() == set() and feed.busy() is not None


def several(count: int = 8) -> RadioTable:
    names = [f"n{i}" for i in range(count)]
    table = RadioTable(frozenset((name, "wifi") for name in names))
    for name in names:
        table.up(name, "boot-1", 0.0)
    return table


def read_all(table: RadioTable, now_s: float, delay_s: dict[int, float] | float, count: int = 8) -> list[str]:
    """All are read, so much later than they were sent; the nodes of which something can be used."""
    for i in range(count):
        late_s = delay_s.get(i, 0.0) if isinstance(delay_s, dict) else delay_s
        interface = RadioInterface("wifi", round(5e4 * now_s), round(1e6 * now_s), ROWS)
        table.report(f"n{i}", RadioReport(None, 1000 + now_s - late_s, (interface,)), now_s)
    table.judge(0.0)
    return [fresh.interface[0] for fresh in table.take(now_s)]


def test_readings_of_all_that_are_late_are_late_because_of_us() -> None:
    table = several()
    read_all(table, 0.1, 0.0)
    for turn in range(1, 60):
        used = read_all(table, 0.1 + turn / 10, min(2.0, turn / 20))
        assert len(used) == 8 and table.late_s >= min(2.0, turn / 20) - 1e-6
        assert all(table.is_fresh((f"n{i}", "wifi"), 0.1 + turn / 10) for i in range(8))
        assert not any("old" in table.flags(f"n{i}", 0.1 + turn / 10) for i in range(8))


def test_readings_of_some_that_are_late_are_not_used() -> None:
    table = several()
    read_all(table, 0.1, 0.0)
    assert read_all(table, 5.0, {1: 2.0, 4: 3.0, 5: 2.0}) == ["n0", "n2", "n3", "n6", "n7"]
    assert table.late_s == 0.0 and "old" in table.flags("n4", 5.0)


def test_silence_of_all_is_no_lateness_of_ours() -> None:
    table = several()
    read_all(table, 0.1, 0.0)
    for now_s in (0.5, 2.0, 5.0):
        table.judge(0.0)
        assert table.late_s == 0.0
        assert table.is_fresh(("n1", "wifi"), now_s) == (now_s < 1.0)
    # What we did not listen to is no silence.
    table.judge(4.5)
    assert table.is_fresh(("n1", "wifi"), 5.0)


def test_silence_and_the_end_of_a_session_are_told_apart() -> None:
    feed = Feed()
    assert set(RadioTable(frozenset()).flags("a", 0.0)) == {"absent"}
    feed.read(0.1, 0, 0.1)
    assert feed.flags(0.4) == set() and feed.flags(0.8) == {"silent"}
    assert not feed.table.is_fresh(WIFI, 2.0)
    feed.table.down("a", 0.9)
    assert feed.flags(0.9) == {"gone"} and not feed.table.is_fresh(WIFI, 0.2)
    feed.table.up("a", "boot-1", 1.0)
    assert feed.flags(1.1) == set()
    feed.table.up("a", "boot-2", 1.2)
    assert feed.flags(1.3) == {"restarted"}


def test_counters_that_stand_still_are_frozen_and_give_nothing() -> None:
    feed = Feed()
    for i in range(1, 4):
        feed.read(i / 10, 0.01 * i, i / 10)
    feed.table.take(feed.now_s)
    for i in range(4, 12):
        feed.read(i / 10, 0.03, 0.3)
        if i >= 9:
            assert feed.flags() == {"frozen"} and list(feed.table.take(feed.now_s)) == []
    feed.read(1.3, 0.04, 0.4)
    assert feed.flags() == set() and feed.busy() == 0.1


def test_adapter_that_has_no_busy_time_any_more_is_not_frozen() -> None:
    feed = Feed()
    for i in range(1, 6):
        feed.read(0.1 * i, 0.01 * i, 0.1 * i, technology="plc")
    # Its sniffer is gone, as after a change of adapters: its counters stand still from now on.
    for i in range(6, 20):
        silent = RadioInterface("plc", 50_000, 500_000, ROWS, "none")
        feed.now_s = 0.1 * i
        feed.table.report("a", RadioReport(None, 1000 + feed.now_s, (silent,)), feed.now_s)
        assert [fresh.neighbours for fresh in feed.table.take(feed.now_s)] == [ROWS]
    assert feed.flags() == set() and feed.table.busy_source(("a", "plc")) == "none"


def test_adapters_without_busy_time_are_not_frozen() -> None:
    feed = Feed()
    for i in range(1, 30):
        feed.read(i / 10, 0, 0, technology="plc")
    (fresh,) = feed.table.take(feed.now_s)
    assert fresh.busy is None and fresh.neighbours == ROWS and feed.flags() == set()


def test_what_cannot_be_is_flagged_and_left_out_of_the_share() -> None:
    feed = Feed()
    feed.read(0.1, 1.0, 10.0)
    feed.read(0.2, 1.2, 10.1)
    assert feed.flags() == {"busy-beyond-active"} and feed.busy() is None
    feed.read(0.3, 1.25, 10.2)
    assert feed.busy() == 0.5  # the wrong interval does not spoil the next
    feed.read(0.4, 1.25, 20.0)
    assert "active-beyond-time" in feed.flags() and feed.busy() is None
    feed.read(0.5, 0.0, 0.0)
    assert "restarted" in feed.flags() and feed.busy() is None
    feed.read(0.6, 0.08, 0.1)
    assert feed.busy() == 0.8
    assert feed.flags(6.0) == {"silent"}  # shown for some seconds, not for ever


def test_a_clock_that_goes_back_starts_anew() -> None:
    feed = Feed()
    feed.read(0.1, 0.0, 0.1)
    feed.table.report("a", RadioReport(None, 3.0, (RadioInterface("wifi", 0, 200_000, ROWS),)), 0.2)
    feed.now_s = 0.2
    assert feed.flags() == {"clock"} and feed.busy() is None
    feed.table.report("a", RadioReport(None, 3.1, (RadioInterface("wifi", 50_000, 300_000, ROWS),)), 0.3)
    feed.now_s = 0.3
    assert feed.busy() == 0.5


def test_interfaces_that_nobody_declared_are_told_and_not_used() -> None:
    feed = Feed()
    feed.read(0.1, 0, 0.1, technology="laser")
    assert feed.flags() == {"unknown-interface"} and list(feed.table.take(0.1)) == []
    feed.table.report("nobody", RadioReport(None, 1.0, ()), 0.1)
    assert list(feed.table.take(0.1)) == []


@pytest.mark.parametrize("seed", seeds(20))
def test_shares_of_all_interfaces_are_those_of_each(seed: int) -> None:
    rng, feed = random.Random(seed), Feed()
    busy_s, active_s = {"wifi": 1.0, "plc": 1.0}, {"wifi": 2.0, "plc": 2.0}
    for step in range(rng.randrange(3 * HISTORY)):
        now_s = 0.1 * step
        for technology in rng.sample(["wifi", "plc"], rng.randrange(3)):
            if rng.random() < 0.05:
                busy_s[technology] = active_s[technology] = 0.0
            elapsed_s = rng.choice([0.0, 0.02, 0.1, 0.3])
            active_s[technology] += elapsed_s
            busy_s[technology] += rng.random() * elapsed_s
            feed.read(now_s, busy_s[technology], active_s[technology], technology=technology)
        if rng.random() < 0.02:
            feed.table.up("a", f"boot-{step}", now_s)
        for window_s in (0.05, 1.0):
            expected = {
                at: (busy_share(known, known[-1].time_s - window_s, known[-1].time_s), known[-1].time_s)
                for at in (WIFI, ("a", "plc"))
                if (known := feed.table.readings(at))
            }
            assert {at: (share, time_s) for at, share, time_s in feed.table.busy_shares(window_s)} == expected


def test_shows_how_busy_time_is_known() -> None:
    table = RadioTable(frozenset({("a", "plc"), WIFI}))
    table.up("a", "boot-1", 0.0)
    assert table.busy_source(("a", "plc")) is None
    reading = RadioReport(None, 1.0, (RadioInterface("plc", 0, 0, (), "sniffer"), RadioInterface("wifi", 0, 0, ())))
    table.report("a", reading, 1.0)
    assert (table.busy_source(("a", "plc")), table.busy_source(WIFI)) == ("sniffer", None)
