"""WiFi of a Linux driver: ``iw dev IF survey dump`` and ``iw dev IF station dump`` (nl80211). Parsers are pure.

The rate on air of an MCS is R = N_SD * N_BPSCS * C * N_SS / T_SYM: data subcarriers, coded bits per subcarrier and
stream, coding rate, streams, duration of a symbol with guard interval. IEEE Std 802.11-2020, 19.5 (HT), 21.5 (VHT),
and 802.11ax-2021, 27.5 (HE).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from .model import Neighbour, RadioError, Reading

# MCS 0..11 per stream: bits per subcarrier, coding rate.
_MCS = ((1, 1 / 2), (2, 1 / 2), (2, 3 / 4), (4, 1 / 2), (4, 3 / 4), (6, 2 / 3), (6, 3 / 4), (6, 5 / 6), (8, 3 / 4),
        (8, 5 / 6), (10, 3 / 4), (10, 5 / 6))  # fmt: skip
_SUBCARRIERS = {
    "HT": {20: 52, 40: 108},
    "VHT": {20: 52, 40: 108, 80: 234, 160: 468},
    "HE": {20: 234, 40: 468, 80: 980, 160: 1960},
}
_SYMBOL_US = {"HT": 3.2, "VHT": 3.2, "HE": 12.8}
_GUARDS_US = {"HT": (0.8, 0.4), "VHT": (0.8, 0.4), "HE": (0.8, 1.6, 3.2)}
_TOP_MCS = {"HT": 7, "VHT": 9, "HE": 11}

# One exchange of an aggregate: DIFS, mean back-off of CWmin 15, preamble, SIFS, block acknowledgement at 24 Mb/s.
EXCHANGE_US = 34 + 7.5 * 9 + 44 + 16 + 32
MAX_AGGREGATE_US = 4000.0  # what most drivers allow, below the 5484 us of the standard
MAX_AGGREGATE_FRAMES = 64
FRAME_PAYLOAD_BYTES = 1500
FRAME_OVERHEAD_BYTES = 44  # MAC header with QoS and CCMP, LLC/SNAP, FCS, delimiter of the aggregate


@dataclass(frozen=True, slots=True)
class Modulation:
    """``standard`` HT, VHT or HE; ``mcs`` per stream (HT's 0..31 is split into mcs and streams before)."""

    standard: str
    mcs: int
    streams: int
    width_mhz: int
    guard_us: float


def ht_modulation(mcs: int, width_mhz: int, guard_us: float) -> Modulation:
    """HT numbers streams and MCS together: 0..31."""
    return Modulation("HT", mcs % 8, mcs // 8 + 1, width_mhz, guard_us)


def phy_rate_mbps(modulation: Modulation) -> float:
    """Rate on air in Mb/s; :class:`RadioError` for what the standard does not have."""
    m = modulation
    subcarriers = _SUBCARRIERS.get(m.standard, {}).get(m.width_mhz)
    if subcarriers is None or not 0 <= m.mcs <= _TOP_MCS[m.standard] or not 1 <= m.streams <= 8:
        raise RadioError(f"no such modulation: {m.standard} MCS {m.mcs}, {m.streams} streams, {m.width_mhz} MHz")
    if m.guard_us not in _GUARDS_US[m.standard]:
        raise RadioError(f"no such guard interval for {m.standard}: {m.guard_us:g} us")
    bits, coding = _MCS[m.mcs]
    return subcarriers * bits * coding * m.streams / (_SYMBOL_US[m.standard] + m.guard_us)


def l2_capacity_mbps(phy_mbps: float, *, aggregates: bool = True, success: float = 1.0) -> float:
    """L2 payload rate in Mb/s of one saturated sender: full frames, aggregated as far as a driver would.

    ``success`` is the share of transmissions that need no retry. Legacy rates do not aggregate.
    """
    if phy_mbps <= 0:
        return 0.0
    frame_us = (FRAME_PAYLOAD_BYTES + FRAME_OVERHEAD_BYTES) * 8 / phy_mbps
    frames = max(1, min(MAX_AGGREGATE_FRAMES, int(MAX_AGGREGATE_US / frame_us))) if aggregates else 1
    return success * frames * FRAME_PAYLOAD_BYTES * 8 / (EXCHANGE_US + frames * frame_us)


MAX_STATIONS = 1024
# iw rounds to 0.1 Mb/s; drivers round once more.
RATE_TOLERANCE = 0.02
_STATION = re.compile(r"Station ([0-9a-f]{2}(?::[0-9a-f]{2}){5}) \(on (\S+)\)", re.IGNORECASE)
_FIELD = re.compile(r"\s+([a-z][a-z /]*):\s*(.*)", re.IGNORECASE)
_RATE = re.compile(r"(\d+(?:\.\d+)?) MBit/s(.*)")


@dataclass(frozen=True, slots=True)
class Rate:
    """A bit rate as iw prints it; ``consistent`` is False if it is not the one of its own MCS."""

    phy_mbps: float
    text: str
    modulated: bool
    consistent: bool = True


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


def parse_rate(text: str) -> Rate | None:
    """``866.7 MBit/s VHT-MCS 9 80MHz short GI VHT-NSS 2`` and the like; None for ``(unknown)``."""
    match = _RATE.match(text.strip())
    if match is None:
        return None
    rate, words = float(match[1]), match[2].strip()
    modulation = _modulation(words)
    if modulation is None:
        return Rate(rate, words or f"{rate:g} Mb/s", "MCS" in words)
    try:
        exact = phy_rate_mbps(modulation)
    except RadioError:
        return Rate(rate, words, True, consistent=False)
    return Rate(rate, words, True, consistent=abs(exact - rate) <= RATE_TOLERANCE * exact)


def _modulation(words: str) -> Modulation | None:
    """The modulation behind a rate; None for legacy rates and for standards without a table here (EHT)."""
    width = re.search(r"\b(\d+)MHz", words)
    width_mhz = int(width[1]) if width else 20
    guard_us = 0.4 if "short GI" in words else 0.8
    if he := re.search(r"\bHE-MCS (\d+)", words):
        guard = re.search(r"HE-GI ([012])\b", words)
        guard_us = _GUARDS_US["HE"][int(guard[1]) if guard else 0]
        return Modulation("HE", int(he[1]), _streams("HE", words), width_mhz, guard_us)
    if vht := re.search(r"\bVHT-MCS (\d+)", words):
        return Modulation("VHT", int(vht[1]), _streams("VHT", words), width_mhz, guard_us)
    if ht := re.search(r"(?<![-\w])MCS (\d+)", words):
        return ht_modulation(int(ht[1]), width_mhz, guard_us)
    return None


def _streams(standard: str, words: str) -> int:
    match = re.search(rf"\b{standard}-NSS (\d+)", words)
    return int(match[1]) if match else 1


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


def capacity_kbps(rate: Rate | None, expected_mbps: float | None = None, success: float = 1.0) -> int:
    """L2 payload capacity. The driver's own expectation, where it has one, knows the retries already."""
    if expected_mbps is not None:
        return round(1000 * expected_mbps)
    if rate is None or not rate.consistent:
        return 0
    return round(1000 * l2_capacity_mbps(rate.phy_mbps, aggregates=rate.modulated, success=success))


class LinuxWifi:
    """The back end; ``run`` executes a command and returns its output (so that tests can read captured ones)."""

    def __init__(self, interface: str, run: Callable[[list[str]], str]) -> None:
        self._interface = interface
        self._run = run
        self._before: dict[str, Station] = {}

    def read(self, now_s: float) -> Reading:
        """Two dumps; loss and retries count what happened since the last reading."""
        busy_us, active_us = parse_survey(self._run(["iw", "dev", self._interface, "survey", "dump"]))
        stations = parse_stations(self._run(["iw", "dev", self._interface, "station", "dump"]))
        neighbours = tuple(self._neighbour(station) for station in stations)
        self._before = {station.mac: station for station in stations}
        return Reading(busy_us, active_us, neighbours)

    def _neighbour(self, now: Station) -> Neighbour:
        before = self._before.get(now.mac)
        if before is None or now.tx_packets < before.tx_packets:
            packets, retries, failed = now.tx_packets, now.tx_retries, now.tx_failed
        else:
            packets = now.tx_packets - before.tx_packets
            retries = max(0, now.tx_retries - before.tx_retries)
            failed = max(0, now.tx_failed - before.tx_failed)
        attempts = packets + retries
        return Neighbour(
            mac=now.mac,
            tx_capacity_kbps=capacity_kbps(now.tx, now.expected_mbps, packets / attempts if attempts else 1.0),
            rx_capacity_kbps=capacity_kbps(now.rx),
            tx_loss=min(1.0, failed / packets) if packets else 0.0,
            signal_dbm=now.signal_dbm,
            last_heard_ms=now.inactive_ms,
            modulation=now.tx.text[:64] if now.tx else "",
        )
