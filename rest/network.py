"""The network and its state: topology, nodes, links, interference domains, paths, measurements, health."""

from __future__ import annotations

from typing import Any

from flask.typing import ResponseReturnValue
from hyroads.rest import measurement_schemas as measured
from hyroads.rest import network_schemas as schemas
from hyroads.rest.contract import PREFIX, Service
from hyroads.rest.paging import pages
from hyroads.rest.replies import reply
from hyroads.rest.resource import Resource
from hyroads.rest.schemas import PageQuery, ProblemSchema


def blueprint(service: Service) -> Resource:
    """State of network and controller; all of it can only be read."""
    blueprint = Resource("network", url_prefix=PREFIX, description="State of network and controller")

    @blueprint.get("/topology")
    @blueprint.arguments(schemas.TopologyQuery, location="query")
    @blueprint.response(200, schemas.TopologySchema)
    def topology(query: dict[str, Any]) -> ResponseReturnValue:
        """Nodes and links with their state; format=netjson gives a NetJSON NetworkGraph."""
        return reply(service.netjson() if query["format"] == "netjson" else service.topology())

    @blueprint.get("/nodes")
    @blueprint.arguments(PageQuery, location="query")
    @blueprint.response(200, schemas.NodeList)
    def list_nodes(query: dict[str, Any]) -> ResponseReturnValue:
        """All nodes, with their switches, agents and hosts."""
        return pages("nodes", service.nodes(), query)

    @blueprint.get("/nodes/<id:node>")
    @blueprint.response(200, schemas.NodeSchema)
    @blueprint.alt_response(404, schema=ProblemSchema)
    def show_node(node: str) -> ResponseReturnValue:
        """One node."""
        return reply(service.node(node))

    @blueprint.get("/links")
    @blueprint.arguments(PageQuery, location="query")
    @blueprint.response(200, schemas.LinkList)
    def list_links(query: dict[str, Any]) -> ResponseReturnValue:
        """All links, with capacities and airtime."""
        return pages("links", service.links(), query)

    @blueprint.get("/links/<id:link>")
    @blueprint.response(200, schemas.LinkSchema)
    @blueprint.alt_response(404, schema=ProblemSchema)
    def show_link(link: str) -> ResponseReturnValue:
        """One link."""
        return reply(service.link(link))

    @blueprint.get("/measurements/links/<id:link>")
    @blueprint.response(200, schemas.LinkMeasurementSchema)
    @blueprint.alt_response(404, schema=ProblemSchema)
    def measure_link(link: str) -> ResponseReturnValue:
        """What is measured of one link, and the paths that use it."""
        return reply(service.link_measurements(link))

    @blueprint.get("/interference-domains")
    @blueprint.arguments(PageQuery, location="query")
    @blueprint.response(200, schemas.DomainList)
    def list_domains(query: dict[str, Any]) -> ResponseReturnValue:
        """Links that can't transmit at the same time; each domain is named after the first link that it is of."""
        return pages("interference_domains", service.domains(), query)

    @blueprint.get("/paths")
    @blueprint.arguments(schemas.PathsQuery, location="query")
    @blueprint.response(200, schemas.PathsSchema)
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
