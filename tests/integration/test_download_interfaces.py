"""``hyroads fetch`` and ``hyroads proxy`` over emulated interfaces that die, fall silent and come back (root)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest
from download_lab import GOODPUT, PORT, SERVER, Lab
from range_server import content

pytestmark = pytest.mark.root

SIZE = 20_000_000
URL = f"http://{SERVER}:{PORT}/{SIZE}.bin"


@pytest.fixture()
def lab(tmp_path):
    with Lab([20, 30], tmp_path / "served") as made:
        made.serve()
        yield made


def ended(program: subprocess.Popen) -> tuple[dict, str]:
    out, error = program.communicate(timeout=60)
    assert program.returncode == 0, error
    return json.loads(out)["files"][0], error


def test_all_interfaces_are_used_to_the_end(lab, tmp_path):
    status, document, error, _ = lab.fetched("-o", str(tmp_path / "file"), URL)
    assert status == 0 and (tmp_path / "file").read_bytes() == content(SIZE), error
    # 98 % is measured in benchmarks/download.py; here others use the machine, and 20 MB are over soon.
    assert document["files"][0]["rate_mbps"] >= 0.85 * lab.possible_mbps
    assert {
        name: each["mbps"] > 0.6 * rate
        for (name, each), rate in zip(sorted(document["files"][0]["interfaces"].items()), (20, 30), strict=True)
    } == {"if0": True, "if1": True}


@pytest.mark.parametrize(("how", "away_s"), [("carrier", 1.5), ("silent", 2.5)])
def test_an_interface_dies_and_comes_back(lab, tmp_path, how, away_s):
    change = lab.set_silent if how == "silent" else lambda k, off: lab.set_link(k, up=not off)
    program = lab.fetch("--json", "-o", str(tmp_path / "file"), "--interfaces", "if0,if1", URL)
    time.sleep(1.2)
    change(1, True)
    time.sleep(away_s)
    change(1, False)
    document, error = ended(program)
    assert (tmp_path / "file").read_bytes() == content(SIZE)
    assert "if1: nothing arrives" in error and "if1: carries again" in error
    # What would be best: 30 Mb/s less while it is away; a second more until each change is believed.
    best_s = (SIZE * 8e-6 / GOODPUT + 30 * away_s) / 50
    assert document["seconds"] <= best_s + 2.5
    assert document["interfaces"]["if1"]["bytes"] > 0.25 * SIZE, "it was used again"


def test_an_interface_that_never_carries_does_no_harm(lab, tmp_path):
    lab.set_silent(0, True)
    status, document, error, _ = lab.fetched("-o", str(tmp_path / "file"), URL)
    assert status == 0 and (tmp_path / "file").read_bytes() == content(SIZE), error
    assert document["files"][0]["rate_mbps"] >= 0.8 * 30 * GOODPUT


def test_the_proxy_goes_on_when_an_interface_dies(lab, tmp_path):
    command = [sys.executable, "-m", "hyroads.controller.cli", "proxy", "--interfaces", "if0,if1", "--json-log"]
    proxy = lab.start(lab.client, *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert "listens on" in proxy.stderr.readline()
    curl = lab.start(lab.client, "curl", "-sS", "-x", "http://127.0.0.1:3128", "-o", str(tmp_path / "file"), URL)
    time.sleep(1.0)
    lab.set_link(1, up=False)
    time.sleep(1.0)
    lab.set_link(1, up=True)
    assert curl.wait(30) == 0
    assert (tmp_path / "file").read_bytes() == content(SIZE)
    record = json.loads(proxy.stdout.readline())
    assert record["split"] and min(record["interfaces"].values()) > 0.15 * SIZE
    proxy.send_signal(signal.SIGINT)
    assert proxy.wait(5) == 0
