"""The wanted wireless configuration of an access point: its radios, and the virtual interfaces (BSSs) on them. Pure.

A BSS is one wireless network on one radio, under the name of its interface. Its address is given when it is made and
kept: the radio's own but for the first byte, which is how drivers tell the addresses of one radio apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from types import MappingProxyType
from typing import Any

from hyroads.controller.core.errors import HyroadsError

OPEN, WPA2, WPA3 = "open", "wpa2", "wpa3"
WPA2_ENTERPRISE, WPA3_ENTERPRISE = "wpa2-enterprise", "wpa3-enterprise"
SECURITIES = (OPEN, WPA2, WPA3, WPA2_ENTERPRISE, WPA3_ENTERPRISE)
ENTERPRISE = frozenset({WPA2_ENTERPRISE, WPA3_ENTERPRISE})
"""Stations are authenticated by RADIUS servers (802.1X)."""
AUTOMATIC_MBM = -1
"""The transmit power is the driver's affair."""
MOST_MBM = 4000
MOST_WEIGHT = 256
MAX_SSID_BYTES, MAX_NAME_BYTES, MAX_SLICE_BYTES = 32, 15, 32
is_passphrase = re.compile(r"[ -~]{8,63}").fullmatch
"""Whether WPA takes a text: 8 to 63 printable characters of ASCII."""
is_interface = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}").fullmatch
"""Whether a BSS may have this name."""
is_slice_name = re.compile(r"[A-Za-z0-9_.-]{0,32}").fullmatch
"""Whether a slice may be called so; empty is no slice's."""
_BSSID = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_ADDRESSES = 63
"""How many addresses one radio can have: six bits of the first byte."""


class WirelessError(HyroadsError):
    """A wireless configuration that is refused, by us or by the access point's programs."""


class Inconsistent(WirelessError):
    """A configuration that contradicts itself or the radio; ``row`` is the radio or BSS that it is about."""

    def __init__(self, row: str, problem: str) -> None:
        self.row = row
        self.problem = problem
        super().__init__(f"{row}: {problem}")

    def __reduce__(self) -> tuple[type[Inconsistent], tuple[str, str]]:
        """Pickle by the arguments of the constructor."""
        return type(self), (self.row, self.problem)


@dataclass(frozen=True, slots=True)
class RadioAbilities:
    """What the operator allows a radio; ``options`` are further lines of hostapd's configuration, ``radius`` the groups
    of RADIUS servers that there are, and whether the servers of a group may disconnect stations.
    """

    interface: str
    channels: tuple[int, ...]
    most_bss: int = 8
    most_mbm: int = 2000
    country: str | None = None
    options: tuple[str, ...] = ()
    mac: str | None = None
    radius: Mapping[str, bool] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Radio:
    """What a radio shall do; the power is in mBm (1/100 dBm), as ``iw`` takes it."""

    channel: int
    power_mbm: int = AUTOMATIC_MBM
    up: bool = True


@dataclass(frozen=True, slots=True)
class Bss:
    """A wireless network on a radio."""

    name: str
    radio: str
    ssid: bytes = b""
    security: str = OPEN
    passphrase: str = field(default="", repr=False)
    enabled: bool = False
    slice_name: str = ""
    airtime_weight: int = 1
    """Airtime under contention is shared among the radio's networks by these."""
    bssid: str = ""
    radius: str = ""
    """The group of RADIUS servers that authenticate its stations."""


@dataclass(frozen=True)
class Wireless:
    """Radios and BSSs by the names of their interfaces."""

    radios: Mapping[str, Radio]
    bsss: Mapping[str, Bss] = field(default_factory=lambda: MappingProxyType({}))

    def on(self, radio: str) -> tuple[Bss, ...]:
        """The BSSs that shall be on the air of a radio, in the order of their names; none if the radio is off."""
        if radio not in self.radios or not self.radios[radio].up:
            return ()
        return tuple(bss for _, bss in sorted(self.bsss.items()) if bss.radio == radio and bss.enabled)


@dataclass(frozen=True, slots=True)
class BssReport:
    """What the access point says of a BSS."""

    up: bool
    stations: int = 0


@dataclass(frozen=True)
class Report:
    """What is on the air: BSSs by name; a radio is up if any of its BSSs is."""

    bsss: Mapping[str, BssReport] = field(default_factory=lambda: MappingProxyType({}))


def frequency_mhz(channel: int) -> int | None:
    """The centre of a channel of 2.4 or 5 GHz; None if there is no such channel."""
    if 1 <= channel <= 13:
        return 2407 + 5 * channel
    if channel == 14:
        return 2484
    # 36..64 and 100..144 in steps of 4; from 149 on the raster is shifted by one.
    if (36 <= channel <= 64 or 100 <= channel <= 144) and channel % 4 == 0:
        return 5000 + 5 * channel
    if 149 <= channel <= 177 and channel % 4 == 1:
        return 5000 + 5 * channel
    return None


def first_of(abilities: Iterable[RadioAbilities]) -> Wireless:
    """What a new access point does: nothing is on the air."""
    return Wireless({each.interface: Radio(each.channels[0]) for each in abilities})


def check(wireless: Wireless, abilities: Mapping[str, RadioAbilities]) -> None:
    """:class:`Inconsistent` if a radio can't do what it shall, or a BSS lacks something."""
    for name, radio in wireless.radios.items():
        _check_radio(name, radio, abilities[name])
    seen: dict[tuple[str, bytes], str] = {}
    for name, bss in sorted(wireless.bsss.items()):
        _check_bss(bss, abilities)
        if bss.enabled and seen.setdefault((bss.radio, bss.ssid), name) != name:
            raise Inconsistent(name, f"has the same SSID as {seen[bss.radio, bss.ssid]} on {bss.radio}")
    for name, able in abilities.items():
        mine = [each for each, bss in sorted(wireless.bsss.items()) if bss.radio == name]
        if len(mine) > able.most_bss:
            raise Inconsistent(mine[-1], f"{name} has room for {able.most_bss} BSSs, not for {len(mine)}")
    _check_disconnect(wireless, abilities)


