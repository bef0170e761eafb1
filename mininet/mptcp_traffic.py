"""TCP and MPTCP (RFC 8684) of the kernel between two hosts of an emulated network."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Self

from .emulation import Emulation
from .programs import EmulationError, run, wait_until
from .stack_traffic import MPTCP, Transfer

SYSCTL = Path("/proc/sys/net/mptcp/enabled")
PORT, SECOND_PORT = 5301, 5302
"""Of the target: that of the first subflow, and that of the second."""
_ENDPOINT_ID = "2"
# MPTCP_INFO (linux/mptcp.h): its first byte is the number of further subflows.
_SOL_MPTCP, _MPTCP_INFO, _INFO_BYTES = 284, 1, 48
_JOIN_WITHIN_S = 5.0


@dataclass(frozen=True)
class Hosts:
    """Two hosts of an emulation, by the names that traffic gives them: ``client`` and ``server``."""

    emulation: Emulation
    client: str
    server: str

    def namespace(self, role: str) -> str:
        """Path of a host's network namespace."""
        return f"/proc/{self.emulation.node(self.client if role == 'client' else self.server).pid}/ns/net"

    def address(self, role: str, version: int) -> str:
        """The server's address; there are no others."""
        assert (role, version) == ("server", 4)  # noqa: S101 - there are no others
        return self.emulation.addressing.host_ip[self.server]

    def announce(self, port: int) -> None:
        """The server announces a second port; the kernel's own path manager of the client joins there."""
        for node in (self.client, self.server):
            self._mptcp(node, "limits", "set", "subflows", "2", "add_addr_accepted", "2")
        endpoint = ("endpoint", "add", self.address("server", 4), "port", str(port), "id", _ENDPOINT_ID, "signal")
        self._mptcp(self.server, *endpoint)

    def withdraw(self) -> None:
        """It no longer does."""
        self._mptcp(self.server, "endpoint", "delete", "id", _ENDPOINT_ID)

    def _mptcp(self, node: str, *arguments: str) -> None:
        run(*self.emulation.inside(node), "ip", "mptcp", *arguments)


class MptcpUpload(Transfer):
    """Bytes from ``source`` to ``target`` while the context lasts; :class:`EmulationError` without MPTCP.

    The connection has a subflow more than its first one. Both have the same addresses, as those of a client behind one
    agent do, and different ports.
    """

    def __init__(self, emulation: Emulation, source: str, target: str) -> None:
        if not SYSCTL.exists():
            raise EmulationError("this kernel has no MPTCP")
        self._hosts = Hosts(emulation, source, target)
        self._hosts.announce(SECOND_PORT)
        super().__init__(self._hosts, port=PORT, protocol=MPTCP)

    def __enter__(self) -> Self:
        try:
            wait_until("the second subflow", lambda: _further_subflows(self._sender) > 0, _JOIN_WITHIN_S)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._hosts.withdraw()

    def longest_gap_s(self, from_s: float, to_s: float) -> float:
        """The longest time between two moments in which nothing arrived; what lasts longer ends there."""
        inside = (at_s for at_s, _ in list(self.arrivals) if from_s <= at_s < to_s)
        return max(after_s - before_s for before_s, after_s in pairwise((from_s, *inside, to_s)))


def _further_subflows(near: socket.socket) -> int:
    return int(struct.unpack_from("=B", near.getsockopt(_SOL_MPTCP, _MPTCP_INFO, _INFO_BYTES))[0])
