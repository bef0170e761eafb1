"""Multi-homed clients: policies, interfaces, connections and migrations, as their daemons tell and confirm them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import quote

from flask import Response
from flask.typing import ResponseReturnValue
from marshmallow import INCLUDE, Schema, ValidationError, fields, validate, validates_schema

from .contract import PREFIX, Document
from .operations import confirmed
from .resource import Resource, page_schema, pages, reply
from .schemas import PageQuery, Strict, WaitQuery, about, identifier, required

MODES = ("full-speed", "cost-efficient", "high-robustness")
_UNKNOWN = {404: "no such multi-homed client"}
_UNTOLD = {**_UNKNOWN, 409: "the client has told nothing yet"}
_ASKED = {
    202: "wait=false, or the client has not confirmed in time",
    **_UNKNOWN,
    409: "the client is not connected",
    422: "what is expected where, or why the client refused it",
}


class Request(Protocol):
    """Something that a client was asked."""

    @property
    def what(self) -> str:
        """What it was asked."""

    def pending(self) -> list[str]:
        """What has not confirmed it; ValueRefusedError, ConflictError if it will not."""


class Multihomed(Protocol):
    """What this resource needs of the controller; documents as in docs/reference/clients.md. All of these raise
    NotFoundError; what asks a client raises ConflictError if that is not connected.
    """

    def policy(self, client: str) -> Document:
        """The policy in force."""

    def interfaces(self, client: str) -> Document:
        """Mode, interfaces and clusters."""

    def connections(self, client: str) -> list[Document]:
        """Flows and MPTCP connections."""

    def migrations(self, client: str) -> list[Document]:
        """The latest, oldest first."""

    def set_policy(self, client: str, policy: Mapping[str, Any]) -> Request:
        """Ask for another policy."""

    def set_mode(self, client: str, mode: str, flow: str | None, connection: str | None = None) -> Request:
        """Ask for another mode."""

    def migrate(self, client: str, flow: int, interface: str) -> Request:
        """Ask to move a flow."""

    def wait(self, request: Any) -> None:
        """Until it is confirmed; NotConfirmedError, and what its ``pending`` raises."""


class PolicySchema(Schema):
    """A client's policy file. The client checks it: unknown keys are errors there."""

    class Meta:
        """Options of marshmallow."""

        unknown = INCLUDE

    interfaces = fields.Dict(
        keys=fields.String(),
        values=fields.Raw(allow_none=True),
        **required("name -> `rate_mbps` (Mb/s or `auto`), `metered`, `cap_gib_month` (GiB), `dns`"),
    )
    mode = fields.String(validate=validate.OneOf(MODES), **about("of all flows that have none of their own"))
    waypoint = fields.Raw(allow_none=True, **about("the client's own: left out, or as it is"))
    flows = fields.List(
        fields.Dict(keys=fields.String()),
        **about("`name`, `match`, `weight`, `urgent`, `mode`, `interfaces`, `spread`, `via`; the first match wins"),
    )


class ModeRequest(Strict):
    """Another mode, until the policy is another or the client starts again."""

    mode = fields.String(required=True, validate=validate.OneOf(MODES))
    flow = identifier("name of a flow of the policy; without it, of all flows")
    connection = identifier("id of an MPTCP connection among the connections, instead of a flow", 64)

    @validates_schema
    def one_at_most(self, data: Mapping[str, Any], **_: object) -> None:
        """Of a flow, or of a connection."""
        if data.get("flow") is not None and data.get("connection") is not None:
            raise ValidationError("expected flow or connection, not both", "connection")


class MigrationRequest(Strict):
    """Move a flow."""

    flow = fields.Integer(
        required=True, strict=True, validate=validate.Range(0, 2**53), **about("its `flow` among the connections")
    )
    interface = identifier("the client's name of it", 64, required=True)


class ClientInterfaceSchema(Schema):
    """An interface of a client."""

    name = fields.String(**required())
    up = fields.Boolean(**required())
    at = fields.String(**required("gateway there", allow_none=True))
    metered = fields.Boolean(**required("its traffic costs money"))
    rate_mbps = fields.Float(**required("Mb/s that it can send; null: not known", allow_none=True))
    sent_mbps = fields.Float(**required("Mb/s"))
    received_mbps = fields.Float(**required("Mb/s", allow_none=True))
    queue_packets = fields.Integer(**required("packets that wait for it"))
    month_gib = fields.Float(**required("GiB that it carried in this month", allow_none=True))
    problem = fields.String(**required("why it is not used", allow_none=True))


class ClusterSchema(Schema):
    """Flows of one level, and the interfaces that serve them."""

    flows = fields.List(fields.Integer(), **required())
    interfaces = fields.List(fields.String(), **required())
    level_mbps = fields.Float(**required("Mb/s per weight; null: they send all they have", allow_none=True))


class ClientInterfacesSchema(Schema):
    """How a client is."""

    client = fields.String(**required())
    connected = fields.Boolean(**required("its daemon is"))
    reported_s = fields.Float(**required("how long ago it told this", allow_none=True))
    mode = fields.String(**required("chosen live, else the policy's"))
    interfaces = fields.List(fields.Nested(ClientInterfaceSchema), **required())
    clusters = fields.List(fields.Nested(ClusterSchema), **required())


