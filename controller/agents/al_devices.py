"""The message ``devices`` of an access point, checked: neighbours that speak IEEE 1905.1 (docs/reference/telemetry.md).

Pure. What it says comes from other people's devices: everything is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from .protocol import ProtocolError

MAX_DEVICES = 64
MAX_HEARD = 64
MAX_LINKS = 64
MAX_MBPS = 0xFFFF
_MAC = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){5}")
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class HeardInterface:
    """The interface of the access point (by name) that hears a device, and the interface that it hears (address)."""

    interface: str
    mac: str


@dataclass(frozen=True, slots=True)
class AlLink:
    """A link of a device, as it says itself; ``busy`` is the share of time in which its medium is not idle for it."""

    mac: str
    to_al: str
    to_mac: str
    media_type: int
    capacity_mbps: float
    busy: float


@dataclass(frozen=True, slots=True)
class AlDevice:
    """A device, by its AL address."""

    al: str
    heard: tuple[HeardInterface, ...]
    links: tuple[AlLink, ...]


@dataclass(frozen=True, slots=True)
class AlDevices:
    """All devices that an access point hears; ``al`` is its own AL address."""

    al: str
    devices: tuple[AlDevice, ...]


def parse_al_devices(message: Mapping[str, Any]) -> AlDevices:
    """A message ``devices``; :class:`ProtocolError` that names what is wrong."""
    return AlDevices(_mac(message, "al"), _each(message, "devices", MAX_DEVICES, _device))


def _device(raw: Mapping[str, Any]) -> AlDevice:
    return AlDevice(_mac(raw, "al"), _each(raw, "heard", MAX_HEARD, _heard), _each(raw, "links", MAX_LINKS, _link))


def _heard(raw: Mapping[str, Any]) -> HeardInterface:
    name = raw.get("interface")
    if not isinstance(name, str) or not 0 < len(name) <= 64 or not name.isprintable():
        raise ProtocolError("devices: interface is not text of at most 64 characters")
    return HeardInterface(name, _mac(raw, "mac"))


def _link(raw: Mapping[str, Any]) -> AlLink:
    media_type = raw.get("media_type")
    if type(media_type) is not int or not 0 <= media_type <= 0xFFFF:
        raise ProtocolError("devices: media_type is not a whole number from 0 to 65535")
    return AlLink(
        _mac(raw, "mac"),
        _mac(raw, "to_al"),
        _mac(raw, "to_mac"),
        media_type,
        _number(raw, "capacity_mbps", MAX_MBPS),
        _number(raw, "busy", 1.0),
    )


def _mac(raw: Mapping[str, Any], key: str) -> str:
    value = raw.get(key)
    if not isinstance(value, str) or not _MAC.fullmatch(value):
        raise ProtocolError(f"devices: {key} is not an address of lower-case hexadecimal digits")
    return value


def _number(raw: Mapping[str, Any], key: str, most: float) -> float:
    value = raw.get(key)
    # JSON's NaN compares as false.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise ProtocolError(f"devices: {key} is not a number from 0 to {most:g}")
    return float(value)


def _each(raw: Mapping[str, Any], key: str, most: int, read: Callable[[Mapping[str, Any]], Item]) -> tuple[Item, ...]:
    entries = raw.get(key)
    if not isinstance(entries, list) or len(entries) > most or not all(isinstance(e, dict) for e in entries):
        raise ProtocolError(f"devices: {key} is not a list of at most {most} objects")
    return tuple(map(read, entries))
