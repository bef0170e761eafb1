"""``hyroads proxy``: a forward proxy for the programs of this machine that uses several interfaces.

A large GET whose answer has a length, a version and byte ranges is fetched in parts over all interfaces that it may
use, and put together in order within a bounded window of memory. Everything else goes over one interface, the one that
is expected to serve it best: its rate divided by the weights of all that use it now.
"""

from __future__ import annotations

import contextlib
import errno
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hyroads.controller.core.admission import Limits, network_of
from hyroads.controller.framework.admitted import AdmittedListener

from .engine import Engine
from .http1 import TICK_S, Connection, Origin
from .interfaces import Interface, is_public, reaching
from .proxy_client import HEAD_S, ClientConnection
from .proxy_policy import Policy, Record, Rule
from .tunnel import abort

# Errors of accept() that end by themselves: too many open files, no memory, a client that has gone already.
_LATER = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED, errno.EPERM})
_WINDOWS_BYTES = 20 * 1024 * 1024
_MOST_WINDOW_BYTES = 5 * 1024 * 1024
_LEAST_WINDOW_BYTES = 1024 * 1024
LIMITS = Limits(strangers=192, known=64, within_s=60.0, each=256)
"""A connection is a stranger's until bytes have come from a server, or gone to it."""
_IDLE_TUNNEL_S = 10.0
"""Tunnels that carried nothing for so long end if their address needs room."""
_NO_CARRIER_S = 3.0
_ACTIVE_S = 2.0
_IDLE_S = 10.0
_MOST_IDLE = 32


@dataclass(eq=False)
class _Use:
    """Something that uses one interface and can't be moved: it counts while it moves bytes."""

    interface: Interface
    weight: float
    moved_s: float
    sockets: tuple[socket.socket, ...] = ()
    address: str = ""
    """Of the application, if it is a tunnel."""


