"""One instance's threads of the system: one decides (``election``), one asks etcd, and others keep heartbeats.

Green threads may be busy with a plan for longer than a silence that counts as death, so nothing of this waits for them.
What they have to do comes to them through ``tell``: :class:`~.election.Lead`, :class:`~.election.Follow`, and
:class:`Changed` when there are other intents in etcd, :class:`Heard` once a leader has reached us.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.model.events import Event
from hyroads.controller.settings.ha import HaSettings

from .election import Action, Beat, Campaign, Election, Follow, HandOver, Identity, Lead, Member, Restore, Role, Rules
from .etcd import Etcd, EtcdError
from .event_gate import EventGate
from .peer_links import Security
from .peers import Documented, Peers, Unconfirmed
from .store import SCHEMA

LOG = logging.getLogger("hyroads.ha")
DECIDE_S = 0.02
STUCK_S = 2.0
"""Whose green threads have not turned for so long falls silent."""
FORGET_S = 60.0
HEARD_S = 1.0
"""What a leader has said counts as long as a heartbeat of it is not older."""
MOST_LEARNED = 4096
_threading, _time = shim.original("threading"), shim.original("time")


@dataclass(frozen=True, slots=True)
class Changed:
    """The intents in etcd were changed, at a revision."""

    stamp: int


@dataclass(frozen=True, slots=True)
class Heard:
    """A leader has sent the events that there were before; they were told."""


class Instance:
    """``tell`` is called in threads of the system."""

    def __init__(
        self,
        settings: HaSettings,
        etcd: Etcd,
        security: Security,
        listener: Any,
        *,
        tell: Callable[[Any], None],
        events: Callable[[], Iterable[Event]],
        learned: Callable[[], Mapping[str, Documented]] = dict,
    ) -> None:
        self.settings = settings
        peer = f"{settings.peer.host}:{settings.peer.port}"
        me = Identity(settings.name, secrets.token_hex(8), settings.rest, peer, SCHEMA)
        silence_s, lease_s = settings.timings.silence_ms / 1e3, float(settings.timings.lease_s)
        # A request that was under way when etcd came back ends within one time-out.
        reach_s = max(Rules().reach_s, 2 * settings.timings.etcd_timeout_s + 1)
        rules = Rules(silence_s=silence_s, patience_s=lease_s, reach_s=reach_s)
        self._election = Election(me, _time.monotonic(), rules=rules)
        self._lock = _threading.Lock()
        self._decide, self._ask = _threading.Event(), _threading.Event()
        self._etcd, self._tell, self._listener = etcd, tell, listener
        self._peers = Peers(
            me.name,
            etcd.prefix,
            security,
            settings.timings.heartbeat_ms / 1e3,
            beat=self._beat,
            heard=self._heard,
            reset=self._reset,
            event=self._event,
            is_member=lambda name: name in self._addresses,
            events=events,
            learned=learned,
            learns=self._learns,
            unconfirmed=lambda: self.unconfirmed,
            waits=self._waits,
        )
        self.unconfirmed: Unconfirmed | None = None
        """What we say of devices while we lead."""
        self._said: tuple[str, Unconfirmed] | None = None
        """Which instance said last which devices have not confirmed, and what it said."""
        self.learned: dict[str, Mapping[str, Any]] = {}
        """What whoever led said last of the bandits of flows."""
        self._action: Action | None = None
        self._lease, self._renewed_s = 0, 0.0
        self._registered: Member | None = None
        self._addresses: dict[str, tuple[str, float]] = {}
        self._gate = EventGate()
        self._failing_since_s: float | None = _time.monotonic()
        self._is_failure_told = self._has_heard = False
        self._told_stamp = self._written = 0
        self.broken: frozenset[str] = frozenset()
        """Keys of the election in etcd whose values can't be used, without the network's prefix."""
        self.turned_s = _time.monotonic()
        """When green threads turned last; whoever has them notes it."""

    def start(self) -> None:
        """Begin."""
        self._peers.serve(self._listener)
        shim.start_thread(self._run_etcd, name="etcd")
        shim.start_thread(self._run_election, name="election")

    # -- what green threads ask and tell

    @property
    def stamp(self) -> int:
        """The revision of the last change of the intents that we know of."""
        with self._lock:
            return self._stamp()

    def is_elected(self, epoch: int) -> bool:
        """Whether we still are the leader of an epoch, as far as we know."""
        with self._lock:
            return self._election.leads == epoch

    def written(self, revision: int) -> None:
        """We have changed the intents."""
        self._written = self._told_stamp = max(self._written, revision)

    def is_warm(self, warm: bool, devices: int = 0) -> None:
        """Whether we have read etcd and heard all devices, which are of this number of nodes; green threads turn."""
        self.turned_s = _time.monotonic()
        self._election.warm, self._election.devices.count = warm, devices

    def published(self, event: Event) -> None:
        """We have told an event."""
        self._peers.tell(event)

    def epoch_seen(self, epoch: int) -> None:
        """Etcd shows an epoch."""
        with self._lock:
            self._election.epoch_seen(epoch)
        self._decide.set()

    def device_shows(self, node: str, epoch: int) -> None:
        """A device of a node shows an epoch: etcd is read, and says whether it is true."""
        with self._lock:
            is_to_read = self._election.device_shows(node, epoch, _time.monotonic())
        self._decide.set()
        if is_to_read:
            self._ask.set()

    def agent_asked(self, node: str) -> None:
        """A query for when it heard the leader is sent to an agent."""
        with self._lock:
            self._election.devices.queried(node, _time.monotonic())

    def agent_heard(self, node: str, epoch: int, heard_s: float) -> None:
        """An agent says that it heard the leader of an epoch, at a time of the monotonic clock."""
        with self._lock:
            self._election.devices.says(node, epoch, heard_s, _time.monotonic())

    def leader_waits(self) -> Unconfirmed | None:
        """What the leader says of devices that have not confirmed; None: it is not heard, or has not said anything."""
        now_s = _time.monotonic()
        with self._lock:
            leader, peers, greatest = self._election.leader(now_s), self._election.peers(now_s), self._election.greatest
            said = self._said
        if leader is None or said is None or said[0] != leader.name or said[1].epoch != greatest:
            return None
        return said[1] if leader.name in peers and peers[leader.name][1] < HEARD_S else None

    def suspects(self) -> bool:
        """Whether agents are to be asked if they hear the leader."""
        with self._lock:
            return self._election.suspects(_time.monotonic())

    def drain(self, drains: bool) -> None:
        """Lead no more, or again."""
        with self._lock:
            self._election.drain(drains)
        self._ask.set()

    def hand_over(self, name: str | None) -> None:
        """Let another instance lead, the best one if none is named."""
        with self._lock:
            self._election.hand_over(name)
        self._decide.set()

    def keep_leading(self) -> None:
        """Nobody wishes any more that another instance leads."""
        with self._lock:
            self._election.keep_leading()

    def look(self) -> Look:
        """What is known now."""
        now_s = _time.monotonic()
        with self._lock:
            election, failing_s = self._election, self._failing_since_s
            return Look(
                me=election.me,
                role=election.role,
                epoch=election.greatest,
                leader=election.leader(now_s),
                members=dict(election.seen.members) if election.seen is not None else {},
                peers=election.peers(now_s),
                failing_s=None if failing_s is None else now_s - failing_s,
                schema=election.seen.schema if election.seen is not None else 0,
            )

    # -- threads of heartbeats

    def _beat(self) -> Beat | None:
        now_s = _time.monotonic()
        if now_s - self.turned_s > STUCK_S:
            return None
        with self._lock:
            return self._election.beat(now_s, self._stamp())

    def _heard(self, beat: Beat) -> None:
        now_s = _time.monotonic()
        with self._lock:
            if beat.role is Role.LEADER and not self._has_heard and self._gate.leader == beat.identity.name:
                # The end that dials sends older events first.
                self._has_heard = True
                self._tell(Heard())
            election = self._election
            before = election.greatest
            election.heard(beat, now_s)
            is_news = election.greatest > before
        if is_news:
            self._decide.set()
            self._ask.set()

    def _event(self, name: str, event: Event) -> None:
        with self._lock:
            for shown in self._gate.take(name, event):
                self._tell(shown)

    def _learns(self, name: str, flow: str, document: Mapping[str, Any]) -> None:
        with self._lock:
            leader = self._election.leader(_time.monotonic())
        if leader is None or leader.name != name:
            return
        # The latest are the last to go.
        self.learned.pop(flow, None)
        self.learned[flow] = document
        if len(self.learned) > MOST_LEARNED:
            self.learned.pop(next(iter(self.learned)), None)

    def _waits(self, name: str, said: Unconfirmed) -> None:
        with self._lock:
            if self._said is None or said.epoch >= self._said[1].epoch:
                self._said = name, said

    def _reset(self, name: str) -> None:
        LOG.info("instance %s: all connections with it have ended", name)
        with self._lock:
            self._election.reset(name, _time.monotonic())
        self._decide.set()

    # -- the thread that decides

    def _run_election(self) -> None:
        while True:
            self._decide.wait(DECIDE_S)
            self._decide.clear()
            with self._lock:
                action = self._election.decide(_time.monotonic())
                stamp = self._stamp()
                contradictions = self._election.contradictions()
            for each in contradictions:
                self._tell(each)
            if isinstance(action, Lead | Follow):
                self._tell(action)
                self._ask.set()
            elif action is not None:
                self._action = action
                self._ask.set()
            if stamp > self._told_stamp:
                self._told_stamp = stamp
                self._tell(Changed(stamp))

    def _stamp(self) -> int:
        election = self._election
        told = [self._written, election.seen.stamp if election.seen is not None else 0]
        told += [beat.stamp for beat, _ in election.peers(0.0).values() if beat.role is Role.LEADER]
        return max(told)

    # -- the thread that asks etcd

    def _run_etcd(self) -> None:
        every_s = self.settings.timings.lease_s / 4
        while True:
            self._ask.wait(every_s)
            self._ask.clear()
            try:
                self._ask_etcd(every_s)
            except EtcdError as error:
                self._failed(error)
                _time.sleep(every_s / 2)
            except Exception as error:
                # Whoever asks no more would never follow again.
                LOG.exception("a defect in what is asked of etcd")
                self._failed(error)
                _time.sleep(every_s / 2)

    def _failed(self, error: Exception) -> None:
        with self._lock:
            self._election.etcd_failed(_time.monotonic())
            self._failing_since_s = self._failing_since_s or _time.monotonic()
        if not self._is_failure_told:
            self._is_failure_told = True
            LOG.warning("%s", error)

    def _ask_etcd(self, every_s: float) -> None:
        action, self._action = self._action, None
        if action is not None:
            self._carry_out(action)
        if _time.monotonic() - self._renewed_s >= every_s * 0.9:
            self._keep_lease()
        seen = self._etcd.seen()
        now_s = _time.monotonic()
        with self._lock:
            self._election.etcd_read(seen, now_s)
            if seen.owner is not None:
                for event in self._gate.names(seen.owner.name, seen.owner.epoch):
                    self._tell(event)
            if self._failing_since_s is not None:
                LOG.info("etcd answers, after %.1f s", now_s - self._failing_since_s)
                # Leases may have ended meanwhile: each has time to register again.
                self._addresses = {name: (address, now_s) for name, (address, _) in self._addresses.items()}
            self._failing_since_s, self._is_failure_told = None, False
            drains = self._election.drains
        self.broken = seen.broken
        self._decide.set()
        self._dial({name: member.identity.peer for name, member in seen.members.items()}, now_s)
        known, wanted = seen.members.get(self.settings.name), Member(self._election.me, self._lease, drains)
        if known != wanted and self._lease:
            is_new = self._registered is None
            if self._etcd.register(wanted):
                self._registered = wanted
                # What is there now is read at once: until then we are no candidate.
                self._ask.set()
            elif is_new:
                # That of before this one was started again, or another one that has the same name by mistake.
                where = "" if known is None else f", at {known.identity.rest}"
                LOG.warning(
                    "etcd knows another instance named %s%s: waiting until it is gone", self.settings.name, where
                )
                self._registered = replace(wanted, lease=0)

    def _keep_lease(self) -> None:
        if not self._lease or not self._etcd.keep(self._lease):
            self._lease = self._etcd.grant(self.settings.timings.lease_s)
        self._renewed_s = _time.monotonic()

    def _carry_out(self, action: Action) -> None:
        try:
            if not self._lease:
                self._keep_lease()
            me, won = Member(self._election.me, self._lease), False
            if isinstance(action, Campaign):
                won = self._etcd.campaign(action, me)
            elif isinstance(action, Restore):
                won = self._etcd.restore(action, me)
            elif isinstance(action, HandOver):
                won = self._etcd.hand_over(action)
            LOG.info("%s: %s", action, "done" if won else "somebody else was first")
        finally:
            with self._lock:
                self._election.answered(action, _time.monotonic())

    def _dial(self, addresses: dict[str, str], now_s: float) -> None:
        """Keep connections also to those that etcd has forgotten a moment ago."""
        self._addresses |= {name: (address, now_s) for name, address in addresses.items()}
        old = [name for name, (_, known_s) in self._addresses.items() if now_s - known_s > FORGET_S]
        for name in old:
            del self._addresses[name]
        self._peers.dial({name: address for name, (address, _) in self._addresses.items()})


@dataclass(frozen=True)
class Look:
    """What an instance knows."""

    _: KW_ONLY
    me: Identity
    role: Role
    epoch: int
    leader: Identity | None
    members: dict[str, Member]
    peers: dict[str, tuple[Beat, float]]
    failing_s: float | None
    schema: int

    def document(self) -> dict[str, Any]:
        """For REST."""
        leader = self.leader
        named = {**{name: member.identity for name, member in self.members.items()}}
        named |= {name: beat.identity for name, (beat, _) in self.peers.items() if name not in named}
        named[self.me.name] = self.me
        return {
            "name": self.me.name,
            "role": self.role.value,
            "epoch": self.epoch,
            "leader": None if leader is None else {"name": leader.name, "rest": leader.rest, "peer": leader.peer},
            "members": [self._member(name, identity) for name, identity in sorted(named.items())],
            "etcd": {"reachable": self.failing_s is None, "failing_since_s": self.failing_s},
            "schema": self.me.schema,
        }

    def _member(self, name: str, identity: Identity) -> dict[str, Any]:
        beat, age_s = self.peers.get(name, (None, None))
        role = self.role if name == self.me.name else beat.role if beat is not None else None
        return {
            "name": name,
            "rest": identity.rest,
            "peer": identity.peer,
            "role": role.value if role is not None else "unknown",
            "schema": identity.schema,
            "seen_s": 0.0 if name == self.me.name else age_s,
        }
