"""The access point's file (docs/reference/measurement.md, sections 2 and 8): JSON -> :class:`AgentConfig`. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, TypeVar

from hyroads.controller.core import strict_json
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.strict_json import JsonError

from .emulated import EstimateErrors, Peer
from .radius import RadiusGroup, WiredConfig, parse_groups
from .wireless import MOST_MBM, RadioAbilities, frequency_mhz, is_interface

WIRELESS_BACKENDS = ("hostapd", "recorded")
DEFAULT_GLOBAL = "/run/hostapd/global"
MAX_RADIOS, MAX_BSS = 16, 32
_KEYS = ("backend", "state", "bridge", "global", "driver", "radios")
_RADIO_KEYS = ("interface", "channels", "most_bss", "most_dbm", "country", "options", "mac")
_COUNTRY = re.compile(r"[A-Z]{2}")
_BSSID = re.compile(r"[0-9a-f][02468ace](:[0-9a-f]{2}){5}")
# Of hostapd's file; a line that begins anew an interface or BSS, or says who is let in, is ours to write.
_OPTION = re.compile(r"[a-z0-9_]{1,64}=[ -~]{0,200}")
_RESERVED = frozenset(
    {"interface", "bss", "driver", "ctrl_interface", "channel", "hw_mode", "country_code", "ssid", "ssid2", "bssid"}
    | {"ieee8021x", "wpa_key_mgmt", "auth_server_addr", "auth_server_port", "auth_server_shared_secret"}
    | {"acct_server_addr", "acct_server_port", "acct_server_shared_secret", "radius_das_port", "radius_das_client"}
    | {"bridge", "wpa", "wpa_passphrase", "sae_password", "macaddr_acl", "ap_isolate"}
)
# A socket's address has room for 108 bytes.
_MAX_PATH_BYTES = 90


@dataclass(frozen=True)
class WirelessConfig:
    """Which radios are configured, by what, and where the configuration is kept."""

    radios: Mapping[str, RadioAbilities]
    backend: str = "hostapd"
    state: str | None = None
    bridge: str | None = None
    """Open vSwitch's, of which each BSS becomes a port."""
    global_socket: str = DEFAULT_GLOBAL
    driver: str = "nl80211"
    radius: Mapping[str, RadiusGroup] = field(default_factory=dict)
    """Groups of RADIUS servers, with their secrets once these were read."""


Item = TypeVar("Item")
BACKENDS = ("emulated", "linux-wifi", "plc", "devolo")
MIN_PASSWORD_LENGTH = 8  # RFC 3414, 11.2
DEFAULT_LISTEN = "127.0.0.1:161"
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,32}")
# Words of snmpd.conf: no quotes, blanks, backslashes or comment signs that could end one.
_SECRET = re.compile(r"[!$-&(-\[\]-~]{1,64}")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_IFNAME = re.compile(r"[^\s/#\"']{1,15}")


@dataclass(frozen=True, slots=True)
class User:
    """A user of SNMPv3, authPriv (SHA-256, AES-128)."""

    name: str
    auth_password: str = field(repr=False)
    priv_password: str = field(repr=False)
    write: bool = False
    """May set what can be set."""


@dataclass(frozen=True, slots=True)
class InterfaceConfig:
    """One interface and its back end; ``adapter`` is the IP address of a devolo adapter, ``password`` the device's."""

    name: str
    technology: str
    medium: str
    backend: str
    peers: tuple[Peer, ...] = ()
    adapter: str = ""
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class HostapdConfig:
    """A control socket of hostapd, and the technology of its interface (``host``: it is the node's access port)."""

    socket: str
    technology: str


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """The whole file."""

    node: str
    interfaces: tuple[InterfaceConfig, ...]
    listen: tuple[str, ...] = (DEFAULT_LISTEN,)
    community: str | None = field(default=None, repr=False)
    users: tuple[User, ...] = ()
    neighbours: Mapping[str, str] = field(default_factory=dict)
    medium_socket: str | None = None
    hostapd: tuple[HostapdConfig, ...] = ()
    errors: EstimateErrors = field(default_factory=EstimateErrors)
    wireless: WirelessConfig | None = None
    radius: Mapping[str, RadiusGroup] = field(default_factory=dict)
    wired: WiredConfig | None = None
    ieee1905: bool = True
    """Whether the interfaces that are not emulated speak IEEE 1905.1 to their neighbours."""


