"""Accepts the switches' connections, plain or over TLS, in place of the framework's server.

The framework's shares its port with whoever else listens there, has its certificate only for the first connection,
takes any number of connections, and ends for ever when ``accept`` fails once.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any

from hyroads.controller import ryu_shim as shim

HANDSHAKE_WITHIN_S = 5.0
SPARE_CONNECTIONS = 32
_CHUNK = 65536

Handle = Callable[[Any, Any], None]
"""Serves one connection (socket, address) until it ends."""


class SwitchServer:
    """``nodes`` bounds the connections; ``tell`` hears (peer, what) of every one that ends badly."""

    def __init__(self, listener: Any, context: Any, nodes: int, tell: Callable[[str, str], None]) -> None:
        self._listener = listener
        self._context = context
        self._most = 2 * nodes + SPARE_CONNECTIONS
        self._tell = tell
        self._connections = 0

    def serve(self, handle: Handle) -> None:
        """Accept for ever, in the calling green thread."""
        while True:
            connection, address = shim.accept(self._listener)
            if self._connections >= self._most:
                self._tell(_name(address), "too many connections")
                connection.close()
                continue
            self._connections += 1
            shim.spawn(self._serve_one, connection, address, handle)

    def _serve_one(self, connection: Any, address: Any, handle: Handle) -> None:
        try:
            if self._context is not None:
                connection = TlsSocket(connection, self._context)
                connection.handshake(HANDSHAKE_WITHIN_S)
            handle(connection, address)
        except Exception as error:  # noqa: BLE001 - the framework passes on whatever its parsers raise
            self._tell(_name(address), f"connection ended: {type(error).__name__}: {error}")
        finally:
            self._connections -= 1
            shim.shut(connection)
            connection.close()


def _name(address: Any) -> str:
    return f"{address[0]}:{address[1]}"


class TlsSocket:
    """The server's end of TLS over a green socket; has of a socket what the framework uses.

    The protocol runs in memory, so that any green thread may read while another writes. Every failure of TLS is a
    ConnectionError: the framework takes an SSLError for a timeout and would read again for ever.
    """

    def __init__(self, connection: Any, context: Any) -> None:
        self._socket = connection
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._sending = shim.new_lock()

    def handshake(self, within_s: float) -> None:
        """ConnectionError if the peer does not agree, or not in time."""
        with shim.Timer(within_s) as timer:
            self._run(self._tls.do_handshake)
        if timer.fired:
            raise ConnectionError("no TLS handshake in time")

    def recv(self, size: int) -> bytes:
        """Up to ``size`` bytes; none at the end of the stream."""
        data: bytes = self._run(lambda: self._tls.read(size)) or b""
        return data

    def sendall(self, data: bytes) -> None:
        """Send everything."""
        self._run(lambda: self._tls.write(data))

    def _run(self, operation: Callable[[], Any]) -> Any:
        """Repeat ``operation`` with what the peer sends until it has what it needs; None at the end of the stream."""
        while True:
            try:
                result = operation()
            except ssl.SSLWantReadError:
                self._flush()
                data = self._socket.recv(_CHUNK)
                if not data:
                    return None
                self._in.write(data)
            except ssl.SSLZeroReturnError:
                return None
            except ssl.SSLError as error:
                self._flush()
                raise ConnectionError(f"TLS: {error.reason or error}") from error
            else:
                self._flush()
                return result

    def _flush(self) -> None:
        """One at a time, so that records leave in order."""
        with self._sending:
            while self._out.pending:
                self._socket.sendall(self._out.read())

    def __getattr__(self, name: str) -> Any:
        """Options, addresses, shutdown: the socket's own."""
        return getattr(self._socket, name)
