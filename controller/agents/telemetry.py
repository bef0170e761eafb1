"""What access points say over the agents' port, checked (docs/reference/telemetry.md): readings and stations.

Pure. Several thousand rows a second come in from a large network, so rows are named tuples and checks are few and flat.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from hyroads.controller.access_point.homeplug_events import MAX_SLOTS
from hyroads.controller.access_point.model import BUSY_SOURCES
from hyroads.controller.core.checking import MAX_USER_BYTES, is_user_name

from .changes import Decoded
from .protocol import ProtocolError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hyroads.controller.native.messages import Told

MAX_INTERFACES = 64
MAX_NEIGHBOURS = 2048
MAX_MBPS = 1e6
MAX_COUNTER = 1 << 63
_MAC = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){5}")


class PowerLineEnd(NamedTuple):
    """A neighbour on a power line: the address of its adapter, the share of blocks to it that can't be decoded, the BLE
    in Mb/s of each tone-map slot to it.
    """

    adapter: str
    block_errors: float | None
    slot_ble_mbps: tuple[float, ...]


class RadioNeighbour(NamedTuple):
    """Who is heard on an interface; rates in Mb/s at L2 payload, None without an estimate."""

    mac: str
    tx_mbps: float | None
    rx_mbps: float | None
    loss: float
    signal_dbm: int | None
    last_heard_ms: int
    plc: PowerLineEnd | None = None


class RadioInterface(NamedTuple):
    """Counters of an interface, which only grow, and its neighbours."""

    technology: str
    busy_us: int
    active_us: int
    neighbours: tuple[RadioNeighbour, ...]
    busy_source: str = ""
    """How busy time is known, where that is not the radio's driver: sniffer, counters, none."""
    adapter: str = ""
    """Address of the interface's own power-line adapter; empty without one."""


class RadioReport(NamedTuple):
    """One reading; ``time_s`` is the monotonic clock of whoever read, ``seq`` that of the request, if it was one."""

    seq: int | None
    time_s: float
    interfaces: tuple[RadioInterface, ...]


MAX_AGE_S = 1e9
JOINED, LEFT, SIGNAL = "joined", "left", "signal"


class StationEvent(NamedTuple):
    """What an access point says of a station of its own. ``age_s`` is for how long one that joined has been there,
    ``user`` as whom it was authenticated (802.1X), ``vlan`` what the RADIUS server gave it.
    """

    technology: str
    mac: str
    what: str
    signal_dbm: float | None
    age_s: float = 0.0
    user: str | None = None
    vlan: int | None = None


def parse_station(message: Mapping[str, Any]) -> StationEvent:
    """A message of type ``station``; :class:`ProtocolError` if anything of it is not as it must be."""
    technology, mac, what = message.get("technology"), message.get("mac"), message.get("event")
    if not isinstance(technology, str) or not 0 < len(technology) <= 64 or not technology.isprintable():
        raise ProtocolError("station: technology is not text of at most 64 characters")
    if not isinstance(mac, str) or not _MAC.fullmatch(mac) or int(mac[:2], 16) & 1:
        raise ProtocolError("station: mac is not the address of an interface")
    if what not in {JOINED, LEFT, SIGNAL}:
        raise ProtocolError("station: event is not joined, left or signal")
    signal = message.get("signal_dbm")
    if signal is not None and (type(signal) is not int or not -200 <= signal <= 100):
        raise ProtocolError("station: signal_dbm is not a whole number from -200 to 100")
    age_s = message.get("age_s", 0.0)
    # JSON's NaN compares as false.
    if type(age_s) not in {int, float} or not 0 <= age_s <= MAX_AGE_S:
        raise ProtocolError(f"station: age_s is not a number of seconds from 0 to {MAX_AGE_S:g}")
    user, vlan = _user(message, "station"), message.get("vlan")
    if vlan is not None and (type(vlan) is not int or not 0 < vlan < MAX_VLAN):
        raise ProtocolError(f"station: vlan is not a whole number from 1 to {MAX_VLAN - 1}")
    return StationEvent(technology, mac, str(what), None if signal is None else float(signal), float(age_s), user, vlan)


