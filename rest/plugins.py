"""Plugins: which there are, whether they run, what they did wrong; enabled and disabled by hand."""

from __future__ import annotations

from typing import Protocol

from flask.typing import ResponseReturnValue
from marshmallow import Schema, fields

from .contract import Document
from .resource import Collection, Resource, reply
from .schemas import required


class Plugins(Protocol):
    """What this resource needs of the controller; documents as in docs/reference/plugins.md, section 4."""

    def documents(self) -> list[Document]:
        """All plugins, by kind and name."""

    def document(self, name: str) -> Document:
        """One; NotFoundError."""

    def enable(self, name: str) -> Document:
        """Start it, whatever it did before; once it runs. NotFoundError, NotConfirmedError, ConflictError."""

    def disable(self, name: str) -> Document:
        """End it until it is enabled. NotFoundError, ConflictError."""


class LastFault(Schema):
    """What a plugin did wrong last."""

    kind = fields.String(**required("raised, wrong answer, hung, exited"))
    what = fields.String(**required())
    age_s = fields.Float(**required())


class Faults(Schema):
    """What a plugin did wrong."""

    total = fields.Integer(**required())
    recent = fields.Integer(**required("within the last minute; three disable it for a while"))
    times_disabled = fields.Integer(**required())
    last = fields.Nested(LastFault, **required(allow_none=True))


class CallTimes(Schema):
    """How long the last calls took, ms."""

    p50 = fields.Float(**required())
    max = fields.Float(**required())


class Process(Schema):
    """The process of a foreign plugin."""

    pid = fields.Integer(**required())
    starts = fields.Integer(**required())
    calls = fields.Integer(**required())
    call_ms = fields.Nested(CallTimes, **required(allow_none=True))
    memory_mb = fields.Float(**required(allow_none=True))
    cpu_s = fields.Float(**required(allow_none=True))


class PluginSchema(Schema):
    """A plugin."""

    name = fields.String(**required())
    kind = fields.String(**required("app, policy, mobility"))
    origin = fields.String(**required("built in, package NAME VERSION, or file PATH"))
    role = fields.String(**required("what it may ask for; null: it asks for nothing", allow_none=True))
    state = fields.String(**required("running; starting; disabled (for a while, after faults); off (nobody wants it)"))
    enabled_in_s = fields.Float(**required(allow_none=True))
    faults = fields.Nested(Faults, **required())
    process = fields.Nested(Process, **required("null: built in, or it does not run", allow_none=True))


def blueprint(service: Plugins) -> Resource:
    """The resource ``plugins``."""
    found = Collection("plugins", "<string:name>", PluginSchema, "Plugins and their health")
    found.reads_by(
        lambda: [each["name"] for each in service.documents()],
        lambda names: [each for each in service.documents() if each["name"] in names],
        service.document,
        "All plugins, by kind and name.",
        "One plugin.",
    )

    @found.operation(
        "post",
        f"{found.one}/enable",
        {200: None, 404: None, 409: "it would run as root", 504: "it did not start in time"},
    )
    def enable_plugin(name: str) -> ResponseReturnValue:
        """Start a plugin; what it did before is forgiven."""
        return reply(service.enable(name))

    @found.operation("post", f"{found.one}/disable", {200: None, 404: None, 409: "others fall back on it"})
    def disable_plugin(name: str) -> ResponseReturnValue:
        """End a plugin until it is enabled again."""
        return reply(service.disable(name))

    return found
