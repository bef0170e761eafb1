"""HomePlug AV management messages (EtherType 0x88e1): requests to bytes, frames to events. Pure.

Standard messages are those of IEEE Std 1901-2010 (CM_NW_STATS, CC_DISCOVER_LIST). Vendor messages are those of
Qualcomm Atheros, as open-plc-utils and C. Vlachou's Click elements use them; they carry the OUI 00:b0:52. All numbers
are little endian.

A frame is hostile until it has been checked: every length is compared with the bytes that are there, and
:class:`Fragments` keeps a bounded number of bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from .homeplug_events import (
    MAX_SLOTS,
    Delimiter,
    DiscoverList,
    Event,
    HeardNetwork,
    HeardStation,
    HomePlugError,
    LinkStats,
    Network,
    NetworkInfo,
    NetworkStation,
    NetworkStats,
    RxCounts,
    RxInterval,
    SnifferState,
    SoftwareVersion,
    StationRates,
    ToneMap,
    TxCounts,
)
from .model import mac_bytes

ETHER_TYPE = 0x88E1
QUALCOMM = bytes.fromhex("00b052")
LOCAL_ADAPTER = "00:b0:52:00:00:01"
"""Qualcomm's adapters answer to this address at their Ethernet port, and do not forward it to the power line."""
BROADCAST = "ff:ff:ff:ff:ff:ff"

CC_DISCOVER_LIST, CM_NW_STATS = 0x0014, 0x6048
VS_SW_VER, VS_LNK_STATS, VS_SNIFFER, VS_NW_INFO, VS_TONE_MAP_CHAR = 0xA000, 0xA030, 0xA034, 0xA038, 0xA070
CONFIRM, INDICATE = 1, 2
"""Added to a request's type: the answer to it, and a message that was not requested."""
TX, RX, BOTH = 0, 1, 2
ALL_CSMA_LINKS = 0xF8
LEAST_FRAME = 60
MOST_FRAME = 1514
MAX_STATIONS = 254
"""Terminal identifiers (TEI) of one network."""
MAX_PENDING = 8
MAX_FRAGMENTS = 16
_HEAD = 17
"""Ethernet header, version, type."""
_STATUS_OK = 0
_VENDOR_TYPES = range(0xA000, 0xC000)


class CutError(HomePlugError):
    """The message ends before what it announces."""


def request(kind: int, destination: str, source: str, body: bytes = b"", version: int | None = None) -> bytes:
    """A request as an Ethernet frame of at least 60 bytes.

    ``kind`` is one of the constants above, ``version`` that of the message header (None: the one that the message is
    known with). ``body`` follows the header, and the OUI where the vendor defines the message.
    """
    version = _VERSIONS[kind] if version is None else version
    head = mac_bytes(destination) + mac_bytes(source) + struct.pack(">H", ETHER_TYPE)
    head += struct.pack("<BH", version, kind) + (b"\0\0" if version else b"")
    return (head + (QUALCOMM if kind in _VENDOR_TYPES else b"") + body).ljust(LEAST_FRAME, b"\0")


def link_stats_request(destination: str, source: str, peer: str, direction: int = BOTH) -> bytes:
    """Counters of the links to and from the adapter ``peer``, over all CSMA priorities."""
    body = bytes((0, direction, ALL_CSMA_LINKS)) + mac_bytes(peer)
    return request(VS_LNK_STATS, destination, source, body)


def tone_map_request(destination: str, source: str, peer: str, slot: int) -> bytes:
    """The modulation of each carrier towards the adapter ``peer`` in tone-map slot 0 to 5."""
    return request(VS_TONE_MAP_CHAR, destination, source, b"\0" * 4 + mac_bytes(peer) + bytes((slot, 0)))


def sniffer_request(destination: str, source: str, on: bool) -> bytes:
    """Begins or ends indications of the delimiters that the adapter hears."""
    return request(VS_SNIFFER, destination, source, bytes((int(on),)) + b"\0" * 4)


