"""Theory of a demo: exact optima from the capacities that the emulator has, not from what the controller knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.joint_optimum import JointOptimum, joint_optimum
from hyroads.controller.core.network import FlowSpec, Network
from hyroads.controller.ofp.compile import attached_only, default_places


@dataclass(frozen=True)
class Theory:
    """Optima of a network whose controller leaves the share ``margin`` of every domain's time free."""

    network: Network
    margin: float

    @staticmethod
    def of(network: Network, margin: float) -> Theory:
        """Plain clients use only the links to where they are attached."""
        addressing = Addressing.of(network)
        return Theory(attached_only(network, addressing, default_places(addressing)), margin)

    def with_capacities(self, capacities_mbps: Mapping[str, float]) -> Theory:
        """After a change of the medium's links (link id -> Mb/s)."""
        return Theory(self.network.with_capacities(capacities_mbps), self.margin)

    def without_margin(self) -> Theory:
        """What all airtime would carry."""
        return Theory(self.network, 0.0)

    def optimum(
        self,
        flows: Sequence[FlowSpec],
        external_mbps: Mapping[str, float] | None = None,
        demand_mbps: Mapping[str, float] | None = None,
    ) -> JointOptimum:
        """The optimum over all paths of all flows, beside traffic that is not ours (link id -> Mb/s of L2 payload)."""
        external = self.external_airtime(external_mbps or {})
        return joint_optimum(self.network, flows, margin=self.margin, external=external, demand_mbps=demand_mbps)

    def external_airtime(self, external_mbps: Mapping[str, float]) -> dict[str, float]:
        """Share of time that others use in the domain of every link."""
        shares = dict.fromkeys(self.network.link_index, 0.0)
        for link, mbps in external_mbps.items():
            index = self.network.link_index[link]
            busy = mbps / self.network.links[index].capacity_mbps
            for other in self.network.interference.domain(index).tolist():
                shares[self.network.links[other].id] += busy
        return shares
