"""The demo ``reservation`` on real packets: a promise is kept while another flow starts, a second one is refused."""

from __future__ import annotations

import pytest
from network_names import network_name

TIMEOUT_S = 60.0
NEAR = (0.92, 1.05)


@pytest.fixture(scope="module")
def checks(hyroads, document_of):
    done = hyroads(
        *("demo", "reservation", "--json", "--name", network_name("reserved"), "--publish", "0", "--seconds", "4"),
        timeout_s=TIMEOUT_S,
    )
    assert done.returncode in (0, 1), done.stderr
    return {check["what"]: check for check in document_of(done.stdout)["checks"]}


@pytest.mark.parametrize("phase", ["one flow", "two flows", "without reservation"])
def test_flows_get_what_they_were_promised_or_share_the_rest(checks, phase):
    found = [check for what, check in checks.items() if what.startswith(f"{phase}: ") and what.endswith(" delivered")]
    assert len(found) == (1 if phase == "one flow" else 2)
    assert all(NEAR[0] <= check["ratio"] <= NEAR[1] for check in found), found


def test_what_is_not_there_is_refused_with_what_is_missing(checks):
    (check,) = [check for what, check in checks.items() if "missing of" in what]
    assert check["ok"], check