class _Document:
    """Takes a document apart; every complaint names the file and the place."""

    def __init__(self, name: str) -> None:
        self.name = name

    def fail(self, place: str, expected: str) -> ConfigError:
        return ConfigError(self.name, place, f"expected {expected}")

    def mapping(self, value: Any, place: str, keys: tuple[str, ...] | None = None) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.fail(place, "an object")
        for key in value:
            if keys is not None and key not in keys:
                raise self.fail(f"{place}.{key}".lstrip("."), f"one of the keys {', '.join(keys)}")
        return value

    def each(self, value: Any, place: str, read: Callable[[_Document, Any, str], Item]) -> tuple[Item, ...]:
        if not isinstance(value, list):
            raise self.fail(place, "a list")
        return tuple(read(self, item, f"{place}.{i}") for i, item in enumerate(value))

    def word(self, value: Any, place: str, fits: Callable[[str], object], expected: str) -> str:
        if not isinstance(value, str) or not fits(value):
            raise self.fail(place, expected)
        return value

    def optional(
        self, section: Mapping[str, Any], place: str, key: str, fits: Callable[[str], object], expected: str
    ) -> str | None:
        return self.word(section[key], f"{place}.{key}", fits, expected) if key in section else None

    def text(self, value: Any, place: str) -> str:
        if not isinstance(value, str) or len(value) > 64 or not value.isprintable():
            raise self.fail(place, "a text of at most 64 characters")
        return value


def parse(text: str, name: str) -> AgentConfig:
    """The configuration; :class:`ConfigError` naming file, place and what was expected. Secrets are never quoted."""
    document = _Document(name)
    try:
        raw = strict_json.parse(text)
    except JsonError as error:
        raise ConfigError(
            name, "" if error.line is None else f"line {error.line}", f"expected JSON: {error}"
        ) from error
    top = document.mapping(raw, "", tuple(f.name for f in fields(AgentConfig)))
    if "node" not in top:
        raise document.fail("node", "the node's name")
    interfaces = document.each(top.get("interfaces", []), "interfaces", _interface)
    socket = top.get("medium_socket")
    if socket is None and any(interface.backend == "emulated" for interface in interfaces):
        raise document.fail("medium_socket", "the path of hyroads-medium's control socket")
    community = top.get("community")
    listen = document.each(top.get("listen", [DEFAULT_LISTEN]), "listen", _address)
    if not listen:
        raise document.fail("listen", "at least one address")
    node = document.text(top["node"], "node")
    groups = parse_groups(document, top["radius"], node) if "radius" in top else {}
    return AgentConfig(
        node=node,
        interfaces=interfaces,
        listen=listen,
        community=None if community is None else _secret(document, community, "community"),
        users=document.each(top.get("users", []), "users", _user),
        neighbours=_neighbours(document, top.get("neighbours", {})),
        medium_socket=socket,
        hostapd=document.each(top.get("hostapd", []), "hostapd", _hostapd),
        errors=_errors(document, top.get("errors", {})),
        wireless=_wireless(document, top["wireless"], groups) if "wireless" in top else None,
        radius=groups,
        wired=_wired(document, top["wired"], groups) if "wired" in top else None,
        ieee1905=_switch(document, top.get("ieee1905", True), "ieee1905"),
    )


def _switch(document: _Document, value: Any, place: str) -> bool:
    if not isinstance(value, bool):
        raise document.fail(place, "true or false")
    return value


def _wired(document: _Document, raw: Any, groups: Mapping[str, RadiusGroup]) -> WiredConfig:
    section = document.mapping(raw, "wired", ("interface", "radius"))
    name = document.word(section.get("interface"), "wired.interface", is_interface, "the bridge's own interface")
    if section.get("radius") not in groups:
        raise document.fail("wired.radius", f"a group of radius ({', '.join(groups) or 'there is none'})")
    return WiredConfig(name, section["radius"])


