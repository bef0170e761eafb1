"""Addresses of hosts, from the DNS servers of the network that will carry the connection.

Networks answer differently: a server that is near in one is far in another, and a name may be known in one alone. So a
name is asked of the interface's own DNS servers, over that interface (``SO_BINDTODEVICE``). The host's resolver is
asked instead for names of this machine and its surroundings, for interfaces without DNS servers of their own, and while
those do not answer or do not know the name.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dns.resolver import Resolver

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
DNS_PORT = 53
_RESOLVED_S = 30.0
_SERVERS_S = 30.0
_MOST_SERVERS = 4
_SERVER_WITHIN_S, _ALL_WITHIN_S = 0.7, 1.5
_SILENT_S = 10.0
_COMMAND_WITHIN_S = 1.0
_HOSTS = Path("/etc/hosts")
_LINKS = Path("/run/systemd/netif/links")
_RESOLVCONF = (Path("/run/resolvconf/interface"), Path("/run/resolvconf/interfaces"))
_COMMANDS = (("resolvectl", "dns"), ("nmcli", "-g", "IP4.DNS,IP6.DNS", "device", "show"))
# Names that are not in the DNS (RFC 6761, RFC 6762).
_NOT_IN_DNS = (".localhost", ".local", ".invalid")


def resolve(host: str, port: int) -> tuple[IPAddress, ...]:
    """The addresses of a host, in the order of the host's resolver; remembered for half a minute. Raises OSError."""
    now_s = time.monotonic()
    with _resolved_lock:
        known = _resolved.get((host, port))
        if known is not None and now_s - known[0] < _RESOLVED_S:
            return known[1]
    try:
        answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    except socket.gaierror:
        if known is None:
            raise
        # The resolver may be behind an interface that has gone; the server is not.
        return known[1]
    except UnicodeError as error:
        raise OSError(errno.EINVAL, f"{host[:80]!a} is no name of a host") from error
    addresses = tuple(dict.fromkeys(_plain(str(address[0])) for *_, address in answers))
    with _resolved_lock:
        if len(_resolved) > 1000:
            _resolved.clear()
        _resolved[host, port] = (now_s, addresses)
    return addresses


_resolved: dict[tuple[str, int], tuple[float, tuple[IPAddress, ...]]] = {}
_resolved_lock = threading.Lock()


def _plain(text: str) -> IPAddress:
    """An address; an IPv4 address in IPv6 clothes is the IPv4 address."""
    address = ipaddress.ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def is_name_of_here(host: str) -> bool:
    """Whether the host's resolver alone knows what it is: an address, a name without a dot, one of ``/etc/hosts``."""
    name = host.rstrip(".").lower()
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(host)
        return True
    if "." not in name or name.endswith(_NOT_IN_DNS) or name == socket.gethostname().lower():
        return True
    return any(name in line.partition("#")[0].lower().split()[1:] for line in _lines(_HOSTS))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def servers_of(interface: str) -> tuple[str, ...]:
    """The DNS servers that an interface's network has given to systemd-networkd, resolvconf, systemd-resolved or
    NetworkManager; none if nobody knows.
    """
    for texts in _told(interface):
        found = dict.fromkeys(address for text in texts for address in _addresses(text))
        if found:
            return tuple(found)[:_MOST_SERVERS]
    return ()


def _told(interface: str) -> Iterator[list[str]]:
    """Texts with addresses, one source after the other."""
    with contextlib.suppress(OSError):
        lines = _lines(_LINKS / str(socket.if_nametoindex(interface)))
        yield [line.removeprefix("DNS=") for line in lines if line.startswith("DNS=")]
    for folder in _RESOLVCONF:
        for path in (*folder.glob(interface), *folder.glob(f"{interface}.*")):
            yield [line.removeprefix("nameserver") for line in _lines(path) if line.startswith("nameserver")]
    for command in _COMMANDS:
        if shutil.which(command[0]) is not None:
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                done = subprocess.run(
                    (*command, interface), capture_output=True, text=True, check=True, timeout=_COMMAND_WITHIN_S
                )
                # resolvectl begins with "Link 2 (wlan0):".
                yield [re.sub(r"^Link \d+ \(.*?\):", "", line) for line in done.stdout.splitlines()]


def _addresses(text: str) -> Iterator[str]:
    """Those of a text that can be asked over an interface; a server's name or zone that follows one is left out."""
    for word in text.replace("|", " ").split():
        with contextlib.suppress(ValueError):
            address = ipaddress.ip_address(re.split("[#%]", word)[0])
            # A resolver of this machine's own is not on the interface, and asks whom it likes.
            if not (address.is_loopback or address.is_unspecified or address.is_link_local):
                yield str(address)


class InterfaceNames:
    """Addresses by the DNS servers of one interface: those given, else those that its network has told.

    ``say`` is called when they fall silent.
    """

    def __init__(self, interface: str, given: Sequence[str] = (), say: Callable[[], None] = lambda: None) -> None:
        self._interface, self._given, self._say = interface, tuple(given), say
        self._resolver: Resolver | None = None
        self._servers: tuple[str, ...] = ()
        self._looked_s = -_SERVERS_S
        self._silent_until_s = 0.0
        self._lock = threading.Lock()

    def addresses(self, host: str, port: int, *, ipv6: bool = True) -> tuple[IPAddress, ...]:
        """The addresses of a host as this interface's network knows them. Raises OSError.

        Without ``ipv6`` only IPv4 addresses are asked for.
        """
        if is_name_of_here(host):
            return resolve(host, port)
        return self._asked(host, ipv6=ipv6) or resolve(host, port)

    def _asked(self, host: str, *, ipv6: bool) -> tuple[IPAddress, ...]:
        """What the interface's own servers say; nothing if there are none, or they don't answer, or don't know it."""
        resolver = self._current()
        if resolver is None or time.monotonic() < self._silent_until_s:
            return ()
        from dns.exception import DNSException
        from dns.resolver import LifetimeTimeout, NoNameservers

        try:
            family = socket.AF_UNSPEC if ipv6 else socket.AF_INET
            found = resolver.resolve_name(f"{host.rstrip('.')}.", family, lifetime=_ALL_WITHIN_S)
        except (LifetimeTimeout, NoNameservers):
            with self._lock:
                first = self._silent_until_s == 0.0
                self._silent_until_s = time.monotonic() + _SILENT_S
            if first:
                self._say()
            return ()
        except (DNSException, UnicodeError):
            return ()
        self._silent_until_s = 0.0
        return tuple(dict.fromkeys(_plain(address) for address in found.addresses()))

    def _current(self) -> Resolver | None:
        """A resolver with the servers of now."""
        with self._lock:
            now_s = time.monotonic()
            if now_s - self._looked_s >= _SERVERS_S:
                self._looked_s = now_s
                servers = self._given or servers_of(self._interface)
                if servers != self._servers:
                    self._servers, self._silent_until_s = servers, 0.0
                    self._resolver = _resolver(self._interface, servers) if servers else None
            return self._resolver


def _resolver(interface: str, servers: Sequence[str]) -> Resolver:
    """A resolver whose questions leave over an interface. Only now what it needs is imported."""
    import dns.resolver

    from .dns_over import DeviceNameserver

    resolver = dns.resolver.Resolver(configure=False)
    resolver.nameservers = [DeviceNameserver(server, DNS_PORT, interface) for server in servers]
    resolver.timeout = _SERVER_WITHIN_S
    resolver.cache = dns.resolver.LRUCache(1000)
    return resolver
