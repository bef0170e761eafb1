"""Without radios a link is as busy as its interference domain: the airtime of all links that share the medium."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from told_meter import Heard, tell

from hyroads.controller.core.growth import Counted
from hyroads.controller.core.link_busy import LinkBusy
from hyroads.controller.core.netfile import load_text
from hyroads.controller.core.network import Network
from hyroads.controller.core.traffic_meter import RADIO, TrafficMeter

TEXT = """
nodes: {a: {role: gateway}, b: {role: ap}, c: {role: ap}, d: {role: ap}}
links:
  - {id: ab, from: a, to: b, technology: wifi, capacity_mbps: 20}
  - {id: bc, from: b, to: c, technology: wifi, capacity_mbps: 40}
  - {id: cd, from: c, to: d, technology: wifi, capacity_mbps: 10}
  - {id: ad, from: a, to: d, technology: plc, capacity_mbps: 50}
interference: {conflicts: {ab: [bc], bc: [cd]}}
"""
CHAIN = load_text(TEXT, "chain")
"""Links ab and cd do not hear each other: their domains differ."""
SHARED = load_text(TEXT.replace("conflicts: {ab: [bc], bc: [cd]}", "rule: technology"), "shared")
SENDERS = {"ab": ("a", "wifi"), "bc": ("b", "wifi"), "cd": ("c", "wifi"), "ad": ("a", "plc")}
RATES = st.sampled_from([0.0, 0.5, 3.0, 8.0, 60.0])


def counted(second: int, mbps: float) -> Counted:
    return Counted(second, round(mbps * second * 125e3), round(mbps * second * 125))


def fed(network: Network, ports_mbps: dict[tuple[str, str], float], paths_mbps: dict[str, float]) -> TrafficMeter:
    meter = TrafficMeter(network.links)
    for second in (1, 2, 3):
        for interface, mbps in ports_mbps.items():
            meter.port(interface, counted(second, mbps), second)
        heard = {link: counted(second, mbps) for link, mbps in paths_mbps.items()}
        tell(meter, second, {("f", at): ((link,), Heard(of, of)) for at, (link, of) in enumerate(heard.items(), 1)})
    return meter


def busy(network: Network, meter: TrafficMeter, capacity_mbps: list[float] | None = None) -> dict[str, float]:
    capacities = [link.capacity_mbps for link in network.links] if capacity_mbps is None else capacity_mbps
    found = LinkBusy(network.links).columns(meter.snapshot(3.0), network.interference, capacities).busy
    return dict(zip((link.id for link in network.links), found.tolist(), strict=True))


@given(st.fixed_dictionaries(dict.fromkeys(SENDERS, RATES)), st.sampled_from([CHAIN, SHARED]))
def test_share_is_the_sum_of_rate_over_capacity_in_the_domain(rates: dict[str, float], network: Network) -> None:
    found = busy(network, fed(network, {SENDERS[link]: mbps for link, mbps in rates.items()}, {}))
    for at, link in enumerate(network.links):
        members = [network.links[other] for other in network.interference.domain(at).tolist()]
        airtime = sum(rates[other.id] / other.capacity_mbps for other in members)
        assert found[link.id] == pytest.approx(min(1.0, airtime), rel=1e-6)


def test_medium_that_six_flows_fill_is_full_at_each_of_its_links() -> None:
    nodes = ", ".join(f"n{i}: {{role: ap}}" for i in range(12))
    rows = "\n".join(
        f"  - {{id: l{i}, from: n{2 * i}, to: n{2 * i + 1}, technology: wifi, capacity_mbps: 37.5}}" for i in range(6)
    )
    network = load_text(f"nodes: {{{nodes}}}\nlinks:\n{rows}\ninterference: {{rule: technology}}\n", "six")
    meter = fed(network, {(f"n{2 * i}", "wifi"): 6.0 for i in range(6)}, {})
    assert list(busy(network, meter).values()) == pytest.approx([0.96] * 6)


def test_radio_at_an_end_goes_before_counters_and_says_nothing_of_links_elsewhere() -> None:
    meter = fed(CHAIN, dict.fromkeys(SENDERS.values(), 4.0), {})
    meter.radio(("a", "wifi"), 0.7, RADIO, 3.0)
    found = busy(CHAIN, meter)
    assert found["ab"] == 0.7 and found["cd"] == pytest.approx(4 / 10 + 4 / 40)


def test_sender_without_counters_leaves_its_domain_unknown_and_no_other_one() -> None:
    meter = fed(CHAIN, {("a", "wifi"): 4.0, ("b", "wifi"): 0.0, ("a", "plc"): 5.0}, {})
    found = busy(CHAIN, meter)
    assert math.isnan(found["bc"]) and math.isnan(found["cd"])
    assert found["ab"] == pytest.approx(0.2) and found["ad"] == pytest.approx(0.1)


def test_link_that_is_down_and_not_counted_takes_no_airtime() -> None:
    meter = fed(CHAIN, {("a", "wifi"): 4.0, ("b", "wifi"): 0.0, ("a", "plc"): 0.0}, {})
    assert busy(CHAIN, meter, [20.0, 40.0, 0.0, 50.0])["bc"] == pytest.approx(0.2)


def test_traffic_of_a_port_that_no_path_explains_counts_at_its_fastest_link() -> None:
    network = load_text(TEXT.replace("from: b, to: c", "from: a, to: c"), "fork")
    # Links ab (20 Mb/s) and bc (now from a, 40 Mb/s) leave one port, and agents explain 6 of its 10 Mb/s.
    of = fed(network, {("a", "wifi"): 10.0, ("c", "wifi"): 0.0, ("a", "plc"): 0.0}, {"ab": 6.0})
    assert busy(network, of)["ab"] == pytest.approx(6 / 20 + 4 / 40)
    alone = fed(network, {("a", "wifi"): 10.0, ("c", "wifi"): 0.0, ("a", "plc"): 0.0}, {})
    assert busy(network, alone)["ab"] == pytest.approx(10 / 40)


def test_network_without_links_has_no_shares() -> None:
    found = LinkBusy([]).columns(TrafficMeter([]).snapshot(0.0), CHAIN.interference, [])
    assert found.busy.shape == (0,) and np.array_equal(found.radio_at, np.zeros(0, dtype=np.intp))
