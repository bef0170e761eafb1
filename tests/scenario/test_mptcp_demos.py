"""The demos of MPTCP on real packets: a download that stays off the mobile network, and one beside our multipath."""

from __future__ import annotations

from pathlib import Path

import pytest
from network_names import network_name

pytestmark = pytest.mark.skipif(not Path("/proc/sys/net/mptcp/pm_type").exists(), reason="this kernel has no MPTCP")

# The demo's own bounds are for a quiet machine.
LATER = 3.0


@pytest.fixture(scope="module")
def offload(hyroads, document_of, tmp_path_factory):
    folder = tmp_path_factory.mktemp("offload")
    command = ("demo", "offload", "--json", "--name", network_name("offload"), "--seconds", "2", "--out", str(folder))
    done = hyroads(*command, timeout_s=90.0)
    assert done.returncode in (0, 1), done.stderr
    document = document_of(done.stdout)
    assert (folder / "bins.csv").read_text().startswith("time_s,wifi_mbps,lte_mbps,download_mbps\n")
    return {check["what"]: check for check in document["checks"]}


def test_lte_carries_only_while_there_is_no_wifi(offload):
    assert offload["off LTE while there is WiFi"]["measured"] > 0.75
    assert offload["LTE carries after WiFi has gone"]["ratio"] < LATER


def test_the_download_goes_on(offload):
    assert offload["bytes lost, doubled or changed"]["ok"]
    assert offload["longest pause of the download"]["ratio"] < LATER
    assert offload["goodput of the server's 10 Mb/s"]["ratio"] > 0.8


def test_the_labelled_multipath_carries_what_mptcp_does_over_its_paths(hyroads, document_of, tmp_path):
    pytest.importorskip("mininet")
    command = ("demo", "mptcp", "--json", "--name", network_name("mptcp"), "--seconds", "2", "--out", str(tmp_path))
    done = hyroads(*command, timeout_s=120.0)
    assert done.returncode in (0, 1), done.stderr
    checks = {check["what"]: check for check in document_of(done.stdout)["checks"]}
    # More than the better path alone: MPTCP has both subflows.
    assert checks["the kernel's MPTCP over the same paths"]["measured"] > 10.5
    assert checks["labelled multipath beside MPTCP"]["ratio"] > 0.85
