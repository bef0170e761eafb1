"""RADIUS servers that hostapd asks (802.1X): read from the access point's file, and as lines of hostapd's. Pure but for
:func:`with_secrets`, which reads the files of secrets.

A secret is a line of a file of its own (mode 0600), because it is a line of hostapd's: printable, so that it begins no
other one.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from hyroads.controller.core.errors import ConfigError
from hyroads.controller.files.text import read_private

AUTHENTICATION_PORT, ACCOUNTING_PORT, DISCONNECT_PORT = 1812, 1813, 3799
"""RFC 2865 and RFC 2866, section 3; RFC 5176, section 2.3."""
MAX_SERVERS, MAX_GROUPS = 8, 16
RETRY_FIRST_S = 600
"""After so long hostapd goes back to the first server, when another had taken over."""
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,32}")
_SECRET = re.compile(r"[!-~]{8,128}")
_IDENTIFIER = re.compile(r"[!-~]{1,64}")
_GROUP_KEYS = ("servers", "accounting", "disconnect", "nas_identifier", "own_address", "reauthenticate_s")
is_group_name = _NAME.fullmatch
"""Whether a group of servers may be called so."""


@dataclass(frozen=True, slots=True)
class RadiusServer:
    """A server, or (``disconnect``) who may send Disconnect-Requests, and to which port of ours."""

    address: str
    port: int
    secret_file: str
    secret: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class RadiusGroup:
    """Servers of which one after the other is asked: the next one when one does not answer."""

    servers: tuple[RadiusServer, ...]
    accounting: tuple[RadiusServer, ...] = ()
    disconnect: RadiusServer | None = None
    nas_identifier: str = ""
    own_address: str | None = None
    reauthenticate_s: int = 3600
    """Stations are authenticated anew each so often, unless the server says otherwise (without such a time hostapd does
    not heed what the server says).
    """


@dataclass(frozen=True, slots=True)
class WiredConfig:
    """802.1X at the access port: the bridge's own interface, to which the switch sends what belongs to it."""

    interface: str
    radius: str


class Document(Protocol):
    """What is needed of the reader of the access point's file: complaints with the place."""

    def fail(self, place: str, expected: str) -> ConfigError:
        """What was expected at a place."""

    def mapping(self, value: Any, place: str, keys: tuple[str, ...] | None = None) -> dict[str, Any]:
        """An object with these keys."""


def parse_groups(document: Document, raw: Any, node: str) -> dict[str, RadiusGroup]:
    """The section ``radius``: groups by name. ``node`` is the default of ``nas_identifier``."""
    entries = document.mapping(raw, "radius")
    if not 1 <= len(entries) <= MAX_GROUPS:
        raise document.fail("radius", f"1 to {MAX_GROUPS} groups of servers")
    return {name: _group(document, entry, f"radius.{name[:40]}", name, node) for name, entry in entries.items()}


def _group(document: Document, raw: Any, place: str, name: str, node: str) -> RadiusGroup:
    if not is_group_name(name):
        raise document.fail(place, "a name of at most 32 letters, digits, '.', '_' or '-'")
    entry = document.mapping(raw, place, _GROUP_KEYS)
    identifier, own = entry.get("nas_identifier", node), entry.get("own_address")
    if not isinstance(identifier, str) or not _IDENTIFIER.fullmatch(identifier):
        raise document.fail(f"{place}.nas_identifier", "1 to 64 printable characters without blanks")
    if own is not None and _address(own) is None:
        raise document.fail(f"{place}.own_address", "the IP address by which servers know this access point")
    every_s = entry.get("reauthenticate_s", 3600)
    if not isinstance(every_s, int) or isinstance(every_s, bool) or not 10 <= every_s <= 604_800:
        raise document.fail(f"{place}.reauthenticate_s", "a whole number of seconds from 10 to 604800")
    disconnect = entry.get("disconnect")
    return RadiusGroup(
        _servers(document, entry.get("servers"), f"{place}.servers", AUTHENTICATION_PORT, least=1),
        _servers(document, entry.get("accounting", []), f"{place}.accounting", ACCOUNTING_PORT, least=0),
        None if disconnect is None else _server(document, disconnect, f"{place}.disconnect", DISCONNECT_PORT),
        identifier,
        own,
        every_s,
    )