MAX_VLAN = 4095
"""The last VLAN is reserved (IEEE 802.1Q)."""
_SERVER = re.compile(r"[0-9a-fA-F.:]{2,45}#[0-9]{1,5}")
REJECTED, SILENT, BAD_SECRET, BACK = "rejected", "silent", "bad-secret", "back"


def _user(message: Mapping[str, Any], what: str) -> str | None:
    user = message.get("user")
    if user is not None and not is_user_name(user):
        raise ProtocolError(f"{what}: user is not printable text of at most {MAX_USER_BYTES} bytes")
    return user


class AuthenticationEvent(NamedTuple):
    """What an access point says of 802.1X: that a station (``mac``) was rejected, as ``user`` if it said who it is; or
    that a RADIUS server (``ADDRESS#PORT``) is silent, answers with another secret, or is back.
    """

    technology: str
    what: str
    mac: str | None
    user: str | None
    server: str | None


def parse_authentication(message: Mapping[str, Any]) -> AuthenticationEvent:
    """A message of type ``dot1x``; :class:`ProtocolError` if anything of it is not as it must be."""
    technology, what = message.get("technology"), message.get("event")
    if not isinstance(technology, str) or not 0 < len(technology) <= 64 or not technology.isprintable():
        raise ProtocolError("dot1x: technology is not text of at most 64 characters")
    mac, server = message.get("mac"), message.get("server")
    if what == REJECTED:
        if not isinstance(mac, str) or not _MAC.fullmatch(mac):
            raise ProtocolError("dot1x: mac is not an address of lower-case hexadecimal digits")
        return AuthenticationEvent(technology, what, mac, _user(message, "dot1x"), None)
    if what not in {SILENT, BAD_SECRET, BACK}:
        raise ProtocolError("dot1x: event is not rejected, silent, bad-secret or back")
    if not isinstance(server, str) or not _SERVER.fullmatch(server):
        raise ProtocolError("dot1x: server is not ADDRESS#PORT")
    return AuthenticationEvent(technology, str(what), None, None, server)


MAX_SSID = 128
"""32 bytes, each escaped as ``\\xNN``."""


class Bss(NamedTuple):
    """An access point's own entry: ``neighbour`` is what others need to send stations there.

    ``ssid`` is as hostapd prints it; empty where an agent does not tell.
    """

    technology: str
    neighbour: str
    ssid: str = ""


class TransitionAnswer(NamedTuple):
    """What a station says to a transition request; 0 accepts."""

    mac: str
    status: int


_NEIGHBOUR = re.compile(rf"{_MAC.pattern},0x[0-9a-f]{{1,8}},[0-9]{{1,3}},[0-9]{{1,3}},[0-9]{{1,3}}")


def parse_bss(message: Mapping[str, Any]) -> Bss:
    """A message of type ``bss``; :class:`ProtocolError` if anything of it is not as it must be."""
    technology, neighbour = message.get("technology"), message.get("neighbour")
    if not isinstance(technology, str) or not 0 < len(technology) <= 64 or not technology.isprintable():
        raise ProtocolError("bss: technology is not text of at most 64 characters")
    if not isinstance(neighbour, str) or not _NEIGHBOUR.fullmatch(neighbour):
        raise ProtocolError("bss: neighbour is not BSSID, information, class, channel and PHY")
    ssid = message.get("ssid", "")
    if not isinstance(ssid, str) or len(ssid) > MAX_SSID or not ssid.isascii() or not ssid.isprintable():
        raise ProtocolError(f"bss: ssid is not printable ASCII of at most {MAX_SSID} characters")
    return Bss(technology, neighbour, ssid)


def parse_transition(message: Mapping[str, Any]) -> TransitionAnswer:
    """A message of type ``transition``; :class:`ProtocolError` if anything of it is not as it must be."""
    mac, status = message.get("mac"), message.get("status")
    if not isinstance(mac, str) or not _MAC.fullmatch(mac):
        raise ProtocolError("transition: mac is not an address of lower-case hexadecimal digits")
    if type(status) is not int or not 0 <= status <= 255:
        raise ProtocolError("transition: status is not a whole number from 0 to 255")
    return TransitionAnswer(mac, status)


