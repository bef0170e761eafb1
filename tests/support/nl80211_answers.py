"""Answers of nl80211 as the kernel writes them, made from numbers (include/uapi/linux/nl80211.h)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

from hyroads.controller.access_point.linux_wifi import LinuxWifi
from hyroads.controller.access_point.nl80211 import Station, stations, survey_times
from hyroads.controller.kernel.netlink import attribute, nested

FLAG = b""
WIDTHS = {20: (), 40: (3,), 80: (8,), "80+80": (9,), 160: (10,), 320: (18,)}
"""Flags of a rate by its width in MHz."""


def u8(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("=B", value))


def u32(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("=I", value))


def rate(mbps: float, width: int | str = 20, *, is_short: bool = False, **numbers: int) -> bytes:
    """The attributes of a rate; ``numbers`` are named as in :data:`_RATE_NUMBERS`."""
    flags = [*WIDTHS[width], *([4] if is_short else [])]
    return b"".join([
        u32(5, round(10 * mbps)),
        *(attribute(kind, FLAG) for kind in flags),
        *(u8(_RATE_NUMBERS[name], value) for name, value in numbers.items()),
    ])  # fmt: skip


_RATE_NUMBERS = {
    **{"ht_mcs": 2, "vht_mcs": 6, "vht_nss": 7},
    **{"he_mcs": 13, "he_nss": 14, "he_gi": 15, "he_dcm": 16, "he_ru": 17},
    **{"eht_mcs": 19, "eht_nss": 20, "eht_gi": 21, "eht_ru": 22, "s1g_mcs": 23, "s1g_nss": 24},
}


def station(
    mac: str,
    tx: bytes = b"",
    rx: bytes = b"",
    *,
    packets: int = 1,
    retries: int = 0,
    failed: int = 0,
    inactive_ms: int = 0,
    signals_dbm: tuple[int, ...] = (-80,),
    expected_kbps: int | None = None,
) -> bytes:
    """One station: its latest signal and, if there are two, its mean."""
    info = [
        u32(1, inactive_ms),
        *(attribute(kind, struct.pack("b", value)) for kind, value in zip((7, 13), signals_dbm, strict=False)),
        *([nested(8, tx)] if tx else []),
        *([nested(14, rx)] if rx else []),
        u32(10, packets),
        u32(11, retries),
        u32(12, failed),
        *([] if expected_kbps is None else [u32(27, expected_kbps)]),
    ]
    return attribute(6, bytes.fromhex(mac.replace(":", ""))) + nested(21, *info)


def _nested_attribute(kind: int, payload: bytes) -> bytes:
    """An attribute as newer parts of the kernel nest it: marked, and padded to four bytes."""
    return struct.pack("=HH", len(payload) + 4, kind | 0x8000) + payload + bytes(-len(payload) % 4)


def links(mac: str, numbered: Mapping[int, Sequence[bytes]], info: bytes = b"") -> bytes:
    """A station with several links: number -> attributes of its statistics. The links' own addresses differ from it.

    ``info`` are the station's attributes, as :func:`station` makes them; without them it is an answer for links alone.
    """
    entries = b""
    for number, statistics in numbered.items():
        own = bytes((2, 0xEE, 0, 0, 0, number))
        link = u8(313, number) + attribute(6, own) + _nested_attribute(21, b"".join(statistics))
        entries += _nested_attribute(number + 1, link)
    address = b"" if info else attribute(6, bytes.fromhex(mac.replace(":", "")))
    return info + address + _nested_attribute(312, entries)


def channel(mhz: int, *, active_ms: int | None = None, busy_ms: int | None = None, is_used: bool = False) -> bytes:
    """One channel of a survey."""
    times = [attribute(kind, struct.pack("=Q", ms)) for kind, ms in ((4, active_ms), (5, busy_ms)) if ms is not None]
    return nested(84, u32(1, mhz), u8(2, 0xA6), *([attribute(3, FLAG)] if is_used else []), *times)


class Recording:
    """A kernel that gives these answers."""

    def __init__(self, survey: Iterable[bytes], *answers: Iterable[bytes]) -> None:
        self.channels, self.answers = list(survey), [list(each) for each in answers]

    def survey(self) -> tuple[int, int]:
        return survey_times(self.channels)

    def stations(self) -> tuple[Station, ...]:
        """The next answer; the last one again when there are no more."""
        return stations(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])

    def radio(self) -> LinuxWifi:
        return LinuxWifi(self)
