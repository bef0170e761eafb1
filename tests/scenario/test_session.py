"""The demo ``session`` on real packets: every message once, over every link of its tree once, whatever dies."""

from __future__ import annotations

import pytest
from network_names import network_name

TIMEOUT_S = 100.0


@pytest.fixture(scope="module")
def checks(hyroads, document_of):
    done = hyroads(
        "demo",
        "session",
        "--json",
        "--name",
        network_name("session"),
        "--publish",
        "0",
        "--seconds",
        "2",
        timeout_s=TIMEOUT_S,
    )
    assert done.returncode in (0, 1), done.stderr
    document = document_of(done.stdout)
    assert document["name"] == "session"
    return {check["what"]: check for check in document["checks"]}


@pytest.mark.parametrize(
    "phase",
    [
        "in the session",
        "5 joins and leaves",
        "without controller and server",
        "a new controller",
        "1.5 s after a link was cut",
        "joined by IGMP",
    ],
)
def test_nobody_misses_or_doubles_a_message(checks, phase):
    found = [check for what, check in checks.items() if what.startswith(f"{phase}: ")]
    assert len(found) == 3
    assert all(check["ok"] for check in found), found


@pytest.mark.parametrize(
    "words",
    ["copies at switches", "frames missing on links", "joined: missed or doubled", "trees over the cut link",
     "what a source sends", "the new controller knows", "rules that it changed", "joined by IGMP within",
     "left by IGMP within"],
)  # fmt: skip
def test_links_and_switches_agree(checks, words):
    found = [check for what, check in checks.items() if what.startswith(words)]
    assert len(found) == 1 and found[0]["ok"], found
