"""The resources ``boxes`` and ``box-codes``: machines that wait to become nodes, adopted ones, and join codes.

Boxes have no token before they are adopted. So three addresses are open to strangers (``access.OF_STRANGERS``): a box
applies, waits and leaves; each but the first needs the box's own secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

from flask import Response, request
from flask.typing import ResponseReturnValue
from marshmallow import Schema, fields, validate

from .contract import Document, Listed, Token
from .operations import UNCONFIRMED, confirmed
from .owners import principal
from .resource import Collection, Resource, reply
from .schemas import Number, Strict, about, identifier, required

_HASH = validate.Regexp(r"^[0-9a-f]{64}$")
_STATES = validate.OneOf(["pending", "adopted", "left"])
_TAKEN = "the id is another box's, or this box has joined under another id"
_NOT_HERE = "boxes can't join this controller"
_FULL = "as many boxes are pending as may be"


def _shown(text: str, example: Any, **options: Any) -> dict[str, Any]:
    """Options of a field that is always there, with its description and an example."""
    return {"required": True, **about(text, example=example), **options}


class BoxOperations(Listed, Protocol):
    """What these resources need of the controller."""

    def apply(self, document: Mapping[str, Any], peer: str) -> tuple[Document, bool]:
        """A box applies: how it stands, and whether it is new. ConfigError, ConflictError, ForbiddenError,
        NotFoundError, TooBusyError.
        """

    def wait(self, name: str, claim: str, until: str) -> Document:
        """How a box stands, after some seconds at most; NotFoundError."""

    def leave(self, name: str, claim: str, problem: str) -> None:
        """A box has left; NotFoundError, NotSavedError."""

    def adopt(self, name: str, document: Mapping[str, Any], who: Token, *, wait: bool) -> Document:
        """A box becomes a node. ConfigError, ConflictError, NotFoundError, NotSavedError, NotConfirmedError."""

    def pending(self, name: str) -> list[str]:
        """What of an adopted box has not connected yet; ConflictError, NotFoundError."""

    def forget(self, name: str, who: Token) -> None:
        """Remove a box; NotFoundError, NotSavedError."""

    def new_code(self) -> Document:
        """A new join code; NotFoundError."""

    def pin(self) -> Document:
        """The fingerprint of the controller's certificate; NotFoundError."""


class BoxInterfaceSchema(Strict):
    """A network interface of a box."""

    name = identifier("as the box names it", 15, required=True)
    kind = fields.String(
        required=True, validate=validate.OneOf(["ethernet", "wifi"]), **about("what it is", example="wifi")
    )
    mtu = fields.Integer(required=True, strict=True, **about("bytes of a packet", example=1500))
    address = identifier("MAC address", 17, required=True)
    uplink = fields.Boolean(**about("whether the box reaches the controller by it", example=False))
    up = fields.Boolean(**about("whether it is up", example=True))


class BoxTokensSchema(Strict):
    """SHA-256 of the tokens that the box has made."""

    agent = fields.String(required=True, validate=_HASH, **about("of its edge agent", example="a" * 64))
    radio = fields.String(required=True, validate=_HASH, **about("of the agent of its radios", example="b" * 64))


class BoxApplicationSchema(Strict):
    """What a box says of itself."""

    id = identifier(required=True)
    key = fields.String(required=True, validate=_HASH, **about("SHA-256 of its public key", example="c" * 64))
    claim = fields.String(required=True, validate=_HASH, **about("SHA-256 of its secret", example="d" * 64))
    tokens = fields.Nested(BoxTokensSchema, required=True, **about("hashes of its tokens"))
    request = identifier("certificate request, PEM", 4096, required=True)
    system = identifier("its operating system", 80, required=True)
    interfaces = fields.List(fields.Nested(BoxInterfaceSchema), required=True, validate=validate.Length(max=32))
    clock_s = Number(required=True, **about("Unix time by its clock", example=1790000000.0))
    code_proof = fields.String(validate=_HASH, **about("that it knows a join code", example="e" * 64))


class BoxStandingSchema(Schema):
    """How a box stands that has applied."""

    id = fields.String(**required())
    state = fields.String(**required("what became of it", validate=_STATES))
    code_proof = fields.String(
        **required("that the controller knows the join code; null: none was shown", allow_none=True)
    )


class BoxWaitSchema(Strict):
    """What a box waits for."""

    claim = identifier("the box's secret", 128, required=True)
    until = fields.String(
        load_default="adopted",
        validate=validate.OneOf(["adopted", "connected"]),
        **about("what it waits for, for 6 s at most"),
    )


class BoxSetupSchema(Schema):
    """How a box stands; and how it sets itself up."""

    id = fields.String(**required())
    state = fields.String(**required("what became of it", validate=_STATES))
    connected = fields.Boolean(**required("whether its switch and agent have connected"))
    pending = fields.List(fields.String(), **_shown("what has not connected yet", ["switch b"]))
    setup = fields.Dict(
        **required(
            "node, datapath id, bridge, ports, where controllers are, certificate; null: it is not adopted",
            allow_none=True,
        )
    )


class BoxLeaveSchema(Strict):
    """A box has undone what it did."""

    claim = identifier("the box's secret", 128, required=True)
    problem = fields.String(load_default="", validate=validate.Length(max=200), **about("why it had to", example=""))


