"""Slices and access points -> the virtual interfaces (BSSs) wanted on each access point, and the slices' ports. Pure.

A network is on every radio of every access point at whose switch its slice owns something; of one without flowspace
rules, on all. The name of its interface follows from radio, slice and SSID alone, so it stays while others come and go.
The file of access points is the section ``devices`` of SNMPVisor's settings, whose other sections it may have too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256

from hyroads.controller.core.errors import ConfigError
from hyroads.controller.files.documents import read_settings
from hyroads.slices.core.errors import SliceError
from hyroads.slices.core.match import ALL
from hyroads.slices.core.model import PRODUCTION, FlowspaceRule, Slice, SliceModel
from hyroads.slices.snmpvisor.config import LOOPBACK, Device, devices_of

MAX_INTERFACE = 15
RULE = "ssid"
"""Name of the flowspace rules that come of SSIDs."""
PRIORITY = 150
"""Who chose an SSID has chosen its slice, whatever rules without a priority of their own say (100)."""


class SsidError(SliceError):
    """SSIDs that can't be had on these access points."""


@dataclass(frozen=True, slots=True)
class AccessPoint:
    """What matters of one here: its switch, and how many BSSs each of its radios (by interface) has room for."""

    name: str
    switch: int
    radios: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class WantedBss:
    """A virtual interface; ``passphrase_file`` names where the passphrase is, ``radius`` who authenticates stations."""

    name: str
    radio: str
    slice_name: str
    ssid: str
    security: str
    passphrase_file: str | None = field(default=None, repr=False)
    radius: str | None = None


def bss_name(radio: str, slice_name: str, ssid: str) -> str:
    """``wlan0-research``; the end of a hash where that is too long, or the SSID is not called as its slice."""
    plain = f"{radio}-{slice_name}"
    if ssid == slice_name and len(plain) <= MAX_INTERFACE:
        return plain
    digest = sha256(f"{slice_name}/{ssid}".encode()).hexdigest()[:4]
    return f"{plain[: MAX_INTERFACE - 5]}.{digest}"


def wanted(model: SliceModel, points: Iterable[AccessPoint]) -> dict[str, tuple[WantedBss, ...]]:
    """The BSSs of each access point; :class:`SsidError` if a radio has no room, or two would be the same."""
    listed = list(points)
    known = frozenset(point.switch for point in listed)
    return {point.name: _of_point(model, point, known) for point in listed}


def _of_point(model: SliceModel, point: AccessPoint, known: frozenset[int]) -> tuple[WantedBss, ...]:
    found: list[WantedBss] = []
    for radio, room in point.radios.items():
        mine = [
            WantedBss(
                bss_name(radio, each.name, ssid.name),
                radio,
                each.name,
                ssid.name,
                ssid.security,
                ssid.passphrase_file,
                ssid.radius,
            )
            for each in model.slices.values()
            if point.switch in _switches(each, known)
            for ssid in each.ssids
        ]
        _check(point, radio, room, mine)
        found += mine
    return tuple(sorted(found, key=lambda bss: bss.name))


def _switches(each: Slice, known: frozenset[int]) -> frozenset[int]:
    declared = [rule for rule in each.flowspace if rule.name != RULE]
    return replace(each, flowspace=tuple(declared)).switches(known) if declared else known


def _check(point: AccessPoint, radio: str, room: int, bsss: list[WantedBss]) -> None:
    place = f"access point {point.name}, radio {radio}"
    if len(bsss) > room:
        listed = ", ".join(f"{bss.ssid} ({bss.slice_name})" for bss in bsss)
        raise SsidError(f"{place}: room for {room} networks, {len(bsss)} are wanted: {listed}")
    by_ssid: dict[str, str] = {}
    by_name: dict[str, str] = {}
    for bss in bsss:
        other = by_ssid.setdefault(bss.ssid, bss.slice_name)
        if other != bss.slice_name:
            raise SsidError(f"{place}: slices {other} and {bss.slice_name} both have the SSID {bss.ssid}")
        if by_name.setdefault(bss.name, bss.ssid) != bss.ssid:
            raise SsidError(f"{place}: the SSIDs {by_name[bss.name]} and {bss.ssid} give one name, {bss.name}")


def rules(each: Slice, points: Iterable[AccessPoint]) -> tuple[FlowspaceRule, ...]:
    """The flowspace that a slice has by its SSIDs: the ports of its networks, on each switch."""
    if each.name == PRODUCTION or not each.ssids:
        return ()
    listed = list(points)
    switches = _switches(each, frozenset(point.switch for point in listed))
    by_ports: dict[frozenset[str], set[int]] = {}
    for point in listed:
        if point.switch in switches and point.radios:
            ports = frozenset(bss_name(radio, each.name, ssid.name) for ssid in each.ssids for radio in point.radios)
            by_ports.setdefault(ports, set()).add(point.switch)
    return tuple(
        FlowspaceRule((ALL,), PRIORITY, switches=frozenset(found), ports=ports, name=RULE)
        for ports, found in sorted(by_ports.items(), key=lambda item: sorted(item[1]))
    )


def with_ports(each: Slice, points: Iterable[AccessPoint]) -> Slice:
    """The slice with the ports of its networks, and none of networks that it no longer has."""
    declared = tuple(rule for rule in each.flowspace if rule.name != RULE)
    return replace(each, flowspace=declared + rules(each, points))


@dataclass(frozen=True)
class Points:
    """Access points, and how their agents are reached."""

    points: tuple[AccessPoint, ...]
    devices: dict[str, Device]


def load(path: str) -> Points:
    """Read a file; errors are :class:`ConfigError`."""
    document = read_settings(path)
    devices = {name: each for name, each in devices_of(document, path).items() if each.radios}
    for name, device in devices.items():
        if device.switch is None:
            raise ConfigError(
                path, f"devices.{name}.switch", "is missing: the datapath id of the access point's switch"
            )
        if device.access.user is None and device.address.host not in LOOPBACK:
            raise ConfigError(path, f"devices.{name}", "expected a user (SNMPv3): passphrases must not go in the clear")
        if device.access.user is not None and device.access.user.privacy_password is None:
            raise ConfigError(path, f"devices.{name}.user", "expected a privacy password: passphrases are sent")
    points = tuple(AccessPoint(name, each.switch or 0, each.radios) for name, each in devices.items())
    return Points(points, devices)
