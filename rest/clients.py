"""Clients: who is where, since when, with which addresses; who serves their handovers; forgetting them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from flask import Response
from flask.typing import ResponseReturnValue
from marshmallow import Schema, fields

from .contract import ConflictError, Document
from .operations import UNCONFIRMED, confirmed, removed
from .resource import Collection, Resource, reply
from .schemas import PageSchema, PlaceSchema, Strict, about, identifier

_OPEN = ("asked", "accepted")


class Clients(Protocol):
    """What this resource needs of the controller; documents as in docs/reference/clients.md. ``client`` is an id or
    a MAC."""

    def ids(self) -> Sequence[str]:
        """All clients."""

    def documents(self, clients: Sequence[str]) -> list[Document]:
        """Those of them that are there."""

    def document(self, client: str) -> Document:
        """One; NotFoundError."""

    def prefer(self, client: str, wishes: Mapping[str, Any], *, wait: bool = True) -> Document:
        """Set what is named; NotFoundError, ConfigError, NotConfirmedError."""

    def transition(self, client: str, to: Mapping[str, str], *, wait: bool) -> Document:
        """Ask it to go to another access point; NotFoundError, ConflictError."""

    def forget(self, client: str, *, wait: bool) -> None:
        """As if it had never been here; NotFoundError, ConflictError, NotConfirmedError."""

    def pending(self, client: str) -> list[str]:
        """What has not confirmed where a client is, or that it is nowhere."""


class AddressSchema(Schema):
    """An IP address of an interface."""

    ip = fields.String()
    by_dhcp = fields.Boolean(**about("given by DHCP"))


class TransitionRequest(Strict):
    """Where a client shall go."""

    to = fields.Nested(PlaceSchema, required=True)


class TransitionSchema(Schema):
    """What a client was asked by 802.11v, and what became of it."""

    to = fields.Nested(PlaceSchema)
    state = fields.String(**about("asked, accepted, refused, associated or failed"))
    status = fields.Integer(allow_none=True, **about("the client's answer; 0: it goes"))
    reason = fields.String(allow_none=True)


class AttachmentSchema(Schema):
    """An interface of a client, and where it is."""

    interface = fields.String(**about("MAC"))
    node = fields.String(allow_none=True, **about("null: nowhere"))
    technology = fields.String(allow_none=True, **about("host: a wired access port"))
    known_by = fields.String(**about("traffic, agent or association"))
    signal_dbm = fields.Float(allow_none=True)
    user = fields.String(allow_none=True, **about("as whom it was authenticated (802.1X)"))
    vlan = fields.Integer(allow_none=True, **about("what the RADIUS server gave it"))
    since_s = fields.Float(**about("for how long it has been there"))
    heard_s = fields.Float(**about("how long ago it was last heard"))
    addresses = fields.List(fields.Nested(AddressSchema))
    transition = fields.Nested(TransitionSchema, allow_none=True, **about("the latest"))
    pending = fields.List(fields.String(), **about("switches that have not confirmed its rules"))


class DaemonSchema(Schema):
    """The daemon of a multi-homed client."""

    connected = fields.Boolean()
    mode = fields.String(allow_none=True)
    reported_s = fields.Float(allow_none=True, **about("how long ago it reported"))


class ClientSchema(Schema):
    """A client."""

    id = fields.String(**about("of the network file's node, else the MAC"))
    declared = fields.Boolean(**about("a node of the network file"))
    manager = fields.String(allow_none=True, **about("of its handovers; null: the default"))
    steering = fields.Boolean(**about("whether policies may move it"))
    bound_to = fields.Nested(PlaceSchema, allow_none=True, **about("where alone it may be; null: anywhere"))
    multihomed = fields.Nested(DaemonSchema, allow_none=True, **about("null: it does not report by itself"))
    attachments = fields.List(fields.Nested(AttachmentSchema))


class ClientList(PageSchema):
    """A page of clients."""

    clients = fields.List(fields.Nested(ClientSchema))


class ClientWishes(Strict):
    """What shall be so for a client."""

    manager = identifier("of its handovers; null: the default", 41, allow_none=True)
    steering = fields.Boolean(**about("whether policies may move it"))
    bound_to = fields.Nested(PlaceSchema, allow_none=True, **about("where alone it may be; null: anywhere"))


def blueprint(service: Clients) -> Resource:
    """The resource ``clients``."""
    found = Collection("clients", "<client>", ClientSchema, "Who is where", page=ClientList)
    showing = "One client, by its id or the MAC of one of its interfaces."
    listing = "All clients, in the order of their ids."
    found.reads_by(service.ids, service.documents, service.document, listing, showing)

    @found.operation("patch", found.one, {200: None, 202: UNCONFIRMED, 404: None, 422: None}, body=ClientWishes)
    def prefer(body: dict[str, Any], query: dict[str, Any], client: str) -> ResponseReturnValue:
        """Which manager serves its handovers, whether policies may move it, and where alone it may be; what is not
        named stays.
        """

        def wish() -> Response:
            return reply(service.prefer(client, body, wait=query["wait"]))

        pending = partial(service.pending, client)
        return confirmed(f"preferences of client {client}", found.address(client), pending, wish)

    @found.operation(
        "post",
        f"{found.one}/transition",
        {200: None, 202: "wait=false; confirmed once it has come", 404: None, 409: "it can't be asked"},
        body=TransitionRequest,
        schema=TransitionSchema,
    )
    def ask_to_go(body: dict[str, Any], query: dict[str, Any], client: str) -> ResponseReturnValue:
        """Ask an associated client to go to another access point (802.11v); it may refuse, which is no error."""
        document = service.transition(client, body["to"], wait=query["wait"])

        def ended() -> Response | None:
            return None if document["state"] in _OPEN else reply(document)

        return confirmed(f"ask client {client} to go", found.address(client), partial(_going, service, client), ended)

    @found.operation(
        "delete",
        found.one,
        {204: "all switches have let go of it", 202: UNCONFIRMED, 404: None, 409: "it is declared in the network file"},
    )
    def forget_client(query: dict[str, Any], client: str) -> ResponseReturnValue:
        """Forget a client; answered once all switches have let go of it. It may come again at once."""
        return removed("forget client", partial(service.pending, client), service.forget, client, wait=query["wait"])

    return found


def _going(service: Clients, client: str) -> list[str]:
    """What the operation waits for; one that refused or did not come says why."""
    asked = [one["transition"] for one in service.document(client)["attachments"] if one["transition"] is not None]
    for transition in asked:
        if transition["state"] not in (*_OPEN, "associated"):
            raise ConflictError(transition["reason"] or transition["state"])
    return [f"client {client}: {transition['state']}" for transition in asked if transition["state"] in _OPEN]
