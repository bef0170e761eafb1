"""Rates of IEEE 802.11 radios: from a modulation to the rate on air and the capacity for payload. Pure.

The rate on air of a modulation is R = N_SD * N_BPSCS * C * N_SS / T_SYM: data subcarriers, coded bits per subcarrier
and stream, coding rate, streams, and the duration of a symbol with its guard interval. IEEE Std 802.11-2020, 19.5 (HT)
and 21.5 (VHT), IEEE Std 802.11ax-2021, 27.5 (HE), IEEE Std 802.11be-2024, 36.5 (EHT).
"""

from __future__ import annotations

from dataclasses import dataclass

from .model import RadioError

# MCS 0..13 per stream: bits per subcarrier, coding rate.
_MCS = ((1, 1 / 2), (2, 1 / 2), (2, 3 / 4), (4, 1 / 2), (4, 3 / 4), (6, 2 / 3), (6, 3 / 4), (6, 5 / 6), (8, 3 / 4),
        (8, 5 / 6), (10, 3 / 4), (10, 5 / 6), (12, 3 / 4), (12, 5 / 6))  # fmt: skip
_HE_WIDTHS = {20: 234, 40: 468, 80: 980, 160: 1960}
_SUBCARRIERS = {
    "HT": {20: 52, 40: 108},
    "VHT": {20: 52, 40: 108, 80: 234, 160: 468},
    "HE": _HE_WIDTHS,
    "EHT": {**_HE_WIDTHS, 320: 3920},
}
# Data subcarriers of the resource units of OFDMA, by the number that nl80211 gives them.
_UNIT_SUBCARRIERS = {
    "HE": (24, 48, 102, 234, 468, 980, 1960),
    "EHT": (24, 48, 72, 102, 126, 234, 468, 702, 980, 1448, 1682, 1960, 2428, 2940, 3408, 3920),
}
_SYMBOL_US = {"HT": 3.2, "VHT": 3.2, "HE": 12.8, "EHT": 12.8}
LONG_GUARDS_US = (0.8, 1.6, 3.2)
"""Of HE and EHT, by the number that nl80211 gives them."""
_GUARDS_US = {"HT": (0.8, 0.4), "VHT": (0.8, 0.4), "HE": LONG_GUARDS_US, "EHT": LONG_GUARDS_US}
# VHT's 10 and 11 are 1024-QAM, which 802.11ac does not have and several vendors do.
_TOP_MCS = {"HT": 7, "VHT": 11, "HE": 11, "EHT": 13}
_MOST_STREAMS = {"HT": 4, "VHT": 8, "HE": 8, "EHT": 8}
_DCM_MCS = (0, 1, 3, 4)
HT_DUPLICATE_MCS = 32
HT_DUPLICATE_MBPS = {0.8: 6.0, 0.4: 6.7}
"""By guard interval in us: MCS 32, the same symbols in both halves of 40 MHz (IEEE Std 802.11-2020, table 19-38)."""

# One exchange: DIFS, mean back-off of CWmin 15, preamble, SIFS, preamble of the acknowledgement at 24 Mb/s.
EXCHANGE_US = 34 + 7.5 * 9 + 44 + 16 + 20
BLOCK_ACK_BYTES = 28  # without its bitmap
BLOCK_ACK_MBPS = 24.0
MAX_AGGREGATE_US = 4000.0  # what most drivers allow, below the 5484 us of the standard
FRAME_PAYLOAD_BYTES = 1500
FRAME_OVERHEAD_BYTES = 44  # MAC header with QoS and CCMP, LLC/SNAP, FCS, delimiter of the aggregate

RATE_TOLERANCE = 0.02
"""nl80211 has rates in units of 0.1 Mb/s, and drivers round before that."""


@dataclass(frozen=True, slots=True)
class Aggregation:
    """The largest aggregate (A-MPDU) of a standard: in frames, and in bytes."""

    frames: int
    size_bytes: int


AGGREGATIONS = {
    "": Aggregation(1, 4095),
    "HT": Aggregation(64, 65_535),
    "VHT": Aggregation(64, 1_048_575),
    "HE": Aggregation(256, 6_500_631),
    "EHT": Aggregation(1024, 15_523_200),
}
"""By standard; ``""``: rates without an MCS (802.11a, b, g). Frames: the window of a block acknowledgement. Bytes: IEEE
Std 802.11-2020, table 9-34 and 9.7; 802.11ax-2021, 26.6; 802.11be-2024, 35.4."""


@dataclass(frozen=True, slots=True)
class Modulation:
    """How a frame is sent.

    ``standard`` is HT, VHT, HE or EHT, ``mcs`` counts per stream (HT's 0..31 is split before). ``unit`` is the number
    of an OFDMA resource unit in nl80211, None for the whole channel. ``is_dual_carrier``: each bit goes on two
    carriers (DCM), at half the rate.
    """

    standard: str
    mcs: int
    streams: int
    width_mhz: int
    guard_us: float
    unit: int | None = None
    is_dual_carrier: bool = False

    @property
    def text(self) -> str:
        """For people, such as ``HE-MCS 11 80MHz HE-NSS 2 GI 0.8us``."""
        mcs = f"MCS {self.mcs + 8 * (self.streams - 1)}" if self.standard == "HT" else f"{self.standard}-MCS {self.mcs}"
        parts = [mcs, f"{self.width_mhz}MHz" if self.unit is None else f"RU {self.unit}"]
        if self.standard != "HT":
            parts.append(f"{self.standard}-NSS {self.streams}")
        parts.append(f"GI {self.guard_us:g}us")
        return " ".join([*parts, "DCM"] if self.is_dual_carrier else parts)


