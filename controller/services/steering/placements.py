"""Finds the best attachments of clients' radios for policies, in the network as it is now (``core.placement``).

A placement takes up to a fifth of a second, so a few clients have their turn each time, and in a thread. Links of
clients count with the capacity that they will have in a moment, where it clearly falls or grows: who walks away from an
access point is moved before it is gone.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.network import ClientMode, Network, Place, Role
from hyroads.controller.core.placement import place_radios, rate_of
from hyroads.controller.core.services.view import ClientView, Radios
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.services.port import ControllerPort

from .actuators import usable_mbps

AT_ONCE = 4
"""Clients whose radios are placed in one turn."""
TREND_S, AHEAD_S = 4.8, 3.5
"""A trend is that of so long, and goes on for so long: a second passes until a change is measured, one until the next
turn, and radios take a moment to move."""
LEAST_READINGS, CLEAR = 4, 3.0
"""A clear trend is so many times its standard error."""


@dataclass(eq=False)
class Trends:
    """Capacities of links, Mb/s by id, as they were, and as they will be ``AHEAD_S`` later. Times in seconds."""

    _seen: deque[tuple[float, Mapping[str, float]]] = field(default_factory=deque)

    def ahead(self, mbps: Mapping[str, float], now_s: float) -> dict[str, float]:
        """The capacities of those links that have a clear trend; ``mbps`` is what they have now."""
        while self._seen and now_s - self._seen[0][0] > TREND_S:
            self._seen.popleft()
        self._seen.append((now_s, mbps))
        found = {}
        for link, now_mbps in mbps.items():
            readings = [(at_s - now_s, then[link]) for at_s, then in self._seen if then.get(link, 0.0) > 0.0]
            slope = clear_slope(readings) if now_mbps > 0.0 else 0.0
            if slope:
                found[link] = max(0.0, now_mbps + slope * AHEAD_S)
        return found


def clear_slope(readings: Sequence[tuple[float, float]]) -> float:
    """Slope of the straight line through readings (x, y), by least squares; 0 unless it is ``CLEAR``."""
    count = len(readings)
    if count < LEAST_READINGS:
        return 0.0
    middle, mean = sum(x for x, _ in readings) / count, sum(y for _, y in readings) / count
    spread = sum((x - middle) ** 2 for x, _ in readings)
    if spread <= 0.0:
        return 0.0
    slope = sum((x - middle) * (y - mean) for x, y in readings) / spread
    error = sum((y - mean - slope * (x - middle)) ** 2 for x, y in readings)
    return slope if abs(slope) > CLEAR * math.sqrt(error / (count - 2) / spread) else 0.0


@dataclass(eq=False)
class RadioPlacements:
    """One per controller. ``mode`` says what radios are placed for (:class:`ClientMode`)."""

    port: ControllerPort
    mode: Callable[[], str]
    trends: Trends = field(default_factory=Trends)
    _latest: dict[str, int] = field(default_factory=dict)
    _turn: int = 0

    def __call__(self, clients: Mapping[str, ClientView]) -> Mapping[str, ClientView]:
        """The clients, those whose turn it is with their ``radios``: who waited longest comes first."""
        self._turn += 1
        self._latest = {name: turn for name, turn in self._latest.items() if name in clients}
        waiting = sorted(clients, key=lambda name: (self._latest.get(name, 0), name))
        network, mode, found = self._network(), ClientMode(self.mode()), dict(clients)
        for name in waiting[:AT_ONCE]:
            self._latest[name] = self._turn
            peer = self._peer(name)
            if peer is not None:
                radios = shim.in_thread(radios_of, network, clients[name], peer, mode)
                found[name] = replace(clients[name], radios=radios)
        return found

    def _network(self) -> Network:
        """With the capacities of a moment ahead, and the interference that is known now; links that are down have no
        capacity.
        """
        network, mbps = self.port.context.network, usable_mbps(self.port)
        clients = {name for name, node in network.nodes.items() if node.role is Role.CLIENT}
        mine = {link.id: mbps[link.id] for link in network.links if clients & {link.source, link.target}}
        live = network.with_capacities(mbps | self.trends.ahead(mine, self.port.clock()))
        return replace(live, interference=self.port.state.interference or network.interference)

    def _peer(self, client: str) -> str | None:
        """The other end of most of a client's flows; without flows the first gateway, if there is one."""
        specs = (flow.spec for flow in self.port.state.flows.values())
        peers = Counter(
            spec.target if spec.source == client else spec.source
            for spec in specs
            if client in (spec.source, spec.target)
        )
        if peers:
            return min(peers, key=lambda peer: (-peers[peer], peer))
        nodes = self.port.context.network.nodes.values()
        return next((node.id for node in nodes if node.role is Role.GATEWAY and node.id != client), None)


def radios_of(network: Network, client: ClientView, peer: str, mode: ClientMode) -> Radios | None:
    """The best attachments of a client's radios among its options; None if there are none, or no path.

    Pure. ``network`` has the capacities of now.
    """
    options = {option.place for option in client.options}
    closed = {
        link.id: 0.0
        for link in network.links
        if link.target == client.id and Place(link.source, link.technology) not in options
    }
    usable = network.with_capacities(closed)
    try:
        placed = place_radios(usable, client.id, peer, mode)
    except HyroadsError:
        # No path, or more radios than can be placed: nobody is moved for that.
        return None
    best = placed.in_use
    attached = {place.technology: place.node for place in client.attached}
    if _is_other_kind(network, client.attached, best, mode):
        attached_mbps = 0.0
    else:
        attached_mbps = rate_of(usable, client.id, peer, mode, attached)
    return Radios(best, placed.total_mbps, attached_mbps, mode is ClientMode.HIGH_ROBUSTNESS)


def _is_other_kind(network: Network, attached: Sequence[Place], best: Sequence[Place], mode: ClientMode) -> bool:
    """Whether the present attachments are not what the mode asks for, whatever they give."""
    radios = {place.technology for place in attached}
    if len(radios) < len(attached):
        # A radio that uses several links at once.
        return True
    if mode is ClientMode.COST_EFFICIENT:
        return bool(radios & network.metered) and not {place.technology for place in best} & network.metered
    different = [(len(places), len({place.node for place in places})) for places in (attached, best)]
    return mode is ClientMode.HIGH_ROBUSTNESS and different[0] < different[1]
