"""Handovers: a client's flows move from one place to another; which are on their way, and what became of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from flask import Response
from flask.typing import ResponseReturnValue
from marshmallow import Schema, fields, validate

from .contract import PREFIX, ConflictError, Document
from .operations import accepted, confirmed
from .resource import Resource, page, reply
from .schemas import Number, OperationSchema, PageQuery, PageSchema, ProblemSchema, Strict, WaitQuery, answered, told

ADDRESS = f"{PREFIX}/handovers"
WAIT_S = 10.0
MAX_SECONDS = 60.0


class Handovers(Protocol):
    """What this resource needs of the controller; documents as in docs/explanation/services.md, section 3."""

    def names(self) -> Sequence[str]:
        """Ids of the latest handovers, oldest first: those that are over, on their way, and waiting."""

    def documents(self, names: Sequence[str]) -> list[Document]:
        """These, as far as they are kept."""

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
        metadata={
            "description": "hard, hoolock (default), bicast, vertical, vertical-bicast, or a plugin's; "
            "of a client without an agent hard alone"
        },
    )
    flows = fields.List(
        fields.String(validate=validate.Length(1, 64)),
        validate=validate.Length(1, 1000),
        metadata={"description": "ids; all of the client without it"},
    )
    timings = fields.Nested(TimingsSchema)


def _place(text: str, **options: Any) -> Any:
    return fields.Nested(PlaceSchema, **told(text, **options))


def _places(text: str) -> Any:
    return fields.List(fields.Nested(PlaceSchema), **told(text))


class StepSchema(Schema):
    """When it came into a phase."""

    phase = fields.String(**answered())
    after_s = fields.Float(**answered())


class HandoverSchema(Schema):
    """A handover."""

    id = fields.String(**answered())
    client = fields.String(**told("node id"))
    old = _place("null: nowhere, or it has not begun", data_key="from", allow_none=True)
    to = _place("null: all its places", allow_none=True)
    manager = fields.String(**answered())
    flows = fields.List(fields.String(), **told("that are handed over"))
    phase = fields.String(**told("waiting, associating, preparing, ..., done, failed"))
    reason = fields.String(**told("why it failed", allow_none=True))
    over = fields.Boolean(**answered())
    asked_at = fields.Float(**told("Unix time"))
    moved_after_s = fields.Float(
        **told("until packets went by the new place, confirmed by who sends them", allow_none=True)
    )
    over_after_s = fields.Float(**answered(allow_none=True))
    known = _places("both ends are configured for these")
    carry = _places("packets go by these")
    copies = fields.Boolean(**told("each packet by all of them"))
    join = _place("the client is asked to join this", allow_none=True)
    leave = _place("the client is asked to leave this", allow_none=True)
    steps = fields.List(fields.Nested(StepSchema), **answered())


class HandoverList(PageSchema):
    """A page of handovers."""

    handovers = fields.List(fields.Nested(HandoverSchema), **answered())


def blueprint(desk: Handovers) -> Resource:
    """The resource ``handovers``."""
    found = Resource("handovers", url_prefix=ADDRESS, description="Clients move without loss")
    _reads(found, desk)
    _changes(found, desk)
    return found


def _reads(found: Resource, desk: Handovers) -> None:
    @found.get("")
    @found.arguments(PageQuery, location="query")
    @found.response(200, HandoverList)
    def list_handovers(query: dict[str, Any]) -> ResponseReturnValue:
        """The latest handovers, oldest first."""
        return page("handovers", desk.names(), desk.documents, query)

    @found.get("/<id:handover>")
    @found.response(200, HandoverSchema)
    @found.alt_response(404, schema=ProblemSchema)
    def show_handover(handover: str) -> ResponseReturnValue:
        """One handover."""
        return reply(desk.document(handover))


def _changes(found: Resource, desk: Handovers) -> None:
    @found.post("")
    @found.arguments(HandoverRequest)
    @found.arguments(WaitQuery, location="query")
    @found.response(201, HandoverSchema, description="its flows have moved, or it failed")
    @found.alt_response(202, schema=OperationSchema, description="wait=false, or not within 10 s")
    @found.alt_response(409, schema=ProblemSchema, description="the client is there already")
    @found.alt_response(503, schema=ProblemSchema, description="too many handovers")
    def begin_handover(body: dict[str, Any], query: dict[str, Any]) -> ResponseReturnValue:
        """Move a client; answered once its flows have moved, or it failed."""
        return _answer(desk, desk.request(body, wait_s=WAIT_S if query["wait"] else 0.0))

    @found.delete("/<id:handover>")
    @found.response(200, HandoverSchema)
    @found.alt_response(404, schema=ProblemSchema)
    @found.alt_response(409, schema=ProblemSchema, description="its flows have moved, or it is over")
    def cancel_handover(handover: str) -> ResponseReturnValue:
        """Give a handover up, as long as nothing has moved."""
        return reply(desk.cancel(handover))


def _answer(desk: Handovers, document: Document) -> Response:
    name, address = document["id"], f"{ADDRESS}/{document['id']}"
    later = partial(accepted, f"handover {name}", address, partial(_pending, desk, name))
    return confirmed(lambda: reply(document, 201, location=address) if _has_moved(document) else None, later)


def _pending(desk: Handovers, name: str) -> list[str]:
    """What the operation waits for; one that failed says why."""
    document = desk.document(name)
    if document["phase"] == "failed":
        raise ConflictError(document["reason"])
    return [] if _has_moved(document) else [f"handover {name}: {document['phase']}"]


def _has_moved(document: Document) -> bool:
    return document["over"] or document["moved_after_s"] is not None