@dataclass(frozen=True, slots=True)
class Rate:
    """A bit rate that a driver reports; ``text`` describes its modulation.

    ``standard`` is a key of :data:`AGGREGATIONS`. ``is_consistent`` is False if the rate is not the one of its own
    modulation; a rate whose modulation is not known here has nothing that it could contradict.
    """

    phy_mbps: float
    text: str
    standard: str
    is_consistent: bool = True


def ht_modulation(mcs: int, width_mhz: int, guard_us: float) -> Modulation:
    """HT numbers streams and MCS together: 0..31, and 32, which phy_rate_mbps does not have."""
    return Modulation("HT", mcs % 8, mcs // 8 + 1, width_mhz, guard_us)


def phy_rate_mbps(modulation: Modulation) -> float:
    """Rate on air in Mb/s; :class:`RadioError` for what the standard does not have."""
    m = modulation
    subcarriers = _subcarriers(m)
    if subcarriers is None or not 0 <= m.mcs <= _TOP_MCS[m.standard] or not 1 <= m.streams <= _MOST_STREAMS[m.standard]:
        raise RadioError(f"no such modulation: {m.standard} MCS {m.mcs}, {m.streams} streams, {m.width_mhz} MHz")
    if m.guard_us not in _GUARDS_US[m.standard]:
        raise RadioError(f"no such guard interval for {m.standard}: {m.guard_us:g} us")
    if m.is_dual_carrier and (m.standard != "HE" or m.mcs not in _DCM_MCS or m.streams > 2):
        raise RadioError(f"no dual carrier modulation for {m.standard} MCS {m.mcs}, {m.streams} streams")
    bits, coding = _MCS[m.mcs]
    carriers = subcarriers / 2 if m.is_dual_carrier else subcarriers
    return carriers * bits * coding * m.streams / (_SYMBOL_US[m.standard] + m.guard_us)


def _subcarriers(m: Modulation) -> int | None:
    if m.unit is None:
        return _SUBCARRIERS.get(m.standard, {}).get(m.width_mhz)
    units = _UNIT_SUBCARRIERS.get(m.standard, ())
    return units[m.unit] if 0 <= m.unit < len(units) else None


def l2_capacity_mbps(phy_mbps: float, standard: str = "", success: float = 1.0) -> float:
    """L2 payload rate in Mb/s of one saturated sender: full frames, aggregated as far as standard and driver allow.

    ``standard`` is a key of :data:`AGGREGATIONS`, ``success`` the share of transmissions that need no retry.
    """
    if phy_mbps <= 0:
        return 0.0
    frame_bytes, most = FRAME_PAYLOAD_BYTES + FRAME_OVERHEAD_BYTES, AGGREGATIONS[standard]
    frame_us = frame_bytes * 8 / phy_mbps
    frames = max(1, min(most.frames, most.size_bytes // frame_bytes, int(MAX_AGGREGATE_US / frame_us)))
    return success * frames * FRAME_PAYLOAD_BYTES * 8 / (EXCHANGE_US + _acknowledgement_us(most) + frames * frame_us)


def _acknowledgement_us(most: Aggregation) -> float:
    """Time of a block acknowledgement without its preamble; its bitmap has a bit for each frame of the window."""
    return (BLOCK_ACK_BYTES + max(8, most.frames // 8)) * 8 / BLOCK_ACK_MBPS


def rate_of(mbps: float, standard: str, modulation: Modulation | None) -> Rate:
    """A rate that a driver reports, checked against the rate of its own modulation.

    ``mbps`` is the rate on air, ``standard`` a key of :data:`AGGREGATIONS`; ``modulation`` is None if there is no
    formula for it.
    """
    if modulation is None:
        return Rate(mbps, f"{standard} {mbps:g} Mb/s".lstrip(), standard)
    try:
        exact = _exact_mbps(modulation)
    except RadioError:
        return Rate(mbps, modulation.text, standard, is_consistent=False)
    return Rate(mbps, modulation.text, standard, exact is None or abs(exact - mbps) <= RATE_TOLERANCE * exact)


def _exact_mbps(modulation: Modulation) -> float | None:
    """None: a modulation without a formula; RadioError: one that the standard does not have."""
    m = modulation
    if m == ht_modulation(HT_DUPLICATE_MCS, m.width_mhz, m.guard_us):
        return HT_DUPLICATE_MBPS[m.guard_us]
    if m.standard == "EHT" and m.mcs in (14, 15):
        return None
    return phy_rate_mbps(m)


def capacity_kbps(rate: Rate | None, expected_mbps: float | None = None, success: float = 1.0) -> int:
    """L2 payload capacity in kb/s; 0 if ``rate`` says nothing.

    ``expected_mbps`` is the driver's own estimate, which knows the retries already; ``success`` is as in
    :func:`l2_capacity_mbps`.
    """
    if expected_mbps is not None:
        return round(1000 * expected_mbps)
    if rate is None or not rate.is_consistent:
        return 0
    return round(1000 * l2_capacity_mbps(rate.phy_mbps, rate.standard, success))
