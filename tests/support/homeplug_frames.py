"""Frames of HomePlug AV adapters, put together field by field from the layouts that open-plc-utils reads."""

from __future__ import annotations

import struct
from collections.abc import Sequence

ADAPTER, HOST = "00:0b:3b:aa:00:01", "02:00:01:02:00:01"
OUI = b"\x00\xb0\x52"
FIRMWARE = "MAC-QCA7420-1.1.0.844-02-20120919-CS"


def mac(text: str) -> bytes:
    """An address as six bytes."""
    return bytes(int(part, 16) for part in text.split(":"))


def frame(
    kind: int, body: bytes, *, version: int, fragment: int = 0, sequence: int = 0, source: str = ADAPTER
) -> bytes:
    """A frame to the host, padded to 60 bytes; ``fragment`` has the last index in its high half, the own in its low."""
    head = mac(HOST) + mac(source) + b"\x88\xe1" + bytes([version]) + struct.pack("<H", kind)
    return (head + (bytes([fragment, sequence]) if version else b"") + body).ljust(60, b"\0")


def fragments(kind: int, body: bytes, *, room: int = 1400, sequence: int = 1) -> list[bytes]:
    """A long message as fragments of ``room`` bytes of body each."""
    parts = [body[place : place + room] for place in range(0, len(body), room)]
    last = len(parts) - 1
    numbered = enumerate(parts)
    return [frame(kind, part, version=1, fragment=last << 4 | i, sequence=sequence) for i, part in numbered]


def network_stats(stations: Sequence[tuple[str, int, int]], version: int = 1) -> bytes:
    """CM_NW_STATS.CNF."""
    rates = "<2B" if version < 2 else "<2H"
    rows = b"".join(mac(address) + struct.pack(rates, tx, rx) for address, tx, rx in stations)
    return frame(0x6049, bytes([len(stations)]) + rows, version=version)


def discover_list() -> bytes:
    """CC_DISCOVER_LIST.CNF: a station of the own network, one of another, and that network."""
    rows = mac("00:0b:3b:aa:00:02") + bytes((2, 1, 1, 0, 3, 132)) + mac("00:0b:3b:bb:00:09") + bytes((9, 0, 5, 0, 0, 0))
    network = bytes(range(7)) + bytes((5, 0, 0, 2)) + struct.pack("<H", 7)
    return frame(0x0015, b"\x02" + rows + b"\x01" + network, version=1)


def software_version(firmware: str = FIRMWARE, device: int = 0x20, ident: int = 0x001CFCFC) -> bytes:
    """VS_SW_VER.CNF, with the chip's identifier behind a text of 64 bytes."""
    text = firmware.encode() + b"\0"
    data = text.ljust(64, b"\0") + b"\0" + struct.pack("<I", ident)
    return frame(0xA001, OUI + bytes((0, device, len(text))) + data.ljust(254, b"\0"), version=0)


def network_info_body(stations: Sequence[tuple[str, int, str, int, int]], own_tei: int = 1) -> bytes:
    """The body of VS_NW_INFO.CNF for one network, of which the adapter is the coordinator."""
    network = (
        bytes(range(1, 8)) + b"\0\0" + bytes((3, own_tei)) + b"\0" * 4 + b"\x02" + mac(ADAPTER) + bytes((own_tei,))
    )
    network += b"\0" * 3 + bytes((len(stations),)) + b"\0" * 5
    for address, tei, behind, tx, rx in stations:
        network += mac(address) + bytes((tei,)) + b"\0" * 3 + mac(behind) + struct.pack("<HBBHH", tx, 0, 0, rx, 0)
    data = b"\0\x01" + network
    return OUI + b"\0\0" + struct.pack("<H", len(data)) + data


def network_info(stations: Sequence[tuple[str, int, str, int, int]]) -> bytes:
    """VS_NW_INFO.CNF in one frame."""
    return frame(0xA039, network_info_body(stations), version=1)


def link_stats(tx: Sequence[int] | None, rx: Sequence[int] | None, intervals: Sequence[Sequence[int]] = ()) -> bytes:
    """VS_LNK_STATS.CNF."""
    direction = 2 if tx and rx else 0 if tx else 1
    body = bytes((0, direction, 0xF8, 2)) + (struct.pack("<5Q", *tx) if tx else b"")
    if rx:
        body += struct.pack("<6QB", *rx, len(intervals))
        body += b"".join(struct.pack("<B4Q", *interval) for interval in intervals)
    return frame(0xA031, OUI + body, version=0)


def tone_map_body(codes: Sequence[int], slot: int = 0, slots: int = 6) -> bytes:
    """The body of VS_TONE_MAP_CHAR.CNF: two carriers in a byte, the first in its low half."""
    pairs = [*codes, 0] if len(codes) % 2 else list(codes)
    packed = bytes(pairs[i] | pairs[i + 1] << 4 for i in range(0, len(pairs), 2))
    head = (
        b"\0\0"
        + mac("00:0b:3b:aa:00:02")
        + bytes((slot, 0, slots, 0))
        + struct.pack("<4H", len(codes), 0, len(codes), 0)
    )
    head += b"\0" * 4
    return OUI + b"\0\0" + struct.pack("<H", len(head) + len(packed)) + head + packed


def sniffer_state(on: bool) -> bytes:
    """VS_SNIFFER.CNF."""
    return frame(0xA035, OUI + bytes((0, int(on))) + b"\0" * 10, version=0)


def delimiter(kind: int, *, length: int = 0, source_tei: int = 1, destination_tei: int = 2, ble: int = 0xFF) -> bytes:
    """VS_SNIFFER.IND; ``length`` in units of 1.28 us."""
    control = bytes((kind | 3 << 4, source_tei, destination_tei, 1, 0, 0, ble, 0)) + struct.pack("<H", length | 1 << 12)
    control = control.ljust(16, b"\0")
    return frame(0xA036, OUI + struct.pack("<BBQI", 0, 1, 123456, 789) + control + b"\0" * 16, version=0)
