"""What is declared of a multicast session: its group address, its participants, and their text in documents. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address
from typing import Any

from hyroads.controller.core.checking import MAC, id_problem
from hyroads.controller.core.errors import ConfigError, HyroadsError

_LINK_LOCAL_V4 = IPv4Network("224.0.0.0/24")
# Global, organisation, site and the other scopes wider than a link (RFC 4291, section 2.7).
_WIDER_THAN_LINK = range(3, 0xF)
# What bridges, routers and name services of every network use: bridge protocols, and the MACs of link-local groups.
_RESERVED_MACS = ("01:80:c2:00:00:", "01:00:5e:00:00:", "33:33:00:00:00:")


class GroupAddressError(HyroadsError):
    """A text is no address for a session."""


@dataclass(frozen=True, slots=True)
class GroupAddress:
    """``text`` is the address in its normal form, ``mac`` the Ethernet address of its frames (RFC 1112, RFC 2464)."""

    text: str
    mac: str

    @property
    def match(self) -> Mapping[str, str | int]:
        """The fields of a frame to this group, by their names in OpenFlow matches."""
        if self.text == self.mac:
            return {"eth_dst": self.mac}
        if ":" in self.text:
            return {"eth_dst": self.mac, "eth_type": 0x86DD, "ipv6_dst": self.text}
        return {"eth_dst": self.mac, "eth_type": 0x0800, "ipv4_dst": self.text}

    def meets(self, other: GroupAddress) -> bool:
        """Whether a frame can be to both; 32 IPv4 groups share a MAC, but not their frames."""
        return self.mac == other.mac and (self.text == other.text or self.mac in (self.text, other.text))


def group_address(text: str) -> GroupAddress:
    """The address that a text names; ``GroupAddressError`` says what was expected.

    Addresses that never leave a link are refused: the network itself speaks on them, and every host must hear it.
    """
    lower = text.strip().lower()
    if MAC.fullmatch(lower):
        return _mac(lower)
    try:
        # A zone ("%eth0") means something to one host only.
        return _ipv6(IPv6Address(lower.replace("%", " "))) if ":" in lower else _ipv4(IPv4Address(lower))
    except AddressValueError:
        raise GroupAddressError(f"expected a multicast IP address or a group MAC address, got {text[:64]!r}") from None


def _mac(text: str) -> GroupAddress:
    if not int(text[:2], 16) & 1 or text == "ff:ff:ff:ff:ff:ff":
        raise GroupAddressError(f"expected a group MAC address, got {text}")
    if text.startswith(_RESERVED_MACS):
        raise GroupAddressError(f"expected a group MAC address that is not reserved for the network itself, got {text}")
    return GroupAddress(text, text)


def _ipv4(address: IPv4Address) -> GroupAddress:
    if not address.is_multicast or address in _LINK_LOCAL_V4:
        raise GroupAddressError(f"expected a multicast address from 224.0.1.0 to 239.255.255.255, got {address}")
    low = int(address) & 0x7F_FFFF
    return GroupAddress(str(address), f"01:00:5e:{low >> 16:02x}:{low >> 8 & 255:02x}:{low & 255:02x}")


def _ipv6(address: IPv6Address) -> GroupAddress:
    if not address.is_multicast or address.packed[1] & 0xF not in _WIDER_THAN_LINK:
        raise GroupAddressError(
            f"expected a multicast address of wider scope than a link (ff03::/16 on), got {address}"
        )
    return GroupAddress(str(address), "33:33:" + address.packed[12:].hex(":"))


MAX_PARTICIPANTS = 64
MAX_RATE_MBPS = 1e6
_MAX_NAME = 64
_KEYS = frozenset({"id", "group", "participants", "sources", "rate_mbps", "membership"})


@dataclass(frozen=True, slots=True)
class Participant:
    """A host: by the id of a node, its MAC or its IP address, as it was declared."""

    name: str
    is_source: bool = True


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """Who sends to whom. ``rate_mbps`` is what every source is counted with (None: what it is measured to send);
    ``membership``: hosts join and leave by IGMP and MLD as well.
    """

    id: str
    group: GroupAddress
    participants: tuple[Participant, ...]
    rate_mbps: float | None = None
    membership: bool = False

    def find(self, name: str) -> Participant | None:
        """The participant that was declared by this name."""
        return next((one for one in self.participants if one.name == name), None)

    def with_participant(self, new: Participant) -> SessionSpec:
        """With one more, or one that sends (or does not) from now on; ``ConfigError`` if there are too many."""
        others = tuple(one for one in self.participants if one.name != new.name)
        if len(others) >= MAX_PARTICIPANTS:
            raise ConfigError("request", "participants", f"expected at most {MAX_PARTICIPANTS}")
        return replace(self, participants=(*others, new))

    def without(self, name: str) -> SessionSpec:
        """Without a participant."""
        return replace(self, participants=tuple(one for one in self.participants if one.name != name))


def session_spec(document: Mapping[str, Any], name: str) -> SessionSpec:
    """The session that a document declares; ``ConfigError`` names the place of what is wrong."""
    unknown = sorted(map(str, document.keys() - _KEYS))
    if unknown:
        raise ConfigError(name, unknown[0][:_MAX_NAME], "unknown field")
    what = id_problem(document.get("id"))
    if what:
        raise ConfigError(name, "id", f"expected {what}")
    try:
        group = group_address(str(document.get("group", "")))
    except GroupAddressError as error:
        raise ConfigError(name, "group", str(error)) from error
    membership = document.get("membership", False)
    if not isinstance(membership, bool):
        raise ConfigError(name, "membership", "expected true or false")
    names = _names(document.get("participants", []), name, "participants")
    given = document.get("sources")
    sources = names if given is None else _names(given, name, "sources")
    for place, one in enumerate(sources):
        if one not in names:
            raise ConfigError(name, f"sources[{place}]", "expected a participant")
    participants = tuple(Participant(one, one in sources) for one in names)
    return SessionSpec(str(document["id"]), group, participants, rate(document.get("rate_mbps"), name), membership)


def session_document(spec: SessionSpec) -> dict[str, Any]:
    """The document that :func:`session_spec` reads."""
    return {
        "id": spec.id,
        "group": spec.group.text,
        "participants": [one.name for one in spec.participants],
        "sources": [one.name for one in spec.participants if one.is_source],
        "rate_mbps": spec.rate_mbps,
        "membership": spec.membership,
    }


def rate(value: object, name: str) -> float | None:
    """A rate, or None for none."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigError(name, "rate_mbps", "expected a number or null")
    if not 0 < value <= MAX_RATE_MBPS:
        raise ConfigError(name, "rate_mbps", f"expected a rate above 0 and up to {MAX_RATE_MBPS:g}")
    return float(value)


def _names(value: object, name: str, place: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) and 0 < len(one) <= _MAX_NAME for one in value):
        raise ConfigError(name, place, f"expected a list of nodes, MAC or IP addresses of up to {_MAX_NAME} characters")
    if len(value) > MAX_PARTICIPANTS:
        raise ConfigError(name, place, f"expected at most {MAX_PARTICIPANTS}, got {len(value)}")
    if len(set(value)) < len(value):
        raise ConfigError(name, place, "expected each one once")
    return list(value)
