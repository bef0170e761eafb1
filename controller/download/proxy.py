"""``hyroads proxy``: a forward proxy for the programs of this machine that uses several interfaces.

A large GET whose answer has a length, a version and byte ranges is fetched in parts over all interfaces that it may
use, and put together in order within a bounded window of memory. Everything else goes over one interface, the one that
is expected to serve it best: its rate divided by the weights of all that use it now.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import ipaddress
import json
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import h11

from .engine import CONNECT_S, Engine, Source, Transfer
from .heads import MOST_BYTES, Head, RefusedError, end_of_head, parse_head, response_headers
from .http1 import TICK_S, Answer, Connection, Origin
from .interfaces import Interface, RefusedAddressError, is_public
from .tunnel import Pipe, abort, bound_waits, end_of_stream

# What is smaller goes over one interface: it is over before a second one has helped.
LEAST_SPLIT_BYTES = 512 * 1024
_STREAM_BYTES = 128 * 1024
_WINDOWS_BYTES = 20 * 1024 * 1024
_MOST_WINDOW_BYTES = 5 * 1024 * 1024
_LEAST_WINDOW_BYTES = 1024 * 1024
_MOST_CLIENTS = 256
_HEAD_S = 15.0
_IDLE_S = 60.0
_SILENT_S = 60.0
_NO_CARRIER_S = 3.0
_ACTIVE_S = 2.0
_KEPT_S = 10.0
_MOST_KEPT = 32
_SEND_BYTES = 256 * 1024
_CONDITIONS = frozenset(b"if-match if-none-match if-modified-since if-unmodified-since if-range range".split())
CONNECT_PORTS = frozenset({80, 443, 8443})


@dataclass(frozen=True, slots=True)
class Rule:
    """What requests may use: those to a ``host`` (``*.example.org``: all below it; None: any) and ``port``."""

    name: str
    host: str | None = None
    port: int | None = None
    interfaces: tuple[str, ...] = ()
    weight: float = 1.0

    def matches(self, origin: Origin) -> bool:
        """Whether the rule is for requests to this server."""
        host = origin.host.lower().rstrip(".")
        if self.host is not None:
            below = self.host.startswith("*.") and host.endswith(self.host[1:])
            if not below and host != self.host:
                return False
        return self.port is None or self.port == origin.port


@dataclass(frozen=True, slots=True)
class Policy:
    """Who may use the proxy, and for what. ``connect_ports`` None: all; ``token`` None: none is asked for."""

    rules: tuple[Rule, ...] = ()
    connect_ports: frozenset[int] | None = CONNECT_PORTS
    allow_local: bool = False
    token: str | None = None
    clients: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = ()

    def admits(self, address: str) -> bool:
        """Whether a client at this address may connect."""
        found = ipaddress.ip_address(address.split("%")[0])
        found = getattr(found, "ipv4_mapped", None) or found
        return not self.clients or found.is_loopback or any(found in network for network in self.clients)

    def knows(self, credentials: bytes | None) -> bool:
        """Whether credentials hold the token: ``Bearer TOKEN``, or ``Basic`` with the token as password."""
        if self.token is None:
            return True
        kind, _, text = (credentials or b"").partition(b" ")
        given = text.strip()
        if kind.lower() == b"basic":
            try:
                given = base64.b64decode(given, validate=True).partition(b":")[2]
            except ValueError:
                return False
        elif kind.lower() != b"bearer":
            return False
        return hmac.compare_digest(given, self.token.encode())


@dataclass(eq=False)
class _Use:
    """Something that uses one interface and can't be moved: it counts while it moves bytes."""

    interface: Interface
    weight: float
    moved_s: float
    sockets: tuple[socket.socket, ...] = ()


