"""Messages of IEEE Std 1905.1-2013 (CMDUs, EtherType 0x893a): frames to messages and back. Pure.

EasyMesh access points and many power-line adapters send them. A message is a header of 8 bytes and a list of TLVs; one
that does not fit into a frame is cut into fragments between TLVs (clauses 6.2 and 7.1.1). All input is from the
network: the number and size of waiting fragments is bounded.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from dataclasses import dataclass

from .ieee1905_tlvs import MessageError, Tlv, read_tlv, split_tlvs, write_tlv

ETHERTYPE = 0x893A
GROUP = "01:80:c2:00:00:13"
"""The address to which messages for all neighbours go; bridges do not forward it."""
MAX_PAYLOAD_BYTES = 1500
HEADER = struct.Struct("!BBHHBB")
_LAST, _RELAYED = 0x80, 0x40

TOPOLOGY_DISCOVERY, TOPOLOGY_NOTIFICATION, TOPOLOGY_QUERY, TOPOLOGY_RESPONSE = 0, 1, 2, 3
LINK_METRIC_QUERY, LINK_METRIC_RESPONSE = 5, 6


@dataclass(frozen=True, slots=True)
class Message:
    """A whole message; ``kind`` is its message type, ``number`` its message identifier (0 to 65535)."""

    kind: int
    number: int
    tlvs: tuple[Tlv, ...] = ()
    is_relayed: bool = False


def write_message(message: Message) -> list[bytes]:
    """The payloads of the frames that carry a message: fragments of at most 1500 bytes, cut between TLVs.

    :class:`MessageError` if a single TLV is larger than a frame.
    """
    end, room = bytes(3), MAX_PAYLOAD_BYTES - HEADER.size
    parts: list[bytes] = [b""]
    for tlv in [*map(write_tlv, message.tlvs), end]:
        if len(tlv) > room:
            raise MessageError(f"IEEE 1905.1: TLV {tlv[0]} of {len(tlv)} bytes does not fit into a frame")
        if len(parts[-1]) + len(tlv) > room:
            parts.append(b"")
        parts[-1] += tlv
    flags = _RELAYED if message.is_relayed else 0
    return [
        HEADER.pack(0, 0, message.kind, message.number, place, flags | (_LAST if place == len(parts) - 1 else 0)) + part
        for place, part in enumerate(parts)
    ]


def _read(raw: tuple[tuple[int, bytes], ...]) -> tuple[Tlv, ...]:
    return tuple(read_tlv(kind, value) for kind, value in raw)


MAX_FRAGMENTS = 16
MAX_WAITING = 64
MAX_WAIT_S = 2.0


@dataclass(slots=True)
class _Waiting:
    since_s: float
    parts: dict[int, tuple[tuple[int, bytes], ...]]
    last: int | None = None


class Joiner:
    """Joins fragments to messages; what waits is bounded in number (64), fragments (16 each) and time (2 s)."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[tuple[str, int, int], _Waiting] = OrderedDict()

    def received(self, source: str, payload: bytes, now_s: float) -> Message | None:
        """The message that a frame completes, None while fragments are missing; :class:`MessageError`."""
        if len(payload) < HEADER.size:
            raise MessageError(f"IEEE 1905.1: a message of {len(payload)} bytes, expected at least {HEADER.size}")
        version, _, kind, number, place, flags = HEADER.unpack_from(payload)
        if version != 0:
            raise MessageError(f"IEEE 1905.1: message version {version}, expected 0")
        raw, is_last = tuple(split_tlvs(payload[HEADER.size :])), bool(flags & _LAST)
        if place == 0 and is_last:
            return Message(kind, number, _read(raw), bool(flags & _RELAYED))
        if place >= MAX_FRAGMENTS:
            raise MessageError(f"IEEE 1905.1: fragment {place}, expected less than {MAX_FRAGMENTS}")
        key = (source, kind, number)
        waiting = self._of(key, now_s)
        waiting.parts[place] = raw
        waiting.last = place if is_last else waiting.last
        if waiting.last is None or any(n not in waiting.parts for n in range(waiting.last + 1)):
            return None
        del self._waiting[key]
        joined = tuple(tlv for n in range(waiting.last + 1) for tlv in waiting.parts[n])
        return Message(kind, number, _read(joined), bool(flags & _RELAYED))

    def _of(self, key: tuple[str, int, int], now_s: float) -> _Waiting:
        while self._waiting and next(iter(self._waiting.values())).since_s < now_s - MAX_WAIT_S:
            self._waiting.popitem(last=False)
        if key not in self._waiting:
            if len(self._waiting) >= MAX_WAITING:
                self._waiting.popitem(last=False)
            self._waiting[key] = _Waiting(now_s, {})
        return self._waiting[key]
