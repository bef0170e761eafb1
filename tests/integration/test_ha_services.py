"""A takeover in a quiet network sends nothing for what services keep either: bandits, copies, groups, slices."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from controller_process import eventually
from ha_lab import Instance

pytest.importorskip("mininet")
pytest.importorskip("etcd3gw")

from ha_rig import NOTHING, HaRig, ha_rig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[HaRig]:
    with ha_rig(tmp_path) as found:
        yield found


SERVICES = ("ncasts", "sessions", "reservations", "handovers", "access-rules")
SHARES = {"research": {"wifi": 0.2, "plc": 0.2}, "guests": {"wifi": 0.1}}


def kept(one: Instance) -> dict[str, Any]:
    """What it says of all that services keep."""
    return {name: one.rest("GET", f"/{name}")[1][name.replace("-", "_")] for name in SERVICES}


def asked(one: Instance, path: str, document: dict[str, Any]) -> None:
    status, _, said = one.answer("POST", path, document)
    assert status in (200, 201, 202), said


def test_copies_groups_reservations_and_slices_cost_nothing(tmp_path: Path) -> None:
    with ha_rig(tmp_path, slices=SHARES) as rig:
        rig.warm()
        for name, ends in {"research": ("b1-3", "b1-1"), "guests": ("b1-7", "b1-1")}.items():
            asked(rig.leader, "/flows?wait=false", {"id": name, "from": ends[0], "to": ends[1], "slice": name})
        members = ["b1-1", "b1-2", "b1-4", "b2-1"]
        asked(rig.leader, "/sessions", {"id": "video", "group": "239.1.2.3", "participants": members})
        asked(rig.leader, "/ncasts", {"flow": "f1", "copies": 2})
        asked(rig.leader, "/reservations", {"id": "r", "flow": "f2", "rate_mbps": 0.5})
        asked(
            rig.leader,
            "/access-rules",
            {"id": "no-mail", "action": "deny", "match": {"eth_type": 0x0800, "tcp_dst": 25}},
        )
        rig.in_force(rig.leader)
        now, ways = kept(rig.leader), rig.ways(rig.leader)
        assert [len(now[name]) for name in SERVICES] == [1, 1, 1, 0, 1] and now["ncasts"][0]["phase"] == "copying"
        assert kept(rig.standby) == now
        # Agents here do not tell what has arrived. So the receiver of copies still waits for what was under way when
        # they began, and the next leader wants the same of it.
        assert rig.taken_over() == NOTHING
        assert kept(rig.standby) == now and rig.ways(rig.standby) == ways
        # And it can end what another one has begun.
        assert rig.standby.answer("DELETE", "/ncasts/f1")[0] in (202, 204)
        assert rig.standby.answer("DELETE", "/sessions/video")[0] in (202, 204)
        rig.in_force(rig.standby)
        assert [len(each) for each in kept(rig.standby).values()] == [0, 0, 1, 0, 1]


@pytest.fixture
def rig_without_arrivals(tmp_path: Path) -> Iterator[HaRig]:
    with ha_rig(tmp_path, arrivals=False) as found:
        yield found


def test_a_bandit_waits_for_its_next_probe_as_it_would_have_done(rig_without_arrivals: HaRig) -> None:
    """Neither busy times nor arrivals are reported here, so probes fail, and come ever more seldom."""
    rig = rig_without_arrivals
    rig.warm()
    document = {"id": "learns", "from": "b1-3", "to": "b1-1", "policy": "hymab"}
    assert rig.leader.answer("POST", "/flows?wait=false", document)[0] == 202
    for _ in range(3):
        eventually(lambda: bandit(rig.leader)["probing"] is not None)
        eventually(lambda: bandit(rig.leader)["probing"] is None)
    # Rates of before the probe are in force again.
    time.sleep(1.0)
    before, now = bandit(rig.leader), rig.ways(rig.leader)
    assert rig.taken_over() == NOTHING
    assert bandit(rig.standby) == before and rig.ways(rig.standby) == now


def bandit(one: Instance) -> dict[str, Any]:
    """What it says of the flow; without what counts time."""
    said = one.rest("GET", "/flows/learns")[1]["bandit"]
    return {"probing": None} if said is None else {name: each for name, each in said.items() if name != "trials"}
