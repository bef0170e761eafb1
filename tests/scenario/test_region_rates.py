"""Two regions with a controller each beside one controller of the same network: rates and TCP of what crosses."""

from __future__ import annotations

import json
import math
import subprocess
import time

import pytest
from network_names import network_name
from scene_process import udp_load

from hyroads.controller.control.region_rates import ROUND_S
from hyroads.controller.core.addressing import Addressing
from hyroads.controller.files.documents import read_file
from hyroads.mininet.run_directory import find_network

ADDRESS = Addressing.of(read_file(find_network("two-buildings"))).host_ip
NORTH, SOUTH = "http://127.0.0.1:8080/api/v1", "http://127.0.0.1:8180/api/v1"
FLOWS = "  - {id: north-1, from: a, to: b, weight: 2}\n  - {id: south-1, from: c, to: d, weight: 0.5}\n"
MORE = "  - {id: down-2, from: a, to: d, weight: 3, match: {eth_type: 2048, ip_proto: 17, udp_dst: 5002}}\n"


@pytest.fixture
def busy(tmp_path):
    """The file of the two buildings with flows within both, of other weights than those over the border."""
    path = tmp_path / "busy.yaml"
    path.write_text(find_network("two-buildings").read_text() + FLOWS + MORE)
    return path


def asked(running, url):
    enter = ["nsenter", f"--target={running.pid_of('worker')}", "--net", "curl", "-s", "-m", "5", f"{url}/flows"]
    flows = json.loads(subprocess.run(enter, capture_output=True, text=True, timeout=30, check=True).stdout)["flows"]
    return {each["id"]: each for each in flows}


def traffic(name):
    """UDP on each flow, more than any of them can have."""
    to = [("a", "d", 5001), ("a", "d", 5002), ("d", "a", 5001), ("a", "b", 5001), ("c", "d", 5001)]
    inside = {source: ["ip", "netns", "exec", f"hr-{name}-{source}"] for source, _, _ in to}
    return udp_load([(inside[source], ADDRESS[target], port) for source, target, port in to], 20, 0.0055)


def utility(rates, weights):
    return sum(weights[flow] * math.log1p(mbps) for flow, mbps in rates.items())


def ratio_of(regions, wanted, weights):
    """The utility of what both regions give over that of one controller; a crossing flow has the least of both."""
    given = [asked(regions, NORTH), asked(regions, SOUTH)]
    both = [(flow.partition("@")[0], each["rate_mbps"]) for part in given for flow, each in part.items()]
    found = {flow: min(rate for name, rate in both if name == flow) for flow in wanted}
    return utility(found, weights) / utility(wanted, weights)


def tcp_mbps(name, seconds=6):
    inside = ["ip", "netns", "exec"]
    server = subprocess.Popen([*inside, f"hr-{name}-d", "iperf3", "-s", "-1"], stdout=subprocess.DEVNULL)
    try:
        time.sleep(0.5)
        client = [*inside, f"hr-{name}-a", "iperf3", "-c", ADDRESS["d"], "-t", str(seconds), "-O", "2", "-J"]
        done = subprocess.run(client, capture_output=True, text=True, timeout=30, check=True)
    finally:
        server.terminate()
        server.wait()
    return json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"] / 1e6


def test_rates_of_two_regions_are_worth_what_one_controller_gives(lab, busy):
    alone = lab.emulate(network_name("one"), file=str(busy))
    with traffic(network_name("one")):
        time.sleep(10 * ROUND_S)
        flows = asked(alone, NORTH)
    alone.close()
    wanted = {flow: each["rate_mbps"] for flow, each in flows.items()}
    weights = {flow: each["weight"] for flow, each in flows.items()}
    assert min(wanted.values()) > 0.5
    regions = lab.emulate(network_name("two"), "--regions", file=str(busy))
    with traffic(network_name("two")):
        time.sleep(10 * ROUND_S)
        ratio = ratio_of(regions, wanted, weights)
    print(f"utility: {ratio:.4f} of that of one controller")
    assert ratio >= 0.995


@pytest.mark.nightly
def test_tcp_over_a_border_is_as_fast_as_under_one_controller(lab):
    alone = lab.emulate(network_name("one"), file="two-buildings")
    one_mbps = tcp_mbps(network_name("one"))
    alone.close()
    lab.emulate(network_name("two"), "--regions", file="two-buildings")
    time.sleep(10 * ROUND_S)
    ratio = tcp_mbps(network_name("two")) / one_mbps
    print(f"TCP: {ratio:.3f} of {one_mbps:.1f} Mb/s")
    assert ratio >= 0.95
