"""The network and its state: topology, nodes, links, interference domains, paths, measurements, health.

Schemas of the network's answers and of the queries for them.
"""

from __future__ import annotations

from typing import Any

from flask.typing import ResponseReturnValue
from marshmallow import Schema, fields, validate

from . import measurement_schemas as measured
from .contract import PREFIX, Service
from .resource import Resource, pages, reply
from .schemas import PageQuery, PageSchema, ProblemSchema, Strict, answered, rate, told


class TopologyQuery(Strict):
    """In which form the topology is wanted."""

    format = fields.String(load_default="hyroads", validate=validate.OneOf(["hyroads", "netjson"]))


class SwitchSchema(Schema):
    """A node's switch."""

    dpid = fields.Integer(**answered())
    connected = fields.Boolean(**answered())
    ports = fields.Dict(keys=fields.String(), values=fields.String(), **told("technology -> name of the port"))


class AgentSchema(Schema):
    """A node's edge agent."""

    up = fields.Boolean(**answered())
    revision = fields.Integer(**told("of the configuration that it confirmed", allow_none=True))


class HostSchema(Schema):
    """The host behind a node."""

    mac = fields.String(**answered())
    ip = fields.String(**answered())


class NodeSchema(Schema):
    """A node with its switch, agent and host."""

    id = fields.String(**answered())
    role = fields.String(**answered(validate=validate.OneOf(["gateway", "ap", "client", "switch"])))
    position_m = fields.List(fields.Float(), **answered(allow_none=True))
    switch = fields.Nested(SwitchSchema, **answered(allow_none=True))
    agent = fields.Nested(AgentSchema, **answered(allow_none=True))
    host = fields.Nested(HostSchema, **answered())


class EstimateSchema(Schema):
    """How a link's capacity is known."""

    capacity_mbps = fields.Float(**answered(allow_none=True))
    source = fields.String(**answered(allow_none=True))
    quality = fields.String(**answered())
    age_s = fields.Float(**answered(allow_none=True))
    confidence = fields.Float(**answered())
    relative_error = fields.Float(**answered(allow_none=True))
    reason = fields.String(**answered(allow_none=True))


class LinkSchema(Schema):
    """A directed link with its state."""

    id = fields.String(**answered())
    source = fields.String(**told("node id", data_key="from"))
    target = fields.String(**told("node id", data_key="to"))
    technology = fields.String(**answered())
    delay_ms = fields.Float(**answered())
    loss = fields.Float(**answered())
    up = fields.Boolean(**answered())
    reason = fields.String(**told("why it is down", allow_none=True))
    capacity_mbps = fields.Float(**told("what rates count on; null: unknown", allow_none=True))
    declared_mbps = fields.Float(**told("what the network file says", allow_none=True))
    estimate = fields.Nested(EstimateSchema, **answered(allow_none=True))
    planned_mbps = fields.Float(**told("sum of the rates of the paths over it"))
    airtime = fields.Float(**told("planned in its domain"))
    external = fields.Float(**told("airtime of others in its domain"))
    margin = fields.Float(**told("airtime left free"))


class NodeList(PageSchema):
    """A page of nodes."""

    nodes = fields.List(fields.Nested(NodeSchema), **answered())


class LinkList(PageSchema):
    """A page of links."""

    links = fields.List(fields.Nested(LinkSchema), **answered())


class TopologySchema(Schema):
    """Nodes and links with their state."""

    name = fields.String(**answered())
    version = fields.Integer(**answered())
    nodes = fields.List(fields.Nested(NodeSchema), **answered())
    links = fields.List(fields.Nested(LinkSchema), **answered())
    technologies = fields.List(fields.String(), **answered())


class NetworkGraphSchema(Schema):
    """A NetJSON NetworkGraph."""

    type = fields.String(**answered(validate=validate.Equal("NetworkGraph")))
    label = fields.String(**answered(allow_none=True))
    protocol = fields.String(**answered())
    version = fields.String(**answered(allow_none=True))
    metric = fields.String(**answered())
    directed = fields.Boolean(**answered())
    multigraph = fields.Boolean(**answered())
    nodes = fields.List(fields.Dict(), **answered())
    links = fields.List(fields.Dict(), **answered())


class DomainSchema(Schema):
    """Links that can't transmit at the same time as one link."""

    id = fields.String(**told("the first link whose domain it is"))
    technologies = fields.List(fields.String(), **answered())
    links = fields.List(fields.String(), **answered())
    airtime = fields.Float(**answered())
    external = fields.Float(**answered())
    margin = fields.Float(**answered())


class DomainList(PageSchema):
    """A page of interference domains."""

    interference_domains = fields.List(fields.Nested(DomainSchema), **answered())


class PathsQuery(Strict):
    """Between which nodes, and how hard to look."""

    source = fields.String(
        required=True, data_key="from", validate=validate.Length(1, 64), metadata={"description": "node id"}
    )
    target = fields.String(
        required=True, data_key="to", validate=validate.Length(1, 64), metadata={"description": "node id"}
    )
    shortest = fields.Integer(
        load_default=5, validate=validate.Range(1, 20), metadata={"description": "paths looked at per vertex"}
    )
    depth = fields.Integer(
        load_default=None, validate=validate.Range(1, 10), metadata={"description": "most paths of a multipath"}
    )
    arms = fields.Integer(load_default=5, validate=validate.Range(1, 20), metadata={"description": "multipaths told"})


