"""Finds the controllers of a network: by its DNS servers, by multicast DNS, and by DHCP (docs/reference/boxes.md).

Whatever names a controller is not trusted: its certificate decides.
"""

from __future__ import annotations

import contextlib
import ipaddress
import secrets
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hyroads.controller.core.dhcp_vendor import MOST_TEXT, controller_in, option_of_dhclient, option_of_networkd
from hyroads.controller.core.dns_service import PTR, DnsError, Instance, instances, question, servers
from hyroads.controller.core.errors import HyroadsError

from .link import Link, WrongControllerError

SERVICE = "_hyroads._tcp"
LINK_SERVICE = f"{SERVICE}.local"
GROUP, LINK_PORT = "224.0.0.251", 5353
PORT = 53
WITHIN_S = 2.0
MOST_BYTES = 9000
MOST_DOMAINS, MOST_SERVERS, MOST_FILES, MOST_ANSWERS, MOST_FOUND = 6, 3, 32, 64, 8
_INTERFACE = struct.Struct("=4s4si")
"""``struct ip_mreqn``: the group, an address, the number of an interface."""


@dataclass(frozen=True, slots=True)
class Found:
    """An address ``https://HOST:PORT`` of a controller, and where it was found."""

    url: str
    by: str


@dataclass(frozen=True)
class Places:
    """Where this machine knows its network from; ``leases`` are folders, patterns of files in them, and their readers.

    ``port`` is that of DNS servers; ``link_port`` that of multicast DNS, 0: it is not used.
    """

    resolver: str = "/etc/resolv.conf"
    port: int = PORT
    link_port: int = LINK_PORT
    leases: Sequence[tuple[str, str, Callable[[str], bytes | None]]] = field(
        default=(
            ("/run/systemd/netif/leases", "*", option_of_networkd),
            ("/var/lib/dhcp", "dhclient*.leases", option_of_dhclient),
        )
    )


def choose_controller(found: Sequence[Found], pin: str | None, say: Callable[[str], None]) -> str:
    """The address of the only controller of those found, or of the only one with a certificate of SHA-256 ``pin``.

    If there are several, each is a line of ``say``, and HyroadsError: the owner names one.
    """
    if not found:
        where = f"DNS ({SERVICE}), multicast DNS or DHCP option 43"
        raise HyroadsError(f"no controller found by {where}: name it, https://HOST:PORT")
    met = {each: _met(each) for each in found}
    wanted = [each for each in found if pin is None or met[each] == pin]
    # Two addresses with one certificate are one controller.
    if wanted and len({met[each] for each in wanted}) == 1 and not met[wanted[0]].startswith("not reached"):
        say(f"found {wanted[0].url} by {wanted[0].by}")
        return wanted[0].url
    for each in found:
        say(f"found {each.url} by {each.by}: {met[each]}")
    if pin is not None:
        raise WrongControllerError("none of the controllers found has this pin: name yours, https://HOST:PORT")
    what = "several controllers found" if len(found) > 1 else "the controller found is not reached"
    raise HyroadsError(f"{what}: name yours, https://HOST:PORT, or give its --pin")


def _met(found: Found) -> str:
    """The SHA-256 of the certificate there, or why there is none."""
    try:
        return Link.of(found.url).meet()[0]
    except HyroadsError as error:
        return f"not reached ({error})"[:200]


def find_controllers(places: Places | None = None) -> list[Found]:
    """Each address that the network names once, :data:`MOST_FOUND` at most; waits some seconds for answers."""
    where = places or Places()
    found: dict[str, Found] = {}
    for each in (*_by_dns(where), *_by_dhcp(where), *_by_link(where.link_port)):
        found.setdefault(each.url, each)
    return list(found.values())[:MOST_FOUND]


