"""Multicast sessions: who sends to whom over which trees; joins and leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol
from urllib.parse import quote

from flask import Response
from flask.typing import ResponseReturnValue
from marshmallow import Schema, fields, validate

from .contract import PREFIX, Document
from .operations import accepted, confirmed
from .resource import Resource, page, reply
from .schemas import Number, OperationSchema, PageQuery, PageSchema, ProblemSchema, Strict, WaitQuery, answered, told

ADDRESS = f"{PREFIX}/sessions"
MAX_NAME = 64
MAX_PARTICIPANTS = 64
_UNCONFIRMED = "wait=false, or not confirmed in time"


class Sessions(Protocol):
    """What this resource needs of the controller; documents as in docs/explanation/sessions.md."""

    def names(self) -> Sequence[str]:
        """Ids of all sessions in order of declaration."""

    def documents(self, names: Sequence[str]) -> list[Document]:
        """These, as far as they are there."""

    def document(self, name: str) -> Document:
        """One; NotFoundError."""

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

    name = fields.String(
        required=True,
        validate=validate.Length(1, MAX_NAME),
        metadata={"description": "node id, or MAC or IP address of a host"},
    )
    source = fields.Boolean(load_default=True, metadata={"description": "may send, too"})


class SessionChange(Strict):
    """What may change of a session."""

    participants = fields.List(
        fields.String(validate=validate.Length(1, MAX_NAME)), validate=validate.Length(0, MAX_PARTICIPANTS)
    )
    sources = fields.List(
        fields.String(validate=validate.Length(1, MAX_NAME)),
        allow_none=True,
        validate=validate.Length(0, MAX_PARTICIPANTS),
        metadata={"description": "participants that may send; null: all"},
    )
    rate_mbps = Number(
        allow_none=True,
        validate=validate.Range(min=0, min_inclusive=False, max=1e6),
        metadata={"description": "what each source is counted with; null: what it is measured to send"},
    )
    membership = fields.Boolean(metadata={"description": "hosts join and leave by IGMP and MLD as well"})


class SessionDeclaration(SessionChange):
    """A session."""

    id = fields.String(required=True, validate=validate.Length(1, MAX_NAME))
    group = fields.String(
        required=True,
        validate=validate.Length(1, MAX_NAME),
        metadata={"description": "multicast IP address wider than a link, or group MAC address"},
    )


class ParticipantSchema(Schema):
    """A participant."""

    name = fields.String(**told("as declared"))
    node = fields.String(**told("where it is; null: not known", allow_none=True))
    mac = fields.String(**answered(allow_none=True))
    ip = fields.String(**answered(allow_none=True))
    source = fields.Boolean(**told("it may send, too"))
    reached = fields.Boolean(**told("messages of the others get there"))


class TreeSchema(Schema):
    """The tree of one source."""

    source = fields.String(**told("node id"))
    transmissions = fields.List(
        fields.List(fields.String()), **told("link ids; those of one row are served by one transmission")
    )
    label = fields.Integer(**answered(allow_none=True))
    lost = fields.List(fields.String(), **told("nodes that it does not reach now"))
    airtime_ms_per_mb = fields.Float(**answered(allow_none=True))
    sent_mbps = fields.Float(**told("measured; null: not yet", allow_none=True))


class SessionSchema(Schema):
    """A session and its trees."""

    id = fields.String(**answered())
    group = fields.String(**answered())
    mac = fields.String(**told("Ethernet address of its frames"))
    rate_mbps = fields.Float(**told("what each source is counted with", allow_none=True))
    membership = fields.Boolean(**answered())
    state = fields.String(**answered(validate=validate.OneOf(["active", "activating", "partial"])))
    pending = fields.List(fields.String(), **told("what has not confirmed yet"))
    participants = fields.List(fields.Nested(ParticipantSchema), **answered())
    airtime_per_mbps = fields.Float(**told("share of the busiest domain if every source sends 1 Mb/s", allow_none=True))
    trees = fields.List(fields.Nested(TreeSchema), **answered())


class SessionList(PageSchema):
    """A page of sessions."""

    sessions = fields.List(fields.Nested(SessionSchema), **answered())


def blueprint(desk: Sessions) -> Resource:
    """The resource ``sessions``."""
    about = "Multicast sessions: participants that send to each other without a server"
    blueprint = Resource("sessions", url_prefix=ADDRESS, description=about)
    _reads(blueprint, desk)
    _declares(blueprint, desk)
    _changes(blueprint, desk)
    _participants(blueprint, desk)
    return blueprint


def _answer(desk: Sessions, name: str, what: str, do: Callable[[], Document], *, wait: bool) -> Response:
    """The session once it is confirmed, else an operation."""
    later = partial(accepted, f"{what} {name}", _address(name), partial(desk.pending, name))
    return confirmed(lambda: reply(do()), later, wait=wait)


def _address(name: str) -> str:
    return f"{ADDRESS}/{quote(name, safe='')}"


def _reads(blueprint: Resource, desk: Sessions) -> None:
    @blueprint.get("")
    @blueprint.arguments(PageQuery, location="query")
    @blueprint.response(200, SessionList)
    def list_sessions(query: dict[str, Any]) -> ResponseReturnValue:
        """All sessions in order of declaration."""
        return page("sessions", desk.names(), desk.documents, query)

    @blueprint.get("/<id:session>")
    @blueprint.response(200, SessionSchema)
    @blueprint.alt_response(404, schema=ProblemSchema)
    def show_session(session: str) -> ResponseReturnValue:
        """One session."""
        return reply(desk.document(session))


def _declares(blueprint: Resource, desk: Sessions) -> None:
    @blueprint.post("")
    @blueprint.arguments(SessionDeclaration)
    @blueprint.arguments(WaitQuery, location="query")
    @blueprint.response(201, SessionSchema, description="new, and confirmed by all switches")
    @blueprint.alt_response(200, schema=SessionSchema, description="was declared like this before; confirmed")
    @blueprint.alt_response(202, schema=OperationSchema, description=_UNCONFIRMED)
    @blueprint.alt_response(409, schema=ProblemSchema, description="id or group taken, or somebody can't be reached")
    @blueprint.alt_response(503, schema=ProblemSchema, description="too many sessions, or the controller is starting")
    def declare_session(body: dict[str, Any], query: dict[str, Any]) -> ResponseReturnValue:
        """Declare a session; answered once all switches confirmed its trees."""
        name = body["id"]

        def declare() -> Response:
            document, new = desk.declare(body, wait=query["wait"])
            return reply(document, 201 if new else 200, location=_address(name))

        later = partial(accepted, f"declare session {name}", _address(name), partial(desk.pending, name))
        return confirmed(declare, later, wait=query["wait"])


def _changes(blueprint: Resource, desk: Sessions) -> None:
    @blueprint.patch("/<id:session>")
    @blueprint.arguments(SessionChange)
    @blueprint.arguments(WaitQuery, location="query")
    @blueprint.response(200, SessionSchema)
    @blueprint.alt_response(202, schema=OperationSchema, description=_UNCONFIRMED)
    @blueprint.alt_response(404, schema=ProblemSchema)
    @blueprint.alt_response(409, schema=ProblemSchema, description="somebody can't be reached; nothing changed")
    @blueprint.alt_response(503, schema=ProblemSchema, description="the controller is starting")
    def change_session(body: dict[str, Any], query: dict[str, Any], session: str) -> ResponseReturnValue:
        """Change participants, sources or rate; what is not given stays."""
        change = partial(desk.change, session, body, wait=query["wait"])
        return _answer(desk, session, "change session", change, wait=query["wait"])

    @blueprint.delete("/<id:session>")
    @blueprint.arguments(WaitQuery, location="query")
    @blueprint.response(204, description="nothing enters its trees any more")
    @blueprint.alt_response(202, schema=OperationSchema, description=_UNCONFIRMED)
    @blueprint.alt_response(404, schema=ProblemSchema)
    def remove_session(query: dict[str, Any], session: str) -> ResponseReturnValue:
        """End a session; its group is flooded again."""
        later = partial(accepted, f"remove session {session}", None, partial(desk.pending, session))

        def remove() -> Response:
            desk.remove(session, wait=query["wait"])
            return Response(status=204)

        return confirmed(remove, later, wait=query["wait"])


def _participants(blueprint: Resource, desk: Sessions) -> None:
    @blueprint.post("/<id:session>/participants")
    @blueprint.arguments(ParticipantName)
    @blueprint.arguments(WaitQuery, location="query")
    @blueprint.response(200, SessionSchema)
    @blueprint.alt_response(202, schema=OperationSchema, description=_UNCONFIRMED)
    @blueprint.alt_response(404, schema=ProblemSchema)
    @blueprint.alt_response(409, schema=ProblemSchema, description="it can't be reached; nothing changed")
    @blueprint.alt_response(503, schema=ProblemSchema, description="the controller is starting")
    def join_session(body: dict[str, Any], query: dict[str, Any], session: str) -> ResponseReturnValue:
        """Join; the others lose and double nothing."""
        join = partial(desk.join, session, body, wait=query["wait"])
        return _answer(desk, session, "join session", join, wait=query["wait"])

    @blueprint.delete("/<id:session>/participants/<string:participant>")
    @blueprint.arguments(WaitQuery, location="query")
    @blueprint.response(200, SessionSchema)
    @blueprint.alt_response(202, schema=OperationSchema, description=_UNCONFIRMED)
    @blueprint.alt_response(404, schema=ProblemSchema)
    def leave_session(query: dict[str, Any], session: str, participant: str) -> ResponseReturnValue:
        """Leave; the others lose and double nothing."""
        leave = partial(desk.leave, session, participant, wait=query["wait"])
        return _answer(desk, session, "leave session", leave, wait=query["wait"])
