"""The access point's end of the radio channel (docs/reference/telemetry.md): tells what radios read.

One thread serves the sessions of any number of nodes: an access point has one, an emulated network has one per node. A
controller that does not read gets no backlog: readings that can't be sent at once are left out, the next are newer.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import random
import selectors
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from hyroads.controller.core import strict_json
from hyroads.controller.core.errors import ConfigError

from .hostapd import Document, HostapdFollower
from .ieee1905_ports import AlPorts
from .neighbours import is_neighbour, is_ssid
from .reading_changes import Changes

if TYPE_CHECKING:
    from hyroads.controller.framework.tls_client import ClientTls

VERSION = 1
PROGRAM = "hyroads-radio 0.3.0"
BACKOFF_S = (0.1, 2.0)
# The controller pings several times a second; one that is silent for so long is gone.
DEAD_S = 5.0
DIAL_S = 3.0
FOLLOW_EVERY_S = 0.02
MAX_LINE = 1 << 16
MAX_UNSENT = 1 << 20
INTERVAL_MS = (20, 10_000)
MAX_CONTROLLERS = 8
MOST_SHUT_OUT_S = 3600.0
MAX_EPOCH = 2**63 - 1
# A controller that does not lead is told no more often.
STANDBY_S = 1.0
# Whoever asks whether the leader is alive lets it be asked no more often.
ASK_LEADER_S = 0.02

Address = tuple[str, int]


Secured = Callable[[Address], "ClientTls"]
"""TLS for a new connection to a controller."""


class Readings(Protocol):
    """Where readings come from: ``collect`` gives new ones of some nodes, waiting for at most ``patience_s``."""

    def collect(self, nodes: Collection[str], patience_s: float) -> Mapping[str, Document]:
        """Node -> ``time_s`` and ``interfaces`` of a message ``radio``; a node without anything new is left out."""


@dataclass
class _Session:
    """One node's connection; ``socket`` is None between two of them."""

    node: str
    boot: str
    address: Address
    epoch: int = 0
    """That the controller has named; 0: it does not lead."""
    told_s: float = 0.0
    """When it was last sent readings that it had not asked for."""
    socket: socket.socket | None = None
    connected: bool = False
    interval_s: float | None = None
    """None until the controller has welcomed it."""
    dial_s: float = 0.0
    backoff_s: float = BACKOFF_S[0]
    heard_s: float = 0.0
    received: bytearray = field(default_factory=bytearray)
    unsent: bytearray = field(default_factory=bytearray)
    tls: ClientTls | None = None
    sealed: bytearray = field(default_factory=bytearray)
    """With TLS, what of it is on its way."""
    asked: list[int | None] = field(default_factory=list)
    changes: Changes | None = None
    """If the controller asked for readings of what changed."""


