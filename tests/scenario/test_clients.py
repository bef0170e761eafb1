"""Clients that come and go by the dozen: the short form of benchmarks/clients.py."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "clients.py"


@pytest.mark.skipif(shutil.which("ovs-vswitchd") is None, reason="needs Open vSwitch")
def test_no_stale_location_and_no_leaked_rule():
    size = ["--access-points", "4", "--clients", "120", "--moves", "20", "--seconds", "10"]
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), *size], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["moves"] > 100
    assert (result["stale_locations"], result["missing_rules"], result["leaked_rules"]) == (0, 0, 0)
    assert result["reached_ms"]["count"] == 20
