"""A takeover in a quiet network sends nothing for what services keep either: bandits, copies, groups, slices."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from controller_process import eventually
from ha_lab import Instance
from not_made import needs_etcd

pytest.importorskip("mininet")
pytest.importorskip("etcd3gw")

from ha_rig import NOTHING, HaRig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[HaRig]:
    needs_etcd()
    found = HaRig(tmp_path)
    try:
        found.in_force(found.leader)
        yield found
    finally:
        found.close()


@pytest.mark.parametrize("policy", ["hymab", "auto"])
def test_a_bandit_waits_for_its_next_probe_as_it_would_have_done(rig: HaRig, policy: str) -> None:
    """Nobody reads busy times here, so probes fail, and come ever more seldom."""
    rig.warm()
    document = {"id": "learns", "from": "b1-3", "to": "b1-1", "policy": policy}
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
