"""The resource ``flows``."""

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import quote

from flask import Response
from flask.typing import ResponseReturnValue

from . import schemas
from .contract import PREFIX, Service
from .operations import accepted, confirmed
from .resource import Resource, page, reply

ADDRESS = f"{PREFIX}/flows"
_NAMES = {"source": "from", "target": "to"}


def blueprint(service: Service) -> Resource:
    """Flows and their multipaths."""
    blueprint = Resource("flows", url_prefix=ADDRESS, description="Flows and their multipaths")

    @blueprint.get("")
    @blueprint.arguments(schemas.PageQuery, location="query")
    @blueprint.response(200, schemas.FlowList)
    def list_flows(query: dict[str, Any]) -> ResponseReturnValue:
        """All flows in order of declaration."""
        return page("flows", service.flow_ids(), service.flows, query)

    @blueprint.post("")
    @blueprint.arguments(schemas.FlowDeclaration)
    @blueprint.arguments(schemas.WaitQuery, location="query")
    @blueprint.response(201, schemas.FlowSchema, description="new, and confirmed by agents and switches")
    @blueprint.alt_response(200, schema=schemas.FlowSchema, description="was declared like this before; confirmed")
    @blueprint.alt_response(202, schema=schemas.OperationSchema, description="wait=false, or not confirmed in time")
    @blueprint.alt_response(409, schema=schemas.ProblemSchema, description="the id exists with other content")
    def declare_flow(body: dict[str, Any], query: dict[str, Any]) -> ResponseReturnValue:
        """Declare a flow; answered once agents acknowledged and switches confirmed."""
        document = {_NAMES.get(key, key): value for key, value in body.items()}
        flow = document["id"]
        address = f"{ADDRESS}/{quote(flow, safe='')}"
        later = partial(accepted, f"declare flow {flow}", address, partial(service.flow_pending, flow))

        def declare() -> Response:
            declared, new = service.declare_flow(document, wait=query["wait"])
            return reply(declared, 201 if new else 200, location=address)

        return confirmed(declare, later, wait=query["wait"])

    @blueprint.get("/<id:flow>")
    @blueprint.response(200, schemas.FlowSchema)
    @blueprint.alt_response(404, schema=schemas.ProblemSchema)
    def show_flow(flow: str) -> ResponseReturnValue:
        """One flow."""
        return reply(service.flow(flow))

    @blueprint.delete("/<id:flow>")
    @blueprint.arguments(schemas.WaitQuery, location="query")
    @blueprint.response(204, description="agents and switches have let go of it")
    @blueprint.alt_response(202, schema=schemas.OperationSchema, description="wait=false, or not confirmed in time")
    @blueprint.alt_response(404, schema=schemas.ProblemSchema)
    def remove_flow(query: dict[str, Any], flow: str) -> ResponseReturnValue:
        """Remove a flow; its frames follow the single path again."""
        later = partial(accepted, f"remove flow {flow}", None, partial(service.removal_pending, flow))

        def remove() -> Response:
            service.remove_flow(flow, wait=query["wait"])
            return Response(status=204)

        return confirmed(remove, later, wait=query["wait"])

    return blueprint
