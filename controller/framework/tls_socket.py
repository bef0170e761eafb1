"""TLS for sockets of green threads: the server's end."""

from __future__ import annotations

import contextlib
import io
import ssl
from collections.abc import Callable
from typing import Any

from . import ryu_shim as shim

_CHUNK = 65536


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
        if self._tls.version() is None:
            raise ConnectionError("the other end ends the connection in the TLS handshake")

    @property
    def certificate(self) -> bytes | None:
        """What the peer has shown, DER; None if it has shown none."""
        shown: bytes | None = self._tls.getpeercert(binary_form=True)
        return shown

    def recv(self, size: int) -> bytes:
        """What is there, at least something, and more than ``size`` bytes if so much has come; none at the end."""
        data: bytes = self._run(lambda: self._tls.read(size)) or b""
        # What stayed here would be read only once something else comes.
        return data + self._rest() if data else b""

    def receive_now(self, size: int) -> bytes:
        """The same without waiting: BlockingIOError if nothing that can be read has come."""
        received = self._socket.fd.recv(size)
        if not received:
            return b""
        self._in.write(received)
        data = self._rest()
        if self._out.pending:
            shim.spawn(self._flush)
        if not data and not self._is_ended():
            raise BlockingIOError
        return data

    def _rest(self) -> bytes:
        """Everything that can be read at once."""
        parts: list[bytes] = []
        try:
            while part := self._tls.read(_CHUNK):
                parts.append(part)
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        except ssl.SSLError as error:
            if not parts:
                raise ConnectionError(f"TLS: {error.reason or error}") from error
        return b"".join(parts)

    def _is_ended(self) -> bool:
        try:
            self._tls.read(1)
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError:
            return True
        return True

    def sendall(self, data: bytes) -> None:
        """Send everything."""
        self._run(lambda: self._tls.write(data))

    def close(self) -> None:
        """Say that this is the end, so that the peer knows it from a cut, and close the socket."""
        with contextlib.suppress(OSError):
            # It waits for the peer's own end, which nobody waits for.
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()
            self._flush()
        self._socket.close()

    def makefile(self, mode: str, buffering: int = -1) -> io.BufferedReader | io.BufferedWriter:
        """A file for ``rb`` or ``wb``, as the WSGI server wants it."""
        size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
        file = _File(self)
        return io.BufferedReader(file, size) if mode == "rb" else io.BufferedWriter(file, size)

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


class _File(io.RawIOBase):
    """Reads from, and writes to, a socket; closing it leaves the socket open."""

    def __init__(self, connection: TlsSocket) -> None:
        super().__init__()
        self._connection = connection
        self._unread = b""

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def readinto(self, place: Any) -> int:
        """What is there, up to the size of ``place``; 0 at the end."""
        data = self._unread or self._connection.recv(len(place))
        taken = min(len(data), len(place))
        place[:taken] = data[:taken]
        self._unread = data[taken:]
        return taken

    def write(self, data: Any) -> int:
        """All of it."""
        text = bytes(data)
        self._connection.sendall(text)
        return len(text)
