"""Ryu's own read endpoints: ``/v1.0/topology/...`` and ``/stats/...``, in its shapes, on the live switches.

Rules are not written here: what is not declared would be taken out again.

Schemas of Ryu's read endpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from flask.typing import ResponseReturnValue
from marshmallow import Schema, fields, validate

from .contract import Document, ValueRefusedError
from .resource import Resource, reply
from .schemas import ProblemSchema, Strict, about, required

Any_ = Schema
BY_SWITCH = {"type": "object", "additionalProperties": {"type": ["object", "array"]}}
_U32, _U64 = validate.Range(0, 2**32 - 1), validate.Range(0, 2**64 - 1)
_DPID = validate.Regexp("^[0-9a-f]{16}$")


class RyuPort(Schema):
    """A port."""

    dpid = fields.String(**required("datapath id, 16 hexadecimal digits", validate=_DPID))
    port_no = fields.String(**required())
    hw_addr = fields.String(**required())
    name = fields.String(**required())


class RyuSwitch(Schema):
    """A switch."""

    dpid = fields.String(**required("datapath id, 16 hexadecimal digits", validate=_DPID))
    ports = fields.List(fields.Nested(RyuPort), **required())


class RyuLink(Schema):
    """A link."""

    src = fields.Nested(RyuPort, **required())
    dst = fields.Nested(RyuPort, **required())


class RyuHost(Schema):
    """A host."""

    mac = fields.String(**required())
    ipv4 = fields.List(fields.String(), **required())
    ipv6 = fields.List(fields.String(), **required())
    port = fields.Nested(RyuPort, **required())


class RyuFilter(Strict):
    """Which rules are asked for; as in Ryu, no body is no filter."""

    body_optional = True

    table_id = fields.Integer(strict=True, validate=validate.Range(0, 255))
    out_port = fields.Integer(strict=True, validate=_U32)
    out_group = fields.Integer(strict=True, validate=_U32)
    cookie = fields.Integer(strict=True, validate=_U64)
    cookie_mask = fields.Integer(strict=True, validate=_U64)
    priority = fields.Integer(strict=True, validate=validate.Range(0, 65535))
    match = fields.Dict(keys=fields.String(), **about("in Ryu's notation"))


MAX_DPID = 2**64 - 1


class Queries(Protocol):
    """What this needs of the controller (``services.ryu_queries``)."""

    def dpids(self) -> list[int]:
        """Of connected switches."""

    def ask(self, dpid: int, what: str, arguments: Mapping[str, Any]) -> Document:
        """A switch's answer; NotFoundError, TooBusyError, NotConfirmedError, ValueRefusedError."""

    def switches(self) -> list[Document]:
        """Connected switches with their ports."""

    def links(self) -> list[Document]:
        """Links that are up."""

    def hosts(self) -> list[Document]:
        """Hosts at access ports."""


# Address -> Ryu's query, and the names of what may follow the switch in the address.
_QUERIES: Mapping[str, tuple[str, Sequence[str]]] = {
    "desc": ("desc_stats", ()),
    "flow": ("flow_stats", ()),
    "aggregateflow": ("aggregate_flow_stats", ()),
    "table": ("table_stats", ()),
    "tablefeatures": ("table_features", ()),
    "port": ("port_stats", ("port",)),
    "queue": ("queue_stats", ("port", "queue_id")),
    "queueconfig": ("queue_config", ("port",)),
    "meterfeatures": ("meter_features", ()),
    "meterconfig": ("meter_config", ("meter_id",)),
    "meter": ("meter_stats", ("meter_id",)),
    "groupfeatures": ("group_features", ()),
    "groupdesc": ("group_desc", ()),
    "group": ("group_stats", ("group_id",)),
    "portdesc": ("port_desc", ()),
    "role": ("role", ()),
}
_FILTERED = ("flow", "aggregateflow")


def blueprints(queries: Queries) -> list[Resource]:
    """Topology and statistics."""
    return [_topology(queries), _stats(queries)]


