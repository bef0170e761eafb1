"""What hostapd says of access points: of itself, and of others that stations could go to (802.11k, 802.11v). Pure.

Formats: hostapd 2.10.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeGuard

from .model import mac_bytes

MAX_MESSAGE = 4096
_MAC = r"([0-9a-f]{2}(?::[0-9a-f]{2}){5})"
_NEIGHBOUR = re.compile(rf"{_MAC} .*?\bnr=([0-9a-f]{{26}})", re.IGNORECASE)
_REPORT = re.compile(rf"{_MAC},0x[0-9a-f]{{1,8}},\d{{1,3}},\d{{1,3}},\d{{1,3}}")
_STATION = re.compile(_MAC, re.IGNORECASE)


def own_neighbour(answer: bytes, bssid: str) -> str | None:
    """A BSS in ``SHOW_NEIGHBOR``'s answer, as others need it to send stations there."""
    for line in text_of(answer).splitlines():
        found = _NEIGHBOUR.match(line.strip())
        if found is not None and found[1].lower() == bssid:
            raw = bytes.fromhex(found[2])
            information = int.from_bytes(raw[6:10], "little")
            return f"{bssid},0x{information:x},{raw[10]},{raw[11]},{raw[12]}"
    return None


def own_bss(answer: bytes, name: str) -> tuple[str, str] | None:
    """Address and SSID of a BSS in ``STATUS``'s answer: that of the interface ``name``, else the first.

    The SSID is as hostapd prints it. A radio with several BSSs answers alike at the socket of each.
    """
    fields = fields_of(answer)
    index = next((key[3:] for key, value in fields.items() if key.startswith("bss[") and value == name), "[0]")
    bssid = fields.get(f"bssid{index}", "").lower()
    return (bssid, fields.get(f"ssid{index}", "")) if _STATION.fullmatch(bssid) else None


def described_neighbour(answer: bytes, bssid: str) -> str | None:
    """A BSS as others need it to send stations there, from ``STATUS``'s answer.

    For a hostapd without ``rrm_neighbor_report``, which lists no BSS, not even its own: stations can be sent to it all
    the same. Operating classes are those of 20 MHz (IEEE 802.11-2020, table E-4).
    """
    fields = fields_of(answer)
    channel = fields.get("channel", "")
    number = int(channel) if channel.isascii() and channel.isdigit() and len(channel) <= 3 else 0
    operating_class = next((value for first, last, value in _CLASSES if first <= number <= last), None)
    if operating_class is None:
        return None
    newest = next((phy for key, phy in _PHYS.items() if fields.get(key) == "1"), 6 if number <= 14 else 4)
    return f"{bssid},0x{_REACHABLE:x},{operating_class},{number},{newest}"


_CLASSES = ((1, 13, 81), (14, 14, 82), (36, 48, 115), (52, 64, 118), (100, 144, 121), (149, 161, 124), (165, 177, 125))
"""First and last channel, operating class; 6 GHz numbers its channels anew, and its access points list themselves."""
_PHYS = {"ieee80211ax": 14, "ieee80211ac": 9, "ieee80211n": 7}
_REACHABLE = 3


def listed_neighbour(neighbour: str) -> str:
    """A neighbour as ``SET_NEIGHBOR`` takes it: the same fields as hexadecimal digits."""
    bssid, information, *numbers = neighbour.split(",")
    head = mac_bytes(bssid) + int(information, 16).to_bytes(4, "little")
    return (head + bytes(min(int(number), 255) for number in numbers)).hex()


def fields_of(answer: bytes) -> Mapping[str, str]:
    """The lines ``key=value`` of an answer."""
    return dict(line.partition("=")[::2] for line in text_of(answer).splitlines())


def is_neighbour(text: object) -> TypeGuard[str]:
    """Whether a text is a neighbour as ``BSS_TM_REQ`` takes it: BSSID, information, class, channel, PHY."""
    return isinstance(text, str) and _REPORT.fullmatch(text) is not None


def is_ssid(text: object) -> TypeGuard[str]:
    """Whether a text is an SSID as hostapd prints it, at most 32 bytes."""
    return isinstance(text, str) and 0 < len(text) <= 128 and 0 < len(ssid_bytes(text)) <= 32


def ssid_bytes(printed: str) -> bytes:
    """The bytes of an SSID that hostapd printed: all but printable ASCII is escaped."""
    known = {"\\": 0x5C, '"': 0x22, "e": 0x1B, "n": 0x0A, "r": 0x0D, "t": 0x09}
    parts = _ESCAPE.findall(printed)
    return bytes(known.get(e, 63) if e else int(x, 16) if x else ord(c) & 0xFF for x, e, c in parts)


_ESCAPE = re.compile(r"\\x([0-9a-fA-F]{2})|\\(.)|(.)", re.DOTALL)


def text_of(message: bytes) -> str:
    """A message of hostapd as text; what is no UTF-8 is replaced."""
    return message[:MAX_MESSAGE].decode("utf-8", "replace")
