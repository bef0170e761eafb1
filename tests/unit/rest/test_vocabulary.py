"""The OpenAPI document explains itself: every field is described, every request and answer has an example that fits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from every_resource import application

from hyroads.rest.vocabulary import REQUESTS, VOCABULARY, example

DOCUMENT: dict[str, Any] = application().test_client().get("/api/v1/openapi.json").get_json()
SCHEMAS = DOCUMENT["components"]["schemas"]
METHODS = ("get", "put", "post", "delete", "patch")


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, found in DOCUMENT["paths"].items():
        yield from ((f"{method} {path}", found[method]) for method in METHODS if method in found)


def parameters() -> Iterator[dict[str, Any]]:
    for holder in (*DOCUMENT["paths"].values(), *(operation for _, operation in operations())):
        yield from holder.get("parameters", [])


def contents(operation: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    bodies = {"request": operation.get("requestBody", {}), **operation["responses"]}
    for name, body in bodies.items():
        for content in body.get("content", {}).values():
            yield name, content


def test_every_field_and_parameter_is_described() -> None:
    fields = [
        (name, field, one) for name, schema in SCHEMAS.items() for field, one in schema.get("properties", {}).items()
    ]
    assert len(fields) > 500
    assert [(name, field) for name, field, schema in fields if not schema.get("description")] == []
    for path, found in DOCUMENT["paths"].items():
        for parameters in (
            found.get("parameters", []),
            *(found[m].get("parameters", []) for m in METHODS if m in found),
        ):
            assert [one["name"] for one in parameters if not one.get("description") or "example" not in one] == [], path


def test_every_example_fits_its_schema() -> None:
    validators = pytest.importorskip("jsonschema_rs")
    wrong, count = [], 0

    @cache
    def validator(schema: str) -> Any:
        return validators.Draft202012Validator({**json.loads(schema), "components": DOCUMENT["components"]})

    for name, operation in operations():
        for where, content in contents(operation):
            count += 1
            if not {"example", "examples"} & content.keys():
                wrong.append(f"{name} {where}: none")
                continue
            told = content["example"] if "example" in content else next(iter(content["examples"].values()))["value"]
            errors = validator(json.dumps(content["schema"])).iter_errors(told)
            wrong += [f"{name} {where}: {error.message}" for error in errors]
    assert count > 500 and wrong == []


def test_nothing_is_explained_that_is_not_there() -> None:
    names = {field for schema in SCHEMAS.values() for field in schema.get("properties", {})}
    names |= {one["name"] for one in parameters()}
    assert set(VOCABULARY) <= names
    assert set(REQUESTS) == {name for name, operation in operations() if "requestBody" in operation}


def test_a_schema_that_holds_itself_has_an_end() -> None:
    node = {"type": "object", "properties": {"inner": {"$ref": "#/components/schemas/Node"}}}
    assert str(example(node, {"Node": node})).count("inner") == 8
