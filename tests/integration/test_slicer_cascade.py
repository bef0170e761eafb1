"""A slicer behind a slicer, TLS on every way; and discovery of links by guests that share a cable."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import ovs_rig
import pytest
from slicer_rig import SlicerRig, available

pytestmark = [pytest.mark.root, pytest.mark.skipif(not available(), reason="needs root and Open vSwitch")]

SLICER = (sys.executable, "-m", "hyroads.controller.cli", "slicer", "--config")


def certificates(folder: Path, *names: str) -> None:
    """An authority and certificates of it for this machine's loopback address."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    signer = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2")
    roles = {"switch": "node"}
    commands = [("req", "-x509", *key, "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem")]
    for name in names:
        role = roles.get(name, "slicer")
        (folder / f"{name}.san").write_text(f"subjectAltName=IP:127.0.0.1,DNS:{1:016x},URI:hyroads:role:{role}\n")
        commands += [
            ("req", *key, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr"),
            ("x509", "-req", "-in", f"{name}.csr", *signer, "-extfile", f"{name}.san", "-out", f"{name}.pem"),
        ]
    for words in commands:
        subprocess.run(("openssl", *words), cwd=folder, check=True, capture_output=True, timeout=30)


def test_a_slice_is_sliced_again_over_tls() -> None:
    """The campus has ports 1 to 4 and gives two of them to each of its own slices."""
    with SlicerRig() as rig:
        certificates(rig.folder, "outer", "inner", "switch")
        rig.settings(
            [
                {
                    "name": "campus",
                    "controllers": ["tls:127.0.0.1:6634"],
                    "flowspace": [{"ports": ["p1", "p2", "p3", "p4"]}],
                    "limits": {"tables": 32},
                },
                {"name": "production", "controllers": ["tcp:127.0.0.1:6703"]},
            ],
            tls={"key": "outer.key", "certificate": "outer.pem", "ca": "ca.pem"},
            controllers_tls={"key": "outer.key", "certificate": "outer.pem", "ca": "ca.pem"},
        )
        inner = {
            "slices": [
                {"name": "red", "controllers": ["tcp:127.0.0.1:6701"], "flowspace": [{"ports": ["p1", "p2"]}]},
                {"name": "blue", "controllers": ["tcp:127.0.0.1:6702"], "flowspace": [{"ports": ["p3", "p4"]}]},
            ],
            "listen": {"openflow": {"port": 6634}},
            "tls": {"key": "inner.key", "certificate": "inner.pem", "ca": "ca.pem"},
            # The outer slicer speaks for all of its switches.
            "any_switch": ["outer"],
            "tables": 32,
            "metadata_bits": 48,
        }
        (rig.folder / "inner.json").write_text(json.dumps(inner))
        for name, port in (("red", 6701), ("blue", 6702), ("production", 6703)):
            rig.ryu(name, port)
        rig.slicer()
        rig.start("inner", *SLICER, str(rig.folder / "inner.json"))
        rig.switch()
        rig.vsctl("set-ssl", *(str(rig.folder / part) for part in ("switch.key", "switch.pem", "ca.pem")))
        rig.vsctl("set-controller", "s1", "ssl:127.0.0.1:6633")
        for one, other in ((1, 2), (3, 4), (5, 6)):
            reached = ovs_rig.wait_until(lambda o=one, t=other: rig.reaches(o, t), 40)
            assert reached, (one, other, rig.log("slicer"), rig.log("inner"))
        for one, other in ((1, 3), (2, 4), (1, 5), (6, 3)):
            assert not rig.reaches(one, other)
        before = sorted(rig.flows())
        rig.stop("inner")
        assert rig.ping(rig.hosts[1], "10.0.0.2", "-c", "10") == 1.0
        rig.start("inner", *SLICER, str(rig.folder / "inner.json"))
        assert ovs_rig.wait_until(lambda: rig.log("inner").count("slice blue at") >= 2, 40), rig.log("inner")
        assert sorted(rig.flows()) == before, "it finds what it had left"


def test_guests_that_share_a_cable_discover_it_each_for_itself() -> None:
    """Ryu's own topology application in two slices, told apart on the cable by VLAN; LLDP has none.

    They find it again when the slicer has begun again, and when a switch has.
    """
    with SlicerRig() as rig:
        rig.settings(red_and_blue(rig))
        rig.slicer()
        wire_two_switches(rig)
        check_links(rig)
        rig.stop("slicer")
        assert ovs_rig.wait_until(lambda: not links(rig, 6701) and not links(rig, 6702), 40)
        rig.slicer()
        check_links(rig)
        rig.vsctl("del-controller", "s2")
        assert ovs_rig.wait_until(lambda: not links(rig, 6701) and not links(rig, 6702), 40)
        rig.vsctl("set-controller", "s2", "tcp:127.0.0.1:6633")
        check_links(rig)


def test_guests_of_a_slicer_behind_a_slicer_discover_a_cable() -> None:
    """What the inner slicer marks is a discovery frame of its slice to the outer one, which marks it once more."""
    with SlicerRig() as rig:
        inner = {
            "slices": red_and_blue(rig),
            "listen": {"openflow": {"port": 6634}},
            "tables": 32,
            "metadata_bits": 48,
        }
        (rig.folder / "inner.json").write_text(json.dumps(inner))
        campus = {"name": "campus", "flowspace": [{"ports": ["c1", "c2"]}], "limits": {"tables": 32}}
        rig.settings([{**campus, "controllers": ["tcp:127.0.0.1:6634"]}])
        rig.slicer()
        rig.start("inner", *SLICER, str(rig.folder / "inner.json"))
        wire_two_switches(rig)
        check_links(rig)


def red_and_blue(rig: SlicerRig) -> list[dict[str, object]]:
    """Two slices with Ryu's topology application each, on the cable by VLAN."""
    slices: list[dict[str, object]] = []
    for name, port, vlan in (("red", 6701, 100), ("blue", 6702, 200)):
        rig.ryu(name, port, "ryu.app.rest_topology", "--observe-links")
        flowspace = [{"ports": ["c1", "c2"], "match": {"vlan_vid": vlan}}]
        slices.append({"name": name, "controllers": [f"tcp:127.0.0.1:{port}"], "flowspace": flowspace})
    return slices


def wire_two_switches(rig: SlicerRig) -> None:
    for number in (1, 2):
        rig.bridge(f"s{number}", number, controlled=False)
    rig.wire_ports("s1", "c1", 11, "s2", "c2", 12)
    for number in (1, 2):
        rig.vsctl("set-controller", f"s{number}", "tcp:127.0.0.1:6633")


def check_links(rig: SlicerRig) -> None:
    """Both slices know the cable in both directions, and nothing else."""
    for port in (6701, 6702):
        found = ovs_rig.wait_until(lambda p=port: len(links(rig, p)) == 2, 40)
        assert found, (port, links(rig, port), rig.log("slicer"))
        ends = {(link["src"]["dpid"][-1], link["dst"]["name"]) for link in links(rig, port)}
        assert ends == {("1", "c2"), ("2", "c1")}


def links(rig: SlicerRig, port: int) -> list[dict[str, dict[str, str]]]:
    address = f"http://127.0.0.1:{port + 2000}/v1.0/topology/links"
    program = f"import urllib.request as u; print(u.urlopen('{address}', timeout=5).read().decode())"
    words = ("ip", "netns", "exec", rig.namespace, sys.executable, "-c", program)
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=20)
    return json.loads(done.stdout) if done.returncode == 0 else []
