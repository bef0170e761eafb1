"""What was confirmed is so, whenever a controller is killed: real event loops, which save in a real etcd."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from controller_process import free_ports
from not_made import needs_etcd

pytest.importorskip("mininet")
pytest.importorskip("etcd3gw")

from hyroads.controller.app.wiring import ready
from hyroads.controller.core.addressing import LAST_FLOW, Numbers
from hyroads.controller.core.network import FlowSpec, Place
from hyroads.controller.files.documents import read_file
from hyroads.controller.framework.ryu_shim import Signal
from hyroads.controller.ha.election import Campaign, Identity, Lead, Member
from hyroads.controller.ha.etcd import Etcd, EtcdError
from hyroads.controller.ha.standby import Standby
from hyroads.controller.model import state as model
from hyroads.controller.model.events import EventLog
from hyroads.controller.model.handover import Constrained
from hyroads.controller.model.state import DeclaredFlow, Origin, TopologyContext, initial
from hyroads.controller.runtime.event_loop import EventLoop
from hyroads.controller.runtime.persistence import Saved, to_save
from hyroads.controller.services.mptcp_saved import SavedConnections
from hyroads.controller.settings.controller import load
from hyroads.mininet.etcd import Etcd as EtcdProcesses

ROAMING = Path(__file__).resolve().parents[2] / "mininet" / "networks" / "roaming.yaml"
CONTEXT = TopologyContext.of(read_file(ROAMING))
PLACES = [Place("a", "wifi1"), Place("b", "wifi2"), Place("b", "plc"), Place("x", "lte")]
CLIENT = "c", None
# More than one transaction takes.
MANY = 140
STEPS = 25
IPV4, FIRST_PORT = 0x0800, 2000
COLLIDING = 3


def colliding_names() -> list[str]:
    """Names of flows in groups of three whose hashes give the same number.

    With others a new leader would find the numbers again from the names alone, even if none were saved.
    """
    by_number: dict[int, list[str]] = {}
    for name in (f"f{number}" for number in range(LAST_FLOW - FIRST_PORT)):
        by_number.setdefault(Numbers().with_flows([name]).flows[name], []).append(name)
    groups = (names[:COLLIDING] for names in by_number.values() if len(names) >= COLLIDING)
    return [name for group in groups for name in group]


NAMES = colliding_names()


class Killed(Exception):
    """The process ends here."""


class MortalEtcd(Etcd):
    """A controller's requests, at one of which it is killed, or hears no answer."""

    fate: str | None = None
    countdown = 0
    is_dead = False

    def doom(self, fate: str, countdown: int) -> None:
        """``fate`` comes at a request from now on: "before" it, "after" it, or it is "unheard" or "unsent"."""
        self.fate, self.countdown = fate, countdown

    def _transact(self, *request: Any) -> Any:
        if self.is_dead:
            raise Killed
        self.countdown -= 1
        fate = self.fate if self.countdown < 0 else None
        if fate in ("before", "unsent"):
            self._meet(fate)
        answer = super()._transact(*request)
        if fate in ("after", "unheard"):
            self._meet(fate)
        return answer

    def _meet(self, fate: str) -> None:
        self.fate = None
        if fate in ("unsent", "unheard"):
            raise EtcdError("no answer")
        self.is_dead = True
        raise Killed


