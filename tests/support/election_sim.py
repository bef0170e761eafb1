"""Several instances of the election on a model of etcd and of the devices, with every kind of failure."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from hyroads.controller.ha.election import (
    Action,
    Beat,
    Campaign,
    Election,
    Follow,
    HandOver,
    Identity,
    Lead,
    Member,
    Owner,
    Restore,
    Rules,
    Seen,
)

TICK_S, BEAT_S, ASK_S, LEASE_S = 0.02, 0.05, 0.5, 2.0


@dataclass
class EtcdModel:
    """A store that is never wrong, with leases."""

    is_up: bool = True
    revision: int = 1
    owner: Owner | None = None
    owner_lease: int = 0
    epoch: int = 0
    epoch_revision: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    leases: dict[int, float] = field(default_factory=dict)
    owners: list[tuple[int, str]] = field(default_factory=list)
    """(epoch, boot) of all that ever were."""
    transactions: int = 0
    """How many were sent that would change who leads."""
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def expire(self, now_s: float) -> None:
        """What lives by leases that nobody renewed goes."""
        for lease in [lease for lease, until_s in self.leases.items() if until_s < now_s]:
            del self.leases[lease]
            self.revision += 1
            if self.owner_lease == lease:
                self.owner = None
            self.members = {name: one for name, one in self.members.items() if one.lease != lease}

    def grant(self, now_s: float) -> int:
        lease = next(self.numbers)
        self.leases[lease] = now_s + LEASE_S
        return lease

    def keep(self, lease: int, now_s: float) -> bool:
        if lease not in self.leases:
            return False
        self.leases[lease] = now_s + LEASE_S
        return True

    def register(self, member: Member) -> None:
        known = self.members.get(member.identity.name)
        if member.lease in self.leases and (known is None or known.identity.boot == member.identity.boot):
            self.revision += 1
            self.members[member.identity.name] = member

    def seen(self) -> Seen:
        return Seen(self.revision, self.owner, self.epoch, self.epoch_revision, members=dict(self.members))

    def carry_out(self, action: Action, me: Member) -> None:
        """A transaction."""
        self.transactions += 1
        owner_revision = self.owner.revision if self.owner is not None else 0
        if isinstance(action, Restore):
            if self.owner is None and self.epoch_revision == action.epoch_revision and me.lease in self.leases:
                self._own(action.epoch, me)
        elif isinstance(action, Campaign | HandOver):
            by = action.to if isinstance(action, HandOver) else me
            same = (owner_revision, self.epoch_revision) == (action.owner_revision, action.epoch_revision)
            if same and by.lease in self.leases:
                self._own(action.epoch, by)
                self.epoch, self.epoch_revision = action.epoch, self.revision
                self.owners.append((action.epoch, by.identity.boot))

    def _own(self, epoch: int, by: Member) -> None:
        self.revision += 1
        me = by.identity
        self.owner, self.owner_lease = Owner(me.name, me.boot, epoch, self.revision, me.rest, me.peer), by.lease


@dataclass
class Device:
    """Obeys the greatest epoch."""

    epoch: int = 0
    heard_s: float = 0.0
    """When it heard the leader of that epoch."""
    obeyed: list[tuple[int, str]] = field(default_factory=list)
    """(epoch, boot) of each change, in order."""

    def change(self, epoch: int, boot: str) -> int:
        """A change by a leader; the greatest epoch, which is another one if it was refused."""
        self.epoch = max(self.epoch, epoch)
        if self.epoch == epoch:
            self.obeyed.append((epoch, boot))
        return self.epoch


@dataclass
class Node:
    """One process."""

    election: Election
    lease: int = 0
    is_frozen: bool = False
    has_etcd: bool = True
    asks_s: float = 0.0
    beats_s: float = 0.0
    inbox: list[Callable[[float], None]] = field(default_factory=list)
    answers: list[tuple[float, Action]] = field(default_factory=list)


class Cluster:
    """``random`` decides how long requests take."""

    def __init__(self, count: int, random: Random) -> None:
        self.now_s, self.random = 100.0, random
        self.etcd, self.device = EtcdModel(), Device()
        self.cut: set[frozenset[str]] = set()
        """Pairs of instances that do not hear each other, and instances that devices do not hear."""
        self.boots = itertools.count(1)
        self.leads: list[tuple[int, str]] = []
        self.names = [chr(ord("a") + number) for number in range(count)]
        self.nodes: dict[str, Node] = {}
        for name in self.names:
            self.start(name)

    def start(self, name: str) -> None:
        if name not in self.nodes:
            identity = Identity(name, f"{name}{next(self.boots)}", f"http://{name}", f"{name}:1")
            self.nodes[name] = Node(Election(identity, self.now_s, rules=Rules(patience_s=LEASE_S), warm=True))

    def kill(self, name: str) -> None:
        if self.nodes.pop(name, None) is not None:
            for other, node in self.nodes.items():
                if frozenset((name, other)) not in self.cut:
                    node.inbox.append(lambda now_s, node=node: node.election.reset(name, now_s))

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / TICK_S)):
            self.now_s += TICK_S
            self.etcd.expire(self.now_s)
            for name, node in list(self.nodes.items()):
                self._requests_arrive(node)
                if not node.is_frozen:
                    self._turn(name, node)

    @property
    def leaders(self) -> list[str]:
        return [name for name, node in self.nodes.items() if node.election.leads is not None]

    def _requests_arrive(self, node: Node) -> None:
        """Also those of a process that is frozen by now."""
        due = [action for at_s, action in node.answers if at_s <= self.now_s]
        node.answers = [one for one in node.answers if one[0] > self.now_s]
        for action in due:
            if self.etcd.is_up and node.has_etcd:
                self.etcd.carry_out(action, Member(node.election.me, node.lease))

            def answered(now_s: float, node: Node = node, action: Action = action) -> None:
                node.election.answered(action, now_s)
                node.asks_s = now_s

            node.inbox.append(answered)

    def _turn(self, name: str, node: Node) -> None:
        election, now_s = node.election, self.now_s
        inbox, node.inbox = node.inbox, []
        for take in inbox:
            take(now_s)
        if now_s >= node.asks_s:
            node.asks_s = now_s + ASK_S
            self._ask(node)
        action = election.decide(now_s)
        if isinstance(action, Lead):
            self.leads.append((action.epoch, election.me.boot))
            node.asks_s = now_s
        elif isinstance(action, Follow):
            node.asks_s = now_s
        elif action is not None:
            node.answers.append((now_s + self.random.choice((0.0, 0.02, 0.1)), action))
        if frozenset((name,)) not in self.cut:
            self._devices(node)
        if now_s >= node.beats_s:
            node.beats_s = now_s + BEAT_S
            self._beat(name, election.beat(now_s, 0))

    def _devices(self, node: Node) -> None:
        """A leader changes the device; a follower that suspects the leader asks it."""
        election, now_s = node.election, self.now_s
        if election.leads is not None:
            if election.leads >= self.device.epoch:
                self.device.heard_s = now_s
            shown = self.device.change(election.leads, election.me.boot)
            if election.device_shows("d", shown, now_s):
                node.asks_s = now_s
        if election.suspects(now_s):
            election.devices.queried("d", now_s)
            election.devices.says("d", self.device.epoch, self.device.heard_s, now_s)

    def _beat(self, name: str, beat: Beat) -> None:
        for other, node in self.nodes.items():
            if other != name and frozenset((name, other)) not in self.cut:
                node.inbox.append(lambda now_s, node=node: node.election.heard(replace(beat), now_s))

    def _ask(self, node: Node) -> None:
        if not (self.etcd.is_up and node.has_etcd):
            node.election.etcd_failed(self.now_s)
            return
        if not node.lease or not self.etcd.keep(node.lease, self.now_s):
            node.lease = self.etcd.grant(self.now_s)
        wanted = Member(node.election.me, node.lease, node.election.drains)
        if self.etcd.members.get(node.election.me.name) != wanted:
            self.etcd.register(wanted)
        node.election.etcd_read(self.etcd.seen(), self.now_s)
