"""Heartbeats between instances, over TCP: each dials the others, and says several times in a silence that it lives.

Threads of the system send and read, so that an instance whose green threads are busy with a plan is not taken for dead;
one that is frozen, or whose green threads have not turned for long, falls silent. What ends both connections with
an instance at once is the end of its process, of which nobody waits to be sure.

A connection carries lines of JSON from whoever dialled::

    {"type":"hello","version":1,"network":"/hyroads/campus/","name":"a","token":"..."}
    {"type":"beat","boot":"9f...","role":"leader","epoch":7,...}
    {"type":"event","id":7000000012,"time_s":1790000000.0,"kind":"link.down","document":{...}}
    {"type":"learned","flow":"f1","document":{...}}
    {"type":"unconfirmed","epoch":7,"stamp":4711,"devices":["switch b"]}

The last two kinds go only to instances that name them in the ``takes`` of their heartbeats: older versions do not know
them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import Any, Protocol

from hyroads.controller.core.admission import Limits
from hyroads.controller.core.identity import CertificateFacts, not_of_node
from hyroads.controller.core.token_bucket import LimitedReports, TokenBucket
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.framework.connections import Connections
from hyroads.controller.framework.places import Place
from hyroads.controller.model.events import Event

from .election import Beat, Identity, Role
from .peer_links import MAX_LINE, PeerError, PeerLines, PeerLink, Security, is_end, line_of

LOG = logging.getLogger("hyroads.ha")
VERSION = 1
LEARNED, UNCONFIRMED = "learned", "unconfirmed"
MAX_CONNECTIONS, MAX_OF_INSTANCE, MAX_WAITING = 32, 4, 8192
"""Connections of strangers, and of each instance, which needs one and dials again before an old one has ended; waiting
lines.
"""
HELLO_WITHIN_S, SILENT_S, SEND_WITHIN_S, DIAL_WITHIN_S = 2.0, 10.0, 1.0, 1.0
STRANGERS = 2.0, 40.0
"""Of what they do wrong is told: so much a second, and so much at once."""
REDIAL_S, REDIAL_MOST_S, AGAIN_S = 0.1, 2.0, 0.05
LEARNED_AT_ONCE, MAX_NAME = 16, 256
_socket, _threading, _time = shim.original("socket"), shim.original("threading"), shim.original("time")


def _check_name(name: str, facts: CertificateFacts | None) -> None:
    """PeerError if a certificate is not of the instance ``name``."""
    if facts is not None and (problem := not_of_node(facts.names, name, "instance")):
        raise PeerError(problem)


def _tell(peer: str, what: str) -> None:
    LOG.info("instance %s: %s", peer, what)


def beat_document(beat: Beat) -> dict[str, Any]:
    """A heartbeat as a line."""
    me = beat.identity
    return {
        "type": "beat", "boot": me.boot, "rest": me.rest, "peer": me.peer, "schema": me.schema, "role": beat.role.value,
        "epoch": beat.epoch, "stamp": beat.stamp, "warm": beat.warm,
        "leader": [beat.leader, beat.leader_epoch, round(beat.leader_age_s, 4)],
        "takes": [LEARNED, UNCONFIRMED], **({"yields": True} if beat.yields else {}),
    }  # fmt: skip


def parse_beat(name: str, document: Mapping[str, Any]) -> Beat:
    """A heartbeat of an instance; PeerError."""
    match document:
        case {
            "boot": str(boot), "rest": str(rest), "peer": str(peer), "schema": int(schema), "role": str(role),
            "epoch": int(epoch), "stamp": int(stamp), "warm": bool(warm),
            "leader": [str(leader), int(leader_epoch), int() | float() as age_s],
        } if role in tuple(Role) and all(0 <= number < 2**63 for number in (epoch, leader_epoch, stamp)):  # fmt: skip
            identity = Identity(name, boot[:64], rest[:256], peer[:256], schema)
            yields = document.get("yields") is True
            return Beat(identity, Role(role), epoch, stamp, warm, leader[:64], leader_epoch, float(age_s), yields)
    raise PeerError("expected a heartbeat")


class _Outbox:
    """Lines for one instance, from any thread."""

    def __init__(self) -> None:
        self.lines: deque[bytes] = deque(maxlen=MAX_WAITING)
        self.bell, self._ring = _socket.socketpair()
        self._ring.setblocking(False)

    def put(self, line: bytes) -> None:
        """Send it soon."""
        self.lines.append(line)
        # A bell that nobody has heard yet is enough; and the thread that hears it may just have ended with its link.
        with suppress(OSError):
            self._ring.send(b"\0")

    def close(self) -> None:
        """Nobody sends any more."""
        self.bell.close()
        self._ring.close()


def event_document(event: Event) -> dict[str, Any]:
    """An event as a line."""
    return {"type": "event", "id": event.id, "time_s": event.time_s, "kind": event.kind, "document": event.document}


def parse_event(document: Mapping[str, Any]) -> Event:
    """An event of an instance; PeerError."""
    match document:
        case {"id": int(number), "time_s": int() | float() as time_s, "kind": str(kind), "document": dict(content)}:
            if 0 <= number < 10**18:
                return Event(number, float(time_s), kind[:64], content)
    raise PeerError("expected an event")


class Documented(Protocol):
    """What can be told as a document."""

    def document(self) -> dict[str, Any]:
        """As JSON."""


def parse_learned_line(document: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """A flow, and what its bandit has learned; PeerError."""
    match document:
        case {"flow": str(flow), "document": dict(content)} if len(flow) <= MAX_NAME:
            return flow, content
    raise PeerError("expected what a bandit has learned")


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """What the leader of an ``epoch`` says: of all that etcd has up to the revision ``stamp``, only these ``devices``
    (``switch NODE``, ``agent NODE``) have not confirmed their part. None: they are too many to be named.
    """

    epoch: int
    stamp: int
    devices: frozenset[str] | None

    def line(self) -> bytes:
        """As a line of the protocol."""
        document = {"type": UNCONFIRMED, "epoch": self.epoch, "stamp": self.stamp}
        line = line_of({**document, "devices": None if self.devices is None else sorted(self.devices)})
        return line if len(line) <= MAX_LINE else line_of({**document, "devices": None})


def parse_unconfirmed(document: Mapping[str, Any]) -> Unconfirmed:
    """What a leader says of devices that have not confirmed; PeerError."""
    match document:
        case {"epoch": int(epoch), "stamp": int(stamp), "devices": list() | None as devices}:
            if devices is None or all(isinstance(each, str) for each in devices):
                return Unconfirmed(epoch, stamp, None if devices is None else frozenset(devices))
    raise PeerError("expected devices that have not confirmed")


@dataclass(eq=False)
class Peers:
    """Our end of all connections. ``beat`` makes a heartbeat, None while we are to be silent; ``heard`` and ``reset``
    are told what comes, in threads of the system, of instances of which ``is_member`` holds. Whoever we reach is told
    ``events``, and those that follow, and what bandits have ``learned``, by flow: with a leader's heartbeat, whatever
    is another object than the last time. So are the devices that have not confirmed (``unconfirmed``; None: that is
    not known).
    """

    name: str
    network: str
    security: Security
    interval_s: float
    _: KW_ONLY
    beat: Callable[[], Beat | None]
    heard: Callable[[Beat], None]
    reset: Callable[[str], None]
    event: Callable[[str, Event], None]
    """Called with the name of the instance that sent an event."""
    events: Callable[[], Iterable[Event]]
    is_member: Callable[[str], bool] = lambda name: True
    learned: Callable[[], Mapping[str, Documented]] = dict
    learns: Callable[[str, str, Mapping[str, Any]], None] = lambda name, flow, document: None
    """Told by whom, of which flow, and what."""
    unconfirmed: Callable[[], Unconfirmed | None] = lambda: None
    waits: Callable[[str, Unconfirmed], None] = lambda name, said: None
    """Called with the name of the instance and what it says of devices that have not confirmed."""

    def __post_init__(self) -> None:
        self._lock = _threading.Lock()
        self._links: dict[str, int] = {}
        """By name: how many connections there are, either way."""
        self._dialled: dict[str, str] = {}
        """By name: the address that a thread keeps dialling."""
        self._ended: set[str] = set()
        """Names of which a connection was ended by the other end since one was made."""
        self._stranger = LimitedReports(_tell, _time.monotonic, TokenBucket(*STRANGERS))
        limits = Limits(MAX_CONNECTIONS, MAX_CONNECTIONS, HELLO_WITHIN_S, each=MAX_OF_INSTANCE)
        self._connections = Connections(limits, _time.monotonic, self._stranger, _threading.Lock())
        self._outboxes: dict[str, _Outbox] = {}
        self._wakes: dict[str, Any] = {}
        """By name: wakes whoever waits to dial it again."""
        self._takes: dict[str, frozenset[str]] = {}
        """By name of an instance: the kinds of lines beyond heartbeats and events that it wants."""

    def tell(self, event: Event) -> None:
        """An event, to all."""
        outboxes = list(self._outboxes.values())
        line = line_of(event_document(event)) if outboxes else b""
        for outbox in outboxes if len(line) <= MAX_LINE else ():
            outbox.put(line)

    def dial(self, addresses: Mapping[str, str]) -> None:
        """Keep connections to these instances, and to no others."""
        others = {name: address for name, address in addresses.items() if name != self.name and address}
        for name, address in others.items():
            if self._dialled.get(name) != address:
                self._dialled[name] = address
                self._wakes.setdefault(name, _threading.Event())
                shim.start_thread(self._keep_dialling, name, address, name=f"heartbeats to {name}")
        for name in self._dialled.keys() - others.keys():
            self._dialled.pop(name, None)

    def serve(self, listener: Any) -> None:
        """Accept connections, in a thread of its own."""
        shim.start_thread(self._accept, listener, name="heartbeats")

    # -- links

    def _linked(self, name: str) -> None:
        with self._lock:
            self._links[name] = self._links.get(name, 0) + 1
            self._ended.discard(name)

    def _unlinked(self, name: str, *, by_end: bool) -> None:
        """A connection is gone. A process has ended once all are, and they did not just time out."""
        with self._lock:
            left = self._links[name] = self._links.get(name, 1) - 1
            if by_end:
                self._ended.add(name)
            is_end = not left and name in self._ended
        if is_end:
            self.reset(name)

    # -- sending

    def _keep_dialling(self, name: str, address: str) -> None:
        pause_s = REDIAL_S
        while self._dialled.get(name) == address:
            try:
                link, facts = self._dial(name, address)
            except (OSError, ValueError) as error:
                LOG.debug("instance %s at %s: %s", name, address, error)
                is_there = self._wakes[name].wait(pause_s)
                self._wakes[name].clear()
                pause_s = REDIAL_S if is_there else min(2 * pause_s, REDIAL_MOST_S)
                continue
            pause_s = REDIAL_S
            self._linked(name)
            by_end = self._send_beats(link, facts, name, address)
            self._unlinked(name, by_end=by_end)
            _time.sleep(REDIAL_S)

    def _dial(self, name: str, address: str) -> tuple[PeerLink, CertificateFacts | None]:
        host, _, port = address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        connection = _socket.create_connection((host, int(port)), timeout=DIAL_WITHIN_S)
        try:
            link = PeerLink(connection, self.security.client, host)
            facts = self.security.checked(link)
            _check_name(name, facts)
            hello = {"type": "hello", "version": VERSION, "network": self.network, "name": self.name}
            token = self.security.token
            link.send(line_of({**hello, "token": token} if token is not None else hello))
        except OSError:
            connection.close()
            raise
        connection.settimeout(SEND_WITHIN_S)
        return link, facts

    def _send_beats(self, link: PeerLink, facts: CertificateFacts | None, name: str, address: str) -> bool:
        """Until the connection ends; whether the other end did that."""
        outbox = self._outboxes[name] = _Outbox()
        try:
            # Before anything else: whoever has a later event takes no earlier one, and whoever hears a heartbeat may
            # have to go on from here.
            for line in (line_of(event_document(event)) for event in self.events()):
                if len(line) <= MAX_LINE:
                    link.send(line)
            due_s, told = _time.monotonic(), dict[str, Documented]()
            said: Unconfirmed | None = None
            while self._dialled.get(name) == address:
                if _time.monotonic() >= due_s:
                    due_s = _time.monotonic() + self.interval_s
                    self.security.check_again(facts)
                    beat = self.beat()
                    if beat is not None:
                        link.send(line_of(beat_document(beat)))
                    if beat is not None and beat.role is Role.LEADER:
                        # After its heartbeat, or nobody would know that it is the leader who says so.
                        told = self._send_learned(link, name, told)
                        said = self._send_unconfirmed(link, name, said)
                while outbox.lines:
                    link.send(outbox.lines.popleft())
                if link.is_readable(max(0.0, due_s - _time.monotonic()), outbox.bell):
                    link.check_end()
        except EOFError:
            return True
        except OSError as error:
            return is_end(error)
        finally:
            self._outboxes.pop(name, None)
            outbox.close()
            link.close()
        return False

    def _send_learned(self, link: PeerLink, name: str, told: dict[str, Documented]) -> dict[str, Documented]:
        """What bandits have learned since; what was told up to now. A few at a time, for heartbeats go before."""
        learned = self.learned() if LEARNED in self._takes.get(name, ()) else {}
        if not learned:
            return told
        new = [flow for flow, each in learned.items() if told.get(flow) is not each][:LEARNED_AT_ONCE]
        for flow in new:
            line = line_of({"type": LEARNED, "flow": flow, "document": learned[flow].document()})
            if len(line) <= MAX_LINE:
                link.send(line)
        return {flow: each for flow, each in told.items() if flow in learned} | {flow: learned[flow] for flow in new}

    def _send_unconfirmed(self, link: PeerLink, name: str, said: Unconfirmed | None) -> Unconfirmed | None:
        """Say which devices have not confirmed, if that is not what was ``said``; what was said up to now."""
        now = self.unconfirmed() if UNCONFIRMED in self._takes.get(name, ()) else None
        if now is None or now == said:
            return said
        link.send(now.line())
        return now

    # -- reading

    def _accept(self, listener: Any) -> None:
        for connection, place in self._connections.accepted(listener, LOG, "instances"):
            shim.start_thread(self._read, connection, place, name="heartbeats of an instance")

    def _read(self, connection: Any, place: Place) -> None:
        name, by_end = None, False
        try:
            connection.settimeout(HELLO_WITHIN_S)
            link = PeerLink(connection, self.security.server, within_s=HELLO_WITHIN_S)
            facts = self.security.checked(link)
            lines = PeerLines(link)
            said = self._greeted(lines.next(), facts)
            if not place.authenticated(said):
                raise PeerError(f"instance {said} has all its connections")
            name = said
            link.met(SILENT_S)
            self._linked(name)
            if name in self._wakes:
                self._wakes[name].set()
            while True:
                document = lines.next()
                self.security.check_again(facts)
                if document.get("type") == "event":
                    self.event(name, parse_event(document))
                elif document.get("type") == LEARNED:
                    self.learns(name, *parse_learned_line(document))
                elif document.get("type") == UNCONFIRMED:
                    self.waits(name, parse_unconfirmed(document))
                else:
                    self.heard(parse_beat(name, document))
                    takes = document.get("takes")
                    wanted = takes if isinstance(takes, list) else []
                    self._takes[name] = frozenset(kind for kind in (LEARNED, UNCONFIRMED) if kind in wanted)
        except EOFError:
            by_end = True
        except OSError as error:
            by_end = is_end(error)
            if isinstance(error, PeerError):
                self._stranger(place.peer, str(error))
            LOG.debug("instance %s: %s", place.peer, error)
        finally:
            self._connections.leave(place)
            connection.close()
            if name is not None:
                self._unlinked(name, by_end=by_end)

    def _greeted(self, hello: Mapping[str, Any], facts: CertificateFacts | None) -> str:
        """The name of whoever dialled; PeerError."""
        match hello:
            case {"type": "hello", "version": int(version), "network": str(network), "name": str(name)}:
                pass
            case _:
                raise PeerError("expected a hello")
        self.security.check_token(hello)
        if version != VERSION or network != self.network or name == self.name or not 0 < len(name) <= 64:
            raise PeerError(f"expected another instance of {self.network}, of version {VERSION}")
        _check_name(name, facts)
        # One that has just registered may be here before etcd was read again. An end would look like that of a process.
        until_s = _time.monotonic() + HELLO_WITHIN_S
        while not self.is_member(name):
            if _time.monotonic() > until_s:
                raise PeerError(f"etcd knows no instance {name!r}")
            _time.sleep(AGAIN_S)
        return name
