"""Handovers: a client's flows move from one place to another; which are on their way, and what became of the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from flask import jsonify
from flask.typing import ResponseReturnValue
from flask_smorest import Blueprint
from hyroads.rest.contract import PREFIX, Document
from hyroads.rest.schemas import Number, ProblemSchema, Strict, WaitQuery
from marshmallow import Schema, fields, validate

WAIT_S = 10.0
MAX_SECONDS = 60.0


class Handovers(Protocol):
    """What this resource needs of the controller; documents as in docs/services.md, section 3."""

    def documents(self) -> list[Document]:
        """All that are on their way or wait, then the latest of those that are over."""

    def document(self, handover: str) -> Document:
        """One; NotFoundError."""

    def request(self, body: Mapping[str, Any], *, wait_s: float = 0.0) -> Document:
        """Move a client; answers once its flows have moved, or it failed. ConfigError, ConflictError, TooBusyError."""

    def cancel(self, handover: str) -> Document:
        """Give one up before anything has moved. NotFoundError, ConflictError."""


def _seconds() -> Number:
    return Number(validate=validate.Range(0.0, MAX_SECONDS))


class PlaceSchema(Strict):
    """Where a client's interface can be: at a node, on a technology."""

    node = fields.String(required=True, validate=validate.Length(1, 64))
    technology = fields.String(required=True, validate=validate.Length(1, 64))


class TimingsSchema(Strict):
    """Bounds of waiting, in seconds, other than the usual ones."""

    associate_s = _seconds()
    confirm_s = _seconds()
    hold_s = _seconds()
    leave_s = _seconds()
    steady_s = _seconds()
    warm_s = _seconds()


class HandoverRequest(Strict):
    """Move a client."""

    client = fields.String(required=True, validate=validate.Length(1, 64), metadata={"description": "node id"})
    to = fields.Nested(
        PlaceSchema,
        required=True,
        allow_none=True,
        metadata={"description": "null: the client's flows use all its places again"},
    )
    manager = fields.String(
        validate=validate.Length(1, 41),
        metadata={"description": "hard, hoolock (default), bicast, vertical, vertical-bicast, or a plugin's"},
    )
    flows = fields.List(
        fields.String(validate=validate.Length(1, 64)),
        validate=validate.Length(1, 1000),
        metadata={"description": "ids; all of the client without it"},
    )
    timings = fields.Nested(TimingsSchema)


class StepSchema(Schema):
    """When it came into a phase."""

    phase = fields.String()
    after_s = fields.Float()


class HandoverSchema(Schema):
    """A handover."""

    id = fields.String()
    client = fields.String()
    old = fields.Nested(PlaceSchema, data_key="from", allow_none=True)
    to = fields.Nested(PlaceSchema, allow_none=True)
    manager = fields.String()
    flows = fields.List(fields.String())
    phase = fields.String(metadata={"description": "waiting, associating, preparing, ..., done, failed"})
    reason = fields.String(allow_none=True, metadata={"description": "why it failed"})
    over = fields.Boolean()
    asked_at = fields.Float(metadata={"description": "Unix time"})
    moved_after_s = fields.Float(
        allow_none=True, metadata={"description": "until packets went by the new place, confirmed by agents"}
    )
    over_after_s = fields.Float(allow_none=True)
    known = fields.List(fields.Nested(PlaceSchema), metadata={"description": "both ends are configured for these"})
    carry = fields.List(fields.Nested(PlaceSchema), metadata={"description": "packets go by these"})
    copies = fields.Boolean(metadata={"description": "each packet by all of them"})
    join = fields.Nested(PlaceSchema, allow_none=True, metadata={"description": "the client is asked to join this"})
    leave = fields.Nested(PlaceSchema, allow_none=True, metadata={"description": "the client is asked to leave this"})
    steps = fields.List(fields.Nested(StepSchema))


class HandoverList(Schema):
    """All handovers that are kept."""

    handovers = fields.List(fields.Nested(HandoverSchema))


def blueprint(desk: Handovers) -> Blueprint:
    """The resource ``/handovers``."""
    found = Blueprint(
        "handovers", "handovers", url_prefix=f"{PREFIX}/handovers", description="Clients move without loss"
    )

    @found.get("")
    @found.response(200, HandoverList)
    def list_handovers() -> ResponseReturnValue:
        """Handovers on their way, then the latest that are over."""
        return jsonify({"handovers": desk.documents()})

    @found.post("")
    @found.arguments(HandoverRequest)
    @found.arguments(WaitQuery, location="query")
    @found.response(201, HandoverSchema)
    @found.alt_response(202, schema=HandoverSchema, description="its flows have not moved yet")
    @found.alt_response(409, schema=ProblemSchema)
    @found.alt_response(422, schema=ProblemSchema)
    def begin_handover(body: dict[str, Any], query: dict[str, Any]) -> ResponseReturnValue:
        """Move a client; answered once its flows have moved, or it failed."""
        document = desk.request(body, wait_s=WAIT_S if query["wait"] else 0.0)
        answer = jsonify(document)
        answer.status_code = 201 if document["over"] or document["moved_after_s"] is not None else 202
        answer.headers["Location"] = f"{PREFIX}/handovers/{document['id']}"
        return answer

    @found.get("/<handover>")
    @found.response(200, HandoverSchema)
    @found.alt_response(404, schema=ProblemSchema)
    def show_handover(handover: str) -> ResponseReturnValue:
        """One handover."""
        return jsonify(desk.document(handover))

    @found.delete("/<handover>")
    @found.response(200, HandoverSchema)
    @found.alt_response(404, schema=ProblemSchema)
    @found.alt_response(409, schema=ProblemSchema)
    def cancel_handover(handover: str) -> ResponseReturnValue:
        """Give a handover up, as long as nothing has moved."""
        return jsonify(desk.cancel(handover))

    return found
