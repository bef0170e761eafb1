"""The back end for WiFi of a Linux driver: what its counters and rates say of loss and capacity. Opens nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from .model import Neighbour, Reading
from .nl80211 import Station
from .wifi_rates import Rate, capacity_kbps


class WifiSource(Protocol):
    """Where surveys and stations come from: the kernel, or a recording of it."""

    def survey(self) -> tuple[int, int]:
        """Busy and active time of the channel in use, in microseconds; 0 if the driver counts no times."""

    def stations(self) -> tuple[Station, ...]:
        """The stations of the interface."""


@dataclass(frozen=True, slots=True)
class _Capacity:
    """What a station's rates said last: kb/s in both directions, and since when that is so."""

    tx_kbps: int = 0
    rx_kbps: int = 0
    tx_text: str = ""
    tx_s: float = 0.0


class LinuxWifi:
    """The back end of one interface."""

    def __init__(self, source: WifiSource) -> None:
        self._source = source
        self._before: dict[str, Station] = {}
        self._capacities: dict[str, _Capacity] = {}

    def read(self, now_s: float) -> Reading:
        """A survey and the stations; loss and retries count what happened since the last reading.

        A station whose rate cannot be read keeps its last capacity, and ``modulation`` says how old that is.
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
        capacity = self._capacity(now, packets / attempts if attempts else 1.0, now_s)
        return Neighbour(
            mac=now.mac,
            tx_capacity_kbps=capacity.tx_kbps,
            rx_capacity_kbps=capacity.rx_kbps,
            tx_loss=min(1.0, failed / packets) if packets else 0.0,
            signal_dbm=now.signal_dbm,
            last_heard_ms=now.inactive_ms,
            modulation=_modulation_text(now.tx, capacity, now_s),
        )

    def _capacity(self, now: Station, success: float, now_s: float) -> _Capacity:
        """What the station's rates say, else what they said last."""
        last = self._capacities.get(now.mac, _Capacity())
        tx_kbps = capacity_kbps(now.tx, now.expected_mbps, success)
        rx_kbps = capacity_kbps(now.rx) or last.rx_kbps
        if tx_kbps:
            found = _Capacity(tx_kbps, rx_kbps, now.tx.text if now.tx else "", now_s)
        else:
            found = _Capacity(last.tx_kbps, rx_kbps, last.tx_text, last.tx_s)
        self._capacities[now.mac] = found
        return found


def _modulation_text(rate: Rate | None, capacity: _Capacity, now_s: float) -> str:
    """At most 64 characters."""
    if capacity.tx_kbps and capacity.tx_s < now_s:
        age = f" ({now_s - capacity.tx_s:.0f} s old)"
        return capacity.tx_text[: 64 - len(age)] + age
    return rate.text[:64] if rate else ""