def resolver_of(text: str) -> tuple[Sequence[str], Sequence[str]]:
    """Search domains and addresses of servers in a file like ``/etc/resolv.conf``."""
    domains: list[str] = []
    addresses: list[str] = []
    for line in text.splitlines():
        match line.split("#")[0].split():
            case ["nameserver", address, *_]:
                addresses.append(address)
            case ["search" | "domain", *names]:
                domains = [name for name in names if name != "."]
    return domains, addresses


# -- DNS servers


def _by_dns(where: Places) -> Iterator[Found]:
    """The preferred one of the first domain that names any: the further ones stand in for it."""
    domains, addresses = resolver_of(_text(Path(where.resolver)))
    for domain in domains[:MOST_DOMAINS]:
        for address in addresses[:MOST_SERVERS]:
            for host, there in _answered(f"{SERVICE}.{domain}", address, where.port):
                yield Found(f"https://{host}:{there}", f"DNS of {domain}")
                return


def _answered(name: str, address: str, port: int) -> list[tuple[str, int]]:
    """What one server answers; nothing if it gives no answer that can be understood."""
    number = secrets.randbits(16)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.suppress(OSError, DnsError), socket.socket(family, socket.SOCK_DGRAM) as sent:
        sent.settimeout(WITHIN_S)
        # A connected socket hears this server alone.
        sent.connect((address, port))
        sent.send(question(name, number))
        return servers(sent.recv(MOST_BYTES), number)
    return []


# -- DHCP


def _by_dhcp(where: Places) -> Iterator[Found]:
    """What leases name that this machine's DHCP clients have stored."""
    for folder, pattern, option_of in where.leases:
        for file in sorted(Path(folder).glob(pattern))[:MOST_FILES]:
            option = option_of(_text(file))
            url = None if option is None else controller_in(option)
            if url is not None:
                yield Found(url, "DHCP option 43")


def _text(file: Path) -> str:
    """Of a file of bounded size; empty if it can't be read."""
    with contextlib.suppress(OSError), file.open(encoding="utf-8", errors="replace") as opened:
        return opened.read(MOST_TEXT)
    return ""


# -- multicast DNS


def _by_link(port: int) -> Iterator[Found]:
    """Controllers that answer on the networks of this machine's interfaces; a one-shot query (RFC 6762, 5.1)."""
    if not port:
        return
    number = secrets.randbits(16)
    with contextlib.suppress(OSError, DnsError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        # The second question is for those that lost the first.
        for _ in range(2):
            _ask_links(link, question(LINK_SERVICE, number, PTR), port)
            for message, source in _received(link, time.monotonic() + WITHIN_S / 2):
                with contextlib.suppress(DnsError):
                    for instance in instances(message, number, LINK_SERVICE):
                        yield Found(f"https://{_address(instance, source)}:{instance.port}", "multicast DNS")


def _ask_links(link: socket.socket, message: bytes, port: int) -> None:
    link.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 255)
    for index, _ in socket.if_nameindex():
        # An interface without an IPv4 address, or that is down, is passed over.
        with contextlib.suppress(OSError):
            interface = _INTERFACE.pack(bytes(4), bytes(4), index)
            link.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface)
            link.sendto(message, (GROUP, port))


def _received(link: socket.socket, until_s: float) -> Iterator[tuple[bytes, str]]:
    """Messages with the addresses that they come from, until a time of time.monotonic()."""
    for _ in range(MOST_ANSWERS):
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            return
        link.settimeout(left_s)
        try:
            message, (source, _) = link.recvfrom(MOST_BYTES)
        except TimeoutError:
            return
        yield message, source


def _address(instance: Instance, source: str) -> str:
    """Of its addresses the one by which it answered, else its first one; its answer's if it names none."""
    usable = [each for each in instance.addresses if _is_usable(each)]
    return source if source in usable or not usable else usable[0]


def _is_usable(address: str) -> bool:
    parsed = ipaddress.IPv4Address(address)
    return not (parsed.is_multicast or parsed.is_unspecified or parsed.is_reserved or parsed.is_loopback)
