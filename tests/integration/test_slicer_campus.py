"""The campus of docs/how-to/campus.md: its files and commands, on a real switch with Ryu's learning
switches."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ovs_rig
import pytest
from slicer_rig import SlicerRig, available

from hyroads.slices.core.model import token_hash

pytestmark = [pytest.mark.root, pytest.mark.skipif(not available(), reason="needs root and Open vSwitch")]

CAMPUS = Path(__file__).resolve().parents[2] / "slices" / "examples" / "campus"
PORTS = {"uplink": 1, "ap1-staff": 5, "ap2-staff": 6, "ap1-research": 7, "ap2-research": 8}
SERVER, ANN, BOB, ONE, TWO = PORTS.values()
CONTROLLERS = {"production": 6653, "research": 6701, "web-of-ann": 6702, "next": 6703}
TOKEN = "the researcher's long and random token"
FETCH = "import urllib.request as u; print(u.urlopen('http://10.0.0.1/', timeout=3).status)"
LISTEN = "import socket; s = socket.socket(2, 2); s.bind(('', 5000)); s.settimeout(3); print(s.recv(9))"
SEND = "import socket; socket.socket(2, 2).sendto(b'experiment', ('10.0.0.{}', 5000))"


@pytest.fixture(scope="module")
def rig() -> Iterator[SlicerRig]:
    with SlicerRig() as found:
        for path in CAMPUS.iterdir():
            shutil.copy(path, found.folder)
        found.config = found.folder / "slicer.yaml"
        for name, port in CONTROLLERS.items():
            found.ryu(name, port)
        found.slicer()
        found.bridge("s1", 1, controlled=False)
        for name, number in PORTS.items():
            found.hosts[number] = found.host("s1", name, number, mac(number), f"10.0.0.{number}")
        found.vsctl("set-controller", "s1", "tcp:127.0.0.1:6633")
        words = ("ip", "netns", "exec", found.hosts[SERVER], sys.executable, "-m", "http.server", "80")
        server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")
        try:
            eventually(lambda: found.log("slicer").count("connected") >= 3, found)
            eventually(lambda: found.reaches(ANN, SERVER) and found.reaches(ONE, TWO), found)
            yield found
        finally:
            server.terminate()
            server.wait(10)


def mac(number: int) -> str:
    return f"02:00:00:00:00:{number:02x}"


def eventually(condition: Any, rig: SlicerRig) -> None:
    assert ovs_rig.wait_until(condition, 40), rig.log("slicer")


def run_at(rig: SlicerRig, host: int, program: str) -> subprocess.Popen[str]:
    words = ("ip", "netns", "exec", rig.hosts[host], sys.executable, "-c", program)
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def fetches(rig: SlicerRig, host: int) -> bool:
    return run_at(rig, host, FETCH).communicate(timeout=20)[0].strip() == "200"


def tables(rig: SlicerRig, name: str) -> range:
    block = rig.ask("list-slice-info", name)["switches"]["0x1"]["tables"]
    return range(block["first"], block["first"] + block["count"])


def test_production_and_the_researchers_ssid_are_networks_of_their_own(rig: SlicerRig) -> None:
    eventually(lambda: rig.reaches(ANN, BOB) and rig.reaches(BOB, SERVER) and rig.reaches(ONE, TWO), rig)
    for one, other in ((ANN, ONE), (TWO, SERVER), (ONE, BOB)):
        assert not rig.reaches(one, other)


def test_http_of_one_user_is_in_other_hands_than_the_rest_of_her_traffic(rig: SlicerRig) -> None:
    eventually(lambda: fetches(rig, ANN) and fetches(rig, BOB), rig)
    theirs = [line for table in tables(rig, "web-of-ann") for line in rig.flows(table)]
    assert any(mac(ANN) in line for line in theirs) and not any(mac(BOB) in line for line in theirs)
    assert rig.ask("update-slice", "web-of-ann", "--permission", "read")["changed"] == ["web-of-ann"]
    eventually(lambda: fetches(rig, ANN), rig)  # without write her HTTP is production's again
    assert rig.ask("update-slice", "web-of-ann", "--permission", "read", "--permission", "write")
    rig.stop("web-of-ann")
    for table in tables(rig, "web-of-ann"):
        rig.ofctl("del-flows", "s1", f"table={table}")
    assert not fetches(rig, ANN), "it stands and falls"
    eventually(lambda: fetches(rig, BOB) and rig.reaches(ANN, SERVER), rig)  # alone
    rig.ryu("web-of-ann", CONTROLLERS["web-of-ann"])
    eventually(lambda: fetches(rig, ANN), rig)


def test_the_researcher_gives_a_part_of_her_slice_to_a_student(rig: SlicerRig) -> None:
    assert rig.ask("update-slice", "research", "--owner-token-sha256", token_hash(TOKEN))["changed"] == ["research"]
    token = rig.folder / "research.token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    command = ("ip", "netns", "exec", rig.namespace, sys.executable, "-m", "hyroads.controller.cli", "slices",
               "--url", "http://127.0.0.1:8081", "--token-file", str(token), "--json")  # fmt: skip

    def owner(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run((*command, *words), check=False, capture_output=True, text=True, timeout=60)

    def done(*words: str) -> Any:
        answer = owner(*words)
        assert answer.returncode == 0, answer.stderr
        return json.loads(answer.stdout)

    rig.ryu("student", 6704)
    assert done("add-slice", "student", "--controller", "tcp:127.0.0.1:6704")["added"] == ["student"]
    places = ("--port", "ap1-research", "--port", "ap2-research")
    assert done("add-flowspace", "student", *places, "--match", "udp_dst=5000")["changed"] == ["student"]
    outside = owner("add-flowspace", "student", "--port", "uplink", "--match", "udp_dst=5000")
    assert outside.returncode == 2 and "port uplink are not in the flowspace of its parent research" in outside.stderr
    assert "may change controllers and lower limits" in owner("add-flowspace", "research", "--port", "uplink").stderr
    assert "web-of-ann is another's" in owner("remove-slice", "web-of-ann").stderr
    assert {row["name"]: row["rules"] for row in done("list-slices")}["web-of-ann"] == "-"
    eventually(lambda: rig.reaches(ONE, TWO), rig)  # ARP and the rest are the researcher's

    def heard() -> bool:
        with run_at(rig, TWO, LISTEN) as listener:
            for _ in range(3):
                run_at(rig, ONE, SEND.format(TWO)).wait(10)
            return "experim" in listener.communicate(timeout=20)[0]

    eventually(heard, rig)

    def was_asked() -> bool:
        counted = rig.ofctl("dump-flows", "s1", f"table={tables(rig, 'student')[0]}")
        return "n_packets=" in counted and "n_packets=0," not in counted

    # Open vSwitch counts what its cache forwards a moment later.
    eventually(was_asked, rig)
    assert rig.ask("remove-slice", "research")["removed"] == ["research", "student"]
    assert not [line for line in rig.flows(0) if "in_port=7" in line or "in_port=8" in line]
    assert rig.ask("reload")["added"] == ["research"]
    eventually(lambda: rig.reaches(ONE, TWO), rig)
    rig.stop("student")


def test_a_new_version_runs_beside_the_old_and_is_widened(rig: SlicerRig) -> None:
    def opt_in(name: str, number: int) -> None:
        for field in ("eth_src", "eth_dst"):
            what = ("--name", f"{name} {field}", "--priority", "90", "--match", f"{field}='{mac(number)}'")
            added = rig.ask("add-flowspace", "next", *what)
            assert added["changed"] == ["next"]

    def decides(slice_name: str, number: int) -> bool:
        rig.reaches(number, SERVER)
        return any(mac(number) in line for table in tables(rig, slice_name) for line in rig.flows(table))

    opt_in("bob", BOB)
    eventually(lambda: rig.reaches(BOB, SERVER) and decides("next", BOB), rig)
    eventually(lambda: rig.reaches(ANN, SERVER), rig)
    eventually(lambda: rig.reaches(BOB, ANN), rig)  # the two versions are one network
    assert decides("production", ANN), "who did not opt in stays where she is"
    for field in ("eth_src", "eth_dst"):
        assert rig.ask("remove-flowspace", "next", f"bob {field}")["changed"] == ["next"]
    eventually(lambda: rig.reaches(BOB, SERVER), rig)
    assert rig.ask("update-slice", "production", "--controller", "tcp:127.0.0.1:6703")["changed"] == ["production"]
    assert rig.ask("remove-slice", "next")["removed"] == ["next"], "in the end the new one is production's"
    rig.stop("production")
    eventually(lambda: rig.reaches(BOB, SERVER) and rig.reaches(ANN, BOB), rig)
    assert rig.stop("slicer") == 0 and "error of the slicer's own" not in rig.log("slicer")