class BoxAdoptionSchema(Strict):
    """What a box becomes."""

    as_ = identifier("node of the network file", data_key="as", attribute="as", required=True)
    ports = fields.Dict(
        keys=fields.String(validate=validate.Length(1, 64)),
        values=identifier("", 15),
        **about("technology, or `host` for the access port -> interface of the box", example={"plc": "eth1"}),
    )


class BoxSchema(Schema):
    """A box."""

    id = fields.String(**required())
    state = fields.String(**required("what became of it", validate=_STATES))
    node = fields.String(**required("what it is adopted as", allow_none=True))
    connected = fields.Boolean(**required("whether its switch and agent have connected since it was adopted"))
    pending = fields.List(fields.String(), **_shown("what has not connected yet", ["switch b"]))
    key = fields.String(**_shown("SHA-256 of its public key, which the box shows as well", "c" * 64))
    verified = fields.Boolean(**_shown("whether it joined with a join code", False))
    peer = fields.String(**_shown("network address that it applied from", "192.0.2.12"))
    system = fields.String(**_shown("its operating system", "Debian GNU/Linux 12 (bookworm)"))
    interfaces = fields.List(fields.Nested(BoxInterfaceSchema), **required("its network interfaces"))
    ports = fields.Dict(**_shown("technology, or `host` -> interface that it is adopted with", {"plc": "eth1"}))
    owner = fields.String(**required("name of the token that adopted it", allow_none=True))
    joined_s = fields.Float(**_shown("Unix time at which it applied first", 1790000000.0))
    seen_ago_s = fields.Float(**_shown("seconds since it was heard", 1.5))
    problem = fields.String(**_shown("why it has left, if it said so", None, allow_none=True))


class PinSchema(Schema):
    """By what boxes know the controller."""

    pin = fields.String(**_shown("SHA-256 of the certificate of the REST API", "f" * 64))


class BoxCodeSchema(PinSchema):
    """A join code."""

    code = fields.String(**_shown("good for one box", "K7QXA-M2R4T-9WZBC-D5FHJ"))
    expires_s = fields.Float(**_shown("Unix time at which it ends", 1790003600.0))


def _boxes(service: BoxOperations) -> Resource:
    """The resource ``boxes``."""
    text = "Machines that wait to become nodes, and those that have"
    found = Collection("boxes", "<box:box>", BoxSchema, text)
    found.reads(service, "All boxes, in the order in which they came.", "One box.")

    @found.endpoint(
        "post",
        "",
        {201: "it waits to be adopted", 200: "it was known", 403: "its clock or its join code is wrong",
         404: _NOT_HERE, 409: _TAKEN,
         503: _FULL},
        BoxStandingSchema,
        body=BoxApplicationSchema,
    )  # fmt: skip
    def apply(body: dict[str, Any]) -> ResponseReturnValue:
        """A box applies; it needs no token."""
        document, new = service.apply(body, request.remote_addr or "")
        return reply(document, 201 if new else 200, location=found.address(body["id"]))

    @found.endpoint("post", f"{found.one}/wait", {200: None, 404: None}, BoxSetupSchema, body=BoxWaitSchema)
    def wait(body: dict[str, Any], box: str) -> ResponseReturnValue:
        """A box waits to be adopted, or connected; it needs its own secret, and no token."""
        return reply(service.wait(box, body["claim"], body["until"]))

    @found.endpoint("post", f"{found.one}/leave", {204: None, 404: None}, body=BoxLeaveSchema)
    def leave(body: dict[str, Any], box: str) -> ResponseReturnValue:
        """A box has left; it needs its own secret, and no token."""
        service.leave(box, body["claim"], body["problem"])
        return Response(status=204)

    @found.operation(
        "post",
        f"{found.one}/adopt",
        {
            200: "adopted, and its switch and agent are connected",
            202: UNCONFIRMED,
            404: None,
            409: "it is adopted or has left, or the node is another device",
        },
        body=BoxAdoptionSchema,
    )
    def adopt(body: dict[str, Any], query: dict[str, Any], box: str) -> ResponseReturnValue:
        """Make a box a node; answered once its switch and agent are connected."""
        who = principal()

        def do() -> Response:
            return reply(service.adopt(box, body, who, wait=query["wait"]))

        return confirmed(f"box {box}", found.address(box), partial(service.pending, box), do, wait=query["wait"])

    @found.operation("delete", found.one, {204: "it is not known any more", 404: None})
    def forget(box: str) -> ResponseReturnValue:
        """Forget a box: its token is worth nothing any more."""
        service.forget(box, principal())
        return Response(status=204)

    return found


def _codes(service: BoxOperations) -> Resource:
    """The resource ``box-codes``."""
    found = Resource("box-codes", description="Join codes, and the fingerprint of the controller")

    @found.endpoint("post", "", {201: None, 404: _NOT_HERE}, BoxCodeSchema)
    def make() -> ResponseReturnValue:
        """Make a join code, good for one box within an hour."""
        return reply(service.new_code(), 201)

    @found.endpoint("get", "", {200: None, 404: _NOT_HERE}, PinSchema)
    def read() -> ResponseReturnValue:
        """The fingerprint of the controller's certificate, which boxes show as well."""
        return reply(service.pin())

    return found


def blueprints(service: BoxOperations) -> list[Resource]:
    """Both resources."""
    return [_boxes(service), _codes(service)]
