"""Multicast sessions: who sends to whom over which trees; joins and leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from flask import Response
from flask.typing import ResponseReturnValue
from marshmallow import Schema, fields, validate

from .contract import Document, Listed
from .operations import UNCONFIRMED, confirmed, removed
from .owners import REFUSED, claimed, owner_field
from .resource import Collection, Resource, reply
from .schemas import Number, Strict, about, identifier, required

_SOME = validate.Length(0, 64)


class Sessions(Listed, Protocol):
    """What this resource needs of the controller; documents as in docs/reference/sessions.md."""

    def pending(self, name: str) -> list[str]:
        """What has not confirmed its part of a session, or of its end."""

    def declare(self, document: Mapping[str, Any], *, wait: bool) -> tuple[Document, bool]:
        """A session, and whether it is new. ConfigError, ConflictError, TooBusyError, NotConfirmedError."""

    def change(self, name: str, document: Mapping[str, Any], *, wait: bool) -> Document:
        """Other participants, sources or rate; errors as of :meth:`declare`, and NotFoundError."""

    def join(self, name: str, document: Mapping[str, Any], *, wait: bool) -> Document:
        """One more participant; errors as of :meth:`change`."""

    def leave(self, name: str, participant: str, *, wait: bool) -> Document:
        """One participant less; NotFoundError, NotConfirmedError."""

    def remove(self, name: str, *, wait: bool) -> None:
        """End it; NotFoundError, NotConfirmedError."""


class ParticipantName(Strict):
    """Who joins."""

    name = identifier("node id, or MAC or IP address of a host", required=True)
    source = fields.Boolean(load_default=True, **about("may send, too"))


class SessionChange(Strict):
    """What may change of a session."""

    participants = fields.List(identifier(), validate=_SOME)
    sources = fields.List(
        identifier(), allow_none=True, validate=_SOME, **about("participants that may send; null: all")
    )
    rate_mbps = Number(
        allow_none=True,
        validate=validate.Range(min=0, min_inclusive=False, max=1e6),
        **about("what each source is counted with; null: what it is measured to send"),
    )
    membership = fields.Boolean(**about("hosts join and leave by IGMP and MLD as well"))


class SessionDeclaration(SessionChange):
    """A session."""

    id = identifier(required=True)
    group = identifier("multicast IP address wider than a link, or group MAC address", required=True)


class ParticipantSchema(Schema):
    """A participant."""

    name = fields.String(**required("as declared"))
    node = fields.String(**required("where it is; null: not known", allow_none=True))
    mac = fields.String(**required(allow_none=True))
    ip = fields.String(**required(allow_none=True))
    source = fields.Boolean(**required("it may send, too"))
    reached = fields.Boolean(**required("messages of the others get there"))


class TreeSchema(Schema):
    """The tree of one source."""

    source = fields.String(**required("node id"))
    transmissions = fields.List(
        fields.List(fields.String()), **required("link ids; those of one row are served by one transmission")
    )
    label = fields.Integer(**required(allow_none=True))
    lost = fields.List(fields.String(), **required("nodes that it does not reach now"))
    airtime_ms_per_mb = fields.Float(**required(allow_none=True))
    sent_mbps = fields.Float(**required("measured; null: not yet", allow_none=True))


class SessionSchema(Schema):
    """A session and its trees."""

    id = fields.String(**required())
    owner = owner_field()
    group = fields.String(**required())
    mac = fields.String(**required("Ethernet address of its frames"))
    rate_mbps = fields.Float(**required("what each source is counted with", allow_none=True))
    membership = fields.Boolean(**required())
    state = fields.String(**required(validate=validate.OneOf(["active", "activating", "partial"])))
    pending = fields.List(fields.String(), **required("what has not confirmed yet"))
    participants = fields.List(fields.Nested(ParticipantSchema), **required())
    airtime_per_mbps = fields.Float(
        **required("share of the busiest domain if every source sends 1 Mb/s", allow_none=True)
    )
    trees = fields.List(fields.Nested(TreeSchema), **required())


_CHANGED = {200: None, 202: UNCONFIRMED, 404: None}
_STARTING = {503: "the controller is starting"}


def blueprint(service: Sessions) -> Resource:
    """The resource ``sessions``."""
    words = "Multicast sessions: participants that send to each other without a server"
    found = Collection("sessions", "<id:session>", SessionSchema, words, owned=True)
    found.reads(service, "All sessions in order of declaration.", "One session.")
    _declares_and_removes(found, service)
    _changes(found, service)
    return found


def _declares_and_removes(found: Collection, service: Sessions) -> None:
    @found.creates(
        SessionDeclaration,
        {
            201: "new, and confirmed by all switches",
            200: "was declared like this before; confirmed",
            202: UNCONFIRMED,
            403: REFUSED,
            409: "id or group taken, or somebody can't be reached",
            503: "too many sessions, or the controller is starting",
        },
    )
    def declare_session(body: dict[str, Any], query: dict[str, Any]) -> ResponseReturnValue:
        """Declare a session; answered once all switches confirmed its trees."""
        name, address = body["id"], found.address(body["id"])

        def declare() -> Response:
            with claimed("sessions", name):
                document, new = service.declare(body, wait=query["wait"])
            return reply(found.shown(document), 201 if new else 200, location=address)

        pending = partial(service.pending, name)
        return confirmed(f"declare session {name}", address, pending, declare, wait=query["wait"])

    @found.operation("delete", found.one, {204: "nothing enters its trees any more", 202: UNCONFIRMED, 404: None})
    def remove_session(query: dict[str, Any], session: str) -> ResponseReturnValue:
        """End a session; its group is flooded again."""
        return removed("remove session", partial(service.pending, session), service.remove, session, wait=query["wait"])


def _changes(found: Collection, service: Sessions) -> None:
    def answer(what: str, name: str, change: Callable[..., Document], *given: Any, wait: bool) -> Response:
        def do() -> Response:
            return reply(found.shown(change(name, *given, wait=wait)))

        return confirmed(f"{what} {name}", found.address(name), partial(service.pending, name), do, wait=wait)

    @found.operation(
        "patch",
        found.one,
        {**_CHANGED, 409: "somebody can't be reached; nothing changed", **_STARTING},
        body=SessionChange,
    )
    def change_session(body: dict[str, Any], query: dict[str, Any], session: str) -> ResponseReturnValue:
        """Change participants, sources or rate; what is not given stays."""
        return answer("change session", session, service.change, body, wait=query["wait"])

    @found.operation(
        "post",
        f"{found.one}/participants",
        {**_CHANGED, 409: "it can't be reached; nothing changed", **_STARTING},
        body=ParticipantName,
    )
    def join_session(body: dict[str, Any], query: dict[str, Any], session: str) -> ResponseReturnValue:
        """Join; the others lose and double nothing."""
        return answer("join session", session, service.join, body, wait=query["wait"])

    @found.operation("delete", f"{found.one}/participants/<string:participant>", _CHANGED)
    def leave_session(query: dict[str, Any], session: str, participant: str) -> ResponseReturnValue:
        """Leave; the others lose and double nothing."""
        return answer("leave session", session, service.leave, participant, wait=query["wait"])
