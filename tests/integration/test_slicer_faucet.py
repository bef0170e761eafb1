"""Faucet is a guest beside two learning switches.

Faucet needs versions of its own, so it is looked for in ``$HYROADS_FAUCET``, the ``bin`` folder of a virtual
environment with it (``python -m venv E; E/bin/pip install faucet; export HYROADS_FAUCET=E/bin``).
"""

from __future__ import annotations

import os
from pathlib import Path

import ovs_rig
import pytest
from slicer_rig import SlicerRig, available

FAUCET = Path(os.environ.get("HYROADS_FAUCET", "nowhere"))
pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not available() or not (FAUCET / "faucet").exists(), reason="needs root, OVS and Faucet"),
]

NETWORK = """
vlans: {office: {vid: 100}}
dps:
  s1:
    dp_id: 1
    hardware: "Open vSwitch"
    interfaces:
      5: {native_vlan: office}
      6: {native_vlan: office}
"""


def test_faucet_and_two_learning_switches_share_a_switch() -> None:
    with SlicerRig() as rig:
        (rig.folder / "faucet.yaml").write_text(NETWORK)
        files = {"FAUCET_CONFIG": "faucet.yaml", "FAUCET_LOG": "faucet.txt", "FAUCET_EXCEPTION_LOG": "faucet.exc"}
        settings = [f"{name}={rig.folder / file}" for name, file in files.items()]
        settings += ["PYTHONPATH=", f"PATH={FAUCET}:/usr/bin:/bin"]
        rig.start("faucet", "env", *settings, str(FAUCET / "faucet"), "--ryu-ofp-tcp-listen-port=6703")
        rig.ryu("red", 6701)
        rig.ryu("blue", 6702)
        rig.settings(
            [
                {"name": "red", "controllers": ["tcp:127.0.0.1:6701"], "flowspace": [{"ports": ["p1", "p2"]}]},
                {"name": "blue", "controllers": ["tcp:127.0.0.1:6702"], "flowspace": [{"ports": ["p3", "p4"]}]},
                {"name": "faucet", "controllers": ["tcp:127.0.0.1:6703"], "flowspace": [{"ports": ["p5", "p6"]}]},
            ]
        )
        rig.slicer()
        rig.switch()
        for one, other in ((5, 6), (1, 2), (3, 4)):
            assert ovs_rig.wait_until(lambda o=one, t=other: rig.reaches(o, t), 40), rig.log("faucet")
        for one, other in ((5, 1), (1, 3), (4, 6)):
            assert not rig.reaches(one, other)
        assert any("push_vlan" in line and "goto_table" in line for line in rig.flows()), "its pipeline of tables"
        assert not (rig.folder / "faucet.exc").read_text()
        rig.stop("faucet")
        assert rig.reaches(5, 6) and rig.reaches(1, 2)
