"""The REST API as a WSGI application on a :class:`~hyroads.rest.contract.Service`."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from typing import Any

from flask import Flask, Response, jsonify, request
from flask.typing import ResponseReturnValue
from flask_smorest import Api, Blueprint
from hyroads.rest import schemas
from hyroads.rest.contract import IDENTITY, PREFIX, Service, Token
from hyroads.rest.problems import problem, register
from werkzeug.routing import BaseConverter

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_BODY = 64 * 1024
READS = ("GET", "HEAD", "OPTIONS")
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
JSON = "application/json"


class _FlowId(BaseConverter):
    """The rest of the address, slashes included: ids may be any printable text."""

    regex = ".+"
    part_isolating = False


def create_app(
    service: Service,
    tokens: Sequence[Token] = (),
    *,
    resources: Sequence[Blueprint] = (),
    instance_path: str = "/",
    version: str = "0",
    on_defect: Callable[[str, BaseException], None] = lambda where, error: None,
) -> Flask:
    """The application. Without tokens it answers only requests that name this machine as their host."""
    app = Flask("hyroads.rest", instance_path=instance_path, static_folder=None)
    app.config.update(
        API_TITLE="HyRoads",
        API_VERSION=version,
        OPENAPI_VERSION="3.1.0",
        OPENAPI_URL_PREFIX=PREFIX,
        OPENAPI_JSON_PATH="openapi.json",
        MAX_CONTENT_LENGTH=MAX_BODY,
        PROPAGATE_EXCEPTIONS=False,
    )
    app.json.sort_keys = False  # type: ignore[attr-defined]
    app.url_map.converters["flow_id"] = _FlowId
    # Two slashes in an id are not another way to write one.
    app.url_map.merge_slashes = False
    app.before_request(lambda: _admit(tokens) or _readable())
    api = Api(app)
    api.DEFAULT_ERROR_RESPONSE_NAME = None
    for blueprint in (_flows(service), _network(service), *resources):
        api.register_blueprint(blueprint)
    app.add_url_rule("/metrics", "metrics", lambda: Response(service.metrics(), content_type=METRICS_TYPE))
    register(app, on_defect)
    return app


def _admit(tokens: Sequence[Token]) -> Response | None:
    """Who may do this? None: go on."""
    inside = request.environ.get(IDENTITY)
    if inside is not None:
        return _permit(inside)
    if not tokens:
        # A web page that names us in its own domain (DNS rebinding) must not steer the network of its reader.
        name = request.host.rsplit(":", 1)[0] if not request.host.endswith("]") else request.host
        return None if name in LOOPBACK_NAMES else problem(403, "without api_tokens only loopback may be named as host")
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    found = [t for t in tokens if hmac.compare_digest(t.token.encode(), given.strip().encode())]
    if scheme.lower() != "bearer" or not found:
        answer = problem(401, "expected a bearer token")
        answer.headers["WWW-Authenticate"] = "Bearer"
        return answer
    return _permit(found[0])


def _permit(who: Token) -> Response | None:
    if who.role == "viewer" and request.method not in READS:
        return problem(403, f"token {who.name} may only read")
    return None


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


def _flows(service: Service) -> Blueprint:
    blueprint = Blueprint("flows", "flows", url_prefix=f"{PREFIX}/flows", description="Flows and their multipaths")

    @blueprint.get("")
    @blueprint.response(200, schemas.FlowList)
    def list_flows() -> ResponseReturnValue:
        """All flows in order of declaration."""
        return jsonify({"flows": service.flows()})

    @blueprint.post("")
    @blueprint.arguments(schemas.FlowDeclaration)
    @blueprint.arguments(schemas.WaitQuery, location="query")
    @blueprint.response(201, schemas.FlowSchema)
    @blueprint.alt_response(202, schema=schemas.FlowSchema, description="wait=false: declared, not yet confirmed")
    @blueprint.alt_response(409, schema=schemas.ProblemSchema)
    @blueprint.alt_response(422, schema=schemas.ProblemSchema)
    @blueprint.alt_response(504, schema=schemas.ProblemSchema)
    def declare_flow(body: dict[str, Any], query: dict[str, Any]) -> ResponseReturnValue:
        """Declare a flow; answered once agents acknowledged and switches confirmed."""
        names = {"source": "from", "target": "to"}
        document = {names.get(key, key): value for key, value in body.items()}
        flow, new = service.declare_flow(document, wait=query["wait"])
        answer = jsonify(flow)
        answer.status_code = 202 if not query["wait"] else 201 if new else 200
        answer.headers["Location"] = f"{PREFIX}/flows/{flow['id']}"
        return answer

    @blueprint.get("/<flow_id:flow>")
    @blueprint.response(200, schemas.FlowSchema)
    @blueprint.alt_response(404, schema=schemas.ProblemSchema)
    def show_flow(flow: str) -> ResponseReturnValue:
        """One flow."""
        return jsonify(service.flow(flow))

    @blueprint.delete("/<flow_id:flow>")
    @blueprint.arguments(schemas.WaitQuery, location="query")
    @blueprint.response(204)
    @blueprint.alt_response(404, schema=schemas.ProblemSchema)
    def remove_flow(query: dict[str, Any], flow: str) -> ResponseReturnValue:
        """Remove a flow; its frames follow the single path again."""
        service.remove_flow(flow, wait=query["wait"])
        return Response(status=204 if query["wait"] else 202)

    return blueprint


def _network(service: Service) -> Blueprint:
    blueprint = Blueprint("network", "network", url_prefix=PREFIX, description="State of network and controller")

    @blueprint.get("/topology")
    @blueprint.arguments(schemas.TopologyQuery, location="query")
    @blueprint.response(200, schemas.TopologySchema)
    def topology(query: dict[str, Any]) -> ResponseReturnValue:
        """Nodes and links with their state; format=netjson gives a NetJSON NetworkGraph."""
        return jsonify(service.netjson() if query["format"] == "netjson" else service.topology())

    @blueprint.get("/measurements")
    @blueprint.response(200, schemas.MeasurementsSchema)
    def measurements() -> ResponseReturnValue:
        """Latest reports of the agents."""
        return jsonify(service.measurements())

    @blueprint.get("/health")
    @blueprint.response(200, schemas.HealthSchema)
    def health() -> ResponseReturnValue:
        """What is connected, in sync, wrong."""
        return jsonify(service.health())

    return blueprint
