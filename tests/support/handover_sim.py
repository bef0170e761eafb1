"""A handover packet by packet: two ends, paths with random delays, a controller far away, a client that comes and goes.

Independent of the code under test: it knows a manager's answers only. Paths keep their order; what is in flight to an
interface that leaves is lost. Ends are told "receivers, then senders, then receivers", each message late by a random
time but in order. The receiver has the rules of docs/reference/dataplane.md and the additions of
docs/explanation/services.md.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from hyroads.controller.core.network import Place
from hyroads.controller.core.services.mobility import (
    Arrived,
    Associated,
    Confirmed,
    DesiredState,
    Event,
    Left,
    MobilityManager,
    Passed,
    Phase,
    Request,
    Steady,
    Timings,
)

MAX_HOLD_S, SILENT_S, MARKER_S = 0.1, 0.15, 0.05


@dataclass
class Settings:
    seed: int
    delay_s: dict[Place, tuple[float, float]]
    control_s: tuple[float, float] = (0.0005, 0.05)
    join_s: tuple[float, float] = (0.05, 1.0)
    packet_s: tuple[float, float] = (0.0005, 0.02)
    one_radio: bool = False
    """Joining a place leaves the old one in the same moment."""
    marker_loss: float = 0.0


@dataclass
class Marker:
    epoch: int
    number: int
    carry: tuple[Place, ...]


class World:
    def __init__(self, settings: Settings, start: Place, flows: tuple[str, ...] = ("down", "up")) -> None:
        self.settings, self.rng = settings, random.Random(settings.seed)
        self.now_s, self.queue, self.count = 0.0, [], 0
        self.present = {start}
        self.flows = {name: Flow(self, name, start) for name in flows}
        self.line_s: dict[object, float] = {}

    def later(self, delay_s: float, what: Callable[[], None]) -> None:
        self._at(self.now_s + delay_s, what)

    def _at(self, at_s: float, what: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.queue, (at_s, self.count, what))

    def in_order(self, line: object, delay_s: float, what: Callable[[], None]) -> None:
        """Late, but never before what was sent earlier on the same line."""
        at_s = max(self.now_s + delay_s, self.line_s.get(line, 0.0))
        self.line_s[line] = at_s
        self._at(at_s, what)

    def told(self, line: object, what: Callable[[], None]) -> None:
        self.in_order(line, self.rng.uniform(*self.settings.control_s), what)

    def run(self, until_s: float) -> None:
        while self.queue and self.queue[0][0] <= until_s:
            self.now_s, _, what = heapq.heappop(self.queue)
            what()
        self.now_s = until_s


@dataclass
class Flow:
    world: World
    name: str
    start: Place
    number: int = 0
    epoch: int = 0
    carry: tuple[Place, ...] = ()
    copies: bool = False
    flying: dict[Place, int] = field(default_factory=dict)
    lost_in_flight: int = 0
    running: bool = True

    def __post_init__(self) -> None:
        self.carry = (self.start,)
        self.receiver = Receiver(self.world, {self.start})
        self.report: Callable[[Event, int], None] = lambda event, epoch: None

    # -- the sending end

    def send(self) -> None:
        if not self.running:
            return
        places = self.carry if self.copies else self.carry[:1]
        for place in places:
            self._fly(place, self.number)
        self.number += 1
        self.world.later(self.world.rng.uniform(*self.world.settings.packet_s), self.send)

    def become(self, carry: tuple[Place, ...], copies: bool) -> None:
        if (carry, copies) == (self.carry, self.copies):
            return
        places = dict.fromkeys((*self.carry, *carry))
        self.carry, self.copies, self.epoch = carry, copies, self.epoch + 1
        self._mark(Marker(self.epoch, self.number, carry), tuple(places))

    def _mark(self, marker: Marker, places: tuple[Place, ...]) -> None:
        if marker.epoch != self.epoch or not self.running:
            return
        for place in places:
            if self.world.rng.random() >= self.world.settings.marker_loss:
                self._fly(place, marker)
        self.world.later(MARKER_S, lambda: self._mark(marker, places))

    def _fly(self, place: Place, what: int | Marker) -> None:
        data, up = isinstance(what, int), self.name == "up"
        if up and place not in self.world.present:
            self.lost_in_flight += data
            return
        self.flying[place] = self.flying.get(place, 0) + data
        world = self.world
        delay_s = world.rng.uniform(*world.settings.delay_s[place])
        world.in_order((self.name, place), delay_s, lambda: self._land(place, what))

    def _land(self, place: Place, what: int | Marker) -> None:
        self.flying[place] -= isinstance(what, int)
        if self.name == "down" and place not in self.world.present:
            self.lost_in_flight += isinstance(what, int)
            return
        if isinstance(what, Marker):
            self.receiver.on_marker(place, what)
            self.report(Passed(self.name, place), what.epoch)
            self.report(Arrived(self.name, place), what.epoch)
        else:
            self.receiver.on_data(place, what)


class Receiver:
    def __init__(self, world: World, known: set[Place]) -> None:
        self.world, self.known, self.hold_s = world, known, None
        self.next, self.held, self.delivered = 0, {}, []
        self.passed: dict[Place, int] = {}
        self.heard_s: dict[Place, float] = {}
        self.paused: set[Place] = set()
        self.seen: set[int] = set()
        self.epoch = 0
        self.duplicates = self.late = 0

    def become(self, known: set[Place], hold_s: float | None) -> None:
        for place in known - self.known:
            self.paused.add(place)
        self.known, self.hold_s = known, hold_s
        self.release()

    def on_marker(self, place: Place, marker: Marker) -> None:
        self.heard_s[place] = self.world.now_s
        if marker.epoch > self.epoch:
            self.epoch = marker.epoch
            for other in self.paused & set(marker.carry):  # used again; nothing before is to come there
                self.paused.discard(other)
                self.passed[other] = max(self.passed.get(other, 0), marker.number)
        self.passed[place] = max(self.passed.get(place, 0), marker.number)
        if place not in marker.carry:
            self.paused.add(place)
        self.release()

    def on_data(self, place: Place, number: int) -> None:
        self.heard_s[place] = self.world.now_s
        self.paused.discard(place)
        self.passed[place] = max(self.passed.get(place, 0), number + 1)
        if number in self.seen:
            self.duplicates += 1
        else:
            self.seen.add(number)
            if number < self.next:
                self.late += 1  # given up before: dropped, for it would be out of order
            else:
                self.held[number] = self.world.now_s
        self.release()

    def release(self) -> None:
        while self.held:
            if self.next not in self.held and not self._gives_up():
                self.world.later(0.01, self.release)
                return
            if self.next in self.held:
                del self.held[self.next]
                self.delivered.append(self.next)
            self.next += 1

    def _gives_up(self) -> bool:
        now_s = self.world.now_s
        live = [p for p in self.known if p not in self.paused]
        if self.hold_s is None:
            live = [p for p in live if now_s - self.heard_s.get(p, -1.0) < SILENT_S]
        if all(self.passed.get(p, 0) > self.next for p in live):
            return True
        return now_s - min(self.held.values()) >= (self.hold_s or MAX_HOLD_S)


class Controller:
    """Carries out what a manager wants, one handover after the other."""

    def __init__(self, world: World, manager: MobilityManager) -> None:
        self.world, self.manager = world, manager
        self.known = {next(iter(world.present))}
        self.handover, self.wanted, self.phases = None, None, []
        self.asked: set[tuple[str, Place]] = set()
        self.since: dict[str, int] = {}
        for flow in world.flows.values():
            flow.report = lambda event, epoch: world.told("reports", lambda: self._reported(event, epoch))

    def _reported(self, event: Passed | Arrived, epoch: int) -> None:
        """Counts from when the sender has answered on, and for the change that it then told of."""
        if epoch >= self.since.get(event.flow, epoch + 1):
            self.on(event)

    def begin(self, old: Place, new: Place, timings: Timings | None = None) -> None:
        request = Request("h", "c", old, new, frozenset(self.world.flows), timings or Timings())
        self.asked.clear()
        self._become(self.manager.start(request, self.world.now_s))
        self._watch(self.handover.request)

    def _watch(self, request: Request) -> None:
        if self.handover.request is request and not self.handover.is_over:
            self._become(self.manager.tick(self.handover, self.world.now_s))
            self.world.later(0.02, lambda: self._watch(request))

    def on(self, event: Event) -> None:
        if self.handover is not None:
            self._become(self.manager.on(self.handover, event, self.world.now_s))

    def _become(self, handover) -> None:
        if self.handover is None or handover.phase is not self.handover.phase:
            self.phases.append(handover.phase)
        self.handover = handover
        wanted = self.manager.wanted(handover)
        if wanted != self.wanted:
            self.wanted = wanted
            self.since.clear()
            self._carry_out(wanted)

    def _carry_out(self, wanted: DesiredState) -> None:
        world, flows = self.world, self.world.flows.values()
        if wanted.join:
            self._once("join", wanted.join, lambda: world.later(world.rng.uniform(*world.settings.join_s), self._joins))
        if wanted.leave:
            self._once("leave", wanted.leave, lambda: self._leaves(wanted.leave))
        both = self.known | set(wanted.known)

        def receivers(known: set[Place], then: Callable[[], None]) -> None:
            self._all(
                [(("in", f.name), lambda f=f: f.receiver.become(set(known), wanted.hold_s)) for f in flows],
                wanted,
                then,
            )

        def senders(then: Callable[[], None]) -> None:
            told = [(("out", f.name), lambda f=f: f.become(wanted.carry, wanted.copies)) for f in flows]
            self._all(told, wanted, then)

        def done() -> None:
            self.known = set(wanted.known)
            self.on(Confirmed(wanted))

        def sent() -> None:
            self.since = {f.name: f.epoch for f in flows}
            receivers(set(wanted.known), done)

        receivers(both, lambda: senders(sent))

    def _all(self, messages, wanted: DesiredState, then: Callable[[], None]) -> None:
        """Tell all; go on when all have answered, unless something else is wanted by then."""
        open_ = {line for line, _ in messages}

        def answered(line) -> None:
            open_.discard(line)
            if not open_ and self.wanted is wanted:
                then()

        for line, what in messages:

            def tell(line=line, what=what) -> None:
                what()
                self.world.told(("answer", line), lambda: answered(line))

            self.world.told(line, tell)

    def _once(self, what: str, place: Place, act: Callable[[], None]) -> None:
        if (what, place) not in self.asked:
            self.asked.add((what, place))
            self.world.told("client", act)

    def _joins(self) -> None:
        world, request = self.world, self.handover.request
        if world.settings.one_radio:
            world.present.clear()
        world.present.add(request.new)
        world.told("hostapd", lambda: self.on(Associated(request.new)))
        if world.settings.one_radio:
            world.told("hostapd", lambda: self.on(Left(request.old)))
        world.told("hostapd", lambda: world.later(0.5, lambda: self.on(Steady(request.new))))

    def _leaves(self, place: Place) -> None:
        self.world.present.discard(place)
        self.world.told("hostapd", lambda: self.on(Left(place)))


def trip(
    manager: MobilityManager, settings: Settings, places: tuple[Place, ...], count: int
) -> tuple[World, Controller]:
    """So many handovers in a row, with packets all the time, then time for all to land."""
    world = World(settings, places[0])
    control = Controller(world, manager)
    for flow in world.flows.values():
        flow.send()
    choose, here = random.Random(settings.seed + 1), places[0]
    for _ in range(count):
        there = choose.choice([place for place in places if place != here])
        world.run(world.now_s + choose.uniform(0.05, 0.5))
        control.begin(here, there)
        while not control.handover.is_over:
            world.run(world.now_s + 0.1)
        assert control.handover.phase is Phase.DONE, control.handover.reason
        here = there
    for flow in world.flows.values():
        flow.running = False
    world.run(world.now_s + 5.0)
    return world, control
