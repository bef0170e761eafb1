"""How policies move clients of the network file, and what policies and plugins see of the network.

Clients with agents are moved by handovers, others by asking their station to go (802.11v). The view of the network
(``core.services.view``) is made from the live state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

from hyroads.controller.control.telemetry import TelemetryIngest
from hyroads.controller.core.network import Place, Role
from hyroads.controller.core.services.client_tables import Evidence, Interface
from hyroads.controller.core.services.mobility import DesiredState, Phase
from hyroads.controller.core.services.view import ClientView, FlowView, LinkView, NetworkView, options_of
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.model.handover import Constrained, places_of
from hyroads.controller.services.clients.declared import place_document
from hyroads.controller.services.clients.locations import ClientService
from hyroads.controller.services.mobility.execution import PathExecutor
from hyroads.controller.services.mobility.handovers import HandoverService
from hyroads.controller.services.mobility.requests import flows_of
from hyroads.controller.services.port import ControllerPort
from hyroads.rest.contract import ConflictError, NotFoundError

from .policies import Outcome
from .stations import ASSOCIATED, Steering


def usable_mbps(port: ControllerPort) -> dict[str, float]:
    """The capacity of every link as far as it is known, Mb/s by link id; 0: it is down."""
    state, capacity = port.state, port.live.loop.capacities()
    down = {link.id: 0.0 for link in port.context.network.links if state.link_fault(port.context, link)}
    return capacity | down


class SteeringActuator:
    """Moves stations by asking them to (802.11v), for policies. Only associated stations can be asked."""

    def __init__(self, service: ClientService, steering: Steering, port: ControllerPort) -> None:
        self._service = service
        self._steering = steering
        self._port = port
        addressing = port.context.addressing
        self._stations = {client: addressing.host_mac[client] for client in addressing.attachments}

    def clients(self, now_s: float) -> Mapping[str, ClientView]:
        """Clients that can be moved, and the places where they could be: those that stations can be sent to."""
        state, network = self._port.state, self._port.context.network
        interference, rates = state.interference or network.interference, usable_mbps(self._port)
        found = {}
        for client, mac in self._stations.items():
            interface = self._service.state.interfaces.get(mac)
            if interface is None or interface.place is None or interface.evidence is not Evidence.ASSOCIATION:
                continue
            options = options_of(network, client, rates, interference, partial(_signal, interface))
            usable = tuple(o for o in options if o.place == interface.place or self._steering.can_go(o.place))
            if len(usable) > 1:
                here = interface.place
                found[client] = ClientView(client, here, interface.since_s, usable, attached=(here,))
        return found

    def move(self, client: str, place: Place) -> str:
        """Begin to move a client; returns the id of the move. :class:`HyroadsError` if that is impossible."""
        self._steering.request(self._stations[client], place)
        return self._stations[client]

    def move_radios(self, client: str, places: Sequence[Place], *, copies: bool) -> str:
        """A station is at one access point: :class:`ConflictError`."""
        raise ConflictError(f"client {client} can't be at {len(places)} places at once: it has no agent")

    def outcome(self, move: str) -> Outcome | None:
        """How a move ended; None while it goes on."""
        transition = self._steering.last(move)
        if transition is None:
            return Outcome("nobody knows of it any more")
        if not transition.is_over:
            return None
        if transition.state == ASSOCIATED:
            return Outcome(None)
        status = "" if transition.status is None else f" (status {transition.status})"
        return Outcome(f"{transition.reason or transition.state}{status}")


def _signal(interface: Interface, place: Place) -> float | None:
    """Only where it is its signal is known."""
    return interface.signal_dbm if interface.place == place else None


def network_view(port: ControllerPort) -> NetworkView:
    """The network now, without clients. Slots may pass while it is made."""
    network, state, loop, plan = port.context.network, port.state, port.live.loop, port.plan
    capacity, airtime = loop.capacities(), loop.airtime()
    links = {
        link.id: LinkView(
            link.id,
            link.source,
            link.target,
            link.technology,
            state.link_fault(port.context, link) is None,
            capacity.get(link.id, 0.0),
            airtime.get(link.id, 0.0),
        )
        for link in shim.cooperatively(network.links)
    }
    flows = {
        name: FlowView(name, flow.spec.source, flow.spec.target, flow.rate_mbps, tuple(p.links for p in flow.paths))
        for name, flow in shim.cooperatively(plan.flows.items() if plan is not None else ())
    }
    nodes = {node.id: node.role.value for node in network.nodes.values()}
    return NetworkView(port.clock(), nodes, links, flows)


CONFIRM_S = 5.0
"""How long agents and switches may take to use other places."""
HOLD_S = 0.25
"""So long receivers wait for what is in flight by the places that are left."""


@dataclass(eq=False)
class _RadioMove:
    """A client whose flows shall use several places, since when. Both ends know the places that are left and the new
    ones before anything is sent by these, and until all has arrived by those (``sent_s``: sent by the new ones since).
    """

    id: str
    client: str
    places: tuple[Place, ...]
    copies: bool
    executor: PathExecutor
    began_s: float
    sent_s: float | None = None
    outcome: Outcome | None = None

    def begin(self) -> None:
        """Use the new places, and know those of before."""
        before = () if self.executor.now is None else self.executor.now.known
        old = tuple(via for via in before if isinstance(via, Place))
        known = tuple(dict.fromkeys((*old, *self.places)))
        self.executor.want(DesiredState(known, self.places, self.copies, HOLD_S))

    def go_on(self, now_s: float) -> None:
        """Take the steps that are due."""
        executor = self.executor
        for _ in executor.events():
            pass
        if self.sent_s is None and executor.is_in_force:
            self.sent_s = now_s
        if self.sent_s is not None and (executor.has_arrived or now_s - self.sent_s >= HOLD_S):
            executor.want(DesiredState(self.places, self.places, self.copies))

    @property
    def wanted(self) -> Constrained:
        """What the move leads to."""
        return Constrained(self.places, self.places, self.copies)


class HandoverActuator:
    """Moves clients with agents by handovers, for policies. A client that uses all its places at once has no place."""

    def __init__(self, service: HandoverService, port: ControllerPort, ingest: TelemetryIngest) -> None:
        self._service = service
        self._port = port
        self._ingest = ingest
        network = port.context.network
        self._clients = tuple(
            name
            for name, node in network.nodes.items()
            if node.role is Role.CLIENT and node.agent and len(places_of(network, name)) > 1
        )
        self._since: dict[str, tuple[Sequence[Place], float]] = {}
        self._radio_moves: dict[str, _RadioMove] = {}
        """By client."""
        self._advancing = False
        self._numbers = count(1)

    def clients(self, now_s: float) -> Mapping[str, ClientView]:
        """Clients that can be moved, and the places where they could be."""
        state, network = self._port.state, self._port.context.network
        interference, rates = state.interference or network.interference, usable_mbps(self._port)
        found = {}
        for name in self._clients:
            constrained = state.constrained.get((name, None))
            place = constrained.stays if constrained is not None else None
            carry = () if constrained is None else constrained.carry
            attached = tuple(via for via in carry if isinstance(via, Place))
            options = options_of(network, name, rates, interference, self._signal_of(name, now_s))
            since_s = self._since_s(name, attached, now_s)
            found[name] = ClientView(name, place, since_s, options, self._demand(name), attached)
        return found

    def move(self, client: str, place: Place) -> str:
        """Begin to move a client; returns the id of the move. :class:`HyroadsError` if that is impossible."""
        return str(self._service.request({"client": client, "to": place_document(place)})["id"])

    def move_radios(self, client: str, places: Sequence[Place], *, copies: bool) -> str:
        """Let a client's flows use several places at once; ConflictError while it is being handed over."""
        if self._service.is_moving(client):
            raise ConflictError(f"{client} is being handed over")
        port = self._port
        others = tuple(
            key for key, each in port.state.constrained.items()
            if key[0] == client and key[1] is not None and not each.is_of_paths
        )  # fmt: skip
        key, flows = (client, None), frozenset(flows_of(port, client))
        before = self._radio_moves.pop(client, None)
        if before is not None:
            before.executor.end()
        executor = PathExecutor(client, port, (key,), flows, port.state.constrained.get(key), others)
        name = f"radios-{client}-{next(self._numbers)}"
        self._radio_moves[client] = move = _RadioMove(name, client, tuple(places), copies, executor, port.clock())
        move.begin()
        return name

    def advance(self) -> None:
        """Let moves of radios go on as far as they can; called whenever something may have been confirmed."""
        if self._advancing:
            return
        self._advancing = True
        try:
            for move in [move for move in self._radio_moves.values() if move.outcome is None]:
                self._go_on(move)
        finally:
            self._advancing = False

    def _go_on(self, move: _RadioMove) -> None:
        port, now_s = self._port, self._port.clock()
        if port.state.constrained.get((move.client, None)) != move.executor.now:
            move.outcome = Outcome("another handover was asked for")
        else:
            move.go_on(now_s)
            if move.executor.now == move.wanted and port.carried_out(move.executor.flows):
                move.outcome = Outcome(None)
            elif now_s - move.began_s > CONFIRM_S:
                move.outcome = Outcome(f"agents and switches did not confirm it in {CONFIRM_S:g} s")
                # Whoever comes back shall not be left on the way.
                move.executor.restore({(move.client, None): move.wanted})
        if move.outcome is not None:
            move.executor.end()

    def outcome(self, move: str) -> Outcome | None:
        """How a move ended; None while it goes on."""
        self.advance()
        radios = next((one for one in self._radio_moves.values() if one.id == move), None)
        if radios is not None:
            if radios.outcome is not None:
                del self._radio_moves[radios.client]
            return radios.outcome
        try:
            document = self._service.document(move)
        except NotFoundError:
            return Outcome("nobody knows of it any more")
        if not document["over"]:
            return None
        return Outcome(None if document["phase"] == Phase.DONE.value else str(document["reason"]))

    def _since_s(self, client: str, places: Sequence[Place], now_s: float) -> float:
        known = self._since.get(client)
        if known is None or known[0] != places:
            self._since[client] = known = (places, now_s)
        return known[1]

    def _demand(self, client: str) -> float:
        """What its flows send at most, Mb/s; infinite if one of them takes what it can get."""
        flows, demands = self._port.state.flows.values(), self._port.live.loop.state.demands
        mine = (flow.spec for flow in flows if client in (flow.spec.source, flow.spec.target))
        return sum(demands.demand_mbps(spec.id) for spec in mine)

    def _signal_of(self, client: str, now_s: float) -> Callable[[Place], float | None]:
        radios, macs = self._ingest.radios, self._port.addresses.now.mac

        def signal(place: Place) -> float | None:
            interface, mac = (place.node, place.technology), macs.get((client, place.technology))
            if not radios.is_fresh(interface, now_s):
                return None
            return next((row.signal_dbm for row in radios.neighbours(interface) if row.mac == mac), None)

        return signal
