"""WiFi of a Linux driver by nl80211: answers of the kernel to records. :class:`Nl80211` alone opens a socket.

Numbers are those of ``include/uapi/linux/nl80211.h``. Every value is checked for its size, because a kernel may be
newer or older than this module.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hyroads.controller.kernel.generic_netlink import GenericNetlink
from hyroads.controller.kernel.netlink import NetlinkError, attribute, attribute_map

from .model import RadioError
from .wifi_rates import LONG_GUARDS_US, Modulation, Rate, ht_modulation, rate_of

FAMILY = "nl80211"
MAX_STATIONS = 1024
MAX_LINKS = 15
"""Of a station: link numbers have four bits, and 15 stands for none (IEEE Std 802.11be-2024, 9.4.2.321)."""
_GET_STATION, _GET_SURVEY = 17, 50
_INTERFACE, _MAC, _STATION, _SURVEY, _LINKS, _LINK_NUMBER = 3, 6, 21, 84, 312, 313
_IN_USE, _ACTIVE_MS, _BUSY_MS = 3, 4, 5
_INACTIVE_MS, _SIGNAL, _TX_RATE, _TX_PACKETS, _TX_RETRIES, _TX_FAILED = 1, 7, 8, 10, 11, 12
_MEAN_SIGNAL, _RX_RATE, _EXPECTED_KBPS = 13, 14, 27
_RATE_16, _RATE_32, _HT_MCS, _SHORT_GUARD = 1, 5, 2, 4
_WIDTHS_MHZ = {3: 40, 8: 80, 9: 160, 10: 160, 18: 320}
"""Flags of a rate; 9 are two channels of 80 MHz, which carry what one of 160 MHz carries."""
_NARROW = frozenset((11, 12))
"""Flags of rates on channels of 10 and 5 MHz, for which there is no formula here."""
_S1G_MCS = 23
"""The first kind of S1G's attributes; for them, and for those of later standards, there is no formula either."""


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Kinds of the attributes of a rate by a standard; 0: the standard has none."""

    mcs: int
    streams: int
    guard: int = 0
    unit: int = 0
    dual_carrier: int = 0


_NUMBERS = {
    "EHT": _Numbers(19, 20, guard=21, unit=22),
    "HE": _Numbers(13, 14, guard=15, unit=17, dual_carrier=16),
    "VHT": _Numbers(6, 7),
}


@dataclass(frozen=True, slots=True)
class Link:
    """One of the links of a station with several (multi-link operation); ``expected_mbps`` as of :class:`Station`."""

    number: int
    tx: Rate | None
    rx: Rate | None
    expected_mbps: float | None


@dataclass(frozen=True, slots=True)
class Station:
    """One station; ``expected_mbps`` is the driver's own estimate (minstrel), retries and failures included.

    ``links`` are those of a station with several, as far as the kernel shows them; its counters and ``expected_mbps``
    are sums over links then, ``tx`` and ``rx`` those of one link.
    """

    mac: str
    inactive_ms: int
    signal_dbm: int | None
    tx_packets: int
    tx_retries: int
    tx_failed: int
    tx: Rate | None
    rx: Rate | None
    expected_mbps: float | None
    links: tuple[Link, ...] = ()


def survey_times(answers: Iterable[bytes]) -> tuple[int, int]:
    """Busy and active time of the channel in use, in microseconds; 0 if the driver names none, or counts no times.

    ``answers`` are the attributes of each channel of a survey. The times are the driver's counters: a scan or a change
    of channel resets them. Raises :class:`RadioError` if an answer cannot be read.
    """
    for answer in answers:
        survey = _attributes(_attributes(answer).get(_SURVEY, b""))
        if _IN_USE in survey:
            times = [_number(survey[kind], "time of a channel") for kind in (_BUSY_MS, _ACTIVE_MS) if kind in survey]
            return (1000 * times[0], 1000 * times[1]) if len(times) == 2 else (0, 0)
    return 0, 0


def stations(answers: Iterable[bytes]) -> tuple[Station, ...]:
    """The stations of an interface, at most :data:`MAX_STATIONS`; ``answers`` are the attributes of each.

    The links of a station come with it, or in answers of their own with its address. Raises :class:`RadioError` if an
    answer cannot be read.
    """
    infos: dict[str, Mapping[int, bytes]] = {}
    links: dict[str, dict[int, Mapping[int, bytes]]] = {}
    for answer in answers:
        outer = _attributes(answer)
        mac = outer.get(_MAC, b"")
        if len(mac) != 6:
            raise RadioError(f"nl80211: station: expected an address of 6 bytes, got {len(mac)}")
        if _STATION in outer or mac.hex(":") not in infos:
            infos[mac.hex(":")] = _attributes(outer.get(_STATION, b""))
        links.setdefault(mac.hex(":"), {}).update(_links(outer.get(_LINKS, b"")))
    return tuple(_station(mac, info, links[mac]) for mac, info in infos.items())[:MAX_STATIONS]


def _links(data: bytes) -> dict[int, Mapping[int, bytes]]:
    """The facts of each link, by its number."""
    found: dict[int, Mapping[int, bytes]] = {}
    for entry in _attributes(data).values():
        link = _attributes(entry)
        number = _count(link, _LINK_NUMBER, "number of a link")
        if number >= MAX_LINKS:
            raise RadioError(f"nl80211: link {number}: expected 0 to {MAX_LINKS - 1}")
        found[number] = _attributes(link.get(_STATION, b""))
    return found


def _station(mac: str, info: Mapping[int, bytes], links: Mapping[int, Mapping[int, bytes]]) -> Station:
    every = list(links.values())

    def total(kind: int, what: str) -> int:
        """Of the station, else of its links together."""
        return _count(info, kind, what) if kind in info else sum(_count(link, kind, what) for link in every)

    idle = [_count(each, _INACTIVE_MS, "inactive time") for each in (info, *every) if _INACTIVE_MS in each]
    signals = [signal for each in (info, *every) if (signal := _signal(each)) is not None]
    return Station(
        mac=mac,
        inactive_ms=idle[0] if _INACTIVE_MS in info else min(idle, default=0),
        signal_dbm=signals[0] if _signal(info) is not None else max(signals, default=None),
        tx_packets=total(_TX_PACKETS, "packets sent"),
        tx_retries=total(_TX_RETRIES, "retries"),
        tx_failed=total(_TX_FAILED, "packets that failed"),
        tx=_rate(info.get(_TX_RATE)),
        rx=_rate(info.get(_RX_RATE)),
        expected_mbps=_expected_mbps(info),
        links=tuple(
            Link(number, _rate(link.get(_TX_RATE)), _rate(link.get(_RX_RATE)), _expected_mbps(link))
            for number, link in sorted(links.items())
        ),
    )


def _signal(info: Mapping[int, bytes]) -> int | None:
    """The mean signal in dBm, else the last one; None: not known."""
    signal = info.get(_MEAN_SIGNAL, info.get(_SIGNAL))
    return None if signal is None else _signed(signal)


def _expected_mbps(info: Mapping[int, bytes]) -> float | None:
    return _count(info, _EXPECTED_KBPS, "expected throughput") / 1000 if _EXPECTED_KBPS in info else None


def _rate(data: bytes | None) -> Rate | None:
    """None: the driver knows no rate."""
    info = {} if data is None else _attributes(data)
    tenths = _count(info, _RATE_32, "rate") or _count(info, _RATE_16, "rate")
    if tenths == 0:
        return None
    standard, modulation = _modulation(info)
    return rate_of(tenths / 10, standard, modulation)


def _modulation(info: Mapping[int, bytes]) -> tuple[str, Modulation | None]:
    """The standard of a rate ("" for 802.11a, b and g), and its modulation; None: there is no formula for it."""
    width_mhz = max((width for kind, width in _WIDTHS_MHZ.items() if kind in info), default=20)
    short_us = 0.4 if _SHORT_GUARD in info else 0.8
    standard = next((name for name, numbers in _NUMBERS.items() if numbers.mcs in info), "")
    if standard:
        numbers = _NUMBERS[standard]
        mcs, streams = _count(info, numbers.mcs, "MCS"), _count(info, numbers.streams, "streams")
        guard_us = _guard_us(_count(info, numbers.guard, "guard interval")) if numbers.guard else short_us
        unit = _count(info, numbers.unit, "resource unit") if numbers.unit and numbers.unit in info else None
        dual = bool(numbers.dual_carrier and _count(info, numbers.dual_carrier, "DCM"))
        found: Modulation | None = Modulation(standard, mcs, streams, width_mhz, guard_us, unit, dual)
    elif _HT_MCS in info:
        standard, found = "HT", ht_modulation(_count(info, _HT_MCS, "MCS"), width_mhz, short_us)
    else:
        is_later = any(kind >= _S1G_MCS for kind in info)
        return ("VHT" if is_later else ""), None
    return standard, None if _NARROW & info.keys() else found


def _guard_us(number: int) -> float:
    if number >= len(LONG_GUARDS_US):
        raise RadioError(f"nl80211: guard interval {number}: expected 0 to {len(LONG_GUARDS_US) - 1}")
    return LONG_GUARDS_US[number]


def _attributes(data: bytes) -> dict[int, bytes]:
    try:
        return attribute_map(data)
    except NetlinkError as error:
        raise RadioError(f"nl80211: {error}") from error


def _count(info: Mapping[int, bytes], kind: int, what: str) -> int:
    """0 if the driver does not give it."""
    return _number(info[kind], what) if kind in info else 0


def _number(data: bytes, what: str) -> int:
    if len(data) not in (1, 2, 4, 8):
        raise RadioError(f"nl80211: {what}: expected a number, got {len(data)} bytes")
    return int.from_bytes(data, sys.byteorder)


def _signed(data: bytes) -> int:
    if len(data) != 1:
        raise RadioError(f"nl80211: signal: expected 1 byte, got {len(data)}")
    return int(struct.unpack("b", data)[0])


class Nl80211:
    """The surveys and stations of one interface, as the running kernel gives them; opens its socket at the first read.

    Raises :class:`RadioError` where the kernel refuses, or the interface does not exist. The next read opens a new
    socket then.
    """

    def __init__(self, interface: str) -> None:
        self._interface = interface
        self._socket: GenericNetlink | None = None

    def survey(self) -> tuple[int, int]:
        """As :func:`survey_times`."""
        return survey_times(self._dump(_GET_SURVEY))

    def stations(self) -> tuple[Station, ...]:
        """As :func:`stations`."""
        return stations(self._dump(_GET_STATION))

    def _dump(self, kind: int) -> list[bytes]:
        try:
            index = struct.pack("=I", socket.if_nametoindex(self._interface))
            if self._socket is None:
                self._socket = GenericNetlink(FAMILY)
            return self._socket.dump(kind, attribute(_INTERFACE, index))
        except (NetlinkError, OSError) as error:
            if self._socket is not None:
                self._socket.close()
                self._socket = None
            reason = getattr(error, "strerror", None) or error
            raise RadioError(f"nl80211: {self._interface}: {reason}") from error