def parse_radio(message: Mapping[str, Any]) -> RadioReport:
    """The reading of a message of type ``radio``; :class:`ProtocolError` if anything of it is not as it must be."""
    entries = _objects(message, "interfaces", MAX_INTERFACES)
    interfaces = tuple(_interface(entry) for entry in entries)
    if len({interface.technology for interface in interfaces}) < len(interfaces):
        raise ProtocolError("radio.interfaces names a technology twice")
    seq = None if message.get("seq") is None else _whole(message, "seq", MAX_COUNTER)
    return RadioReport(seq, _number(message, "time_s", 1e15), interfaces)


_SHAPES = count(1)


class WholeReading:
    """The last whole reading of a session, and what a message ``radio-changes`` makes of it. Each says all that differs
    from the whole one, so that none depends on another.
    """

    def __init__(self) -> None:
        self._whole: RadioReport | None = None
        self.shape = 0
        """A number that no other whole reading has; 0: there is none."""

    def take(self, message: Mapping[str, Any]) -> RadioReport:
        """The reading of a message ``radio``."""
        report = parse_radio(message)
        if report.seq is None:
            self._whole, self.shape = report, next(_SHAPES)
        return report

    @property
    def whole(self) -> RadioReport | None:
        """The reading that changes refer to."""
        return self._whole

    @property
    def technologies(self) -> tuple[str, ...] | None:
        """Those of the last whole reading, if the library can compare them: of plain characters, at least one."""
        names = tuple(each.technology for each in self._whole.interfaces) if self._whole is not None else ()
        return names if names and all(name.isascii() and name.isprintable() for name in names) else None

    def decoded(self, numbers: Sequence[float]) -> RadioReport:
        """The reading whose time and counters the library has decoded; all else is as in the whole one."""
        if self._whole is None:
            raise ProtocolError("radio-changes: there is no such whole reading to refer to")
        time_s, *counters = numbers
        rows = zip(self._whole.interfaces, counters[::2], counters[1::2], strict=True)
        return RadioReport(
            None,
            time_s,
            tuple(RadioInterface(old[0], int(busy), int(active), *old[3:]) for old, busy, active in rows),
        )

    def changed(self, message: Mapping[str, Any]) -> RadioReport:
        """The reading that a message ``radio-changes`` stands for; :class:`ProtocolError`."""
        entries = _objects(message, "interfaces", MAX_INTERFACES)
        if self._whole is None or len(entries) != len(self._whole.interfaces):
            raise ProtocolError("radio-changes: there is no such whole reading to refer to")
        interfaces = tuple(map(_changed, self._whole.interfaces, entries))
        return RadioReport(None, _number(message, "time_s", 1e15), interfaces)


class DecodedReadings(Decoded):
    """Readings of several nodes, of each at most one, whose time and counters the library has decoded: busy and active
    microseconds of each interface of the whole reading. ``reading(i)`` is what the i-th refers to, and ``shapes[i]``
    its ``WholeReading.shape``.
    """

    __slots__ = ("reading",)

    def __init__(
        self,
        names: Sequence[str],
        places: NDArray[np.intp],
        shapes: NDArray[np.int64],
        told: Told,
        events: NDArray[np.intp],
        *,
        reading: Callable[[int], WholeReading],
    ) -> None:
        super().__init__(names, places, shapes, told, events)
        self.reading = reading

    def report(self, i: int) -> RadioReport:
        """All of one of them."""
        return self.reading(i).decoded(self.numbers(i).tolist())


def _changed(before: RadioInterface, entry: Mapping[str, Any]) -> RadioInterface:
    if entry.get("technology") != before.technology:
        raise ProtocolError("radio-changes: other technologies than in the whole reading")
    neighbours = before.neighbours
    if "neighbours" in entry:
        new = {row.mac: row for row in map(_neighbour, _objects(entry, "neighbours", MAX_NEIGHBOURS))}
        neighbours = tuple(new.pop(row.mac, row) for row in neighbours)
        if new:
            raise ProtocolError("radio-changes: a neighbour that the whole reading does not have")
    busy_us, active_us = _whole(entry, "busy_us", MAX_COUNTER), _whole(entry, "active_us", MAX_COUNTER)
    return before._replace(busy_us=busy_us, active_us=active_us, neighbours=neighbours)


