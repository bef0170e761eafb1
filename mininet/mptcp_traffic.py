"""An upload over the kernel's MPTCP (RFC 8684) between two hosts of an emulated network, and when its bytes arrived.

The connection has a subflow more than its first one: the server announces a second port. Both subflows have the same
addresses, as those of a client behind one agent do. Threads of this process serve the sockets: good for some 100 Mb/s.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Self

from .emulation import Emulation
from .isolation import socket_in
from .programs import EmulationError, run, wait_until

IPPROTO_MPTCP = 262
SYSCTL = Path("/proc/sys/net/mptcp/enabled")
_PORT, _SECOND_PORT = 5301, 5302
_TIMEOUT_S = 20.0
_CHUNK_BYTES = 1 << 16
# MPTCP_INFO (linux/mptcp.h): its first byte is the number of further subflows.
_SOL_MPTCP, _MPTCP_INFO, _INFO_BYTES = 284, 1, 48
_JOIN_WITHIN_S = 5.0


class MptcpUpload:
    """Bytes from ``source`` to ``target`` while the context lasts; :class:`EmulationError` without MPTCP."""

    def __init__(self, emulation: Emulation, source: str, target: str, algorithm: str = "cubic") -> None:
        if not SYSCTL.exists():
            raise EmulationError("this kernel has no MPTCP")
        self.arrivals: list[tuple[float, int]] = []
        """Moments (CLOCK_MONOTONIC) and bytes."""
        self._emulation, self._source, self._target, self._algorithm = emulation, source, target, algorithm
        self._ended = threading.Event()
        self._opened = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opened:
            self._open(opened)
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._opened.close()

    def _open(self, opened: contextlib.ExitStack) -> None:
        address = self._emulation.addressing.host_ip[self._target]
        for node in (self._source, self._target):
            self._ip_mptcp(node, "limits", "set", "subflows", "2", "add_addr_accepted", "2")
        self._ip_mptcp(self._target, "endpoint", "add", address, "port", str(_SECOND_PORT), "id", "2", "signal")
        opened.callback(self._ip_mptcp, self._target, "endpoint", "delete", "id", "2")
        listener, near = (opened.enter_context(self._socket(node)) for node in (self._target, self._source))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("", _PORT))
        # It goes on listening: the kernel refuses further subflows to a port where nobody does.
        listener.listen()
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, self._algorithm.encode())
        near.connect((address, _PORT))
        far = opened.enter_context(listener.accept()[0])
        far.settimeout(_TIMEOUT_S)
        for work, end in ((self._send, near), (self._receive, far)):
            thread = threading.Thread(target=work, args=(end,), daemon=True)
            thread.start()
            opened.callback(thread.join, _TIMEOUT_S)
            opened.callback(_shut_down, end)
        wait_until("the second subflow", lambda: _further_subflows(near) > 0, _JOIN_WITHIN_S)

    def _ip_mptcp(self, node: str, *arguments: str) -> None:
        run(*self._emulation.inside(node), "ip", "mptcp", *arguments)

    def _socket(self, node: str) -> socket.socket:
        namespace = Path(f"/proc/{self._emulation.node(node).pid}/ns/net")
        made = socket_in(namespace, socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP)
        made.settimeout(_TIMEOUT_S)
        return made

    def _send(self, near: socket.socket) -> None:
        chunk = bytes(_CHUNK_BYTES)
        with contextlib.suppress(OSError):
            while not self._ended.is_set():
                near.send(chunk)

    def _receive(self, far: socket.socket) -> None:
        buffer = bytearray(_CHUNK_BYTES)
        with contextlib.suppress(OSError):
            while length := far.recv_into(buffer):
                self.arrivals.append((time.monotonic(), length))

    def mbps(self, from_s: float, to_s: float) -> float:
        """Mean rate of what arrived between two moments."""
        return sum(length for at_s, length in list(self.arrivals) if from_s <= at_s < to_s) * 8e-6 / (to_s - from_s)

    def longest_gap_s(self, from_s: float, to_s: float) -> float:
        """The longest time between two moments in which nothing arrived."""
        inside = (at_s for at_s, _ in list(self.arrivals) if from_s <= at_s < to_s)
        return max(after_s - before_s for before_s, after_s in pairwise((from_s, *inside, to_s)))


def _further_subflows(near: socket.socket) -> int:
    return int(struct.unpack_from("=B", near.getsockopt(_SOL_MPTCP, _MPTCP_INFO, _INFO_BYTES))[0])


def _shut_down(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