def _hostapd(document: _Document, raw: Any, place: str) -> HostapdConfig:
    entry = document.mapping(raw, place, ("socket", "technology"))
    path = entry.get("socket")
    # A socket's address has room for 108 bytes.
    if not isinstance(path, str) or not path.startswith("/") or len(path.encode()) > 107 or "\0" in path:
        raise document.fail(f"{place}.socket", "the path of hostapd's control socket, such as /var/run/hostapd/wlan0")
    return HostapdConfig(path, document.text(entry.get("technology"), f"{place}.technology"))


def _interface(document: _Document, raw: Any, place: str) -> InterfaceConfig:
    entry = document.mapping(raw, place, ("name", "technology", "medium", "backend", "peers", "adapter", "password"))
    if entry.get("backend") not in BACKENDS:
        raise document.fail(f"{place}.backend", f"one of {', '.join(BACKENDS)}")
    of_devolo = entry["backend"] == "devolo"
    for key in ("adapter", "password"):
        if key in entry and not of_devolo:
            raise document.fail(f"{place}.{key}", "the backend devolo with it")
    technology = document.text(entry.get("technology", ""), f"{place}.technology")
    return InterfaceConfig(
        name=document.word(entry.get("name"), f"{place}.name", _IFNAME.fullmatch, "an interface's name"),
        technology=technology,
        medium=document.text(entry.get("medium", technology), f"{place}.medium"),
        backend=entry["backend"],
        peers=document.each(entry.get("peers", []), f"{place}.peers", _peer),
        adapter=_host(document, entry.get("adapter"), f"{place}.adapter") if of_devolo else "",
        password=document.text(entry.get("password", ""), f"{place}.password"),
    )


def _host(document: _Document, raw: Any, place: str) -> str:
    try:
        return str(ipaddress.ip_address(raw if isinstance(raw, str) else ""))
    except ValueError:
        raise document.fail(place, "the IP address of the adapter, such as 192.0.2.20") from None


def _peer(document: _Document, raw: Any, place: str) -> Peer:
    entry = document.mapping(raw, place, ("mac", "node", "out_link", "in_link"))
    return Peer(
        mac=_mac(document, entry.get("mac"), f"{place}.mac"),
        node=document.text(entry.get("node", ""), f"{place}.node"),
        out_link=entry.get("out_link"),
        in_link=entry.get("in_link"),
    )


def _address(document: _Document, raw: Any, place: str) -> str:
    host, _, port = raw.rpartition(":") if isinstance(raw, str) else ("", "", "")
    try:
        ipaddress.IPv4Address(host)
        valid = port.isdecimal() and 0 < int(port) < 0x10000
    except ValueError:
        valid = False
    if not valid:
        raise document.fail(place, "an IPv4 address and port such as 127.0.0.1:161")
    return str(raw)


def _user(document: _Document, raw: Any, place: str) -> User:
    entry = document.mapping(raw, place, ("name", "auth_password", "priv_password", "write"))
    name = document.word(
        entry.get("name"), f"{place}.name", _NAME.fullmatch, "a name of letters, digits, '.', '_' or '-'"
    )
    passwords = [_secret(document, entry.get(key), f"{place}.{key}") for key in ("auth_password", "priv_password")]
    write = entry.get("write", False)
    if not isinstance(write, bool):
        raise document.fail(f"{place}.write", "true or false")
    return User(name, passwords[0], passwords[1], write)


def _secret(document: _Document, value: Any, place: str) -> str:
    least = 1 if place == "community" else MIN_PASSWORD_LENGTH
    expected = f"{least} to 64 printable characters without blanks, quotes, '#' or backslash"
    if len(document.word(value, place, _SECRET.fullmatch, expected)) < least:
        raise document.fail(place, expected)
    return str(value)


def _mac(document: _Document, value: Any, place: str) -> str:
    lower = value.lower() if isinstance(value, str) else value
    return document.word(lower, place, _MAC.fullmatch, "a MAC address such as 02:00:01:01:00:01")


def _neighbours(document: _Document, raw: Any) -> dict[str, str]:
    entries = document.mapping(raw, "neighbours").items()
    return {_mac(document, mac, f"neighbours.{mac}"): document.text(n, f"neighbours.{mac}") for mac, n in entries}


