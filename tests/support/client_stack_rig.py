"""What tests of the client stack need beside ``hyroads.mininet.client_stack``: own stacks, observers, servers."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from hyroads.mininet.client_stack import ClientStack, Uplink
from hyroads.mininet.isolation import socket_in
from hyroads.mininet.run_directory import NETNS_ROOT
from hyroads.mininet.stack_traffic import socket_of

_numbers = itertools.count()
_ETH_P_IP = 0x0800
_TCP_RST = 0x04


def new_stack(folder: Path, uplinks: Sequence[Uplink], *, waypoint: bool = True) -> ClientStack:
    """A client stack under a name that nothing else has."""
    folder.mkdir(parents=True, exist_ok=True)
    return ClientStack(f"cst-{os.getpid()}-{next(_numbers)}", folder, uplinks, waypoint=waypoint)


@contextlib.contextmanager
def resets_seen(stack: ClientStack, number: int) -> Iterator[list[bytes]]:
    """Collects the TCP resets that come from the client over an interface while it is entered."""
    found: list[bytes] = []
    ended = threading.Event()
    tap = socket_in(NETNS_ROOT / stack.namespace("router"), socket.AF_PACKET, socket.SOCK_DGRAM)
    tap.bind((f"r{number}", _ETH_P_IP))
    tap.settimeout(0.05)

    def look() -> None:
        while not ended.is_set():
            with contextlib.suppress(TimeoutError):
                packet = tap.recv(1 << 16)
                header = 4 * (packet[0] & 15)
                if packet[9] == socket.IPPROTO_TCP and packet[header + 13] & _TCP_RST:
                    found.append(packet)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()
        tap.close()


class NameServers:
    """Answers to any datagram at port 53 of addresses on the router's loopback: which of them was asked."""

    def __init__(self, stack: ClientStack, addresses: Sequence[str]) -> None:
        self.asked: list[str] = []
        self._ended = threading.Event()
        self._threads = []
        for address in addresses:
            stack.ip("router", "addr", "add", f"{address}/32", "dev", "lo")
            server = socket_of(stack, "router", 4, socket.SOCK_DGRAM)
            server.bind((address, 53))
            server.settimeout(0.05)
            self._threads.append(threading.Thread(target=self._serve, args=(server, address), daemon=True))

    def __enter__(self) -> NameServers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _serve(self, server: socket.socket, address: str) -> None:
        with server:
            while not self._ended.is_set():
                with contextlib.suppress(TimeoutError):
                    question, sender = server.recvfrom(512)
                    self.asked.append(address)
                    server.sendto(question[:12] + socket.inet_aton(address), sender)


def ask(stack: ClientStack, address: str, timeout_s: float = 1.0) -> tuple[str, str] | None:
    """Which address answers a question to a name server, and which one it says it is; None without an answer."""
    with socket_of(stack, "client", 4, socket.SOCK_DGRAM) as client:
        client.settimeout(timeout_s)
        client.sendto(struct.pack("!6H", 1, 0x100, 1, 0, 0, 0), (address, 53))
        try:
            answer, sender = client.recvfrom(512)
        except TimeoutError:
            return None
        return sender[0], socket.inet_ntoa(answer[12:16])
