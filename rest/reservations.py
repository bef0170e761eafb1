"""Reservations: least rates of flows and of sources of sessions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

from flask import Response
from flask.typing import ResponseReturnValue
from marshmallow import Schema, fields, validate

from .contract import Document, Listed
from .operations import UNCONFIRMED, confirmed, removed
from .owners import REFUSED, check, claimed, owner_field
from .resource import Collection, Resource, reply
from .schemas import Number, Strict, identifier, required

_FULL = "the airtime does not exist (possible_mbps, missing_mbps, domains), or the id or its subject has one"
_RATE = validate.Range(min=0, min_inclusive=False, max=1e6)


class Reservations(Listed, Protocol):
    """What this resource needs of the controller; documents as in docs/reference/sessions.md."""

    def reserve(self, document: Mapping[str, Any], *, wait: bool) -> tuple[Document, bool]:
        """A promise, and whether it is new. ConfigError, ConflictError (not admitted), TooBusyError,
        NotConfirmedError.
        """

    def change(self, name: str, document: Mapping[str, Any], *, wait: bool) -> Document:
        """Another rate; errors as of :meth:`reserve`, and NotFoundError."""

    def release(self, name: str, *, wait: bool) -> None:
        """Promise no more; NotFoundError, NotConfirmedError."""

    def pending(self, name: str) -> list[str]:
        """What has not confirmed a reservation, its last change, or its end."""


class RateChange(Strict):
    """Another rate."""

    rate_mbps = Number(required=True, validate=_RATE)


class ReservationDeclaration(RateChange):
    """A least rate for a flow, or for every source of a session."""

    id = identifier(required=True)
    flow = identifier(allow_none=True)
    session = identifier(allow_none=True)


class ReservationSchema(Schema):
    """A reservation and what became of it."""

    id = fields.String(**required())
    owner = owner_field()
    flow = fields.String(**required(allow_none=True))
    session = fields.String(**required(allow_none=True))
    rate_mbps = fields.Float(**required("promised"))
    state = fields.String(
        **required(
            "activating: not confirmed by all; short: capacity has fallen; idle: there is no such flow or session, or "
            "nobody paces it",
            validate=validate.OneOf(["activating", "kept", "short", "idle"]),
        )
    )
    given_mbps = fields.Float(**required("what is kept of it now", allow_none=True))
    pending = fields.List(fields.String(), **required("what has not confirmed it yet"))


def blueprint(service: Reservations) -> Resource:
    """The resource ``reservations``."""
    text = "Least rates of flows and sessions"
    found = Collection("reservations", "<id:reservation>", ReservationSchema, text, owned=True)
    found.reads(
        service, "All reservations; those in front go before the others where not all can be kept.", "One reservation."
    )

    @found.creates(
        ReservationDeclaration,
        {
            201: "admitted; agents have confirmed the rates that keep it",
            200: "was made like this before; confirmed",
            202: UNCONFIRMED,
            403: REFUSED,
            409: _FULL,
            503: "too many, or the controller is starting",
        },
    )
    def reserve(body: dict[str, Any], query: dict[str, Any]) -> ResponseReturnValue:
        """Reserve a least rate; admitted if and only if some allocation keeps all that was promised."""
        name, address = body["id"], found.address(body["id"])

        def make() -> Response:
            with claimed("reservations", name) as is_new:
                # One that is for a thing keeps its owner from reserving another rate for it.
                named = [(f"{kind}s", body[kind]) for kind in ("flow", "session") if body.get(kind) is not None]
                check(named if is_new else ())
                document, new = service.reserve(body, wait=query["wait"])
            return reply(found.shown(document), 201 if new else 200, location=address)

        return confirmed(f"reservation {name}", address, partial(service.pending, name), make)

    @found.operation(
        "patch",
        found.one,
        {200: None, 202: UNCONFIRMED, 404: None, 409: _FULL, 503: "the controller is starting"},
        body=RateChange,
    )
    def change_reservation(body: dict[str, Any], query: dict[str, Any], reservation: str) -> ResponseReturnValue:
        """Change the rate; it keeps its place among the others."""

        def change() -> Response:
            return reply(found.shown(service.change(reservation, body, wait=query["wait"])))

        address, pending = found.address(reservation), partial(service.pending, reservation)
        return confirmed(f"reservation {reservation}", address, pending, change)

    @found.operation("delete", found.one, {204: "agents send by the rates without it", 202: UNCONFIRMED, 404: None})
    def release(query: dict[str, Any], reservation: str) -> ResponseReturnValue:
        """Promise no more."""
        pending = partial(service.pending, reservation)
        return removed("remove reservation", pending, service.release, reservation, wait=query["wait"])

    return found
