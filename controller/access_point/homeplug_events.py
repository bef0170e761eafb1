"""What HomePlug AV management messages say (see :mod:`.homeplug`). Pure."""

from __future__ import annotations

from dataclasses import dataclass

from .model import RadioError

MAX_SLOTS = 6
"""Tone-map slots of one period of the mains."""
BITS_PER_CARRIER = (0, 1, 2, 3, 4, 6, 8, 10, 12)
"""Bits that a carrier has, by its code in a tone map; other codes have none."""
CODE_RATE = 16 / 21
AV_SYMBOL_US = 40.96 + 5.56
"""A symbol of HomePlug AV with the guard interval that most adapters use."""
BEACON, START_OF_FRAME, SELECTIVE_ACK, RTS_CTS, SOUND = range(5)
"""Kinds of delimiter."""
FRAME_LENGTH_UNIT_US = 1.28


class HomePlugError(RadioError):
    """A management message makes no sense; the text names the message and the adapter."""


@dataclass(frozen=True, slots=True)
class StationRates:
    """Average PHY rates to the station and from it, in Mb/s; 255 is "255 or more" in messages of version 1."""

    mac: str
    tx_mbps: int
    rx_mbps: int


@dataclass(frozen=True, slots=True)
class NetworkStats:
    """CM_NW_STATS: the stations of the adapter's own network."""

    source: str
    stations: tuple[StationRates, ...]


@dataclass(frozen=True, slots=True)
class HeardStation:
    """A station that the adapter hears; ``ble_mbps`` 0: not known. ``signal`` is a code of the standard, 0: unknown."""

    mac: str
    tei: int
    same_network: bool
    snid: int
    signal: int
    ble_mbps: int


@dataclass(frozen=True, slots=True)
class HeardNetwork:
    """A network that the adapter hears; ``nid`` in hexadecimal digits."""

    nid: str
    snid: int
    coordinator_status: int


@dataclass(frozen=True, slots=True)
class DiscoverList:
    """CC_DISCOVER_LIST: what the adapter hears of its own and of other networks."""

    source: str
    stations: tuple[HeardStation, ...]
    networks: tuple[HeardNetwork, ...]


@dataclass(frozen=True, slots=True)
class SoftwareVersion:
    """VS_SW_VER: class of the chip, words that may be its identifier, and the firmware's name."""

    source: str
    device: int
    idents: tuple[int, ...]
    firmware: str


@dataclass(frozen=True, slots=True)
class NetworkStation:
    """An adapter, the address behind it, and average PHY rates to it and from it in Mb/s."""

    mac: str
    tei: int
    bridged_mac: str
    tx_mbps: int
    rx_mbps: int


@dataclass(frozen=True, slots=True)
class Network:
    """A network that the adapter is in; ``role`` 0: station, 1: proxy coordinator, 2: central coordinator."""

    nid: str
    snid: int
    own_tei: int
    role: int
    coordinator_mac: str
    coordinator_tei: int
    stations: tuple[NetworkStation, ...]


@dataclass(frozen=True, slots=True)
class NetworkInfo:
    """VS_NW_INFO: the networks of the adapter."""

    source: str
    networks: tuple[Network, ...]


@dataclass(frozen=True, slots=True)
class TxCounts:
    """Frames (MPDUs) and blocks of 520 bytes (PBs) sent, since the adapter's start."""

    mpdus_acked: int
    mpdus_collided: int
    mpdus_failed: int
    pbs_passed: int
    pbs_failed: int


@dataclass(frozen=True, slots=True)
class RxInterval:
    """Blocks received in one tone-map slot, at a PHY rate in Mb/s; bit errors before the decoder."""

    phy_mbps: int
    pbs_passed: int
    pbs_failed: int
    bit_errors_passed: int
    bit_errors_failed: int


@dataclass(frozen=True, slots=True)
class RxCounts:
    """Frames and blocks received, since the adapter's start."""

    mpdus_acked: int
    mpdus_failed: int
    pbs_passed: int
    pbs_failed: int
    bit_errors_passed: int
    bit_errors_failed: int
    intervals: tuple[RxInterval, ...]


@dataclass(frozen=True, slots=True)
class LinkStats:
    """VS_LNK_STATS: counters of one link; None for a direction that was not requested."""

    source: str
    link_id: int
    tei: int
    tx: TxCounts | None
    rx: RxCounts | None


@dataclass(frozen=True, slots=True)
class ToneMap:
    """VS_TONE_MAP_CHAR: a code of modulation per carrier, in one slot of ``slots``."""

    source: str
    peer: str
    slot: int
    slots: int
    codes: bytes

    def ble_mbps(self, symbol_us: float = AV_SYMBOL_US) -> float:
        """Bit loading estimate in Mb/s: bits of all carriers in a symbol, times the code rate of 16/21."""
        bits = sum(BITS_PER_CARRIER[code] for code in self.codes if code < len(BITS_PER_CARRIER))
        return CODE_RATE * bits / symbol_us


@dataclass(frozen=True, slots=True)
class SnifferState:
    """VS_SNIFFER: whether the adapter now indicates what it hears."""

    source: str
    on: bool


@dataclass(frozen=True, slots=True)
class Delimiter:
    """VS_SNIFFER indication: a delimiter that the adapter heard, with the fields of a start of frame.

    ``kind`` is one of the constants above; ``system_time`` counts on the adapter's own clock.
    ``frame_length`` is in units of 1.28 us, and covers the payload with the space after it.
    """

    source: str
    system_time: int
    beacon_time: int
    kind: int
    snid: int
    source_tei: int
    destination_tei: int
    link_id: int
    ble_code: int
    frame_length: int
    mpdu_count: int
    burst_count: int

    @property
    def ble_mbps(self) -> float:
        """The bit loading estimate in Mb/s (IEEE Std 1901-2010: mantissa and exponent)."""
        mantissa, exponent = self.ble_code >> 3, self.ble_code & 0x07
        return (32 + mantissa) * 2.0 ** (exponent - 4) + 2.0 ** (exponent - 5)


Event = NetworkStats | DiscoverList | SoftwareVersion | NetworkInfo | LinkStats | ToneMap | SnifferState | Delimiter
