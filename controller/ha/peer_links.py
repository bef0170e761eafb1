"""Connections between controllers, of one network or of two regions: plain or over TLS, with a document of JSON a line.

Threads of the system use them, one thread a connection. Who says what is the matter of ``peers`` and of
``app.region_links``.
"""

from __future__ import annotations

import hmac
import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hyroads.controller.core.identity import CertificateFacts
from hyroads.controller.files.tls import CertificateCheck, certificate_facts
from hyroads.controller.framework import ryu_shim as shim

MAX_LINE = 64 * 1024
_socket, _select, _time = shim.original("socket"), shim.original("select"), shim.original("time")


class PeerError(OSError):
    """The other end said what the protocol does not allow."""


def listen(host: str, port: int) -> Any:
    """A listening socket for threads of the system; OSError."""
    family = _socket.AF_INET6 if ":" in host else _socket.AF_INET
    return _socket.create_server((host, port), family=family, backlog=1024)


@dataclass(frozen=True)
class Security:
    """How the ends of a connection know each other: by certificates, or by a token on one machine."""

    server: ssl.SSLContext | None = None
    client: ssl.SSLContext | None = None
    token: str | None = None
    check: CertificateCheck | None = None
    """Which certificates are taken; None: without TLS."""

    def checked(self, link: PeerLink) -> CertificateFacts | None:
        """The certificate of the other end; None without TLS. PeerError if it is not taken here."""
        if link.certificate is None:
            return None
        facts = certificate_facts(link.certificate)
        self.check_again(facts)
        return facts

    def check_again(self, facts: CertificateFacts | None) -> None:
        """PeerError if a certificate is not taken, or not any more."""
        if facts is not None and self.check is not None and (problem := self.check.fault(facts)):
            raise PeerError(problem)

    def check_token(self, hello: Mapping[str, Any]) -> None:
        """Whoever dialled knows the token, if there is one; PeerError."""
        # Text of JSON may have halves of surrogate pairs.
        given = str(hello.get("token")).encode("utf-8", "surrogatepass")
        if self.token is not None and not hmac.compare_digest(self.token.encode(), given):
            # A slow answer makes guessing slow.
            _time.sleep(0.5)
            raise PeerError("wrong token")


