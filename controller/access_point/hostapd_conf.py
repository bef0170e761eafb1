"""From the wanted wireless configuration to hostapd: files, the steps of a change, and whether it was done. Pure.

hostapd (2.10) is asked over its global control socket. ``ADD bss_config=PHY:FILE`` starts a radio with all BSSs of the
file, or adds one BSS to a radio that runs; ``REMOVE NAME`` takes a BSS or a whole radio off the air. Both answer OK or
FAIL once it is done. So what the others on a radio do goes on, unless the radio or its first BSS changes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from .radius import RadiusGroup, radius_lines
from .wireless import (
    ENTERPRISE,
    OPEN,
    WPA2,
    WPA2_ENTERPRISE,
    WPA3,
    WPA3_ENTERPRISE,
    Bss,
    Radio,
    RadioAbilities,
    Wireless,
    WirelessError,
    frequency_mhz,
    is_passphrase,
)

_POWER = re.compile(r"^\s*txpower (-?\d+(?:\.\d+)?) dBm\s*$", re.MULTILINE)
POWER_TOLERANCE_DB = 1.0
"""Drivers know steps of half a dB or whole ones."""
ON_THE_AIR = "ENABLED"
ON_THE_WAY = ("COUNTRY_UPDATE", "ACS", "HT_SCAN", "DFS")
"""States that last: a radar channel is listened to for a minute before anything may be sent on it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where hostapd runs: the driver, the folder of the control sockets of its interfaces, and the groups of RADIUS
    servers that it may ask.
    """

    control: str
    driver: str = "nl80211"
    radius: Mapping[str, RadiusGroup] = field(default_factory=dict)


def radio_text(able: RadioAbilities, radio: Radio, wireless: Wireless, place: Place) -> str:
    """The file of a radio with all its BSSs; the first is on the radio's own interface, closed if nobody has it."""
    bsss = wireless.on(able.interface)
    own = next((bss for bss in bsss if bss.name == able.interface), None)
    lines = [*_head(able.interface, able, radio, bsss, place), *(_closed() if own is None else _bss_lines(own, place))]
    for bss in bsss:
        if bss.name != able.interface:
            lines += [
                f"bss={bss.name}",
                f"ctrl_interface={place.control}",
                f"bssid={bss.bssid}",
                *_bss_lines(bss, place),
            ]
    return "\n".join(lines) + "\n"


def bss_text(bss: Bss, able: RadioAbilities, radio: Radio, wireless: Wireless, place: Place) -> str:
    """The file of one BSS that joins others on a radio."""
    head = _head(bss.name, able, radio, wireless.on(able.interface), place)
    return "\n".join([*head, f"bssid={bss.bssid}", *_bss_lines(bss, place)]) + "\n"


def _head(interface: str, able: RadioAbilities, radio: Radio, bsss: tuple[Bss, ...], place: Place) -> list[str]:
    # The BSSs' ports are the switch's: hostapd knows no bridge of it, and ap_isolate keeps frames from going past it.
    lines = [f"interface={interface}", f"driver={place.driver}", f"ctrl_interface={place.control}"]
    if able.country is not None:
        lines += [f"country_code={able.country}", "ieee80211d=1"]
    lines += [f"hw_mode={'g' if (frequency_mhz(radio.channel) or 0) < 5000 else 'a'}", f"channel={radio.channel}"]
    if any(bss.airtime_weight != 1 for bss in bsss):
        lines.append("airtime_mode=2")
    return [*lines, *able.options]


def _bss_lines(bss: Bss, place: Place) -> list[str]:
    # In hexadecimal no byte can end the line.
    lines = [f"ssid2={bss.ssid.hex()}", "auth_algs=1", "ap_isolate=1"]
    if _is_utf8(bss.ssid):
        lines.append("utf8_ssid=1")
    if bss.airtime_weight != 1:
        lines.append(f"airtime_bss_weight={bss.airtime_weight}")
    return [*lines, *_SECURITY[bss.security], *_passphrase_lines(bss), *_radius_lines(bss, place)]


def _radius_lines(bss: Bss, place: Place) -> list[str]:
    if bss.security not in ENTERPRISE:
        return []
    if bss.radius not in place.radius:
        raise WirelessError(f"{bss.name}: there is no group {bss.radius!a} of RADIUS servers")
    return radius_lines(place.radius[bss.radius])


def _passphrase_lines(bss: Bss) -> list[str]:
    """The one text of others that is in the file as it is. hostapd takes all up to the end of the line as the
    passphrase, for SAE too: not with ``sae_password``, in which ``|mac=``, ``|vlanid=``, ``|pk=`` and ``|id=`` are
    options. A ``{`` means nothing either, to hostapd or to us.
    """
    if bss.security == OPEN or bss.security in ENTERPRISE:
        return []
    if not is_passphrase(bss.passphrase):
        raise WirelessError(f"{bss.name}: expected a passphrase of 8 to 63 printable characters")
    return [f"wpa_passphrase={bss.passphrase}"]


_SECURITY: dict[str, tuple[str, ...]] = {
    OPEN: (),
    WPA2: ("wpa=2", "wpa_key_mgmt=WPA-PSK", "rsn_pairwise=CCMP", "ieee80211w=1"),
    WPA3: ("wpa=2", "wpa_key_mgmt=SAE", "rsn_pairwise=CCMP", "ieee80211w=2"),
    WPA2_ENTERPRISE: ("wpa=2", "wpa_key_mgmt=WPA-EAP", "rsn_pairwise=CCMP", "ieee80211w=1"),
    WPA3_ENTERPRISE: ("wpa=2", "wpa_key_mgmt=WPA-EAP-SHA256", "rsn_pairwise=CCMP", "ieee80211w=2"),
}
KEY_MANAGEMENT = {
    OPEN: None,
    WPA2: "WPA-PSK",
    WPA3: "SAE",
    WPA2_ENTERPRISE: "WPA-EAP",
    WPA3_ENTERPRISE: "WPA-EAP-SHA256",
}


