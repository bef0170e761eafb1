"""Quotas of tokens: how much each may have, and has."""

from __future__ import annotations

from marshmallow import Schema, fields

from .contract import QUOTAS, Listed
from .resource import Collection, Resource
from .schemas import required


class QuotaSchema(Schema):
    """One quota of a token."""

    quota = fields.String(**required(", ".join(QUOTAS)))
    limit = fields.Float(**required("null: as much as there is room for", allow_none=True))
    used = fields.Float(**required("how much it has; null: not known while the controller starts", allow_none=True))


class TokenQuotasSchema(Schema):
    """The quotas of a token."""

    name = fields.String(**required("of the token"))
    role = fields.String(**required("what its owner may do"))
    quotas = fields.List(fields.Nested(QuotaSchema), **required("one of each name"))


def blueprint(service: Listed) -> Resource:
    """The resource ``quotas``; it can only be read."""
    found = Collection("quotas", "<id:token>", TokenQuotasSchema, "How much each token may have, and has")
    found.reads(service, "All tokens of the settings.", "One token.")
    return found