def _check_disconnect(wireless: Wireless, abilities: Mapping[str, RadioAbilities]) -> None:
    """hostapd has one socket for what a group's servers ask, and it belongs to one BSS."""
    users: dict[str, str] = {}
    for name, bss in sorted(wireless.bsss.items()):
        may_ask = bss.enabled and bss.security in ENTERPRISE and abilities[bss.radio].radius.get(bss.radius, False)
        if may_ask and users.setdefault(bss.radius, name) != name:
            what = f"{users[bss.radius]} takes what the group {bss.radius} disconnects: use a group without disconnect"
            raise Inconsistent(name, what)


def _check_radio(name: str, radio: Radio, able: RadioAbilities) -> None:
    if radio.channel not in able.channels:
        raise Inconsistent(name, f"channel {radio.channel} is none of {', '.join(map(str, able.channels))}")
    if radio.power_mbm > able.most_mbm:
        raise Inconsistent(name, f"{radio.power_mbm / 100:g} dBm are more than {able.most_mbm / 100:g}")


def _check_bss(bss: Bss, abilities: Mapping[str, RadioAbilities]) -> None:
    if bss.radio not in abilities:
        raise Inconsistent(bss.name, f"there is no radio {bss.radio}")
    if bss.name in abilities and bss.name != bss.radio:
        raise Inconsistent(bss.name, "is the interface of another radio")
    if not bss.enabled:
        return
    if not bss.ssid:
        raise Inconsistent(bss.name, "has no SSID")
    if bss.security in ENTERPRISE and bss.radius not in abilities[bss.radio].radius:
        known = ", ".join(abilities[bss.radio].radius) or "there is none"
        raise Inconsistent(bss.name, f"{bss.security} needs a group of RADIUS servers of this access point ({known})")
    if bss.security in {WPA2, WPA3} and not bss.passphrase:
        raise Inconsistent(bss.name, f"{bss.security} needs a passphrase")


def with_addresses(wireless: Wireless, macs: Mapping[str, str]) -> Wireless:
    """Each BSS with an address: those that have one keep it, also when others go. ``macs`` are the radios' own."""
    taken = {(bss.radio, bss.bssid) for bss in wireless.bsss.values() if bss.bssid}
    bsss = dict(wireless.bsss)
    for name, bss in sorted(bsss.items()):
        if bss.bssid or bss.radio not in macs:
            continue
        own = macs[bss.radio]
        bssid = own if name == bss.radio else _free_address(own, name, {a for radio, a in taken if radio == bss.radio})
        taken.add((bss.radio, bssid))
        bsss[name] = replace(bss, bssid=bssid)
    return Wireless(wireless.radios, bsss)


def _free_address(own: str, name: str, taken: set[str]) -> str:
    """Locally administered; begins where the name says, so that an access point that forgot gives the same again."""
    start = int.from_bytes(sha256(f"{own}/{name}".encode()).digest()[:2], "big")
    for step in range(_ADDRESSES + 1):
        slot = (start + step) % (_ADDRESSES + 1)
        address = f"{slot << 2 | 2:02x}{own[2:]}"
        if address != own and address not in taken:
            return address
    raise Inconsistent(name, "its radio has no address left")


def made_up_mac(name: str) -> str:
    """The address of a radio that has none of its own: from its name, locally administered."""
    return ":".join(f"{byte:02x}" for byte in (2, *sha256(name.encode()).digest()[:5]))


def document_of(wireless: Wireless) -> dict[str, Any]:
    """As JSON; holds passphrases."""
    bsss = {
        name: {**asdict(bss), "ssid": bss.ssid.hex(), "slice": bss.slice_name} for name, bss in wireless.bsss.items()
    }
    for entry in bsss.values():
        del entry["name"], entry["slice_name"]
    return {"radios": {name: asdict(radio) for name, radio in wireless.radios.items()}, "bsss": bsss}


def restored(document: Any, abilities: Mapping[str, RadioAbilities]) -> Wireless:
    """What was kept, as far as the radios are still there; :class:`WirelessError` if it makes no sense."""
    fresh = first_of(abilities.values())
    try:
        radios = {name: _radio(document["radios"].get(name), fresh.radios[name]) for name in abilities}
        entries = document["bsss"].items()
        bsss = {name: _bss(name, entry) for name, entry in entries if entry["radio"] in abilities}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WirelessError(f"the kept configuration can't be read: {error!r}") from error
    remaining = Wireless(radios, bsss)
    check(remaining, abilities)
    return remaining


def _radio(entry: Any, fresh: Radio) -> Radio:
    return fresh if entry is None else Radio(int(entry["channel"]), int(entry["power_mbm"]), bool(entry["up"]))


def _bss(name: str, entry: Any) -> Bss:
    passphrase, bssid = str(entry["passphrase"]), str(entry["bssid"])
    sound = is_interface(name) and entry["security"] in SECURITIES and is_slice_name(str(entry["slice"]))
    if not sound or not (passphrase == "" or is_passphrase(passphrase)) or not (bssid == "" or _BSSID.fullmatch(bssid)):
        raise ValueError(name)
    return Bss(
        name, str(entry["radio"]), bytes.fromhex(entry["ssid"]), entry["security"], passphrase,
        bool(entry["enabled"]), str(entry["slice"]), int(entry["airtime_weight"]), bssid, str(entry.get("radius", "")),
    )  # fmt: skip
