"""The OpenAPI document is true: requests made from it, right and wrong ones, are answered by the running controller
with the statuses, content types and schemas that it says.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dummy_switches import available
from rest_lab import RestLab, rest_lab

if not available():
    pytest.skip("needs Open vSwitch", allow_module_level=True)
openapi_checks = pytest.importorskip("openapi_checks", reason="needs schemathesis")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestLab]:
    with rest_lab(tmp_path_factory.mktemp("openapi"), {"api_limits": {"requests_per_s": 1e6, "burst": 1e6}}) as lab:
        yield lab


# What there is, so that requests are not all about what is not.
KNOWN = {"node": "a", "link": "ab-plc", "flow": "f1", "port": "1", "queue_id": "0", "group_id": "1", "meter_id": "1"}


def make_real(case: Any) -> None:
    """Ask for what is there."""
    ids = {**KNOWN, "dpid": "1" if case.path.startswith("/stats") else f"{1:016x}"}
    for name in case.path_parameters or {}:
        case.path_parameters[name] = ids.get(name, case.path_parameters[name])
    ends = {"from": "a", "to": "b"}
    if isinstance(case.body, dict) and "from" in case.body:
        case.body.update(ends)
    if case.path.endswith("/paths"):
        case.query = {**(case.query or {}), **ends}


def test_every_example_of_a_request_is_understood(lab: RestLab) -> None:
    """Not everything it names is there, but nothing about it is wrong. First, while the flow is there."""
    assert openapi_checks.examples_refused(lab.url) == []


@pytest.mark.slow
def test_every_endpoint_answers_as_the_document_says(lab: RestLab) -> None:
    operations = openapi_checks.operations(lab.url)
    assert len(operations) > 40
    modes = openapi_checks.GenerationMode
    wrong = [text for one in operations for mode in modes for text in openapi_checks.failures(one, mode, make_real)]
    assert not wrong, "\n\n".join(wrong)


TOKEN = "the token of an operator"
# What we answer to what is wrong, and to what is right by its schema but names nothing that is there.
CHECKS = """
[checks]
negative_data_rejection.expected-statuses = ["400", "403", "404", "409", "411", "413", "414", "415", "422"]
positive_data_acceptance.expected-statuses = ["2xx", "304", "400", "403", "404", "409", "422", "503", "504", "507"]
"""


@pytest.mark.nightly
def test_ten_minutes_of_all_checks_find_nothing(tmp_path: Path) -> None:
    """Also sequences of requests, and requests without a token."""
    (tmp_path / "schemathesis.toml").write_text(CHECKS)
    limits = {"requests_per_s": 1e6, "burst": 1e6}
    settings = {"api_limits": limits, "api_tokens": {"ops": {"token": TOKEN, "role": "admin"}}}
    with rest_lab(tmp_path, settings, TOKEN) as lab:
        # A stream of events has no end; the test above asks for one.
        command = ("run", f"{lab.url}/api/v1/openapi.json", "--exclude-path", "/api/v1/events", "--checks", "all")
        how = (
            "--header",
            f"Authorization: Bearer {TOKEN}",
            "--max-time",
            "600",
            "--request-timeout",
            "20",
            "--no-color",
        )
        done = subprocess.run(
            [Path(sys.executable).with_name("st"), "--config-file", tmp_path / "schemathesis.toml", *command, *how],
            cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-20_000:]
        assert lab.controller.rest("GET", "/health", token=TOKEN)[1]["counters"]["exceptions"] == 0


def test_the_controller_met_no_defect(lab: RestLab) -> None:
    health = lab.controller.rest("GET", "/health")[1]
    assert health["counters"]["exceptions"] == 0, health["last_errors"]
