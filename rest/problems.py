"""Errors as RFC 9457 problem details."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from flask import Flask, Response
from hyroads.controller.core.errors import ConfigError, HyroadsError
from hyroads.rest.contract import (
    AnsweredError,
    ConflictError,
    ForbiddenError,
    NotConfirmedError,
    NotFoundError,
    NotSavedError,
    TooBusyError,
    ValueRefusedError,
)
from werkzeug.exceptions import HTTPException

LOG = logging.getLogger("hyroads.rest")
MEDIA_TYPE = "application/problem+json"


def problem(status: int, detail: str, **more: Any) -> Response:
    """A problem document as a response."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail, **more}
    return Response(json.dumps(body) + "\n", status=status, content_type=MEDIA_TYPE)


def _config(error: ConfigError) -> Response:
    errors: dict[str, list[str]] = {}
    for one in (error, *error.more):
        errors.setdefault(one.place or "body", []).append(one.problem)
    return problem(422, f"{error.place}: {error.problem}" if error.place else error.problem, errors=errors)


_STATUS: Mapping[type[HyroadsError], int] = {
    ForbiddenError: 403,
    NotFoundError: 404,
    ConflictError: 409,
    TooBusyError: 503,
    NotSavedError: 507,
}


def _hyroads(error: HyroadsError) -> Response:
    status = next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 500)
    answer = problem(status, str(error), **(error.details if isinstance(error, ConflictError) else {}))
    if status == 503:
        answer.headers["Retry-After"] = "1"
    return answer


def _refused(error: ValueRefusedError) -> Response:
    return problem(422, str(error), errors={error.place: [error.problem]})


def _not_confirmed(error: NotConfirmedError) -> Response:
    return problem(504, str(error), pending=error.pending)


def _answered(error: AnsweredError) -> Response:
    return Response(json.dumps(dict(error.problem)) + "\n", status=error.status, content_type=MEDIA_TYPE)


def _http(error: HTTPException) -> Response:
    """What Flask and the schema check raise; the latter carries messages by place."""
    status = error.code or 500
    data: Mapping[str, Any] = getattr(error, "data", None) or {}
    errors = dict(_flat(data.get("messages", {})))
    detail = "; ".join(f"{place}: {' '.join(texts)}" for place, texts in errors.items())
    answer = problem(status, detail or error.description or "", **({"errors": errors} if errors else {}))
    answer.headers.extend({name: value for name, value in error.get_headers() if name in ("Allow", "Retry-After")})
    return answer


def _flat(messages: Any, place: str = "") -> list[tuple[str, list[str]]]:
    """Nested messages of marshmallow -> (place, texts); the location (json, query) is not part of the place."""
    if not isinstance(messages, Mapping):
        texts = messages if isinstance(messages, list) else [messages]
        return [(place or "body", [str(text) for text in texts])]
    found = []
    for key, value in messages.items():
        skip = not place and key in ("json", "query", "_schema")
        found += _flat(value, place if skip else f"{place}.{key}" if place else str(key))
    return found


def register(app: Flask, on_defect: Callable[[str, BaseException], None]) -> None:
    """Answer every error with a problem document; what nobody foresaw is told to ``on_defect``."""

    def defect(error: Exception) -> Response:
        on_defect("a REST request", error)
        return problem(500, "the request met a defect of the controller; see its log")

    app.register_error_handler(HTTPException, _http)
    app.register_error_handler(ConfigError, _config)
    app.register_error_handler(ValueRefusedError, _refused)
    app.register_error_handler(NotConfirmedError, _not_confirmed)
    app.register_error_handler(AnsweredError, _answered)
    app.register_error_handler(HyroadsError, _hyroads)
    app.register_error_handler(Exception, defect)
