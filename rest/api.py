"""The REST API as a WSGI application on a :class:`~hyroads.rest.contract.Service` and the resources of other parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from flask import Flask, Response, request
from flask_smorest import Api, Blueprint
from hyroads.rest import flows, network, openapi, operations, replies
from hyroads.rest.access import Access, Limit
from hyroads.rest.contract import Service, Token
from hyroads.rest.idempotency import Idempotency
from hyroads.rest.operations import Operations
from hyroads.rest.problems import problem, register
from werkzeug.routing import BaseConverter

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_BODY = 64 * 1024
JSON = "application/json"


class _Id(BaseConverter):
    """The rest of the address, slashes included: ids may be any printable text."""

    regex = ".+"
    part_isolating = False


class _Dpid(BaseConverter):
    """A datapath id as Ryu writes it."""

    regex = "[0-9a-f]{16}"


_PATH_SCHEMAS = (
    (_Id, {"type": "string", "minLength": 1}),
    (_Dpid, {"type": "string", "pattern": "^[0-9a-f]{16}$"}),
)


def create_app(
    service: Service,
    tokens: Sequence[Token] = (),
    *,
    resources: Sequence[Blueprint] = (),
    limit: Limit | None = None,
    instance_path: str = "/",
    version: str = "0",
    on_defect: Callable[[str, BaseException], None] = lambda where, error: None,
    clock: Callable[[], float] = time.time,
    pause: Callable[[], None] = lambda: None,
) -> Flask:
    """The application. Without tokens it answers only requests that name this machine as their host.

    ``limit`` bounds the requests of each token, ``pause`` lets others run while a long answer is made.
    """
    app = Flask("hyroads.rest", instance_path=instance_path, static_folder=None)
    app.config.update(
        API_TITLE="HyRoads",
        API_VERSION=version,
        OPENAPI_VERSION="3.1.0",
        MAX_CONTENT_LENGTH=MAX_BODY,
        PROPAGATE_EXCEPTIONS=False,
    )
    app.json.sort_keys = False  # type: ignore[attr-defined]
    for name in ("id", "flow_id"):
        app.url_map.converters[name] = _Id
    app.url_map.converters["dpid"] = _Dpid
    # Two slashes in an id are not another way to write one.
    app.url_map.merge_slashes = False
    access, idempotency, begun = Access(tokens, limit, time.monotonic), Idempotency(clock), Operations(clock)
    app.extensions.update({replies.EXTENSION: pause, operations.EXTENSION: begun})
    app.before_request(lambda: access.admit() or _readable() or idempotency.before())
    app.after_request(idempotency.after)
    api = Api(app)
    api.DEFAULT_ERROR_RESPONSE_NAME = None
    for converter, schema in _PATH_SCHEMAS:
        api.register_converter(converter, lambda _, schema=schema: dict(schema))
    for blueprint in (flows.blueprint(service), network.blueprint(service), operations.blueprint(begun), *resources):
        api.register_blueprint(blueprint)
    app.add_url_rule("/metrics", "metrics", lambda: Response(service.metrics(), content_type=METRICS_TYPE))
    openapi.register(app, api)
    register(app, on_defect)
    return app


def _readable() -> Response | None:
    """Is the body what we read? Otherwise it would be taken for an empty one. None: go on."""
    if request.content_length is None and "Transfer-Encoding" in request.headers:
        return problem(411, "expected a body with Content-Length")
    if request.content_length and request.mimetype != JSON:
        return problem(415, f"expected Content-Type: {JSON}")
    try:
        request.get_json(silent=True)
    except RecursionError:
        return problem(400, "expected a body that is not nested so deeply")
    return None
