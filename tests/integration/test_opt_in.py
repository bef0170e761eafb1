"""Users move their own traffic from production's controller to a slice's, and back, on a real Open vSwitch."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import ovs_rig
import pytest
from slicer_rig import SlicerRig, available

from hyroads.slices.core.model import token_hash

pytestmark = [pytest.mark.root, pytest.mark.skipif(not available(), reason="needs root and Open vSwitch")]

SLICES = [
    {"name": "production", "controllers": ["tcp:127.0.0.1:6701"]},
    {"name": "lab", "controllers": ["tcp:127.0.0.1:6702"], "opt_in": {}},
]
USERS = {
    name: {"token_sha256": token_hash(name), "addresses": [f"10.0.0.{i}"]}
    for i, name in enumerate(("ann", "bob", "eve"), 1)
}


@pytest.fixture
def rig() -> Iterator[SlicerRig]:
    with SlicerRig() as found:
        found.ryu("production", 6701)
        found.ryu("lab", 6702)
        found.settings(SLICES, users=USERS)
        found.slicer()
        found.switch(hosts=range(1, 5))
        assert ovs_rig.wait_until(lambda: found.log("slicer").count("connected") >= 2, 60), found.log("slicer")
        yield found


def test_users_bring_their_own_packets_and_take_them_back(rig: SlicerRig) -> None:
    assert ovs_rig.wait_until(lambda: rig.reaches(1, 2) and rig.reaches(3, 4), 20)
    before = sorted(rig.flows(0))
    for user in ("ann", "bob"):
        assert rig.ask("opt-in", "lab", "--user", user)["changed"] == ["lab"]
    # Production's controller is gone: only what is in the slice has a controller that learns.
    rig.stop("production")
    rig.ofctl("del-flows", "s1", f"table={production_table(rig)}")
    assert ovs_rig.wait_until(lambda: rig.reaches(1, 2), 20), "both ends are in the slice"
    assert not rig.reaches(3, 4)
    rig.stop("slicer", signal.SIGKILL)
    rig.slicer()
    assert ovs_rig.wait_until(lambda: rig.log("slicer").count("slice lab at") >= 2, 60), rig.log("slicer")
    assert {(row["slice"], row["user"]) for row in rig.ask("list-opt-ins")} == {("lab", "ann"), ("lab", "bob")}
    assert ovs_rig.wait_until(lambda: rig.reaches(2, 1), 20), "they are in it after a restart"
    for user in ("ann", "bob"):
        assert rig.ask("opt-out", "lab", "--user", user)["changed"] == ["lab"]
    assert sorted(rig.flows(0)) == before
    assert not rig.reaches(1, 2), "nobody forwards there now"


def production_table(rig: SlicerRig) -> int:
    """The first table of production's block."""
    tables: int = rig.ask("list-datapath-info", "1")["slices"]["production"]["tables"]["first"]
    return tables
