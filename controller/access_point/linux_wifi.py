"""WiFi of a Linux driver: ``iw dev IF survey dump`` and ``iw dev IF station dump`` (nl80211). Parsers are pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from .model import Neighbour, RadioError, Reading
from .wifi_rates import Rate, capacity_kbps, parse_rate

MAX_STATIONS = 1024
_STATION = re.compile(r"Station ([0-9a-f]{2}(?::[0-9a-f]{2}){5}) \(on (\S+)\)", re.IGNORECASE)
_FIELD = re.compile(r"\s+([a-z][a-z /]*):\s*(.*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Station:
    """One station; ``expected_mbps`` is the driver's own estimate (minstrel), retries and failures included."""

    mac: str
    inactive_ms: int
    signal_dbm: int | None
    tx_packets: int
    tx_retries: int
    tx_failed: int
    tx: Rate | None
    rx: Rate | None
    expected_mbps: float | None


def parse_survey(text: str) -> tuple[int, int]:
    """Busy and active time of the channel marked ``[in use]``; 0 if there is none, or the driver counts no times.

    They are the driver's counters, in microseconds; a scan or a change of channel resets them.
    """
    times = ("channel busy time", "channel active time")
    for block in text.split("Survey data from ")[1:]:
        fields = _fields(block)
        if "[in use]" in fields.get("frequency", ""):
            busy_us, active_us = (int(_number(fields.get(key, "0 ms"), "ms", key) * 1000) for key in times)
            return (busy_us, active_us) if all(key in fields for key in times) else (0, 0)
    return 0, 0


def parse_stations(text: str) -> tuple[Station, ...]:
    """All stations; raises :class:`RadioError` for a value without its unit."""
    found = list(_STATION.finditer(text))[:MAX_STATIONS]
    ends = [*(match.start() for match in found[1:]), len(text)][: len(found)]
    return tuple(_station(match, text[match.end() : end]) for match, end in zip(found, ends, strict=True))


def _station(head: re.Match[str], body: str) -> Station:
    fields = _fields(body)
    signal = fields.get("signal avg", fields.get("signal"))
    expected = fields.get("expected throughput")
    return Station(
        mac=head[1].lower(),
        inactive_ms=int(_number(fields.get("inactive time", "0 ms"), "ms", "inactive time")),
        signal_dbm=None if signal is None else int(_number(signal.split(" ")[0] + " dBm", "dBm", "signal")),
        tx_packets=_count(fields, "tx packets"),
        tx_retries=_count(fields, "tx retries"),
        tx_failed=_count(fields, "tx failed"),
        tx=parse_rate(fields.get("tx bitrate", "")),
        rx=parse_rate(fields.get("rx bitrate", "")),
        expected_mbps=None if expected is None else _number(expected, "Mbps", "expected throughput"),
    )


def _fields(block: str) -> dict[str, str]:
    matches = (_FIELD.fullmatch(line) for line in block.splitlines())
    return {match[1].strip(): match[2].strip() for match in matches if match}


def _number(text: str, unit: str, what: str) -> float:
    """The number of ``"<number> <unit>..."``; refuses another unit rather than be wrong by powers of ten."""
    match = re.match(rf"(-?\d+(?:\.\d+)?)\s*{re.escape(unit)}\b", text)
    if match is None:
        raise RadioError(f"iw: {what}: expected a number of {unit}, got {text[:40]!a}")
    return float(match[1])


def _count(fields: dict[str, str], name: str) -> int:
    text = fields.get(name, "0")
    if not text.isdecimal():
        raise RadioError(f"iw: {name}: expected a count, got {text[:40]!a}")
    return int(text)


@dataclass(frozen=True, slots=True)
class _Capacity:
    """What a station's rates said last: kb/s in both directions, and since when that is so."""

    tx_kbps: int = 0
    rx_kbps: int = 0
    tx_text: str = ""
    tx_s: float = 0.0


class LinuxWifi:
    """The back end; ``run`` executes a command and returns its output (so that tests can read captured ones)."""

    def __init__(self, interface: str, run: Callable[[list[str]], str]) -> None:
        self._interface = interface
        self._run = run
        self._before: dict[str, Station] = {}
        self._capacities: dict[str, _Capacity] = {}

    def read(self, now_s: float) -> Reading:
        """Two dumps; loss and retries count what happened since the last reading.

        A station whose rate cannot be read keeps its last capacity, and ``modulation`` says how old that is.
        """
        busy_us, active_us = parse_survey(self._run(["iw", "dev", self._interface, "survey", "dump"]))
        stations = parse_stations(self._run(["iw", "dev", self._interface, "station", "dump"]))
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