def _interface(entry: Mapping[str, Any]) -> RadioInterface:
    technology = entry.get("technology")
    if not isinstance(technology, str) or not 0 < len(technology) <= 64 or not technology.isprintable():
        raise ProtocolError("radio: technology is not text of at most 64 characters")
    neighbours = tuple(_neighbour(row) for row in _objects(entry, "neighbours", MAX_NEIGHBOURS))
    if len({row.mac for row in neighbours}) < len(neighbours):
        raise ProtocolError("radio: neighbours name an address twice")
    busy_us, active_us = (_whole(entry, key, MAX_COUNTER) for key in ("busy_us", "active_us"))
    source = entry.get("busy_source", "")
    if source not in BUSY_SOURCES:
        raise ProtocolError(f"radio: busy_source is not one of {', '.join(filter(None, BUSY_SOURCES))}")
    adapter = _address(entry, "adapter") if "adapter" in entry else ""
    return RadioInterface(technology, busy_us, active_us, neighbours, source, adapter)


def _address(source: Mapping[str, Any], key: str) -> str:
    mac = source.get(key)
    if not isinstance(mac, str) or not _MAC.fullmatch(mac):
        raise ProtocolError(f"radio: {key} is not an address of lower-case hexadecimal digits")
    return mac


def _power_line_end(entry: object) -> PowerLineEnd:
    if type(entry) is not dict:
        raise ProtocolError("radio: plc is not an object")
    slots, errors = entry.get("slot_ble_mbps"), entry.get("block_errors")
    if not isinstance(slots, list) or len(slots) > MAX_SLOTS:
        raise ProtocolError(f"radio: slot_ble_mbps is not a list of at most {MAX_SLOTS} numbers")
    return PowerLineEnd(
        _address(entry, "adapter"),
        None if errors is None else _number(entry, "block_errors", 1.0),
        tuple(_number({"slot_ble_mbps": slot}, "slot_ble_mbps", MAX_MBPS) for slot in slots),
    )


def _neighbour(row: Mapping[str, Any]) -> RadioNeighbour:
    mac = _address(row, "mac")
    tx, rx = row.get("tx_mbps"), row.get("rx_mbps")
    signal = row.get("signal_dbm")
    if signal is not None and (type(signal) is not int or not -200 <= signal <= 100):
        raise ProtocolError("radio: signal_dbm is not a whole number from -200 to 100")
    return RadioNeighbour(
        mac,
        None if tx is None else _number(row, "tx_mbps", MAX_MBPS),
        None if rx is None else _number(row, "rx_mbps", MAX_MBPS),
        _number(row, "loss", 1.0),
        signal,
        _whole(row, "last_heard_ms", 0xFFFF_FFFF),
        _power_line_end(row["plc"]) if "plc" in row else None,
    )


def _number(source: Mapping[str, Any], key: str, high: float) -> float:
    value = source.get(key)
    # JSON's 1e999 is infinite in Python.
    if (type(value) is not float and type(value) is not int) or not 0 <= value <= high or not math.isfinite(value):
        raise ProtocolError(f"radio: {key} is not a number from 0 to {high:g}")
    return float(value)


def _whole(source: Mapping[str, Any], key: str, high: int) -> int:
    value = source.get(key)
    if type(value) is not int or not 0 <= value <= high:
        raise ProtocolError(f"radio: {key} is not a whole number from 0 to {high}")
    return value


def _objects(source: Mapping[str, Any], key: str, most: int) -> list[dict[str, Any]]:
    values = source.get(key)
    if not isinstance(values, list) or len(values) > most or not all(type(value) is dict for value in values):
        raise ProtocolError(f"radio: {key} is not a list of at most {most} objects")
    return values
