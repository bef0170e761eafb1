"""The access point's agent file (docs/reference/measurement.md, section 2): JSON -> validated :class:`AgentConfig`.
Pure."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from hyroads.controller.core.errors import ConfigError
from hyroads.controller.radio.emulated import EstimateErrors, Peer
from hyroads.controller.radio.wireless_config import WirelessConfig, parse_wireless

BACKENDS = ("emulated", "linux-wifi", "plc")
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
    """One interface and its back end."""

    name: str
    technology: str
    medium: str
    backend: str
    peers: tuple[Peer, ...] = ()


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

    def items(self, value: Any, place: str) -> list[Any]:
        if not isinstance(value, list):
            raise self.fail(place, "a list")
        return value

    def word(self, value: Any, place: str, pattern: re.Pattern[str], expected: str) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise self.fail(place, expected)
        return value

    def text(self, value: Any, place: str) -> str:
        if not isinstance(value, str) or len(value) > 64 or not value.isprintable():
            raise self.fail(place, "a text of at most 64 characters")
        return value


def parse(text: str, name: str) -> AgentConfig:
    """The configuration; :class:`ConfigError` naming file, place and what was expected. Secrets are never quoted."""
    document = _Document(name)
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(name, "", f"expected JSON: {error}") from error
    top = document.mapping(raw, "", tuple(f.name for f in fields(AgentConfig)))
    if "node" not in top:
        raise document.fail("node", "the node's name")
    listed = enumerate(document.items(top.get("interfaces", []), "interfaces"))
    interfaces = tuple(_interface(document, entry, f"interfaces.{i}") for i, entry in listed)
    socket = top.get("medium_socket")
    if socket is None and any(interface.backend == "emulated" for interface in interfaces):
        raise document.fail("medium_socket", "the path of hyroads-medium's control socket")
    community = top.get("community")
    return AgentConfig(
        node=document.text(top["node"], "node"),
        interfaces=interfaces,
        listen=_listen(document, top.get("listen", [DEFAULT_LISTEN])),
        community=None if community is None else _secret(document, community, "community"),
        users=tuple(
            _user(document, entry, f"users.{i}")
            for i, entry in enumerate(document.items(top.get("users", []), "users"))
        ),
        neighbours=_neighbours(document, top.get("neighbours", {})),
        medium_socket=socket,
        hostapd=tuple(
            _hostapd(document, entry, f"hostapd.{i}")
            for i, entry in enumerate(document.items(top.get("hostapd", []), "hostapd"))
        ),
        errors=_errors(document, top.get("errors", {})),
        wireless=parse_wireless(top["wireless"], name) if "wireless" in top else None,
    )


def _hostapd(document: _Document, raw: Any, place: str) -> HostapdConfig:
    entry = document.mapping(raw, place, ("socket", "technology"))
    path = entry.get("socket")
    # A socket's address has room for 108 bytes.
    if not isinstance(path, str) or not path.startswith("/") or len(path.encode()) > 107 or "\0" in path:
        raise document.fail(f"{place}.socket", "the path of hostapd's control socket, such as /var/run/hostapd/wlan0")
    return HostapdConfig(path, document.text(entry.get("technology"), f"{place}.technology"))


def _interface(document: _Document, raw: Any, place: str) -> InterfaceConfig:
    entry = document.mapping(raw, place, ("name", "technology", "medium", "backend", "peers"))
    if entry.get("backend") not in BACKENDS:
        raise document.fail(f"{place}.backend", f"one of {', '.join(BACKENDS)}")
    technology = document.text(entry.get("technology", ""), f"{place}.technology")
    peers = enumerate(document.items(entry.get("peers", []), f"{place}.peers"))
    return InterfaceConfig(
        name=document.word(entry.get("name"), f"{place}.name", _IFNAME, "an interface's name"),
        technology=technology,
        medium=document.text(entry.get("medium", technology), f"{place}.medium"),
        backend=entry["backend"],
        peers=tuple(_peer(document, peer, f"{place}.peers.{i}") for i, peer in peers),
    )


def _peer(document: _Document, raw: Any, place: str) -> Peer:
    entry = document.mapping(raw, place, ("mac", "node", "out_link", "in_link"))
    return Peer(
        mac=_mac(document, entry.get("mac"), f"{place}.mac"),
        node=document.text(entry.get("node", ""), f"{place}.node"),
        out_link=entry.get("out_link"),
        in_link=entry.get("in_link"),
    )


def _listen(document: _Document, raw: Any) -> tuple[str, ...]:
    listen = document.items(raw, "listen")
    for i, address in enumerate(listen):
        host, _, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
        try:
            ipaddress.IPv4Address(host)
            valid = port.isdecimal() and 0 < int(port) < 0x10000
        except ValueError:
            valid = False
        if not valid:
            raise document.fail(f"listen.{i}", "an IPv4 address and port such as 127.0.0.1:161")
    if not listen:
        raise document.fail("listen", "at least one address")
    return tuple(listen)


def _user(document: _Document, raw: Any, place: str) -> User:
    entry = document.mapping(raw, place, ("name", "auth_password", "priv_password", "write"))
    name = document.word(entry.get("name"), f"{place}.name", _NAME, "a name of letters, digits, '.', '_' or '-'")
    passwords = [_secret(document, entry.get(key), f"{place}.{key}") for key in ("auth_password", "priv_password")]
    write = entry.get("write", False)
    if not isinstance(write, bool):
        raise document.fail(f"{place}.write", "true or false")
    return User(name, passwords[0], passwords[1], write)


def _secret(document: _Document, value: Any, place: str) -> str:
    least = 1 if place == "community" else MIN_PASSWORD_LENGTH
    expected = f"{least} to 64 printable characters without blanks, quotes, '#' or backslash"
    if len(document.word(value, place, _SECRET, expected)) < least:
        raise document.fail(place, expected)
    return str(value)


def _mac(document: _Document, value: Any, place: str) -> str:
    lower = value.lower() if isinstance(value, str) else value
    return document.word(lower, place, _MAC, "a MAC address such as 02:00:01:01:00:01")


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