class PeerLink:
    """One connection, plain or over TLS; used by one thread."""

    def __init__(
        self, connection: Any, context: ssl.SSLContext | None, host: str | None = None, *, within_s: float | None = None
    ) -> None:
        """``host`` is what was dialled; None: the other end dialled. All that is received until :meth:`met` has to come
        ``within_s``, however little comes at a time.
        """
        self._socket = connection
        self._until_s = None if within_s is None else _time.monotonic() + within_s
        self._tls: ssl.SSLObject | None = None
        connection.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        if context is not None:
            self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
            server = host is None
            self._tls = context.wrap_bio(self._in, self._out, server_side=server, server_hostname=host)
            self._run(self._tls.do_handshake)
            if self._tls.version() is None:
                raise ConnectionResetError("the other end ends the connection in the handshake")

    @property
    def certificate(self) -> bytes | None:
        """What the other end has shown, as DER; None without TLS."""
        return None if self._tls is None else self._tls.getpeercert(binary_form=True) or b""

    def send(self, data: bytes) -> None:
        """Send everything; OSError."""
        if self._tls is None:
            self._socket.sendall(data)
        else:
            tls = self._tls
            self._run(lambda: tls.write(data))

    def receive(self) -> bytes:
        """Something; nothing at the end. OSError."""
        if self._tls is None:
            return self._received()
        tls = self._tls
        return bytes(self._run(lambda: tls.read(MAX_LINE)) or b"")

    def available(self, within_s: float) -> bytes:
        """What has come, once something has, or after a time; may be nothing. EOFError at the end, OSError."""
        found = self._decrypted()
        if found or not self.is_readable(within_s):
            return found
        data = bytes(self._socket.recv(MAX_LINE))
        if not data:
            raise EOFError
        if self._tls is None:
            return data
        self._in.write(data)
        return self._decrypted()

    def _decrypted(self) -> bytes:
        """All of TLS that has come and was not read. What TLS says itself is none of it."""
        found = b""
        if self._tls is None:
            return found
        try:
            while data := self._tls.read(MAX_LINE):
                found += data
        except ssl.SSLWantReadError:
            self._flush()
            return found
        except ssl.SSLZeroReturnError:
            pass
        if not found:
            raise EOFError
        return found

    def met(self, within_s: float) -> None:
        """The other end has said who it is: from now on anything has to come, or to be sent, within a time."""
        self._until_s = None
        self._socket.settimeout(within_s)

    def _received(self) -> bytes:
        if self._until_s is not None:
            left_s = self._until_s - _time.monotonic()
            if left_s <= 0:
                raise PeerError("expected a hello sooner")
            self._socket.settimeout(left_s)
        return bytes(self._socket.recv(MAX_LINE))

    def check_end(self) -> None:
        """Something came where nobody has anything to say: EOFError if it is the end. TLS speaks for itself."""
        data = self._socket.recv(MAX_LINE)
        if not data:
            raise EOFError
        if self._tls is None:
            raise PeerError("expected nothing")
        self._in.write(data)
        try:
            said = self._tls.read(MAX_LINE)
        except ssl.SSLWantReadError:
            return
        except ssl.SSLZeroReturnError as error:
            raise EOFError from error
        raise PeerError("expected nothing") if said else EOFError

    def _run(self, operation: Callable[[], Any]) -> Any:
        while True:
            try:
                result = operation()
            except ssl.SSLWantReadError:
                self._flush()
                data = self._received()
                if not data:
                    return None
                self._in.write(data)
            except ssl.SSLZeroReturnError:
                return None
            else:
                self._flush()
                return result

    def _flush(self) -> None:
        if self._out.pending:
            self._socket.sendall(self._out.read())

    def is_readable(self, within_s: float, bell: Any = None) -> bool:
        """Whether something comes, or the end, within a time; a bell that rings ends the wait."""
        ready = _select.select([self._socket] if bell is None else [self._socket, bell], [], [], within_s)[0]
        if bell is not None and bell in ready:
            bell.recv(4096)
        return self._socket in ready

    def close(self) -> None:
        """End it."""
        self._socket.close()


class PeerLines:
    """Documents from a connection, one a line."""

    def __init__(self, link: PeerLink, most: int = MAX_LINE) -> None:
        self._link, self._buffer, self.most = link, b"", most

    def is_ready(self, within_s: float) -> bool:
        """Whether a document has come, within a time; EOFError at the end, OSError."""
        if b"\n" not in self._buffer:
            self._add(self._link.available(within_s))
        return b"\n" in self._buffer

    def next(self) -> Mapping[str, Any]:
        """The next document; EOFError at the end, OSError."""
        while b"\n" not in self._buffer:
            data = self._link.receive()
            if not data:
                raise EOFError
            self._add(data)
        line, self._buffer = self._buffer.split(b"\n", 1)
        try:
            document = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise PeerError("expected a line of JSON") from error
        if not isinstance(document, dict):
            raise PeerError("expected a line of JSON")
        return document

    def _add(self, data: bytes) -> None:
        self._buffer += data
        # Several lines may come at once; only the first has to fit.
        if self._buffer.find(b"\n", 0, self.most + 1) < 0 and len(self._buffer) > self.most:
            raise PeerError(f"expected lines of at most {self.most} bytes")


def line_of(document: Mapping[str, Any]) -> bytes:
    """A document as a line."""
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def is_end(error: OSError) -> bool:
    """Whether the other end's process has gone, as far as its machine says."""
    return isinstance(error, ConnectionResetError | BrokenPipeError | ConnectionAbortedError)