class Controller:
    """An event loop and its part in hot standby, without sockets; the test is the election."""

    def __init__(self, name: str, urls: list[str], prefix: str) -> None:
        settings = load({"HYROADS_NETWORK": str(ROAMING), "HYROADS_CONFIG": ""})
        events = EventLog(time.time, Signal(), several=True)
        self.loop = EventLoop(
            CONTEXT, settings, initial(CONTEXT), Numbers(), clock=time.monotonic, events=events,
            save=lambda *_: self.standby.save(),
        )  # fmt: skip
        self.etcd = MortalEtcd(urls, prefix, 5.0)
        self.me = Member(Identity(name, name))
        nothing = cast("Any", lambda *_: True)
        told = dict.fromkeys(("published", "epoch_seen", "written", "is_elected"), nothing)
        instance = SimpleNamespace(**told, settings=self.me.identity)
        self.standby = Standby(
            self.loop, cast("Any", instance), self.etcd, mailbox=cast("Any", None), saved=self._saved, adopt=self._adopt
        )

    def _saved(self) -> tuple[Saved, frozenset[str]]:
        state = self.loop.state
        found = to_save(CONTEXT.network, state.flows.values(), self.loop.live.numbers, state.constrained, {})
        return found, frozenset(state.flows)

    def _adopt(self, saved: Saved) -> None:
        kept, _ = ready(saved, CONTEXT, SavedConnections(32))
        self.loop.adopt(lambda state: model.restored(state, kept.flows, kept.constrained, kept.places), kept.numbers)

    # -- as the election has it

    def campaign(self) -> None:
        """Becomes the leader; Killed. What was not answered is asked again."""
        while True:
            try:
                seen = self.etcd.seen()
                revision = seen.owner.revision if seen.owner is not None else 0
                if self.etcd.campaign(Campaign(seen.epoch + 1, revision, seen.epoch_revision), self.me):
                    break
            except EtcdError:
                continue
        self.standby._lead(Lead(seen.epoch + 1, seen.stamp))

    def follow(self) -> None:
        """Takes what is new in etcd; Killed."""
        self.standby._sync()

    # -- as REST has it

    def asked(self, what: str, do: Any, undo: Any) -> bool:
        """Whether a change was confirmed. False: it was taken back, or the controller is dead by now."""
        change = self.loop.saver.change(what, undo)
        do()
        self.loop.saver.once()
        if self.etcd.is_dead:
            return False
        if not change.is_saved:
            # What is in etcd by then is brought to what is in force.
            self.loop.saver.once()
        return change.is_saved

    def flows(self) -> dict[str, int]:
        """The numbers of all that are declared."""
        numbers = self.loop.live.numbers.flows
        return {flow: numbers[flow] for flow in self.loop.state.flows}

    def place(self) -> Place | None:
        """Of the client."""
        found = self.loop.state.constrained.get(CLIENT)
        return found.stays if found is not None else None


@dataclass
class Application:
    """Asks for this and that, and knows what was confirmed."""

    random: Random
    flows: dict[str, int] = field(default_factory=lambda: {"down": 0, "up": 0})
    """With numbers; 0: not known yet."""
    unknown: set[str] = field(default_factory=set)
    places: set[Place | None] = field(default_factory=lambda: {None})
    """Where the client may be: one place, unless a move got no answer."""
    asked: Counter[str] = field(default_factory=Counter)
    named: int = 0

    def ask(self, leader: Controller) -> None:
        """One request."""
        what = self.random.choices(["declare", "many", "remove", "move"], [8, 1, 5, 4])[0]
        self.asked[what] += 1
        if what == "move":
            self._move(leader)
        elif what == "remove" and len(self.flows) > 2:
            self._remove(leader)
        else:
            self._declare(leader, MANY if what == "many" and len(self.flows) < MANY else 1)

    def _declare(self, leader: Controller, count: int) -> None:
        names = NAMES[self.named : self.named + count]
        self.named += count
        matches = [{"eth_type": IPV4, "udp_dst": FIRST_PORT + int(name[1:])} for name in names]
        specs = [FlowSpec(name, "g", "c", match=match) for name, match in zip(names, matches, strict=True)]
        flows = [DeclaredFlow(spec, Origin.API) for spec in specs]
        loop = leader.loop
        do, undo = (lambda: loop.change_flows(flows, [])), (lambda: loop.change_flows([], names))
        if leader.asked(names[0], do, undo):
            self.flows |= {name: leader.flows()[name] for name in names}
        elif leader.etcd.is_dead:
            self.unknown |= set(names)

    def _remove(self, leader: Controller) -> None:
        name = self.random.choice(sorted(self.flows.keys() - {"down", "up"}))
        loop, was = leader.loop, leader.loop.state.flows[name]
        number = self.flows.pop(name)
        if leader.asked(name, lambda: loop.remove(name), lambda: loop.declare(was)):
            return
        if leader.etcd.is_dead:
            self.unknown.add(name)
        else:
            # It was taken back: another number than before would be as good.
            self.flows[name] = leader.flows()[name] or number

    def _move(self, leader: Controller) -> None:
        place, loop = self.random.choice(PLACES), leader.loop
        before = loop.state.constrained.get(CLIENT)
        self.places = {leader.place(), place}
        there = {CLIENT: Constrained((place,), (place,))}
        if leader.asked("move", lambda: loop.constrain(there), lambda: loop.constrain({CLIENT: before})):
            self.places = {place}
        elif not leader.etcd.is_dead:
            self.places = {leader.place()}

    def check(self, controller: Controller) -> None:
        """State = what was confirmed. What got no answer is so or not, and stays as it is from now on."""
        found = controller.flows()
        assert self.flows.keys() <= found.keys() <= self.flows.keys() | self.unknown
        assert {flow: found[flow] for flow, number in self.flows.items() if number} == {
            flow: number for flow, number in self.flows.items() if number
        }
        assert len(set(found.values())) == len(found), "a number twice"
        assert controller.place() in self.places
        self.flows, self.unknown, self.places = dict(found), set(), {controller.place()}


