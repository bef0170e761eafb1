"""What plugins and policies see of the network, made from the live state (``core.services.view``)."""

from __future__ import annotations

from hyroads.controller import ryu_shim as shim
from hyroads.controller.coordinator import Coordinator
from hyroads.controller.core.services.view import FlowView, LinkView, NetworkView


def network_view(coordinator: Coordinator) -> NetworkView:
    """The network now, without clients. Slots may pass while it is made."""
    network, state, loop, plan = coordinator.fabric.network, coordinator.state, coordinator.live.loop, coordinator.plan
    capacity, airtime = loop.capacities(), loop.airtime()
    links = {
        link.id: LinkView(
            link.id,
            link.source,
            link.target,
            link.technology,
            state.link_fault(coordinator.fabric, link) is None,
            capacity.get(link.id, 0.0),
            airtime.get(link.id, 0.0),
        )
        for link in shim.breathing(network.links)
    }
    flows = {
        name: FlowView(name, flow.spec.source, flow.spec.target, flow.rate_mbps, tuple(p.links for p in flow.paths))
        for name, flow in (plan.flows.items() if plan is not None else ())
    }
    nodes = {node.id: node.role.value for node in network.nodes.values()}
    return NetworkView(coordinator.clock(), nodes, links, flows)
