"""Reads HomePlug AV adapters on a packet socket; the port may be in a bridge or a datapath (``packet_socket``)."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from . import homeplug
from .homeplug import ETHER_TYPE, Fragments
from .homeplug_events import (
    Delimiter,
    Event,
    HomePlugError,
    LinkStats,
    NetworkInfo,
    NetworkStats,
    SnifferState,
    SoftwareVersion,
    StationRates,
    ToneMap,
)
from .model import RadioError
from .packet_socket import packet_socket
from .plc import PlcStation, PlcView
from .plc_busy import SILENT_SNIFFER_S, BusyView, LinkCounts, delimiter_us

PATIENCE_S = 0.3
"""For one answer; adapters take some milliseconds."""
AGAIN_S = 30.0
"""How long a message that was not answered is left out, and a version counts."""
MOST_RATE_V1 = 255
MAX_DETAILED = 16
"""Stations whose counters are read at each reading; each costs a message."""
MAX_REMOTE = 5
"""Stations whose links among each other are read: ten pairs, a message each."""
RATES_AGAIN_S = 5.0
MAX_STATIONS_READ = 256
MOST_WAITING = 8192
RECEIVE_BYTES = 4 << 20
_SOL_PACKET, _PACKET_STATISTICS = 263, 6
_Wanted = TypeVar("_Wanted", bound=Event)


class Port:
    """A packet socket on an Ethernet interface, for frames of EtherType 0x88e1."""

    def __init__(self, interface: str) -> None:
        """Raises :class:`RadioError` that names the interface."""
        self._socket = packet_socket(interface, ETHER_TYPE)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        self.address = self._socket.getsockname()[4].hex(":")

    def send(self, frame: bytes) -> None:
        """Sends a frame; OSError."""
        self._socket.send(frame)

    def receive(self, timeout_s: float) -> bytes | None:
        """The next frame; None after ``timeout_s``. OSError if the interface is gone."""
        self._socket.settimeout(max(0.0, timeout_s))
        try:
            return self._socket.recv(2048)
        except (TimeoutError, BlockingIOError):
            return None

    def lost(self) -> bool:
        """Whether the kernel dropped frames since the last call."""
        _, drops = struct.unpack("=II", self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
        return bool(drops)

    def close(self) -> None:
        """Ends the socket."""
        self._socket.close()


@dataclass(slots=True)
class _Known:
    """What is kept of an adapter between readings. ``standard``: it answers the standard's messages."""

    adapter: str
    standard: bool = True
    device: int | None = None
    sniffing: bool = False
    identified_s: float = float("-inf")
    """When it was last asked for its version and its sniffer."""
    heard_s: float = float("-inf")
    """When it last indicated what it hears."""

    def sniffs(self, now_s: float) -> bool:
        """Whether its sniffer works."""
        return self.sniffing and now_s - self.heard_s <= SILENT_SNIFFER_S


