"""Quotas of tokens: how many flows, sessions, reservations and n-casts each may have, and has."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from flask import current_app
from marshmallow import Schema, fields

from .access import principal
from .contract import Claims, Listed
from .resource import Collection, Resource
from .schemas import required

EXTENSION = "hyroads.quotas"
FULL = "a quota of the token is used up (quota, limit, used)"
"""Why 403 is answered."""


def claimed(kind: str, name: str) -> AbstractContextManager[None]:
    """While a thing is made for who asks; QuotaError."""
    claims: Claims | None = current_app.extensions.get(EXTENSION)
    return nullcontext() if claims is None else claims.claim(kind, name, principal())


class QuotaSchema(Schema):
    """One quota of a token."""

    quota = fields.String(**required("flows, sessions, reservations or ncasts"))
    limit = fields.Integer(**required("null: as many as there is room for", allow_none=True))
    used = fields.Integer(**required("how many it has"))


class TokenQuotasSchema(Schema):
    """The quotas of a token."""

    name = fields.String(**required("of the token"))
    role = fields.String(**required("what its owner may do"))
    quotas = fields.List(fields.Nested(QuotaSchema), **required("one of each kind"))


def blueprint(service: Listed) -> Resource:
    """The resource ``quotas``; it can only be read."""
    found = Collection("quotas", "<id:token>", TokenQuotasSchema, "How much each token may have, and has")
    found.reads(service, "All tokens of the settings.", "One token.")
    return found
