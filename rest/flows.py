"""The resource ``flows``. What a flow may say in detail is checked by the same code that reads the network file."""

from __future__ import annotations

from functools import partial
from typing import Any

from flask import Response
from flask.typing import ResponseReturnValue
from marshmallow import Schema, fields, validate

from hyroads.controller.core.network import Policy, Traffic

from .contract import Service
from .operations import UNCONFIRMED, confirmed, removed
from .owners import REFUSED, check, claimed, owner_field
from .resource import Collection, Resource, reply
from .schemas import Number, Strict, about, identifier, rate, required

_NAMES = {"source": "from", "target": "to"}


class FlowDeclaration(Strict):
    """A flow to carry: from the host of one node to the host of another."""

    id = identifier(required=True)
    source = fields.String(required=True, data_key="from", **about("node id"))
    target = fields.String(required=True, data_key="to", **about("node id"))
    utility = fields.Raw(**about('log (default) or {"alpha": x}'))
    weight = Number()
    paths = fields.List(fields.List(fields.String()), **about("fixed multipath, as link ids"))
    policy = fields.String(validate=validate.OneOf([policy.value for policy in Policy]))
    traffic = fields.String(
        validate=validate.OneOf([traffic.value for traffic in Traffic if traffic is not Traffic.PROBE]),
        **about("tcp: keep airtime free for what comes back"),
    )
    match = fields.Dict(keys=fields.String(), **about("header fields that narrow the flow"))
    slice = identifier("whose airtime shares it keeps; default production")
    group = fields.String(
        validate=validate.Length(1, 64),
        **about("flows of one group are routed apart and have one utility; default none", example="call-up"),
    )
    n_cons = Number(**about("of a private flow: mean run of packets on one network, 1 or more; default 20"))
    cost_share = Number(**about("of a private flow: mean share of its first path, above 0, at most 0.5; default: 0.5"))
    padding = fields.Raw(**about("of a private flow: true, false or gaps of one's own; default: true with n_chp"))
    n_chp = Number(**about("of a private flow: mean packets between draws of the share; default: one draw per access"))


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
    group = fields.String(required=True, allow_none=True, **about("its group of flows; null: none", example="call-up"))
    n_cons = fields.Float(**required("of a private flow: mean run on one network, packets", allow_none=True))
    cost_share = fields.Float(**required("of a private flow: mean share of its first path", allow_none=True))
    padding = fields.Raw(**required("of a private flow: whether gaps are padded, and how", allow_none=True))
    n_chp = fields.Float(**required("of a private flow: mean packets between draws of the share", allow_none=True))
    owner = owner_field()
    origin = fields.String(**required(validate=validate.OneOf(["file", "api", "mptcp", "region"])))
    state = fields.String(**required(validate=validate.OneOf(["multipath", "single", "activating", "unreachable"])))
    reason = fields.String(**required("why it is not a multipath", allow_none=True))
    pending = fields.List(fields.String(), **required("what has not confirmed yet"))
    multipath = fields.List(fields.Nested(PathSchema), **required())
    number = fields.Integer(**about("in the frames' shim header, 16 to 65535"))
    ingress = fields.String(allow_none=True)
    egress = fields.String(allow_none=True)
    sealed = fields.Boolean(**about("whether its frames have seals between switches"))
    rate_mbps = fields.Float(allow_none=True, **about("sum over its paths; null: not shaped"))
    demand_mbps = fields.Float(allow_none=True, **about("cap of a flow that sends less than its share"))
    decided_by = fields.String(**about("solver, controller, or the override that sets its rates"))
    bandit = fields.Dict(allow_none=True, **about("what the flow's bandit knows"))
    latency = fields.Dict(allow_none=True, **about("the split of a latency flow, and why"))


def blueprint(service: Service) -> Resource:
    """Flows and their multipaths."""
    found = Collection("flows", "<id:flow>", FlowSchema, "Flows and their multipaths", owned=True)
    listing = "All flows in order of declaration."
    found.reads_by(service.flow_ids, service.flows, service.flow, listing, "One flow.")

    @found.creates(
        FlowDeclaration,
        {
            201: "new, and confirmed by agents and switches",
            200: "was declared like this before; confirmed",
            202: UNCONFIRMED,
            403: REFUSED,
            409: "the id exists with other content",
        },
    )
    def declare_flow(body: dict[str, Any], query: dict[str, Any]) -> ResponseReturnValue:
        """Declare a flow; answered once agents acknowledged and switches confirmed."""
        document = {_NAMES.get(key, key): value for key, value in body.items()}
        flow, address = document["id"], found.address(document["id"])

        def declare() -> Response:
            with claimed("flows", flow) as is_new:
                # Flows of one group share one utility: one that joins changes the rates of the rest.
                check([("groups", body["group"])] if is_new and "group" in body else ())
                declared, new = service.declare_flow(document, wait=query["wait"])
            return reply(found.shown(declared), 201 if new else 200, location=address)

        pending = partial(service.flow_pending, flow)
        return confirmed(f"declare flow {flow}", address, pending, declare, wait=query["wait"])

    @found.operation("delete", found.one, {204: "agents and switches have let go of it", 202: UNCONFIRMED, 404: None})
    def remove_flow(query: dict[str, Any], flow: str) -> ResponseReturnValue:
        """Remove a flow; its frames follow the single path again."""
        pending = partial(service.removal_pending, flow)
        return removed("remove flow", pending, service.remove_flow, flow, wait=query["wait"])

    return found