class Channel:
    """Sessions of some nodes with each of some controllers; :meth:`run` serves them for ever.

    Once a controller has said that it leads, only that of the greatest epoch may ask for anything to be changed. With
    ``secured`` they are over TLS.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        token: str | None,
        nodes: Collection[str],
        readings: Readings,
        complain: Callable[[str], None],
        *,
        followers: Sequence[HostapdFollower] = (),
        devices: AlPorts | None = None,
        secured: Secured | None = None,
    ) -> None:
        self._secured = secured
        self._followers = followers
        self._sources: list[HostapdFollower | AlPorts] = [*followers, *([] if devices is None else [devices])]
        self._token = token
        self._readings = readings
        self._complain = complain
        self._selector = selectors.DefaultSelector()
        boots = {node: os.urandom(8).hex() for node in nodes}
        self._of_node = {node: [_Session(node, boots[node], address) for address in addresses] for node in nodes}
        self._sessions = [session for sessions in self._of_node.values() for session in sessions]
        self._epochs = dict.fromkeys(nodes, 0)
        """The greatest that any controller has named, by node; it outlives sessions."""
        self._asked_leader_s = dict.fromkeys(nodes, -math.inf)
        self._due_s = 0.0
        self._requests: dict[str, Callable[[_Session, Document], None]] = {
            "welcome": self._welcomed,
            "ping": self._pinged,
            "read": lambda session, message: session.asked.append(_seq(message)),
            "error": self._refused,
            "lead": self._lead,
            "transition": self._obeyed(self._transition),
            "neighbours": self._obeyed(self._neighbours),
            "deauthenticate": self._obeyed(self._deauthenticate),
        }

    def run(self, stop: Callable[[], bool] = lambda: False, each_turn: Callable[[], None] = lambda: None) -> None:
        """Serves all sessions until ``stop``; ``each_turn`` is called at least once a second."""
        while not stop():
            each_turn()
            now_s = time.monotonic()
            for session in self._sessions:
                if session.socket is None and now_s >= session.dial_s:
                    self._dial(session, now_s)
                elif session.socket is not None and now_s - session.heard_s > DEAD_S:
                    self._drop(session, "the controller is silent")
            self._serve(max(0.0, min(self._wake_s(now_s) - now_s, FOLLOW_EVERY_S if self._followers else 1.0)))
            self._report()
            self._follow(time.monotonic())

    def close(self) -> None:
        """Ends all sessions."""
        for session in self._sessions:
            self._drop(session, "ended")
        self._selector.close()

    def _wake_s(self, now_s: float) -> float:
        dials = [session.dial_s for session in self._sessions if session.socket is None]
        return min([*dials, self._due_s if self._interval_s() is not None else now_s + 1.0])

    def _interval_s(self) -> float | None:
        known = [session.interval_s for session in self._sessions if session.interval_s is not None]
        return min(known, default=None)

    def _follow(self, now_s: float) -> None:
        """Report news of stations and devices at once. Sources are those of the one node there is."""
        documents = [document for source in self._sources for document in source.poll(now_s)]
        for session in self._sessions:
            if documents and session.interval_s is not None:
                self._tell(session, documents)

    def _tell(self, session: _Session, documents: list[Document]) -> None:
        try:
            for document in documents:
                self._queue(session, document)
        except (OSError, ValueError) as error:
            self._drop(session, str(getattr(error, "strerror", None) or error))

    def _obeyed(self, carry_out: Callable[[_Session, Document], None]) -> Callable[[_Session, Document], None]:
        """A request that changes something: refused unless its controller leads, or none has ever said that it does."""

        def request(session: _Session, message: Document) -> None:
            if session.epoch < self._epochs[session.node]:
                self._stale(session, message)
            else:
                carry_out(session, message)

        return request

    def _lead(self, session: _Session, message: Document) -> None:
        """A controller says that it leads: from now on it is obeyed, and told of all stations."""
        epoch = message.get("epoch")
        if not isinstance(epoch, int) or isinstance(epoch, bool) or not 0 < epoch <= MAX_EPOCH:
            self._queue(session, {"type": "error", "seq": _seq(message), "message": "epoch: expected 1 to 2^63 - 1"})
        elif epoch < self._epochs[session.node]:
            self._stale(session, message)
        else:
            session.epoch = self._epochs[session.node] = epoch
            self._queue(session, {"type": "ok", "seq": _seq(message)})
            self._tell_snapshot(session)

    def _pinged(self, session: _Session, message: Document) -> None:
        """Answered at once; once a controller leads also with when that one was heard."""
        seq, epoch = message.get("seq"), self._epochs[session.node]
        if not epoch:
            self._queue(session, {"type": "pong", "seq": seq})
            return
        now_s = time.monotonic()
        leader = next((each for each in self._of_node[session.node] if each.socket and each.epoch == epoch), None)
        # Rounded up: what was not heard now is never told as heard now.
        heard = {} if leader is None else {"heard_ms": math.ceil(1e3 * (now_s - leader.heard_s))}
        if leader is session:
            heard = {"heard_ms": 0}
        self._queue(session, {"type": "pong", "seq": seq, "epoch": epoch, **heard})
        is_due = now_s >= self._asked_leader_s[session.node] + ASK_LEADER_S
        if message.get("leader") is True and leader is not None and leader is not session and is_due:
            self._asked_leader_s[session.node] = now_s
            # Its answer is in the next pong.
            self._tell(leader, [{"type": "ping", "seq": 0}])

    def _stale(self, session: _Session, message: Document) -> None:
        epoch = self._epochs[session.node]
        self._queue(session, {"type": "error", "seq": _seq(message), "message": "stale epoch", "epoch": epoch})

    def _transition(self, session: _Session, message: Document) -> None:
        """A station shall go elsewhere; what it says to that comes later."""
        technology, mac, neighbour = (str(message.get(key)) for key in ("technology", "mac", "neighbour"))
        follower = next((f for f in self._followers if f.technology == technology), None)
        wrong = f"no hostapd on {technology[:64]}" if follower is None else follower.transition(mac, neighbour)
        answer = {"type": "ok"} if wrong is None else {"type": "error", "message": wrong}
        self._queue(session, {**answer, "seq": _seq(message)})

    def _deauthenticate(self, session: _Session, message: Document) -> None:
        """A station shall begin anew; one that is gone by now is no fault."""
        technology, mac = (str(message.get(key)) for key in ("technology", "mac"))
        told = message.get("for_s")
        is_time = isinstance(told, int | float) and not isinstance(told, bool) and 0 <= told <= MOST_SHUT_OUT_S
        for_s = float(told or 0) if is_time else 0.0
        for follower in self._followers:
            wrong = follower.deauthenticate(mac, for_s) if follower.technology == technology else None
            if wrong is not None:
                self._complain(f"{session.node}: {mac[:17]!a}: {wrong}")

    def _neighbours(self, session: _Session, message: Document) -> None:
        """What stations that ask are told; a hostapd that tells nobody anything is no fault."""
        entries = message.get("neighbours")
        follower = next((f for f in self._followers if f.technology == message.get("technology")), None)
        if follower is None or not isinstance(entries, list):
            return
        pairs = [(entry.get("neighbour"), entry.get("ssid")) for entry in entries if isinstance(entry, dict)]
        wrong = follower.set_neighbours([(n, ssid) for n, ssid in pairs if is_neighbour(n) and is_ssid(ssid)])
        if wrong is not None:
            self._complain(f"{session.node}: {wrong}")

    def _dial(self, session: _Session, now_s: float) -> None:
        family = socket.AF_INET6 if ":" in session.address[0] else socket.AF_INET
        connection = socket.socket(family, socket.SOCK_STREAM)
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        session.socket, session.connected, session.interval_s = connection, False, None
        session.heard_s, session.epoch = now_s - DEAD_S + DIAL_S, 0
        session.received.clear()
        session.unsent.clear()
        session.sealed.clear()
        session.tls = None if self._secured is None else self._secured(session.address)
        session.asked.clear()
        status = connection.connect_ex(session.address)
        if status not in (0, errno.EINPROGRESS):
            self._drop(session, os.strerror(status))
            return
        self._selector.register(connection, selectors.EVENT_READ | selectors.EVENT_WRITE, session)
        hello = {"type": "hello", "version": VERSION, "role": "radio", "node": session.node, "program": PROGRAM}
        epoch = self._epochs[session.node]
        seen = {"epoch": epoch} if epoch else {}
        said = {"boot": session.boot, "token": self._token, "changes": True}
        self._queue(session, {**hello, **said, **seen}, send=False)

    def _drop(self, session: _Session, why: str) -> None:
        if session.socket is None:
            return
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(session.socket)
        session.socket.close()
        session.socket, session.interval_s = None, None
        self._complain(f"{session.node}: {why}; dialling again")
        session.dial_s = time.monotonic() + session.backoff_s * random.uniform(0.75, 1.25)  # noqa: S311
        session.backoff_s = min(2 * session.backoff_s, BACKOFF_S[1])

    def _serve(self, patience_s: float) -> None:
        for key, events in self._selector.select(patience_s):
            session: _Session = key.data
            try:
                if events & selectors.EVENT_WRITE:
                    self._connected(session)
                if events & selectors.EVENT_READ:
                    self._receive(session)
            except (OSError, ValueError) as error:
                self._drop(session, str(getattr(error, "strerror", None) or error))

    def _connected(self, session: _Session) -> None:
        if session.socket is not None and not session.connected:
            status = session.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if status:
                raise OSError(status, os.strerror(status))
            session.connected = True
        self._flush(session)

    def _receive(self, session: _Session) -> None:
        if session.socket is None:
            return
        chunk = session.socket.recv(1 << 16)
        if not chunk:
            raise ConnectionResetError("the controller closed the connection")
        session.heard_s = time.monotonic()
        if session.tls is not None:
            chunk = session.tls.received(chunk)
            # Both ends may agree by now.
            self._flush(session)
        session.received += chunk
        while (end := session.received.find(b"\n")) >= 0:
            line = bytes(session.received[:end])
            del session.received[: end + 1]
            message = strict_json.parse(line)
            if not isinstance(message, dict):
                raise ValueError("the controller sent a line that is no object")
            request = self._requests.get(str(message.get("type")))
            if request is not None:
                request(session, message)
        if len(session.received) > MAX_LINE:
            raise ValueError("the controller sent a line that is too long")

    def _welcomed(self, session: _Session, message: Document) -> None:
        interval_ms = message.get("interval_ms")
        if isinstance(interval_ms, bool) or not isinstance(interval_ms, int | float):
            raise ValueError("the controller's welcome has no interval_ms")
        session.interval_s = min(max(interval_ms, INTERVAL_MS[0]), INTERVAL_MS[1]) / 1000
        session.backoff_s = BACKOFF_S[0]
        whole_ms = message.get("whole_ms")
        is_asked = isinstance(whole_ms, int | float) and not isinstance(whole_ms, bool)
        session.changes = Changes(float(whole_ms or 0) / 1000) if is_asked else None
        self._tell_snapshot(session)

    def _tell_snapshot(self, session: _Session) -> None:
        for source in self._sources:
            for document in source.snapshot():
                self._queue(session, document)

    def _refused(self, session: _Session, message: Document) -> None:
        self._complain(f"{session.node}: the controller says {str(message.get('message'))[:200]!a}")

    def _queue(self, session: _Session, message: Document, *, send: bool = True) -> None:
        session.unsent += json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        if len(session.unsent) + len(session.sealed) > MAX_UNSENT:
            raise ValueError("the controller does not read")
        if send:
            self._flush(session)

    def _flush(self, session: _Session) -> None:
        if session.socket is None or not session.connected:
            return
        waiting = session.unsent
        if session.tls is not None:
            session.sealed += session.tls.send(session.unsent)
            waiting = session.sealed
        with contextlib.suppress(BlockingIOError):
            while waiting:
                del waiting[: session.socket.send(waiting)]
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if waiting else 0)
        self._selector.modify(session.socket, wanted, session)

    def _report(self) -> None:
        """What is due, or was asked for: one collection serves all sessions."""
        interval_s, now_s = self._interval_s(), time.monotonic()
        if interval_s is None:
            return
        up = [session for session in self._sessions if session.interval_s is not None]
        if now_s >= self._due_s:
            # On a grid, so that the interval holds on average; after a pause it starts anew.
            self._due_s = max(self._due_s + interval_s, now_s + interval_s / 2)
            up = [session for session in up if session.asked or self._is_due(session, now_s)]
        else:
            up = [session for session in up if session.asked]
        nodes = list(dict.fromkeys(session.node for session in up))
        found = self._readings.collect(nodes, interval_s / 2) if up else {}
        for session in up:
            asked, session.asked = session.asked or [None], []
            document = found.get(session.node)
            if document is None or ((session.unsent or session.sealed) and asked == [None]):
                continue
            self._tell(session, [_reading(session, seq, document, now_s) for seq in asked])

    def _is_due(self, session: _Session, now_s: float) -> bool:
        """Whether a session gets the readings of this interval: one that does not lead gets those of each second."""
        if session.epoch < self._epochs[session.node] and now_s - session.told_s < STANDBY_S:
            return False
        session.told_s = now_s
        return True


def _reading(session: _Session, seq: int | None, document: Document, now_s: float) -> Document:
    if seq is None and session.changes is not None:
        return session.changes.message(document, now_s)
    return {"type": "radio", "seq": seq, **document}


def addresses_of(text: str) -> list[Address]:
    """HOST:PORT,... of a command line; :class:`ConfigError`."""
    found = [address_of(each.strip()) for each in text.split(",")]
    if len(found) > MAX_CONTROLLERS or len(set(found)) < len(found):
        what = f"expected at most {MAX_CONTROLLERS} controllers, each once, got {text[:80]!a}"
        raise ConfigError("command line", "--channel", what)
    return found


def address_of(text: str) -> Address:
    """HOST:PORT of a command line, HOST an address (IPv6 in brackets) or a name; :class:`ConfigError`."""
    host, port = host_and_port(text)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError("command line", "--channel", f"{host}: {error.strerror}") from error
    return str(found[0][4][0]), port


def host_and_port(text: str) -> tuple[str, int]:
    """The two parts of HOST:PORT, an IPv6 address without its brackets; :class:`ConfigError`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdecimal() or not 0 < int(port[:6]) < 0x10000:
        raise ConfigError("command line", "--channel", f"expected HOST:PORT such as 192.0.2.1:6654, got {text[:80]!a}")
    return host.strip("[]"), int(port)


def _seq(message: Document) -> int | None:
    seq = message.get("seq")
    return seq if isinstance(seq, int) and not isinstance(seq, bool) else None