class Window:
    """A ring of bytes that arrive out of order and leave in order; a writer's bytes outside of it are dropped."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._ring = memoryview(bytearray(size))
        self._begin = 0
        self._lock = threading.Lock()

    def write(self, offset: int, data: memoryview) -> None:
        """Put bytes at their place, as far as there is room for them."""
        with self._lock:
            skip = max(0, self._begin - offset)
            data, offset = data[skip:], offset + skip
            data = data[: max(0, self._begin + self.size - offset)]
            place = offset % self.size
            first = min(len(data), self.size - place)
            self._ring[place : place + first] = data[:first]
            self._ring[: len(data) - first] = data[first:]

    def slice(self, end: int) -> memoryview:
        """Bytes from the beginning of the window up to ``end`` or to the end of the ring, whichever is nearer."""
        place = self._begin % self.size
        return self._ring[place : min(self.size, place + end - self._begin)]

    def advance(self, count: int) -> int:
        """These have left; where the window begins now."""
        with self._lock:
            self._begin += count
            return self._begin


class Proxy:
    """Accepts connections of applications; each is served by a thread of its own."""

    def __init__(self, engine: Engine, policy: Policy, log: Callable[[Record, float], None]) -> None:
        self.engine, self.policy, self.log = engine, policy, log
        self.via = b"hyroads-" + secrets.token_hex(6).encode()
        self._uses: set[_Use] = set()
        self._peaks: dict[Interface, tuple[float, float]] = {}
        self._no_carrier_s: dict[Interface, float] = {}
        self._idle: dict[tuple[Interface, Origin], list[tuple[float, Connection]]] = {}
        self._window_bytes = _WINDOWS_BYTES
        self._listener: AdmittedListener | None = None
        self._lock = threading.Lock()
        engine.allowed = (lambda _: True) if policy.allow_local else is_public
        engine.watch(self._watch)

    def serve(self, listener: AdmittedListener) -> None:
        """Serve until the listener is closed."""
        self._listener = listener
        while True:
            try:
                connection, address = listener.accept()
            except OSError as error:
                if error.errno not in _LATER:
                    return
                time.sleep(0.1)
                continue
            if not self.policy.admits(address[0]):
                connection.close()
                continue
            threading.Thread(target=self._serve_client, args=(connection, address), daemon=True).start()

    def _serve_client(self, connection: socket.socket, address: tuple[str, int]) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.settimeout(HEAD_S)
            client = ClientConnection(self, connection, address)
            with contextlib.suppress(OSError):
                client.serve()
        finally:
            connection.close()

    @property
    def clients(self) -> int:
        """How many connections of programs there are."""
        return 0 if self._listener is None else len(self._listener.places)

    def is_admitted(self, peer: tuple[str, int]) -> bool:
        """Whether a connection that a server has answered keeps its place; if its address has none left, the tunnel
        of the address that has carried nothing for longest ends for it.
        """
        listener, name = self._listener, network_of(peer[0])
        if listener is None or listener.authenticated(peer, name):
            return True
        if listener.place_of(peer) is None:
            return False
        with self.engine.changed:
            silent_since_s = time.monotonic() - _IDLE_TUNNEL_S
            silent = [use for use in self._uses if use.address == name and use.moved_s < silent_since_s]
            oldest = min(silent, key=lambda use: use.moved_s, default=None)
            if oldest is not None:
                self._uses.discard(oldest)
        if oldest is None:
            return False
        abort(*oldest.sockets)
        listener.gives_up(oldest.sockets[-1])
        return listener.authenticated(peer, name)

    # -- which interface -----------------------------------------------------------------------------------------------

    def rule_of(self, origin: Origin) -> Rule:
        """The first rule that matches, or that of all others."""
        return next((rule for rule in self.policy.rules if rule.matches(origin)), Rule("other"))

    def accepted(self, rule: Rule, origin: Origin) -> list[Interface]:
        """The interfaces that lead to a server and that a rule lets use. This machine itself is behind ``lo`` only."""
        leading = reaching(self.engine.interfaces, origin.host, origin.port)
        return [each for each in leading if each.name in rule.interfaces] if rule.interfaces else leading

    def ordered(self, rule: Rule, origin: Origin) -> list[Interface]:
        """The same, the one with the greatest expected level first; those that carry nothing come last."""
        accepted = self.accepted(rule, origin)
        with self.engine.changed:
            now_s = time.monotonic()
            peaks = {each: self._peak(each, now_s) for each in self.engine.interfaces}
            guess = max(peaks.values(), default=0.0) or 1.0
            load = dict.fromkeys(self.engine.interfaces, rule.weight)
            for use in self._uses:
                if now_s - use.moved_s < _ACTIVE_S:
                    load[use.interface] += use.weight
            for each in self.engine.interfaces:
                load[each] += self.engine.scheduler.active(each.number)

            def rank(each: Interface) -> tuple[bool, float, int]:
                dead = bool(each.failures) or not each.carrier
                return dead, -(peaks[each] or guess) / load[each], each.number

            return sorted(accepted, key=rank)

    def _peak(self, interface: Interface, now_s: float) -> float:
        """The greatest rate of an interface lately, B/s; what it carries now may be all that it is asked for."""
        rate = self.engine.scheduler.bytes_per_s(interface.number, now_s) or 0.0
        peak, since_s = self._peaks.get(interface, (0.0, now_s))
        peak *= 0.5 ** ((now_s - since_s) / 60.0)
        self._peaks[interface] = (max(rate, peak), now_s)
        return self._peaks[interface][0]

    @contextmanager
    def use(
        self, interface: Interface, rule: Rule, *sockets: socket.socket, address: str = ""
    ) -> Iterator[Callable[[int], None]]:
        """Something uses an interface for the time of a ``with`` block; it tells of the bytes that it moves."""
        use = _Use(interface, rule.weight, time.monotonic(), sockets, address and network_of(address))
        with self.engine.changed:
            self._uses.add(use)

        def moved(count: int) -> None:
            with self.engine.changed:
                use.moved_s = time.monotonic()
                interface.received_bytes += count
                self.engine.scheduler.used(interface.number, count, use.moved_s)

        try:
            yield moved
        finally:
            with self.engine.changed:
                self._uses.discard(use)

    def _watch(self) -> None:
        """End tunnels over interfaces that have gone, and connections that nobody uses any more."""
        now_s = time.monotonic()
        if self._listener is not None:
            self._listener.places.sweep()
        for interface in self.engine.interfaces:
            if interface.carrier:
                self._no_carrier_s.pop(interface, None)
            elif now_s - self._no_carrier_s.setdefault(interface, now_s) > _NO_CARRIER_S:
                with self.engine.changed:
                    gone = [use for use in self._uses if use.interface is interface]
                for use in gone:
                    abort(*use.sockets)
        with self._lock:
            for key, idle in list(self._idle.items()):
                for entry in [entry for entry in idle if now_s - entry[0] > _IDLE_S]:
                    entry[1].close()
                    idle.remove(entry)
                if not idle:
                    del self._idle[key]

    # -- connections and memory ----------------------------------------------------------------------------------------

    def reused(self, interface: Interface, origin: Origin) -> Connection | None:
        """An idle connection to a server, if there is one that still lives."""
        while True:
            with self._lock:
                idle = self._idle.get((interface, origin))
                if not idle:
                    return None
                connection = idle.pop()[1]
            connection.sock.setblocking(False)
            try:
                connection.sock.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                connection.sock.settimeout(TICK_S)
                return connection
            except OSError:
                pass
            connection.close()

    def keep(self, connection: Connection) -> None:
        """A connection whose response has ended may serve another request."""
        with self._lock:
            if connection.reusable and sum(map(len, self._idle.values())) < _MOST_IDLE:
                connection.sock.settimeout(TICK_S)
                key = (connection.interface, connection.origin)
                self._idle.setdefault(key, []).append((time.monotonic(), connection))
                return
        connection.close()

    @contextmanager
    def window(self) -> Iterator[Window | None]:
        """Memory to put a file together in; None if all is in use."""
        with self._lock:
            size = min(_MOST_WINDOW_BYTES, self._window_bytes // 2)
            size = size if size >= _LEAST_WINDOW_BYTES else 0
            self._window_bytes -= size
        try:
            yield Window(size) if size else None
        finally:
            with self._lock:
                self._window_bytes += size
