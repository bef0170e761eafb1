"""Hot standby on the side of green threads: what is saved goes to etcd, what the leader saves is taken from there.

A follower plans as the leader does and tells nobody: its switches and agents are read, and its state is what etcd has.
So a takeover only asks for roles, and sends what differs.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

from hyroads.controller.control.live import inline
from hyroads.controller.core.addressing import Numbers
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.mappings import differing, patched
from hyroads.controller.core.netfile_sections import flow_document
from hyroads.controller.core.network import FlowSpec, Network
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.model.events import Event
from hyroads.controller.model.pending_names import node_of
from hyroads.controller.model.state import SAVED_ORIGINS, Origin
from hyroads.controller.runtime.event_loop import EventLoop
from hyroads.controller.runtime.persistence import Saved, decode, parse_flow, places_document
from hyroads.rest.contract import ConflictError, Document, StoreAwayError
from hyroads.rest.metrics import Counter, Gauge

from .broken import BrokenKeys
from .device_words import QUARANTINE_S, Contradiction
from .election import Follow, Lead, Role
from .etcd import SCHEMA_KEY, STAMP, Etcd, EtcdError, Read, StaleEpochError
from .instance import Changed, Heard, Instance
from .peers import Unconfirmed
from .store import (
    INTENTS,
    SCHEMA,
    Decoder,
    Intents,
    KeyEncoder,
    Keys,
    Put,
    Transaction,
    difference,
    loaded,
    quoted,
    transactions,
)
from .told import TOLD_KEYS, told_in, told_objects, told_with

LOG = logging.getLogger("hyroads.ha")
TURN_S, AGAIN_S, DEFECT_S = 0.1, 0.1, 1.0
READY_WITHIN_S, HEARD_S = 1.0, 1.0
MAX_REPLY = 64 * 1024
LARGE = 200
SHARE = 100.0
"""Looking at all devices takes at most one part in so many of the time."""
NAME = "etcd"


def intents_of(saved: Saved, present: frozenset[str], services: Mapping[str, Any]) -> Intents:
    """What is saved, in the words of the store, with these services. Only numbers of flows that are ``present`` are."""
    numbers, places = saved.numbers, places_document(saved.constrained)
    return Intents(saved.by_id, flow_document, saved.removed, numbers.flows, numbers.paths, present, places, services)


class Mirror:
    """The intents in etcd as they were read last, and what they mean. What has not changed is not parsed again."""

    def __init__(self) -> None:
        self.keys: Keys = {}
        self.stamp = self.revision = 0
        self.values: Mapping[str, Any] = {}
        """The same, parsed; None: that failed."""
        self._decoder = Decoder()
        self._flows: dict[str, tuple[object, FlowSpec | None]] = {}
        self._numbers = Numbers()
        self._paths: Mapping[str, Any] = {}
        """As they were decoded last; nothing if some of them could not be used."""

    def take(self, read: Read) -> bool:
        """What was read; whether anything differs from before."""
        before = self.keys
        gone = before.keys() - read.names if read.names is not None else frozenset[str]()
        values = {key: loaded(text) for key, text in read.values.items() if before.get(key) != text}
        self.keys = patched(before, {key: read.values[key] for key in values}, gone)
        self.values = patched(self.values, values, gone)
        for key in gone:
            self._decoder.drop(key)
        for key, value in values.items():
            self._decoder.take(key, value)
        self.stamp, self.revision = read.stamp, read.revision
        return bool(gone or values)

    def saved(self, network: Network) -> tuple[Saved, list[str]]:
        """The content, and the keys whose values can't be used, or not all of them. Needs no green threads: it takes
        long where there is much.
        """
        document, wrong = self._decoder.document(), self._decoder.wrong
        flows = {}
        known, self._flows = self._flows, {}
        for flow in document["flows"]:
            name = str(flow.get("id"))
            last = known.get(name)
            if last is None or last[0] is not flow:
                last = flow, _parsed(flow, network)
            self._flows[name] = last
            if last[1] is None and "id" in flow:
                wrong.append(f"{INTENTS}flows/{quoted(name)}")
            elif last[1] is not None:
                flows[last[1].id] = last[1]
        rest, problems = decode({**document, "flows": [], "paths": self._new_paths(document["paths"])}, NAME, network)
        wrong += [self._key_of(problem) for problem in problems]
        self._numbers = self._numbers_of(rest.numbers, document["paths"])
        self._paths = {} if problems else document["paths"]
        return Saved(tuple(flows.values()), rest.removed, self._numbers, rest.constrained, rest.services), wrong

    def _key_of(self, problem: ConfigError) -> str:
        section, _, name = problem.place.partition(".")
        if section in {"numbers", "paths"}:
            return f"{INTENTS}flows/{quoted(name)}"
        return self._decoder.place_keys[int(problem.place.removeprefix("places[").removesuffix("]"))]

    def _new_paths(self, paths: Mapping[str, Any]) -> dict[str, Any]:
        """Those of flows of which they were not decoded."""
        return {flow: paths[flow] for flow in differing(self._paths, paths) if flow in paths}

    def _numbers_of(self, new: Numbers, paths: Mapping[str, Any]) -> Numbers:
        """What is as before is the same object, so that nobody looks at it again."""
        last = self._numbers
        numbers = {flow: number for flow, number in new.flows.items() if last.flows.get(flow) != number}
        known = patched(last.flows, numbers, last.flows.keys() - new.flows.keys())
        return Numbers(known, patched(last.paths, new.paths, last.paths.keys() - paths.keys()))


def _parsed(flow: Mapping[str, Any], network: Network) -> FlowSpec | None:
    try:
        return parse_flow(flow, network, NAME)
    except ConfigError as error:
        LOG.warning("a flow in etcd is left out: %s", error)
        return None


@dataclass(eq=False)
class Standby:
    """``saved`` gives what is to be saved, ``adopt`` makes state and services what was saved."""

    event_loop: EventLoop
    instance: Instance
    etcd: Etcd
    _: KW_ONLY
    mailbox: shim.Mailbox
    saved: Callable[[], tuple[Saved, frozenset[str]]]
    adopt: Callable[[Saved], None]
    leads: Callable[[], object] = lambda: None
    """Called when this controller begins to lead."""

    def __post_init__(self) -> None:
        self.epoch: int | None = None
        self._takeovers = 0
        self._mirror, self._encoder = Mirror(), KeyEncoder()
        self._broken = BrokenKeys(lambda line: self.event_loop.fault(NAME, line))
        self._is_known = False
        """Whether the mirror is what is in etcd."""
        self._has_orders = False
        """Whether the encoder knows the order of what is in the mirror."""
        self._has_heard = False
        """Whether some leader has sent us the events that there were before."""
        self._told: deque[tuple[Event, ...]] = deque()
        """The events of flows that are saved with the state, those of each change together."""
        self._is_behind = False
        """Whether etcd has more than the mirror, as far as was told; it could not be read then."""
        self._lock = shim.new_lock()
        self._says_at_s = 0.0
        """When devices are next looked at for what we say of them."""
        self.event_loop.leader_waits = self._leader_waits
        self.event_loop.follow()
        self.event_loop.epoch_listeners.append(self._epoch_seen)
        self.event_loop.collectors.append(self.metrics)
        self.event_loop.events.follow()
        self.event_loop.events.listeners.append(self.instance.published)

    def start(self) -> None:
        """Begin."""
        self.instance.start()
        shim.spawn(self._follow_election)
        shim.spawn(self._turn)

    # -- what the election says

    def _follow_election(self) -> None:
        while True:
            for told in self.mailbox.take():
                try:
                    self._obey(told)
                except Exception as error:  # noqa: BLE001 - the next is obeyed nevertheless; it is counted and shown
                    self.event_loop.exception("the election", error)

    def _obey(self, told: object) -> None:
        if isinstance(told, Lead):
            self._lead(told)
        elif isinstance(told, Follow):
            self._step_down(told.why)
        elif isinstance(told, Event):
            self.event_loop.events.mirror(told)
        elif isinstance(told, Heard):
            self._has_heard = True
        elif isinstance(told, Contradiction):
            self._quarantined(told)
        elif isinstance(told, Changed) and self.epoch is None and told.stamp > self._mirror.stamp:
            self._is_behind = not self._sync()

    def _turn(self) -> None:
        """Says that green threads turn, and whether we could lead at once; reads what could not be read before."""
        while True:
            event_loop = self.event_loop
            devices = len(event_loop.agents.nodes | event_loop.switches.keys())
            self.instance.is_warm(self._is_warm, devices)
            self._say_unconfirmed()
            self._broken.take("election", self.instance.broken)
            pause_s = TURN_S
            if not self._is_current and self.epoch is None:
                try:
                    self._sync()
                except Exception as error:  # noqa: BLE001 - who stops turning falls silent; it is counted and shown
                    self.event_loop.exception("taking in what etcd has", error)
                    pause_s = DEFECT_S
            shim.sleep(pause_s)

    def _say_unconfirmed(self) -> None:
        """While we lead: let the others know which devices have not confirmed what etcd has."""
        event_loop, epoch, began_s = self.event_loop, self.epoch, self.event_loop.clock()
        if epoch is None:
            self.instance.unconfirmed = None
            return
        if not event_loop.leads or began_s < self._says_at_s:
            return
        devices, said = event_loop.unconfirmed_devices(), self.instance.unconfirmed
        if event_loop.is_at_rest:
            self.instance.unconfirmed = Unconfirmed(epoch, self._mirror.stamp, devices)
        elif said is not None and said.epoch == epoch:
            # A device that has confirmed one step may soon be sent the next one.
            self.instance.unconfirmed = replace(said, devices=(said.devices or frozenset()) | devices)
        self._says_at_s = began_s + SHARE * (event_loop.clock() - began_s)

    def _leader_waits(self) -> frozenset[str] | None:
        """As of ``ControllerPort.leader_waits``."""
        said = self.instance.leader_waits()
        return said.devices if said is not None and self._is_current and said.stamp >= self._mirror.stamp else None

    @property
    def _is_current(self) -> bool:
        """Whether we have what etcd has."""
        return self._is_known and not self._is_behind

    @property
    def _is_warm(self) -> bool:
        """Whether we could lead at once, and nobody would miss anything."""
        return self._is_current and self._has_heard and self.event_loop.settled

    def _sync(self) -> bool:
        """Take what is in etcd; whether that was possible."""
        with self._lock:
            try:
                read = shim.in_thread(self._read)
            except EtcdError:
                return False
            if not self._is_known:
                self._mirror = Mirror()
            if self._mirror.take(read) or not self._is_known:
                try:
                    self._take()
                except BaseException:
                    # The mirror has what could not be taken in.
                    self._is_known = False
                    raise
            self._is_known, self._is_behind = True, False
            return True

    def _read(self) -> Read:
        mirror = self._mirror
        return self.etcd.changes(mirror.revision, mirror.keys) if self._is_known else self.etcd.intents()

    def _take(self) -> None:
        network = self.event_loop.declared
        is_large = len(self._mirror.keys) > LARGE
        saved, wrong = (shim.in_thread if is_large else inline)(self._mirror.saved, network)
        self._broken.take("intents", wrong)
        self._told = deque(told_in(saved.services))
        self.adopt(saved)
        self._has_orders = False

    def _lead(self, told: Lead) -> None:
        """Nobody writes intents of an earlier epoch any more: what there is now is the last that was confirmed."""
        began_s = self.event_loop.clock()
        while not (self._is_known and self._mirror.stamp == told.stamp) and not self._sync():
            if not self.instance.is_elected(told.epoch):
                # Another one has been elected meanwhile.
                return
            shim.sleep(AGAIN_S)
        self.epoch = told.epoch
        self._takeovers += 1
        self._has_heard = True
        # Before anybody can ask for another flow.
        self._lead_events(told.epoch)
        self.leads()
        self.event_loop.lead(told.epoch)
        took_ms = (self.event_loop.clock() - began_s) * 1e3
        LOG.warning("leads with epoch %d, after %.1f ms", told.epoch, took_ms)
        self.event_loop.events.publish("ha.leads", {"name": self.instance.settings.name, "epoch": told.epoch})

    def _lead_events(self, epoch: int) -> None:
        # Those of tests are the business of whoever tests.
        flows = {flow: each for flow, each in self.event_loop.state.flows.items() if each.origin is not Origin.TEST}
        is_corrected = self.event_loop.events.lead(
            epoch,
            {flow: each.spec for flow, each in flows.items()},
            saved=chain.from_iterable(self._told),
            never_saved=[flow for flow, each in flows.items() if each.origin not in SAVED_ORIGINS],
            down=self.event_loop.links.down,
        )
        if is_corrected:
            self.event_loop.note_unsaved()

    def _step_down(self, why: str) -> None:
        if self.epoch is None:
            return
        LOG.warning("follows: %s", why)
        self.epoch = None
        self.event_loop.events.follow()
        self.event_loop.follow()
        with self._lock:
            # What is being written now is saved, or it is not: that is known by now.
            self._is_known = False
            self.event_loop.saver.abandon("another controller leads by now")

    def _epoch_seen(self, epoch: int, who: str) -> None:
        self.instance.device_shows(node_of(who), epoch)

    def _quarantined(self, told: Contradiction) -> None:
        """A device's words about epochs and the leader do not count for some time."""
        self.event_loop.fault(f"node {told.node}", f"in quarantine for {QUARANTINE_S:.0f} s: {told.why}")
        self.event_loop.events.publish("agent.quarantined", {"node": told.node, "why": told.why})

    # -- saving

    def save(self) -> None:
        """Write what is to be saved, if we lead; OSError."""
        epoch = self.epoch
        if epoch is None:
            if self.event_loop.saver.is_asked:
                # Somebody asked for it while we led, or thought so.
                self._is_known = False
                raise StaleEpochError("another controller leads")
            return
        with self._lock:
            saved, present = self.saved()
            events = self.event_loop.events.to_save()
            try:
                self._save(epoch, saved, present, events)
            except StaleEpochError:
                # Nothing more is told with an epoch that is over.
                self.event_loop.events.follow()
                raise
            except BaseException:
                self.event_loop.events.not_saved()
                raise
            self.event_loop.events.saved()

    def _save(self, epoch: int, saved: Saved, present: frozenset[str], events: tuple[Event, ...]) -> None:
        if not self._is_known:
            self._mirror = Mirror()
            self._mirror.take(shim.in_thread(self.etcd.intents))
            self._has_orders, self._is_known = False, True
        if not self._has_orders:
            self._encoder.adopt(self._mirror.values)
            self._has_orders = True
        told = told_with(self._told, events)
        services = {**saved.services, **told_objects(told)}
        self._write(epoch, self._encoder.encode(intents_of(saved, present, services)))
        self._told = told

    def _write(self, epoch: int, keys: Keys) -> None:
        etcd, mirror = self.etcd, self._mirror
        # Events come first, also where a change needs several transactions.
        operations = sorted(difference(mirror.keys, keys), key=lambda each: not each.key.startswith(TOLD_KEYS))
        if not operations:
            return
        stamp = Put(etcd.prefix + STAMP, str(epoch))
        batches = list(transactions(operations, etcd.prefix, etcd.has_epoch(epoch), stamp))
        # What became of a request that nobody answered is read before the next one.
        self._is_known = False
        try:
            revision = shim.in_thread(_write_all, etcd, batches)
        except StaleEpochError as error:
            self.event_loop.counters["refused_by_etcd"] += 1
            self.instance.epoch_seen(epoch + 1)
            raise error from None
        mirror.keys, mirror.stamp, mirror.revision, self._is_known = keys, revision, revision, True
        self.instance.written(revision)

    # -- rest.operations.SharedReplies

    def get(self, name: str) -> str | None:
        """The answer to an idempotency key that whoever led gave; None: none, or etcd does not answer."""
        try:
            with self._lock:
                found: str | None = shim.in_thread(self.etcd.reply, name)
        except EtcdError:
            return None
        return found

    def put(self, name: str, text: str) -> None:
        """Let whoever leads next know an answer."""
        if self.epoch is None or len(text) > MAX_REPLY:
            return
        try:
            with self._lock:
                shim.in_thread(self.etcd.put_reply, name, text, self.epoch)
        except OSError as error:
            LOG.debug("an answer is known here alone: %s", error)

    # -- REST

    def document(self) -> Document:
        """What is known of the instances."""
        return self.instance.look().document()

    def health(self) -> Document:
        """Our part in it, for health."""
        look = self.instance.look()
        return {
            "role": look.role.value,
            "epoch": look.epoch,
            "warm": self._is_warm,
            "broken_keys": self._broken.shown(),
        }

    def metrics(self) -> Iterator[Gauge]:
        """For Prometheus."""
        look = self.instance.look()
        yield Gauge("hyroads_ha_leader", "1 if this controller leads", value=float(self.epoch is not None))
        yield Gauge("hyroads_ha_epoch", "The greatest epoch that it knows", value=look.epoch)
        yield Gauge("hyroads_ha_etcd_up", "1 if etcd can be reached", value=float(look.failing_s is None))
        members = Gauge("hyroads_ha_member_up", "1 if it was heard in the last second", labels=("member",))
        for member in look.document()["members"]:
            members.add_metric((member["name"],), float(member["seen_s"] is not None and member["seen_s"] < HEARD_S))
        yield members
        yield Counter("hyroads_ha_takeovers", "Times that this controller began to lead", value=self._takeovers)

    def leader_rest(self) -> str | None:
        """Where to send what changes something; empty: here. None: nobody leads."""
        # One that is elected takes what is in etcd before it leads: whoever asks meanwhile waits.
        self._wait(lambda: self.event_loop.leads or self.instance.look().role is not Role.LEADER, READY_WITHIN_S)
        if self.event_loop.leads:
            return ""
        leader = self.instance.look().leader
        is_other = leader is not None and leader.name != self.instance.settings.name
        return leader.rest if leader is not None and is_other and leader.rest else None

    def hand_over(self, to: str | None, *, within_s: float = 5.0) -> Document:
        """Another instance leads from now on; ConflictError, StoreAwayError."""
        if self.epoch is None:
            raise ConflictError("this instance does not lead")
        if to == self.instance.settings.name:
            raise ConflictError(f"instance {to!r} leads already")
        if not self._wait(lambda: self._is_ready(to), READY_WITHIN_S):
            raise ConflictError(f"no instance{'' if to is None else f' {to[:64]!r}'} is ready to lead")
        self.instance.hand_over(to)
        return self._handed_over(within_s, self.instance.keep_leading)

    def _handed_over(self, within_s: float, cancel: Callable[[], object]) -> Document:
        if not self._wait(lambda: self.epoch is None, within_s):
            cancel()
            raise StoreAwayError("no other instance has taken over; this one goes on")
        return self.document()

    def _is_ready(self, to: str | None) -> bool:
        """Whether an instance (None: any) could lead at once."""
        fresh = {name: beat for name, (beat, age_s) in self.instance.look().peers.items() if age_s < HEARD_S}
        return any(beat.warm and beat.role is Role.FOLLOWER for name, beat in fresh.items() if to in (None, name))

    def drain(self, drains: bool, *, within_s: float = 5.0) -> Document:
        """This instance is to lead no more, or may again; ConflictError, StoreAwayError."""
        leads = self.epoch is not None
        if drains and leads and not self._wait(lambda: self._is_ready(None), READY_WITHIN_S):
            raise ConflictError("no instance is ready to lead")
        self.instance.drain(drains)
        if not (drains and leads):
            return self.document()
        return self._handed_over(within_s, partial(self.instance.drain, False))

    def finish_upgrade(self) -> Document:
        """Write the newest form of the keys from now on; ConflictError, StoreAwayError."""
        look = self.instance.look()
        if self.epoch is None:
            raise ConflictError("this instance does not lead")
        old = sorted(name for name, each in look.members.items() if each.identity.schema < SCHEMA)
        if old:
            raise ConflictError(f"instances of an older version: {', '.join(old)}")
        put = Put(self.etcd.prefix + SCHEMA_KEY, str(SCHEMA))
        try:
            with self._lock:
                shim.in_thread(self.etcd.write, Transaction((self.etcd.has_epoch(self.epoch),), (put,)))
        except OSError as error:
            raise StoreAwayError(f"{error}; nothing was changed") from error
        return self.document()

    def _wait(self, done: Callable[[], bool], within_s: float) -> bool:
        """Whether something became so in time."""
        until_s = self.event_loop.clock() + within_s
        while not done():
            if self.event_loop.clock() > until_s:
                return False
            shim.sleep(0.01)
        return True


def _write_all(etcd: Etcd, batches: list[Any]) -> int:
    return max([etcd.write(batch) for batch in batches])
