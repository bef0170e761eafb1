"""Questions to a host whether it is still there: ARP probes (RFC 5227, section 2.1.1) and neighbour solicitations (RFC
4861, section 4.3) for addresses that it has. Pure.

Whoever is asked answers to :data:`MAC`; an ARP probe has no sender address, so nobody's cache is changed by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address
from struct import pack

from .membership import MAC, checksum

MAX_ADDRESSES = 4
"""So many of a host's addresses are asked for at once."""
_SMALLEST_FRAME = 60
_FROM = IPv6Address("fe80::2ff:fe00:0")
"""What becomes of :data:`MAC` by EUI-64 (RFC 4291, appendix A)."""


def probe_frames(mac: str, addresses: Iterable[str]) -> tuple[bytes, ...]:
    """One frame to the host ``mac`` for each of its IP addresses, the latest :data:`MAX_ADDRESSES` of them, and one for
    the link-local address that hosts derive from their MAC: it may have said none yet.
    """
    wanted = dict.fromkeys([*list(addresses)[-MAX_ADDRESSES:], str(link_local(mac))])
    return tuple(_frames(bytes.fromhex(mac.replace(":", "")), wanted))


def link_local(mac: str) -> IPv6Address:
    """The address that a host forms from its MAC by EUI-64."""
    raw = bytes.fromhex(mac.replace(":", ""))
    return IPv6Address(b"\xfe\x80" + bytes(6) + bytes((raw[0] ^ 2,)) + raw[1:3] + b"\xff\xfe" + raw[3:])


def _frames(host: bytes, addresses: Iterable[str]) -> Iterator[bytes]:
    own = bytes.fromhex(MAC.replace(":", ""))
    for address in addresses:
        if ":" in address:
            frame = host + own + b"\x86\xdd" + _solicitation(own, IPv6Address(address))
        else:
            # Operation 1: request; sender without an address.
            ends = own + bytes(4) + bytes(6) + IPv4Address(address).packed
            frame = host + own + b"\x08\x06" + bytes.fromhex("0001080006040001") + ends
        yield frame.ljust(_SMALLEST_FRAME, b"\0")


def _solicitation(own: bytes, target: IPv6Address) -> bytes:
    """To the address itself, with our MAC as option: so the answer comes to that alone."""
    body = b"\x87\0\0\0" + bytes(4) + target.packed + b"\x01\x01" + own
    pseudo = _FROM.packed + target.packed + pack("!II", len(body), 58)
    body = body[:2] + checksum(pseudo + body) + body[4:]
    return pack("!IHBB", 6 << 28, len(body), 58, 255) + _FROM.packed + target.packed + body
