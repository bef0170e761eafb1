"""The resource ``identity``: whose token a request carries, so that other programs can show what its owner may do."""

from __future__ import annotations

from flask.typing import ResponseReturnValue
from marshmallow import Schema, fields, validate

from .access import WRITES
from .contract import PREFIX
from .owners import principal
from .resource import Resource, reply
from .schemas import required


class IdentitySchema(Schema):
    """Who asks."""

    name = fields.String(
        **required(
            "name of the token; null: the controller has no tokens, and takes everybody on its machine", allow_none=True
        )
    )
    role = fields.String(**required("what its owner may do", validate=validate.OneOf(list(WRITES))))


def blueprint(_: object = None) -> Resource:
    """The resource; it can only be read."""
    found = Resource("identity", url_prefix=f"{PREFIX}/identity", description="Who asks")

    @found.get("")
    @found.response(200, IdentitySchema, description="name and role of the token", example=_EXAMPLE)
    def read_identity() -> ResponseReturnValue:
        """Name and role of the token that the request carries."""
        asks = principal()
        return reply({"name": asks.name or None, "role": asks.role})

    return found


_EXAMPLE = {"name": "grafana", "role": "viewer"}