def _servers(document: Document, raw: Any, place: str, port: int, *, least: int) -> tuple[RadiusServer, ...]:
    if not isinstance(raw, list) or not least <= len(raw) <= MAX_SERVERS:
        raise document.fail(place, f"a list of {least} to {MAX_SERVERS} servers")
    found = tuple(_server(document, each, f"{place}.{number}", port) for number, each in enumerate(raw))
    if len({(each.address, each.port) for each in found}) < len(found):
        raise document.fail(place, "each server once")
    return found


def _server(document: Document, raw: Any, place: str, default_port: int) -> RadiusServer:
    entry = document.mapping(raw, place, ("address", "port", "secret_file"))
    address, port, file = _address(entry.get("address")), entry.get("port", default_port), entry.get("secret_file")
    if address is None:
        raise document.fail(f"{place}.address", "an IP address: hostapd asks no name server")
    if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 0x10000:
        raise document.fail(f"{place}.port", "a port from 1 to 65535")
    if not isinstance(file, str) or not file or "\0" in file:
        raise document.fail(f"{place}.secret_file", "the name of a file with the shared secret (mode 0600)")
    return RadiusServer(address, port, file)


def _address(value: Any) -> str | None:
    try:
        return str(ipaddress.ip_address(value)) if isinstance(value, str) and "%" not in value else None
    except ValueError:
        return None


def with_secrets(groups: Mapping[str, RadiusGroup], base: Path) -> dict[str, RadiusGroup]:
    """With what the files of secrets hold; their names are relative to ``base``. :class:`ConfigError` names the file,
    never what is in it.
    """
    return {
        name: replace(
            group,
            servers=tuple(_with_secret(each, base) for each in group.servers),
            accounting=tuple(_with_secret(each, base) for each in group.accounting),
            disconnect=None if group.disconnect is None else _with_secret(group.disconnect, base),
        )
        for name, group in groups.items()
    }


def _with_secret(server: RadiusServer, base: Path) -> RadiusServer:
    path = base / server.secret_file
    secret = read_private(path).partition("\n")[0].rstrip("\r")
    if not _SECRET.fullmatch(secret):
        what = "expected a secret of 8 to 128 printable characters without blanks on the first line"
        raise ConfigError(str(path), "", what)
    return replace(server, secret=secret)


def radius_lines(group: RadiusGroup) -> list[str]:
    """Lines of hostapd's file for an interface or BSS whose stations these servers authenticate.

    A station is known by the name that the server answers with, else by that which it said itself.
    """
    lines = ["ieee8021x=1", "eapol_version=2", f"eap_reauth_period={group.reauthenticate_s}"]
    lines.append(f"nas_identifier={group.nas_identifier}")
    if group.own_address is not None:
        lines += [f"own_ip_addr={group.own_address}", f"radius_client_addr={group.own_address}"]
    lines += _server_lines("auth", group.servers)
    lines += _server_lines("acct", group.accounting)
    if len(group.servers) > 1:
        lines.append(f"radius_retry_primary_interval={RETRY_FIRST_S}")
    if group.disconnect is not None:
        sender = group.disconnect
        lines += [f"radius_das_port={sender.port}", f"radius_das_client={sender.address} {sender.secret}"]
        lines += ["radius_das_require_event_timestamp=1", "radius_das_time_window=300"]
    return lines


def _server_lines(kind: str, servers: Sequence[RadiusServer]) -> Iterator[str]:
    for server in servers:
        yield f"{kind}_server_addr={server.address}"
        yield f"{kind}_server_port={server.port}"
        yield f"{kind}_server_shared_secret={server.secret}"


def wired_text(wired: WiredConfig, group: RadiusGroup, control: str) -> str:
    """hostapd's file for an access port: stations are on a cable, and all their frames of 802.1X come and go by the
    bridge's own interface.
    """
    head = [f"interface={wired.interface}", "driver=wired", f"ctrl_interface={control}", "use_pae_group_addr=1"]
    return "\n".join([*head, *radius_lines(group)]) + "\n"
