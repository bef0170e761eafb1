"""The slicer's OpenAPI document is true: for its operator and for the owner of a slice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from slicer_lab import SlicerLab, slicer_lab

from hyroads.slices.core.model import token_hash

openapi_checks = pytest.importorskip("openapi_checks", reason="needs schemathesis")

OWNER, USER = "the token of an owner", "the token of a user"
USERS = {"ann": {"token_sha256": token_hash(USER), "addresses": ["10.0.0.1"]}}
SLICES: list[dict[str, Any]] = [
    {
        "name": "red",
        "owner_token_sha256": token_hash(OWNER),
        "permissions": ["read", "write", "delegate"],
        "flowspace": [{"ports": ["p1", "p2"]}],
        "opt_in": {},
    },
    {"name": "part", "parent": "red", "flowspace": [{"priority": 101, "ports": ["p1"]}],
     "limits": {"tables": 1, "flow_entries": 1, "groups": 1, "meters": 1, "packet_ins_per_s": 1, "flow_mods_per_s": 1}},
]  # fmt: skip


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlicerLab]:
    limits = {"requests_per_s": 1e6, "burst": 1e6}
    with slicer_lab(tmp_path_factory.mktemp("slicer"), SLICES, users=USERS, api_limits=limits) as found:
        found.switch(1)
        yield found


def make_real(case: Any) -> None:
    """Ask for what is there."""
    known = {"name": "part", "dpid": "0x1", "rule": "0", "user": "ann"}
    for name in case.path_parameters or {}:
        case.path_parameters[name] = known.get(name, case.path_parameters[name])


@pytest.mark.slow
@pytest.mark.parametrize("token", [None, OWNER, USER], ids=["operator", "owner", "user"])
def test_every_endpoint_answers_as_the_document_says(lab: SlicerLab, token: str | None) -> None:
    operations = openapi_checks.operations(lab.url)
    assert len(operations) >= 16
    wrong = []
    for operation in operations:
        for mode in openapi_checks.GenerationMode:
            with lab.operator() as client:
                client.change("POST", "/reload")
            wrong += openapi_checks.failures(operation, mode, make_real, token)
    assert not wrong, "\n\n".join(wrong)
    with lab.operator() as client:
        client.change("POST", "/reload")
        assert {each["name"] for each in client.get("/slices")["slices"]} == {"red", "part", "production"}


def test_every_example_of_a_request_is_understood(lab: SlicerLab) -> None:
    assert openapi_checks.examples_refused(lab.url) == []
