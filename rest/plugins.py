"""Plugins: which there are, whether they run, what they did wrong; enabled and disabled by hand."""

from __future__ import annotations

from typing import Any, Protocol

from flask.typing import ResponseReturnValue
from marshmallow import Schema, fields

from .contract import PREFIX, Document
from .resource import Resource, pages, reply
from .schemas import PageQuery, PageSchema, ProblemSchema, answered, told


class Plugins(Protocol):
    """What this resource needs of the controller; documents as in docs/reference/plugins.md, section 4."""

    def documents(self) -> list[Document]:
        """All plugins, by kind and name."""

    def document(self, name: str) -> Document:
        """One; NotFoundError."""

    def enable(self, name: str) -> Document:
        """Start it, whatever it did before; once it runs. NotFoundError, NotConfirmedError."""

    def disable(self, name: str) -> Document:
        """End it until it is enabled. NotFoundError, ConflictError."""


class LastFault(Schema):
    """What a plugin did wrong last."""

    kind = fields.String(**told("raised, wrong answer, hung, exited"))
    what = fields.String(**answered())
    age_s = fields.Float(**answered())


class Faults(Schema):
    """What a plugin did wrong."""

    total = fields.Integer(**answered())
    recent = fields.Integer(**told("within the last minute; three disable it for a while"))
    times_disabled = fields.Integer(**answered())
    last = fields.Nested(LastFault, **answered(allow_none=True))


class CallTimes(Schema):
    """How long the last calls took, ms."""

    p50 = fields.Float(**answered())
    max = fields.Float(**answered())


class Process(Schema):
    """The process of a foreign plugin."""

    pid = fields.Integer(**answered())
    starts = fields.Integer(**answered())
    calls = fields.Integer(**answered())
    call_ms = fields.Nested(CallTimes, **answered(allow_none=True))
    memory_mb = fields.Float(**answered(allow_none=True))
    cpu_s = fields.Float(**answered(allow_none=True))


class PluginSchema(Schema):
    """A plugin."""

    name = fields.String(**answered())
    kind = fields.String(**told("app, policy, mobility"))
    origin = fields.String(**told("built in, package NAME VERSION, or file PATH"))
    role = fields.String(**told("what it may ask for; null: it asks for nothing", allow_none=True))
    state = fields.String(**told("running; starting; disabled (for a while, after faults); off (nobody wants it)"))
    enabled_in_s = fields.Float(**answered(allow_none=True))
    faults = fields.Nested(Faults, **answered())
    process = fields.Nested(Process, **told("null: built in, or it does not run", allow_none=True))


class PluginList(PageSchema):
    """A page of plugins."""

    plugins = fields.List(fields.Nested(PluginSchema), **answered())


def blueprint(desk: Plugins) -> Resource:
    """The resource ``plugins``."""
    found = Resource("plugins", url_prefix=f"{PREFIX}/plugins", description="Plugins and their health")

    @found.get("")
    @found.arguments(PageQuery, location="query")
    @found.response(200, PluginList)
    def list_plugins(query: dict[str, Any]) -> ResponseReturnValue:
        """All plugins, by kind and name."""
        return pages("plugins", desk.documents(), query, "name")

    @found.get("/<string:name>")
    @found.response(200, PluginSchema)
    @found.alt_response(404, schema=ProblemSchema)
    def show_plugin(name: str) -> ResponseReturnValue:
        """One plugin."""
        return reply(desk.document(name))

    @found.post("/<string:name>/enable")
    @found.response(200, PluginSchema)
    @found.alt_response(404, schema=ProblemSchema)
    @found.alt_response(504, schema=ProblemSchema, description="it did not start in time")
    def enable_plugin(name: str) -> ResponseReturnValue:
        """Start a plugin; what it did before is forgiven."""
        return reply(desk.enable(name))

    @found.post("/<string:name>/disable")
    @found.response(200, PluginSchema)
    @found.alt_response(404, schema=ProblemSchema)
    @found.alt_response(409, schema=ProblemSchema, description="others fall back on it")
    def disable_plugin(name: str) -> ResponseReturnValue:
        """End a plugin until it is enabled again."""
        return reply(desk.disable(name))

    return found
