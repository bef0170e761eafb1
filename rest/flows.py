"""The resource ``flows``."""

from __future__ import annotations

from functools import partial
from typing import Any

from flask import Response
from flask.typing import ResponseReturnValue

from .contract import Service
from .operations import UNCONFIRMED, confirmed, removed
from .resource import Collection, Resource, reply
from .schemas import FlowDeclaration, FlowSchema

_NAMES = {"source": "from", "target": "to"}


def blueprint(service: Service) -> Resource:
    """Flows and their multipaths."""
    found = Collection("flows", "<id:flow>", FlowSchema, "Flows and their multipaths")
    listing = "All flows in order of declaration."
    found.reads_by(service.flow_ids, service.flows, service.flow, listing, "One flow.")

    @found.creates(
        FlowDeclaration,
        {
            201: "new, and confirmed by agents and switches",
            200: "was declared like this before; confirmed",
            202: UNCONFIRMED,
            409: "the id exists with other content",
        },
    )
    def declare_flow(body: dict[str, Any], query: dict[str, Any]) -> ResponseReturnValue:
        """Declare a flow; answered once agents acknowledged and switches confirmed."""
        document = {_NAMES.get(key, key): value for key, value in body.items()}
        flow, address = document["id"], found.address(document["id"])

        def declare() -> Response:
            declared, new = service.declare_flow(document, wait=query["wait"])
            return reply(declared, 201 if new else 200, location=address)

        pending = partial(service.flow_pending, flow)
        return confirmed(f"declare flow {flow}", address, pending, declare, wait=query["wait"])

    @found.operation("delete", found.one, {204: "agents and switches have let go of it", 202: UNCONFIRMED, 404: None})
    def remove_flow(query: dict[str, Any], flow: str) -> ResponseReturnValue:
        """Remove a flow; its frames follow the single path again."""
        pending = partial(service.removal_pending, flow)
        return removed("remove flow", pending, service.remove_flow, flow, wait=query["wait"])

    return found
