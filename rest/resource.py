"""What all resources share: strict requests, JSON responses, pages, errors, and the endpoints of a collection.

*Requests.* Unknown parameters of the query are errors, as in bodies.

*Responses.* A long document is encoded piece by piece, and other green threads run in between: the controller's slots
must not wait for it. Errors are RFC 9457 problem details.

*Pages.* A list is read with ``?limit=`` and ``?cursor=``; the response's ``next`` is the address of the next page. A
cursor names the last items of its page, so that items which come or go meanwhile neither repeat nor hide others.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from http import HTTPStatus
from typing import Any, TypeVar, cast
from urllib.parse import quote, urlencode

from flask import Flask, Request, Response, current_app, g, request
from flask_smorest import Blueprint
from marshmallow import RAISE, Schema, fields
from webargs.flaskparser import FlaskParser
from werkzeug.exceptions import BadRequest, HTTPException

from hyroads.controller.core import strict_json
from hyroads.controller.core.errors import ConfigError, HyroadsError
from hyroads.controller.core.strict_json import JsonError

from . import owners
from .contract import (
    PREFIX,
    AnsweredError,
    ConflictError,
    Document,
    ForbiddenError,
    GoneError,
    Listed,
    NotConfirmedError,
    NotFoundError,
    NotSavedError,
    QuotaError,
    StoreAwayError,
    TooBusyError,
    TooOftenError,
    ValueRefusedError,
)
from .schemas import OperationSchema, PageQuery, PageSchema, ProblemSchema, WaitQuery, required

EXTENSION = "hyroads.pause"
JSON = "application/json"
_PIECE = 16 * 1024


def pause() -> None:
    """Let other green threads run."""
    let_others: Callable[[], None] = current_app.extensions[EXTENSION]
    let_others()


def reply(document: Mapping[str, Any] | list[Any], status: int = 200, *, location: str | None = None) -> Response:
    """A response with a document; ``location`` is the address of the resource that it describes."""
    answer = Response("".join(_pieces(document)), status=status, content_type=JSON)
    if location is not None:
        answer.headers["Location"] = location
    return answer


def _pieces(document: Mapping[str, Any] | list[Any]) -> Iterator[str]:
    """The text of a document; lists and values of mappings down to the second level are pieces of their own."""
    written = 0
    for text in _walk(document, 2):
        yield text
        written += len(text)
        if written > _PIECE:
            written = 0
            pause()
    yield "\n"


def _walk(value: Any, depth: int) -> Iterator[str]:
    if not depth or not isinstance(value, Mapping | list):
        yield json.dumps(value)
        return
    opening, closing = ("[", "]") if isinstance(value, list) else ("{", "}")
    items = [("", item) for item in value] if isinstance(value, list) else _named(value)
    yield opening
    for number, (name, item) in enumerate(items):
        yield f",{name}" if number else name
        yield from _walk(item, depth - 1)
    yield closing


def _named(value: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(f"{json.dumps(name)}:", item) for name, item in value.items()]


_ANCHORS = 3


View = TypeVar("View", bound=Callable[..., Any])
Documents = Callable[[Sequence[str]], Sequence[Document]]
"""The documents of those of some ids that are there."""


def page(name: str, ids: Sequence[str], documents: Documents, query: Mapping[str, Any]) -> Response:
    """One page of a list as an answer: ``{name: [documents], "next": address or null}``."""
    limit = query["limit"]
    start = _start(ids, query["cursor"])
    chosen = ids[start : start + limit]
    end = start + len(chosen)
    following = _following(query, _cursor(ids, end)) if end < len(ids) and chosen else None
    answer = reply({name: list(documents(chosen)), "next": following})
    if following:
        answer.headers["Link"] = f'<{following}>; rel="next"'
    return answer


def pages(name: str, documents: Sequence[Document], query: Mapping[str, Any], key: str = "id") -> Response:
    """One page of a list of documents that are there already."""
    known = {str(document[key]): document for document in documents}
    return page(name, tuple(known), lambda ids: [known[one] for one in ids], query)


def _following(query: Mapping[str, Any], cursor: str) -> str:
    others = [(key, value) for key, value in request.args.items() if key not in ("limit", "cursor")]
    return f"{request.path}?{urlencode([*others, ('limit', query['limit']), ('cursor', cursor)])}"


def _cursor(ids: Sequence[str], end: int) -> str:
    text = json.dumps([end, *ids[max(0, end - _ANCHORS) : end]], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _start(ids: Sequence[str], cursor: str | None) -> int:
    """Where a page begins: after the last of its cursor's items that is still there, else where that one was."""
    if cursor is None:
        return 0
    end, anchors = _parsed(cursor)
    place = min(end, len(ids))
    for back, anchor in enumerate(reversed(anchors), start=1):
        if 0 <= end - back < len(ids) and ids[end - back] == anchor:
            return end - back + 1
        if anchor in ids:
            return ids.index(anchor) + 1
    return place