@dataclass(eq=False)
class Record:
    """What the log says of a request."""

    client: str
    method: str = "-"
    target: str = "-"
    status: int = 0
    bytes: int = 0
    split: bool = False
    interfaces: dict[str, int] = field(default_factory=dict)
    why: str = ""


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
        self._kept: dict[tuple[Interface, Origin], list[tuple[float, Connection]]] = {}
        self._window_bytes = _WINDOWS_BYTES
        self._clients = 0
        self._lock = threading.Lock()
        engine.allowed = (lambda _: True) if policy.allow_local else is_public
        engine.watch(self._watch)

    def serve(self, listener: socket.socket) -> None:
        """Serve until the listener is closed."""
        while True:
            try:
                connection, address = listener.accept()
            except OSError:
                return
            if self._clients >= _MOST_CLIENTS or not self.policy.admits(address[0]):
                connection.close()
                continue
            with self._lock:
                self._clients += 1
            threading.Thread(target=self._serve_client, args=(connection, address[0]), daemon=True).start()

    def _serve_client(self, connection: socket.socket, address: str) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.settimeout(_HEAD_S)
            client = _Client(self, connection, address)
            with contextlib.suppress(OSError):
                client.serve()
        finally:
            connection.close()
            with self._lock:
                self._clients -= 1

    # -- which interface -----------------------------------------------------------------------------------------------

    def rule_of(self, origin: Origin) -> Rule:
        """The first rule that matches, or that of all others."""
        return next((rule for rule in self.policy.rules if rule.matches(origin)), Rule("other"))

    def accepted(self, rule: Rule) -> list[Interface]:
        """The interfaces that a rule lets use."""
        every = self.engine.interfaces
        return [each for each in every if each.name in rule.interfaces] if rule.interfaces else list(every)

    def ordered(self, rule: Rule) -> list[Interface]:
        """The same, the one with the greatest expected level first; those that carry nothing come last."""
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

            return sorted(self.accepted(rule), key=rank)

    def _peak(self, interface: Interface, now_s: float) -> float:
        """The greatest rate of an interface lately, B/s: what it carried, and it was perhaps not asked for all it can."""
        rate = self.engine.scheduler.bytes_per_s(interface.number, now_s) or 0.0
        peak, since_s = self._peaks.get(interface, (0.0, now_s))
        peak *= 0.5 ** ((now_s - since_s) / 60.0)
        self._peaks[interface] = (max(rate, peak), now_s)
        return max(rate, peak)

    @contextmanager
    def use(self, interface: Interface, rule: Rule, *sockets: socket.socket) -> Iterator[Callable[[int], None]]:
        """Something uses an interface for the time of a ``with`` block; it tells of the bytes that it moves."""
        use = _Use(interface, rule.weight, time.monotonic(), sockets)
        with self.engine.changed:
            self._uses.add(use)

        def moved(count: int) -> None:
            with self.engine.changed:
                use.moved_s = time.monotonic()
                self.engine.scheduler.used(interface.number, count, use.moved_s)

        try:
            yield moved
        finally:
            with self.engine.changed:
                self._uses.discard(use)

    def _watch(self) -> None:
        """End tunnels over interfaces that have gone, and connections that nobody uses any more."""
        now_s = time.monotonic()
        for interface in self.engine.interfaces:
            if interface.carrier:
                self._no_carrier_s.pop(interface, None)
            elif now_s - self._no_carrier_s.setdefault(interface, now_s) > _NO_CARRIER_S:
                with self.engine.changed:
                    gone = [use for use in self._uses if use.interface is interface]
                for use in gone:
                    abort(*use.sockets)
        with self._lock:
            for key, kept in list(self._kept.items()):
                for entry in [entry for entry in kept if now_s - entry[0] > _KEPT_S]:
                    entry[1].close()
                    kept.remove(entry)
                if not kept:
                    del self._kept[key]

    # -- connections and memory ----------------------------------------------------------------------------------------

    def reused(self, interface: Interface, origin: Origin) -> Connection | None:
        """An idle connection to a server, if there is one that still lives."""
        while True:
            with self._lock:
                kept = self._kept.get((interface, origin))
                if not kept:
                    return None
                connection = kept.pop()[1]
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
            if connection.reusable and sum(map(len, self._kept.values())) < _MOST_KEPT:
                connection.sock.settimeout(TICK_S)
                key = (connection.interface, connection.origin)
                self._kept.setdefault(key, []).append((time.monotonic(), connection))
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