class RatedPathSchema(Schema):
    """A path and what it can carry."""

    links = fields.List(fields.String(), **answered())
    rate_mbps = fields.Float(**answered())


class MultipathSchema(Schema):
    """Paths used at once."""

    paths = fields.List(fields.Nested(RatedPathSchema), **answered())
    total_mbps = fields.Float(**answered())


class ArmSchema(Schema):
    """One of the best multipaths."""

    paths = fields.List(fields.List(fields.String()), **answered())
    total_mbps = fields.Float(**answered())


class PathsSchema(Schema):
    """What the planner found between two nodes."""

    source = fields.String(**answered(data_key="from"))
    target = fields.String(**answered(data_key="to"))
    margin = fields.Float(**told("share of airtime left free"))
    single_path = fields.Nested(RatedPathSchema, **answered())
    multipath = fields.Nested(MultipathSchema, **answered())
    arms = fields.List(fields.Nested(ArmSchema), **answered())


class LinkPathSchema(Schema):
    """A path of a flow over a link."""

    flow = fields.String(**answered())
    id = fields.Integer(**answered())
    rate_mbps = rate()
    sent_mbps = rate()
    received_mbps = rate()


class LinkMeasurementSchema(Schema):
    """What is measured of a link."""

    id = fields.String(**answered())
    time_s = fields.Float(**answered())
    technology = fields.String(**answered())
    up = fields.Boolean(**answered())
    reason = fields.String(**answered(allow_none=True))
    last_heard_ms = fields.Float(**told("since the last hello frame", allow_none=True))
    capacity_mbps = fields.Float(**answered(allow_none=True))
    estimate = fields.Nested(EstimateSchema, **answered(allow_none=True))
    planned_mbps = fields.Float(**answered())
    sent_mbps = fields.Float(**told("sum over the paths of flows", allow_none=True))
    airtime = fields.Float(**answered())
    external = fields.Float(**answered())
    paths = fields.List(fields.Nested(LinkPathSchema), **answered())


def blueprint(service: Service) -> Resource:
    """State of network and controller; all of it can only be read."""
    blueprint = Resource("network", url_prefix=PREFIX, description="State of network and controller")

    @blueprint.get("/topology")
    @blueprint.arguments(TopologyQuery, location="query")
    @blueprint.response(200, TopologySchema)
    def topology(query: dict[str, Any]) -> ResponseReturnValue:
        """Nodes and links with their state; format=netjson gives a NetJSON NetworkGraph."""
        return reply(service.netjson() if query["format"] == "netjson" else service.topology())

    @blueprint.get("/nodes")
    @blueprint.arguments(PageQuery, location="query")
    @blueprint.response(200, NodeList)
    def list_nodes(query: dict[str, Any]) -> ResponseReturnValue:
        """All nodes, with their switches, agents and hosts."""
        return pages("nodes", service.nodes(), query)

    @blueprint.get("/nodes/<id:node>")
    @blueprint.response(200, NodeSchema)
    @blueprint.alt_response(404, schema=ProblemSchema)
    def show_node(node: str) -> ResponseReturnValue:
        """One node."""
        return reply(service.node(node))

    @blueprint.get("/links")
    @blueprint.arguments(PageQuery, location="query")
    @blueprint.response(200, LinkList)
    def list_links(query: dict[str, Any]) -> ResponseReturnValue:
        """All links, with capacities and airtime."""
        return pages("links", service.links(), query)

    @blueprint.get("/links/<id:link>")
    @blueprint.response(200, LinkSchema)
    @blueprint.alt_response(404, schema=ProblemSchema)
    def show_link(link: str) -> ResponseReturnValue:
        """One link."""
        return reply(service.link(link))

    @blueprint.get("/measurements/links/<id:link>")
    @blueprint.response(200, LinkMeasurementSchema)
    @blueprint.alt_response(404, schema=ProblemSchema)
    def measure_link(link: str) -> ResponseReturnValue:
        """What is measured of one link, and the paths that use it."""
        return reply(service.link_measurements(link))

    @blueprint.get("/interference-domains")
    @blueprint.arguments(PageQuery, location="query")
    @blueprint.response(200, DomainList)
    def list_domains(query: dict[str, Any]) -> ResponseReturnValue:
        """Links that can't transmit at the same time; each domain is named after the first link that it is of."""
        return pages("interference_domains", service.domains(), query)

    @blueprint.get("/paths")
    @blueprint.arguments(PathsQuery, location="query")
    @blueprint.response(200, PathsSchema)
    @blueprint.alt_response(404, schema=ProblemSchema, description="no such node, or no route between them")
    @blueprint.alt_response(503, schema=ProblemSchema, description="others are planning already")
    def plan_paths(query: dict[str, Any]) -> ResponseReturnValue:
        """Best single path, best multipath and arms between two nodes of the live network, as if it were idle."""
        return reply(service.paths(query.pop("source"), query.pop("target"), **query))

    @blueprint.get("/measurements")
    @blueprint.response(200, measured.MeasurementsSchema)
    def measurements() -> ResponseReturnValue:
        """Latest reports of the agents."""
        return reply(service.measurements())

    @blueprint.get("/health")
    @blueprint.response(200, measured.HealthSchema)
    def health() -> ResponseReturnValue:
        """What is connected, in sync, wrong."""
        return reply(service.health())

    return blueprint