def _parsed(cursor: str) -> tuple[int, list[str]]:
    try:
        end, *anchors = strict_json.parse(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, TypeError) as error:
        raise ValueRefusedError("cursor", "expected the cursor of a `next` address") from error
    sound = isinstance(end, int) and end >= 0 and all(isinstance(anchor, str) for anchor in anchors)
    if not sound or len(anchors) > _ANCHORS:
        raise ValueRefusedError("cursor", "expected the cursor of a `next` address")
    return end, anchors


LOG = logging.getLogger("hyroads.rest")
PROBLEM_TYPE = "application/problem+json"


def problem(status: int, detail: str, **more: Any) -> Response:
    """A problem document as a response."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail, **more}
    return Response(json.dumps(body) + "\n", status=status, content_type=PROBLEM_TYPE)


def _config(error: ConfigError) -> Response:
    errors: dict[str, list[str]] = {}
    for one in (error, *error.more):
        errors.setdefault(one.place or "body", []).append(one.problem)
    return problem(422, f"{error.place}: {error.problem}" if error.place else error.problem, errors=errors)


_STATUS: Mapping[type[HyroadsError], int] = {
    ForbiddenError: 403,
    NotFoundError: 404,
    GoneError: 410,
    ConflictError: 409,
    TooOftenError: 429,
    TooBusyError: 503,
    NotSavedError: 507,
    StoreAwayError: 503,
}


def _hyroads(error: HyroadsError) -> Response:
    status = next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 500)
    answer = problem(status, str(error), **(error.details if isinstance(error, ConflictError | QuotaError) else {}))
    if status == 503:
        answer.headers["Retry-After"] = "1"
    if isinstance(error, TooOftenError):
        answer.headers["Retry-After"] = str(int(error.wait_s) + 1)
    return answer


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
    """Answer every error with a problem document; ``on_defect`` hears of unexpected exceptions."""

    def refused(error: ValueRefusedError) -> Response:
        return problem(422, str(error), errors={error.place: [error.problem]})

    def not_confirmed(error: NotConfirmedError) -> Response:
        return problem(504, str(error), pending=error.pending)

    def answered(error: AnsweredError) -> Response:
        return Response(json.dumps(dict(error.problem)) + "\n", status=error.status, content_type=PROBLEM_TYPE)

    def defect(error: Exception) -> Response:
        on_defect("a REST request", error)
        return problem(500, "the request met a defect of the controller; see its log")

    app.register_error_handler(HTTPException, _http)
    app.register_error_handler(ConfigError, _config)
    app.register_error_handler(ValueRefusedError, refused)
    app.register_error_handler(NotConfirmedError, not_confirmed)
    app.register_error_handler(AnsweredError, answered)
    app.register_error_handler(HyroadsError, _hyroads)
    app.register_error_handler(Exception, defect)


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
    """Endpoints below one address, by default ``/api/v1/NAME``."""

    ARGUMENTS_PARSER = _Strict()

    def __init__(self, name: str, *, url_prefix: str = "", description: str = "", **options: Any) -> None:
        url_prefix = url_prefix or f"{PREFIX}/{name}"
        super().__init__(name, name, url_prefix=url_prefix, description=description, **options)

    def endpoint(
        self,
        method: str,
        rule: str,
        responses: Mapping[int, str | None],
        schema: type[Schema] | None = None,
        *,
        body: type[Schema] | None = None,
        query: type[Schema] | None = None,
    ) -> Callable[[View], View]:
        """Register a view, which gets the parsed body, the parsed query and the parts of the address, in this order.

        ``responses`` has a description (None: the status' own name) by status; the first is the usual one. ``schema``
        is what the view returns with 200 and 201.
        """

        def register(view: View) -> View:
            [usual, text], *others = responses.items()
            found: Any = view
            for status, description in reversed(others):
                found = self.alt_response(status, schema=_schema(status, schema), description=description)(found)
            found = self.response(usual, _schema(usual, schema), description=text)(found)
            if query is not None:
                found = self.arguments(query(), location="query")(found)
            if body is not None:
                found = self.arguments(body())(found)
            registered: View = getattr(self, method)(rule)(found)
            return registered

        return register

    def serves(
        self,
        rule: str,
        schema: type[Schema],
        text: str,
        answer: Callable[..., Response],
        *,
        query: type[Schema] | None = None,
    ) -> None:
        """Register what only reads: ``answer`` gets what a view gets, ``text`` describes it in the OpenAPI document."""

        def read(*given: Any, **ids: str) -> Response:
            return answer(*given, **ids)

        read.__name__, read.__doc__ = f"read {rule}", text
        self.endpoint("get", rule, {200: None, 404: None} if "<" in rule else {200: None}, schema, query=query)(read)


def _schema(status: int, schema: type[Schema] | None) -> type[Schema] | None:
    if status >= 400:
        return ProblemSchema
    return {202: OperationSchema, 204: None}.get(status, schema)


class Collection(Resource):
    """A resource that is a list of things with ids; one thing's address is the list's with its id.

    ``one`` is the variable of that address with its converter, such as ``<id:flow>``. ``item`` is the schema of one
    thing and ``page`` that of a page of them, by default a mapping with a list of the collection's name.

    ``owned``: each thing has an owner, which its document names, and whatever changes a thing, at its address or below,
    needs a right to it. Then the collection's name is the kind of its things, and ``key`` the member of a document with
    the id.
    """

    def __init__(
        self,
        name: str,
        one: str,
        item: type[Schema],
        description: str,
        *,
        page: type[Schema] | None = None,
        prefix: str = "",
        owned: bool = False,
        key: str = "id",
    ) -> None:
        super().__init__(name, url_prefix=prefix, description=description)
        self.one = f"/{one}"
        self._owned, self._key = owned, key
        self._variable = one.rstrip(">").rpartition(":")[2]
        self.item = item
        self._page = page or page_schema(name, item)

    def address(self, name: str) -> str:
        """Where one thing can be read; ids may hold any character."""
        return f"{self.url_prefix}/{quote(name, safe='')}"

    def reads(self, service: Listed, listing: str, showing: str) -> None:
        """Serve the list in pages, and one thing; ``listing`` and ``showing`` describe both in the OpenAPI document."""
        self.reads_by(service.names, service.documents, service.document, listing, showing)

    def reads_by(
        self,
        names: Callable[[], Sequence[str]],
        documents: Documents,
        document: Callable[[str], Document],
        listing: str,
        showing: str,
    ) -> None:
        """As :meth:`reads`, by three functions of a service that has other names for them."""

        def some(ids: Sequence[str]) -> list[Document]:
            return [self.shown(one) for one in documents(ids)]

        def read_list(query: dict[str, Any]) -> Response:
            return page(self.name, names(), some, query)

        self.serves("", self._page, listing, read_list, query=PageQuery)
        self.serves(self.one, self.item, showing, lambda **ids: reply(self.shown(document(*ids.values()))))

    def shown(self, document: Document) -> Document:
        """The document of one thing, with its owner if things have one."""
        return owners.shown(self.name, document[self._key], document) if self._owned else document

    def creates(self, body: type[Schema], responses: Mapping[int, str | None]) -> Callable[[View], View]:
        """Register the view that answers POST at the collection's own address."""
        return self.operation("post", "", responses, body=body)

    def operation(
        self,
        method: str,
        rule: str,
        responses: Mapping[int, str | None],
        *,
        body: type[Schema] | None = None,
        schema: type[Schema] | None = None,
    ) -> Callable[[View], View]:
        """Register a view that changes something: it returns one thing, and takes ``?wait=`` where 202 is possible."""
        query = WaitQuery if 202 in responses else None
        register = self.endpoint(method, rule, responses, schema or self.item, body=body, query=query)
        if not self._owned or not rule.startswith(self.one):
            return register
        return lambda view: register(self._checked(view))

    def _checked(self, view: View) -> View:
        """The view, refused to who may not change the thing."""

        @wraps(view)
        def checked(*given: Any, **ids: str) -> Any:
            owners.check([(self.name, ids[self._variable])])
            return view(*given, **ids)

        return cast("View", checked)


def page_schema(name: str, item: type[Schema]) -> type[Schema]:
    """The schema of a page: ``{name: [item], "next": address or null}``."""
    found: type[Schema] = PageSchema.from_dict(
        {name: fields.List(fields.Nested(item), **required())},
        name=item.__name__.removesuffix("Schema") + "List",
    )
    return found