class HomePlugReader:
    """A :class:`~.plc.PlcReader`: the standard's messages first, then Qualcomm's if the adapter knows them.

    ``open_port`` opens the interface; it is opened again after an error.
    """

    def __init__(self, interface: str, open_port: Callable[[str], Port] = Port) -> None:
        self._interface = interface
        self._open_port = open_port
        self._port: Port | None = None
        self._fragments = Fragments()
        self._known: _Known | None = None
        self._quiet_until_s: dict[str, float] = {}
        self._slots: dict[str, tuple[float, ...]] = {}
        self._rates: dict[str, tuple[float, dict[str, StationRates]]] = {}
        """By another adapter: until when they count, and its rates to its stations."""
        self._heard_us = 0.0
        self._delimiters = 0
        self._fault: HomePlugError | None = None

    def view(self, now_s: float) -> PlcView:
        """What the adapter reports now; raises :class:`RadioError`."""
        try:
            return self._view(now_s)
        except OSError as error:
            self._forget()
            raise RadioError(error.strerror or str(error)) from error

    def _forget(self) -> None:
        if self._port is not None:
            self._port.close()
        self._port = self._known = None
        self._quiet_until_s.clear()

    def _view(self, now_s: float) -> PlcView:
        if self._port is None:
            self._port = self._open_port(self._interface)
        self._fault = None
        if self._known is None:
            self._find()
        known = self._known
        if known is None:
            raise RadioError(self._silent("no power-line adapter answers"))
        stations = self._stations(known)
        self._identify(known, now_s)
        info = None if known.device is None else self._ask(NetworkInfo, homeplug.VS_NW_INFO, known.adapter)
        if info is not None:
            stations = _merged(stations, info)
        elif not known.standard:
            raise self._gone(known)
        if known.device is not None:
            stations = [self._detailed(known, each, now_s) for each in stations[:MAX_DETAILED]] + stations[
                MAX_DETAILED:
            ]
        heard_us, count, lost = self._heard_us, self._delimiters, self._port.lost()
        self._heard_us, self._delimiters = 0.0, 0
        if count:
            known.heard_s = now_s
        reads_others = known.device is not None and not known.sniffs(now_s)
        others = self._others(stations, now_s) if reads_others else ()
        busy = BusyView(known.sniffing, heard_us, count, lost)
        return PlcView(known.adapter, known.device, tuple(stations), busy, others)

    def _find(self) -> None:
        """Looks for the adapter: by the standard's message, then by Qualcomm's."""
        for address in (homeplug.LOCAL_ADAPTER, homeplug.BROADCAST):
            found = self._ask(NetworkStats, homeplug.CM_NW_STATS, address)
            if found is not None:
                self._known = _Known(found.source)
                return
        version = self._ask(SoftwareVersion, homeplug.VS_SW_VER, homeplug.LOCAL_ADAPTER)
        if version is None:
            raise RadioError(self._silent("no power-line adapter answers"))
        self._known = _Known(version.source, standard=False)

    def _stations(self, known: _Known) -> list[PlcStation]:
        """Rates by the standard's message."""
        if not known.standard:
            return []
        found = self._network_stats(known.adapter)
        if found is None:
            raise self._gone(known)
        return [PlcStation(s.mac, tx_mbps=s.tx_mbps, rx_mbps=s.rx_mbps) for s in found.stations]

    def _network_stats(self, adapter: str) -> NetworkStats | None:
        """The stations of an adapter; rates that do not fit in a byte by the newer version of the message."""
        found = self._ask(NetworkStats, homeplug.CM_NW_STATS, adapter)
        if found is not None and any(MOST_RATE_V1 in (s.tx_mbps, s.rx_mbps) for s in found.stations):
            request = homeplug.request(homeplug.CM_NW_STATS, adapter, self._own(), version=2)
            found = self._exchange(NetworkStats, request, adapter) or found
        return found

    def _gone(self, known: _Known) -> RadioError:
        self._known = None
        return RadioError(self._silent(f"adapter {known.adapter} does not answer any more"))

    def _silent(self, what: str) -> str:
        return what if self._fault is None else str(self._fault)

    def _identify(self, known: _Known, now_s: float) -> None:
        """The class of the chip, and its sniffer; requested again each 30 s, or if a sniffer has fallen silent, as that
        of an adapter that was unplugged does.
        """
        silent = known.sniffing and not known.sniffs(now_s)
        if now_s - known.identified_s < (SILENT_SNIFFER_S if silent else AGAIN_S):
            return
        known.identified_s = now_s
        version = self._ask(SoftwareVersion, homeplug.VS_SW_VER, known.adapter)
        known.device = None if version is None else version.device
        if version is not None and not known.sniffs(now_s):
            request = homeplug.sniffer_request(known.adapter, self._own(), on=True)
            state = self._exchange(SnifferState, request, known.adapter)
            known.sniffing = state is not None and state.on

    def _detailed(self, known: _Known, station: PlcStation, now_s: float) -> PlcStation:
        """A station with its counters and, each 30 s, the BLE of its tone-map slots."""
        quiet = self._quiet_until_s
        if now_s >= quiet.get("counters", 0.0):
            request = homeplug.link_stats_request(known.adapter, self._own(), station.mac)
            stats = self._exchange(LinkStats, request, known.adapter, lambda e: station.tei in (0, e.tei))
            if stats is None:
                quiet["counters"] = now_s + AGAIN_S
            else:
                station = replace(station, tx=stats.tx, rx=stats.rx)
        if now_s >= max(quiet.get("tone maps", 0.0), quiet.get(station.mac, 0.0)):
            self._read_tone_maps(known.adapter, station.mac, now_s)
        return replace(station, slot_ble_mbps=self._slots.get(station.mac, ()))

    def _others(self, stations: Sequence[PlcStation], now_s: float) -> tuple[LinkCounts, ...]:
        """Counters of the links between other adapters, which answer over the line; those that do not are left out."""
        found: list[LinkCounts] = []
        near = stations[:MAX_REMOTE]
        for place, station in enumerate(near[:-1]):
            if now_s < self._quiet_until_s.get(f"counters of {station.mac}", 0.0):
                continue
            rates = self._rates_at(station.mac, now_s)
            for peer in near[place + 1 :]:
                rate, stats = rates.get(peer.mac), None
                if rate is not None:
                    request = homeplug.link_stats_request(station.mac, self._own(), peer.mac)
                    stats = self._exchange(LinkStats, request, station.mac)
                if rate is None or stats is None:
                    self._quiet_until_s[f"counters of {station.mac}"] = now_s + AGAIN_S
                    break
                name = f"{station.mac} {peer.mac}"
                found.append(LinkCounts(name, stats.tx, stats.rx, rate.tx_mbps, rate.rx_mbps))
        return tuple(found)

    def _rates_at(self, adapter: str, now_s: float) -> dict[str, StationRates]:
        """PHY rates of another adapter to its stations; empty if it does not answer."""
        until_s, rates = self._rates.get(adapter, (0.0, {}))
        if now_s >= until_s:
            found = self._network_stats(adapter)
            rates = {} if found is None else {station.mac: station for station in found.stations}
            self._rates[adapter] = now_s + RATES_AGAIN_S, rates
        return rates

    def _read_tone_maps(self, adapter: str, peer: str, now_s: float) -> None:
        if len(self._slots) >= MAX_STATIONS_READ:
            self._slots.clear()
            self._rates.clear()
            self._quiet_until_s.clear()
        rates: list[float] = []
        slots = 1
        while len(rates) < slots:
            request = homeplug.tone_map_request(adapter, self._own(), peer, len(rates))
            found = self._exchange(ToneMap, request, adapter, lambda e: e.peer == peer and e.slot == len(rates))
            if found is None:
                # The adapter may not know the message. Without this pause each reading waits once per station.
                self._quiet_until_s["tone maps"] = now_s + AGAIN_S
                return
            slots = found.slots
            rates.append(found.ble_mbps())
        self._slots[peer] = tuple(rates[:slots])
        self._quiet_until_s[peer] = now_s + AGAIN_S

    def _ask(self, wanted: type[_Wanted], kind: int, address: str) -> _Wanted | None:
        return self._exchange(wanted, homeplug.request(kind, address, self._own()), address)

    def _own(self) -> str:
        return self._port.address if self._port is not None else ""

    def _exchange(
        self,
        wanted: type[_Wanted],
        request: bytes,
        address: str,
        fits: Callable[[_Wanted], bool] = lambda _: True,
    ) -> _Wanted | None:
        """Sends a request; the first fitting answer of the adapter, None if there is none in time.

        Answers that came after their request's time are dropped. A faulty answer is kept as the reason.
        """
        port = self._port
        if port is None:
            return None
        any_source = address in (homeplug.LOCAL_ADAPTER, homeplug.BROADCAST)
        for _ in range(MOST_WAITING):
            waiting = port.receive(0.0)
            if waiting is None:
                break
            self._event(waiting)
        port.send(request)
        until_s = time.monotonic() + PATIENCE_S
        while (left_s := until_s - time.monotonic()) > 0:
            frame = port.receive(left_s)
            if frame is None:
                return None
            event = self._event(frame)
            if isinstance(event, wanted) and (any_source or event.source == address) and fits(event):
                return event
        return None

    def _event(self, frame: bytes) -> Event | None:
        """What a frame says; indications of the sniffer are counted."""
        try:
            event = self._fragments.add(frame)
        except HomePlugError as error:
            self._fault = error
            return None
        if isinstance(event, Delimiter):
            self._heard_us += delimiter_us(event)
            self._delimiters += 1
        return event


def _merged(stations: list[PlcStation], info: NetworkInfo) -> list[PlcStation]:
    """Qualcomm's list has the addresses behind the adapters, and rates of more than 255 Mb/s."""
    rows = [row for network in info.networks for row in network.stations]
    known = {row.mac for row in rows}
    merged = [PlcStation(row.mac, row.bridged_mac, row.tx_mbps, row.rx_mbps, tei=row.tei) for row in rows]
    return merged + [station for station in stations if station.mac not in known]
