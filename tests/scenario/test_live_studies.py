"""Live studies on real packets: rows are measured once, and nothing is left of their networks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("mininet")


@pytest.mark.nightly
@pytest.mark.slow
def test_a_row_is_measured_once(hyroads, tmp_path):
    rows = tmp_path / "rows.jsonl"
    command = ("study", "live-example", "--quick", "--no-plots", "--rows", str(rows), "--out", str(tmp_path / "out"))
    done = hyroads(*command, "--json", timeout_s=180.0)
    if done.returncode != 0 and "too slow to be believed" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    checks = {check["what"]: check["measured"] for check in json.loads(done.stdout)["checks"]}
    assert 0.2 < checks["gain of both paths over path 1 only"] < 0.7
    kept = rows.read_bytes()
    again = hyroads(*command, timeout_s=30.0)
    assert again.returncode == 0, again.stderr
    assert rows.read_bytes() == kept, "what is there is not measured again"
    assert not list(Path("/run/netns").glob("hr-live-example*"))