_VERSIONS: Mapping[int, int] = MappingProxyType(
    {CC_DISCOVER_LIST: 1, CM_NW_STATS: 1, VS_SW_VER: 0, VS_LNK_STATS: 0, VS_SNIFFER: 0, VS_NW_INFO: 1}
    | {VS_TONE_MAP_CHAR: 1}
)


class Fragments:
    """Frames of one interface to events; joins messages that are fragmented.

    A message has 16 fragments at most, which come in order. At most 8 messages are incomplete at a time: the oldest is
    given up for a new one.
    """

    def __init__(self) -> None:
        self._pending: dict[tuple[bytes, int, int], tuple[int, bytes]] = {}

    def add(self, frame: bytes) -> Event | None:
        """The event of a frame; None if it is a request, another protocol, unknown, or more fragments have to come.

        Raises :class:`HomePlugError` if the message is cut or contradicts itself.
        """
        if len(frame) < _HEAD or frame[12:14] != b"\x88\xe1":
            return None
        version, kind = struct.unpack_from("<BH", frame, 14)
        parse = _PARSERS.get(kind)
        if parse is None:
            return None
        if version == 0:
            return parse(_message(kind, frame, version, frame[_HEAD:MOST_FRAME]))
        if len(frame) < _HEAD + 2:
            raise CutError(f"message 0x{kind:04x} from {_address(frame, 6)}: cut in its header")
        return self._join(frame, kind, parse)

    def _join(self, frame: bytes, kind: int, parse: Callable[[_Message], Event]) -> Event | None:
        index, last = frame[17] & 0x0F, frame[17] >> 4
        key, part = (frame[6:12], kind, frame[18]), frame[_HEAD + 2 : MOST_FRAME]
        due, begun = self._pending.pop(key, (0, b""))
        if index == 0:
            begun = b""
        elif index != due:
            return None
        whole = begun + part
        try:
            return parse(_message(kind, frame, frame[14], whole))
        except CutError:
            if index >= last:
                raise
        while len(self._pending) >= MAX_PENDING:
            del self._pending[next(iter(self._pending))]
        self._pending[key] = index + 1, whole
        return None


@dataclass(frozen=True, slots=True)
class _Message:
    """``body`` follows the header and, in messages of a vendor, the OUI."""

    source: str
    kind: int
    version: int
    body: bytes

    def fail(self, why: str) -> HomePlugError:
        return HomePlugError(f"message 0x{self.kind:04x} from {self.source}: {why}")

    def take(self, layout: struct.Struct, offset: int) -> tuple[int, ...]:
        """Numbers at ``offset``."""
        if offset + layout.size > len(self.body):
            raise CutError(f"message 0x{self.kind:04x} from {self.source}: cut after {len(self.body)} bytes")
        return layout.unpack_from(self.body, offset)

    def raw(self, offset: int, length: int) -> bytes:
        """Bytes at ``offset``."""
        if offset + length > len(self.body):
            raise CutError(f"message 0x{self.kind:04x} from {self.source}: cut after {len(self.body)} bytes")
        return self.body[offset : offset + length]


def _message(kind: int, frame: bytes, version: int, body: bytes) -> _Message:
    source = _address(frame, 6)
    if kind in _VENDOR_TYPES:
        if len(body) < 3:
            raise CutError(f"message 0x{kind:04x} from {source}: cut in its header")
        if body[:3] != QUALCOMM:
            raise HomePlugError(f"message 0x{kind:04x} from {source}: vendor {body[:3].hex(':')} is not known")
        body = body[3:]
    return _Message(source, kind, version, body)


_BYTE = struct.Struct("<B")
_RATES = {1: struct.Struct("<6x2B"), 2: struct.Struct("<6x2H")}


