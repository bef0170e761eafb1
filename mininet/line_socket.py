"""Lines over a Unix stream socket with a time limit: what clients of the medium and of the agents have in common."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from hyroads.controller.core.errors import HyroadsError


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


class LineClient:
    """What the clients of the medium and of the agents have in common; usable as a context manager."""

    what: ClassVar[str]
    failure: ClassVar[type[HyroadsError]]
    """Every problem is one of these, and names what it is about and where."""
    max_line_bytes: ClassVar[int]

    def __init__(self, path: str | Path, timeout_s: float = 5.0) -> None:
        self.path = str(path)
        self._timeout_s = timeout_s
        try:
            self._lines = LineSocket(self.path, timeout_s, self.max_line_bytes)
        except OSError as error:
            raise self._problem(error) from error
        try:
            self._greet()
        except HyroadsError:
            self.close()
            raise

    def _greet(self) -> None:
        """The first thing on a connection."""

    def _answers(self) -> None:
        """Returns once the other end has answered."""

    @classmethod
    def wait_for(cls, path: str | Path, wait_s: float = 10.0, timeout_s: float = 5.0) -> Self:
        """Connect to a program that is just starting; raises if it does not answer within ``wait_s``."""
        deadline_s = time.monotonic() + wait_s
        while True:
            client: Self | None = None
            try:
                client = cls(path, timeout_s)
                client._answers()
                return client
            except cls.failure:
                if client is not None:
                    client.close()
                if time.monotonic() >= deadline_s:
                    raise
                time.sleep(0.02)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection; the program goes on."""
        self._lines.close()

    def _problem(self, problem: Exception | str) -> HyroadsError:
        words = reason(problem, self._timeout_s) if isinstance(problem, OSError) else str(problem)
        return self.failure(f"{self.what} at {self.path}: {words}")
