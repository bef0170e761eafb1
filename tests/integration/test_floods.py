"""A flood of new addresses at one port harms that port alone: real frames, real Open vSwitch, the real controller."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

if os.geteuid() != 0 or shutil.which("ovs-vswitchd") is None:
    pytest.skip("needs root and Open vSwitch", allow_module_level=True)

import flood
from client_lab import ClientLab, eventually, mesh
from host_frames import arp

from hyroads.controller.ofp.access import PORT_METER_FIRST, PORT_METERS

pytestmark = [pytest.mark.root, pytest.mark.alone]
NETWORK = mesh(3).replace(
    "links:\n",
    "  p: {role: client}\nlinks:\n  - {id: n0-p, from: n0, to: p, technology: wifi, capacity_mbps: 50, both: true}\n",
)
SECONDS = 8.0
_NUMBERS = count(1)


@pytest.fixture(scope="module")
def lab() -> Iterator[ClientLab]:
    with ClientLab(NETWORK) as lab:
        yield lab


def events(lab: ClientLab, kind: str) -> list[dict[str, Any]]:
    text = lab.text_of(f"/api/v1/events?follow=false&kinds={kind}")
    return [json.loads(line[5:]) for line in text.splitlines() if line.startswith("data:")]


def learned(lab: ClientLab) -> list[str]:
    return [client["id"] for client in lab.rest("GET", "/clients?limit=1000")[1]["clients"]]


def missed(lab: ClientLab) -> int:
    found = re.search(r"^hyroads_slots_missed_total(?:\{[^}]*\})? ([0-9.e+]+)$", lab.metrics(), re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


def learned_after_s(lab: ClientLab, node: str) -> float:
    """How long until the first frame of a new host has come out elsewhere."""
    number = next(_NUMBERS)
    mac, mark = f"02:aa:00:01:{number >> 8:02x}:{number & 255:02x}", b"new host %d" % number
    other = "n2" if node != "n2" else "n1"
    for _ in lab.received(other):
        pass
    sent_s = time.monotonic()
    lab.send(node, mac, payload=mark)
    assert lab.came(other, mark, 5.0), f"a new host at {node} was not learned"
    return time.monotonic() - sent_s


def claimed_after_s(lab: ClientLab) -> float:
    """How long until the first claim of a station at the flooded switch has come out elsewhere."""
    number = next(_NUMBERS)
    mac = lab.addressing.host_mac["p"]
    said = arp(mac, f"10.7.{number >> 8}.{number & 255}")
    sent_s = time.monotonic()
    lab.send("p", mac, **said)
    assert lab.came("n2", said["payload"], 5.0), "a claim of a station was not looked at"
    return time.monotonic() - sent_s


def begun(lab: ClientLab, rate: int, kind: str, seconds: float = SECONDS) -> subprocess.Popen[str]:
    command = [sys.executable, str(Path(flood.__file__)), "eth0", str(rate), str(seconds), kind]
    words = ["ip", "netns", "exec", lab.hosts["n0"], *command]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("rate", "kind"), [(1000, "macs"), (20_000, "macs"), (1000, "claims")])
def test_a_flood_harms_its_own_port_alone(lab: ClientLab, rate: int, kind: str) -> None:
    for node in ("n0", "n1", "n2"):
        learned_after_s(lab, node)
    known = len(learned(lab))
    if kind == "claims":
        lab.send("n0", flood.MAC.hex(":"))
    before, floods, ends = missed(lab), len(events(lab, "port.flood")), len(events(lab, "port.flood_ended"))
    pings = subprocess.Popen(
        ["ip", "netns", "exec", lab.hosts["n1"], "ping", "-q", "-i", "0.05", "-c", str(int(SECONDS * 20)),
         lab.addressing.host_ip["n2"]], stdout=subprocess.PIPE, text=True)  # fmt: skip
    flooding = begun(lab, rate, kind)
    try:
        time.sleep(0.3)
        took_s = [learned_after_s(lab, node) for _ in range(10) for node in ("n1", "n2")]
        took_s += [claimed_after_s(lab) for _ in range(5)]
        eventually(lambda: len(events(lab, "port.flood")) > floods)
        assert events(lab, "port.flood")[-1]["place"] == {"node": "n0", "technology": "host"}
    finally:
        sent = int(flooding.communicate()[0])
    print(f"{kind}: {sent / SECONDS:.0f} frames/s; new hosts elsewhere: worst {max(took_s):.3f} s,"
          f" median {sorted(took_s)[len(took_s) // 2]:.3f} s; slots missed {missed(lab) - before}")  # fmt: skip
    assert sent > 0.5 * rate * SECONDS, "the flood was none"
    assert sorted(took_s)[len(took_s) // 2] < 0.2
    said = pings.communicate()[0]
    print(said.splitlines()[-2])
    assert " 0% packet loss" in said, said
    # It is over, and said; hosts at that port are learned again, and of the flood only what came before it was noticed.
    eventually(lambda: len(events(lab, "port.flood_ended")) > ends, 15)
    assert events(lab, "port.flood_ended")[-1]["dropped_frames"] > 0
    assert learned_after_s(lab, "n0") < 5.0
    assert len(learned(lab)) - known < 200


def test_a_new_controller_leaves_the_meters_of_ports_as_they_are(lab: ClientLab) -> None:
    def meters() -> dict[str, float]:
        text = lab.ofctl("meter-stats", "n0")
        return {number: float(age_s) for number, age_s in re.findall(r"meter:(\d+) .*?duration:([0-9.]+)s", text)}

    before = meters()
    assert len(before) >= 2, "one of the access port, and one of the station's"

    def rates() -> list[str]:
        found = re.findall(r"^meter=\d+ .*\n.*", lab.ofctl("dump-meters", "n0"), re.MULTILINE)
        assert len(found) >= 2
        return sorted(found)

    rates_before = rates()
    lab.stop_controller()
    stopped_s = time.monotonic()
    lab.start_controller()
    time.sleep(1.0)
    past_s, after = time.monotonic() - stopped_s, meters()
    assert rates() == rates_before
    own = [number for number in before if PORT_METER_FIRST <= int(number) < PORT_METER_FIRST + PORT_METERS]
    assert len(own) == 2 and all(after[number] > past_s for number in own)
