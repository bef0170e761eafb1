"""Bytes by month, monthly caps and what the status says of rates and shares."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.client.modes import Modes
from hyroads.controller.client.policy import Policy, parse
from hyroads.controller.client.status import Facts, Meter, document
from hyroads.controller.client.usage import GIB, Caps, Usage, UsageFile, month_of

NOVEMBER = datetime(2026, 11, 22, tzinfo=UTC).timestamp()
DECEMBER = datetime(2026, 12, 1, tzinfo=UTC).timestamp()


def test_months_end_in_utc() -> None:
    assert month_of(DECEMBER - 0.001) == "2026-11"
    assert month_of(DECEMBER) == "2026-12"


@given(st.lists(st.tuples(st.integers(0, 10**9), st.booleans(), st.booleans()), max_size=30))
def test_every_byte_is_counted_once(steps: list[tuple[int, bool, bool]]) -> None:
    """Whether the interface is made again or the daemon is killed (and begins with what was saved last)."""
    usage, counter, carried = Usage("boot"), 0, 0
    usage.count("wwan0", counter, NOVEMBER)
    saved = usage.document()
    for size, again, killed in steps:
        if again:
            # What a counter showed before it began anew and nobody read is lost for everybody.
            counter = 0
        if killed:
            usage = Usage("boot", saved)
        counter += size
        carried += size
        before = usage.document()["counters"]["wwan0"]
        # A counter that began anew and has passed the old one in one step can't be told from one that went on.
        if again and counter >= before:
            carried -= min(before, counter)
        usage.count("wwan0", counter, NOVEMBER)
        saved = usage.document()
    assert usage.used_bytes("wwan0", NOVEMBER) == carried


def test_what_was_carried_while_nobody_looked_counts_and_another_boot_begins_at_zero() -> None:
    usage = Usage("first")
    usage.count("wwan0", 1000, NOVEMBER)
    assert usage.used_bytes("wwan0", NOVEMBER) == 0, "what it carried before we came"
    usage.count("wwan0", 1500, NOVEMBER)
    same = Usage("first", usage.document())
    same.count("wwan0", 2500, NOVEMBER)
    assert same.used_bytes("wwan0", NOVEMBER) == 1500
    other = Usage("second", usage.document())
    other.count("wwan0", 2500, NOVEMBER)
    assert other.used_bytes("wwan0", NOVEMBER) == 3000
    other.count("wwan0", 2600, DECEMBER)
    assert other.used_bytes("wwan0", DECEMBER) == 100


def test_files_are_saved_each_minute_and_each_hundredth_of_a_cap(tmp_path: Path) -> None:
    file = UsageFile(tmp_path / "usage.json", "boot")
    cap = {"wwan0": 1.0}
    file.usage.count("wwan0", 0, NOVEMBER)
    file.usage.count("wwan0", 1, NOVEMBER)
    assert file.save_if_due(cap, 100.0)
    file.usage.count("wwan0", GIB // 200, NOVEMBER)
    assert not file.save_if_due(cap, 101.0)
    file.usage.count("wwan0", GIB // 50, NOVEMBER)
    assert file.save_if_due(cap, 102.0), "a hundredth of the cap"
    file.usage.count("wwan0", GIB // 50 + 1, NOVEMBER)
    assert not file.save_if_due(cap, 161.0)
    assert file.save_if_due(cap, 162.0), "a minute"
    again = UsageFile(tmp_path / "usage.json", "boot")
    assert again.usage.used_bytes("wwan0", NOVEMBER) == GIB // 50 + 1


def test_a_broken_file_is_put_aside_and_the_older_copy_counts(tmp_path: Path) -> None:
    path = tmp_path / "usage.json"
    file = UsageFile(path, "boot")
    for counter in (0, GIB, 2 * GIB):
        file.usage.count("wwan0", counter, NOVEMBER)
        file.save()
    path.write_text('{"checksum": "broken')
    again = UsageFile(path, "boot")
    assert again.content.broken
    again.usage.count("wwan0", 2 * GIB, NOVEMBER)
    assert again.usage.used_bytes("wwan0", NOVEMBER) == 2 * GIB, "the counter went on, so nothing is lost"


@given(st.lists(st.integers(0, 12_500_000), min_size=5, max_size=200), st.floats(0.05, 2.0))
def test_a_cap_is_never_exceeded(sizes: list[int], gib: float) -> None:
    """An interface that carries up to 100 Mb/s and is looked at each second stops before its cap."""
    usage, caps, counter = Usage("boot"), Caps(), 0
    usage.count("wwan0", 0, NOVEMBER)
    stopped = False
    for second, size in enumerate(sizes):
        counter += 0 if stopped else size
        usage.count("wwan0", counter, NOVEMBER + second)
        now_stopped = "wwan0" in caps.used_up(usage, {"wwan0": gib}, {"wwan0": 100.0}, NOVEMBER + second)
        assert now_stopped or not stopped, "it stays stopped"
        stopped = now_stopped
        assert usage.used_bytes("wwan0", NOVEMBER) <= gib * GIB


def test_a_new_month_or_a_higher_cap_lets_it_go_on() -> None:
    usage, caps = Usage("boot"), Caps()
    usage.count("wwan0", 0, NOVEMBER)
    usage.count("wwan0", GIB, NOVEMBER)
    assert caps.used_up(usage, {"wwan0": 1.0}, {}, NOVEMBER) == {"wwan0"}
    assert caps.used_up(usage, {"wwan0": 5.0}, {}, NOVEMBER + 1) == set()
    assert caps.used_up(usage, {"wwan0": 1.0}, {}, NOVEMBER + 2) == {"wwan0"}
    assert caps.used_up(usage, {"wwan0": 1.0}, {}, DECEMBER) == set()


POLICY: Policy = parse({"interfaces": {"1": {}, "2": {}, "3": {"metered": True, "cap_gib_month": 1}}}, "client.yaml")


def told(second: int, rates: dict[str, float], flows: list[dict[str, Any]]) -> dict[str, Any]:
    interfaces = [
        {"name": name, "up": True, "carrier": True, "usable": True, "rate_mbps": None, "queue_packets": 0,
         "sent_bytes": round(mbps * 125_000 * second), "received_bytes": 0} for name, mbps in rates.items()
    ]  # fmt: skip
    counted = [
        {**flow, "rule": "rest#2", "received_bytes": 0, "sent_bytes": round(flow["mbps"] * 125_000 * second)}
        for flow in flows
    ]
    return {"type": "status", "interfaces": interfaces, "flows": counted, "counters": {}}


def facts(usage: Usage, used_up: set[str]) -> Facts:
    return Facts(POLICY, Modes(), usage, used_up, NOVEMBER, {"1": "10.0.0.1"})


def test_the_status_has_rates_levels_and_clusters() -> None:
    """Capacities 3 and 10 Mb/s, flows a on 1, b on both, c on 2 with weights 1, 2, 1: Yap 2013, figure 4.5."""
    flows = [
        {"id": 1, "mbps": 3.0, "weight": 1.0, "interfaces": ["1"], "interface": "1", "queue_packets": 5},
        {"id": 2, "mbps": 6.667, "weight": 2.0, "interfaces": ["1", "2"], "interface": None, "queue_packets": 5},
        {"id": 3, "mbps": 3.333, "weight": 1.0, "interfaces": ["2"], "interface": "2", "queue_packets": 5},
    ]
    meter, rates = Meter(), {"1": 3.0, "2": 10.0}
    meter.add(told(1, rates, flows), 1.0)
    meter.add(told(2, rates, flows), 2.0)
    status = document(meter, facts(Usage("boot"), {"3"}))
    assert status["mode"] == "full-speed"
    assert status["interfaces"]["1"]["sent_mbps"] == pytest.approx(3.0)
    assert status["interfaces"]["1"]["at"] == "10.0.0.1"
    assert "the cap of 1 GiB is used up" in status["interfaces"]["3"]["problem"]
    assert [flow["name"] for flow in status["flows"]] == ["rest"] * 3
    assert status["flows"][1]["level_mbps"] == pytest.approx(3.333, rel=1e-3)
    assert [each["flows"] for each in status["clusters"]] == [[1], [2, 3]]
    assert status["clusters"][1]["level_mbps"] == pytest.approx(10 / 3, rel=1e-3)
    assert status["mptcp"] == []


def test_a_program_that_was_started_again_gives_no_negative_rate() -> None:
    meter = Meter()
    meter.add(told(100, {"1": 8.0}, []), 1.0)
    meter.add(told(1, {"1": 8.0}, []), 2.0)
    assert document(meter, facts(Usage("boot"), set()))["interfaces"]["1"]["sent_mbps"] == pytest.approx(8.0)


def test_a_status_of_a_thousand_flows_is_made_fast_enough_to_be_asked_for_each_second() -> None:
    flows = [
        {"id": number, "mbps": 0.1, "weight": 1.0 + number % 3, "interfaces": ["1", "2"][: 1 + number % 2],
         "interface": "1", "queue_packets": number % 2} for number in range(1000)
    ]  # fmt: skip
    meter = Meter()
    meter.add(told(1, {"1": 60.0, "2": 40.0}, flows), 1.0)
    meter.add(told(2, {"1": 60.0, "2": 40.0}, flows), 2.0)
    status = document(meter, facts(Usage("boot"), set()))
    assert len(status["flows"]) == 1000
    assert 0 < sum(len(each["flows"]) for each in status["clusters"]) <= 256
