"""A blueprint whose requests are read strictly: unknown parameters of the query are errors, as in bodies."""

from __future__ import annotations

from typing import Any

from flask import Request, Response, g, request
from flask_smorest import Blueprint
from hyroads.controller.core import strict_json
from hyroads.controller.core.strict_json import JsonError
from hyroads.rest.problems import problem
from marshmallow import RAISE
from webargs.flaskparser import FlaskParser
from werkzeug.exceptions import BadRequest

JSON = "application/json"
_NOTHING = object()


def read_body() -> Response | None:
    """Read the body of a request before anything else sees it, so that one place decides what JSON is.

    The answer to a body that can't be read, which would otherwise be taken for none; None: go on.
    """
    g.body = _NOTHING
    if request.content_length is None and "Transfer-Encoding" in request.headers:
        return problem(411, "expected a body with Content-Length")
    if not request.content_length:
        return None
    if request.mimetype != JSON:
        return problem(415, f"expected Content-Type: {JSON}")
    try:
        g.body = strict_json.parse(request.get_data())
    except JsonError as error:
        return problem(400, str(error))
    return None


class _Strict(FlaskParser):
    """Refuses what it does not know, and a request that lacks the body it is about."""

    DEFAULT_UNKNOWN_BY_LOCATION = {**FlaskParser.DEFAULT_UNKNOWN_BY_LOCATION, "query": RAISE}  # noqa: RUF012

    def load_json(self, req: Request, schema: Any) -> Any:
        """The body. Without one, a schema that requires nothing would be content, and nothing would happen."""
        if g.body is not _NOTHING:
            return g.body
        if getattr(schema, "body_optional", False):
            return {}
        raise BadRequest("expected a body: a JSON object")


class Resource(Blueprint):  # type: ignore[misc]
    """Endpoints of one resource."""

    ARGUMENTS_PARSER = _Strict()

    def __init__(self, name: str, *, url_prefix: str, description: str = "", **options: Any) -> None:
        super().__init__(name, name, url_prefix=url_prefix, description=description, **options)
