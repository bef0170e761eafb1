"""What settings say of sockets and files, read alike by the controller and the slicer: endpoints, paths, TLS. Pure."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from hyroads.controller.core.checking import Place, Section


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server listens."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Our key and certificate, and the authority that others are checked by."""

    key: str
    certificate: str
    ca: str | None = None


def path_of(section: Section, key: str, base: Path) -> str | None:
    """The name of a file, relative to ``base``; None if none is given."""
    if key not in section or section.values[key] is None:
        return None
    place = section[key]
    if not isinstance(place.value, str) or not place.value or "\0" in place.value:
        place.expected("a file name")
        return None
    return str(base / place.value)


def integer_of(section: Section, key: str, default: int, low: int, high: int) -> int:
    """A whole number, if it is given."""
    return section[key].integer(default, low, high) if key in section else default


def endpoint_of(listen: Section | None, key: str, port: int, *, may_be_plain: bool = False) -> tuple[Endpoint, bool]:
    """Where to listen (loopback unless said otherwise), and whether ``allow_plaintext`` is said, where it may be."""
    host, plaintext = "127.0.0.1", False
    if listen is not None and key in listen:
        section = listen[key].section(("host", "port", *(("allow_plaintext",) if may_be_plain else ())))
        if "host" in section:
            host = _host(section["host"], host)
        port = integer_of(section, "port", port, 1, 65535)
        if "allow_plaintext" in section:
            plaintext = section["allow_plaintext"].boolean(False)
    return Endpoint(host, port), plaintext


def _host(place: Place, default: str) -> str:
    if place.value == "localhost":
        return "localhost"
    try:
        return str(ipaddress.ip_address(place.value if isinstance(place.value, str) else ""))
    except ValueError:
        place.expected("an IP address to listen on, or localhost")
        return default


def tls_files(top: Section, name: str, base: Path) -> TlsFiles | None:
    """``{key, certificate, ca}`` under a name."""
    if top.values.get(name) is None:
        return None
    section = top[name].section(("key", "certificate", "ca"), ("key", "certificate"))
    key, certificate = path_of(section, "key", base), path_of(section, "certificate", base)
    return TlsFiles(key, certificate, path_of(section, "ca", base)) if key and certificate else None