class _Client:
    """A connection of an application."""

    def __init__(self, proxy: Proxy, connection: socket.socket, address: str) -> None:
        self._proxy, self._connection, self._address = proxy, connection, address
        self._early = b""
        self._machine = h11.Connection(h11.SERVER)
        self._responded = False

    def serve(self) -> None:
        """One request after the other, until one of both ends has had enough."""
        while True:
            began_s, record = time.monotonic(), Record(self._address)
            self._responded = False
            self._machine = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_BYTES)
            try:
                data = self._read_head()
                if data is None:
                    return
                began_s = time.monotonic()
                head = parse_head(data, self._machine, self._proxy.via)
                self._early = b""
                record.method = head.method.decode()
                record.target = head.url.short if head.url is not None else head.origin.authority
                stays = self._perform(head, record)
            except RefusedError as refused:
                record.status, record.why, stays = refused.status, refused.why, False
                self._refuse(refused)
            except OSError as error:
                record.why, stays = str(error.strerror or error)[:200], False
                abort(self._connection)
            if record.status:
                self._proxy.log(record, time.monotonic() - began_s)
            if not stays:
                self._drain()
                return

    def _read_head(self) -> bytes | None:
        """A whole head; None if there is none any more. What follows it is handed to the machine with it."""
        data, over_s = bytearray(self._early), time.monotonic() + (_IDLE_S if not self._early else _HEAD_S)
        while not end_of_head(data):
            left_s = over_s - time.monotonic()
            if left_s <= 0:
                if not data:
                    return None
                raise RefusedError(408, f"the head took longer than {_HEAD_S:g} s")
            self._connection.settimeout(left_s)
            try:
                more = self._connection.recv(16 * 1024)
            except TimeoutError:
                continue
            if not more:
                return None
            if not data:
                over_s = time.monotonic() + _HEAD_S
            data += more
        self._connection.settimeout(_SILENT_S)
        return bytes(data)

    def _drain(self) -> None:
        """Let what we sent arrive before the connection ends, although the application may still be sending."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)
            self._connection.settimeout(0.5)
            over_s = time.monotonic() + 1.0
            while time.monotonic() < over_s and self._connection.recv(64 * 1024):
                pass

    def _refuse(self, refused: RefusedError) -> None:
        """An error as the answer, if nothing was sent yet."""
        if self._responded:
            abort(self._connection)
            return
        body = f"hyroads proxy: {refused.why}\n".encode("ascii", "replace")
        extra = 'Proxy-Authenticate: Basic realm="hyroads"\r\n' if refused.status == 407 else ""
        head = (
            f"HTTP/1.1 {refused.status} {_REASONS.get(refused.status, 'Error')}\r\nContent-Type: text/plain\r\n{extra}"
            f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        with contextlib.suppress(OSError):
            self._connection.settimeout(5.0)
            self._connection.sendall(head.encode() + body)

    def _perform(self, head: Head, record: Record) -> bool:
        """Answer a request; whether the connection stays."""
        policy = self._proxy.policy
        if not policy.knows(head.credentials):
            raise RefusedError(407, "a token is needed (--token-file)")
        rule = self._proxy.rule_of(head.origin)
        if head.url is None:
            if policy.connect_ports is not None and head.origin.port not in policy.connect_ports:
                raise RefusedError(403, f"CONNECT to port {head.origin.port} is not allowed (--connect-ports)")
            self._tunnel(head, rule, record)
            return False
        return self._forward(head, rule, record)

    # -- CONNECT -------------------------------------------------------------------------------------------------------

    def _tunnel(self, head: Head, rule: Rule, record: Record) -> None:
        interface, server = self._reach(head.origin, rule)
        record.status, record.interfaces = 200, {interface.name: 0}
        # Its end is not for the engine to bring about: a carrier that is back soon need not break it.
        interface.sockets.discard(server)
        try:
            with self._proxy.use(interface, rule, server, self._connection) as used:
                self._connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                self._responded = True
                early = bytes(self._machine.trailing_data[0])
                if early:
                    server.sendall(early)
                for each in (server, self._connection):
                    bound_waits(each, 0)
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                back = threading.Thread(
                    target=_carry, args=(server, self._connection, used, record, interface), daemon=True
                )
                back.start()
                _carry(self._connection, server, lambda _: None, None, interface)
                back.join()
        finally:
            server.close()

    def _reach(self, origin: Origin, rule: Rule) -> tuple[Interface, socket.socket]:
        """A connection to a server over the best interface that leads there."""
        problem: OSError | None = None
        for interface in self._proxy.ordered(rule):
            try:
                connection = interface.connect(origin.host, origin.port, 2 * CONNECT_S, self._proxy.engine.allowed)
            except RefusedAddressError as error:
                raise RefusedError(403, f"{error.args[0]} (--allow-local)") from error
            except OSError as error:
                problem = error
            else:
                return interface, connection
        raise _unreachable(origin, problem)

    # -- http:// -------------------------------------------------------------------------------------------------------

    def _forward(self, head: Head, rule: Rule, record: Record) -> bool:
        connection, answer = self._ask(head, rule)
        record.status = answer.status
        accepts = self._proxy.accepted(rule)
        if self._may_split(head, answer):
            with self._proxy.window() as window:
                if window is not None:
                    self._split(head, rule, answer, connection, window, accepts, record)
                    return head.stays
        try:
            with self._proxy.use(connection.interface, rule, connection.sock, self._connection) as used:
                return self._pass_on(head, answer, connection, used, record)
        finally:
            self._proxy.keep(connection)

    def _ask(self, head: Head, rule: Rule) -> tuple[Connection, Answer]:
        """Send the request over the best interface and read the head of the answer.

        A GET or HEAD that got no answer is sent again, elsewhere; nothing else is ever sent twice.
        """
        safe = head.method in {b"GET", b"HEAD"} and not head.has_body
        proxy, problem = self._proxy, None
        assert head.url is not None
        headers = [(b"Host", head.origin.authority.encode()), *head.headers, (b"Via", b"1.1 " + proxy.via)]
        if head.length is None:
            headers.append((b"Transfer-Encoding", b"chunked"))
        elif head.length or head.method in {b"POST", b"PUT", b"PATCH"}:
            headers.append((b"Content-Length", b"%d" % head.length))
        for interface in proxy.ordered(rule):
            for fresh in (False, True) if safe else (True,):
                connection = None if fresh else proxy.reused(interface, head.origin)
                if connection is None and not fresh:
                    continue
                try:
                    connection = connection or self._connect(head.origin, interface)
                    asked_s = time.monotonic()
                    connection.tick = lambda: _tick(asked_s)  # noqa: B023 - set anew with each connection
                    relay = (lambda to=connection: self._send_body(head, to)) if head.has_body else None
                    return connection, connection.ask(head.method.decode(), head.url.target, headers, relay)
                except OSError as error:
                    problem = error
                    if connection is not None:
                        connection.close()
                        if not safe:
                            raise _unreachable(head.origin, problem) from error
        raise _unreachable(head.origin, problem)

    def _connect(self, origin: Origin, interface: Interface) -> Connection:
        engine = self._proxy.engine
        try:
            return Connection.open(origin, interface, engine.tls, 2 * CONNECT_S, allowed=engine.allowed)
        except RefusedAddressError as error:
            raise RefusedError(403, f"{error.args[0]} (--allow-local)") from error

    def _send_body(self, head: Head, connection: Connection) -> None:
        """The body of the request, from the application to the server."""
        if head.waits:
            self._connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            while True:
                event = self._machine.next_event()
                if event is h11.NEED_DATA:
                    self._machine.receive_data(self._connection.recv(64 * 1024))
                elif isinstance(event, h11.Data):
                    data = bytes(event.data)
                    if head.length is None and data:
                        data = b"%x\r\n%s\r\n" % (len(data), data)
                    connection.send(data)
                elif isinstance(event, h11.EndOfMessage):
                    if head.length is None:
                        connection.send(b"0\r\n\r\n")
                    return
                else:
                    raise RefusedError(400, "the body ended early")
        except h11.RemoteProtocolError as error:
            raise RefusedError(400, str(error)) from error

    def _may_split(self, head: Head, answer: Answer) -> bool:
        """Whether an answer is worth it and can be put together from parts."""
        large = answer.length is not None and answer.length >= LEAST_SPLIT_BYTES
        ranges = (answer.header(b"accept-ranges") or b"").strip().lower() == b"bytes"
        plain = head.method == b"GET" and answer.status == 200 and not head.has(b"range")
        several = len(self._proxy.engine.interfaces) > 1
        return plain and large and ranges and several and answer.validator is not None

    def _begin_response(self, head: Head, answer: Answer) -> bool:
        """Send the head of the response; whether its body is sent in chunks."""
        headers = response_headers(answer.headers, self._proxy.via)
        if answer.length is not None:
            headers.append((b"Content-Length", b"%d" % answer.length))
        if not head.stays:
            headers.append((b"Connection", b"close"))
        while self._machine.their_state is h11.SEND_BODY and self._machine.next_event() is not h11.NEED_DATA:
            # The machine must see the end of the request, which has none that could be missing.
            continue
        self._early = bytes(self._machine.trailing_data[0])
        response = h11.Response(status_code=answer.status, headers=headers, reason=answer.reason)
        data = self._machine.send(response)
        self._connection.sendall(data or b"")
        self._responded = True
        empty = head.method == b"HEAD" or answer.status in {204, 304}
        return answer.length is None and not empty

    def _pass_on(
        self, head: Head, answer: Answer, connection: Connection, used: Callable[[int], None], record: Record
    ) -> bool:
        """A response over one interface, as it comes; whether the connection may stay."""
        chunks = self._begin_response(head, answer)
        name = connection.interface.name

        def moved(count: int) -> None:
            used(count)
            record.bytes += count
            record.interfaces[name] = record.interfaces.get(name, 0) + count

        moved_s = time.monotonic()
        connection.tick = lambda: _tick(moved_s)
        if chunks:
            while True:
                data = connection.read_chunk() if answer.chunked else self._read_some(connection)
                if not data:
                    break
                self._connection.sendall(self._machine.send(h11.Data(data=data)) or b"")
                moved_s = time.monotonic()
                moved(len(data))
            self._connection.sendall(self._machine.send(h11.EndOfMessage()) or b"")
            return head.stays and self._machine.our_state is h11.DONE
        early = connection.unread
        if early:
            self._connection.sendall(early)
            moved(len(early))
        if connection.left:
            for each in (connection.sock, self._connection):
                bound_waits(each, _SILENT_S)
            with Pipe() as pipe:
                carried = pipe.carry(connection.sock, self._connection, connection.left, moved)
            connection.taken(carried)
            bound_waits(connection.sock, 0)
            self._connection.settimeout(_SILENT_S)
            if connection.left:
                record.why = f"the server ended {connection.left} bytes early"
                abort(self._connection)
                return False
        return head.stays

    @staticmethod
    def _read_some(connection: Connection) -> bytes:
        buffer = memoryview(bytearray(64 * 1024))
        return bytes(buffer[: connection.read_into(buffer)])

    def _split(
        self,
        head: Head,
        rule: Rule,
        answer: Answer,
        connection: Connection,
        window: Window,
        accepts: Sequence[Interface],
        record: Record,
    ) -> None:
        """A response in parts over all interfaces, in order to the application."""
        assert head.url is not None and answer.length is not None
        engine, length = self._proxy.engine, answer.length
        headers = [(b"Host", head.origin.authority.encode()), (b"Via", b"1.1 " + self._proxy.via)]
        headers += [(name, value) for name, value in head.headers if name not in _CONDITIONS]
        transfer = Transfer(head.url.short, length, [Source(head.url, answer.validator, headers)], window)
        self._begin_response(head, answer)
        record.split, record.interfaces = True, transfer.bytes_by_interface
        stream = (connection, connection.interface, min(length, _STREAM_BYTES))
        numbers = [each.number for each in accepts]
        engine.add(transfer, rule.weight, numbers, window=window.size, stream=stream)
        try:
            self._deliver(transfer, window, length, record)
        except OSError:
            # The application has gone; what is on its way for it is of no use.
            abort(self._connection)
            raise
        finally:
            engine.remove(transfer)

    def _deliver(self, transfer: Transfer, window: Window, length: int, record: Record) -> None:
        engine, sent = self._proxy.engine, 0
        self._connection.settimeout(_SILENT_S)
        while sent < length:
            with engine.changed:
                while (end := engine.scheduler.done(transfer.number).covered_to(sent)) == sent:
                    if transfer.error is not None:
                        record.why = str(transfer.error)
                        raise ConnectionAbortedError(record.why)
                    engine.changed.wait(0.02)
            # The engine's clock for silence must not run while the application is the slow one.
            transfer.moved_s = time.monotonic()
            data = window.slice(min(end, sent + _SEND_BYTES))
            count = self._connection.send(data)
            sent = window.advance(count)
            record.bytes = sent
            with engine.changed:
                engine.scheduler.delivered(transfer.number, sent)
                engine.changed.notify_all()


_REASONS = {
    400: "Bad Request",
    403: "Forbidden",
    405: "Method Not Allowed",
    407: "Proxy Authentication Required",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    501: "Not Implemented",
    502: "Bad Gateway",
    504: "Gateway Timeout",
    505: "HTTP Version Not Supported",
    508: "Loop Detected",
}


def _unreachable(origin: Origin, problem: OSError | None) -> RefusedError:
    status = 504 if isinstance(problem, TimeoutError) else 502
    text = "no interface may be used" if problem is None else str(problem.strerror or problem)[:200]
    return RefusedError(status, f"{origin.authority}: {text}")


def _tick(moved_s: float) -> None:
    if time.monotonic() - moved_s > _SILENT_S:
        raise TimeoutError(f"no byte for {_SILENT_S:g} s")


def _carry(
    source: socket.socket,
    target: socket.socket,
    used: Callable[[int], None],
    record: Record | None,
    interface: Interface,
) -> None:
    """One direction of a tunnel, until its end."""

    def moved(count: int) -> None:
        used(count)
        if record is not None:
            record.bytes += count
            record.interfaces[interface.name] = record.bytes

    try:
        with Pipe() as pipe:
            pipe.carry(source, target, None, moved)
        end_of_stream(source, target)
    except OSError:
        abort(source, target)


def print_record(record: Record, seconds: float) -> None:
    """The log as lines of JSON on standard output."""
    document = {
        "time": round(time.time(), 3),
        "client": record.client,
        "method": record.method,
        "target": record.target,
        "status": record.status,
        "bytes": record.bytes,
        "seconds": round(seconds, 4),
        "split": record.split,
        "interfaces": dict(record.interfaces),
        **({"error": record.why} if record.why else {}),
    }
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(document) + os.linesep)
        sys.stdout.flush()
