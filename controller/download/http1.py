"""HTTP/1.1 towards servers: heads are written and read by h11, bodies of known length by plain reads into a buffer."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import SplitResult, urljoin, urlsplit

import h11

from .interfaces import InputError, Interface

if TYPE_CHECKING:
    import ssl

Headers = Sequence[tuple[bytes, bytes]]
PORTS = {"http": 80, "https": 443}
# No file system has larger files.
MOST_LENGTH = 1 << 62
MOST_HEAD_BYTES = 64 * 1024
# Waits are cut into these, so that whoever waits sees soon that its piece is not wanted any more.
TICK_S = 0.1
_CONTENT_RANGE = re.compile(rb"bytes (?:([0-9]{1,18})-([0-9]{1,18})|\*)/([0-9]{1,18}|\*)")
_STRONG_ETAG = re.compile(rb'"[\x21\x23-\x7e\x80-\xff]*"')
# A date tells versions apart only if the answer is younger by more than a server's clock may jump.
_STRONG_DATE_S = 60


class ProtocolError(OSError):
    """A server's answer breaks HTTP, or ended in its midst."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where requests go."""

    scheme: str
    host: str
    port: int

    @property
    def authority(self) -> str:
        """``host`` or ``host:port``, as in a Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Url:
    """An address of a resource: its server, and the path with the query."""

    origin: Origin
    target: str

    def __str__(self) -> str:
        return f"{self.origin.scheme}://{self.origin.authority}{self.target}"

    @property
    def short(self) -> str:
        """For messages and logs: without the query, which may hold a secret."""
        return str(self).split("?")[0][:200]

    def joined(self, location: str) -> Url:
        """Where a redirect of this resource leads; never from https to http. Raises :class:`InputError`."""
        try:
            joined = urljoin(str(self), location)
        except ValueError as error:
            raise InputError(f"{self.short}: redirected to {location[:120]!a}: {error}") from error
        url = parse_url(joined)
        if self.origin.scheme == "https" and url.origin.scheme != "https":
            raise InputError(f"{self.short}: redirected from https to {url.short}, which is not encrypted")
        return url


def parse_url(text: str) -> Url:
    """A URL of http or https; raises :class:`InputError` for all else."""
    shown = ascii(text[:120])
    if not text.isascii() or not text.isprintable() or " " in text or len(text) > 8000:
        raise InputError(f"URL {shown}: expected printable ASCII without blanks (percent-encode the others)")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise InputError(f"URL {shown}: {error}") from error
    if parts.scheme not in PORTS or not parts.hostname:
        raise InputError(f"URL {shown}: expected http://HOST/... or https://HOST/...")
    if port == 0 or not re.fullmatch(r"[A-Za-z0-9._~:-]+", parts.hostname):
        raise InputError(f"URL {shown}: expected a host like example.org, and a port from 1 to 65535 if any")
    if "@" in parts.netloc:
        raise InputError(f"URL of {parts.hostname}: no user and password in a URL (use --header 'Authorization: ...')")
    origin = Origin(parts.scheme, parts.hostname, port or PORTS[parts.scheme])
    return Url(origin, _target(parts))


def _target(parts: SplitResult) -> str:
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


@dataclass(frozen=True, slots=True)
class Answer:
    """The head of a response. ``length`` is that of its body, None if only its end will tell."""

    status: int
    reason: bytes
    headers: Headers
    length: int | None
    chunked: bool = False

    def header(self, name: bytes) -> bytes | None:
        """The value of a header that comes once; the first one of several."""
        return next((value for key, value in self.headers if key == name), None)

    def text(self, name: bytes) -> str | None:
        """The same, as text."""
        value = self.header(name)
        return None if value is None else value.decode("latin-1")

    @property
    def validator(self) -> bytes | None:
        """What tells this version of the file from all others: a strong ETag, or else a date of last modification that
        is older than the answer by a minute (RFC 9110, section 8.8.2.2); None if there is neither.
        """
        etag = self.header(b"etag")
        if etag is not None:
            return etag if _STRONG_ETAG.fullmatch(etag) else None
        modified, date = self.text(b"last-modified"), self.text(b"date")
        if modified is None or date is None:
            return None
        # Late, and so is ssl: what most downloads need not is not imported for them.
        from email.utils import parsedate_to_datetime

        try:
            age = parsedate_to_datetime(date) - parsedate_to_datetime(modified)
        except (ValueError, TypeError):
            return None
        return modified.encode("latin-1") if age.total_seconds() >= _STRONG_DATE_S else None

    @property
    def content_range(self) -> tuple[int, int, int] | None:
        """First byte, last byte + 1 and length of the whole; None if that is missing or not to be understood."""
        match = _CONTENT_RANGE.fullmatch(self.header(b"content-range") or b"")
        if match is None or match[1] is None or match[3] == b"*":
            return None
        begin, end, length = int(match[1]), int(match[2]) + 1, int(match[3])
        return (begin, end, length) if begin < end <= length else None


@dataclass(eq=False)
class Connection:
    """A connection to a server over one interface; one request at a time.

    ``tick`` is called every 0.1 s of a wait, and ends the wait by what it raises.
    """

    origin: Origin
    interface: Interface
    raw: socket.socket
    sock: socket.socket
    tick: Callable[[], None] = field(default=lambda: None)
    reusable: bool = False
    """Whether another request may follow: the last body was read to its end, and nothing came after it."""
    _may_stay: bool = False
    _left: int | None = 0
    _early: memoryview = field(default_factory=lambda: memoryview(b""))
    _chunks: h11.Connection | None = None

    @staticmethod
    def open(origin: Origin, interface: Interface, tls: TlsClient, timeout_s: float, **how: object) -> Connection:
        """Connect, with TLS for https. Raises OSError (of which ssl.SSLError is one)."""
        raw = interface.connect(origin.host, origin.port, timeout_s, **how)  # type: ignore[arg-type]
        if origin.scheme == "http":
            raw.settimeout(TICK_S)
            return Connection(origin, interface, raw, raw)
        try:
            sock = tls.context.wrap_socket(raw, server_hostname=origin.host, suppress_ragged_eofs=False)
        except BaseException:
            interface.release(raw)
            raise
        interface.sockets.discard(raw)
        interface.sockets.add(sock)
        sock.settimeout(TICK_S)
        return Connection(origin, interface, sock, sock)

    def close(self) -> None:
        """End the connection."""
        self.reusable = False
        self.interface.release(self.sock)

    def send(self, data: bytes | memoryview) -> None:
        """Send all of it."""
        view = memoryview(data)
        while view:
            try:
                view = view[self.sock.send(view) :]
            except TimeoutError:
                self.tick()

    def ask(self, method: str, target: str, headers: Headers, body: Callable[[], None] | None = None) -> Answer:
        """Send a request (``body`` sends what follows its head) and read the head of the response.

        Raises OSError, of which :class:`ProtocolError` is one.
        """
        self.reusable = False
        machine = h11.Connection(h11.CLIENT, max_incomplete_event_size=MOST_HEAD_BYTES)
        try:
            head = machine.send(h11.Request(method=method, target=target, headers=[*headers]))
        except h11.LocalProtocolError as error:
            raise InputError(f"request to {self.origin.authority}: {error}") from error
        self.send(head or b"")
        if body is not None:
            body()
        else:
            machine.send(h11.EndOfMessage())
        return self._read_head(machine, method)

    def _read_head(self, machine: h11.Connection, method: str) -> Answer:
        try:
            while True:
                event = machine.next_event()
                if event is h11.NEED_DATA:
                    machine.receive_data(self._receive(16 * 1024))
                elif isinstance(event, h11.Response):
                    return self._framed(machine, event, method)
                elif not isinstance(event, h11.InformationalResponse) or event.status_code == 101:
                    self._broken("no response")
        except h11.RemoteProtocolError as error:
            self._broken(str(error))

    def _receive(self, count: int) -> bytes:
        while True:
            try:
                return self.sock.recv(count)
            except TimeoutError:
                self.tick()

    def _framed(self, machine: h11.Connection, event: h11.Response, method: str) -> Answer:
        headers = [(bytes(name), bytes(value)) for name, value in event.headers]
        lengths = [value for name, value in headers if name == b"content-length"]
        chunked = any(name == b"transfer-encoding" for name, _ in headers)
        if lengths and chunked:
            self._broken("both Content-Length and Transfer-Encoding")
        length = int(lengths[0]) if lengths else None
        if length is not None and length > MOST_LENGTH:
            self._broken(f"a body of {length} bytes")
        if method == "HEAD" or event.status_code in {204, 304}:
            left: int | None = 0
            chunked = False
        else:
            left = length
        closes = any(n == b"connection" and b"close" in v.lower() for n, v in headers) or event.http_version == b"1.0"
        self._may_stay = not closes and (left is not None or chunked)
        self._left, self._chunks = left, machine if chunked else None
        self._early = memoryview(b"" if chunked else machine.trailing_data[0])
        self.reusable = self._may_stay and left == 0 and not self._early
        return Answer(event.status_code, bytes(event.reason), headers, length if not chunked else None, chunked)

    @property
    def left(self) -> int | None:
        """How much of the body is still to come; None if only its end will tell."""
        return self._left

    @property
    def unread(self) -> memoryview:
        """What of the body came together with the head; it is taken away by this."""
        early = self._early if self._left is None else self._early[: self._left]
        self._early = self._early[len(early) :]
        self._count(len(early))
        return early

    def _count(self, count: int) -> None:
        if self._left is not None:
            self._left -= count
            self.reusable = self._may_stay and self._left == 0 and not self._early

    def taken(self, count: int) -> None:
        """``count`` bytes of the body were read from the socket by others."""
        self._count(count)

    def read_into(self, view: memoryview) -> int:
        """Read some of the body: how many bytes; 0 at its end. Raises ProtocolError if it ends before its length."""
        if self._left == 0:
            return 0
        if self._early:
            count = min(len(view), len(self._early), self._left if self._left is not None else len(view))
            view[:count] = self._early[:count]
            self._early = self._early[count:]
        else:
            count = self._receive_into(view if self._left is None else view[: self._left])
        if count == 0 and self._left is not None:
            self._broken(f"the connection ended {self._left} bytes before the end of the body")
        self._count(count)
        return count

    def _receive_into(self, view: memoryview) -> int:
        while True:
            try:
                return self.sock.recv_into(view)
            except TimeoutError:
                self.tick()

    def read_chunk(self) -> bytes:
        """The next bytes of a chunked body; none at its end."""
        machine = self._chunks
        if machine is None:
            return b""
        try:
            while True:
                event = machine.next_event()
                if event is h11.NEED_DATA:
                    machine.receive_data(self._receive(64 * 1024))
                elif isinstance(event, h11.Data):
                    if event.data:
                        return bytes(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    self.reusable = self._may_stay and not machine.trailing_data[0]
                    return b""
                else:
                    self._broken("a chunked body that is not one")
        except h11.RemoteProtocolError as error:
            self._broken(str(error))

    def _broken(self, what: str) -> NoReturn:
        self.reusable = False
        raise ProtocolError(f"{self.origin.authority}: {what[:200]}")


class TlsClient:
    """How servers are checked: by the system's authorities. Made when the first https connection needs it."""

    def __init__(self) -> None:
        self._context: ssl.SSLContext | None = None

    @property
    def context(self) -> ssl.SSLContext:
        """Certificates and names of hosts are verified."""
        if self._context is None:
            import ssl

            context = ssl.create_default_context()
            context.set_alpn_protocols(["http/1.1"])
            self._context = context
        return self._context
