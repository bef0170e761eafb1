"""n-casts: a flow's packets go by several paths at once; switched on and off on a live flow without losing any."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

from flask import Response
from flask.typing import ResponseReturnValue
from marshmallow import Schema, fields, validate

from .contract import Document, Listed
from .operations import UNCONFIRMED, confirmed
from .owners import REFUSED, check, claimed, owner_field
from .resource import Collection, Resource, reply
from .schemas import Strict, about, identifier, required

WAIT_S = 5.0


class NCasts(Listed, Protocol):
    """What this resource needs of the controller; documents as in docs/reference/handovers.md."""

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

    flow = identifier(required=True)
    copies = fields.Integer(strict=True, load_default=2, validate=validate.Range(2, 4))
    paths = fields.List(
        fields.List(identifier(longest=80), validate=validate.Length(1, 64)),
        validate=validate.Length(2, 4),
        **about("link ids; without them paths with disjoint interference domains are chosen"),
    )


class NCastSchema(Schema):
    """An n-cast."""

    flow = fields.String(**required())
    owner = owner_field()
    copies = fields.Integer(**required())
    phase = fields.String(**required("preparing, copying, draining, closing"))
    reason = fields.String(**required("why it failed", allow_none=True))
    paths = fields.List(fields.List(fields.String()), **required("link ids"))
    shared_links = fields.Integer(**required("that two paths have in common; null: paths were given", allow_none=True))
    contending_pairs = fields.Integer(**required("links of two paths that contend", allow_none=True))
    expected_loss = fields.Float(**required("if links lose independently, as declared", allow_none=True))
    pending = fields.List(fields.String(), **required("what has not confirmed it yet"))
    copying_after_s = fields.Float(**required("until copies were sent, confirmed", allow_none=True))


def blueprint(service: NCasts) -> Resource:
    """The resource ``ncasts``."""
    text = "Copies of a flow's packets over several paths"
    found = Collection("ncasts", "<id:flow>", NCastSchema, text, owned=True, key="flow")
    found.reads(service, "All n-casts.", "The n-cast of a flow.")

    @found.creates(
        NCastRequest,
        {
            201: "copies are sent, confirmed by both agents",
            202: UNCONFIRMED,
            403: REFUSED,
            409: "it is n-cast already, or has a single path only",
            503: "too many n-casts",
        },
    )
    def switch_on(body: dict[str, Any], query: dict[str, Any]) -> ResponseReturnValue:
        """Switch an n-cast on; answered once copies are sent."""
        with claimed("ncasts", body["flow"]):
            check([("flows", body["flow"])])
            document = service.switch_on(body, wait_s=WAIT_S if query["wait"] else 0.0)
        flow, address = document["flow"], found.address(document["flow"])
        is_on = document["copying_after_s"] is not None and not service.pending(flow)

        def copying() -> Response | None:
            return reply(found.shown(document), 201, location=address) if is_on else None

        return confirmed(f"n-cast of {flow}", address, partial(service.pending, flow), copying)

    @found.operation("delete", found.one, {204: "one path carries it again", 202: UNCONFIRMED, 404: None})
    def switch_off(query: dict[str, Any], flow: str) -> ResponseReturnValue:
        """Switch an n-cast off; the flow uses again what it is declared to use."""
        is_off = service.switch_off(flow, wait_s=WAIT_S if query["wait"] else 0.0)
        end = partial(service.pending_end, flow)
        return confirmed(f"end of n-cast of {flow}", None, end, lambda: Response(status=204) if is_off else None)

    return found
