"""The address of a multicast session: an IPv4 or IPv6 multicast address, or a group MAC address. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address

from hyroads.controller.core.errors import HyroadsError

_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
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
    if _MAC.fullmatch(lower):
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
