"""The network and its state: topology, nodes, links, interference domains, paths, measurements, health."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from flask import Response, request
from flask.typing import ResponseReturnValue
from marshmallow import Schema, fields, validate

from . import measurement_schemas as measured
from .contract import PREFIX, Service
from .resource import Resource, page_schema, pages, reply
from .schemas import PageQuery, Strict, about, identifier, rate, required


class TopologyQuery(Strict):
    """In which form the topology is wanted."""

    format = fields.String(load_default="hyroads", validate=validate.OneOf(["hyroads", "netjson"]))


class SwitchSchema(Schema):
    """A node's switch."""

    dpid = fields.Integer(**required())
    connected = fields.Boolean(**required())
    ports = fields.Dict(keys=fields.String(), values=fields.String(), **required("technology -> name of the port"))


class AgentSchema(Schema):
    """A node's edge agent."""

    up = fields.Boolean(**required())
    revision = fields.Integer(**required("of the configuration that it confirmed", allow_none=True))


class HostSchema(Schema):
    """The host behind a node."""

    mac = fields.String(**required())
    ip = fields.String(**required())


class NodeSchema(Schema):
    """A node with its switch, agent and host."""

    id = fields.String(**required())
    role = fields.String(**required(validate=validate.OneOf(["gateway", "ap", "client", "switch", "foreign"])))
    position_m = fields.List(fields.Float(), **required(allow_none=True))
    switch = fields.Nested(SwitchSchema, **required(allow_none=True))
    agent = fields.Nested(AgentSchema, **required(allow_none=True))
    host = fields.Nested(HostSchema, **required("null: a node of another owner", allow_none=True))


class EstimateSchema(Schema):
    """How a link's capacity is known."""

    capacity_mbps = fields.Float(**required(allow_none=True))
    source = fields.String(**required(allow_none=True))
    quality = fields.String(**required())
    age_s = fields.Float(**required(allow_none=True))
    confidence = fields.Float(**required())
    relative_error = fields.Float(**required(allow_none=True))
    reason = fields.String(**required(allow_none=True))


class LinkSchema(Schema):
    """A directed link with its state."""

    id = fields.String(**required())
    source = fields.String(**required("node id", data_key="from"))
    target = fields.String(**required("node id", data_key="to"))
    technology = fields.String(**required())
    delay_ms = fields.Float(**required())
    loss = fields.Float(**required())
    up = fields.Boolean(**required())
    reason = fields.String(**required("why it is down", allow_none=True))
    capacity_mbps = fields.Float(**required("what rates count on; null: unknown", allow_none=True))
    declared_mbps = fields.Float(**required("what the network file says", allow_none=True))
    estimate = fields.Nested(EstimateSchema, **required(allow_none=True))
    planned_mbps = fields.Float(**required("sum of the rates of the paths over it"))
    airtime = fields.Float(**required("planned in its domain"))
    external = fields.Float(**required("airtime of others in its domain"))
    margin = fields.Float(**required("airtime left free"))
    busy_percent = fields.Float(
        **required("measured busy share of its medium, as in `/live`; null: not measured", allow_none=True)
    )


class TopologySchema(Schema):
    """Nodes and links with their state."""

    name = fields.String(**required())
    version = fields.Integer(**required())
    nodes = fields.List(fields.Nested(NodeSchema), **required())
    links = fields.List(fields.Nested(LinkSchema), **required())
    technologies = fields.List(fields.String(), **required())


class NetworkGraphSchema(Schema):
    """A NetJSON NetworkGraph."""

    type = fields.String(**required(validate=validate.Equal("NetworkGraph")))
    label = fields.String(**required(allow_none=True))
    protocol = fields.String(**required())
    version = fields.String(**required(allow_none=True))
    metric = fields.String(**required())
    directed = fields.Boolean(**required())
    multigraph = fields.Boolean(**required())
    nodes = fields.List(fields.Dict(), **required())
    links = fields.List(fields.Dict(), **required())


class DomainSchema(Schema):
    """Links that can't transmit at the same time as one link."""

    id = fields.String(**required("the first link whose domain it is"))
    technologies = fields.List(fields.String(), **required())
    links = fields.List(fields.String(), **required())
    airtime = fields.Float(**required())
    external = fields.Float(**required())
    margin = fields.Float(**required())


class PathsQuery(Strict):
    """Between which nodes, and how hard to look."""

    source = identifier("node id", required=True, data_key="from")
    target = identifier("node id", required=True, data_key="to")
    shortest = fields.Integer(load_default=5, validate=validate.Range(1, 20), **about("paths looked at per vertex"))
    depth = fields.Integer(load_default=None, validate=validate.Range(1, 10), **about("most paths of a multipath"))
    arms = fields.Integer(load_default=5, validate=validate.Range(1, 20), **about("multipaths told"))