class Reader:
    """Reads events at whoever leads, and knows flows by them alone."""

    def __init__(self, leader: Controller) -> None:
        self.last, self.flows = leader.loop.events.last, set(leader.flows())
        self.told = self.missed = 0

    def read(self, leader: Controller) -> None:
        """Go on at a leader that has saved everything."""
        log = leader.loop.events
        if self.last + 1 < log.first:
            # It is told so, and asks for the flows.
            self.missed += 1
            self.last, self.flows = log.last, set(leader.flows())
        while events := log.since(self.last):
            self.last = events[-1].id
            for event in events:
                if event.kind in ("flow.declared", "flow.removed"):
                    assert (event.kind == "flow.removed") == (event.document["id"] in self.flows), "told twice"
                    self.flows ^= {event.document["id"]}
                    self.told += 1
        assert self.flows == leader.flows().keys()


class Schedule:
    """Three controllers, one of which leads, and what happens to them; all of it follows from the seed."""

    def __init__(self, seed: int, urls: list[str]) -> None:
        self.random, self.urls, self.prefix = Random(seed), urls, f"/hyroads/seed{seed}/"
        self.application = Application(self.random)
        self.standing = [self.fresh() for _ in range(2)]
        self.kills: Counter[str] = Counter()
        self.leader = self.fresh()
        self.leader.campaign()
        self.leader.loop.saver.once()
        self.reader = Reader(self.leader)

    def fresh(self) -> Controller:
        """A controller that has just been started."""
        return Controller("abc"[self.random.randrange(3)], self.urls, self.prefix)

    def take_over(self) -> None:
        """The next one leads; it may be killed before it does."""
        while True:
            heir = self.standing.pop(self.random.randrange(len(self.standing)))
            self.standing.append(self.fresh())
            if self.random.random() < 0.4:
                heir.etcd.doom(self.random.choice(["before", "after", "unheard"]), self.random.randrange(4))
            try:
                heir.campaign()
            except Killed:
                self.kills["takeover"] += 1
                continue
            heir.etcd.fate = None
            break
        self.leader = heir
        self.application.check(heir)
        # What was told of and is not there, or the other way round, is corrected.
        heir.loop.saver.once()
        self.reader.read(heir)

    def step(self) -> None:
        """A request, at which something may happen."""
        if self.random.random() < 0.3:
            self.random.choice(self.standing).follow()
        fate = self.random.choices([None, "before", "after", "unheard", "unsent", "overtaken"], [5, 2, 2, 1, 1, 1])[0]
        leader = self.leader
        if fate == "overtaken":
            # It was frozen, and does not know; what it is asked now is refused.
            self.take_over()
            before = Application(Random(self.random.random()), dict(self.application.flows))
            before.named, before.places = self.application.named, {leader.place()}
            self.application.named += MANY
            before.ask(leader)
            self.application.check(self.leader)
            return
        if fate is not None:
            leader.etcd.doom(fate, self.random.randrange(2) if fate == "unheard" else self.random.choice([0, 0, 1]))
        self.application.ask(leader)
        if leader.etcd.is_dead:
            self.kills[str(fate)] += 1
            self.take_over()
        else:
            leader.etcd.fate = None
            self.application.check(leader)
            self.reader.read(leader)


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    needs_etcd()
    client, peer = free_ports(2)
    etcd = EtcdProcesses(tmp_path_factory.mktemp("etcd"), [(client, peer)], bound_to_parent=True)
    etcd.start()
    try:
        etcd.wait_ready()
        yield etcd.urls
    finally:
        etcd.stop()


def run(urls: list[str], seeds: range, kills: int) -> Counter[str]:
    """Schedules until so many were killed."""
    found: Counter[str] = Counter()
    told = missed = 0
    for seed in seeds:
        schedule = Schedule(seed, urls)
        for _ in range(STEPS):
            schedule.step()
        # Whoever reads everything anew finds the same.
        last = schedule.fresh()
        last.follow()
        schedule.application.check(last)
        told, missed = told + schedule.reader.told, missed + schedule.reader.missed
        found += schedule.kills
        if found.total() >= kills:
            break
    # Of most flows a reader was told, not only that it missed something.
    assert told > 2 * found.total() and missed < found.total() / 2, (told, missed, found)
    return found


def test_what_was_confirmed_is_so_after_kills_between_any_two_steps(urls: list[str]) -> None:
    kills = run(urls, range(1000), 40)
    assert kills.total() >= 40 and min(kills[when] for when in ("before", "after", "takeover")) >= 3, kills


@pytest.mark.nightly
def test_what_was_confirmed_is_so_after_a_thousand_kills(urls: list[str]) -> None:
    kills = run(urls, range(1000, 2000), 1000)
    assert kills.total() >= 1000
