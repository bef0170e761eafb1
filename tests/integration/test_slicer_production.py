"""HyRoads' own controller is the production slice behind the slicer, beside a learning switch of somebody else."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import ovs_rig
import pytest
from slicer_rig import SlicerRig, available

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.netfile import load_text

pytestmark = [pytest.mark.root, pytest.mark.skipif(not available(), reason="needs root and Open vSwitch")]

RING = """
nodes:
  a: {role: gateway, agent: false}
  b: {role: ap, agent: false}
  c: {role: ap, agent: false}
  p: {role: client}
links:
  - {id: ab-plc, from: a, to: b, technology: plc, capacity_mbps: 10, both: true}
  - {id: bc-wifi, from: b, to: c, technology: wifi, capacity_mbps: 30, both: true}
  - {id: ca-plc, from: c, to: a, technology: plc, capacity_mbps: 5, both: true}
  - {id: cp-wifi, from: c, to: p, technology: wifi, capacity_mbps: 40, both: true}
interference:
  rule: technology
"""
PROGRAM = "from hyroads.controller.framework.launcher import run_controller; raise SystemExit(run_controller())"


@pytest.fixture(scope="module")
def rig() -> Iterator[SlicerRig]:
    with SlicerRig() as found:
        network = load_text(RING, "ring")
        addressing = Addressing.of(network)
        found.ips = dict(addressing.host_ip)
        found.nodes = found.build(network, addressing)
        for i in (1, 2):
            found.hosts[i] = found.host("a", f"red{i}", 200 + i, f"02:00:00:00:99:{i:02x}", f"10.0.9.{i}")
        (found.folder / "ring.yaml").write_text(RING)
        settings = found.folder / "hyroads.json"
        settings.write_text(json.dumps({"network": str(found.folder / "ring.yaml")}))
        found.start("controller", "env", f"HYROADS_CONFIG={settings}", sys.executable, "-c", PROGRAM)
        found.ryu("red", 6702)
        found.settings(
            [
                {"name": "production", "controllers": ["tcp:127.0.0.1:6653"], "limits": {"tables": 8}},
                {
                    "name": "red",
                    "controllers": ["tcp:127.0.0.1:6702"],
                    "flowspace": [{"switches": [1], "ports": ["red1", "red2"]}],
                },
            ]
        )
        found.slicer()
        for name in addressing.dpid:
            found.vsctl("set-controller", name, "tcp:127.0.0.1:6633")
            found.vsctl("set", "controller", name, "max_backoff=1000")
        assert ovs_rig.wait_until(lambda: found.log("slicer").count("connected") >= 4, 60), found.log("slicer")
        yield found


def test_production_forwards_over_several_hops_beside_a_guest(rig: SlicerRig) -> None:
    pairs = [(one, other) for one in "abcp" for other in "abcp" if one != other]
    for one, other in pairs:
        reached = ovs_rig.wait_until(lambda o=one, t=other: rig.ping(rig.nodes[o], rig.ips[t], "-c", "2") > 0, 20)
        assert reached, (one, other, rig.log("slicer"), rig.log("controller"))
    assert ovs_rig.wait_until(lambda: rig.ping(rig.hosts[1], "10.0.9.2", "-c", "2") > 0, 20)
    for host in rig.hosts.values():
        assert not rig.ping(host, rig.ips["a"], "-c", "2") and not rig.ping(host, rig.ips["p"], "-c", "2")
    assert not rig.ping(rig.nodes["a"], "10.0.9.1", "-c", "2")
    assert "refused" not in rig.log("slicer")


def test_the_controller_finds_its_rules_again(rig: SlicerRig) -> None:
    """Read back through the slicer, they are what it wrote: a restart changes nothing."""
    before = sorted(line for name in "abc" for line in rig.flows(name=name))
    assert len([line for line in before if "encap" in line]) > 5
    rig.stop("controller")
    assert rig.ping(rig.nodes["a"], rig.ips["c"], "-c", "10") == 1.0
    connected = rig.log("slicer").count("slice production")
    settings = rig.folder / "hyroads.json"
    rig.start("controller", "env", f"HYROADS_CONFIG={settings}", sys.executable, "-c", PROGRAM)
    assert ovs_rig.wait_until(lambda: rig.log("slicer").count("slice production") >= connected + 3, 40)
    assert rig.ping(rig.nodes["a"], rig.ips["c"], "-c", "40") == 1.0
    assert sorted(line for name in "abc" for line in rig.flows(name=name)) == before
