"""The part ``region`` of the settings: this controller runs one region of the network (docs/explanation/regions.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hyroads.controller.core.checking import Endpoint, Place, TlsFiles, endpoint_of, path_of, tls_files
from hyroads.controller.files.text import read_text

from .ha import DEFAULT_PEER_PORT
from .rest import token_of

_KEYS = ("name", "peers", "listen", "tls", "token", "token_file")

MAX_PEERS = 9


@dataclass(frozen=True)
class RegionSettings:
    """``peers`` are where the controllers of other regions listen, by region; each region may have several."""

    name: str
    peers: Mapping[str, tuple[Endpoint, ...]] = field(default_factory=dict)
    tls: TlsFiles | None = None
    """Of the connections between regions, both ends of which show certificates."""
    token: str | None = field(default=None, repr=False)
    listen: Endpoint | None = None
    """Where the controllers of other regions dial; None: at ``listen.peer``."""


def parse_region(place: Place | None, base: Path) -> RegionSettings | None:
    """The section of the settings; None if there is none."""
    if place is None or place.value is None:
        return None
    section = place.section(_KEYS, ("name",))
    tls = tls_files(section, "tls", base)
    token = token_of(section["token"]) if section.values.get("token") is not None else None
    name = path_of(section, "token_file", base)
    if token is None and name is not None:
        token = token_of(Place(read_text(name).strip(), place.problems, "region.token_file"))
    peers = {}
    for region, entry in section["peers"].entries() if "peers" in section else ():
        places = entry.items() if isinstance(entry.value, list) else [entry]
        found = tuple(endpoint for one in places if (endpoint := _peer(one, tls)) is not None)
        if not 0 < len(set(found)) == len(found) <= MAX_PEERS and not entry.problems.errors:
            entry.fail(f"expected 1 to {MAX_PEERS} different controllers of that region")
        peers[region] = found
    if tls is not None and tls.ca is None:
        place.key("tls", None).fail("expected ca: regions check each other by it")
    listen = endpoint_of(section, "listen", DEFAULT_PEER_PORT)[0] if "listen" in section else None
    return RegionSettings(section["name"].identifier() if "name" in section else "", peers, tls, token, listen)


def _peer(place: Place, tls: TlsFiles | None) -> Endpoint | None:
    """One controller of a neighbour; None if it is not given well."""
    part = place.section(("host", "port"))
    host = part["host"].value if "host" in part else "127.0.0.1"
    if not isinstance(host, str) or not 0 < len(host) <= 255:
        part["host"].expected("the name or address of a machine")
        return None
    port = part["port"].integer(DEFAULT_PEER_PORT, 1, 65535) if "port" in part else DEFAULT_PEER_PORT
    endpoint = Endpoint(host, port)
    if tls is None and not endpoint.is_loopback:
        place.fail("beyond loopback needs region.tls")
    return endpoint
