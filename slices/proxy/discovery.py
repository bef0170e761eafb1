"""LLDP of guests: each slice discovers its own topology, whatever its flowspace says of LLDP.

A discovery frame that a guest sends out of one of its ports gets the slice's mark as source address, so that the
classifier of the next switch (``classifier.discovery_mac``) sends it to the slicer, which gives it to the same slice.
The original source, the time and an authenticator travel in a TLV of their own (IEEE 802.1AB, section 8.6:
organizationally specific), which is taken out again.

Anybody can write a mark; hosts and guests can't forge the authenticator, so they can't put links into anybody's
topology. A genuine frame counts for a few seconds, once at a port, and never at a port that it was sent out of: whoever
has caught one can hand it on at once to another port of the slice, as a cable would, and can't do more.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from hashlib import sha256
from typing import NamedTuple

from hyroads.slices.core.classifier import DISCOVERY_ETH_TYPES, discovery_mac

MARK = discovery_mac(0).to_bytes(6, "big")[:4]
"""How every mark begins; the number of the slice follows."""
FRESH_S = 5.0
MOST_ARRIVALS = 4096
_TYPES = frozenset(kind.to_bytes(2, "big") for kind in DISCOVERY_ETH_TYPES)
_ORGANIZATION = b"\x0a\x53\x4c\x02"
_MAC_LENGTH = 8
_INFO = len(_ORGANIZATION) + 6 + 8 + _MAC_LENGTH
_TLV_HEADER = (127 << 9 | _INFO).to_bytes(2, "big")
_TLV = 2 + _INFO
_SOURCE = 2 + len(_ORGANIZATION)
_TIME = _SOURCE + 6
_PROOF = _TIME + 8
_MAX_FRAME = 1514


class Proven(NamedTuple):
    """A discovery frame, and the authenticator that tells it from every other."""

    frame: bytes
    proof: bytes


class Arrivals:
    """Which discovery frames of a slice one switch has seen lately, and where."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[int, bytes], float] = OrderedDict()

    def __len__(self) -> int:
        """How many are remembered: never more than ``MOST_ARRIVALS``."""
        return len(self._seen)

    def first(self, port: int, proof: bytes, now_s: float) -> bool:
        """Whether a frame is at a port for the first time, arriving or leaving; from now on it is not."""
        seen = self._seen
        if (port, proof) in seen:
            return False
        while seen and (len(seen) >= MOST_ARRIVALS or now_s - next(iter(seen.values())) > FRESH_S):
            seen.popitem(last=False)
        seen[port, proof] = now_s
        return True


def is_discovery(frame: bytes) -> bool:
    """Whether a frame is LLDP or of ONOS's kind, untagged and to a group."""
    return frame[12:14] in _TYPES and bool(frame[0] & 1)


def marked_for(frame: bytes) -> int | None:
    """The number of the slice whose mark a frame has, genuine or not."""
    return int.from_bytes(frame[10:12], "big") if frame[6:10] == MARK and len(frame) >= 12 else None


def mark(frame: bytes, number: int, key: bytes, now_s: float) -> Proven | None:
    """The frame as it travels between switches; None if it is no well-formed discovery frame or gets too long."""
    end = _end_of_tlvs(frame) if is_discovery(frame) else None
    if end is None or len(frame) + _TLV > _MAX_FRAME:
        return None
    source = discovery_mac(number).to_bytes(6, "big")
    sent = _microseconds(now_s).to_bytes(8, "big")
    proof = _proof(key, number, sent, frame[:end])
    tlv = _TLV_HEADER + _ORGANIZATION + frame[6:12] + sent + proof
    return Proven(frame[:6] + source + frame[12:end] + tlv + frame[end:], proof)


def unmark(frame: bytes, number: int, key: bytes, now_s: float) -> Proven | None:
    """The frame as the guest sent it; None if it was not marked by this slicer for this slice a short time ago."""
    end = _end_of_tlvs(frame) if is_discovery(frame) and marked_for(frame) == number else None
    if end is None or end < 14 + _TLV:
        return None
    tlv = frame[end - _TLV : end]
    if tlv[:_SOURCE] != _TLV_HEADER + _ORGANIZATION:
        return None
    sent, proof = tlv[_TIME:_PROOF], tlv[_PROOF:]
    if not 0 <= _microseconds(now_s) - int.from_bytes(sent, "big") <= _microseconds(FRESH_S):
        return None
    # Padding is not part of what is proven: a medium may add some to a short frame.
    original = frame[:6] + tlv[_SOURCE:_TIME] + frame[12 : end - _TLV]
    if not hmac.compare_digest(proof, _proof(key, number, sent, original)):
        return None
    return Proven(original + frame[end:], proof)


def _microseconds(time_s: float) -> int:
    return int(time_s * 1e6)


def _proof(key: bytes, number: int, sent: bytes, frame: bytes) -> bytes:
    return hmac.new(key, number.to_bytes(4, "big") + sent + frame, sha256).digest()[:_MAC_LENGTH]


def _end_of_tlvs(frame: bytes) -> int | None:
    """Where the TLV that ends the list is."""
    at = 14
    while at + 2 <= len(frame):
        header = int.from_bytes(frame[at : at + 2], "big")
        if header >> 9 == 0:
            return at
        at += 2 + (header & 0x1FF)
    return None
