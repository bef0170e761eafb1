"""A connection of an application to the proxy: its requests, one after the other."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import h11

from .engine import CONNECT_S
from .heads import MOST_BYTES, Head, RefusedError, end_of_head, parse_head, response_headers
from .http1 import Answer, Connection, Origin, Url
from .interfaces import DownloadError, Interface, RefusedAddressError
from .proxy_policy import Record, Rule
from .transfers import Source, Transfer
from .tunnel import Pipe, abort, bound_waits, end_of_stream

if TYPE_CHECKING:
    from .proxy import Proxy, Window

# What is smaller goes over one interface: it is over before a second one has helped.
LEAST_SPLIT_BYTES = 512 * 1024
_STREAM_BYTES = 128 * 1024
HEAD_S = 15.0
_IDLE_S = 60.0
_SILENT_S = 60.0
# An application may pause for long: a film, for example.
_APPLICATION_S = 3600.0
_SEND_BYTES = 256 * 1024
_CONDITIONS = frozenset(b"if-match if-none-match if-modified-since if-unmodified-since if-range range".split())


class ClientConnection:
    """A connection of an application."""

    def __init__(self, proxy: Proxy, connection: socket.socket, peer: tuple[str, int]) -> None:
        self._proxy, self._connection, self._peer = proxy, connection, peer
        self._is_admitted = False
        self._early = b""
        self._machine = h11.Connection(h11.SERVER)
        self._responded = False

    def serve(self) -> None:
        """One request after the other, until one of both ends has had enough."""
        while True:
            began_s, record = time.monotonic(), Record(self._peer[0])
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
            except DownloadError as error:
                record.status, record.why, stays = 400, str(error), False
                self._refuse(RefusedError(400, str(error)))
            except OSError as error:
                record.why, stays = str(error.strerror or error)[:200], False
                abort(self._connection)
            if record.status:
                self._proxy.log(record, time.monotonic() - began_s)
            if not stays:
                self._drain()
                return

    def _keep_place(self) -> None:
        """Bytes have come from a server, or gone to it: the connection is no stranger's any more."""
        if not self._is_admitted:
            self._is_admitted = self._proxy.is_admitted(self._peer)
            if not self._is_admitted:
                raise ConnectionAbortedError(errno.ECONNABORTED, "the address has too many connections")

    def _read_head(self) -> bytes | None:
        """A whole head; None if there is none any more. What follows it is handed to the machine with it."""
        data, over_s = bytearray(self._early), time.monotonic() + (_IDLE_S if not self._early else HEAD_S)
        while not end_of_head(data):
            left_s = over_s - time.monotonic()
            if left_s <= 0:
                if not data:
                    return None
                raise RefusedError(408, f"the head took longer than {HEAD_S:g} s")
            self._connection.settimeout(left_s)
            try:
                more = self._connection.recv(16 * 1024)
            except TimeoutError:
                continue
            if not more:
                return None
            if not data:
                over_s = time.monotonic() + HEAD_S
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
        return self._forward(head, head.url, rule, record)

    # -- CONNECT -------------------------------------------------------------------------------------------------------

    def _tunnel(self, head: Head, rule: Rule, record: Record) -> None:
        interface, server = self._reach(head.origin, rule)
        record.status, record.interfaces = 200, {interface.name: 0}
        # Its end is not for the engine to bring about: a carrier that is back soon need not break it.
        interface.sockets.discard(server)
        try:
            with self._proxy.use(interface, rule, server, self._connection, address=self._peer[0]) as used:

                def answered(count: int) -> None:
                    self._keep_place()
                    used(count)

                self._connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                self._responded = True
                early = bytes(self._machine.trailing_data[0])
                if early:
                    server.sendall(early)
                for each in (server, self._connection):
                    bound_waits(each, _APPLICATION_S)
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                back = threading.Thread(
                    target=_carry, args=(server, self._connection, answered, record, interface), daemon=True
                )
                back.start()
                _carry(self._connection, server, lambda _: self._keep_place(), None, interface)
                back.join()
        finally:
            server.close()

    def _reach(self, origin: Origin, rule: Rule) -> tuple[Interface, socket.socket]:
        """A connection to a server over the best interface that leads there."""
        problem: OSError | None = None
        for interface in self._proxy.ordered(rule, origin):
            try:
                connection = interface.connect(origin.host, origin.port, 2 * CONNECT_S, self._proxy.engine.allowed)
            except RefusedAddressError as error:
                raise RefusedError(403, f"{error.args[0]} (--allow-local)") from error
            except OSError as error:
                problem = error
            else:
                self._proxy.engine.alive(interface)
                return interface, connection
        raise _unreachable(origin, problem)

    # -- http:// -------------------------------------------------------------------------------------------------------

    def _forward(self, head: Head, url: Url, rule: Rule, record: Record) -> bool:
        connection, answer = self._ask(head, url, rule)
        record.status = answer.status
        if self._may_split(head, answer):
            with self._proxy.window() as window:
                if window is not None:
                    transfer = self._transfer(head, url, answer, window)
                    record.split, record.interfaces = True, transfer.bytes_by_interface
                    self._begin_response(head, answer)
                    self._split(transfer, rule, connection, window, record)
                    return head.stays
        try:
            with self._proxy.use(connection.interface, rule, connection.sock, self._connection) as used:
                return self._pass_on(head, answer, connection, used, record)
        finally:
            self._proxy.keep(connection)

    def _ask(self, head: Head, url: Url, rule: Rule) -> tuple[Connection, Answer]:
        """Send the request over the best interface and read the head of the answer.

        A GET or HEAD that got no answer is sent again, elsewhere; nothing else is ever sent twice.
        """
        safe = head.method in {b"GET", b"HEAD"} and not head.has_body
        proxy, problem = self._proxy, None
        headers = [(b"Host", head.origin.authority.encode()), *head.headers, (b"Via", b"1.1 " + proxy.via)]
        if head.length is None:
            headers.append((b"Transfer-Encoding", b"chunked"))
        elif head.length or head.method in {b"POST", b"PUT", b"PATCH"}:
            headers.append((b"Content-Length", b"%d" % head.length))
        for interface in proxy.ordered(rule, head.origin):
            for fresh in (False, True) if safe else (True,):
                connection = None if fresh else proxy.reused(interface, head.origin)
                if connection is None and not fresh:
                    continue
                try:
                    connection = connection or self._connect(head.origin, interface)
                    asked_s = time.monotonic()
                    connection.tick = lambda: _tick(asked_s)  # noqa: B023 - set anew with each connection
                    relay = (lambda to=connection: self._send_body(head, to)) if head.has_body else None
                    answer = connection.ask(head.method.decode(), url.target, headers, relay)
                    proxy.engine.alive(interface)
                    return connection, answer
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
                    self._keep_place()
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
        self._keep_place()
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
            bound_waits(connection.sock, _SILENT_S)
            bound_waits(self._connection, _APPLICATION_S)
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

    def _transfer(self, head: Head, url: Url, answer: Answer, window: Window) -> Transfer:
        """A response as a file to put together from parts, which are asked for as the application asked for all."""
        headers = [(b"Host", head.origin.authority.encode()), (b"Via", b"1.1 " + self._proxy.via)]
        headers += [(name, value) for name, value in head.headers if name not in _CONDITIONS]
        return Transfer(url.short, answer.length or 0, [Source(url, answer.validator, headers)], window)

    def _split(self, transfer: Transfer, rule: Rule, connection: Connection, window: Window, record: Record) -> None:
        """The body of a response in parts over all interfaces, in order to the application."""
        engine, length = self._proxy.engine, transfer.length
        stream = (connection, connection.interface, min(length, _STREAM_BYTES))
        numbers = [each.number for each in self._proxy.accepted(rule, connection.origin)]
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
        self._connection.settimeout(_APPLICATION_S)
        while sent < length:
            with engine.changed:
                while (end := engine.scheduler.done(transfer.number).covered_to(sent)) == sent:
                    if transfer.error is not None:
                        record.why = str(transfer.error)
                        raise ConnectionAbortedError(record.why)
                    engine.changed.wait(0.02)
            data = window.slice(min(end, sent + _SEND_BYTES))
            count = self._connection.send(data)
            sent = window.advance(count)
            record.bytes = sent
            with engine.changed:
                engine.scheduler.delivered(transfer.number, sent, time.monotonic())
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
