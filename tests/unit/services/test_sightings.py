"""What frames claim, whatever is in them."""

from __future__ import annotations

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core.services.sightings import By, Claim, Sighting, sighting_of

MAC = "02:aa:00:00:00:01"
RAW = bytes.fromhex(MAC.replace(":", ""))
ETHERNET = b"\xff" * 6 + RAW


def arp(ip: str, tags: bytes = b"", operation: int = 1) -> bytes:
    head = struct.pack("!HHBBH", 1, 0x0800, 6, 4, operation)
    return ETHERNET + tags + b"\x08\x06" + head + RAW + socket.inet_aton(ip) + bytes(10)


def dhcp(kind: int, ip: str = "10.0.0.9", source: int = 67, *, fragment: int = 0, options: bytes = b"") -> bytes:
    message = b"\2\1\6\0" + bytes(12) + socket.inet_aton(ip) + bytes(8) + RAW
    message = message.ljust(236, b"\0") + b"\x63\x82\x53\x63" + options + bytes((53, 1, kind, 255))
    udp = struct.pack("!HHHH", source, 68, 8 + len(message), 0) + message
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, fragment, 64, 17, 0, bytes(4), bytes(4))
    return ETHERNET + b"\x08\x00" + head + udp


def neighbour(kind: int, source: str, target: str) -> bytes:
    body = bytes((kind, 0, 0, 0)) + bytes(4) + socket.inet_pton(socket.AF_INET6, target)
    head = struct.pack("!IHBB", 6 << 28, len(body), 58, 255) + socket.inet_pton(socket.AF_INET6, source) + bytes(16)
    return ETHERNET + b"\x86\xdd" + head + body


def claims(frame: bytes) -> tuple[Claim, ...]:
    sighting = sighting_of(frame)
    assert sighting is not None
    assert sighting.mac == MAC
    return sighting.claims


def test_arp_claims_the_senders_address_also_behind_tags():
    for tags in (b"", b"\x81\x00\x00\x05", b"\x88\xa8\x00\x01\x81\x00\x00\x05"):
        for operation in (1, 2):
            assert claims(arp("10.0.0.9", tags, operation)) == (Claim(MAC, "10.0.0.9", By.ARP),)
    assert claims(arp("0.0.0.0")) == ()


def test_a_dhcp_server_gives_addresses_by_acknowledging_them():
    padded = bytes(3) + b"\x0c\x04name"
    for options in (b"", padded):
        sighting = sighting_of(dhcp(5, options=options))
        assert sighting == Sighting(MAC, (Claim(MAC, "10.0.0.9", By.DHCP),), serves_dhcp=True)
    assert sighting_of(dhcp(2)) == Sighting(MAC, (), serves_dhcp=True)
    # Clients take answers from any port.
    assert sighting_of(dhcp(5, source=1067)).serves_dhcp
    assert sighting_of(dhcp(5, fragment=8)) == Sighting(MAC)


def test_neighbour_discovery_claims_the_source_that_asks_and_the_target_that_is_told():
    assert claims(neighbour(135, "2001:db8::1", "2001:db8::2")) == (Claim(MAC, "2001:db8::1", By.DISCOVERY),)
    assert claims(neighbour(136, "2001:db8::1", "2001:db8::2")) == (Claim(MAC, "2001:db8::2", By.DISCOVERY),)
    assert claims(neighbour(135, "::", "2001:db8::2")) == ()
    assert claims(neighbour(134, "fe80::1", "2001:db8::2")) == ()


def test_who_has_no_address_is_not_seen():
    assert sighting_of(ETHERNET) is None
    assert sighting_of(b"\xff" * 6 + b"\x01" + RAW[1:] + b"\x08\x00") is None
    assert sighting_of(b"\xff" * 6 + bytes(6) + b"\x08\x00") is None


@given(
    st.sampled_from([arp("10.0.0.9"), dhcp(5), neighbour(135, "fe80::1", "fe80::2"), neighbour(136, "::", "fe80::2")]),
    st.lists(st.tuples(st.integers(12, 340), st.integers(0, 255)), max_size=8),
    st.integers(0, 400),
)
def test_no_frame_does_harm(frame, changes, length):
    bent = bytearray(frame)
    for offset, value in changes:
        if offset < len(bent):
            bent[offset] = value
    sighting = sighting_of(bytes(bent[:length]))
    assert sighting is None or len(sighting.claims) <= 1


@given(st.binary(max_size=200))
def test_anything_may_come(frame):
    sighting_of(frame)


def router(kind: int, *, extensions: bytes = b"", first: int = 58) -> bytes:
    """An ICMPv6 message of this type behind extension headers."""
    body = extensions + bytes((kind, 0, 0, 0)) + bytes(20)
    head = b"\x60\0\0\0" + len(body).to_bytes(2, "big") + bytes((first, 255)) + b"\xfe\x80" + bytes(30)
    return bytes.fromhex("333300000001") + bytes.fromhex("02aa00000001") + b"\x86\xdd" + head + body


@pytest.mark.parametrize(("kind", "routes"), [(133, False), (134, True), (135, False), (136, False), (137, True)])
@pytest.mark.parametrize(
    ("first", "extensions"),
    [
        (58, b""),
        (0, bytes((58, 0)) + bytes(6)),
        (60, bytes((43, 1)) + bytes(14) + bytes((58, 0)) + bytes(6)),
        (51, bytes((58, 1)) + bytes(10)),
    ],
)
def test_routers_are_seen_whatever_headers_are_in_front(kind: int, routes: bool, first: int, extensions: bytes) -> None:
    sighting = sighting_of(router(kind, extensions=extensions, first=first))
    assert sighting is not None and sighting.routes == routes


def test_headers_that_never_end_are_no_trouble() -> None:
    for extensions in (bytes(8) * 30, b"\0\xff", b"\0", b""):
        sighting = sighting_of(router(134, extensions=extensions, first=0)[:90])
        assert sighting is not None
