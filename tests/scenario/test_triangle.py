"""The demo ``triangle`` on real packets: what the project promises about it, on one long run with faults."""

from __future__ import annotations

import os

import pytest
from network_names import network_name

from hyroads.mininet.traffic import has_congestion_control

# Minutes of real traffic; the demo itself says what it measured.
TIMEOUT_S = 330.0
LONG = ("--long",) if os.environ.get("HYROADS_NIGHTLY") else ()
MINUTE = pytest.mark.nightly


@pytest.fixture(scope="module")
def verdict(hyroads, document_of) -> dict[str, dict[str, float]]:
    done = hyroads(
        *(
            "demo",
            "triangle",
            "--json",
            "--name",
            network_name("tri"),
            "--publish",
            "0",
            "--seconds",
            "4",
            *LONG,
            "--faults",
        ),
        timeout_s=TIMEOUT_S,
    )
    assert done.returncode in (0, 1), done.stderr
    document = document_of(done.stdout)
    assert document["name"] == "triangle"
    assert document["ok"] is (done.returncode == 0)
    return {check["what"]: check for check in document["checks"]}


def test_theory_is_that_of_the_paper(verdict):
    assert verdict["TCP cubic on the single path"]["theory"] == pytest.approx(10.0)
    assert verdict["TCP cubic over the multipath"]["theory"] == pytest.approx(50 / 3, rel=1e-4)
    assert verdict["UDP over the multipath (L2 payload)"]["theory"] == pytest.approx(0.95 * 50 / 3, rel=1e-4)


def test_the_single_path_carries_at_most_what_it_can(verdict):
    assert 0.85 <= verdict["TCP cubic on the single path"]["ratio"] <= 1.0


@pytest.mark.parametrize(
    "what",
    ["UDP over the multipath (L2 payload)", pytest.param("UDP over the multipath, 60 s (L2 payload)", marks=MINUTE)],
)
def test_udp_over_the_multipath(verdict, what):
    assert 0.95 <= verdict[what]["ratio"] <= 1.02


@pytest.mark.parametrize(
    "what",
    [
        "TCP cubic over the multipath",
        "TCP bbr over the multipath",
        pytest.param("TCP cubic over the multipath, 60 s", marks=MINUTE),
    ],
)
def test_one_tcp_flow_over_the_multipath(verdict, what):
    if "bbr" in what and not has_congestion_control("bbr"):
        pytest.skip("this kernel has no TCP congestion control bbr")
    assert 0.85 <= verdict[what]["ratio"] <= 1.0


@MINUTE
def test_a_minute_of_tcp_is_stable(verdict):
    assert verdict["  its worst ten seconds"]["ratio"] >= 0.8


def test_nothing_is_lost_without_the_controller(verdict):
    assert verdict["packets lost while the controller was killed"]["measured"] == 0


@pytest.mark.parametrize("event", ["agent of a killed", "agent of b killed", "agent of a frozen"])
def test_loss_of_an_agent_is_survived_and_mended(verdict, event):
    limit_s = 1.2 if "frozen" in event else 1.0
    assert verdict[f"{event}: until the single path carries all"]["measured"] <= limit_s
    assert verdict[f"{event}, back: until the multipath is used"]["ok"]


def test_the_flow_moves_off_a_cut_link_and_back(verdict):
    assert verdict["ab-plc cut: until what is left carries all"]["measured"] <= 0.2
    assert verdict["ab-plc restored: until it carries the flow"]["ok"]
    assert verdict["ab-plc restored: packets lost"]["measured"] == 0
