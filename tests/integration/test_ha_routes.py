"""A takeover in a quiet network sends nothing, wherever flows go and came from: history included."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from controller_process import eventually

pytest.importorskip("mininet")
pytest.importorskip("etcd3gw")

from ha_rig import NOTHING, QUIET_S, HaRig, ha_rig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[HaRig]:
    with ha_rig(tmp_path) as found:
        yield found


def test_who_was_started_later_goes_on_where_flows_went_after_links_were_cut_and_came_back(rig: HaRig) -> None:
    first = rig.paths(rig.leader)
    for link in ("b1-1-b1-5-plc", "b1-8-b1-1-plc"):
        rig.devices.ask("cut", link=link)
        eventually(lambda link=link: link not in str(rig.paths(rig.leader)))
        rig.devices.ask("cut", link=link, up=True)
        time.sleep(QUIET_S / 2)
    rig.in_force(rig.leader)
    now = rig.ways(rig.leader)
    # Flows stay where they are, though a new plan would have them where they were.
    assert rig.paths(rig.leader) != first
    rig.warm()
    assert rig.paths(rig.standby) == rig.paths(rig.leader)
    assert rig.taken_over() == NOTHING
    after = rig.ways(rig.standby)
    assert after == now
    assert all(rate > 0 for _, rate in after.values())


def test_weights_and_flows_that_were_changed_under_a_standby_cost_nothing(rig: HaRig) -> None:
    rig.warm()
    declared = {"id": "heavy", "from": "b1-3", "to": "b1-1", "weight": 7.0}
    assert rig.leader.answer("POST", "/flows?wait=false", declared)[0] == 202
    rig.leader.answer("DELETE", "/flows/f0?wait=false")
    eventually(lambda: "f0" not in rig.leader.flows() and "heavy" in rig.standby.flows())
    rig.leader.answer("DELETE", "/flows/heavy?wait=false")
    eventually(lambda: "heavy" not in rig.standby.flows())
    assert rig.leader.answer("POST", "/flows?wait=false", {**declared, "weight": 0.25})[0] == 202
    eventually(lambda: "heavy" in rig.standby.flows())
    reserved = {"id": "r", "flow": "f2", "rate_mbps": 0.5}
    assert rig.leader.answer("POST", "/reservations", reserved)[0] in (200, 201, 202)
    rig.in_force(rig.leader)
    now, granted = rig.ways(rig.leader), rig.leader.rest("GET", "/reservations")[1]["reservations"]
    assert rig.ways(rig.standby).keys() == now.keys() and len(granted) == 1
    assert rig.taken_over() == NOTHING
    assert rig.ways(rig.standby) == now
    assert rig.standby.rest("GET", "/reservations")[1]["reservations"] == granted
