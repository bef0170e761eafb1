"""Power line: what adapters report by management messages as readings. Pure; a :class:`PlcReader` does the I/O.

Throughput T is linear in the bit loading estimate of a tone map (IEEE Std 1901-2010, 13.2.8.1.4): BLE = 1.7 T - 0.65
in Mb/s for UDP over HomePlug AV 200, measured by C. Vlachou, S. Henri, P. Thiran, "Electri-Fi Your Data", IMC 2015. No
such measurement is published for other families of chips: theirs is the same line, marked as assumed. The adapters'
own average PHY rate is taken as BLE.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from .homeplug_events import RxCounts, TxCounts
from .model import Neighbour, PowerLineEnd, RadioError, Reading
from .plc_busy import BusyMeter, BusyView, LinkCounts

MOST_PHY_MBPS = 2024
"""HomePlug AV2 with two streams."""


@dataclass(frozen=True, slots=True)
class Family:
    """How BLE becomes L2 payload: BLE = ``ble_per_throughput`` * T + ``ble_offset_mbps``.

    ``measured`` is False where the line of HomePlug AV 200 is assumed. ``most_mbps`` is what the Ethernet port or the
    protocol of the chip carries at most, ``most_phy_mbps`` the greatest rate that its standard has.
    """

    name: str
    measured: bool
    most_mbps: float
    ble_per_throughput: float = 1.7
    ble_offset_mbps: float = -0.65
    most_phy_mbps: int = MOST_PHY_MBPS


AV_200 = Family("HomePlug AV 200", True, 100.0)
AV_500 = Family("HomePlug AV 500", False, 1000.0)
GREEN_PHY = Family("HomePlug Green PHY", False, 10.0)
AV2 = Family("HomePlug AV2", False, 1000.0)
GHN = Family("G.hn", False, 1000.0, most_phy_mbps=4000)
UNKNOWN_FAMILY = Family("unknown HomePlug chip", False, 1000.0)
FAMILIES: Mapping[int, Family] = MappingProxyType(
    {0x01: AV_200, 0x02: AV_200, 0x03: AV_200, 0x05: AV_200}  # INT6000, INT6300, INT6400, AR6405
    | {0x04: AV_500, 0x20: AV_500, 0x21: AV_500}  # AR7400, QCA7420 and QCA7450, QCA6410
    | {0x22: GREEN_PHY, 0x30: AV2}  # QCA7000, QCA7500
)
"""By the class of chip that VS_SW_VER reports."""


@dataclass(frozen=True, slots=True)
class PlcStation:
    """Another adapter of the network: the address behind it ("" if not known), average PHY rates, counters.

    ``tei`` is its number in the network, 0 if not known.
    """

    mac: str
    bridged_mac: str = ""
    tx_mbps: int = 0
    rx_mbps: int = 0
    tx: TxCounts | None = None
    rx: RxCounts | None = None
    tei: int = 0
    slot_ble_mbps: tuple[float, ...] = ()
    """BLE by tone-map slot, where the adapter shows its tone maps."""


@dataclass(frozen=True, slots=True)
class PlcView:
    """What an adapter reports at one time; ``device`` is its class of chip (None: it does not say), from which its
    family follows unless ``family`` says it.

    ``others`` are the links between other adapters, where their counters are needed and these answer.
    """

    adapter: str
    device: int | None
    stations: tuple[PlcStation, ...]
    busy: BusyView
    others: tuple[LinkCounts, ...] = ()
    family: Family | None = None


class PlcReader(Protocol):
    """Reads the adapter behind one Ethernet interface."""

    def view(self, now_s: float) -> PlcView:
        """What the adapter reports now; raises :class:`RadioError` with one line that says what is wrong."""


def l2_capacity_mbps(ble: float, family: Family = AV_200) -> float:
    """L2 payload rate in Mb/s behind a BLE in Mb/s."""
    if ble <= 0:
        return 0.0
    return min(family.most_mbps, max(0.0, (ble - family.ble_offset_mbps) / family.ble_per_throughput))


class Plc:
    """The back end of one interface.

    A station was heard by the adapter, which keeps it for a while; nothing finer is known, so it counts as heard at the
    time of reading.
    """

    def __init__(self, reader: PlcReader) -> None:
        self._reader = reader
        self._before: dict[str, TxCounts] = {}
        self._blocks: dict[str, _Blocks] = {}
        self._meter = BusyMeter()

    def read(self, now_s: float) -> Reading:
        """The stations of the network, and how busy the line is."""
        view = self._reader.view(now_s)
        of_chip = UNKNOWN_FAMILY if view.device is None else FAMILIES.get(view.device, UNKNOWN_FAMILY)
        family = view.family or of_chip
        for station in view.stations:
            if max(station.tx_mbps, station.rx_mbps) > family.most_phy_mbps:
                standard = "G.hn" if family is GHN else "HomePlug"
                raise RadioError(
                    f"adapter {view.adapter} reports {max(station.tx_mbps, station.rx_mbps)} Mb/s for {station.mac}, "
                    f"more than {standard} can carry ({family.most_phy_mbps})"
                )
        links = [*(LinkCounts(s.mac, s.tx, s.rx, s.tx_mbps, s.rx_mbps) for s in view.stations), *view.others]
        busy_us, active_us, source = self._meter.add(now_s, view.busy, links)
        self._blocks = {s.mac: _later(self._blocks.get(s.mac), s.tx, now_s) for s in view.stations if s.tx is not None}
        neighbours = tuple(self._neighbour(station, family) for station in view.stations)
        self._before = {station.mac: station.tx for station in view.stations if station.tx is not None}
        return Reading(busy_us, active_us, neighbours, source, view.adapter)

    def _neighbour(self, station: PlcStation, family: Family) -> Neighbour:
        # The network knows the node by the host's address behind the adapter, where the adapter has learned one.
        mac = station.bridged_mac if station.bridged_mac not in _NO_ADDRESS else station.mac
        assumed = "" if family.measured else f", {family.name} as AV 200"
        rates = station.slot_ble_mbps
        slots = f"{min(rates):.0f}-{max(rates):.0f}" if rates else ""
        return Neighbour(
            mac=mac,
            tx_capacity_kbps=round(1000 * l2_capacity_mbps(station.tx_mbps, family)),
            rx_capacity_kbps=round(1000 * l2_capacity_mbps(station.rx_mbps, family)),
            tx_loss=self._loss(station),
            modulation=f"BLE {station.tx_mbps}{' slots ' + slots if slots else ''}{_pberr(station.tx)}{assumed}"[:64],
            plc=PowerLineEnd(station.mac, self._block_errors(station), station.slot_ble_mbps),
        )

    def _block_errors(self, station: PlcStation) -> float | None:
        known = self._blocks.get(station.mac)
        return None if known is None else known.errors

    def _loss(self, station: PlcStation) -> float:
        now = station.tx
        if now is None:
            return 0.0
        before = self._before.get(station.mac)
        if before is None or now.mpdus_acked < before.mpdus_acked or now.mpdus_failed < before.mpdus_failed:
            before = TxCounts(0, 0, 0, 0, 0)
        acked, failed = now.mpdus_acked - before.mpdus_acked, now.mpdus_failed - before.mpdus_failed
        return failed / (acked + failed) if acked + failed > 0 else 0.0


BLOCKS_WITHIN_S = 1.0
"""The share of blocks that can't be decoded is that of a time at least this long."""


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Counters that were read at ``time_s``; ``errors`` is the share of failed blocks before that (None: no blocks)."""

    time_s: float
    passed: int
    failed: int
    errors: float | None


def _later(before: _Blocks | None, tx: TxCounts, now_s: float) -> _Blocks:
    """What is known after a reading of counters."""
    if before is not None and now_s - before.time_s < BLOCKS_WITHIN_S:
        return before
    passed, failed = tx.pbs_passed, tx.pbs_failed
    if before is not None and passed >= before.passed and failed >= before.failed:
        passed, failed = passed - before.passed, failed - before.failed
    errors = failed / (passed + failed) if passed + failed else None if before is None else before.errors
    return _Blocks(now_s, tx.pbs_passed, tx.pbs_failed, errors)


def _pberr(tx: TxCounts | None) -> str:
    """The share of blocks that the receiver could not decode, since the adapter's start."""
    if tx is None or tx.pbs_passed + tx.pbs_failed == 0:
        return ""
    return f" PBerr {100 * tx.pbs_failed / (tx.pbs_passed + tx.pbs_failed):.1f}%"


_NO_ADDRESS = {"", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00"}
