"""Reservations: least rates of flows and of sources of sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import quote

from flask import Response
from flask.typing import ResponseReturnValue
from marshmallow import Schema, fields, validate

from .contract import PREFIX, Document
from .resource import Resource, page, reply
from .schemas import Number, PageQuery, PageSchema, ProblemSchema, Strict, answered, told

ADDRESS = f"{PREFIX}/reservations"
_FULL = "the airtime does not exist (possible_mbps, missing_mbps, domains), or the id or its subject has one"
_RATE = validate.Range(min=0, min_inclusive=False, max=1e6)


class Reservations(Protocol):
    """What this resource needs of the controller; documents as in docs/explanation/sessions.md, section 4."""

    def names(self) -> Sequence[str]:
        """Ids of all reservations, in the order in which they go before each other."""

    def documents(self, names: Sequence[str]) -> list[Document]:
        """These, as far as they are there."""

    def document(self, name: str) -> Document:
        """One; NotFoundError."""

    def reserve(self, document: Mapping[str, Any]) -> tuple[Document, bool]:
        """A promise, and whether it is new. ConfigError, ConflictError (not admitted), TooBusyError."""

    def change(self, name: str, document: Mapping[str, Any]) -> Document:
        """Another rate; errors as of :meth:`reserve`, and NotFoundError."""

    def release(self, name: str) -> None:
        """Promise no more; NotFoundError."""


class RateChange(Strict):
    """Another rate."""

    rate_mbps = Number(required=True, validate=_RATE)


class ReservationDeclaration(RateChange):
    """A least rate for a flow, or for every source of a session."""

    id = fields.String(required=True, validate=validate.Length(1, 64))
    flow = fields.String(allow_none=True, validate=validate.Length(1, 64))
    session = fields.String(allow_none=True, validate=validate.Length(1, 64))


class ReservationSchema(Schema):
    """A reservation and what became of it."""

    id = fields.String(**answered())
    flow = fields.String(**answered(allow_none=True))
    session = fields.String(**answered(allow_none=True))
    rate_mbps = fields.Float(**told("promised"))
    state = fields.String(
        **told(
            "short: capacity has fallen; idle: there is no such flow or session, or nobody paces it",
            validate=validate.OneOf(["kept", "short", "idle"]),
        )
    )
    given_mbps = fields.Float(**told("what is kept of it now", allow_none=True))


class ReservationList(PageSchema):
    """A page of reservations."""

    reservations = fields.List(fields.Nested(ReservationSchema), **answered())


def blueprint(desk: Reservations) -> Resource:
    """The resource ``reservations``."""
    blueprint = Resource("reservations", url_prefix=ADDRESS, description="Least rates of flows and sessions")
    _reads(blueprint, desk)
    _writes(blueprint, desk)
    return blueprint


def _reads(blueprint: Resource, desk: Reservations) -> None:
    @blueprint.get("")
    @blueprint.arguments(PageQuery, location="query")
    @blueprint.response(200, ReservationList)
    def list_reservations(query: dict[str, Any]) -> ResponseReturnValue:
        """All reservations; those in front go before the others where not all can be kept."""
        return page("reservations", desk.names(), desk.documents, query)

    @blueprint.get("/<id:reservation>")
    @blueprint.response(200, ReservationSchema)
    @blueprint.alt_response(404, schema=ProblemSchema)
    def show_reservation(reservation: str) -> ResponseReturnValue:
        """One reservation."""
        return reply(desk.document(reservation))


def _writes(blueprint: Resource, desk: Reservations) -> None:
    @blueprint.post("")
    @blueprint.arguments(ReservationDeclaration)
    @blueprint.response(201, ReservationSchema, description="admitted; kept from the next slot on")
    @blueprint.alt_response(200, schema=ReservationSchema, description="was made like this before")
    @blueprint.alt_response(409, schema=ProblemSchema, description=_FULL)
    @blueprint.alt_response(503, schema=ProblemSchema, description="too many, or the controller is starting")
    def reserve(body: dict[str, Any]) -> ResponseReturnValue:
        """Reserve a least rate; admitted if and only if some allocation keeps all that was promised."""
        document, new = desk.reserve(body)
        return reply(document, 201 if new else 200, location=f"{ADDRESS}/{quote(document['id'], safe='')}")

    @blueprint.patch("/<id:reservation>")
    @blueprint.arguments(RateChange)
    @blueprint.response(200, ReservationSchema)
    @blueprint.alt_response(404, schema=ProblemSchema)
    @blueprint.alt_response(409, schema=ProblemSchema, description=_FULL)
    @blueprint.alt_response(503, schema=ProblemSchema, description="the controller is starting")
    def change_reservation(body: dict[str, Any], reservation: str) -> ResponseReturnValue:
        """Change the rate; it keeps its place among the others."""
        return reply(desk.change(reservation, body))

    @blueprint.delete("/<id:reservation>")
    @blueprint.response(204)
    @blueprint.alt_response(404, schema=ProblemSchema)
    def release(reservation: str) -> ResponseReturnValue:
        """Promise no more."""
        desk.release(reservation)
        return Response(status=204)
