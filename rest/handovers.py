"""Handovers: a client's flows move from one place to another; which are on their way, and what became of the others."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

from flask import Response
from flask.typing import ResponseReturnValue
from marshmallow import Schema, fields, validate

from .contract import OPERATOR, ConflictError, Document, Listed
from .operations import UNCONFIRMED, confirmed
from .owners import check, owner_field, principal
from .resource import Collection, Resource, reply
from .schemas import Number, PlaceSchema, Strict, about, identifier, required

WAIT_S = 10.0
MAX_SECONDS = 60.0


class Handovers(Listed, Protocol):
    """What this resource needs of the controller; documents as in docs/reference/handovers.md.

    Listed are the latest, oldest first: those that are over, on their way, and waiting.
    """

    def request(self, body: Mapping[str, Any], *, owner: str, wait_s: float = 0.0) -> Document:
        """Move a client; answers once its flows have moved, or it failed. ConfigError, ConflictError, TooBusyError."""

    def cancel(self, handover: str, *, wait_s: float = 0.0) -> Document:
        """Give one up before anything has moved; answers once all is as before. NotFoundError, ConflictError."""


def _seconds() -> Number:
    return Number(validate=validate.Range(0.0, MAX_SECONDS))


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

    client = identifier("node id", required=True)
    to = fields.Nested(
        PlaceSchema, required=True, allow_none=True, **about("null: the client's flows use all its places again")
    )
    manager = identifier(
        "hard, hoolock (default), bicast, vertical, vertical-bicast, or a plugin's; of a client without an agent hard "
        "alone",
        41,
    )
    flows = fields.List(identifier(), validate=validate.Length(1, 1000), **about("ids; all of the client without it"))
    timings = fields.Nested(TimingsSchema)


def _place(text: str, **options: Any) -> Any:
    return fields.Nested(PlaceSchema, **required(text, **options))


def _places(text: str) -> Any:
    return fields.List(fields.Nested(PlaceSchema), **required(text))


class StepSchema(Schema):
    """When it came into a phase."""

    phase = fields.String(**required())
    after_s = fields.Float(**required())


class HandoverSchema(Schema):
    """A handover."""

    id = fields.String(**required())
    owner = owner_field()
    client = fields.String(**required("node id"))
    old = _place("null: nowhere, or it has not begun", data_key="from", allow_none=True)
    to = _place("null: all its places", allow_none=True)
    manager = fields.String(**required())
    flows = fields.List(fields.String(), **required("that are handed over"))
    phase = fields.String(**required("waiting, associating, preparing, ..., done, failed"))
    reason = fields.String(**required("why it failed", allow_none=True))
    over = fields.Boolean(**required())
    asked_at = fields.Float(**required("Unix time"))
    moved_after_s = fields.Float(
        **required("until packets went by the new place, confirmed by who sends them", allow_none=True)
    )
    over_after_s = fields.Float(**required(allow_none=True))
    known = _places("both ends are configured for these")
    carry = _places("packets go by these")
    copies = fields.Boolean(**required("each packet by all of them"))
    join = _place("the client is asked to join this", allow_none=True)
    leave = _place("the client is asked to leave this", allow_none=True)
    steps = fields.List(fields.Nested(StepSchema), **required())
    pending = fields.List(fields.String(), **required("switches and agents that have not confirmed where its flows go"))


def blueprint(service: Handovers) -> Resource:
    """The resource ``handovers``."""
    found = Collection("handovers", "<id:handover>", HandoverSchema, "Clients move without loss", owned=True)
    found.reads(service, "The latest handovers, oldest first.", "One handover.")

    @found.creates(
        HandoverRequest,
        {
            201: "its flows have moved, or it failed; confirmed",
            202: "wait=false, or not within 10 s",
            403: "another token's handover of the client is not over",
            409: "the client is there already",
            503: "too many handovers",
        },
    )
    def begin_handover(body: dict[str, Any], query: dict[str, Any]) -> ResponseReturnValue:
        """Move a client; answered once its flows have moved, or it failed."""
        # A new one cancels the one that waits or has moved nothing yet.
        check([("clients", body["client"])])
        owner = principal().name or OPERATOR
        document = service.request(body, owner=owner, wait_s=WAIT_S if query["wait"] else 0.0)
        name, address = document["id"], found.address(document["id"])

        def moved() -> Response | None:
            return reply(found.shown(document), 201, location=address) if _has_moved(document) else None

        return confirmed(f"handover {name}", address, partial(_pending, service, name), moved)

    answers: dict[int, str | None] = {200: None, 202: UNCONFIRMED, 404: None}

    @found.operation("delete", found.one, {**answers, 409: "its flows have moved, or it is over"})
    def cancel_handover(query: dict[str, Any], handover: str) -> ResponseReturnValue:
        """Give a handover up, as long as nothing has moved; answered once all is as before."""
        document = service.cancel(handover, wait_s=WAIT_S if query["wait"] else 0.0)

        def over() -> Response | None:
            return reply(found.shown(document)) if document["over"] and not document["pending"] else None

        pending = partial(_pending_end, service, handover)
        return confirmed(f"end of handover {handover}", found.address(handover), pending, over)

    return found


def _pending(service: Handovers, name: str) -> list[str]:
    """What the operation waits for; one that failed says why, once all is as before."""
    document = service.document(name)
    if document["phase"] == "failed" and not document["pending"]:
        raise ConflictError(document["reason"])
    has_moved = document["over"] or document["moved_after_s"] is not None
    return [*([] if has_moved else [f"handover {name}: {document['phase']}"]), *document["pending"]]


def _pending_end(service: Handovers, name: str) -> list[str]:
    """What has to happen until one that is given up is over, and all is as before."""
    document = service.document(name)
    return [*([] if document["over"] else [f"handover {name}: {document['phase']}"]), *document["pending"]]


def _has_moved(document: Document) -> bool:
    """Whether it has moved or failed, confirmed by all."""
    return (document["over"] or document["moved_after_s"] is not None) and not document["pending"]
