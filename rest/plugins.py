"""Plugins: which there are, whether they run, what they did wrong; enabled and disabled by hand."""

from __future__ import annotations

from typing import Protocol

from flask import jsonify
from flask.typing import ResponseReturnValue
from flask_smorest import Blueprint
from hyroads.rest.contract import PREFIX, Document
from hyroads.rest.schemas import ProblemSchema
from marshmallow import Schema, fields


class Plugins(Protocol):
    """What this resource needs of the controller; documents as in docs/plugins.md, section 4."""

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

    kind = fields.String(metadata={"description": "raised, wrong answer, hung, exited"})
    what = fields.String()
    age_s = fields.Float()


class Faults(Schema):
    """What a plugin did wrong."""

    total = fields.Integer()
    recent = fields.Integer(metadata={"description": "within the last minute; three disable it for a while"})
    times_disabled = fields.Integer()
    last = fields.Nested(LastFault, allow_none=True)


class CallTimes(Schema):
    """How long the last calls took, ms."""

    p50 = fields.Float()
    max = fields.Float()


class Process(Schema):
    """The process of a foreign plugin."""

    pid = fields.Integer()
    starts = fields.Integer()
    calls = fields.Integer()
    call_ms = fields.Nested(CallTimes, allow_none=True)
    memory_mb = fields.Float(allow_none=True)
    cpu_s = fields.Float(allow_none=True)


class PluginSchema(Schema):
    """A plugin."""

    name = fields.String()
    kind = fields.String(metadata={"description": "app, policy, mobility"})
    origin = fields.String(metadata={"description": "built in, package NAME VERSION, or file PATH"})
    role = fields.String(allow_none=True, metadata={"description": "what it may ask for; null: it asks for nothing"})
    state = fields.String(
        metadata={"description": "running; starting; disabled (for a while, after faults); off (nobody wants it)"}
    )
    enabled_in_s = fields.Float(allow_none=True)
    faults = fields.Nested(Faults)
    process = fields.Nested(Process, allow_none=True)


class PluginList(Schema):
    """Plugins."""

    plugins = fields.List(fields.Nested(PluginSchema))


def blueprint(desk: Plugins) -> Blueprint:
    """The resource ``plugins``."""
    blueprint = Blueprint("plugins", "plugins", url_prefix=f"{PREFIX}/plugins", description="Plugins and their health")

    @blueprint.get("")
    @blueprint.response(200, PluginList)
    def list_plugins() -> ResponseReturnValue:
        """All plugins."""
        return jsonify({"plugins": desk.documents()})

    @blueprint.get("/<string:name>")
    @blueprint.response(200, PluginSchema)
    @blueprint.alt_response(404, schema=ProblemSchema)
    def show_plugin(name: str) -> ResponseReturnValue:
        """One plugin."""
        return jsonify(desk.document(name))

    @blueprint.post("/<string:name>/enable")
    @blueprint.response(200, PluginSchema)
    @blueprint.alt_response(404, schema=ProblemSchema)
    @blueprint.alt_response(504, schema=ProblemSchema, description="it did not start in time")
    def enable_plugin(name: str) -> ResponseReturnValue:
        """Start a plugin; what it did before is forgiven."""
        return jsonify(desk.enable(name))

    @blueprint.post("/<string:name>/disable")
    @blueprint.response(200, PluginSchema)
    @blueprint.alt_response(404, schema=ProblemSchema)
    @blueprint.alt_response(409, schema=ProblemSchema, description="others fall back on it")
    def disable_plugin(name: str) -> ResponseReturnValue:
        """End a plugin until it is enabled again."""
        return jsonify(desk.disable(name))

    return blueprint
