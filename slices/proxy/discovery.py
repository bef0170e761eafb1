"""LLDP of guests: each slice discovers its own topology, whatever its flowspace says of LLDP.

A discovery frame that a guest sends out of one of its ports gets the slice's mark as source address, so that the
classifier of the next switch (``classifier.discovery_mac``) gives it to the same slice. The original source and an
authenticator travel in a TLV of their own (IEEE 802.1AB, section 8.6: organizationally specific), which is taken out
again.
Hosts can't forge the authenticator, so they can't put links into anybody's topology by using the mark.
"""

from __future__ import annotations

import hmac
from hashlib import sha256

from hyroads.slices.classifier import DISCOVERY_ETH_TYPES, discovery_mac

_TYPES = frozenset(kind.to_bytes(2, "big") for kind in DISCOVERY_ETH_TYPES)
_ORGANIZATION = b"\x0a\x53\x4c\x01"
_MAC_LENGTH = 8
_INFO = len(_ORGANIZATION) + 6 + _MAC_LENGTH
_TLV_HEADER = (127 << 9 | _INFO).to_bytes(2, "big")
_TLV = 2 + _INFO
_MAX_FRAME = 1514


def is_discovery(frame: bytes) -> bool:
    """Whether a frame is LLDP or of ONOS's kind, untagged."""
    return frame[12:14] in _TYPES


def mark(frame: bytes, number: int, key: bytes) -> bytes | None:
    """The frame as it travels between switches; None if it is no well-formed LLDP frame or gets too long."""
    end = _end_of_tlvs(frame)
    if end is None or len(frame) + _TLV > _MAX_FRAME:
        return None
    source = discovery_mac(number).to_bytes(6, "big")
    original = frame[6:12]
    proof = _proof(key, number, frame)
    tlv = _TLV_HEADER + _ORGANIZATION + original + proof
    return frame[:6] + source + frame[12:end] + tlv + frame[end:]


def unmark(frame: bytes, number: int, key: bytes) -> bytes | None:
    """The frame as the guest sent it; None if it was not marked by this slicer for this slice."""
    end = _end_of_tlvs(frame)
    if end is None or end < 14 + _TLV or frame[6:12] != discovery_mac(number).to_bytes(6, "big"):
        return None
    tlv = frame[end - _TLV : end]
    if tlv[: 2 + len(_ORGANIZATION)] != _TLV_HEADER + _ORGANIZATION:
        return None
    original = frame[:6] + tlv[6:12] + frame[12 : end - _TLV] + frame[end:]
    return original if hmac.compare_digest(tlv[12:], _proof(key, number, original)) else None


def _proof(key: bytes, number: int, frame: bytes) -> bytes:
    # Padding is not part of it: a medium may add some to a short frame.
    end = _end_of_tlvs(frame)
    return hmac.new(key, number.to_bytes(4, "big") + frame[:end], sha256).digest()[:_MAC_LENGTH]


def _end_of_tlvs(frame: bytes) -> int | None:
    """Where the TLV that ends the list is."""
    at = 14
    while at + 2 <= len(frame):
        header = int.from_bytes(frame[at : at + 2], "big")
        if header >> 9 == 0:
            return at
        at += 2 + (header & 0x1FF)
    return None
