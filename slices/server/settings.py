"""The slicer's settings (docs/slicing.md, section 8): document -> validated :class:`SlicerSettings`."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyroads.controller.core.checking import Place, Problems, Section
from hyroads.controller.core.document import load_document
from hyroads.controller.netfile_io import read_text
from hyroads.slices.allocation import NUMBER_BITS, OPEN_VSWITCH, Layout
from hyroads.slices.model import SliceModel
from hyroads.slices.slicefile import load_text, parse

OPENFLOW_PORT = 6633
"""Not 6653: there the controller of production listens, often on the same machine."""

_TOP = (
    "slices",
    "state_file",
    "listen",
    "tls",
    "controllers_tls",
    "tables",
    "metadata_bits",
    "most_switches",
    "patience_s",
)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Key and certificate of the slicer, and the authority that others are checked by."""

    key: str
    certificate: str
    ca: str | None = None


@dataclass(frozen=True)
class SlicerSettings:
    """Everything the slicer is told, and the slices of the file."""

    model: SliceModel
    host: str = "127.0.0.1"
    port: int = OPENFLOW_PORT
    tls: TlsFiles | None = None
    """Towards switches."""
    controllers_tls: TlsFiles | None = None
    """Towards controllers; without it those of ``tls:`` are checked by the system's authorities."""
    state_file: str | None = None
    control_socket: str | None = None
    layout: Layout = OPEN_VSWITCH
    most_switches: int = 256
    patience_s: float = 20.0
    """How long a switch or controller may be silent, asked for a sign after 5 s."""


def load(path: str) -> SlicerSettings:
    """The settings of a file and of the file of slices that it names; errors are :class:`ConfigError`."""
    return parse_settings(load_document(read_text(path), path), path)


def parse_settings(document: object, name: str) -> SlicerSettings:
    """Validate; relative paths are taken from the folder of the document ``name``."""
    problems = Problems(name)
    top = Place({} if document is None else document, problems).section(_TOP, ("slices",))
    base = Path(name).parent
    listen = top["listen"].section(("openflow", "control")) if "listen" in top else None
    host, port, plaintext = _openflow(listen)
    tls = _tls(top, "tls", base)
    bits = _integer(top, "metadata_bits", 64, NUMBER_BITS, 64)
    tables = _integer(top, "tables", 254, 2, 254)
    if not _is_loopback(host) and tls is None and not plaintext:
        place = Place(None, problems, "listen.openflow")
        place.fail("beyond loopback needs tls, or allow_plaintext: true on a trusted network")
    rest: dict[str, Any] = {
        "host": host,
        "port": port,
        "tls": tls,
        "controllers_tls": _tls(top, "controllers_tls", base),
        "state_file": _path(top, "state_file", base),
        "control_socket": None if listen is None else _path(listen, "control", base),
        "layout": Layout(tables, bits),
        "most_switches": _integer(top, "most_switches", 256, 1, 4096),
        "patience_s": top["patience_s"].number(20.0, 10.0, 3600.0) if "patience_s" in top else 20.0,
    }
    problems.raise_if_any()
    return SlicerSettings(_slices(top, name, base), **rest)


def _slices(top: Section, name: str, base: Path) -> SliceModel:
    """The slices themselves, or the name of the file that has them."""
    value = top.values["slices"]
    if isinstance(value, str) and value:
        path = str(base / value)
        return load_text(read_text(path), path)
    return parse({"slices": [] if value is None else value}, name)


def _integer(section: Section, key: str, default: int, low: int, high: int) -> int:
    return section[key].integer(default, low, high) if key in section else default


def _path(section: Section, key: str, base: Path) -> str | None:
    if key not in section or section.values[key] is None:
        return None
    place = section[key]
    if not isinstance(place.value, str) or not place.value or "\0" in place.value:
        place.expected("a file name")
        return None
    return str(base / place.value)


def _openflow(listen: Section | None) -> tuple[str, int, bool]:
    host, port, plaintext = "127.0.0.1", OPENFLOW_PORT, False
    if listen is not None and "openflow" in listen:
        section = listen["openflow"].section(("host", "port", "allow_plaintext"))
        if "host" in section:
            host = _host(section["host"], host)
        port = _integer(section, "port", port, 1, 65535)
        if "allow_plaintext" in section:
            plaintext = section["allow_plaintext"].boolean(False)
    return host, port, plaintext


def _host(place: Place, default: str) -> str:
    if place.value == "localhost":
        return "localhost"
    try:
        return str(ipaddress.ip_address(place.value if isinstance(place.value, str) else ""))
    except ValueError:
        place.expected("an IP address to listen on, or localhost")
        return default


def _is_loopback(host: str) -> bool:
    return host == "localhost" or ipaddress.ip_address(host).is_loopback


def _tls(top: Section, name: str, base: Path) -> TlsFiles | None:
    if top.values.get(name) is None:
        return None
    section = top[name].section(("key", "certificate", "ca"), ("key", "certificate"))
    key, certificate = _path(section, "key", base), _path(section, "certificate", base)
    return TlsFiles(key, certificate, _path(section, "ca", base)) if key and certificate else None