def _closed() -> list[str]:
    """What the radio's own interface does while nobody has it: no beacons, and nobody is let in."""
    hidden = ["ssid=closed", "ignore_broadcast_ssid=2", "start_disabled=1"]
    return [*hidden, "auth_algs=1", "ap_isolate=1", "macaddr_acl=1"]


def _is_utf8(ssid: bytes) -> bool:
    try:
        ssid.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


class What(StrEnum):
    """What is done to a radio: all that is wanted of it goes on the air, or goes off; one BSS joins or leaves, while
    the others stay; its transmit power is set.
    """

    START = "start"
    STOP = "stop"
    JOIN = "join"
    LEAVE = "leave"
    POWER = "power"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a change; ``bss`` is who joins or leaves."""

    what: What
    radio: str
    bss: str = ""


def steps(before: Wireless, wanted: Wireless) -> list[Step]:
    """What to do, all that leaves first. A radio that ``before`` does not have is off the air."""
    leaving: list[Step] = []
    coming: list[Step] = []
    for name in wanted.radios:
        gone, new = _radio_steps(name, before, wanted)
        leaving += gone
        coming += new
    return leaving + coming


def _radio_steps(name: str, before: Wireless, wanted: Wireless) -> tuple[list[Step], list[Step]]:
    old = {bss.name: bss for bss in before.on(name)}
    new = {bss.name: bss for bss in wanted.on(name)}
    radio, was = wanted.radios[name], before.radios.get(name)
    stop = [Step(What.STOP, name)] if old else []
    power = Step(What.POWER, name)
    if not new:
        return stop, []
    if not old or was is None or _needs_restart(name, was, radio, old, new):
        return stop, [Step(What.START, name), power]
    leave = [Step(What.LEAVE, name, bss) for bss in old if new.get(bss) != old[bss]]
    join = [Step(What.JOIN, name, bss) for bss in new if old.get(bss) != new[bss]]
    return leave, join + ([power] if radio.power_mbm != was.power_mbm else [])


def _needs_restart(name: str, was: Radio, radio: Radio, old: Mapping[str, Bss], new: Mapping[str, Bss]) -> bool:
    """The channel, the first BSS and whether airtime is weighted at all are the radio's."""
    weighted = [any(bss.airtime_weight != 1 for bss in each.values()) for each in (old, new)]
    return was.channel != radio.channel or old.get(name) != new.get(name) or weighted[0] != weighted[1]


def fields_of(answer: str) -> dict[str, str]:
    """``key=value`` lines of hostapd's answers."""
    return dict(line.partition("=")[::2] for line in answer.splitlines() if "=" in line)


def shown_ssid(ssid: bytes) -> str:
    """An SSID as hostapd prints it."""
    special = {0x22: '\\"', 0x5C: "\\\\", 0x1B: "\\e", 0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t"}
    return "".join(special.get(b, chr(b) if 32 <= b <= 126 else f"\\x{b:02x}") for b in ssid)


def difference(bss: Bss, radio: Radio, status: Mapping[str, str], configuration: Mapping[str, str]) -> str | None:
    """What a BSS lacks of what is wanted, by hostapd's ``STATUS`` and ``GET_CONFIG`` of it; None: nothing."""
    state = status.get("state", "nothing")
    if state != ON_THE_AIR and state not in ON_THE_WAY:
        return f"{bss.name} is {state.lower()}"
    if configuration.get("ssid") != shown_ssid(bss.ssid):
        return f"{bss.name} has another SSID"
    if configuration.get("key_mgmt", "").strip() != (KEY_MANAGEMENT[bss.security] or ""):
        return f"{bss.name} has another kind of security"
    if status.get("channel", str(radio.channel)) not in (str(radio.channel), "0"):
        return f"{bss.radio} is on channel {status['channel']}"
    return None


def on_air(status: Mapping[str, str]) -> frozenset[str]:
    """The BSSs of a radio, by its ``STATUS``."""
    return frozenset(value for key, value in status.items() if key.startswith("bss["))


def stations_of(name: str, status: Mapping[str, str]) -> int:
    """How many stations a BSS has, by its radio's ``STATUS``."""
    for key, value in status.items():
        if key.startswith("bss[") and value == name:
            count = status.get(f"num_sta{key[3:]}", "0")
            return int(count) if count.isdecimal() else 0
    return 0


def power_command(radio: str, phy: str | None, mbm: int) -> list[str]:
    """Sets the transmit power: of the whole radio, for by the name of an interface it would be that BSS's alone."""
    whose = ["dev", radio] if phy is None else ["phy", phy]
    return ["iw", *whose, "set", "txpower", *(("auto",) if mbm < 0 else ("fixed", str(mbm)))]


def power_difference(radio: str, mbm: int, info: str) -> str | None:
    """Whether ``iw dev BSS info`` shows another power; a driver that shows none can't be checked."""
    found = _POWER.search(info)
    if mbm < 0 or found is None or abs(float(found[1]) - mbm / 100) <= POWER_TOLERANCE_DB:
        return None
    return f"{radio} sends with {found[1]} dBm"