class RatedPathSchema(Schema):
    """A path and what it can carry."""

    links = fields.List(fields.String(), **required())
    rate_mbps = fields.Float(**required())


class MultipathSchema(Schema):
    """Paths used at once."""

    paths = fields.List(fields.Nested(RatedPathSchema), **required())
    total_mbps = fields.Float(**required())


class ArmSchema(Schema):
    """One of the best multipaths."""

    paths = fields.List(fields.List(fields.String()), **required())
    total_mbps = fields.Float(**required())


class PathsSchema(Schema):
    """What the planner found between two nodes."""

    source = fields.String(**required(data_key="from"))
    target = fields.String(**required(data_key="to"))
    margin = fields.Float(**required("share of airtime left free"))
    single_path = fields.Nested(RatedPathSchema, **required())
    multipath = fields.Nested(MultipathSchema, **required())
    arms = fields.List(fields.Nested(ArmSchema), **required())


class LinkPathSchema(Schema):
    """A path of a flow over a link."""

    flow = fields.String(**required())
    id = fields.Integer(**required())
    rate_mbps = rate()
    sent_mbps = rate()
    received_mbps = rate()


class LinkMeasurementSchema(Schema):
    """What is measured of a link."""

    id = fields.String(**required())
    time_s = fields.Float(**required())
    technology = fields.String(**required())
    up = fields.Boolean(**required())
    reason = fields.String(**required(allow_none=True))
    last_heard_ms = fields.Float(**required("since the last hello frame", allow_none=True))
    capacity_mbps = fields.Float(**required(allow_none=True))
    estimate = fields.Nested(EstimateSchema, **required(allow_none=True))
    planned_mbps = fields.Float(**required())
    sent_mbps = fields.Float(**required("sum over the paths of flows", allow_none=True))
    airtime = fields.Float(**required())
    external = fields.Float(**required())
    paths = fields.List(fields.Nested(LinkPathSchema), **required())


# What is read as it is: address (or member of the page), schema, method of the service, description.
_DOCUMENTS: Sequence[tuple[str, type[Schema], str, str]] = (
    ("/nodes/<id:node>", NodeSchema, "node", "One node."),
    ("/links/<id:link>", LinkSchema, "link", "One link."),
    ("/measurements/links/<id:link>", LinkMeasurementSchema, "link_measurements",
     "What is measured of one link, and the paths that use it."),
    ("/measurements", measured.MeasurementsSchema, "measurements", "Latest reports of the agents."),
    ("/health", measured.HealthSchema, "health", "What is connected, in sync, wrong."),
)  # fmt: skip
_LISTS: Sequence[tuple[str, type[Schema], str, str]] = (
    ("nodes", NodeSchema, "nodes", "All nodes, with their switches, agents and hosts."),
    ("links", LinkSchema, "links", "All links, with capacities and airtime."),
    ("interference_domains", DomainSchema, "domains",
     "Links that can't transmit at the same time; each domain is named after the first link that it is of."),
)  # fmt: skip


def blueprint(service: Service) -> Resource:
    """State of network and controller; all of it can only be read."""
    found = Resource("network", url_prefix=PREFIX, description="State of network and controller")
    for name, item, method, text in _LISTS:
        answer = partial(_page, service, name, method)
        found.serves(f"/{name.replace('_', '-')}", page_schema(name, item), text, answer, query=PageQuery)
    for place, schema, method, text in _DOCUMENTS:
        found.serves(place, schema, text, partial(_document, service, method))

    @found.endpoint("get", "/topology", {200: None}, TopologySchema, query=TopologyQuery)
    @found.alt_response(304, description="nothing but figures that always move has changed since that of If-None-Match")
    def topology(query: dict[str, Any]) -> ResponseReturnValue:
        """Nodes and links with their state; format=netjson gives a NetJSON NetworkGraph. The ETag is weak: it stays
        while `version`, capacities and agents do, though other figures (rates, airtime, ages) move; see `/live`.
        """
        tag = f"{service.topology_version()}-{query['format']}"
        if request.if_none_match.contains_weak(tag):
            answer = Response(status=304)
        else:
            answer = reply(service.netjson() if query["format"] == "netjson" else service.topology())
        answer.set_etag(tag, weak=True)
        return answer

    no_path = {404: "no such node, or no route between them", 503: "others are planning already"}

    @found.endpoint("get", "/paths", {200: None, **no_path}, PathsSchema, query=PathsQuery)
    def plan_paths(query: dict[str, Any]) -> ResponseReturnValue:
        """Best single path, best multipath and arms between two nodes of the live network, as if it were idle."""
        return reply(service.paths(query.pop("source"), query.pop("target"), **query))

    return found


def _page(service: Service, name: str, method: str, query: dict[str, Any]) -> Response:
    return pages(name, getattr(service, method)(), query)


def _document(service: Service, method: str, **ids: str) -> Response:
    return reply(getattr(service, method)(*ids.values()))
