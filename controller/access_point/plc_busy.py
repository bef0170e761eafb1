"""How busy a power line is: from the delimiters that an adapter hears, else from its counters. Pure.

Delimiters give the airtime of every station on the line, also of other networks. Counters give that of the adapter's
own network alone, as far as its adapters answer, so they are a lower bound. Times are those of IEEE Std 1901-2010.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .homeplug_events import (
    BEACON,
    FRAME_LENGTH_UNIT_US,
    RTS_CTS,
    SELECTIVE_ACK,
    SOUND,
    START_OF_FRAME,
    Delimiter,
    RxCounts,
    TxCounts,
)

SNIFFER, COUNTERS, NONE = "sniffer", "counters", "none"
DELIMITER_US = 110.48
"""Preamble and frame control."""
CONTENTION_SPACE_US = 100.0
"""From the end of an exchange to the next."""
RESPONSE_SPACE_US = 140.0
"""From the end of a payload to its acknowledgement."""
BEACON_PAYLOAD_US = 288.0
BLOCK_BITS = 8 * 520
SILENT_SNIFFER_S = 1.0
"""A coordinator sends a beacon each 40 ms: an adapter that indicates nothing for this long does not sniff."""
LONGEST_STEP_S = 30.0


def delimiter_us(delimiter: Delimiter) -> float:
    """For how long a delimiter and what follows it occupy the line, in microseconds."""
    return _AFTER_US.get(delimiter.kind, 0.0) + DELIMITER_US + _payload_us(delimiter)


_AFTER_US = {SELECTIVE_ACK: CONTENTION_SPACE_US, RTS_CTS: CONTENTION_SPACE_US, SOUND: RESPONSE_SPACE_US} | {
    BEACON: BEACON_PAYLOAD_US + CONTENTION_SPACE_US
}


def _payload_us(delimiter: Delimiter) -> float:
    return delimiter.frame_length * FRAME_LENGTH_UNIT_US if delimiter.kind == START_OF_FRAME else 0.0


@dataclass(frozen=True, slots=True)
class BusyView:
    """What the sniffer indicated since the last view: airtime, how many delimiters, and whether some were lost."""

    sniffing: bool = False
    heard_us: float = 0.0
    delimiters: int = 0
    lost: bool = False


@dataclass(frozen=True, slots=True)
class LinkCounts:
    """Counters of the links to and from one station, and its PHY rates in Mb/s."""

    mac: str
    tx: TxCounts | None
    rx: RxCounts | None
    tx_mbps: float
    rx_mbps: float


class BusyMeter:
    """Busy and observed time since the start, in microseconds, by the best source that there is now."""

    def __init__(self) -> None:
        self._last_s: float | None = None
        self._heard_s = float("-inf")
        self._links: dict[str, tuple[int, int, int, int]] = {}
        self._busy_us = 0.0
        self._active_us = 0.0

    def add(self, now_s: float, view: BusyView, links: Sequence[LinkCounts]) -> tuple[int, int, str]:
        """Takes what was read at ``now_s``; returns (busy_us, active_us, source).

        Time in which indications were lost, or over which nothing was read for 30 s, is not counted as observed.
        """
        before_s, self._last_s = self._last_s, now_s
        counted_us = self._counted_us(links)
        if view.sniffing and view.delimiters:
            self._heard_s = now_s
        sniffs = view.sniffing and now_s - self._heard_s <= SILENT_SNIFFER_S
        source = SNIFFER if sniffs else COUNTERS if any(link.tx or link.rx for link in links) else NONE
        step_s = 0.0 if before_s is None else now_s - before_s
        usable = 0 < step_s <= LONGEST_STEP_S and not (sniffs and view.lost)
        busy_us = view.heard_us if sniffs else counted_us
        if usable and source != NONE and busy_us is not None:
            self._active_us += step_s * 1e6
            self._busy_us += min(busy_us, step_s * 1e6)
        return int(self._busy_us), int(self._active_us), source

    def _counted_us(self, links: Sequence[LinkCounts]) -> float | None:
        """Airtime of own links since the last reading; None if there is no reading to compare with."""
        before, self._links = self._links, {link.mac: _counts(link) for link in links}
        if not before:
            return None
        total_us = 0.0
        for link in links:
            old, now = before.get(link.mac), self._links[link.mac]
            if old is None or any(new < was for new, was in zip(now, old, strict=True)):
                continue
            tx_mpdus, tx_blocks, rx_mpdus, rx_blocks = (new - was for new, was in zip(now, old, strict=True))
            total_us += _exchanges_us(tx_mpdus, tx_blocks, link.tx_mbps)
            total_us += _exchanges_us(rx_mpdus, rx_blocks, link.rx_mbps)
        return total_us


def _counts(link: LinkCounts) -> tuple[int, int, int, int]:
    tx, rx = link.tx, link.rx
    sent = (tx.mpdus_acked + tx.mpdus_collided + tx.mpdus_failed, tx.pbs_passed + tx.pbs_failed) if tx else (0, 0)
    received = (rx.mpdus_acked + rx.mpdus_failed, rx.pbs_passed + rx.pbs_failed) if rx else (0, 0)
    return *sent, *received


def _exchanges_us(mpdus: int, blocks: int, ble_mbps: float) -> float:
    """Frames with their acknowledgements and spaces, and blocks at the bit loading estimate."""
    if ble_mbps <= 0:
        return 0.0
    fixed_us = 2 * DELIMITER_US + RESPONSE_SPACE_US + CONTENTION_SPACE_US
    return mpdus * fixed_us + blocks * BLOCK_BITS / ble_mbps
