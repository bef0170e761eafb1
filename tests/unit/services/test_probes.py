"""Frames that ask a host whether it is there, read back field by field and by the reader of claims."""

from __future__ import annotations

from ipaddress import IPv6Address

import pytest

from hyroads.controller.core.services.membership import MAC, checksum
from hyroads.controller.core.services.probes import MAX_ADDRESSES, link_local, probe_frames
from hyroads.controller.core.services.sightings import sighting_of

HOST = "02:aa:00:00:00:01"


def test_an_arp_probe_asks_for_the_address_and_claims_none() -> None:
    arp, _ = probe_frames(HOST, ["10.0.0.7"])
    assert len(arp) == 60
    assert (arp[:6].hex(":"), arp[6:12].hex(":"), arp[12:22].hex()) == (HOST, MAC, "08060001080006040001")
    assert (arp[22:28].hex(":"), arp[28:32], arp[32:38], arp[38:42]) == (MAC, bytes(4), bytes(6), bytes([10, 0, 0, 7]))
    sighting = sighting_of(arp)
    assert sighting is not None and not sighting.claims


def test_a_solicitation_goes_to_the_address_itself_and_says_where_to_answer() -> None:
    frame, derived = probe_frames(HOST, ["2001:db8::7"])
    packet = frame[14:]
    source, target = IPv6Address(packet[8:24]), IPv6Address("2001:db8::7")
    assert (packet[6:8], IPv6Address(packet[24:40]), source) == (b"\x3a\xff", target, IPv6Address("fe80::2ff:fe00:0"))
    body = packet[40:]
    assert len(body) == int.from_bytes(packet[4:6], "big") == 32
    assert (body[0], IPv6Address(body[8:24]), body[24:26], body[26:32].hex(":")) == (135, target, b"\1\1", MAC)
    # A sum over what holds the sum is zero.
    pseudo = source.packed + target.packed + (32).to_bytes(4, "big") + (58).to_bytes(4, "big")
    assert checksum(pseudo + body) == b"\0\0"
    assert IPv6Address(derived[14 + 24 : 14 + 40]) == link_local(HOST) == IPv6Address("fe80::aa:ff:fe00:1")


@pytest.mark.parametrize(("known", "asked"), [(0, 1), (1, 2), (MAX_ADDRESSES + 3, MAX_ADDRESSES + 1)])
def test_so_many_addresses_are_asked_for_the_latest_of_them(known: int, asked: int) -> None:
    frames = probe_frames(HOST, [f"10.0.0.{number}" for number in range(known)])
    assert len(frames) == asked
    assert not known or frames[asked - 2][41] == known - 1
