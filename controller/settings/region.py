"""The part ``region`` of the settings: this controller runs one region of the network (docs/explanation/regions.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hyroads.controller.core.checking import Endpoint, Place, TlsFiles, path_of, tls_files
from hyroads.controller.files.text import read_private

from .ha import DEFAULT_PEER_PORT
from .rest import token_of

_KEYS = ("name", "peers", "tls", "token", "token_file")


@dataclass(frozen=True)
class RegionSettings:
    """``peers`` are where the controllers of other regions listen, by region."""

    name: str
    peers: Mapping[str, Endpoint] = field(default_factory=dict)
    tls: TlsFiles | None = None
    """Of the connections between regions, both ends of which show certificates."""
    token: str | None = field(default=None, repr=False)


def parse_region(place: Place | None, base: Path) -> RegionSettings | None:
    """The section of the settings; None if there is none."""
    if place is None or place.value is None:
        return None
    section = place.section(_KEYS, ("name",))
    tls = tls_files(section, "tls", base)
    token = token_of(section["token"]) if section.values.get("token") is not None else None
    name = path_of(section, "token_file", base)
    if token is None and name is not None:
        token = token_of(Place(read_private(name).strip(), place.problems, "region.token_file"))
    peers = {}
    for region, entry in section["peers"].entries() if "peers" in section else ():
        part = entry.section(("host", "port"))
        host = part["host"].value if "host" in part else "127.0.0.1"
        if not isinstance(host, str) or not 0 < len(host) <= 255:
            part["host"].expected("the name or address of a machine")
            continue
        port = part["port"].integer(DEFAULT_PEER_PORT, 1, 65535) if "port" in part else DEFAULT_PEER_PORT
        peers[region] = endpoint = Endpoint(host, port)
        if tls is None and not endpoint.is_loopback:
            entry.fail("beyond loopback needs region.tls")
    if tls is not None and tls.ca is None:
        place.key("tls", None).fail("expected ca: regions check each other by it")
    return RegionSettings(section["name"].identifier() if "name" in section else "", peers, tls, token)
