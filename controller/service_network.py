"""The network's part of the REST service: documents of nodes, links, interference domains and possible paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hyroads.controller import ryu_shim as shim
from hyroads.controller.coordinator import Coordinator
from hyroads.controller.core.errors import NoRouteError, PlanningError
from hyroads.controller.core.interference import Interference
from hyroads.controller.core.netjson import network_graph
from hyroads.controller.core.network import Link, Network, Node
from hyroads.controller.core.plan_document import plan_document
from hyroads.controller.core.planner import Plan, Planner, default_depth
from hyroads.controller.loop_documents import links_document
from hyroads.rest.contract import Document, NotFoundError, TooBusyError, ValueRefusedError

# A tree of so many branches takes the planner about a second.
MAX_BRANCHES = 20_000
MAX_PLANNING = 2


class NetworkDocuments:
    """All calls come from green threads; what takes long runs aside."""

    def __init__(self, coordinator: Coordinator, network_name: str) -> None:
        self._coordinator = coordinator
        self._network_name = network_name
        self._domains: tuple[Interference, Sequence[tuple[str, tuple[str, ...]]]] | None = None
        self._planner: Planner | None = None
        self._planning = 0

    @property
    def _declared(self) -> Network:
        return self._coordinator.fabric.network

    # -- nodes and links

    def topology(self) -> Document:
        """Nodes and links."""
        network = self._declared
        return {
            "name": network.name or self._network_name,
            "version": self._coordinator.state.version,
            "nodes": self.nodes(),
            "links": self.links(),
            "technologies": list(network.technologies),
        }

    def nodes(self) -> list[Document]:
        """All nodes, in the order of the network file."""
        return [self._node(node) for node in shim.breathing(self._declared.nodes.values())]

    def node(self, node: str) -> Document:
        """One node."""
        found = self._declared.nodes.get(node)
        if found is None:
            raise NotFoundError(f"no node {node[:64]!r}")
        return self._node(found)

    def links(self) -> list[Document]:
        """All links, in the order of the network file."""
        plan = self._coordinator.plan
        planned = plan.planned_mbps() if plan else {}
        known = links_document(self._coordinator.live.loop, self._coordinator.clock(), shim.breathing)
        return [{**self._link(link, planned), **known[link.id]} for link in shim.breathing(self._declared.links)]

    def link(self, link: str) -> Document:
        """One link."""
        number = self._declared.link_index.get(link)
        if number is None:
            raise NotFoundError(f"no link {link[:64]!r}")
        return self.links()[number]

    def netjson(self) -> Document:
        """A NetJSON NetworkGraph; what is down is left out."""
        coordinator = self._coordinator
        state, fabric = coordinator.state, coordinator.fabric
        dead = {link.id: 0.0 for link in shim.breathing(self._declared.links) if state.link_fault(fabric, link)}
        return network_graph(self._declared.with_capacities(dead))

    def _node(self, node: Node) -> Document:
        coordinator, addressing = self._coordinator, self._coordinator.fabric.addressing
        switch: Document | None = None
        if addressing.has_switch(node.id):
            names = {k: addressing.interface_name[node.id, k] for k in addressing.technologies(node.id)}
            connected = node.id in coordinator.switches
            switch = {"dpid": addressing.dpid[node.id], "connected": connected, "ports": names}
        agent: Document | None = None
        if addressing.has_agent(node.id):
            link = coordinator.agents.get(node.id)
            agent = {"up": link is not None, "revision": link.acked.revision if link and link.acked else None}
        return {
            "id": node.id,
            "role": node.role.value,
            "position_m": None if node.position_m is None else list(node.position_m),
            "switch": switch,
            "agent": agent,
            "host": {"mac": addressing.host_mac[node.id], "ip": addressing.host_ip[node.id]},
        }

    def _link(self, link: Link, planned: Mapping[str, float]) -> Document:
        coordinator = self._coordinator
        fault = coordinator.state.link_fault(coordinator.fabric, link)
        return {
            "id": link.id,
            "from": link.source,
            "to": link.target,
            "technology": link.technology,
            "delay_ms": link.delay_ms,
            "loss": link.loss,
            "up": fault is None,
            "reason": fault,
            "planned_mbps": planned.get(link.id, 0.0),
        }

    def link_measurements(self, link: str, reports: Document) -> Document:
        """One link, as its receiver hears it, and the paths of flows over it."""
        known = self.link(link)
        heard = next((one for one in reports["links"] if one["id"] == link), None)
        paths = [
            {"flow": flow["id"], **{key: path[key] for key in ("id", "rate_mbps", "sent_mbps", "received_mbps")}}
            for flow in reports["flows"]
            for path in flow["paths"]
            if link in path["links"]
        ]
        sent = [path["sent_mbps"] for path in paths if path["sent_mbps"] is not None]
        shown = ("id", "technology", "up", "reason", "capacity_mbps", "estimate", "planned_mbps", "airtime", "external")
        return {
            **{key: known[key] for key in shown},
            "time_s": reports["time_s"],
            "last_heard_ms": heard["last_heard_ms"] if heard is not None else None,
            "sent_mbps": sum(sent) if sent else None,
            "paths": paths,
        }

    # -- interference domains

    def domains(self) -> list[Document]:
        """Distinct sets of links that contend, each with a link whose domain it is."""
        network = self._live()
        if self._domains is None or self._domains[0] is not network.interference:
            # Which links contend with which is a long question in a large network.
            self._domains = (network.interference, shim.aside(_domains, network))
        known = {link["id"]: link for link in self.links()}
        return [
            {
                "id": link,
                "technologies": sorted({known[other]["technology"] for other in links}),
                "links": list(links),
                **{key: known[link][key] for key in ("airtime", "external", "margin")},
            }
            for link, links in shim.breathing(self._domains[1])
        ]

    def _live(self) -> Network:
        """The network as it can be planned with now; the declared one while nothing is planned."""
        try:
            return self._coordinator.live.network.network
        except PlanningError:
            return self._declared

    # -- paths

    def paths(self, source: str, target: str, *, shortest: int, depth: int | None, arms: int) -> Document:
        """What the planner finds between two nodes, on the live network without other flows."""
        network = self._live()
        for place, node in (("from", source), ("to", target)):
            if node not in network.nodes:
                raise NotFoundError(f"{place}: no node {node[:64]!r}")
        if source == target:
            raise ValueRefusedError("to", "expected another node than in from")
        depth = depth or default_depth(network)
        if shortest**depth > MAX_BRANCHES:
            raise ValueRefusedError("depth", f"expected shortest ** depth of at most {MAX_BRANCHES}")
        if self._planning >= MAX_PLANNING:
            raise TooBusyError("others are planning already")
        if self._planner is None or self._planner.network is not network:
            self._planner = Planner(network)
        margin = self._coordinator.live.loop.options.margin
        self._planning += 1
        try:
            plan = shim.aside(_planned, self._planner, source, target, shortest, depth, arms, margin)
        except NoRouteError as error:
            raise NotFoundError(str(error)) from error
        finally:
            self._planning -= 1
        return {"from": source, "to": target, "margin": margin, **plan_document(network, plan)}


def _domains(network: Network) -> list[tuple[str, tuple[str, ...]]]:
    """The first link of every distinct domain, and the links in it."""
    found: dict[bytes, tuple[str, tuple[str, ...]]] = {}
    for number, link in enumerate(network.links):
        domain = network.interference.domain(number)
        key = domain.tobytes()
        if key not in found:
            found[key] = (link.id, tuple(network.links[other].id for other in domain.tolist()))
    return list(found.values())


def _planned(  # noqa: PLR0917 - called in a thread aside
    planner: Planner, source: str, target: str, shortest: int, depth: int, arms: int, margin: float
) -> Plan:
    return planner.plan(source, target, shortest=shortest, depth=depth, arms=arms, margin=margin)
