"""The service of clients: takes evidence of where they are, keeps them reachable there, tells others
(docs/explanation/clients.md).

It lives in one green thread, which takes what switches, access points and agents say from a bounded queue.
"""

from __future__ import annotations

import logging
import math
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

from hyroads.controller.agents.telemetry import JOINED, LEFT, AuthenticationEvent, StationEvent
from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.interface_addresses import InterfaceAddresses
from hyroads.controller.core.network import WIRED, Place
from hyroads.controller.core.services import clients as core
from hyroads.controller.core.services.client_tables import Change, Clients, Evidence, Happened, Notice
from hyroads.controller.core.services.sightings import By, Claim
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.model.state import TopologyContext
from hyroads.controller.ofp.hosts import Claims
from hyroads.controller.services.port import ControllerPort, Publish, changed_since
from hyroads.controller.settings.clients import AccessSettings
from hyroads.controller.switches.host_tables import HostTables, Spot
from hyroads.controller.switches.sessions import SwitchSession

from .closed import ClosedPlaces
from .declared import Places, first_place, place_document, reported_places
from .floods import FloodGuard
from .frames import FrameGuard
from .questions import LAST_CALL_S, MAX_LAST_CALLS, Questions, addresses_of

LOG = logging.getLogger("hyroads.clients")
TICK_S = 0.1
EVERY_S = 1.0
MAX_EVENTS = 1024
"""Of stations."""
MAX_FRAMES_OF_NODE = 64
AT_ONCE = 32
COMPLAINT_EVERY_S = 30.0
REFUSED_FOR_S = 60.0
MAX_COMPLAINTS = 1024


_KINDS: Mapping[Happened, str] = {
    Happened.JOINED: "client.joined",
    Happened.MOVED: "client.moved",
    Happened.LEFT: "client.left",
    Happened.SPOOFED_MAC: "client.spoof",
    Happened.SPOOFED_IP: "client.spoof",
    Happened.TABLE_FULL: "client.refused",
    Happened.AUTHENTICATED: "client.authenticated",
    Happened.WRONG_USER: "client.refused",
}
_FAULTS = frozenset({Happened.SPOOFED_MAC, Happened.SPOOFED_IP, Happened.TABLE_FULL, Happened.WRONG_USER})


