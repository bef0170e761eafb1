"""The part ``sfnet`` of the settings. Pure."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from hyroads.controller.core.checking import Place
from hyroads.plugins.sfnet.messages import PORT

MAX_INTERFACES = 16


@dataclass(frozen=True, slots=True)
class SfnetSettings:
    """Where SFNet listens: TCP on ``host``, discovery on ``interfaces`` (none: no discovery)."""

    host: str = "127.0.0.1"
    port: int = PORT
    interfaces: tuple[str, ...] = ("lo",)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return ipaddress.ip_address(self.host).is_loopback


def parse_sfnet(place: Place | None) -> SfnetSettings | None:
    """None: there is no SFNet."""
    if place is None or place.value is None:
        return None
    section, plain = place.section(("host", "port", "interfaces")), SfnetSettings()
    host, interfaces = plain.host, plain.interfaces
    if "host" in section:
        try:
            host = str(ipaddress.IPv4Address(section.values["host"]))
        except ValueError:
            section["host"].expected("an IPv4 address to listen on")
    if "interfaces" in section:
        names = list(section["interfaces"].items())[:MAX_INTERFACES]
        interfaces = tuple(name.identifier() for name in names)
    port = section["port"].integer(plain.port, 1, 65535) if "port" in section else plain.port
    return SfnetSettings(host, port, interfaces)
