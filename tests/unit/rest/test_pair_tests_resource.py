"""The resource ``pair-tests``."""

from __future__ import annotations

from typing import Any

from hyroads.rest.api import create_app
from hyroads.rest.pair_tests import PairTestsSchema, blueprint

FOUND = {
    "mode": "idle",
    "count": 1,
    "running": {"links": ["a", "b"], "sending": ["a"]},
    "pairs": [{"links": ["a", "b/1"], "verdict": "conflict", "ratio": 0.6, "half_width": 0.02, "age_s": 1.0}],
}


class Service:
    def tests(self) -> dict[str, Any]:
        return FOUND


def test_the_document_is_that_of_the_service_and_of_the_schema() -> None:
    client = create_app(None, resources=[blueprint(Service())]).test_client()  # type: ignore[arg-type]
    assert client.get("/api/v1/pair-tests").json == FOUND
    assert PairTestsSchema().dump(FOUND) == FOUND
    assert "/api/v1/pair-tests" in str(client.get("/api/v1/openapi.json").json)
