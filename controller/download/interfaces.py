"""The interfaces of this machine that downloads may use, and connections that are bound to one of them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hyroads.controller.core.errors import HyroadsError

from .names import InterfaceNames, IPAddress, resolve

MOST_INTERFACES = 16
LOOPBACK = "lo"
# The client stack's own interface: what is sent there is spread over the others anyway.
_OURS = "hr0"
_SIOCGIFFLAGS = 0x8913
_UP_AND_RUNNING = 0x41
_RTF_UP = 0x1
_RTF_REJECT = 0x200
SOCKET_BUFFER_BYTES = 256 * 1024


class DownloadError(HyroadsError):
    """A download, or what was asked for, is wrong in a way that trying again does not help."""


class InputError(DownloadError):
    """What the user gave is wrong."""


class RefusedAddressError(OSError):
    """The address of a server is one that may not be reached by way of this program."""


def default_interfaces() -> list[str]:
    """The names of the interfaces that have a default route, IPv4 or IPv6, in the order of the kernel's tables."""
    found: dict[str, None] = {}
    for line in _lines("/proc/net/route")[1:]:
        name, destination, _gateway, flags, _, _, _, mask = line.split()[:8]
        if destination == mask == "00000000" and _usable_route(int(flags, 16)):
            found[name] = None
    for line in _lines("/proc/net/ipv6_route"):
        fields = line.split()
        if fields[0] == "0" * 32 and fields[1] == "00" and _usable_route(int(fields[8], 16)):
            found[fields[9]] = None
    return [name for name in found if name not in {LOOPBACK, _OURS}][:MOST_INTERFACES]


def _usable_route(flags: int) -> bool:
    return bool(flags & _RTF_UP) and not flags & _RTF_REJECT


def named_interfaces(text: str) -> list[str]:
    """The names of a list ``a,b``; raises :class:`InputError` for none, too many, twice the same or an unknown one."""
    names = [name.strip() for name in text.split(",")]
    known = sorted(name for _, name in socket.if_nameindex())
    for name in names:
        if not name:
            raise InputError(f"--interfaces {text[:80]!a}: expected names of interfaces with commas between them")
        if name not in known:
            raise InputError(f"--interfaces: no interface {name[:40]!a}; there are: {', '.join(known)}")
    if len(set(names)) != len(names):
        raise InputError(f"--interfaces {text[:80]!a}: an interface is named twice")
    if len(names) > MOST_INTERFACES:
        raise InputError(f"--interfaces: expected at most {MOST_INTERFACES} interfaces, got {len(names)}")
    return names


def has_carrier(name: str) -> bool:
    """Whether an interface is there, up, and not told that its cable or its association has gone.

    By an ioctl and not by sysfs, which shows the interfaces of the network namespace that it was mounted in.
    """
    request = struct.pack("16sH14x", name.encode()[:15], 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, _SIOCGIFFLAGS, request)
        except OSError:
            return False
    flags: int = struct.unpack_from("16xH", answer)[0]
    return flags & _UP_AND_RUNNING == _UP_AND_RUNNING


def is_this_machine(address: IPAddress) -> bool:
    """Whether an address is one of this machine's own, loopback included."""
    if address.is_loopback or address.is_unspecified:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True


def reaching(interfaces: Sequence[Interface], host: str, port: int) -> list[Interface]:
    """The interfaces that may lead to a host; this machine itself is behind ``lo`` only, and nothing else is."""
    elsewhere = [each for each in interfaces if each.name != LOOPBACK]
    if len(elsewhere) == len(interfaces):
        return elsewhere
    try:
        found = elsewhere[0].addresses(host, port) if elsewhere else resolve(host, port)
        local = is_this_machine(found[0])
    except OSError:
        local = False
    return [each for each in interfaces if (each.name == LOOPBACK) == local] or list(interfaces)


def is_public(address: IPAddress) -> bool:
    """Whether a program on this machine may lend its place in the network to reach an address: not this machine itself,
    no link-local address (which cloud providers answer secrets at) and no group.
    """
    return not (address.is_link_local or address.is_multicast or address.is_reserved or is_this_machine(address))


@dataclass(eq=False)
class Interface:
    """An interface by name; its open connections, so that they can be ended at once when it goes."""

    name: str
    number: int
    sockets: set[socket.socket] = field(default_factory=set)
    carrier: bool = True
    retry_s: float = 0.0
    """Before this time nothing new is tried over it."""
    failures: int = 0
    received_bytes: int = 0
    names: InterfaceNames | None = None
    """What its network calls hosts; None: what this machine does."""

    def addresses(self, host: str, port: int) -> list[IPAddress]:
        """The addresses of a host to try over this interface, in order. Raises OSError.

        IPv6 only where the interface has an address that is valid beyond its link.
        """
        ipv6 = self.name == LOOPBACK or _has_global_ipv6(self.name)
        found = resolve(host, port) if self.names is None else self.names.addresses(host, port, ipv6=ipv6)
        return [address for address in found if ipv6 or address.version == 4] or list(found)

    def connect(
        self, host: str, port: int, timeout_s: float, allowed: Callable[[IPAddress], bool] = lambda _: True
    ) -> socket.socket:
        """A TCP connection to a host over this interface, to the first of its addresses that answers.

        Raises OSError; :class:`RefusedAddressError` if no address of the host is ``allowed``.
        """
        addresses = self.addresses(host, port)
        usable = [address for address in addresses if allowed(address)]
        if not usable:
            raise RefusedAddressError(f"the address of {host[:80]} may not be reached from here")
        problem = OSError(errno.EADDRNOTAVAIL, "no address")
        for address in usable[:4]:
            try:
                return self._connect(address, port, timeout_s / min(2, len(usable)))
            except OSError as error:
                problem = error
        raise problem

    def _connect(self, address: IPAddress, port: int, timeout_s: float) -> socket.socket:
        local = is_this_machine(address)
        if local and self.name != LOOPBACK:
            raise OSError(errno.ENETUNREACH, f"{address} is this machine, not reached over {self.name}")
        connection = socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_STREAM)
        try:
            if not (local and self.name == LOOPBACK):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, self.name.encode() + b"\0")
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.settimeout(timeout_s)
            self.sockets.add(connection)
            connection.connect((str(address), port))
        except BaseException:
            self.release(connection)
            raise
        return connection

    def release(self, connection: socket.socket) -> None:
        """Close a connection."""
        self.sockets.discard(connection)
        connection.close()

    def abort(self) -> None:
        """End all connections: whoever reads or writes there gets an error now."""
        for connection in tuple(self.sockets):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def _has_global_ipv6(name: str) -> bool:
    rows = [line.split() for line in _lines("/proc/net/if_inet6")]
    return any(row[5] == name and row[3] == "00" for row in rows)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="ascii").splitlines()
    except OSError:
        return []
