"""Rates of IEEE 802.11: from an MCS to the rate on air, from that to what is left for L2 payload.

    R = N_SD * N_BPSCS * C * N_SS / T_SYM

data subcarriers, coded bits per subcarrier and stream, coding rate, streams, duration of a symbol with guard interval:
IEEE Std 802.11-2020, 19.5 (HT), 21.5 (VHT), and 802.11ax-2021, 27.5 (HE). Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from hyroads.controller.radio.model import RadioError

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
LEGACY_TOP_MBPS = 54.0


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
