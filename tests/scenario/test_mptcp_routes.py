"""A connection of the kernel's MPTCP, between hosts that know nothing of the network: its subflows are recognised, and
routed apart.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from controller_process import eventually
from mptcp_stream import SECOND, STREAM, TWO_WAYS, Stream
from network_names import network_name

from hyroads.controller.core.netfile import load_text
from hyroads.mininet.emulation import Emulation, EmulationOptions
from hyroads.mininet.runner import RunOptions, run_network

if not Path("/proc/sys/net/mptcp/enabled").exists():
    pytest.skip("this kernel has no MPTCP", allow_module_level=True)

MBPS = 10.0
SECONDS, CUT_S = 12.0, 8.0


def start(emulation: Emulation, node: str, *words: str) -> subprocess.Popen[str]:
    command = [*emulation.inside(node), sys.executable, str(STREAM), *words]
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


def body(emulation: Emulation, log: Path) -> dict[str, Any]:
    rest = emulation.rest
    flows = lambda: list(rest.flows())  # noqa: E731
    eventually(lambda: all(switch["syn_copies"] == "on" for switch in rest.health()["switches"]))
    prepare(emulation)
    server = start(emulation, "s", "receive", "--listen", "5001", "--log", str(log))
    assert server.stdout is not None and server.stdout.readline() == "listening\n"
    address = emulation.addressing.host_ip["s"]
    client = start(emulation, "t", "send", "--connect", f"{address}:5001", "--congestion", "cubic")
    began_s = time.monotonic()
    eventually(lambda: [flow["state"] for flow in flows()] == ["multipath"] * 4)
    found: dict[str, Any] = {"flows": flows(), "connections": rest.get("/connections")["connections"]}
    time.sleep(max(0.0, began_s + CUT_S - time.monotonic()))
    for link in ("bt", "bt~"):
        emulation.shared.set_link(link, up=False)
    found["began_s"], found["cut_s"] = began_s, time.monotonic()
    time.sleep(SECONDS - CUT_S)
    found["after"] = flows()
    # Half of its connection has ended before, but nobody sees a link that is cut as an end.
    client.terminate()
    client.wait(20)
    ended_s = time.monotonic()
    eventually(lambda: not flows() and not rest.get("/connections")["connections"])
    found["seen_after_s"] = time.monotonic() - ended_s
    server.terminate()
    server.wait(20)
    found["exceptions"] = rest.health()["counters"]["exceptions"]
    return found


@pytest.mark.slow
def test_subflows_of_a_connection_are_routed_apart_and_one_outlives_its_link(tmp_path: Path) -> None:
    result, log = tmp_path / "result.json", tmp_path / "stream.json"

    def work(emulation: Emulation) -> int:
        result.write_text(json.dumps(body(emulation, log)))
        return 0

    said: list[str] = []
    settings = {"mptcp": {"recognise": True}}
    options = RunOptions(publish=0, emulation=EmulationOptions(settings=settings))
    assert run_network(load_text(TWO_WAYS, "mptcp"), network_name("mptcp"), work, options, said.append) == 0, said
    found = json.loads(result.read_text())
    [connection] = found["connections"]
    assert len(connection["subflows"]) == 2 and connection["client"] == "t" and connection["peer"] == "s"
    assert {flow["origin"] for flow in found["flows"]} == {"mptcp"} and found["exceptions"] == 0
    groups = {flow["group"] for flow in found["flows"]}
    assert groups == {f"mptcp-{connection['id']}-{way}" for way in ("up", "down")}
    up = [flow for flow in found["flows"] if flow["group"].endswith("-up")]
    media = [{path["links"][0] for path in flow["multipath"] if path["rate_mbps"]} for flow in up]
    assert set.union(*media) == {"at~", "bt~"}
    stream, began_s, cut_s = Stream.read(log), found["began_s"], found["cut_s"]
    # A single path carries 9.5 Mb/s at most.
    assert stream.mbps(began_s + 4.0, cut_s) > 1.5 * MBPS, stream
    assert stream.mbps(cut_s + 1.0, began_s + SECONDS - 0.5) > 0.75 * MBPS, stream
    assert stream.exact
    assert found["seen_after_s"] < 8.0
    assert not any("bt" in link for flow in found["after"] for path in flow["multipath"] for link in path["links"])