def _topology(queries: Queries) -> Resource:
    topology = Resource("ryu-topology", url_prefix="/v1.0/topology", description="As Ryu's rest_topology")

    def lists(name: str, schema: type[Any_], every: Callable[[], list[Document]], dpid_of: _DpidOf) -> None:
        @topology.get(f"/{name}", endpoint=f"ryu-{name}")
        @topology.response(200, schema(many=True))
        def of_all() -> ResponseReturnValue:
            return reply(every())

        @topology.get(f"/{name}/<dpid:dpid>", endpoint=f"ryu-{name}-of")
        @topology.response(200, schema(many=True))
        @topology.alt_response(404, schema=ProblemSchema, description="not 16 hexadecimal digits")
        def of_one(dpid: str) -> ResponseReturnValue:
            return reply([document for document in every() if dpid_of(document) == dpid])

        of_all.__doc__ = f"All {name}, as Ryu answers."
        of_one.__doc__ = f"The {name} of one switch, as Ryu answers."

    lists("switches", RyuSwitch, queries.switches, lambda document: document["dpid"])
    lists("links", RyuLink, queries.links, lambda document: document["src"]["dpid"])
    lists("hosts", RyuHost, queries.hosts, lambda document: document["port"]["dpid"])
    return topology


_DpidOf = Callable[[Document], Any]


def _stats(queries: Queries) -> Resource:
    stats = Resource("ryu-stats", url_prefix="/stats", description="As Ryu's ofctl_rest, reading only")

    @stats.get("/switches")
    @stats.response(200, {"type": "array", "items": {"type": "integer"}})
    def switches() -> ResponseReturnValue:
        """Datapath ids of connected switches."""
        return reply(queries.dpids())

    for address, (what, names) in _QUERIES.items():
        for count in range(len(names) + 1):
            _add(stats, queries, address, what, names[:count])
    return stats


def _add(stats: Resource, queries: Queries, address: str, what: str, names: Sequence[str]) -> None:
    def ask(dpid: str, **given: str) -> ResponseReturnValue:
        return reply(queries.ask(_dpid(dpid), what, {name: _number(name, text) for name, text in given.items()}))

    def ask_filtered(body: dict[str, Any], dpid: str) -> ResponseReturnValue:
        return reply(queries.ask(_dpid(dpid), what, {"flow": body}))

    place = "".join(f"/<{name}>" for name in ("dpid", *names))
    text = f"Query {what.replace('_', ' ')} of a switch, as Ryu answers."
    ask.__doc__ = ask_filtered.__doc__ = text
    endpoint = f"{address}-{len(names)}"
    stats.get(f"/{address}{place}", endpoint=endpoint)(_described(stats, ask))
    if address in _FILTERED:
        filtered = stats.arguments(RyuFilter, required=False)(_described(stats, ask_filtered))
        stats.post(f"/{address}{place}", endpoint=f"{endpoint}-filtered")(filtered)


def _described(stats: Resource, endpoint: Callable[..., ResponseReturnValue]) -> Any:
    answered = stats.response(200, BY_SWITCH, description="by datapath id")(endpoint)
    for status, text in ((404, "no such switch"), (503, "others are asking"), (504, "the switch did not answer")):
        answered = stats.alt_response(status, schema=ProblemSchema, description=text)(answered)
    return answered


def _dpid(text: str) -> int:
    return _whole("dpid", text, MAX_DPID)


def _number(name: str, text: str) -> int | None:
    """A number as Ryu reads it; None: all."""
    return None if text == "ALL" else _whole(name, text, 2**32 - 1)


def _whole(name: str, text: str, most: int) -> int:
    try:
        number = int(text[:24], 0) if text.isascii() else -1
    except ValueError:
        number = -1
    if not 0 <= number <= most:
        raise ValueRefusedError(name, f"expected a number from 0 to {most}, decimal or with 0x")
    return number
