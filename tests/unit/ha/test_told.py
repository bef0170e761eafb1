"""Flows are told once, whatever ends between any two steps of a leader: a model of controllers, etcd and a reader."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random

import pytest
from examples import seeds

from hyroads.controller.core.netfile_sections import flow_document
from hyroads.controller.core.network import FlowSpec
from hyroads.controller.ha.told import LATEST, TOGETHER, told_in, told_objects, told_with
from hyroads.controller.model.events import Event, EventLog

COUNT = 3
Flows = dict[str, FlowSpec]


class Bell:
    def notify(self) -> None:
        pass

    def wait(self, timeout_s: float) -> bool:
        return False


@dataclass
class Etcd:
    epoch: int = 0
    flows: Flows = field(default_factory=dict)
    told: dict = field(default_factory=dict)


class Controller:
    """Its events go to the others line by line; what it is about to write goes to etcd step by step."""

    def __init__(self, etcd: Etcd) -> None:
        self.etcd, self.epoch = etcd, 0
        self.log = EventLog(lambda: 1000.0, Bell(), several=True)
        self.log.follow()
        self.log.listeners.append(self._tell)
        self.flows, self.told = dict(etcd.flows), deque(told_in(etcd.told))
        self.lines: dict[int, deque[Event | None]] = {}
        """To others by number; None is a heartbeat, after all that there was when they were reached."""
        self.has_heard = False
        self._steps: deque[str] = deque()

    def _tell(self, event: Event) -> None:
        for lines in self.lines.values():
            lines.append(event)

    def reach(self, other: int) -> None:
        self.lines[other] = deque([*self.log.all(), None] if self.epoch else self.log.all())

    def lead(self) -> None:
        self.etcd.epoch += 1
        self.epoch, self.has_heard, self.flows = self.etcd.epoch, True, dict(self.etcd.flows)
        self.told = deque(told_in(self.etcd.told))
        self.log.lead(self.epoch, self.flows, saved=[event for events in self.told for event in events])
        for lines in self.lines.values():
            lines.append(None)

    def follow(self) -> None:
        self.epoch, self._steps = 0, deque()
        self.log.follow()

    def change(self, name: str) -> None:
        if name in self.flows:
            del self.flows[name]
            self.log.publish("flow.removed", {"id": name})
        else:
            self.flows[name] = FlowSpec(name, "a", "b")
            self.log.publish("flow.declared", flow_document(self.flows[name]))

    def save(self, fails: str = "") -> bool:
        """The next step of what is being saved; whether that was the last."""
        if not self._steps:
            self._new = told_with(self.told, self.log.to_save())
            self._saved = dict(self.flows)
            self._steps = deque(["told", "flows", "answer"])
        if self.epoch != self.etcd.epoch and self._steps[0] != "answer":
            self.follow()
            return True
        step = self._steps.popleft()
        if step == "told":
            self.etcd.told = told_objects(self._new)
        elif step == "flows":
            self.etcd.flows = dict(self._saved)
        elif fails:
            self._take_back()
        else:
            self.told = self._new
            self.log.saved()
        return step == "answer"

    def _take_back(self) -> None:
        """Etcd did not answer: all that was new is undone, and saved once etcd answers."""
        self.log.not_saved()
        known = {str(event.document["id"]): event.kind for event in self.log.all() if event.kind.startswith("flow.")}
        for name in sorted(self.flows.keys() | known.keys()):
            if (name in self.flows) != (known.get(name) == "flow.declared"):
                self.change(name)
        while not self.save():
            pass


class Network:
    def __init__(self) -> None:
        self.etcd = Etcd()
        self.all: dict[int, Controller] = {number: Controller(self.etcd) for number in range(COUNT)}
        for number in self.all:
            self.reach(number)
        self.leader: int | None = None
        self.take_over(0)
        for number in self.all:
            self.deliver(0, number, 1)
        self.last, self.missed, self.got = self.all[0].log.first - 1, False, list[Event]()

    def reach(self, new: int) -> None:
        """Connections between one and all others, both ways."""
        for other, controller in self.all.items():
            if other != new:
                controller.reach(new)
                self.all[new].reach(other)

    def take_over(self, by: int) -> None:
        """It is warm, unless nobody is; the leader of before may live, and know nothing of it."""
        warm = [number for number, each in self.all.items() if each.has_heard and number != self.leader]
        others = warm or [number for number in self.all if number != self.leader]
        if others:
            self.leader = others[by % len(others)]
            self.all[self.leader].follow()
            self.all[self.leader].lead()

    def kill(self, heard: int) -> None:
        """The leader ends; some of its lines are still heard."""
        if self.leader is not None and len(self.all) > 1:
            for other in self.all:
                self.deliver(self.leader, other, heard)
            del self.all[self.leader]
            self.leader = None

    def restart(self) -> None:
        for number in set(range(COUNT)) - self.all.keys():
            self.all[number] = Controller(self.etcd)
            self.reach(number)

    def deliver(self, sender: int, to: int, count: int) -> None:
        lines = self.all[sender].lines.get(to) if {sender, to} <= self.all.keys() else None
        for _ in range(min(count, len(lines or ()))):
            event = lines.popleft()  # type: ignore[union-attr]
            if event is None:
                self.all[to].has_heard = True
            else:
                self.all[to].log.mirror(event)

    def read(self, at: int) -> None:
        log = self.all[at].log if at in self.all else None
        if log is None or self.last > log.last:
            return
        if self.last + 1 < log.first:
            # It is told so, and the law says nothing of such a reader: it goes on elsewhere if it can.
            self.missed = at == self.leader
            return
        self.missed = False
        events = log.since(self.last)
        self.got += events
        self.last = events[-1].id if events else self.last

    def do(self, step: str, number: int) -> None:
        # Now and then one that believes to lead.
        controller = self.all.get(number % COUNT if number % 5 == 0 or self.leader is None else self.leader)
        leads = controller is not None and controller.epoch
        if step == "change" and leads:
            controller.change("fgh"[number // COUNT % 3])  # type: ignore[union-attr]
        elif step == "device" and leads:
            controller.log.publish("link.down", {"link": str(number)})  # type: ignore[union-attr]
        elif step == "save" and leads:
            controller.save()  # type: ignore[union-attr]
        elif step == "fail" and leads and controller.epoch == self.etcd.epoch:  # type: ignore[union-attr]
            # What it can't take back because another one leads is the one case that EventLog leaves open.
            controller.save("unanswered")  # type: ignore[union-attr]
        elif step == "deliver":
            self.deliver(number % COUNT, number // COUNT % COUNT, 1 + number % 7)
        elif step == "read":
            self.read(number % COUNT)
        elif step == "take over":
            self.take_over(number)
        elif step == "kill":
            self.kill(number % 4)
            self.take_over(number)
        elif step == "restart":
            self.restart()

    def settle(self) -> None:
        """Somebody leads, all is saved, and the reader goes on there."""
        if self.leader is None:
            self.take_over(0)
        assert self.leader is not None
        leader = self.all[self.leader]
        while not leader.save():
            pass
        while not leader.save():
            pass
        before = -1
        while before != self.last and not self.missed:
            before = self.last
            self.read(self.leader)


STEPS = ["change"] * 4 + ["save"] * 8 + ["deliver"] * 8 + ["read"] * 4
STEPS += ["device", "device", "fail", "take over", "kill", "restart", "restart"]


@pytest.mark.parametrize("part", range(4))
def test_flows_are_told_once_whatever_ends_when(part: int) -> None:
    complete = 0
    for seed in seeds(1500):
        random, network = Random(4 * seed + part), Network()
        for _ in range(120):
            network.do(random.choice(STEPS), random.randrange(60))
        network.settle()
        check(network, seed)
        complete += not network.missed and len(network.got) > COUNT
    assert complete > len(seeds(1500)) / 3


def check(network: Network, seed: int) -> None:
    """What the reader got makes sense, and if it missed nothing it knows the flows that there are."""
    ids = [event.id for event in network.got]
    assert ids == sorted(set(ids)), seed
    known: set[str] = set()
    for event in network.got:
        flow = str(event.document.get("id"))
        if event.kind.startswith("flow."):
            assert (event.kind == "flow.removed") == (flow in known), f"told twice: seed {seed}"
            known ^= {flow}
    if not network.missed:
        assert known == network.etcd.flows.keys(), seed


def event(number: int) -> Event:
    return Event(number, 1.0, "flow.declared", {"id": f"f{number}"})


def test_the_latest_are_kept_and_read_back() -> None:
    told = told_with((), ())
    assert told_objects(told) == {} and list(told_in({})) == []
    for number in range(200):
        told = told_with(told, (event(number),))
    assert [events[0].id for events in told] == list(range(200 - LATEST, 200))
    assert deque(told_in(told_objects(told))) == told
    many = told_with(told, tuple(map(event, range(200, 200 + 3 * TOGETHER + 1))))
    assert [len(events) for events in many] == [TOGETHER] * 3 + [1]
    assert told_with(many, ()) == deque(list(many)[2:]), "no fewer than are to be kept"


def test_what_is_no_event_is_left_out() -> None:
    row = [1, 1.0, "flow.declared", {"id": "f"}]
    wrong = [None, [], row[:3], [-1, *row[1:]], [1, 1.0, "link.down", {"id": "f"}], [*row[:3], {"id": 7}]]
    found = list(told_in({"told": [{"id": "1", "events": [*wrong, row]}, {"id": "2", "events": 3}, 4]}))
    assert [[each.id for each in events] for events in found] == [[1]]
    assert list(told_in({"told": {"value": []}})) == []


@pytest.mark.parametrize("number", [-1, 0, 1, 10**18 - 1, 10**18])
def test_event_numbers_have_at_most_18_digits_and_begin_at_zero(number: int) -> None:
    saved = {"told": [{"id": str(number), "events": [[number, 1.0, "flow.removed", {"id": "f"}]]}]}
    assert bool(list(told_in(saved))) is (0 <= number < 10**18)
