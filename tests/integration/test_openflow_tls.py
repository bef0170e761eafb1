"""Real Open vSwitch over TLS with certificates made here, under the real application; strangers and half-open peers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ovs_rig
import pytest

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not ovs_rig.available() or not shutil.which("openssl"), reason="needs root, OVS and openssl"),
]

ROOT = Path(__file__).resolve().parents[2]
OPENFLOW, AGENTS, REST = 6653, 6654, 8080
PROGRAM = "from hyroads.controller.framework.launcher import run_controller; raise SystemExit(run_controller())"
ASK = (
    f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{REST}/api/v1/health', timeout=5).read().decode())"
)
# Connections that say nothing, that say nonsense, and that stop in the middle of TLS.
STRANGERS = f"""
import os, socket, sys, time
kept = []
for number in range(200):
    try:
        peer = socket.create_connection(("127.0.0.1", {OPENFLOW}), 2)
        if number % 3:
            peer.sendall(os.urandom(300) if number % 3 == 1 else bytes.fromhex("1603010200010001fc0303"))
    except OSError:
        continue
    kept.append(peer)
print("ready", flush=True)
time.sleep(30)
"""


def openssl(folder: Path, *words: str) -> None:
    subprocess.run(("openssl", *words), cwd=folder, check=True, capture_output=True, timeout=30)


def certificates(folder: Path, authority: str, *names: str) -> None:
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl(
        folder,
        "req",
        "-x509",
        *key,
        "-subj",
        f"/CN={authority}",
        "-keyout",
        f"{authority}.key",
        "-out",
        f"{authority}.pem",
    )
    signer = ("-CA", f"{authority}.pem", "-CAkey", f"{authority}.key", "-CAcreateserial")
    for name in names:
        openssl(folder, "req", *key, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        # Both switches of the machine have one certificate: it names their datapath ids.
        dpids = f"DNS:{1:016x},DNS:{2:016x}," if name == "switches" else ""
        role = "controller" if name == "controller" else "node"
        (folder / "names").write_text(f"subjectAltName={dpids}URI:hyroads:role:{role}\n")
        signed = ("-days", "2", "-extfile", "names", "-out", f"{name}.pem")
        openssl(folder, "x509", "-req", "-in", f"{name}.csr", *signer, *signed)


class Lab:
    """Two switches of the three-node network; their agents are missing, so all flows are on the single path."""

    def __init__(self, rig: ovs_rig.Rig, folder: Path) -> None:
        self.rig, self.folder = rig, folder
        self.inside = ["ip", "netns", "exec", rig.namespace]

    def start(self) -> None:
        certificates(self.folder, "ca", "controller", "switches", "b")
        certificates(self.folder, "other", "stranger")
        document = {
            "network": str(ROOT / "mininet" / "networks" / "triangle.yaml"),
            "listen": {"openflow": {"host": "0.0.0.0", "port": OPENFLOW}, "rest": {"port": REST}},
            "tls": {"key": "controller.key", "certificate": "controller.pem", "ca": "ca.pem"},
        }
        settings = self.folder / "hyroads.json"
        settings.write_text(json.dumps(document))
        self.log = (self.folder / "controller.log").open("wb")
        self.controller = subprocess.Popen(
            [*self.inside, sys.executable, "-c", PROGRAM],
            env={**os.environ, "HYROADS_CONFIG": str(settings)},
            stdout=self.log,
            stderr=self.log,
        )
        for number, name in enumerate("ab", start=1):
            self.rig.bridge(name, number, controlled=False)

    def trust(self, name: str) -> None:
        """The switches' own certificate from now on."""
        self.rig.vsctl("set-ssl", *(str(self.folder / part) for part in (f"{name}.key", f"{name}.pem", "ca.pem")))

    def dial(self) -> None:
        for name in "ab":
            self.rig.vsctl("set-controller", name, f"ssl:127.0.0.1:{OPENFLOW}")
            self.rig.vsctl("set", "controller", name, "max_backoff=1000")

    def health(self) -> dict[str, Any]:
        done = subprocess.run([*self.inside, sys.executable, "-c", ASK], check=False, capture_output=True, timeout=20)
        return json.loads(done.stdout) if done.returncode == 0 else {"switches": [], "counters": {}}

    def connected(self) -> int:
        return sum(switch["connected"] and switch["synced"] for switch in self.health()["switches"])

    def stop(self) -> None:
        self.controller.send_signal(signal.SIGTERM)
        self.controller.wait(10)
        self.log.close()


def eventually(condition: Callable[[], bool], within_s: float = 20.0) -> bool:
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.2)
    return False


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with ovs_rig.Rig() as rig:
        lab = Lab(rig, tmp_path)
        lab.start()
        yield lab
        lab.stop()


def test_switches_over_tls(lab: Lab) -> None:
    assert eventually(lambda: lab.health()["switches"] != [], 60)
    lab.trust("stranger")
    lab.dial()
    assert eventually(lambda: lab.health()["counters"].get("malformed_openflow", 0) >= 2)
    assert lab.connected() == 0
    # One that is of switch b alone lets in no other.
    lab.trust("b")
    assert eventually(lambda: lab.connected() == 1)
    assert eventually(lambda: "not of switch 0000000000000001" in (lab.folder / "controller.log").read_text())
    assert [one["node"] for one in lab.health()["switches"] if one["connected"]] == ["b"]
    lab.trust("switches")
    assert eventually(lambda: lab.connected() == 2), (lab.folder / "controller.log").read_text()
    for name in "ab":
        assert len(lab.rig.ofctl("dump-flows", name).splitlines()) > 3
    strangers = subprocess.Popen([*lab.inside, sys.executable, "-c", STRANGERS], stdout=subprocess.PIPE)
    try:
        assert strangers.stdout is not None
        assert strangers.stdout.readline() == b"ready\n"
        assert lab.connected() == 2
        # A switch that dials while others fill the queue gets its turn: half-open connections have 5 s.
        lab.rig.vsctl("del-controller", "b")
        assert eventually(lambda: lab.connected() == 1)
        lab.dial()
        assert eventually(lambda: lab.connected() == 2)
    finally:
        strangers.kill()
        strangers.wait()
    assert lab.health()["counters"]["exceptions"] == 0
    assert "Traceback" not in (lab.folder / "controller.log").read_text()