@dataclass(eq=False)
class ClientService:
    """Holds ``state``; ``listeners`` are called with every notice, after the rules that follow from it were wanted."""

    context: TopologyContext
    settings: AccessSettings
    port: ControllerPort
    publish: Publish
    clock: Callable[[], float]
    _: KW_ONLY
    switch_grace_s: float
    changed_nodes: set[str] | None = None
    """Nodes whose switches came, went or changed since the last turn, which removes them; None: any may have."""

    def __post_init__(self) -> None:
        context, clock = self.context, self.clock
        self.state = Clients(limits=self.settings.limits, closed=context.closed)
        self.deauthenticate: Callable[[Place, str, float], None] = lambda place, mac, for_s: None
        """Has an access point take back that it let somebody in (802.1X), who may begin anew so many seconds later."""
        self.listeners: list[Callable[[Notice], None]] = []
        self.counters: Counter[str] = Counter()
        self.progress = shim.Signal()
        self._started_s = clock()
        self._ready: dict[str, SwitchSession] = {}
        self._ports: dict[str, dict[str, int]] = {}
        self.tables = HostTables(self._ready, clock, self.context.own_switches)
        addressing = context.addressing
        self._place_of = {(node, name): Place(node, WIRED) for node, name in addressing.access_port.items()}
        self._place_of.update({(n, name): Place(n, k) for (n, k), name in addressing.interface_name.items()})
        self.plain = {addressing.host_mac[client]: client for client in addressing.attachments}
        # The host of a node whose port is under 802.1X has to be authenticated as any other, and can be nowhere else.
        own = {mac: node for node, mac in addressing.host_mac.items()}
        self._bound = dict(context.network.hosts)
        for mac in [mac for mac, node in own.items() if node in context.closed_ports]:
            self._bound[mac] = Place(own.pop(mac), WIRED)
        for mac, bound in self._bound.items():
            self.state = core.binding(self.state, mac, bound).state
        for mac, client in self.plain.items():
            place = first_place(context, self.port.state, client)
            if place is not None:
                self.state = core.found(self.state, mac, place, clock()).state
        # Addresses of the network itself: nobody else may have them.
        stations_at = (at.node for places in addressing.attachments.values() for at in places)
        self._asked = {*stations_at, *context.closed_ports}
        self._to_ask: deque[str] = deque()
        self._ask_at_once = 0
        self._own = own
        self.fixed: dict[str, str] = {}
        self.port.addresses.add(self._use_addresses)
        self._queue: deque[tuple[str, Callable[[], None]]] = deque()
        self._queued: Counter[str] = Counter()
        self._wake = shim.Signal()
        self._is_awake = False
        self._due_s = clock() + EVERY_S
        self.questions = Questions(context, self._ready, clock)
        self._complaints: dict[tuple[object, ...], float] = {}
        self._frames = FrameGuard(self)
        self.floods = FloodGuard(self)
        self.closed = ClosedPlaces(self)

    def _use_addresses(self, addresses: InterfaceAddresses, nodes: frozenset[str]) -> None:
        self.fixed = {**addresses.owners, **self._own}

    # -- evidence: all of it comes through the queue

    def packet_in(self, session: SwitchSession, message: bytes) -> None:
        """A frame of a source that a switch does not know."""
        self._enqueue(session.node, MAX_FRAMES_OF_NODE, partial(self._frames.take, session, message))

    def heard(self, session: SwitchSession, sources: list[tuple[int, str]]) -> None:
        """Port and address of hosts that have sent something lately, by the counters of a switch."""
        names = {number: name for name, number in session.ports.items()}
        places: dict[Place, list[str]] = {}
        for number, mac in sources:
            place = self._place_of.get((session.node, names.get(number, "")))
            if place is not None:
                places.setdefault(place, []).append(mac)
        for place, macs in places.items():
            self.state = core.heard(self.state, place, macs, self.clock())

    def station(self, node: str, event: StationEvent) -> None:
        """What an access point says of a station of its own."""
        self._enqueue("", MAX_EVENTS, partial(self._station, node, event))

    def authentication(self, node: str, event: AuthenticationEvent) -> None:
        """What an access point says of 802.1X."""
        self._enqueue("", MAX_EVENTS, partial(self.closed.told, node, event))

    def tells(self, place: Place) -> None:
        """An access point tells who associates at a place."""
        self.state = core.tells(self.state, place)

    def untold(self, node: str) -> None:
        """A node's access point tells nothing any more."""
        self.state = core.untold(self.state, node, self.clock())

    @property
    def places(self) -> tuple[str, ...]:
        """The wired access ports, where clients can be without having been anywhere before."""
        return tuple(str(place) for place in self._place_of.values())

    def place_of(self, session: SwitchSession, port: str) -> Place | None:
        """The place behind a port of a switch that is read; None: there is none, or the session was replaced."""
        known = self._ready.get(session.node) is session
        return self._place_of.get((session.node, port)) if known else None

    def port_name(self, place: Place) -> str:
        """The name of a place's port."""
        addressing = self.context.addressing
        wired = place.technology == WIRED
        return addressing.access_port[place.node] if wired else addressing.interface_name[place.node, place.technology]

    def knows(self, place: Place) -> bool:
        """Whether there is such a place."""
        return place in self._place_of.values()

    def is_known(self, node: str) -> bool:
        """Whether a node's switch was read, and was given the rules of learned hosts."""
        session = self._ready.get(node)
        return session is not None and session is self.port.switches.get(node)

    def wake(self) -> None:
        """A switch came, went or changed."""
        self._is_awake = True
        self._wake.notify()

    def hand_over(self, client: str, place: Place) -> None:
        """A plain client of the network file is there from now on, unless an association holds it elsewhere."""
        mac = self.context.addressing.host_mac[client]
        self.take(core.handed_over(self.state, mac, place, self.clock()))

    def bind_to(self, mac: str, place: Place | None) -> None:
        """An interface may be at this place alone; None: where the network file or 802.1X binds it, or anywhere."""
        self.take(core.binding(self.state, mac, place or self._bound.get(mac)))

    def forget(self, mac: str) -> bool:
        """As if a client had never been here; False if nobody knows it."""
        known = mac in self.state.interfaces
        self.take(core.forgotten(self.state, mac))
        self.wake()
        return known

    # -- the loop

    def run(self) -> None:
        """Work for ever, in the calling green thread."""
        while True:
            if not self._is_awake and not self._queue:
                self._wake.wait(TICK_S)
            self._is_awake = False
            try:
                self._turn()
            except Exception as error:  # noqa: BLE001 - the service outlives a defect; it is counted and shown
                self.port.exception("the service of clients", error)
                shim.sleep(TICK_S)

    def _turn(self) -> None:
        self._look_at_switches()
        for _ in range(min(AT_ONCE, len(self._queue))):
            source, work = self._queue.popleft()
            self._queued[source] -= 1
            try:
                work()
            except HyroadsError as error:
                self.complain(("evidence",), "clients", str(error))
            shim.sleep(0)
        now_s = self.clock()
        if now_s >= self._due_s:
            self._due_s = now_s + EVERY_S
            self._each_second(now_s)
        self._ask_some()
        self._decide()
        self.tables.advance()
        self.progress.notify()
        shim.sleep(0)

    def _decide(self) -> None:
        """Who was asked and did not answer is not there any more; not before all that came was looked at."""
        if not self.state.questions:
            return
        if not self._queue:
            before = self.state.questions
            self.take(core.decided(self.state, self.clock(), is_heard=self.questions.is_heard))
            for key in before.keys() - self.state.questions.keys():
                if before[key].ip is not None:
                    self.refresh(before[key].mac)
                    self.refresh(before[key].by)
        self.questions.repeat(self.state)

    def _each_second(self, now_s: float) -> None:
        self._frames.sent_on.clear()
        self.floods.each_second()
        silent = core.expiring(self.state, now_s, LAST_CALL_S)
        for interface in silent[:MAX_LAST_CALLS]:
            if interface.place is not None:
                self.questions.probe(interface.mac, interface.place, addresses_of(self.state, interface.mac))
        self.take(core.expired(self.state, now_s))
        for client, places in self._reported_places().items():
            self.take(core.reported(self.state, client, places, now_s))
        if self._to_ask:
            # Turns are slow: those who were not asked yet go first.
            return
        # Who has sent something: each switch is asked once a second, a few in each turn.
        self._to_ask = deque(node for node, s in self._ready.items() if s.hosts.rule_count or node in self._asked)
        self._ask_at_once = math.ceil(len(self._to_ask) * TICK_S / EVERY_S)

    def _reported_places(self) -> dict[str, Places]:
        return reported_places(self.context, self.port.state, self.port.addresses.now)

    def _ask_some(self) -> None:
        for _ in range(min(self._ask_at_once, len(self._to_ask))):
            session = self._ready.get(self._to_ask.popleft())
            if session is not None:
                session.hosts.ask_packets()

    def _enqueue(self, source: str, most: int, work: Callable[[], None]) -> None:
        """So much of a source may wait: none takes the room of others."""
        if self._queued[source] >= most:
            self.counters["dropped"] += 1
            return
        self._queued[source] += 1
        self._queue.append((source, work))
        self._wake.notify()

    # -- switches

    def _look_at_switches(self) -> None:
        """Learn what came, went or changed since the last time."""
        switches = self.port.switches
        changed = changed_since(self.changed_nodes, self._ready, switches)
        for node in changed:
            if node in self._ready and self._ready[node] is not switches.get(node):
                del self._ready[node]
        for node in changed:
            session = switches.get(node)
            if session is None:
                continue
            if session.is_read and node not in self._ready:
                self._welcome(node, session)
            elif session.is_read and session.ports != self._ports[node]:
                lost = self._ports[node].keys() - session.ports.keys()
                self._ports[node] = dict(session.ports)
                for name in lost:
                    if (node, name) in self._place_of:
                        self.take(core.place_down(self.state, self._place_of[node, name], self.clock()))
                self.tables.switch_ready(node)
                for entry_name, entry in self.floods.entries(node).items():
                    session.access.want(entry_name, entry)
                session.access.flush()
        self._end_waiting()

    def _end_waiting(self) -> None:
        """Once every switch has told whom it lets in, rules of anybody else are of no use any more."""
        age_s = self.clock() - self._started_s
        if self.tables.are_all_known or not core.are_all_told(
            self.context.own_switches, self._ready, age_s, self.switch_grace_s
        ):
            return
        self.tables.are_all_known = True
        self.port.wake()
        for node in self._ready:
            self.tables.all_known(node)

    def _welcome(self, node: str, session: SwitchSession) -> None:
        """A switch was read: whom it lets in is there, unless we know better."""
        self._ready[node], self._ports[node] = session, dict(session.ports)
        names = {number: name for name, number in session.ports.items()}
        for number, mac in session.hosts.sources():
            place = self._place_of.get((node, names.get(number, "")))
            known = self.state.interfaces.get(mac)
            if place is not None and (known is None or known.place is None) and mac not in self.fixed:
                self.take(core.found(self.state, mac, place, self.clock()))
        for mac, ip in session.hosts.claims():
            interface = self.state.interfaces.get(mac)
            if interface is not None and interface.place is not None and interface.place.node == node:
                self._frames.claim(Claim(mac, ip, By.ARP), interface.place)
        if self.tables.are_all_known:
            self.tables.all_known(node)
        session.hosts.changed = self.wake
        self.tables.switch_ready(node)

    def _station(self, node: str, event: StationEvent) -> None:
        """Associations count more than what is sent."""
        place, now_s = Place(node, event.technology), self.clock()
        if not self.knows(place) or (event.mac in self.fixed and event.mac not in self.plain):
            raise HyroadsError(f"access point {node}: station {event.mac} at {event.technology[:32]!r} can't be")
        self.tells(place)
        if event.what == LEFT:
            self.take(core.left(self.state, event.mac, place, now_s), is_told=True)
        elif event.what == JOINED:
            # An access point lists a station for minutes after it went to another one: the latest association counts.
            at_s = now_s - event.age_s
            by = partial(core.associated, signal_dbm=event.signal_dbm, at_s=at_s, user=event.user, vlan=event.vlan)
            change = by(self.state, event.mac, place, now_s)
            self.take(change, is_told=True)
            if not change.allowed and place in self.context.closed:
                # It would be let in, and refused here, again and again.
                self.deauthenticate(place, event.mac, REFUSED_FOR_S)
        elif event.signal_dbm is not None:
            self.take(core.signal(self.state, event.mac, place, event.signal_dbm, now_s))

    def refresh(self, mac: str, arrived: Callable[[], None] | None = None) -> None:
        """The rules of a host follow its place and addresses; ``arrived`` is called once they are in force."""
        interface = self.state.interfaces.get(mac)
        place = interface.place if interface is not None else None
        if place is None:
            return
        if mac in self.plain and place.technology != WIRED:
            own = self.context.addressing.host_ip[self.plain[mac]]
            learned = tuple(sorted(ip for ip in addresses_of(self.state, mac) if ip != own))
            name = self.context.addressing.interface_name[place.node, place.technology]
            if learned or arrived is not None or self.tables.has_station(mac):
                self.tables.place_station(place.node, Claims(mac, name, learned), arrived)
        elif self.tables.spot_of(mac) is not None:
            self.tables.place(mac, self.spot(mac, place), arrived)

    def spot(self, mac: str, place: Place) -> Spot:
        """Where a learned host is, for its rules."""
        interface = self.state.interfaces.get(mac)
        hairpin = interface is not None and interface.evidence is Evidence.ASSOCIATION
        context = self.context
        addresses = tuple(sorted(addresses_of(self.state, mac)))
        port, label = context.addressing.access_port[place.node], context.labels.node[place.node]
        return Spot(place.node, port, label, hairpin, addresses)

    def take(self, change: Change, *, is_told: bool = False) -> None:
        """A new state: rules and listeners follow it, and access points, unless it ``is_told`` by one."""
        self.state = change.state
        if change.asks:
            self.questions.repeat(self.state)
        for notice in change.notices:
            self._follow(notice)
            self.closed.follow(notice, is_told=is_told)
            if notice.what in _FAULTS:
                self.counters["refused"] += 1
                if not self.complain((notice.what, notice.mac, notice.place, notice.ip), _where(notice), _what(notice)):
                    continue
            self.publish(_KINDS[notice.what], notice_document(notice))
            for listener in self.listeners:
                listener(notice)

    def _follow(self, notice: Notice) -> None:
        # Clients of the network file have rules of their own, which follow from links.
        if notice.mac in self.plain and notice.place is not None and notice.what in {Happened.JOINED, Happened.MOVED}:
            self.port.place_client(self.plain[notice.mac], notice.place)
            self.tables.admit(notice.place.node, notice.mac)
            self.refresh(notice.mac)
        elif notice.mac in self.plain and notice.what is Happened.LEFT:
            self.tables.remove_station(notice.mac)
        if notice.mac in self.fixed or (notice.place is not None and notice.place.technology != WIRED):
            return
        if notice.what in {Happened.JOINED, Happened.MOVED} and notice.place is not None:
            self.tables.place(notice.mac, self.spot(notice.mac, notice.place), self.questions.moved(notice.mac))
        elif notice.what is Happened.LEFT:
            self.tables.remove(notice.mac)

    def complain(self, key: tuple[object, ...], where: str, what: str) -> bool:
        """Once in a while about the same; whether it was said."""
        now_s = self.clock()
        if now_s < self._complaints.get(key, 0.0):
            return False
        if len(self._complaints) >= MAX_COMPLAINTS:
            self._complaints = {k: until_s for k, until_s in self._complaints.items() if until_s > now_s}
        if len(self._complaints) >= MAX_COMPLAINTS:
            return False
        self._complaints[key] = now_s + COMPLAINT_EVERY_S
        self.port.fault(where, what)
        return True


def notice_document(notice: Notice) -> dict[str, Any]:
    """For the log of events."""
    places = {"place": place_document(notice.place), "other": place_document(notice.other)}
    return {"what": notice.what.value, "mac": notice.mac, **places, "ip": notice.ip, "user": notice.user}


def _where(notice: Notice) -> str:
    return f"client {notice.mac}" + (f" at {notice.place}" if notice.place else "")


def _what(notice: Notice) -> str:
    if notice.what is Happened.TABLE_FULL:
        return "is refused: the table of clients is full"
    if notice.what is Happened.WRONG_USER:
        who = f"user {notice.user}" if notice.user is not None else "somebody without a user name"
        return f"is refused: {who} may not be there (access.dot1x)"
    owner = f"the host at {notice.other}" if notice.other else "somebody else"
    return f"uses {notice.ip or 'the address'} of {owner}: dropped"
