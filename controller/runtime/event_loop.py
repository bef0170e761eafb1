"""The controller's event loop: events change the state, the state is planned, and the plan is deployed.

Everything runs in green threads of one operating-system thread. Only the loop itself blocks, while there is nothing to
do. Services use it as their ``services.port.ControllerPort``.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from operator import is_
from typing import Any

from hyroads.controller.agents.changes import DecodedReports
from hyroads.controller.agents.configs import AgentConfig
from hyroads.controller.agents.frame_keys import FrameKeys
from hyroads.controller.agents.markers import SequenceMarkers
from hyroads.controller.agents.sessions import Session
from hyroads.controller.control.flow_order import Views
from hyroads.controller.control.rate_override import RateOverride
from hyroads.controller.control.reports import ReportRegistry
from hyroads.controller.control.routes import Routes
from hyroads.controller.control.slots import SlotClock
from hyroads.controller.control.source import Source
from hyroads.controller.control.unconfirmed import flows_unconfirmed, leader_unconfirmed, rates_unconfirmed
from hyroads.controller.core.addressing import Numbers
from hyroads.controller.core.network import Place
from hyroads.controller.core.port_readings import PortReading
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.model import state as model
from hyroads.controller.model.events import EventLog, changes
from hyroads.controller.model.handover import Constrained, Key
from hyroads.controller.model.pending_names import PLAN, START, agent_name, switch_name
from hyroads.controller.model.plan import Plan, hello_configs
from hyroads.controller.model.state import DeclaredFlow, Presence, State, TopologyContext
from hyroads.controller.native.rates import stop_solver
from hyroads.controller.settings.controller import Settings
from hyroads.controller.switches.server import SwitchRegistry
from hyroads.controller.switches.sessions import SwitchSession
from hyroads.rest.contract import NotSavedError

from .address_book import AddressBook
from .agent_deployer import AgentDeployer
from .deployer import Deployer
from .faults import FaultLog, log_plan
from .from_settings import LARGE, holds_of, live_of, options_of
from .garbage import Garbage
from .link_states import LinkStates
from .saver import Saver
from .urgency import CUT_S, DECLARED_S, Urgency

LOG = logging.getLogger("hyroads.controller")
TICK_S = 0.2
KEYS_S = 60.0
"""How often it is looked whether agents get other keys."""
# A killed agent dials again after 0.1 s; a switch answers within milliseconds.
BOTH_GONE_S = 0.3
SIGN_OF_LIFE_S = 0.5
STARTING_SLOTS = 5
"""One of so many slots is carried out while devices of a large network come up."""
# Better paths are looked for once all is in force, or after this time.
BRING_UP_S = 30.0
STEP_S = 0.005
"""Work that is done in one go, before others may run."""
MOST_STEP_S = 0.05
"""The same while devices of a large network come up, and others take long each time that they run."""
MOST_PREPARED = 3
"""So often at most a plan is prepared anew because the state has changed meanwhile."""
BUSY_S = 0.01
"""Others who take so long each time that they run have much to do: rates are worked out without letting them run."""


@dataclass(eq=False)
class EventLoop:
    """Holds state and plan, and brings switches and agents to it. ``save`` writes the state file, ``source`` measures
    (None: what the network file says), ``override`` decides the rates of some flows, ``routes`` are those of before.
    """

    context: TopologyContext
    settings: Settings
    state: State
    numbers: InitVar[Numbers]
    _: KW_ONLY
    clock: Callable[[], float]
    attended: Callable[[], float] | None = None
    """The clock by which switches are awaited (``core.attention``); None: the same."""
    events: EventLog
    wall_s: Callable[[], float] = time.time
    """The time of day, which controllers of a network share."""
    save: InitVar[Callable[[State, Numbers], None]]
    saved_in: InitVar[tuple[str, type[NotSavedError]]] = ("state file", NotSavedError)
    """Where state is saved, and what is raised where it can't be."""
    source: InitVar[Source | None] = None
    override: InitVar[RateOverride | None] = None
    routes: InitVar[Routes | None] = None
    before_slot: list[Callable[[], None]] = field(default_factory=list, init=False)
    """Who has measurements that wait to be taken."""
    before_push: list[Callable[[], None]] = field(default_factory=list, init=False)
    """Services that follow the network and confirmations before anybody is told anything."""
    followers: list[Callable[[], None]] = field(default_factory=list, init=False)
    """Called whenever something may have been confirmed, or has come by a watched path."""
    collectors: list[Callable[[], Iterator[Any]]] = field(default_factory=list, init=False)
    """Metrics of services."""
    epoch_listeners: list[Callable[[int, str], None]] = field(default_factory=list, init=False)
    """Told of an epoch that a device shows and that is greater than any known here: another controller leads."""
    awaited: list[Callable[[], bool]] = field(default_factory=list, init=False)
    """Whether that has been heard of which nothing should be deployed without; ``grace_s`` at most."""
    leads: bool = field(default=True, init=False)
    """Whether this controller is to change anything: of several, one at a time is."""
    settled: bool = field(default=False, init=False)
    """Whether all that can be known at a start is known: from now on devices are told what to do."""
    leader_waits: Callable[[], frozenset[str] | None] = field(default=lambda: None, init=False)
    """As of ``ControllerPort``; set where several controllers run."""
    is_at_rest: bool = field(default=False, init=False)
    """Whether all that was asked for so far is planned, and sent as far as the order of changes permits."""
    _dirty: bool = field(default=True, init=False)
    """There is something to plan or to tell; ``_hurry``: at once; ``_has_news``: for followers alone."""
    _hurry: bool = field(default=False, init=False)
    _has_news: bool = field(default=False, init=False)
    _turned_s: float = field(default=0.0, init=False)
    _paused_s: float = field(default=0.0, init=False)
    """When others ran last; ``_others_s``: and how long they did."""
    _others_s: float = field(default=0.0, init=False)
    _is_bringing_up: bool = field(default=False, init=False)
    """Devices of a large network are told for the first time what to do; ``_settled_s``: since when."""
    _settled_s: float = field(default=-BRING_UP_S, init=False)
    _ticked_s: float = field(default=-TICK_S, init=False)
    """When switches were last looked at whether they are late."""
    _tried_version: int = field(default=-1, init=False)
    """Of the state that was planned last, or could not be."""
    _asked: tuple[object, ...] = field(default=(), init=False)
    """Flows, constraints and places that were planned last."""
    _slots_begun: int = field(default=0, init=False)
    _gave_s: float = field(default=0.0, init=False)
    """How long the slot of now has given way."""
    _is_preparing: bool = field(default=False, init=False)
    """Other capacities are prepared, which then count."""
    _prepared: State | None = field(default=None, init=False)
    """What is being prepared to be planned."""
    _is_refreshing: bool = field(default=False, init=False)
    """Rates are worked out between slots."""

    def __post_init__(  # noqa: PLR0917 - the fields above, in their order
        self,
        numbers: Numbers,
        save: Callable[[State, Numbers], None],
        saved_in: tuple[str, type[NotSavedError]],
        source: Source | None,
        override: RateOverride | None,
        routes: Routes | None,
    ) -> None:
        context, settings, clock = self.context, self.settings, self.clock
        self.started_s = clock()
        self.declared = context.network
        """The network file as it was last read; nodes, links and their order are those of ``context``."""
        self._is_large = len(context.network.links) >= LARGE
        self._garbage, self.urgency = Garbage(), Urgency(clock, self._hold, stop_solver)
        self.live = live_of(context, settings, numbers, source, override, routes=routes, urgency=self.urgency)
        self._hellos = hello_configs(context, options_of(settings))
        self.holds = holds_of(context, settings, self._hellos.values())
        self.slots = SlotClock(settings.slot_ms / 1e3, clock)
        self.plan_ms = self.planned_at_s = 0.0
        self.reports = ReportRegistry(clock)
        self.counters: Counter[str] = Counter()
        self.faults = FaultLog(clock, self.counters, self.events)
        self.fault, self.exception = self.faults.fault, self.faults.exception
        self.stranger = self.faults.stranger
        told = (self.counters, self.fault, lambda: self.wake(now=True))
        self.keys = FrameKeys(context.addressing.interface_mac, self.wall_s, seals_links=context.seals_links)
        self.agents = AgentDeployer(clock, *told, self._greater_epoch_seen, keys=self.keys)
        attended = self.attended or clock
        self.registry = SwitchRegistry(context, attended, *told, greater_epoch_seen=self._greater_epoch_seen)
        self.addresses = AddressBook(context.addresses.with_reported(self.state.reported))
        self.addresses.add(self.keys.use_addresses)
        self.addresses.add(self.registry.use_addresses)
        self.switches, self.session_of = self.registry.sessions, self.registry.of
        self.links = LinkStates(context, self.state, self.switches, self.agents, self.events.publish)
        self.agents.runs = self.live.adopt_rates
        self._deployer = Deployer(
            self.live, self.agents, self.registry, self._is_overtaken, is_urgent=lambda: self.urgency.is_there
        )
        self.views, self.additions = self._deployer.views, self._deployer.additions
        self.markers = SequenceMarkers(self._hear)
        self.progress, self._wake = shim.Signal(), shim.Signal()
        self.saver = Saver(
            lambda: save(self.state, self.live.numbers),
            wake=self.wake,
            progress=self.progress,
            faults=self.faults,
            clock=clock,
            where=saved_in[0],
            refusal=saved_in[1],
            written=self._look_whether_deployed,
        )
        self._keys_s = self.started_s

    @property
    def plan(self) -> Plan | None:
        """What is in force, or on its way."""
        return self.live.plan

    @property
    def turned_s(self) -> float:
        """When the loop turned last, by its clock; it does so each ``TICK_S`` at least."""
        return self._turned_s

    def note_unsaved(self) -> None:
        """What a service saves has changed."""
        self.saver.note()
        self.wake()

    def _greater_epoch_seen(self, epoch: int, who: str) -> None:
        # A device that lies may do so at each message; it is named once it is in quarantine.
        LOG.debug("%s shows epoch %d, which is greater than ours", who, epoch)
        for listener in self.epoch_listeners:
            listener(epoch, who)

    # -- several controllers

    def lead(self, epoch: int) -> None:
        """Change devices from now on; they obey us as the leader of this epoch, and are told what differs."""
        if self.live.lead_from_here(self.clock()):
            self._tried_version = -1
            self._plan_if_changed()
        self.leads = True
        self._deployer.lead()
        self.registry.lead(epoch)
        self.agents.lead(epoch)

    def follow(self) -> None:
        """Change nothing from now on, because another controller leads."""
        self.leads = False
        self.registry.follow()
        self.agents.follow()

    def adopt(self, transition: Callable[[State], State], numbers: Numbers, routes: Routes | None = None) -> None:
        """State, numbers and these routes are what the leader has saved."""
        self.live.adopt_numbers(numbers)
        self.live.follow_routes(routes or {})
        after = transition(self.state)
        # Numbers alone are no change of the state, and need a plan nevertheless.
        self._become(after if after is not self.state else replace(after, version=after.version + 1))
        self._plan_if_changed()

    # -- events: flows

    def declare(self, flow: DeclaredFlow) -> None:
        """A flow shall be carried."""
        self._give_way(DECLARED_S, {flow.spec.id})
        self.change_flows([flow], [])

    def remove(self, flow: str) -> None:
        """A flow is no longer wanted."""
        self._give_way(DECLARED_S, {flow})
        self.change_flows([], [flow])

    def constrain(self, changes: Mapping[Key, Constrained | None]) -> None:
        """Flows of clients shall use other paths (docs/reference/handovers.md)."""
        self._become(model.constrained(self.state, changes), urgent=True)
        self._plan_if_changed()

    def place_client(self, client: str, place: Place) -> None:
        """A plain client of the network file is at another of its attachments."""
        before = self.state
        self._become(model.client_placed(before, self.context, client, place), urgent=True)
        if self.state is not before:
            LOG.info("client %s is at %s", client, place)
        self._plan_if_changed()

    def change_flows(self, new: Iterable[DeclaredFlow], gone: Iterable[str]) -> None:
        """Several at once, in one plan."""
        state = self.state
        for flow in gone:
            state = model.flow_removed(state, flow)
        for declared in new:
            state = model.flow_declared(state, declared)
        self._become(state)
        self._plan_if_changed()

    def change(self, transition: Callable[[State], State]) -> None:
        """A function of ``model.state`` takes effect, and is planned."""
        self._become(transition(self.state))
        self._plan_if_changed()

    # -- events: switches

    def switch_up(self, connection: shim.Connection) -> None:
        """A switch is ready for requests."""
        session = self.registry.opened(connection)
        if session is not None:
            self._become(self._with_ports(session))
            self.links.look_at(session.node)

    def switch_ports(self, connection: shim.Connection) -> None:
        """Ports of a switch came, went or changed."""
        session = self.session_of(connection)
        if session is not None:
            session.on_ports()
            lost = self.state.ports.get(session.node, frozenset()) - session.ports.keys()
            self._become(self._with_ports(session))
            if lost:
                self._give_way(CUT_S)

    def _with_ports(self, session: SwitchSession) -> State:
        """The state with the ports of a switch, and their addresses."""
        node = session.node
        state = model.switch_up(self.state, node, session.ports)
        return model.addresses_reported(state, self.context, node, session.connection.addresses())

    def switch_gone(self, connection: shim.Connection) -> None:
        """A connection ended. The switch goes on by itself, and may dial again before anyone needs it."""
        node = self.registry.closed(connection)
        if node is not None:
            self.links.look_at(node)
            self._await_switch(node)
            self.wake()

    def _await_switch(self, node: str) -> None:
        """A switch goes on without a connection, and has a long time to dial again. A node without agent and switch
        has lost its power; whether it has is asked as soon as one of the two is gone.
        """
        agent_lost = self.state.agents.get(node) is Presence.DOWN
        if node in self.switches:
            if agent_lost:
                self.switches[node].ask_sign_of_life(SIGN_OF_LIFE_S)
        elif self.state.switches.get(node) is Presence.UP:
            self.registry.wait_for(node, BOTH_GONE_S if agent_lost else self.settings.timings.switch_grace_s)

    # -- events: agents (agents.listeners.Listener)

    def agent_up(self, session: Session) -> None:
        """An agent joined."""
        fresh = session.hello.revision == 0
        # A fresh agent runs nothing, not even hello frames, and is told of those though no flow needs it.
        silent = AgentConfig(replace(self._hellos[session.node], send=(), expect=()))
        self.agents.joined(session, silent if fresh else None)
        if self.registry.is_awaited(session.node):
            self.registry.wait_for(session.node, self.settings.timings.switch_grace_s)
        self._become(model.agent_up(self.state, self.context, session.node, fresh=fresh, now_s=self.clock()))
        self.links.look_at(session.node)
        self.wake()

    def agent_down(self, session: Session) -> None:
        """An agent is gone."""
        if self.agents.left(session):
            self.reports.forget(session.node)
            self.markers.left(session.node)
            self._become(model.agent_down(self.state, self.context, session.node), urgent=True)
            self.links.look_at(session.node)
            self._give_way(CUT_S)
            self._await_switch(session.node)

    def agent_links(self, session: Session, up: Mapping[str, bool]) -> None:
        """An agent tells of its inbound links."""
        before, now_s = self.state, self.clock()
        heard = model.links_heard(before, self.context, session.node, up, now_s)
        if heard is before:
            return
        self._become(self.holds.reported(before, heard, now_s))
        if self.state.silent - before.silent:
            self._give_way(CUT_S)
        for link in sorted(self.state.silent ^ before.silent):
            what = "silent" if link in self.state.silent else "heard again"
            LOG.warning("link %s is %s", link, what + (", held down" if link in self.state.held else ""))

    def agent_ports(self, session: Session, ports: Collection[PortReading]) -> None:
        """An agent read the MTU and the address of its node's ports."""
        self._become(model.ports_read(self.state, self.context, session.node, ports))

    def agent_report(self, session: Session, report: Mapping[str, Any]) -> None:
        """Counters of an agent."""
        self.reports.take(session.node, report)
        if self.markers.reported(session.node, report):
            self._tell()

    def agent_reports(self, reports: DecodedReports) -> None:
        """Counters of several agents at once."""
        self.reports.take_decoded(reports)
        if self.markers.is_awaited:
            news = [self.markers.reported(node, reports.report(i)) for i, node in enumerate(reports.nodes)]
            if any(news):
                self._tell()

    def agent_misbehaved(self, peer: str, what: str) -> None:
        """Someone at the agents' port did what the protocol does not allow."""
        self.counters["malformed_agent"] += 1
        self.stranger(f"agents' port, {peer}", what)

    # -- the loop

    def wake(self, *, now: bool = False) -> None:
        """There is something to do; ``now`` is for confirmations, which need no waiting for more of their kind."""
        self._dirty, self.is_at_rest = True, False
        self._hurry = now or self._hurry
        self._wake.notify()

    def _hear(self) -> None:
        """Something came that followers wait for, and that lets nobody be told anything else."""
        self._has_news = True
        self._wake.notify()

    def run(self) -> None:
        """Work for ever, in the calling green thread."""
        while True:
            if not (self._dirty or self._has_news):
                self._wake.wait(TICK_S)
            if self._has_news and not self._dirty and self.clock() < self._turned_s + TICK_S:
                self._has_news = False
                self._tell()
                self.progress.notify()
                continue
            if self._dirty and not self._hurry:
                shim.sleep(self.settings.timings.coalesce_ms / 1e3)
            self._dirty, self._hurry, self._has_news, self._turned_s = False, False, False, self.clock()
            self.is_at_rest = False
            try:
                self._tick()
                self._cycle()
                self.is_at_rest = self.settled and not self._dirty and self._tried_version == self.state.version
            except Exception as error:  # noqa: BLE001 - the loop outlives a defect in planning; it is counted and shown
                self.exception("the planning loop", error)
                shim.sleep(TICK_S)

    def run_slots(self) -> None:
        """Turn the loop once per slot, for ever, in a green thread of its own."""
        while True:
            shim.sleep(self.slots.wait_s())
            began_s = self.clock()
            self.urgency.wait()
            self._gave_s = self.clock() - began_s
            self.urgency.slot_begins()
            self._call(self.before_slot)
            with self.slots:
                try:
                    self._slot()
                except Exception as error:  # noqa: BLE001 - the next slot is another try; it is counted and shown
                    self.exception("the slot", error)
            # Somebody may have asked for something meanwhile.
            shim.sleep(0)
            self._garbage.after_slot(self.clock(), is_urged=self.saver.pending or self.urgency.is_there)

    @property
    def is_starting(self) -> bool:
        """Whether devices of a large network come back, or are told for the first time what to do."""
        return self._is_large and (not self.settled or self._is_bringing_up)

    def _slot(self) -> None:
        self._slots_begun += 1
        if self.is_starting and self._slots_begun % STARTING_SLOTS:
            # Few can do something with rates of now, and the processor is to devices that come back.
            return
        is_urged, asks = self._is_large and self.saver.pending, self.settled and self.leads
        in_one_go = self.slots.late_s - self._gave_s > BUSY_S and self.urgency.others_s > BUSY_S
        # Devices that come up say much at a time, and a slot would wait for all of it at each of many steps.
        go = {"ask": asks, "is_urged": is_urged, "in_one_go": in_one_go, "in_small_steps": not self.is_starting}
        plan = self.live.turn(self.reports, self.clock(), **go)
        if self.settled and (plan is not None or (self.plan is not None and self.plan.fill)):
            self.agents.push_rates(self.live.in_force)
        # While it turned, others may have changed the state.
        measured = self.live.with_measured(self.state, self.clock())
        if not self._is_large or not self.settled:
            self._become(measured, urgent=self.settled)
        elif measured is not self.state and not self._is_preparing:
            self._is_preparing = True
            shim.spawn(self._prepare_measured, measured)

    def _prepare_measured(self, measured: State) -> None:
        """In a large network other capacities count once they can be planned with: what that takes no cut waits for."""
        try:
            shim.in_thread(self.live.preparation(measured, is_urgent=False).run)
        except Exception as error:  # noqa: BLE001 - the loop outlives a defect in planning; it is counted and shown
            self.exception("preparing what was measured", error)
        self.urgency.wait()
        self._is_preparing = False
        self._become(model.measured(self.state, measured.capacity_mbps, measured.interference), urgent=True)

    def _cycle(self) -> None:
        self._plan_if_changed(by_loop=True)
        # What was confirmed may let services go on; what they want then goes out with the rest.
        self._tell()
        self._plan_if_changed(by_loop=True)
        self._is_overtaken()
        if self.settled and self.plan is not None:
            self._call(self.before_push)
            self._deployer.push(self.plan, self._look_whether_deployed)
            self._refresh()
            self._is_overtaken()
        if self.settled:
            before = self.plan
            better = self._improve()
            if better is not None:
                log_plan(before, better, self.events)
                self.saver.note()
                self._deployer.push(better)
                self._refresh()
            if self.live.has_better:
                self.wake(now=True)
        if not self.urgency.is_there:
            self.urgency.searches.open()
        if self._prepared is not self.state:
            # Else it would be saved now, and again once it is planned.
            self.saver.begin()
        self.progress.notify()

    def _improve(self) -> Plan | None:
        """Where it takes long to find better paths, cuts and devices that come back do not wait for it."""
        now_s = self.clock()
        if not self._is_large:
            return self.live.improve(self.reports, now_s)
        if self._is_bringing_up:
            self._is_bringing_up = now_s < self._settled_s + BRING_UP_S and bool(self.unsynced())
        if self.live.may_improve(now_s) and not self._is_bringing_up:
            shim.spawn(self._look_for_better)
        return self.live.move_to_better(self.reports, now_s)

    def _look_for_better(self) -> None:
        try:
            self.live.look_for_better(self.clock())
        except Exception as error:  # noqa: BLE001 - the loop outlives a defect in planning; it is counted and shown
            self.exception("the search for better paths", error)
        self.wake(now=True)

    def _refresh(self) -> None:
        """Where flows that were there before go other ways, rates for all of them do not wait for the next slot."""
        if self._is_refreshing or not self.live.rates_urgent or self._is_overtaken():
            return
        self._is_refreshing = True
        if self._is_large and self.agents.is_waiting:
            # What one of them confirms may let another one go on meanwhile.
            shim.spawn(self._refresh_now)
        else:
            self._refresh_now()

    def _refresh_now(self) -> None:
        try:
            if self.live.refresh(self.reports, self.clock(), in_one_go=self._others_s > BUSY_S):
                self.agents.push_rates(self.live.in_force)
        except Exception as error:  # noqa: BLE001 - the next slot is another try; it is counted and shown
            self.exception("rates after a change of routes", error)
        finally:
            self._is_refreshing = False

    def _tell(self) -> None:
        self._call(self.followers)

    def _call(self, services: list[Callable[[], None]]) -> None:
        for service in services:
            try:
                service()
            except Exception as error:  # noqa: BLE001 - a service's defect is counted and shown, and harms no other
                self.exception("a service", error)

    def _give_way(self, within_s: float, flows: set[str] | None = None) -> None:
        """Links were cut, or ``flows`` declared: slots and searches wait until that is planned and deployed."""
        if self._is_large and self.settled and self.leads and not self._is_bringing_up:
            self.urgency.begin(within_s, self._slots_begun, flows)

    def _look_whether_deployed(self) -> None:
        """Agents run what they shall, or the state was saved. If it has changed since, that is to be told first."""
        if self._tried_version == self.state.version:
            self.urgency.deployed(lambda flows: self.carried_out(flows) and not self.saver.is_asked)

    def _hold(self, is_urgent: bool) -> None:
        """What waits besides slots and searches while something is urgent. Who waited for that goes on before them, and
        young garbage is not looked at before the next slot has ended.
        """
        if is_urgent:
            self._garbage.hold()
        else:
            self.progress.notify()

    def _is_overtaken(self) -> bool:
        """Lets a slot pass that is due, where steps are long; whether there is something else to plan meanwhile.

        Confirmations alone do not overtake: they let others be told more, and nobody less.
        """
        if not self._is_large:
            return False
        is_pressed = self._is_bringing_up or self.urgency.is_there
        step_s = min(MOST_STEP_S, max(STEP_S, self._others_s)) if is_pressed else STEP_S
        if self.clock() >= self._paused_s + step_s:
            began_s = self.clock()
            shim.sleep(0)
            self._paused_s = self.clock()
            self._others_s = self._paused_s - began_s
        return self._tried_version != self.state.version

    def _tick(self) -> None:
        now_s = self.clock()
        age_s = now_s - self.started_s
        timings = self.settings.timings
        state = self.state
        if age_s > timings.grace_s:
            state = model.agents_grace_over(state)
        if age_s > timings.switch_grace_s:
            state = model.switch_grace_over(state)
        overdue = list(self.registry.overdue())
        for node in overdue:
            state = model.switch_down(state, node)
        self._become(state)
        if overdue:
            self._give_way(CUT_S)
        if now_s >= self._ticked_s + TICK_S:
            self._ticked_s = now_s
            self.registry.tick()
        if now_s >= self._keys_s + KEYS_S:
            self._keys_s = now_s
            self._dirty |= self.keys.tick()
        self._dirty |= self.agents.retry_due()
        heard = (self.live.is_complete and all(is_here() for is_here in self.awaited)) or age_s > timings.grace_s
        if not self.settled and heard and model.is_settled(self.state):
            self.settled, self._settled_s, self._is_bringing_up = True, now_s, self._is_large
            self.live.begin()
            self._tried_version = -1
            self._dirty = True
            self._garbage.begin(now_s)
            self.events.publish("controller.settled", {"after_s": age_s})
            LOG.info("settled after %.2f s: %d switches, %d agents", age_s, len(self.switches), len(self.agents))

    def _become(self, state: State, *, urgent: bool = False) -> None:
        """A state takes effect. Any change may end a hold or need a link that is held; so may time alone."""
        state = self.holds.damped(state, self.clock())
        if state is not self.state:
            before, self.state = self.state, state
            self.wake(now=urgent)
            for kind, document in changes(before, state):
                self.events.publish(kind, document)
            self.links.follow(state)
            self.addresses.follow(state.reported)

    def _plan_if_changed(self, *, by_loop: bool = False) -> None:
        state = self.state
        if self._tried_version == state.version:
            return
        asked = (state.flows, state.constrained, state.places)
        if not self.settled and self.plan is not None and all(map(is_, asked, self._asked)):
            # Nothing is deployed before all agents are known: how many of them are here by now makes no difference.
            return
        self._asked = asked
        if self._is_large:
            if self._prepared is state:
                # Another green thread is at it, and wakes the loop then.
                return
            # Until that is deployed.
            self.urgency.searches.close()
            try:
                if not self._prepare():
                    return
            finally:
                self._prepared = None
            if not by_loop:
                self.wake(now=True)
        # A state that can't be planned is not tried again: the last plan stays in force until something changes.
        self._tried_version = self.state.version
        began_s = self.clock()
        before = self.plan
        plan = self.live.replan(self.state, self.reports, began_s)
        self.planned_at_s = self.clock()
        self.plan_ms = (self.planned_at_s - began_s) * 1e3
        self.counters["plans"] += 1
        self.saver.note()
        log_plan(before, plan, self.events)

    def _prepare(self) -> bool:
        """Work out what planning needs, in a thread where it takes long; False if the state was planned meanwhile."""
        for _ in range(MOST_PREPARED):
            state = self._prepared = self.state
            preparation = self.live.preparation(state)
            if preparation.is_short:
                # All others would have their turn before a thread ends.
                preparation.run()
                break
            shim.in_thread(preparation.run)
            if self._tried_version == self.state.version:
                return False
            if self.state is state:
                break
            # It has changed: what is to be planned now takes less than that did, but too long for this thread.
        return True

    # -- what others ask

    def pending(self, flow: str, views: Views) -> list[str]:
        """What has not confirmed its part of a flow, and where it is not saved yet."""
        return [*self._unconfirmed([flow], views), *self.saver.unsaved]

    def unconfirmed(self, flows: Iterable[str], *, at: Iterable[str] = ()) -> list[str]:
        """What has not confirmed its part of flows: also switches and agents that are away and may still forward one,
        however long they have been away. Flows may have begun or ended ``at`` these nodes before. While another
        controller leads: all that it waits for, by its own word.
        """
        return self._unconfirmed(flows, self.views(), at)

    def _unconfirmed(self, flows: Iterable[str], views: Views, at: Iterable[str] = ()) -> list[str]:
        if self.plan is None or not self.settled:
            return [START]
        if not self.leads:
            return sorted(leader_unconfirmed(self.leader_waits()))
        absent = self._deployer.absent(self.state.switches, self.state.agents)
        return flows_unconfirmed(self.plan, views, absent, self.state.flows, flows, at=at)

    def rates_unconfirmed(self) -> set[str]:
        """Agents that may send by other rates than those of the plan in force."""
        if self.plan is None or not self.settled:
            return {START}
        if not self.leads:
            return leader_unconfirmed(self.leader_waits())
        absent = self._deployer.absent(self.state.switches, self.state.agents)
        return rates_unconfirmed(self.agents.unrated(self.live.in_force), absent)

    def carries(self, flows: Iterable[str]) -> bool:
        """Whether the first edges of flows send by the paths that the state of now gives them, and by no others."""
        return self.settled and self._deployer.carries(self._declared(flows), self.state.version)

    def carried_out(self, flows: Iterable[str]) -> bool:
        """Whether the state of now is in force for flows, at all agents and switches."""
        return self.settled and self._deployer.carried_out(self._declared(flows), self.state.version)

    def _declared(self, flows: Iterable[str]) -> list[str]:
        # A flow that was removed has nothing left to confirm.
        return [flow for flow in flows if flow in self.state.flows]

    def unconfirmed_devices(self) -> frozenset[str]:
        """Switches (``switch NODE``) and agents (``agent NODE``) that are away, or have not confirmed all that was sent
        to them. Says all that is still to be confirmed only while :attr:`is_at_rest`.
        """
        plan, switches = self.plan, self.switches
        late = {switch_name(node) for node in self.state.switches if node not in switches}
        late.update(switch_name(node) for node, session in switches.items() if not session.has_confirmed)
        agents = (node for node in self.state.agents if plan is None or not self.agents.synced(plan, node))
        return frozenset(late).union(agent_name(node) for node in agents)

    def unsynced(self) -> list[str]:
        """Switches and agents that are missing or not yet at what is wanted; while another leads only the former."""
        if not self.leads:
            switches = [switch_name(node) for node in self.state.switches if node not in self.switches]
            return switches + [agent_name(node) for node in self.state.agents if self.agents.get(node) is None]
        unplanned = self.plan is not None and self.plan.flows.keys() != self.state.flows.keys()
        waiting = self._deployer.unsynced(self.state.switches, self.state.agents)
        return [*([] if self.settled else [START]), *([PLAN] if unplanned else []), *waiting]
