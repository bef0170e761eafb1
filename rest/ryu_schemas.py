"""Schemas of Ryu's read endpoints."""

from __future__ import annotations

from hyroads.rest.schemas import Strict, answered
from marshmallow import Schema, fields, validate

Any_ = Schema
BY_SWITCH = {"type": "object", "additionalProperties": {"type": ["object", "array"]}}
_U32, _U64 = validate.Range(0, 2**32 - 1), validate.Range(0, 2**64 - 1)


class RyuPort(Schema):
    """A port."""

    dpid = fields.String(**answered())
    port_no = fields.String(**answered())
    hw_addr = fields.String(**answered())
    name = fields.String(**answered())


class RyuSwitch(Schema):
    """A switch."""

    dpid = fields.String(**answered())
    ports = fields.List(fields.Nested(RyuPort), **answered())


class RyuLink(Schema):
    """A link."""

    src = fields.Nested(RyuPort, **answered())
    dst = fields.Nested(RyuPort, **answered())


class RyuHost(Schema):
    """A host."""

    mac = fields.String(**answered())
    ipv4 = fields.List(fields.String(), **answered())
    ipv6 = fields.List(fields.String(), **answered())
    port = fields.Nested(RyuPort, **answered())


class RyuFilter(Strict):
    """Which rules are asked for; as in Ryu, no body is no filter."""

    body_optional = True

    table_id = fields.Integer(strict=True, validate=validate.Range(0, 255))
    out_port = fields.Integer(strict=True, validate=_U32)
    out_group = fields.Integer(strict=True, validate=_U32)
    cookie = fields.Integer(strict=True, validate=_U64)
    cookie_mask = fields.Integer(strict=True, validate=_U64)
    priority = fields.Integer(strict=True, validate=validate.Range(0, 65535))
    match = fields.Dict(keys=fields.String(), metadata={"description": "in Ryu's notation"})
