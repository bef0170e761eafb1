"""Schemas of the API: they refuse unknown fields and make the OpenAPI document.

What a flow may say in detail is checked by the same code that reads the network file.
"""

from __future__ import annotations

from typing import Any

from hyroads.controller.core.network import Policy, Traffic
from marshmallow import RAISE, Schema, fields, validate


class Strict(Schema):
    """Unknown fields are errors."""

    class Meta:
        """Options of marshmallow."""

        unknown = RAISE


class Number(fields.Float):
    """A number, not text that looks like one."""

    def _validated(self, value: Any) -> Any:
        if isinstance(value, str):
            raise self.make_error("invalid", input=value)
        return super()._validated(value)


_Rate = fields.Float(allow_none=True, metadata={"description": "Mb/s at L2 payload"})


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
        validate=validate.OneOf([traffic.value for traffic in Traffic]),
        metadata={"description": "tcp: keep airtime free for what comes back"},
    )
    match = fields.Dict(keys=fields.String(), metadata={"description": "header fields that narrow the flow"})


class PathSchema(Schema):
    """A path in use."""

    id = fields.Integer()
    links = fields.List(fields.String())
    rate_mbps = _Rate


class FlowSchema(FlowDeclaration):
    """A flow as declared, and what happens to it."""

    origin = fields.String(validate=validate.OneOf(["file", "api"]))
    number = fields.Integer(metadata={"description": "in the frames' shim header, 16 to 65535"})
    state = fields.String(validate=validate.OneOf(["multipath", "single", "activating", "unreachable"]))
    reason = fields.String(allow_none=True)
    pending = fields.List(fields.String(), metadata={"description": "what has not confirmed yet"})
    ingress = fields.String(allow_none=True)
    egress = fields.String(allow_none=True)
    rate_mbps = _Rate
    demand_mbps = fields.Float(
        allow_none=True, metadata={"description": "cap of a flow that sends less than its share"}
    )
    decided_by = fields.String(metadata={"description": "solver, controller, or the governor that sets its rates"})
    bandit = fields.Dict(allow_none=True, metadata={"description": "what the flow's bandit knows"})
    latency = fields.Dict(allow_none=True, metadata={"description": "the split of a latency flow, and why"})
    multipath = fields.List(fields.Nested(PathSchema))


class FlowList(Schema):
    """All flows."""

    flows = fields.List(fields.Nested(FlowSchema))


class WaitQuery(Strict):
    """Whether to answer only once switches and agents confirmed."""

    wait = fields.Boolean(load_default=True)


class TopologyQuery(Strict):
    """In which form the topology is wanted."""

    format = fields.String(load_default="hyroads", validate=validate.OneOf(["hyroads", "netjson"]))


class TopologySchema(Schema):
    """Nodes and links with their state."""

    name = fields.String()
    version = fields.Integer()
    nodes = fields.List(fields.Dict())
    links = fields.List(fields.Dict())
    technologies = fields.List(fields.String())


class MeasurementsSchema(Schema):
    """Latest reports of the agents."""

    time_s = fields.Float()
    flows = fields.List(fields.Dict())
    links = fields.List(fields.Dict())
    agents = fields.List(fields.Dict())
    interfaces = fields.List(fields.Dict(), metadata={"description": "external airtime as interfaces hear it"})
    radios = fields.List(fields.Dict(), metadata={"description": "access points' radios: readings and doubts"})
    snmp = fields.List(fields.Dict(), metadata={"description": "last polls of access points"})
    ports = fields.List(fields.Dict(), metadata={"description": "counters of switch ports, cross-checked"})


class HealthSchema(Schema):
    """What is connected, in sync, wrong."""

    ok = fields.Boolean()
    version = fields.String()
    uptime_s = fields.Float()
    settling = fields.Boolean()
    network = fields.String()
    switches = fields.List(fields.Dict())
    agents = fields.List(fields.Dict())
    pending = fields.List(fields.String())
    counters = fields.Dict()
    plan = fields.Dict(allow_none=True)
    slots = fields.Dict()
    last_errors = fields.List(fields.Dict())


class ProblemSchema(Schema):
    """RFC 9457."""

    type = fields.String()
    title = fields.String()
    status = fields.Integer()
    detail = fields.String()
    errors = fields.Dict(metadata={"description": "place in the request -> what was expected there"})
    pending = fields.List(fields.String())


class EventsQuery(Strict):
    """Which events are wanted."""

    kinds = fields.String(
        load_default="",
        validate=validate.Length(max=512),
        metadata={"description": "comma-separated kinds; `link` means all of `link.up`, `link.down`, ..."},
    )
    follow = fields.Boolean(load_default=True, metadata={"description": "false: what is kept, then the end"})
