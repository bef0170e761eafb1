"""Power line: the output of open-plc-utils (``plcstat -t``, ``plcstat -d tx``). Parsers are pure.

Throughput T is linear in the bit loading estimate of a tone map (IEEE Std 1901-2010, 13.2.8.1.4): BLE = 1.7 T - 0.65
in Mb/s for UDP over HomePlug AV, measured by C. Vlachou, S. Henri, P. Thiran, "Electri-Fi Your Data", IMC 2015. The
adapters' own average PHY rate is taken as BLE.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from .model import Neighbour, RadioError, Reading

BLE_PER_THROUGHPUT = 1.7
BLE_OFFSET_MBPS = -0.65
MAX_STATIONS = 254  # TEIs of one network
_MAC = r"[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5}"
_ROW = re.compile(rf"\s*(LOC|REM)\s+(STA|CCO|PCO)\s+(\d+)\s+({_MAC})\s+({_MAC})\s+(\d+|n/a)\s+(\d+|n/a)\b")
_TX = re.compile(r"\s*TX\s+\d+\s+\d+\s+[\d.]+%\s+(\d+)\s+(\d+)(?:\s+\d+)?\s+[\d.]+%")


@dataclass(frozen=True, slots=True)
class PlcStation:
    """A row of ``plcstat -t``: the adapter, the address behind it, average PHY rates in Mb/s (None: the local one)."""

    mac: str
    bridged_mac: str
    local: bool
    tx_mbps: int | None
    rx_mbps: int | None


@dataclass(frozen=True, slots=True)
class TxCounts:
    """The TX row of ``plcstat -d tx``: frames on the line, since the adapter's start."""

    frames_acked: int
    frames_failed: int


def parse_stations(text: str) -> tuple[PlcStation, ...]:
    """The table of ``plcstat -t`` (also ``ampstat -t``, ``int6kstat -t``); raises RadioError if it is none."""
    rows = [match for match in map(_ROW.match, text.splitlines()) if match]
    if not rows and text.strip():
        raise RadioError(f"plcstat: expected a table of stations, got {text.strip()[:40]!a}")
    return tuple(
        PlcStation(row[4].lower(), row[5].lower(), row[1] == "LOC", _rate(row[6]), _rate(row[7]))
        for row in rows[:MAX_STATIONS]
    )


def parse_tx(text: str) -> TxCounts | None:
    """The TX row; None if there is none."""
    row = next((match for match in map(_TX.match, text.splitlines()) if match), None)
    return None if row is None else TxCounts(int(row[1]), int(row[2]))


def l2_capacity_mbps(ble: float) -> float:
    """L2 payload rate in Mb/s behind a BLE in Mb/s."""
    return max(0.0, (ble - BLE_OFFSET_MBPS) / BLE_PER_THROUGHPUT) if ble > 0 else 0.0


def _rate(text: str) -> int | None:
    return None if text == "n/a" else int(text)


class Plc:
    """The back end. ``run`` executes a command; ``device`` is the Ethernet interface that the adapter hangs on.

    The adapters do not tell how busy the line is: ``active_us`` stays 0. A station in the table was heard by the
    adapter, which keeps it for a while; nothing finer is known, so it counts as heard at the time of reading.
    """

    def __init__(self, device: str, run: Callable[[list[str]], str]) -> None:
        self._device = device
        self._run = run
        self._before: dict[str, TxCounts] = {}

    def read(self, now_s: float) -> Reading:
        """The stations of the network, and the counters towards each."""
        stations = parse_stations(self._run(["plcstat", "-t", "-i", self._device, "local"]))
        local = next((station.mac for station in stations if station.local), None)
        if local is None:
            raise RadioError(f"plcstat: no adapter answers on {self._device}")
        return Reading(0, 0, tuple(self._neighbour(s, local) for s in stations if not s.local))

    def _neighbour(self, station: PlcStation, local: str) -> Neighbour:
        counts = parse_tx(self._run(["plcstat", "-q", "-d", "tx", "-p", station.mac, "-i", self._device, local]))
        loss = self._loss(station.mac, counts) if counts else 0.0
        tx, rx = station.tx_mbps or 0, station.rx_mbps or 0
        return Neighbour(
            # The network knows the node by the host's address behind the adapter, where the adapter has learned one.
            mac=station.bridged_mac if station.bridged_mac not in _NO_ADDRESS else station.mac,
            tx_capacity_kbps=round(1000 * l2_capacity_mbps(tx)),
            rx_capacity_kbps=round(1000 * l2_capacity_mbps(rx)),
            tx_loss=loss,
            modulation=f"BLE {tx}",
        )

    def _loss(self, mac: str, now: TxCounts) -> float:
        before = self._before.get(mac)
        if before is None or now.frames_acked < before.frames_acked or now.frames_failed < before.frames_failed:
            before = TxCounts(0, 0)
        self._before[mac] = now
        acked, failed = now.frames_acked - before.frames_acked, now.frames_failed - before.frames_failed
        return failed / (acked + failed) if acked + failed > 0 else 0.0


_NO_ADDRESS = {"ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00"}
