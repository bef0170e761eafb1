"""The resource ``reload``: a running controller takes its settings and network file again."""

from __future__ import annotations

from typing import Protocol

from flask.typing import ResponseReturnValue
from marshmallow import Schema, fields

from .contract import PREFIX, Document
from .resource import Resource, reply


class Reloads(Protocol):
    """What this resource needs of the controller."""

    def reload(self) -> Document:
        """Read the files again and take them, as a whole or not at all. ConflictError (nothing was taken: a file is
        wrong, or something needs a restart), NotSavedError, NotConfirmedError.
        """


class ReloadSchema(Schema):
    """What was taken."""

    changed = fields.List(
        fields.String(),
        required=True,
        metadata={
            "description": "what differed and is in force now, by file and place; empty: nothing differed",
            "example": ["settings: api_tokens.grafana", "network: links.ab-wifi.capacity_mbps", "network: flows.f2"],
        },
    )
    took_s = fields.Float(
        required=True,
        metadata={"description": "until all was checked, changed and planned, seconds", "example": 0.041},
    )


def blueprint(service: Reloads) -> Resource:
    """The resource."""
    about = "Settings and network file, read again by the running controller"
    found = Resource("reload of files", url_prefix=f"{PREFIX}/reload", description=about)

    @found.endpoint(
        "post",
        "",
        {
            200: "it is in force, and all have confirmed flows that differ",
            409: "a file is wrong (`errors`), or something needs a restart (`restart`): nothing was taken",
            504: "taken, but not everybody confirmed the flows that differ in time (`pending`)",
            507: "the state file can't be written: nothing was taken",
        },
        ReloadSchema,
    )
    def reload() -> ResponseReturnValue:
        """Take settings and network file as they are now, as a whole or not at all. Flows that do not differ go on."""
        return reply(service.reload())

    return found
