"""The back end for WiFi of a Linux driver: what its counters and rates say of loss and capacity. Opens nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from .model import Neighbour, Reading
from .nl80211 import Link, Station
from .wifi_rates import capacity_kbps


class WifiSource(Protocol):
    """Where surveys and stations come from: the kernel, or a recording of it."""

    def survey(self) -> tuple[int, int]:
        """Busy and active time of the channel in use, in microseconds; 0 if the driver counts no times."""

    def stations(self) -> tuple[Station, ...]:
        """The stations of the interface."""


@dataclass(frozen=True, slots=True)
class _Capacity:
    """What the rates of a link said last: kb/s in both directions, and since when that is so."""

    tx_kbps: int = 0
    rx_kbps: int = 0
    tx_text: str = ""
    tx_s: float = 0.0


_ONLY = -1
"""Number of the link of a station that shows no links."""


class LinuxWifi:
    """The back end of one interface."""

    def __init__(self, source: WifiSource) -> None:
        self._source = source
        self._before: dict[str, Station] = {}
        self._capacities: dict[str, dict[int, _Capacity]] = {}

    def read(self, now_s: float) -> Reading:
        """A survey and the stations; loss and retries count what happened since the last reading.

        The capacity of a station with several links is the sum of those of its links. A link whose rate cannot be read
        keeps its last capacity, and ``modulation`` says how old that is.
        """
        busy_us, active_us = self._source.survey()
        stations = self._source.stations()
        neighbours = tuple(self._neighbour(station, now_s) for station in stations)
        self._before = {station.mac: station for station in stations}
        self._capacities = {mac: self._capacities[mac] for mac in self._before}
        return Reading(busy_us, active_us, neighbours)

    def _neighbour(self, now: Station, now_s: float) -> Neighbour:
        before = self._before.get(now.mac)
        if before is None or now.tx_packets < before.tx_packets:
            packets, retries, failed = now.tx_packets, now.tx_retries, now.tx_failed
        else:
            packets = now.tx_packets - before.tx_packets
            retries = max(0, now.tx_retries - before.tx_retries)
            failed = max(0, now.tx_failed - before.tx_failed)
        attempts = packets + retries
        capacities = self._links(now, packets / attempts if attempts else 1.0, now_s)
        return Neighbour(
            mac=now.mac,
            # The driver's own estimate is of all links together.
            tx_capacity_kbps=capacity_kbps(None, now.expected_mbps) or sum(each.tx_kbps for each in capacities),
            rx_capacity_kbps=sum(each.rx_kbps for each in capacities),
            tx_loss=min(1.0, failed / packets) if packets else 0.0,
            signal_dbm=now.signal_dbm,
            last_heard_ms=now.inactive_ms,
            modulation=_modulation_text(capacities, now_s),
        )

    def _links(self, now: Station, success: float, now_s: float) -> list[_Capacity]:
        """What the rates of each link say, else what they said last."""
        links = now.links or (Link(_ONLY, now.tx, now.rx, now.expected_mbps),)
        last = self._capacities.get(now.mac, {})
        found = {link.number: _capacity(link, last.get(link.number, _Capacity()), success, now_s) for link in links}
        self._capacities[now.mac] = found
        return list(found.values())


def _capacity(link: Link, last: _Capacity, success: float, now_s: float) -> _Capacity:
    tx_kbps = capacity_kbps(link.tx, link.expected_mbps, success)
    rx_kbps = capacity_kbps(link.rx) or last.rx_kbps
    text = link.tx.text if link.tx else ""
    if tx_kbps or not last.tx_kbps:
        return _Capacity(tx_kbps, rx_kbps, text, now_s)
    return _Capacity(last.tx_kbps, rx_kbps, last.tx_text, last.tx_s)


def _modulation_text(capacities: Sequence[_Capacity], now_s: float) -> str:
    """Of each link, at most 64 characters; the age is that of the oldest."""
    age_s = max((now_s - each.tx_s for each in capacities), default=0.0)
    age = f" ({age_s:.0f} s old)" if age_s > 0 else ""
    return " + ".join(each.tx_text for each in capacities if each.tx_text)[: 64 - len(age)] + age
