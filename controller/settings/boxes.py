"""The part ``boxes`` of the settings: how boxes join and what they need to know (docs/reference/boxes.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hyroads.controller.core.checking import Place, TlsFiles, integer_of, path_of
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.files.authority import Authority

DEFAULT_BRIDGE, MOST_PENDING, MOST_CONTROLLERS = "br0", 32, 8
_BRIDGE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,252}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class BoxSettings:
    """``authority`` is the folder with ``ca.key`` and ``ca.pem`` by which certificates of boxes are made.

    ``controllers`` are the hosts that boxes dial; empty: the one by which a box joined. ``bridge`` is the name of the
    bridge that each box makes, and ``most_pending`` bounds the boxes that wait. ``announce`` are IPv4 addresses of this
    machine, on whose networks multicast DNS names the controller; empty: none does.
    """

    authority: str
    controllers: tuple[str, ...] = ()
    bridge: str = DEFAULT_BRIDGE
    most_pending: int = MOST_PENDING
    announce: tuple[str, ...] = ()


def parse_boxes(place: Place | None, base: Path) -> BoxSettings | None:
    """The section of the settings; None if there is none: then no box can join."""
    if place is None or place.value is None:
        return None
    section = place.section(("authority", "controllers", "bridge", "most_pending", "announce"), ("authority",))
    authority = path_of(section, "authority", base)
    bridge = section.values.get("bridge", DEFAULT_BRIDGE)
    if not isinstance(bridge, str) or not _BRIDGE.fullmatch(bridge):
        section["bridge"].expected("the name of a network interface")
        bridge = DEFAULT_BRIDGE
    hosts = _hosts(section["controllers"]) if section.values.get("controllers") is not None else ()
    most = integer_of(section, "most_pending", MOST_PENDING, 1, 1024)
    announce = _addresses(section["announce"]) if section.values.get("announce") is not None else ()
    return None if authority is None else BoxSettings(authority, hosts, bridge, most, announce)


def authority_of(boxes: BoxSettings, listeners: Mapping[str, TlsFiles | None], document: str) -> Authority:
    """The authority of the settings; ConfigError if it can't be read, can't be written, or did not make the
    certificates of listeners (by place, such as ``tls``): boxes trust no other.
    """
    authority = Authority.of(Path(boxes.authority))
    authority.check_can_note()
    for place, files in listeners.items():
        try:
            is_ours = files is None or authority.has_signed(files.certificate)
        except (OSError, ValueError):
            # The code that loads this certificate reports the problem.
            continue
        if not is_ours:
            what = f"expected the authority that made the certificate of {place}: boxes trust no other"
            raise ConfigError(document, "boxes.authority", what)
    return authority


def _hosts(place: Place) -> tuple[str, ...]:
    hosts = place.value
    if not isinstance(hosts, list) or not 1 <= len(hosts) <= MOST_CONTROLLERS:
        place.expected(f"a list of 1 to {MOST_CONTROLLERS} hosts")
        return ()
    for entry in place.items():
        if not isinstance(entry.value, str) or not _HOST.fullmatch(entry.value):
            entry.expected("a host name or an IPv4 address, without a port")
            return ()
    return tuple(hosts)


def _addresses(place: Place) -> tuple[str, ...]:
    addresses = place.value
    if not isinstance(addresses, list) or len(addresses) > MOST_CONTROLLERS:
        place.expected(f"a list of at most {MOST_CONTROLLERS} IPv4 addresses of this machine")
        return ()
    return tuple(found for entry in place.items() if (found := entry.ipv4_host()) is not None)
