"""n-casts: a flow's packets go by several paths at once; switched on and off on a live flow without losing any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol
from urllib.parse import quote

from flask import Response
from flask.typing import ResponseReturnValue
from marshmallow import Schema, fields, validate

from .contract import PREFIX, Document
from .operations import accepted, confirmed
from .resource import Resource, page, reply
from .schemas import OperationSchema, PageQuery, PageSchema, ProblemSchema, Strict, WaitQuery, answered, told

ADDRESS = f"{PREFIX}/ncasts"
WAIT_S = 5.0


class NCasts(Protocol):
    """What this resource needs of the controller; documents as in docs/explanation/services.md, section 5."""

    def names(self) -> Sequence[str]:
        """Flows that are n-cast, in order."""

    def documents(self, names: Sequence[str]) -> list[Document]:
        """These, as far as they are there."""

    def document(self, flow: str) -> Document:
        """One; NotFoundError."""

    def switch_on(self, body: Mapping[str, Any], *, wait_s: float = 0.0) -> Document:
        """Copies for a flow. ConfigError, ConflictError, TooBusyError."""

    def switch_off(self, flow: str, *, wait_s: float = 0.0) -> bool:
        """One path again, then what the flow is declared to use; whether that is so already. NotFoundError."""

    def pending(self, flow: str) -> list[str]:
        """What has to happen until copies are sent and that is saved; NotFoundError, NotSavedError."""

    def pending_end(self, flow: str) -> list[str]:
        """What has to happen until an n-cast is over and that is saved."""


class NCastRequest(Strict):
    """Copies for a flow."""

    flow = fields.String(required=True, validate=validate.Length(1, 64))
    copies = fields.Integer(strict=True, load_default=2, validate=validate.Range(2, 4))
    paths = fields.List(
        fields.List(fields.String(validate=validate.Length(1, 80)), validate=validate.Length(1, 64)),
        validate=validate.Length(2, 4),
        metadata={"description": "link ids; without them paths with disjoint interference domains are chosen"},
    )


class NCastSchema(Schema):
    """An n-cast."""

    flow = fields.String(**answered())
    copies = fields.Integer(**answered())
    phase = fields.String(**told("preparing, copying, draining, closing"))
    reason = fields.String(**told("why it failed", allow_none=True))
    paths = fields.List(fields.List(fields.String()), **told("link ids"))
    shared_links = fields.Integer(**told("that two paths have in common; null: paths were given", allow_none=True))
    contending_pairs = fields.Integer(**told("links of two paths that contend", allow_none=True))
    expected_loss = fields.Float(**told("if links lose independently, as declared", allow_none=True))
    copying_after_s = fields.Float(**told("until copies were sent, confirmed", allow_none=True))


class NCastList(PageSchema):
    """A page of n-casts."""

    ncasts = fields.List(fields.Nested(NCastSchema), **answered())


def blueprint(desk: NCasts) -> Resource:
    """The resource ``ncasts``."""
    found = Resource("ncasts", url_prefix=ADDRESS, description="Copies of a flow's packets over several paths")
    _reads(found, desk)
    _changes(found, desk)
    return found


def _reads(found: Resource, desk: NCasts) -> None:
    @found.get("")
    @found.arguments(PageQuery, location="query")
    @found.response(200, NCastList)
    def list_ncasts(query: dict[str, Any]) -> ResponseReturnValue:
        """All n-casts."""
        return page("ncasts", desk.names(), desk.documents, query)

    @found.get("/<id:flow>")
    @found.response(200, NCastSchema)
    @found.alt_response(404, schema=ProblemSchema)
    def show_ncast(flow: str) -> ResponseReturnValue:
        """The n-cast of a flow."""
        return reply(desk.document(flow))


def _changes(found: Resource, desk: NCasts) -> None:
    @found.post("")
    @found.arguments(NCastRequest)
    @found.arguments(WaitQuery, location="query")
    @found.response(201, NCastSchema, description="copies are sent, confirmed by both agents")
    @found.alt_response(202, schema=OperationSchema, description="wait=false, or not confirmed in time")
    @found.alt_response(409, schema=ProblemSchema, description="it is n-cast already, or has a single way only")
    @found.alt_response(503, schema=ProblemSchema, description="too many n-casts")
    def switch_on(body: dict[str, Any], query: dict[str, Any]) -> ResponseReturnValue:
        """Switch an n-cast on; answered once copies are sent."""
        document = desk.switch_on(body, wait_s=WAIT_S if query["wait"] else 0.0)
        flow = document["flow"]
        address = f"{ADDRESS}/{quote(flow, safe='')}"
        later = partial(accepted, f"n-cast of {flow}", address, partial(desk.pending, flow))
        is_on = document["copying_after_s"] is not None and not desk.pending(flow)
        return confirmed(lambda: reply(document, 201, location=address) if is_on else None, later)

    @found.delete("/<id:flow>")
    @found.arguments(WaitQuery, location="query")
    @found.response(204, description="one path carries it again")
    @found.alt_response(202, schema=OperationSchema, description="wait=false, or not confirmed in time")
    @found.alt_response(404, schema=ProblemSchema)
    def switch_off(query: dict[str, Any], flow: str) -> ResponseReturnValue:
        """Switch an n-cast off; the flow uses again what it is declared to use."""
        is_off = desk.switch_off(flow, wait_s=WAIT_S if query["wait"] else 0.0)
        later = partial(accepted, f"end of n-cast of {flow}", None, partial(desk.pending_end, flow))
        return confirmed(lambda: Response(status=204) if is_off else None, later)
