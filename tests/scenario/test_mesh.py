"""The demo ``mesh`` on real packets: one TCP connection over three backlinks."""

from __future__ import annotations

import pytest
from network_names import network_name


@pytest.mark.nightly
def test_one_connection_has_all_backlinks_on_two_channels_and_on_one(hyroads, document_of, tmp_path):
    words = (
        "demo",
        "mesh",
        "--json",
        "--name",
        network_name("mesh"),
        "--publish",
        "0",
        "--seconds",
        "4",
        "--out",
        str(tmp_path),
    )
    done = hyroads(*words, timeout_s=60.0)
    assert done.returncode in (0, 1), done.stderr
    checks = document_of(done.stdout)["checks"]
    assert len(checks) == 2 and all(check["theory"] == pytest.approx(30.0) for check in checks)
    # The demo asks for 95 %; a machine that is busy with other work may deliver a little less.
    assert all(0.92 <= check["ratio"] <= 1.0 for check in checks), checks
