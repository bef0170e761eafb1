"""The OpenAPI document is true: requests made from it, right and wrong ones, are answered by the running controller
with the statuses, content types and schemas that it says.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from dummy_switches import available
from rest_lab import RestLab, rest_lab

schemathesis = pytest.importorskip("schemathesis")
if not available():
    pytest.skip("needs Open vSwitch", allow_module_level=True)

from schemathesis import checks  # noqa: E402
from schemathesis.generation import GenerationMode  # noqa: E402
from schemathesis.specs.openapi import checks as openapi_checks  # noqa: E402

CHECKED = [
    checks.not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_schema_conformance,
    openapi_checks.response_headers_conformance,
    openapi_checks.negative_data_rejection,
    openapi_checks.unsupported_method,
]
# An address that is too long for our server is refused before anybody looks at what it says.
REFUSALS = ["400", "403", "404", "409", "411", "413", "414", "415", "422"]
CONFIG = schemathesis.Config.from_dict({"checks": {"negative_data_rejection": {"expected-statuses": REFUSALS}}})
EXAMPLES = 15


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestLab]:
    with rest_lab(tmp_path_factory.mktemp("openapi"), {"api_limits": {"requests_per_s": 1e6, "burst": 1e6}}) as lab:
        yield lab


SETTINGS = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


# What there is, so that requests are not all about what is not.
KNOWN = {"node": "a", "link": "ab-plc", "flow": "f1", "port": "1", "queue_id": "0", "group_id": "1", "meter_id": "1"}


def failures(operation: Any, mode: GenerationMode) -> list[str]:
    """What was not as the document says."""
    turns = itertools.count()

    @SETTINGS
    @given(operation.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        positive = mode is GenerationMode.POSITIVE
        if positive and next(turns) % 2:
            make_real(case)
        if case.path.endswith("/events") and (positive or (case.query or {}).get("follow") in (None, True, "true")):
            # A stream has no end unless it is asked for one.
            case.query = {**(case.query or {}), "follow": "false"}
        case.call_and_validate(checks=CHECKED, timeout=20)

    try:
        check()
    except Unsatisfiable:
        # There is nothing that could be wrong with such a request.
        return [] if mode is GenerationMode.NEGATIVE else [f"{operation.label}: no request can be made"]
    except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - collected, so that all are seen at once
        return [f"{operation.label}, {mode.value}: {_told(error)}"]
    return []


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


def _told(error: BaseException) -> str:
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return "; ".join(_told(one) for one in inner) if inner else f"{type(error).__name__}: {error}"[:2000]


@pytest.mark.slow
def test_every_endpoint_answers_as_the_document_says(lab: RestLab) -> None:
    schema = schemathesis.openapi.from_url(f"{lab.url}/api/v1/openapi.json", config=CONFIG)
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) > 40
    wrong = [text for operation in operations for mode in GenerationMode for text in failures(operation, mode)]
    assert not wrong, "\n\n".join(wrong)


def test_the_controller_met_no_defect(lab: RestLab) -> None:
    health = lab.controller.rest("GET", "/health")[1]
    assert health["counters"]["exceptions"] == 0, health["last_errors"]
