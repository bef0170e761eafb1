"""Bytes from one socket to another without a copy in this program: splice(2) through a pipe."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
from collections.abc import Callable

_PIPE_BYTES = 256 * 1024
_MOVE = 1  # SPLICE_F_MOVE


class Pipe:
    """A pipe to splice through; closed at the end of a ``with`` block."""

    def __enter__(self) -> Pipe:
        self.out, self.into = os.pipe2(os.O_CLOEXEC)
        # More than the system lets us have: the usual 64 KiB do as well.
        with contextlib.suppress(OSError):
            fcntl.fcntl(self.into, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self.out)
        os.close(self.into)

    def carry(
        self, source: socket.socket, target: socket.socket, count: int | None, used: Callable[[int], None]
    ) -> int:
        """Carry ``count`` bytes (None: all until the end) from one socket to the other; how many there were.

        ``used`` is told of each piece. Both sockets must be blocking. Raises OSError, of which TimeoutError for a
        socket that :func:`bound_waits` was called for.
        """
        carried = 0
        while count is None or carried < count:
            most = _PIPE_BYTES if count is None else min(_PIPE_BYTES, count - carried)
            try:
                there = os.splice(source.fileno(), self.into, most, flags=_MOVE)
                if there == 0:
                    break
                left = there
                while left:
                    left -= os.splice(self.out, target.fileno(), left, flags=_MOVE)
            except BlockingIOError as error:
                raise TimeoutError("the other end is silent") from error
            carried += there
            used(there)
        return carried


def bound_waits(connection: socket.socket, timeout_s: float) -> None:
    """Make a socket blocking, with an error after a wait of ``timeout_s`` (0: none ever)."""
    connection.setblocking(True)
    whole = int(timeout_s)
    wait = struct.pack("ll", whole, int((timeout_s - whole) * 1e6))
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        connection.setsockopt(socket.SOL_SOCKET, option, wait)


def end_of_stream(source: socket.socket, target: socket.socket) -> None:
    """One side has sent all that it will: say so to the other, which may still answer."""
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
    with contextlib.suppress(OSError):
        source.shutdown(socket.SHUT_RD)


def abort(*sockets: socket.socket) -> None:
    """End connections at once, so that both ends see an error and not an early end."""
    for each in sockets:
        with contextlib.suppress(OSError):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