def _network_stats(message: _Message) -> NetworkStats:
    (count,) = message.take(_BYTE, 0)
    layout = _RATES[1 if message.version < 2 else 2]
    rows = []
    for offset in _rows(message, count, 1, layout.size):
        tx_mbps, rx_mbps = message.take(layout, offset)
        rows.append(StationRates(_address(message.body, offset), tx_mbps, rx_mbps))
    return NetworkStats(message.source, tuple(rows))


_HEARD, _HEARD_NETWORK = struct.Struct("<6x6B"), struct.Struct("<7x4BH")


def _discover_list(message: _Message) -> DiscoverList:
    (count,) = message.take(_BYTE, 0)
    stations, networks = [], []
    for offset in _rows(message, count, 1, _HEARD.size):
        tei, same, snid, _, signal, ble_mbps = message.take(_HEARD, offset)
        stations.append(HeardStation(_address(message.body, offset), tei, same == 1, snid & 0x0F, signal, ble_mbps))
    place = 1 + count * _HEARD.size
    (count,) = message.take(_BYTE, place)
    for offset in _rows(message, count, place + 1, _HEARD_NETWORK.size):
        snid, _, _, status, _ = message.take(_HEARD_NETWORK, offset)
        networks.append(HeardNetwork(message.raw(offset, 7).hex(), snid & 0x0F, status))
    return DiscoverList(message.source, tuple(stations), tuple(networks))


_VERSION = struct.Struct("<3B")


def _software_version(message: _Message) -> SoftwareVersion:
    status, device, length = message.take(_VERSION, 0)
    if status != _STATUS_OK:
        raise message.fail(f"refused with status {status}")
    text = message.raw(_VERSION.size, length).split(b"\0")[0]
    # Where the identifier of the chip is depends on the firmware's length of the text.
    idents = [message.body[_VERSION.size + place + 1 :][:4] for place in (64, 128, 253)]
    words = tuple(int.from_bytes(each, "little") for each in idents if len(each) == 4)
    return SoftwareVersion(message.source, device, words, text.decode("ascii", "replace"))


_INFO, _NETWORK = struct.Struct("<2xH"), struct.Struct("<7x2xBB4xB6xB3xB5x")
_STATION = struct.Struct("<6xB3x6xHBxH2x")


def _network_info(message: _Message) -> NetworkInfo:
    (length,) = message.take(_INFO, 0)
    data = _Message(message.source, message.kind, message.version, message.raw(_INFO.size, length))
    (count,) = data.take(_BYTE, 1)
    place, networks, left = 2, [], MAX_STATIONS
    for _ in range(count):
        snid, own_tei, role, cco_tei, stations = data.take(_NETWORK, place)
        left -= stations
        if left < 0:
            raise data.fail(f"more than {MAX_STATIONS} stations")
        head, place = place, place + _NETWORK.size
        rows = tuple(_station(data, offset) for offset in _rows(data, stations, place, _STATION.size))
        place += stations * _STATION.size
        nid, cco_mac = data.raw(head, 7).hex(), _address(data.body, head + 16)
        networks.append(Network(nid, snid & 0x0F, own_tei, role, cco_mac, cco_tei, rows))
    return NetworkInfo(message.source, tuple(networks))


def _station(data: _Message, offset: int) -> NetworkStation:
    tei, tx_mbps, _, rx_mbps = data.take(_STATION, offset)
    return NetworkStation(_address(data.body, offset), tei, _address(data.body, offset + 10), tx_mbps, rx_mbps)


_LINK, _TX_COUNTS = struct.Struct("<4B"), struct.Struct("<5Q")
_RX_COUNTS, _INTERVAL = struct.Struct("<6QB"), struct.Struct("<B4Q")


