"""The REST API as a WSGI application on a :class:`~hyroads.rest.contract.Service` and the resources of other parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

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


class _SliceName(BaseConverter):
    """A slice's name as it may be in a file."""

    regex = "[A-Za-z0-9][A-Za-z0-9_.-]{0,31}"


class _SwitchId(BaseConverter):
    """A datapath id as the slicer writes it."""

    regex = "0x[0-9a-f]{1,16}"


class _Dpid(BaseConverter):
    """A datapath id as Ryu writes it."""

    regex = "[0-9a-f]{16}"


_CONVERTERS: Mapping[str, tuple[type[BaseConverter], Mapping[str, Any]]] = {
    "id": (_Id, {"type": "string", "minLength": 1}),
    "flow_id": (_Id, {"type": "string", "minLength": 1}),
    "dpid": (_Dpid, {"type": "string", "pattern": "^[0-9a-f]{16}$"}),
    "slice": (_SliceName, {"type": "string", "pattern": f"^{_SliceName.regex}$"}),
    "switch": (_SwitchId, {"type": "string", "pattern": f"^{_SwitchId.regex}$"}),
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
) -> Flask:
    """The application. Without tokens it answers only requests that name this machine as their host.

    ``service`` is the network's; without one only ``resources`` are there. ``find`` knows tokens beside ``tokens``.
    ``limit`` bounds the requests of each token, ``pause`` lets others run while a long answer is made. Where requests
    are answered by several threads, ``exclusive`` is held while what they share is looked at and changed.
    """
    app = Flask("hyroads.rest", instance_path=instance_path, static_folder=None)
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
    begun = Operations(clock)
    app.extensions.update({replies.EXTENSION: pause, operations.EXTENSION: begun})
    _guard(app, Access(tokens, limit, time.monotonic, find), Idempotency(clock), exclusive or nullcontext())
    api = Api(app)
    api.DEFAULT_ERROR_RESPONSE_NAME = None
    for converter, schema in _CONVERTERS.values():
        api.register_converter(converter, lambda _, schema=schema: dict(schema))
    of_network = [] if service is None else [flows.blueprint(service), network.blueprint(service)]
    for blueprint in (*of_network, operations.blueprint(begun), *resources):
        api.register_blueprint(blueprint)
    if service is not None:
        _serve_metrics(app, service)
    openapi.register(app, api, whole=service is not None)
    register(app, on_defect)
    return app


def _serve_metrics(app: Flask, service: Service) -> None:
    app.add_url_rule("/metrics", "metrics", lambda: Response(service.metrics(), content_type=METRICS_TYPE))


def _guard(app: Flask, access: Access, idempotency: Idempotency, exclusive: AbstractContextManager[Any]) -> None:
    """What happens before and after each request."""

    def before() -> Response | None:
        with exclusive:
            refused = access.admit()
        if refused is None:
            refused = _readable()
        if refused is not None:
            return refused
        with exclusive:
            return idempotency.before()

    def after(answer: Response) -> Response:
        with exclusive:
            return idempotency.after(answer)

    app.before_request(before)
    app.after_request(after)


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