class ConnectionSchema(Schema):
    """A flow of a client, or an MPTCP connection."""

    id = fields.String(**required())
    kind = fields.String(**required(validate=validate.OneOf(["flow", "mptcp"])))
    flow = fields.Integer(**required("what a migration names it by", allow_none=True))
    name = fields.String(**required("of the policy's flow that it matches", allow_none=True))
    interface = fields.String(**required("null: several, or none", allow_none=True))
    rate_mbps = fields.Float(**required("Mb/s that it sends", allow_none=True))
    level_mbps = fields.Float(**required("Mb/s per weight", allow_none=True))
    migrations = fields.Integer(**required("how often it was moved", allow_none=True))
    mode = fields.String(**required("of an MPTCP connection", allow_none=True))
    subflows = fields.Integer(**required("of an MPTCP connection", allow_none=True))


class MigrationSchema(Schema):
    """A flow that went to another interface."""

    id = fields.String(**required())
    flow = fields.Integer(**required())
    name = fields.String(**required("of the policy's flow that it matches", allow_none=True))
    old = fields.String(**required("interface", data_key="from", allow_none=True))
    interface = fields.String(**required("where it is now"))
    at = fields.Float(**required("Unix time"))
    took_s = fields.Float(**required("null: the client did not tell", allow_none=True))
    asked = fields.Boolean(**required("by this API"))


def blueprint(service: Multihomed) -> Resource:
    """The resources below ``clients/{id}`` that a client's daemon answers for."""
    found = Resource("multihomed", url_prefix=f"{PREFIX}/clients", description="Multi-homed clients")
    _reads(found, service)
    _changes(found, service)
    return found


def _reads(found: Resource, service: Multihomed) -> None:
    def read(rule: str, schema: type[Schema], answer: Callable[[str], Document]) -> Callable[..., ResponseReturnValue]:
        def view(client: str) -> ResponseReturnValue:
            return reply(answer(client))

        view.__name__, view.__doc__ = f"read {rule}", _READS[rule]
        found.endpoint("get", f"/<client>/{rule}", {200: None, **_UNTOLD}, schema)(view)
        return view

    read("policy", PolicySchema, service.policy)
    read("interfaces", ClientInterfacesSchema, service.interfaces)

    def listed(
        rule: str, schema: type[Schema], answer: Callable[[str], Sequence[Document]], others: dict[int, str]
    ) -> None:
        def view(query: dict[str, Any], client: str) -> ResponseReturnValue:
            return pages(rule, answer(client), query)

        view.__name__, view.__doc__ = f"list {rule}", _READS[rule]
        responses: dict[int, str | None] = {200: None, **others}
        found.endpoint("get", f"/<client>/{rule}", responses, page_schema(rule, schema), query=PageQuery)(view)

    listed("connections", ConnectionSchema, service.connections, _UNTOLD)
    listed("migrations", MigrationSchema, service.migrations, _UNKNOWN)


_READS = {
    "policy": "The policy that a client uses, as it told it.",
    "interfaces": "A client's mode, interfaces and clusters, as it reported them last.",
    "connections": "A client's flows (the busiest, if there are many) and MPTCP connections, as reported last.",
    "migrations": "The latest migrations of a client's flows, oldest first.",
}


def _changes(found: Resource, service: Multihomed) -> None:
    @found.endpoint("put", "/<client>/policy", {200: None, **_ASKED}, PolicySchema, body=PolicySchema, query=WaitQuery)
    def replace_policy(body: dict[str, Any], query: dict[str, Any], client: str) -> ResponseReturnValue:
        """Replace a client's policy; answered once the client uses it. Its waypoint and its controller stay its own."""
        request = service.set_policy(client, body)
        return _answered(service, request, query, _address(client, "policy"), lambda: reply(service.policy(client)))

    @found.endpoint(
        "patch",
        "/<client>/policy",
        {200: None, **_ASKED},
        ClientInterfacesSchema,
        body=ModeRequest,
        query=WaitQuery,
    )
    def choose_mode(body: dict[str, Any], query: dict[str, Any], client: str) -> ResponseReturnValue:
        """Choose another mode, of all flows, one, or one MPTCP connection; answered once the client has moved them."""
        request = service.set_mode(client, body["mode"], body.get("flow"), body.get("connection"))
        where = _address(client, "interfaces")
        return _answered(service, request, query, where, lambda: reply(service.interfaces(client)))

    @found.endpoint(
        "post",
        "/<client>/migrations",
        {201: "the flow goes by the other interface", **_ASKED},
        MigrationSchema,
        body=MigrationRequest,
        query=WaitQuery,
    )
    def migrate_flow(body: dict[str, Any], query: dict[str, Any], client: str) -> ResponseReturnValue:
        """Move a flow to another interface; answered once the client has moved it."""
        request = service.migrate(client, body["flow"], body["interface"])

        def moved() -> Response:
            wanted = (body["flow"], body["interface"])
            found = (one for one in reversed(service.migrations(client)) if (one["flow"], one["interface"]) == wanted)
            return reply(next(found), 201)

        return _answered(service, request, query, _address(client, "migrations"), moved)


def _address(client: str, rule: str) -> str:
    return f"{PREFIX}/clients/{quote(client, safe='')}/{rule}"


def _answered(
    service: Multihomed, request: Request, query: Mapping[str, Any], address: str, answer: Callable[[], Response]
) -> Response:
    """The answer once a client has confirmed a request, else 202 with an operation."""

    def do() -> Response | None:
        if not query["wait"]:
            return None
        service.wait(request)
        return answer()

    return confirmed(request.what, address, request.pending, do)
