"""A connection of the kernel's MPTCP, between hosts that know nothing of the network: its subflows are recognised, and
routed apart.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hyroads.controller.core.netfile import load_text
from hyroads.mininet.emulation import Emulation, EmulationOptions
from hyroads.mininet.runner import RunOptions, run_network

if not Path("/proc/sys/net/mptcp/enabled").exists():
    pytest.skip("this kernel has no MPTCP", allow_module_level=True)

MBPS = 10.0
NETWORK = """
nodes:
  s: {role: gateway}
  a: {role: ap}
  b: {role: ap}
  t: {role: client, agent: true}
links:
  - {id: sa, from: s, to: a, technology: eth-1, capacity_mbps: 40, both: true}
  - {id: sb, from: s, to: b, technology: eth-2, capacity_mbps: 40, both: true}
  - {id: at, from: a, to: t, technology: wifi, capacity_mbps: 10, both: true}
  - {id: bt, from: b, to: t, technology: plc, capacity_mbps: 10, both: true}
interference: {rule: technology}
"""
SECOND = "10.0.77.77"
SERVER = """
import socket, sys, time
listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
listener.bind(("0.0.0.0", 5001)); listener.listen(1); print("ready", flush=True)
connection, _ = listener.accept()
total, next_s = 0, time.monotonic() + 0.1
while data := connection.recv(1 << 16):
    total += len(data)
    if time.monotonic() >= next_s:
        print(total, flush=True); next_s += 0.1
"""
CLIENT = """
import socket, sys, time
sender = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
sender.connect((sys.argv[1], 5001)); over_s = time.monotonic() + float(sys.argv[2])
while time.monotonic() < over_s:
    sender.send(b"x" * 65536)
"""
SECONDS, CUT_S = 12.0, 8.0


def until(what: Callable[[], Any], within_s: float = 10.0) -> Any:
    over_s = time.monotonic() + within_s
    while not (value := what()) and time.monotonic() < over_s:
        time.sleep(0.05)
    return value


def start(emulation: Emulation, node: str, program: str, *arguments: str) -> subprocess.Popen[str]:
    command = [*emulation.inside(node), sys.executable, "-c", program, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def prepare(emulation: Emulation) -> None:
    """The client has a second address, over which its kernel adds a subflow."""

    def ip(node: str, *words: str) -> str:
        return subprocess.run(
            [*emulation.inside(node), "ip", *words], check=True, capture_output=True, text=True
        ).stdout

    [device] = {row["dev"] for row in json.loads(ip("t", "-j", "route", "get", emulation.addressing.host_ip["s"]))}
    ip("t", "addr", "add", f"{SECOND}/16", "dev", device)
    for node in ("s", "t"):
        ip(node, "mptcp", "limits", "set", "subflow", "2", "add_addr_accepted", "2")
    ip("t", "mptcp", "endpoint", "add", SECOND, "dev", device, "subflow")


def body(emulation: Emulation) -> dict[str, Any]:
    rest = emulation.rest
    until(lambda: all(switch["syn_copies"] == "on" for switch in rest.health()["switches"]))
    prepare(emulation)
    server = start(emulation, "s", SERVER)
    assert server.stdout is not None and server.stdout.readline() == "ready\n"
    client = start(emulation, "t", CLIENT, emulation.addressing.host_ip["s"], str(SECONDS))
    began_s = time.monotonic()
    flows = lambda: list(rest.flows())  # noqa: E731
    until(lambda: [flow["state"] for flow in flows()] == ["multipath"] * 4)
    found: dict[str, Any] = {"flows": flows(), "routed_s": time.monotonic() - began_s}
    found["connections"] = rest.get("/connections")["connections"]
    time.sleep(max(0.0, began_s + CUT_S - time.monotonic()))
    for link in ("bt", "bt~"):
        emulation.shared.set_link(link, up=False)
    found["cut_s"] = time.monotonic() - began_s
    client.wait(30)
    found["after"] = flows()
    lines = server.communicate(timeout=30)[0].split()
    found["totals"] = list(map(int, lines))
    found["exceptions"] = rest.health()["counters"]["exceptions"]
    return found


@pytest.mark.slow
def test_subflows_of_a_connection_are_routed_apart_and_one_outlives_its_link(tmp_path: Path) -> None:
    result = tmp_path / "result.json"

    def work(emulation: Emulation) -> int:
        result.write_text(json.dumps(body(emulation)))
        return 0

    said: list[str] = []
    settings = {"mptcp": {"recognise": True}}
    options = RunOptions(publish=0, emulation=EmulationOptions(settings=settings))
    assert run_network(load_text(NETWORK, "mptcp"), "t-mptcp", work, options, said.append) == 0, said
    found = json.loads(result.read_text())
    [connection] = found["connections"]
    assert len(connection["subflows"]) == 2 and connection["client"] == "t" and connection["peer"] == "s"
    assert {flow["origin"] for flow in found["flows"]} == {"mptcp"} and found["exceptions"] == 0
    groups = {flow["group"] for flow in found["flows"]}
    assert groups == {f"mptcp-{connection['id']}-{way}" for way in ("up", "down")}
    up = [flow for flow in found["flows"] if flow["group"].endswith("-up")]
    media = [{path["links"][0] for path in flow["multipath"] if path["rate_mbps"]} for flow in up]
    assert set.union(*media) == {"at~", "bt~"}
    totals = [0, *found["totals"]]

    def mbps(from_s: float, to_s: float) -> float:
        first, last = (min(len(totals) - 1, round(at_s * 10)) for at_s in (from_s, to_s))
        return (totals[last] - totals[first]) * 8e-6 / ((last - first) / 10)

    # A single path carries 9.5 Mb/s at most.
    assert mbps(4.0, found["cut_s"]) > 1.5 * MBPS, found["totals"]
    assert mbps(found["cut_s"] + 1.0, SECONDS - 0.5) > 0.75 * MBPS, found["totals"]
    assert not any("bt" in link for flow in found["after"] for path in flow["multipath"] for link in path["links"])
