"""Settings of a guest network (docs/how-to/guest-network.md): document -> validated :class:`GuestSettings`. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from hyroads.controller.core.checking import Place, Problems, Section, integer_of

T = TypeVar("T")

_KEYS = (
    "interface", "uplink", "network", "isolated", "dns", "domain", "lease_minutes", "most_guests", "rate_mbps",
    "state_directory",
)  # fmt: skip
_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")
_DOMAIN = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")
_LONGEST_PREFIX, _SHORTEST_PREFIX = 29, 16
NOT_PUBLIC = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16",
        "224.0.0.0/3",
    )
)  # fmt: skip
"""Addresses that nobody has on the Internet, and group addresses (RFC 6890)."""
DEFAULT_NETWORK = ipaddress.IPv4Network("192.168.90.0/24")
STATE_DIRECTORY = "/var/lib/hyroads/guest"


@dataclass(frozen=True, slots=True)
class GuestSettings:
    """Where guests are, where the outside is, and what guests get."""

    interface: str
    """Towards guests. The gateway has the first address of ``network`` there."""
    uplink: str
    """Guests leave by this interface and no other, with its address."""
    network: ipaddress.IPv4Network = DEFAULT_NETWORK
    isolated: tuple[ipaddress.IPv4Network, ...] = ()
    """Networks that no guest reaches, besides :data:`NOT_PUBLIC`."""
    dns: tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, ...] = ()
    """Whom the gateway asks for names; empty: whom it asks for its own."""
    domain: str = "guest"
    lease_minutes: int = 60
    most_guests: int = 250
    rate_mbps: float | None = None
    """Of all guests together, each way; None: no limit of its own."""
    state_directory: str = STATE_DIRECTORY

    @property
    def gateway(self) -> ipaddress.IPv4Address:
        """The gateway's address among guests."""
        return self.network[1]

    @property
    def pool(self) -> tuple[ipaddress.IPv4Address, ipaddress.IPv4Address]:
        """The first and last address that guests get."""
        return self.network[2], self.network[-2]

    @property
    def leases(self) -> int:
        """How many guests can have an address at a time."""
        return min(self.most_guests, self.network.num_addresses - 3)


def parse(document: object, name: str) -> GuestSettings:
    """Validate a document; errors are :class:`ConfigError`."""
    problems = Problems(name)
    top = Place({} if document is None else document, problems).section(_KEYS, ("interface", "uplink"))
    given: dict[str, Any] = {
        "interface": _text(top, "interface", "", _INTERFACE, "the name of an interface"),
        "uplink": _text(top, "uplink", "", _INTERFACE, "the name of an interface"),
        "network": _guests(top),
        "isolated": _all(top, "isolated", ipaddress.IPv4Network, "an IPv4 network like 203.0.113.0/24"),
        "dns": _all(top, "dns", ipaddress.ip_address, "an IPv4 or IPv6 address"),
        "domain": _text(top, "domain", "guest", _DOMAIN, "a domain in lower case like guest.example"),
        "lease_minutes": integer_of(top, "lease_minutes", 60, 2, 10_080),
        "most_guests": integer_of(top, "most_guests", 250, 1, 16_384),
        "rate_mbps": top["rate_mbps"].number(1.0, 0.1, 100_000.0) if "rate_mbps" in top else None,
        "state_directory": _text(
            top, "state_directory", STATE_DIRECTORY, re.compile(r"/[\w./+-]+"), "an absolute path"
        ),
    }
    if given["interface"] and given["interface"] == given["uplink"]:
        top["uplink"].fail("expected another interface than that of the guests")
    problems.raise_if_any()
    return GuestSettings(**given)


def _text(top: Section, key: str, default: str, pattern: re.Pattern[str], what: str) -> str:
    if key not in top:
        return default
    place = top[key]
    if not isinstance(place.value, str) or not pattern.fullmatch(place.value):
        place.expected(what)
        return default
    return place.value


def _guests(top: Section) -> ipaddress.IPv4Network:
    if "network" not in top:
        return DEFAULT_NETWORK
    place = top["network"]
    try:
        found = ipaddress.IPv4Network(place.value if isinstance(place.value, str) else "")
    except ValueError:
        place.expected("an IPv4 network like 192.168.90.0/24")
        return DEFAULT_NETWORK
    if not _SHORTEST_PREFIX <= found.prefixlen <= _LONGEST_PREFIX or found.is_multicast or found.is_loopback:
        place.expected(f"a network of hosts from /{_SHORTEST_PREFIX} to /{_LONGEST_PREFIX}")
    return found


def _all(top: Section, key: str, read: Callable[[str], T], what: str) -> tuple[T, ...]:
    found = []
    for item in top[key].items() if key in top else ():
        try:
            found.append(read(item.value if isinstance(item.value, str) else ""))
        except ValueError:
            item.expected(what)
    return tuple(found)
