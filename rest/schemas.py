"""Schemas of requests, which refuse unknown fields, and of answers; they make the OpenAPI document.

What a flow may say in detail is checked by the same code that reads the network file. The network's: network_schemas.
"""

from __future__ import annotations

from typing import Any

from marshmallow import RAISE, Schema, fields, validate

from hyroads.controller.core.network import Policy, Traffic

MAX_LIMIT = 1000


class Strict(Schema):
    """Unknown fields are errors."""

    class Meta:
        """Options of marshmallow."""

        unknown = RAISE


def required(text: str | None = None, **options: Any) -> dict[str, Any]:
    """Options of a response's field that is always there, with its description."""
    described = {} if text is None else {"metadata": {"description": text}}
    return {"required": True, **described, **options}


class PlaceSchema(Strict):
    """Where a client's interface can be: at a node (an access point), on a technology."""

    node = fields.String(required=True, validate=validate.Length(1, 64))
    technology = fields.String(required=True, validate=validate.Length(1, 64))


class Number(fields.Float):
    """A number, not text that looks like one."""

    def _validated(self, value: Any) -> Any:
        if isinstance(value, str):
            raise self.make_error("invalid", input=value)
        return super()._validated(value)


class FlowDeclaration(Strict):
    """A flow to carry: from the host of one node to the host of another."""

    id = fields.String(required=True, validate=validate.Length(1, 64))
    source = fields.String(required=True, data_key="from", metadata={"description": "node id"})
    target = fields.String(required=True, data_key="to", metadata={"description": "node id"})
    utility = fields.Raw(metadata={"description": 'log (default) or {"alpha": x}'})
    weight = Number()
    paths = fields.List(fields.List(fields.String()), metadata={"description": "fixed multipath, as link ids"})
    policy = fields.String(validate=validate.OneOf([policy.value for policy in Policy]))
    traffic = fields.String(
        validate=validate.OneOf([traffic.value for traffic in Traffic if traffic is not Traffic.PROBE]),
        metadata={"description": "tcp: keep airtime free for what comes back"},
    )
    match = fields.Dict(keys=fields.String(), metadata={"description": "header fields that narrow the flow"})
    slice = fields.String(
        validate=validate.Length(1, 64), metadata={"description": "whose airtime shares it keeps; default production"}
    )


def rate() -> fields.Float:
    """A rate; null: not known, or not shaped."""
    return fields.Float(**required("Mb/s at L2 payload", allow_none=True))


class PathSchema(Schema):
    """A path in use."""

    id = fields.Integer(**required("in the frames' labels; 0: plain rules"))
    links = fields.List(fields.String(), **required())
    rate_mbps = rate()


class FlowSchema(Schema):
    """A flow as declared, and what happens to it."""

    id = fields.String(**required())
    source = fields.String(**required("node id", data_key="from"))
    target = fields.String(**required("node id", data_key="to"))
    utility = fields.Raw(**required('"log" or {"alpha": x}'))
    weight = fields.Float(**required())
    paths = fields.List(fields.List(fields.String()), **required("fixed multipath, as link ids"))
    policy = fields.String(**required(validate=validate.OneOf([policy.value for policy in Policy])))
    traffic = fields.String(**required(validate=validate.OneOf([traffic.value for traffic in Traffic])))
    match = fields.Dict(**required())
    slice = fields.String(**required("whose airtime shares it keeps"))
    origin = fields.String(**required(validate=validate.OneOf(["file", "api"])))
    state = fields.String(**required(validate=validate.OneOf(["multipath", "single", "activating", "unreachable"])))
    reason = fields.String(**required("why it is not a multipath", allow_none=True))
    pending = fields.List(fields.String(), **required("what has not confirmed yet"))
    multipath = fields.List(fields.Nested(PathSchema), **required())
    number = fields.Integer(metadata={"description": "in the frames' shim header, 16 to 65535"})
    ingress = fields.String(allow_none=True)
    egress = fields.String(allow_none=True)
    rate_mbps = fields.Float(allow_none=True, metadata={"description": "sum over its paths; null: not shaped"})
    demand_mbps = fields.Float(
        allow_none=True, metadata={"description": "cap of a flow that sends less than its share"}
    )
    decided_by = fields.String(metadata={"description": "solver, controller, or the override that sets its rates"})
    bandit = fields.Dict(allow_none=True, metadata={"description": "what the flow's bandit knows"})
    latency = fields.Dict(allow_none=True, metadata={"description": "the split of a latency flow, and why"})


class PageQuery(Strict):
    """Which part of a list is wanted."""

    limit = fields.Integer(load_default=MAX_LIMIT, validate=validate.Range(1, MAX_LIMIT))
    cursor = fields.String(
        load_default=None,
        validate=validate.Length(1, 1024),
        metadata={"description": "of the `next` address of another page"},
    )


class PageSchema(Schema):
    """A page of a list."""

    next = fields.String(**required("address of the next page", allow_none=True))


class WaitQuery(Strict):
    """Whether to answer only once switches and agents confirmed."""

    wait = fields.Boolean(load_default=True)


class OperationSchema(Schema):
    """Something that was accepted."""

    id = fields.String(**required())
    what = fields.String(**required())
    resource = fields.String(**required("address of what it is about, if that stays", allow_none=True))
    state = fields.String(**required(validate=validate.OneOf(["pending", "confirmed", "failed"])))
    pending = fields.List(fields.String(), **required("what has not confirmed yet"))
    reason = fields.String(**required("why it failed", allow_none=True))
    created_s = fields.Float(**required("Unix time"))
    finished_s = fields.Float(**required("Unix time at which it was first seen at its end", allow_none=True))


class EventsQuery(Strict):
    """Which events are wanted."""

    kinds = fields.String(
        load_default="",
        validate=validate.Length(max=512),
        metadata={"description": "comma-separated kinds; `link` means all of `link.up`, `link.down`, ..."},
    )
    follow = fields.Boolean(load_default=True, metadata={"description": "false: what is kept, then the end"})


class ProblemSchema(Schema):
    """RFC 9457."""

    type = fields.String(**required())
    title = fields.String(**required())
    status = fields.Integer(**required())
    detail = fields.String(**required())
    errors = fields.Dict(
        keys=fields.String(),
        values=fields.List(fields.String()),
        metadata={"description": "place in the request -> what was expected there"},
    )
    pending = fields.List(fields.String(), metadata={"description": "what has not confirmed"})
