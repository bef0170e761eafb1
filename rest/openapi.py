"""The OpenAPI document, and a page to browse it.

flask-smorest makes the document from endpoints and schemas; here it gets what holds for all of them: problem documents,
tokens, limits, idempotency keys, the bounds of bodies.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from flask import Flask, Response, send_file
from flask_smorest import Api
from werkzeug.exceptions import NotFound

from .contract import PREFIX
from .network import NetworkGraphSchema
from .operations import HEADER, MAX_KEY_LENGTH
from .vocabulary import REQUESTS, describe, example

Document = dict[str, Any]
PROBLEM = "application/problem+json"
DOCUMENT_PATH, PAGE_PATH = f"{PREFIX}/openapi.json", f"{PREFIX}/docs"
# The page is Swagger UI's, from here: it takes nothing from elsewhere, and asks nobody but us.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>HyRoads REST API</title>
<link rel="stylesheet" href="docs/swagger-ui.css">
<link rel="icon" href="docs/favicon-32x32.png">
</head>
<body>
<div id="page"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
# Without a validator: it is a web site.
_START = 'SwaggerUIBundle({url: "openapi.json", dom_id: "#page", deepLinking: true, validatorUrl: null});\n'
_PARTS = ("swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png")
_METHODS = ("get", "put", "post", "delete", "patch")

_ALWAYS = {"401": "no token, or none that is known",
           "403": "the token may not do this, or a web page from elsewhere asks",
           "429": "too many requests; see Retry-After", "500": "a defect of the controller"}  # fmt: skip
_WITH_BODY = {"400": "no body, or no JSON", "411": "a body without Content-Length", "413": "the body is too long",
              "415": "the body is not application/json", "422": "what is expected where"}  # fmt: skip
_SAVED = tuple(
    f"{PREFIX}/{name}" for name in ("flows", "sessions", "reservations", "ncasts", "clients", "access-rules")
)
_WITH_FILE = {"504": "it takes the disk long to save this", "507": "this could not be saved, and was taken back"}
_WITH_KEY = {"400": "not readable", "409": "there is something else, or the first request with this key is at work",
             "422": "what is expected where, or the key was used for another request"}  # fmt: skip
_DESCRIPTION = (
    "Answers with 2xx but 202 are confirmed by switches and agents; 202 names an operation to ask for. Rates are Mb/s "
    "at L2 payload, times seconds unless the name says `_ms`. Errors are RFC 9457 problem documents."
)


def register(app: Flask, api: Api, *, whole: bool = True, metrics: bool = True) -> None:
    """Serve document and page. The document is made when it is first asked for: then all resources are there.

    ``whole``: with the network, ``metrics``: with what Prometheus reads.
    """
    made: list[str] = []
    headers = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"}

    def document() -> Response:
        if not made:
            with app.app_context():
                made.append(json.dumps(completed(api.spec.to_dict(), metrics=metrics), indent=1))
        return Response(made[0], content_type="application/json")

    def show() -> Response:
        return Response(PAGE, content_type="text/html; charset=utf-8", headers=headers)

    def part(name: str) -> Response:
        if name == "start.js":
            return Response(_START, content_type="text/javascript; charset=utf-8", headers=headers)
        if name not in _PARTS:
            raise NotFound
        found = send_file(str(files("flask_swagger_ui").joinpath("dist", name)), max_age=3600)
        found.headers.update(headers)
        return found

    if whole:
        with app.app_context():
            api.spec.components.schema("NetworkGraph", schema=NetworkGraphSchema)
    app.add_url_rule(DOCUMENT_PATH, "openapi", document)
    app.add_url_rule(PAGE_PATH, "docs", show)
    app.add_url_rule(f"{PAGE_PATH}/<name>", "docs_part", part)


def completed(spec: Document, *, metrics: bool = True) -> Document:
    """The document with what holds for all endpoints."""
    spec["info"]["description"] = _DESCRIPTION
    spec["components"].setdefault("securitySchemes", {})["token"] = {"type": "http", "scheme": "bearer"}
    spec["components"].pop("responses", None)
    for name in ("Error", "PaginationMetadata"):
        spec["components"]["schemas"].pop(name, None)
    # Without configured tokens none is needed.
    spec["security"] = [{}, {"token": []}]
    for path, operations in spec["paths"].items():
        for method in _METHODS:
            if method in operations:
                _complete(path, method, operations[method], operations.get("parameters", []))
    topology = spec["paths"].get(f"{PREFIX}/topology", {}).get("get")
    if topology is not None:
        answer = topology["responses"]["200"]["content"]["application/json"]
        answer["schema"] = {"oneOf": [answer["schema"], {"$ref": "#/components/schemas/NetworkGraph"}]}
    if metrics:
        spec["paths"]["/metrics"] = _metrics()
    schemas = spec["components"]["schemas"]
    for schema in schemas.values():
        describe(schema.get("properties", {}))
    for path, operations in spec["paths"].items():
        for method in _METHODS:
            if method in operations:
                _exemplify(f"{method} {path}", operations[method], schemas)
        _describe_parameters(operations.get("parameters", []), schemas)
    return spec


def _exemplify(name: str, operation: Document, schemas: Document) -> None:
    """An example of each parameter, of the request and of its answers."""
    _describe_parameters(operation.get("parameters", []), schemas)
    if name in REQUESTS:
        operation["requestBody"]["content"]["application/json"]["example"] = REQUESTS[name]
    for status, answer in operation["responses"].items():
        for content in answer.get("content", {}).values():
            if "schema" in content and not {"example", "examples"} & content.keys():
                made = example(content["schema"], schemas)
                content["example"] = {**made, "status": int(status)} if int(status) >= 400 else made


def _describe_parameters(parameters: list[Document], schemas: Document) -> None:
    for parameter in parameters:
        name = parameter["name"]
        described = {name: {"description": parameter["description"]} if "description" in parameter else {}}
        describe(described)
        parameter.update(described[name])
        parameter["example"] = example(parameter["schema"], schemas, name)


def _complete(path: str, method: str, operation: Document, shared: list[Document]) -> None:
    parameters = operation.setdefault("parameters", [])
    for parameter in parameters:
        _without_null(parameter["schema"])
    operation.setdefault("operationId", _name(path, method))
    known = operation["responses"]
    known.pop("default", None)
    # What the framework says of wrong arguments is not how we answer them.
    for status in [status for status, answer in known.items() if "$ref" in answer]:
        del known[status]
    problems = dict(_ALWAYS)
    if parameters or shared:
        problems["422"] = "what is expected where"
        known["414"] = {"description": "the address is too long"}
    if "requestBody" in operation or method in ("post", "put", "patch"):
        problems |= _WITH_BODY
    if method == "post" and path.startswith(PREFIX):
        problems |= _WITH_KEY
        parameters.append(_header(HEADER, "the same request with the same key is done once", MAX_KEY_LENGTH))
    if method != "get" and path.startswith(_SAVED):
        problems |= _WITH_FILE
    if path == f"{PREFIX}/events":
        parameters.append(_header("Last-Event-ID", "events after this one", 18, 0, "^[0-9]*$"))
    for status, text in problems.items():
        known.setdefault(status, {"description": text})
    for status, answer in known.items():
        if int(status) >= 400 and status != "414":
            answer["content"] = {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}
        elif status in ("204", "304"):
            answer.pop("content", None)


def _without_null(schema: Document) -> None:
    """A parameter that is not given is not null."""
    if isinstance(schema.get("type"), list):
        kinds = [kind for kind in schema["type"] if kind != "null"]
        schema["type"] = kinds[0] if len(kinds) == 1 else kinds
    if schema.get("default", "") is None:
        del schema["default"]


def _header(name: str, text: str, longest: int, shortest: int = 1, pattern: str = "^[ -~]+$") -> Document:
    schema = {"type": "string", "minLength": shortest, "maxLength": longest, "pattern": pattern}
    return {"name": name, "in": "header", "required": False, "description": text, "schema": schema}


def _name(path: str, method: str) -> str:
    words = path.removeprefix(PREFIX).strip("/").replace("{", "").replace("}", "").replace("-", "_").split("/")
    return "_".join([method, *words])


def _metrics() -> Document:
    schema = {"type": "string"}
    responses = {"200": {"description": "Prometheus' text format", "content": {"text/plain": {"schema": schema}}}}
    operation: Document = {"tags": ["metrics"], "summary": "All metrics.", "responses": responses}
    _complete("/metrics", "get", operation, [])
    return {"get": operation}