def _link_stats(message: _Message) -> LinkStats:
    status, direction, link_id, tei = message.take(_LINK, 0)
    if status != _STATUS_OK:
        raise message.fail(f"refused with status {status}")
    if direction > BOTH:
        raise message.fail(f"direction {direction} does not exist")
    place, tx, rx = _LINK.size, None, None
    if direction != RX:
        tx, place = TxCounts(*message.take(_TX_COUNTS, place)), place + _TX_COUNTS.size
    if direction != TX:
        acked, failed, passed, lost, errors_passed, errors_failed, count = message.take(_RX_COUNTS, place)
        if count > MAX_SLOTS:
            raise message.fail(f"{count} tone-map intervals, at most {MAX_SLOTS} exist")
        offsets = _rows(message, count, place + _RX_COUNTS.size, _INTERVAL.size)
        intervals = tuple(RxInterval(*message.take(_INTERVAL, offset)) for offset in offsets)
        rx = RxCounts(acked, failed, passed, lost, errors_passed, errors_failed, intervals)
    return LinkStats(message.source, link_id, tei, tx, rx)


_TONE_HEAD, _TONES = struct.Struct("<BxH"), struct.Struct("<2x6xBxBxH2xH6x")


def _tone_map(message: _Message) -> ToneMap:
    status, length = message.take(_TONE_HEAD, 0)
    if status != _STATUS_OK:
        raise message.fail(f"refused with status {status}")
    place = _TONE_HEAD.size
    slot, slots, carriers, _ = message.take(_TONES, place)
    if slots > MAX_SLOTS or slot >= max(1, slots):
        raise message.fail(f"slot {slot} of {slots}, at most {MAX_SLOTS} exist")
    if length < _TONES.size + (carriers + 1) // 2:
        raise message.fail(f"{carriers} carriers in {length} bytes")
    packed = message.raw(place + _TONES.size, (carriers + 1) // 2)
    halves = [half for byte in packed for half in (byte & 0x0F, byte >> 4)]
    return ToneMap(message.source, _address(message.body, place + 2), slot, slots, bytes(halves[:carriers]))


_SNIFFED, _FRAME_CONTROL = struct.Struct("<BBQI"), struct.Struct("<7B B H")


def _sniffer_state(message: _Message) -> SnifferState:
    status, state = message.take(struct.Struct("<2B"), 0)
    if status != _STATUS_OK:
        raise message.fail(f"refused with status {status}")
    return SnifferState(message.source, state == 1)


def _delimiter(message: _Message) -> Delimiter:
    _, _, system_time, beacon_time = message.take(_SNIFFED, 0)
    # The whole frame control has to be there: 16 bytes.
    control = message.raw(_SNIFFED.size, 16)
    first, source, destination, link_id, _, _, ble, _, words = _FRAME_CONTROL.unpack_from(control)
    return Delimiter(
        message.source,
        system_time,
        beacon_time,
        first & 0x07,
        first >> 4,
        source,
        destination,
        link_id,
        ble,
        words & 0x0FFF,
        words >> 12 & 0x03,
        words >> 14,
    )


_PARSERS: Mapping[int, Callable[[_Message], Event]] = MappingProxyType(
    {
        CM_NW_STATS + CONFIRM: _network_stats,
        CC_DISCOVER_LIST + CONFIRM: _discover_list,
        VS_SW_VER + CONFIRM: _software_version,
        VS_NW_INFO + CONFIRM: _network_info,
        VS_LNK_STATS + CONFIRM: _link_stats,
        VS_TONE_MAP_CHAR + CONFIRM: _tone_map,
        VS_SNIFFER + CONFIRM: _sniffer_state,
        VS_SNIFFER + INDICATE: _delimiter,
    }
)


def _rows(message: _Message, count: int, start: int, size: int) -> range:
    """Where rows of ``size`` bytes begin; checks first that all are there."""
    if count > MAX_STATIONS:
        raise message.fail(f"{count} rows, at most {MAX_STATIONS} stations can be in a network")
    message.raw(start, count * size)
    return range(start, start + count * size, size) if size else range(0)


def _address(data: bytes, offset: int) -> str:
    return data[offset : offset + 6].hex(":")
