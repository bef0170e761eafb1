"""Whose each thing is: claimed when it is made, shown when it is read, checked when it is changed."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

from flask import current_app, g
from marshmallow import fields

from .contract import OPERATOR, Document, Owners, Thing, Token
from .schemas import required

EXTENSION = "hyroads.owners"
REFUSED = "a quota of the token is used up (quota, limit, used), or what it names belongs to another token"
"""Why 403 is answered to a request that makes a thing."""


def principal() -> Token:
    """The token that sent the current request."""
    found: Token = g.identity
    return found


def owner_field() -> fields.String:
    """The member ``owner`` of a document."""
    return fields.String(**required("name of the token that owns it; operator: files, or requests without a token"))


def _owners() -> Owners | None:
    found: Owners | None = current_app.extensions.get(EXTENSION)
    return found


def claimed(kind: str, name: str) -> AbstractContextManager[bool]:
    """While a thing is made: True if there is none of that name yet. QuotaError, ConflictError."""
    owners = _owners()
    return nullcontext(True) if owners is None else owners.claim((kind, name), principal())


def check(things: Iterable[Thing]) -> None:
    """NotOwnerError if the token of the request may not change one of these."""
    owners = _owners()
    if owners is not None:
        for thing in things:
            owners.check(thing, principal())


def shown(kind: str, name: str, document: Document) -> Document:
    """The document with its owner."""
    owners = _owners()
    return {**document, "owner": OPERATOR if owners is None else owners.owner((kind, name))}
