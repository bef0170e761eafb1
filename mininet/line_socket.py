"""Lines over a Unix stream socket with a time limit: what clients of the medium and of the agents have in common."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Self


class LineSocket:
    """A connection; usable as a context manager. Problems are OSError: one kind for the caller to put into words."""

    def __init__(self, path: str, timeout_s: float, max_line_bytes: int) -> None:
        self.timeout_s = timeout_s
        self._max_line_bytes = max_line_bytes
        self._received = b""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_s)
        try:
            self._socket.connect(path)
        except OSError:
            self._socket.close()
            raise

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()

    def write(self, line: bytes) -> None:
        """Sends a line, which has no line end yet."""
        self._socket.sendall(line + b"\n")

    def read(self) -> bytes:
        """The next line without its end."""
        while b"\n" not in self._received:
            chunk = self._socket.recv(1 << 16)
            if not chunk:
                raise ConnectionResetError(0, "the other end closed the connection")
            self._received += chunk
            if len(self._received) > self._max_line_bytes:
                raise ConnectionResetError(0, f"line longer than {self._max_line_bytes} bytes")
        line, _, self._received = self._received.partition(b"\n")
        return line

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def reason(error: OSError, timeout_s: float) -> str:
    """An error of a connection in words."""
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout_s:g} s"
    return error.strerror or str(error)
