"""A plain station goes from one emulated access point to another: nothing tells of it but what it sends."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from network_names import network_name

NAME = network_name("roam")
INSIDE = ("ip", "netns", "exec")
NETWORK = """
nodes:
  a: {role: gateway}
  b: {role: ap}
  c: {role: ap}
  p: {role: client}
links:
  - {id: ab, from: a, to: b, technology: plc, capacity_mbps: 50, both: true}
  - {id: ac, from: a, to: c, technology: plc, capacity_mbps: 50, both: true}
  - {id: bp, from: b, to: p, technology: wifi, capacity_mbps: 30, both: true}
  - {id: cp, from: c, to: p, technology: wifi, capacity_mbps: 20, both: true}
interference: {rule: technology}
"""


@pytest.fixture
def network(tmp_path: Path) -> Iterator[None]:
    path = tmp_path / "roaming.yaml"
    path.write_text(NETWORK)
    command = [sys.executable, "-m", "hyroads.controller.cli", "emulate", str(path), "--name", NAME, "--publish", "0"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            assert "runs" in running.stdout.readline()
            yield
        finally:
            running.terminate()


def roam(to: str) -> None:
    """The station sends everything to another access point."""
    with socket.socket(socket.AF_UNIX) as medium:
        medium.connect(f"/run/hyroads/{NAME}/medium.sock")
        medium.sendall(json.dumps({"op": "uplink", "port": "p-wifi", "to": to}).encode() + b"\n")
        assert json.loads(medium.recv(4096))["ok"]


def sent_frames() -> int:
    """What the station has sent since it began."""
    command = [*INSIDE, f"hr-{NAME}-p", "cat", "/proc/net/dev"]
    lines = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.splitlines()[2:]
    return sum(int(line.split(":")[1].split()[9]) for line in lines)


def until_silent(silent_s: float, within_s: float = 30.0) -> None:
    """Until the station has sent nothing for so long: its kernel still asks for addresses seconds after the traffic."""
    began_s = since_s = time.monotonic()
    sent = sent_frames()
    while time.monotonic() - since_s < silent_s:
        assert time.monotonic() - began_s < within_s, "the station does not fall silent"
        time.sleep(0.2)
        if (now := sent_frames()) != sent:
            sent, since_s = now, time.monotonic()


def pings(count: int) -> list[int]:
    """Numbers of the pings from the station to the gateway's host that were answered, 0.2 s apart."""
    command = [*INSIDE, f"hr-{NAME}-p", "ping", "-n", "-c", str(count), "-i", "0.2", "-W", "1", "10.0.0.1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return [int(part.split()[0]) for part in done.stdout.split("icmp_seq=")[1:]]


def test_a_station_is_followed_by_what_it_sends(network):
    assert len(pings(5)) >= 4
    for access_point in ("c", "b"):
        # Whoever was heard elsewhere in the last 3 s is taken for somebody else; what is heard is read each second.
        until_silent(4.5)
        roam(f"{access_point}-wifi")
        answered = pings(25)
        # Heard, placed, planned: well within two seconds; from then on nothing is lost.
        assert answered
        assert answered[0] <= 10
        assert len(answered) >= 25 - answered[0]
