"""Requests made from an OpenAPI document, right and wrong ones, are answered as it says."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import requests
from examples import scaled
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

schemathesis = pytest.importorskip("schemathesis")

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
# So many for each operation and kind; five times as many at night (tests/support/examples.py).
EXAMPLES = scaled(12)
UNDERSTOOD = (200, 201, 202, 204, 404, 409)
SETTINGS = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def operations(url: str) -> list[Any]:
    """All that the document at a server describes."""
    schema = schemathesis.openapi.from_url(f"{url}/api/v1/openapi.json", config=CONFIG)
    return [result.ok() for result in schema.get_all_operations()]


def failures(
    operation: Any, mode: GenerationMode, make_real: Callable[[Any], None], token: str | None = None
) -> list[str]:
    """What was not as the document says; ``make_real`` turns every second right request to what is there."""
    if mode is GenerationMode.NEGATIVE and not _can_be_wrong(operation):
        return []
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
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
        case.call_and_validate(checks=CHECKED, timeout=20, headers=headers)

    try:
        check()
    except Unsatisfiable:
        # There is nothing that could be wrong with such a request.
        return [] if mode is GenerationMode.NEGATIVE else [f"{operation.label}: no request can be made"]
    except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - collected, so that all are seen at once
        return [f"{operation.label}, {mode.value}: {_told(error)}"]
    return []


def _can_be_wrong(operation: Any) -> bool:
    """Whether a request can break its schema: each text fits a path, so Hypothesis would try hundreds for nothing."""
    parts = (operation.body, operation.query, operation.headers, operation.cookies)
    return any(len(list(part)) > 0 for part in parts)


def _told(error: BaseException) -> str:
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return "; ".join(_told(one) for one in inner) if inner else f"{type(error).__name__}: {error}"[:2000]


def examples_refused(url: str) -> list[str]:
    """Requests that the document gives as examples and the server finds something wrong with; what they name need not
    be there."""
    answer = requests.get(f"{url}/api/v1/openapi.json", timeout=20).json()
    found = []
    for path, operations in answer["paths"].items():
        for method, operation in operations.items():
            if method == "parameters" or "requestBody" not in operation:
                continue
            known = {one["name"]: one["example"] for one in operations.get("parameters", []) + operation["parameters"]}
            place = path.format(**known)
            body = operation["requestBody"]["content"]["application/json"]["example"]
            told = requests.request(method, url + place, json=body, timeout=20)
            if told.status_code not in UNDERSTOOD:
                found.append(f"{method} {path}: {told.status_code} {told.text}")
    return found
