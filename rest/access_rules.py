"""The resource ``access-rules``: which frames may enter the network, and how many."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

from flask import Response
from flask.typing import ResponseReturnValue
from marshmallow import Schema, fields, validate

from .contract import PREFIX, Document, Listed, Token
from .operations import UNCONFIRMED, confirmed, removed
from .owners import owner_field, principal
from .resource import Collection, Resource, page_schema, reply
from .schemas import Number, Strict, about, identifier, required

_ACTIONS = ("deny", "limit", "allow")
_OVERLAP = "the id exists with other content, or a limit of this priority matches some of the same frames"
_BUSY = "the owner, or the controller, has as many rules as it may have"


class AccessRules(Listed, Protocol):
    """What this resource needs of the controller; documents as in docs/reference/access-rules.md."""

    def make(self, document: Mapping[str, Any], who: Token, *, wait: bool) -> tuple[Document, bool]:
        """A rule, and whether it is new. ConfigError, ForbiddenError, ConflictError, TooBusyError,
        NotConfirmedError.
        """

    def change(self, name: str, document: Mapping[str, Any], who: Token, *, wait: bool) -> Document:
        """Another rate, priority or end; errors as of :meth:`make`, and NotFoundError."""

    def remove(self, name: str, *, wait: bool) -> None:
        """End a rule; NotFoundError, NotConfirmedError."""

    def pending(self, name: str) -> list[str]:
        """Switches that have not confirmed what is wanted of them for a rule, or its end."""


class AccessRuleChange(Strict):
    """What of a rule can be changed."""

    rate_mbps = Number(**about("of action limit: Mb/s of whole Ethernet frames"))
    priority = fields.Integer(
        strict=True, validate=validate.Range(0, 1999), **about("the highest decides; above 999: admin")
    )
    expires_in_s = Number(validate=validate.Range(min=0, min_inclusive=False), **about("ends after so many seconds"))
    expires_s = Number(allow_none=True, **about("ends at this Unix time; null: never"))


class AccessRuleDeclaration(AccessRuleChange):
    """Frames that match are dropped, limited or let through where they enter the network."""

    id = identifier(required=True)
    action = fields.String(
        required=True,
        validate=validate.OneOf(_ACTIONS),
        **about("with equal priority deny goes before limit, limit before allow"),
    )
    match = fields.Dict(
        keys=fields.String(), **about("header fields; without: all frames but ARP, neighbour discovery and DHCP")
    )
    client = identifier("who sends them: node id or MAC address; without: anybody (admin)", allow_none=True)
    to = identifier("who gets them: node id or MAC address; without: anybody", allow_none=True)


class AccessRuleSchema(Schema):
    """A rule and what became of it."""

    id = fields.String(**required())
    action = fields.String(**required(validate=validate.OneOf(_ACTIONS)))
    owner = owner_field()
    priority = fields.Integer(**required("0 to 1999; the highest decides"))
    match = fields.Dict(**required())
    client = fields.String(**required("who sends the frames; null: anybody", allow_none=True))
    to = fields.String(**required("who gets the frames; null: anybody", allow_none=True))
    rate_mbps = fields.Float(**required("of action limit: Mb/s of whole Ethernet frames", allow_none=True))
    expires_s = fields.Float(**required("Unix time at which it ends; null: never", allow_none=True))
    expires_in_s = fields.Float(**required("seconds until it ends; null: never", allow_none=True))
    state = fields.String(
        **required(
            "activating: not confirmed by all switches; suspended: its owner has lost the right to it",
            validate=validate.OneOf(["activating", "active", "suspended"]),
        )
    )
    pending = fields.List(fields.String(), **required("switches that have not confirmed yet"))


def blueprint(service: AccessRules) -> Resource:
    """The resource ``access-rules``."""
    page = page_schema("access_rules", AccessRuleSchema)
    text = "Which frames may enter the network, and how many"
    prefix = f"{PREFIX}/access-rules"
    found = Collection("access_rules", "<id:rule>", AccessRuleSchema, text, page=page, prefix=prefix, owned=True)
    found.reads(service, "All access rules, in the order in which they were made.", "One access rule.")

    @found.creates(
        AccessRuleDeclaration,
        {
            201: "new, and confirmed by switches",
            200: "was made like this before; confirmed",
            202: UNCONFIRMED,
            409: _OVERLAP,
            503: _BUSY,
        },
    )
    def make_access_rule(body: dict[str, Any], query: dict[str, Any]) -> ResponseReturnValue:
        """Make a rule; answered once switches confirmed. Without `rate_mbps` and times it acts at once, for good."""
        rule, who = body["id"], principal()

        def make() -> Response:
            document, new = service.make(body, who, wait=query["wait"])
            return reply(found.shown(document), 201 if new else 200, location=found.address(rule))

        return confirmed(
            f"access rule {rule}", found.address(rule), partial(service.pending, rule), make, wait=query["wait"]
        )

    @found.operation("patch", found.one, {200: None, 202: UNCONFIRMED, 404: None, 409: _OVERLAP}, body=AccessRuleChange)
    def change_access_rule(body: dict[str, Any], query: dict[str, Any], rule: str) -> ResponseReturnValue:
        """Change rate, priority or end of a rule of one's own."""
        who = principal()

        def change() -> Response:
            return reply(found.shown(service.change(rule, body, who, wait=query["wait"])))

        return confirmed(
            f"access rule {rule}", found.address(rule), partial(service.pending, rule), change, wait=query["wait"]
        )

    @found.operation("delete", found.one, {204: "switches have let go of it", 202: UNCONFIRMED, 404: None})
    def remove_access_rule(query: dict[str, Any], rule: str) -> ResponseReturnValue:
        """End a rule of one's own."""
        pending = partial(service.pending, rule)
        return removed("remove access rule", pending, service.remove, rule, wait=query["wait"])

    return found
