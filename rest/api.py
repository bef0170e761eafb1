"""The REST API as a WSGI application on a :class:`~hyroads.rest.contract.Service` and the resources of other parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from urllib.parse import quote, unquote

from flask import Flask, Request, Response
from flask_smorest import Api, Blueprint
from werkzeug.routing import BaseConverter, MapAdapter

from hyroads.controller.core.token_bucket import Limit

from . import access, flows, network, openapi, operations, resource
from .access import Access
from .contract import Owners, Service, Token
from .metrics import TYPE as METRICS_TYPE
from .metrics import RequestTimes
from .operations import Idempotency, Operations, SharedReplies
from .owners import EXTENSION as OWNERS
from .resource import read_body, register

MAX_BODY = 64 * 1024


class _Id(BaseConverter):
    """One part of the address: ids may be any printable text, a slash in them is percent-encoded."""

    def to_python(self, value: str) -> str:
        """The id."""
        return value.replace(_SLASH, "/").replace(_PERCENT, "%")

    def to_url(self, value: Any) -> str:
        """As it is routed, percent-encoded."""
        return quote(_routed(str(value)), safe="")


def _pattern(pattern: str) -> tuple[type[BaseConverter], Mapping[str, Any]]:
    """The converter of a part of the address that has this form, and its schema."""
    return type("_Pattern", (BaseConverter,), {"regex": pattern}), {"type": "string", "pattern": f"^{pattern}$"}


# How a part of an address is routed: a slash in an id is not one that divides the address.
_SLASH, _PERCENT = "%2F", "%25"
_RAW_ADDRESSES = ("RAW_URI", "REQUEST_URI", "RAW_PATH_INFO")


def _routed(part: str) -> str:
    return part.replace("%", _PERCENT).replace("/", _SLASH)


class _App(Flask):
    """Takes the parts of an address as they were sent: in WSGI's own path ``a%2Fb`` and ``a/b`` are the same, so that
    an id with a slash would reach another resource, and an unknown method of one resource the id of another.
    """

    def create_url_adapter(self, request: Request | None) -> MapAdapter | None:
        """Routes by what was sent."""
        adapter = super().create_url_adapter(request)
        if adapter is not None and request is not None:
            adapter.path_info = _routed_path(request).lstrip("/")
        return adapter


def _routed_path(request: Request) -> str:
    """The path with what its parts' slashes and percent signs stand for; as WSGI has it where nobody knows more."""
    raw = next((request.environ[name] for name in _RAW_ADDRESSES if name in request.environ), "")
    if raw and "%" not in raw:
        return request.path
    parts = [unquote(part, errors="replace") for part in str(raw).partition("?")[0].split("/")]
    sent = "/".join(parts)
    return "/".join(map(_routed, parts if sent == request.path else request.path.split("/")))


_ANY_ID: tuple[type[BaseConverter], Mapping[str, Any]] = (_Id, {"type": "string", "minLength": 1})
_CONVERTERS = {
    **dict.fromkeys(("default", "string", "id", "flow_id"), _ANY_ID),
    "dpid": _pattern("[0-9a-f]{16}"),  # as Ryu writes it
    "box": _pattern("[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"),  # as a host name may be
    "slice": _pattern("[A-Za-z0-9][A-Za-z0-9_.-]{0,31}"),  # as it may be in a file
    "switch": _pattern("0x[0-9a-f]{1,16}"),  # as the slicer writes it
}


def create_app(
    service: Service | None,
    tokens: Sequence[Token] = (),
    *,
    title: str = "HyRoads",
    resources: Sequence[Blueprint] = (),
    find: Callable[[str], Token | None] | None = None,
    exclusive: AbstractContextManager[Any] | None = None,
    limit: Limit | None = None,
    max_body: int = MAX_BODY,
    instance_path: str = "/",
    version: str = "0",
    on_defect: Callable[[str, BaseException], None] = lambda where, error: None,
    clock: Callable[[], float] = time.time,
    pause: Callable[[], None] = lambda: None,
    metrics: Callable[[], bytes] | None = None,
    requests: RequestTimes | None = None,
    elsewhere: Callable[[], Response | None] = lambda: None,
    replies: SharedReplies | None = None,
    saved: Callable[[], None] = lambda: None,
    owners: Owners | None = None,
) -> Flask:
    """The application. Without tokens it answers only requests that name this machine as their host.

    ``service`` is the network's; without one only ``resources`` are there. ``find`` knows tokens beside ``tokens``.
    ``limit`` bounds the requests of each token, ``pause`` lets others run while a long answer is made. Where requests
    are answered by several threads, ``exclusive`` is held while what they share is looked at and changed. ``metrics``
    gives the text of ``/metrics`` (default: the service does), ``requests`` measures how long requests take.
    ``elsewhere`` answers what another controller has to do, ``replies`` are what others answered to idempotency keys.
    ``saved`` returns once all that was asked for is saved; 202 is not answered before. ``owners`` knows whose each
    thing is.
    """
    app = _App("hyroads.rest", instance_path=instance_path, static_folder=None)
    app.config.update(
        API_TITLE=title,
        API_VERSION=version,
        OPENAPI_VERSION="3.1.0",
        MAX_CONTENT_LENGTH=max_body,
        PROPAGATE_EXCEPTIONS=False,
    )
    app.json.sort_keys = False  # type: ignore[attr-defined]
    app.url_map.converters |= {name: converter for name, (converter, _) in _CONVERTERS.items()}
    # Two slashes in an id are not another way to write one.
    app.url_map.merge_slashes = False
    begun = Operations(clock, several=replies is not None, saved=saved)
    app.extensions.update({resource.EXTENSION: pause, operations.EXTENSION: begun})
    if owners is not None:
        app.extensions[OWNERS] = owners
    if requests is not None:
        requests.follow(app)
    guard = Access(tokens, limit, time.monotonic, find)
    app.extensions[access.EXTENSION] = guard
    _guard(app, guard, Idempotency(clock, replies), exclusive or nullcontext(), elsewhere)
    api = Api(app)
    api.DEFAULT_ERROR_RESPONSE_NAME = None
    for converter, schema in _CONVERTERS.values():
        api.register_converter(converter, lambda _, schema=schema: dict(schema))
    of_network = [] if service is None else [flows.blueprint(service), network.blueprint(service)]
    for blueprint in (*of_network, operations.blueprint(begun), *resources):
        api.register_blueprint(blueprint)
    if metrics is not None:
        _serve_metrics(app, metrics)
    elif service is not None:
        _serve_metrics(app, lambda: service.metrics())  # noqa: PLW0108 - not every service has them
    openapi.register(app, api, whole=service is not None, metrics=metrics is not None or service is not None)
    register(app, on_defect)
    return app


def _serve_metrics(app: Flask, metrics: Callable[[], bytes]) -> None:
    app.add_url_rule("/metrics", "metrics", lambda: Response(metrics(), content_type=METRICS_TYPE))


def _guard(
    app: Flask,
    admission: Access,
    idempotency: Idempotency,
    exclusive: AbstractContextManager[Any],
    elsewhere: Callable[[], Response | None],
) -> None:
    """What happens before and after each request."""

    def before() -> Response | None:
        with exclusive:
            refused = admission.admit()
        if refused is None:
            refused = read_body()
        if refused is None:
            refused = elsewhere()
        if refused is not None:
            return refused
        with exclusive:
            return idempotency.before()

    def after(answer: Response) -> Response:
        with exclusive:
            return idempotency.after(answer)

    app.before_request(before)
    app.after_request(after)
