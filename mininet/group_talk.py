"""Numbered messages between hosts of an emulated network: to a multicast group, or through a chat server.

One thread serves a socket in the namespace of every host. Messages carry who sent them, number and moment, so every
receiver knows what it missed, what came twice, and how long it took.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from .emulation import Emulation
from .isolation import udp_socket_in

PORT = 5350
SERVER_PORT = 5351
_MESSAGE = struct.Struct("!HIQ")
_PAYLOAD_BYTES = 100


@dataclass
class Heard:
    """What one host got of one sender: how often each number, and how long it took, ms."""

    numbers: Counter[int] = field(default_factory=Counter)
    delays_ms: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Account:
    """What a host got of what a sender said between two moments."""

    said: int
    missed: int
    doubled: int


class GroupTalk:
    """Hosts that say something each ``interval_s``; a context manager. ``server`` relays, instead of the group."""

    def __init__(
        self,
        emulation: Emulation,
        hosts: Sequence[str],
        group: str,
        *,
        interval_s: float = 0.02,
        server: str | None = None,
    ) -> None:
        self.hosts = tuple(hosts)
        self.heard: dict[tuple[str, str], Heard] = {}
        self.said: dict[str, list[float]] = {host: [] for host in hosts}
        self._speakers = set(hosts)
        self._emulation = emulation
        self._group = group
        self._interval_s = interval_s
        self._sockets = {host: self._open(host, PORT, group) for host in hosts}
        self._relay = self._open(server, SERVER_PORT, None) if server is not None else None
        self._server_ip = emulation.addressing.host_ip[server] if server is not None else None
        self._running = True
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> GroupTalk:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._running = False
        self._thread.join()
        for each in [*self._sockets.values(), *([self._relay] if self._relay is not None else [])]:
            each.close()

    def speak(self, hosts: Sequence[str]) -> None:
        """Only these hosts say something from now on."""
        self._speakers = set(hosts)

    def account(self, receiver: str, sender: str, from_s: float, to_s: float) -> Account:
        """What a receiver got of what was said between two times (``time.monotonic``)."""
        numbers = [number for number, at_s in enumerate(self.said[sender]) if from_s <= at_s < to_s]
        heard = self.heard.get((receiver, sender), Heard()).numbers
        return Account(len(numbers), sum(heard[n] == 0 for n in numbers), sum(max(0, heard[n] - 1) for n in numbers))

    def delays_ms(self, receivers: Sequence[str] | None = None) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """How long all messages took."""
        wanted = set(receivers or self.hosts)
        return np.concatenate(
            [np.zeros(0), *(np.array(heard.delays_ms) for (to, _), heard in self.heard.items() if to in wanted)]
        )

    def forget(self) -> None:
        """Delays of before do not count any more."""
        for heard in self.heard.values():
            heard.delays_ms.clear()

    # -- inside

    def _open(self, host: str, port: int, group: str | None) -> socket.socket:
        """A socket in the namespace of a host."""
        found = udp_socket_in(Path(f"/proc/{self._emulation.node(host).pid}/ns/net"))
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(("", port))
        own = socket.inet_aton(self._emulation.addressing.host_ip[host])
        if group is not None:
            found.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + own)
        found.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own)
        found.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
        found.setblocking(False)
        return found

    def _run(self) -> None:
        readers = {each.fileno(): (host, each) for host, each in self._sockets.items()}
        poll = select.poll()
        for descriptor in readers:
            poll.register(descriptor, select.POLLIN)
        if self._relay is not None:
            poll.register(self._relay, select.POLLIN)
        # Hosts take turns, so that their messages do not meet.
        step_s, turn = self._interval_s / len(self.hosts), 0
        next_s = time.monotonic()
        while self._running:
            now_s = time.monotonic()
            if now_s >= next_s:
                next_s = max(next_s + step_s, now_s - self._interval_s)
                host = self.hosts[turn % len(self.hosts)]
                turn += 1
                if host in self._speakers:
                    self._say(host)
            for descriptor, _ in poll.poll(max(0.0, 1e3 * (next_s - time.monotonic()))):
                if descriptor in readers:
                    self._take(*readers[descriptor])
                elif self._relay is not None:
                    self._pass_on(self._relay)

    def _say(self, host: str) -> None:
        number = len(self.said[host])
        message = _MESSAGE.pack(self.hosts.index(host), number, time.monotonic_ns()).ljust(_PAYLOAD_BYTES, b"\0")
        to = (self._group, PORT) if self._server_ip is None else (self._server_ip, SERVER_PORT)
        with contextlib.suppress(OSError):
            self._sockets[host].sendto(message, to)
        self.said[host].append(time.monotonic())

    def _take(self, host: str, one: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                data = one.recv(2048)
                sender, number, sent_ns = _MESSAGE.unpack_from(data)
                heard = self.heard.setdefault((host, self.hosts[sender]), Heard())
                heard.numbers[number] += 1
                heard.delays_ms.append((time.monotonic_ns() - sent_ns) / 1e6)

    def _pass_on(self, relay: socket.socket) -> None:
        """The chat server: what one says goes to all others."""
        with contextlib.suppress(BlockingIOError):
            while True:
                data = relay.recv(2048)
                sender = _MESSAGE.unpack_from(data)[0]
                for number, host in enumerate(self.hosts):
                    if number != sender:
                        with contextlib.suppress(OSError):
                            relay.sendto(data, (self._emulation.addressing.host_ip[host], PORT))


def tree_counters(emulation: Emulation) -> Mapping[str, int]:
    """Frames that arrived by link since the network began."""
    with emulation.shared.client() as client:
        return {name: link.frames for name, link in client.stats().links.items()}