def _errors(document: _Document, raw: Any) -> EstimateErrors:
    entry = document.mapping(raw, "errors", tuple(f.name for f in fields(EstimateErrors)))
    ranges: dict[str, tuple[str, Callable[[float], bool]]] = {
        "low_rate_bias": ("a number from 0 to 1", lambda x: 0 <= x <= 1),
        "hold_s": ("a positive number", lambda x: x > 0),
    }
    for key, value in entry.items():
        expected, fits = ranges.get(key, ("a number of at least 0", lambda x: x >= 0))
        if isinstance(value, bool) or not isinstance(value, int | float) or not fits(value):
            raise document.fail(f"errors.{key}", expected)
    return EstimateErrors(**entry)


def _wireless(document: _Document, raw: Any, groups: Mapping[str, RadiusGroup]) -> WirelessConfig:
    section = document.mapping(raw, "wireless", _KEYS)
    backend, listed = section.get("backend", "hostapd"), section.get("radios")
    if backend not in WIRELESS_BACKENDS:
        raise document.fail("wireless.backend", f"one of {', '.join(WIRELESS_BACKENDS)}")
    if not isinstance(listed, list) or not 1 <= len(listed) <= MAX_RADIOS:
        raise document.fail("wireless.radios", f"a list of 1 to {MAX_RADIOS} radios")
    radios = document.each(listed, "wireless.radios", _radio)
    known = MappingProxyType({name: group.disconnect is not None for name, group in groups.items()})
    by_name = {radio.interface: replace(radio, radius=known) for radio in radios}
    if len(by_name) < len(radios):
        raise document.fail("wireless.radios", "each interface once")
    path = f"an absolute path of at most {_MAX_PATH_BYTES} bytes"
    return WirelessConfig(
        by_name,
        backend,
        document.optional(section, "wireless", "state", _is_path, path),
        document.optional(section, "wireless", "bridge", is_interface, "the name of a bridge"),
        document.optional(section, "wireless", "global", _is_path, path) or DEFAULT_GLOBAL,
        document.word(section.get("driver", "nl80211"), "wireless.driver", str.isalnum, "a driver such as nl80211"),
    )


def _is_path(text: str) -> bool:
    return text.startswith("/") and "\0" not in text and len(text.encode()) <= _MAX_PATH_BYTES


def _radio(document: _Document, raw: Any, place: str) -> RadioAbilities:
    entry = document.mapping(raw, place, _RADIO_KEYS)
    interface = document.word(entry.get("interface"), f"{place}.interface", is_interface, "an interface's name")
    most_dbm, most_bss = entry.get("most_dbm", 20), entry.get("most_bss", 8)
    if isinstance(most_dbm, bool) or not isinstance(most_dbm, int | float) or not 0 <= most_dbm <= MOST_MBM / 100:
        raise document.fail(f"{place}.most_dbm", f"a number from 0 to {MOST_MBM // 100}")
    if isinstance(most_bss, bool) or not isinstance(most_bss, int) or not 1 <= most_bss <= MAX_BSS:
        raise document.fail(f"{place}.most_bss", f"a whole number from 1 to {MAX_BSS}")
    channels = entry.get("channels")
    whole = isinstance(channels, list) and all(isinstance(c, int) and not isinstance(c, bool) for c in channels)
    if not whole or not channels or any(frequency_mhz(channel) is None for channel in channels):
        raise document.fail(f"{place}.channels", "a list of channels at 2.4 or 5 GHz")
    return RadioAbilities(
        interface,
        tuple(dict.fromkeys(channels)),
        most_bss,
        round(100 * most_dbm),
        document.optional(entry, place, "country", _COUNTRY.fullmatch, "two capital letters"),
        _options(document, entry.get("options", []), f"{place}.options"),
        document.optional(entry, place, "mac", _BSSID.fullmatch, "a MAC address such as 02:00:00:00:00:01"),
    )


def _options(document: _Document, raw: Any, place: str) -> tuple[str, ...]:
    if not isinstance(raw, list):
        raise document.fail(place, "a list of lines for hostapd")
    for number, line in enumerate(raw):
        if not isinstance(line, str) or not _OPTION.fullmatch(line) or line.split("=")[0] in _RESERVED:
            raise document.fail(f"{place}.{number}", "a line such as ieee80211n=1 that nothing else here decides")
    return tuple(raw)
