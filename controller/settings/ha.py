"""The part ``ha`` of the settings: hot standby, several controllers of which one leads (docs/reference/ha.md)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, quote, urlsplit

from hyroads.controller.core.checking import (
    Endpoint,
    Place,
    Section,
    TlsFiles,
    integer_of,
    number_of,
    path_of,
    tls_files,
)
from hyroads.controller.core.network import Network
from hyroads.controller.files.text import read_text

from .rest import token_of

_KEYS = ("etcd", "name", "advertise", "tls", "peer_token", "peer_token_file", "network", "timings")
MAX_MEMBERS = 9
DEFAULT_PEER_PORT = 6655
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class HaTimings:
    """``lease_s``: after so long etcd forgets an instance that it does not hear. ``heartbeat_ms``: how often instances
    tell each other that they live; after ``silence_ms`` a leader counts as dead. ``etcd_timeout_s`` bounds a request.
    """

    lease_s: int = 2
    heartbeat_ms: int = 50
    silence_ms: int = 250
    etcd_timeout_s: float = 1.0


@dataclass(frozen=True)
class HaSettings:
    """``etcd`` are the addresses of its members. ``rest`` and ``peer`` are how clients and other instances reach us."""

    etcd: tuple[str, ...]
    name: str
    rest: str
    peer: Endpoint
    tls: TlsFiles | None = None
    """Of the connections to etcd and between instances."""
    peer_token: str | None = field(default=None, repr=False)
    network: str | None = None
    """Part of etcd's keys; None: the name of the network."""
    timings: HaTimings = HaTimings()

    @property
    def nearest_first(self) -> tuple[str, ...]:
        """etcd's members, one on this machine first: it goes when we go, and those of others stay when theirs goes."""
        own = {self.peer.host.lower(), urlsplit(self.rest).hostname}
        return tuple(sorted(self.etcd, key=lambda url: urlsplit(url).hostname not in own))

    def prefix(self, network: Network, document: str, region: str | None = None) -> str:
        """What all keys of this network begin with, or of one region of it; ``document`` is the name of its file."""
        name = self.network or network.name or Path(document).stem
        name = name if region is None else f"{name}@{region}"
        return f"/hyroads/{quote(name, safe='')}/"


def parse_ha(place: Place | None, base: Path) -> HaSettings | None:
    """The section of the settings; None if there is none."""
    if place is None or place.value is None:
        return None
    section = place.section(_KEYS, ("etcd", "name", "advertise"))
    tls = tls_files(section, "tls", base)
    advertise = section["advertise"].section(("rest", "peer"), ("rest", "peer")) if "advertise" in section else None
    settings = HaSettings(
        etcd=_etcd(section["etcd"]) if "etcd" in section else (),
        name=_name(section["name"]) if "name" in section else "",
        rest=_rest(advertise["rest"]) if advertise is not None and "rest" in advertise else "",
        peer=_peer(advertise["peer"]) if advertise is not None and "peer" in advertise else Endpoint("127.0.0.1", 1),
        tls=tls,
        peer_token=_token(section, base),
        network=section["network"].identifier() or None if "network" in section else None,
        timings=_timings(section),
    )
    if tls is None and settings.peer.host not in _LOOPBACK and not settings.peer.host.startswith("127."):
        place.key("tls", None).fail("is missing: instances beyond loopback need it")
    if tls is not None and tls.ca is None:
        place.key("tls", None).fail("expected ca: instances check each other by it")
    return settings


def _etcd(place: Place) -> tuple[str, ...]:
    found = []
    for one in place.items():
        parts = _url(one.value)
        plain = parts is not None and parts.scheme == "http" and parts.hostname in _LOOPBACK
        if parts is None or not (parts.scheme == "https" or plain) or not parts.port:
            one.expected("https://HOST:PORT, or http://127.0.0.1:PORT on this machine")
        else:
            found.append(str(one.value).rstrip("/"))
    if len(set(found)) < len(found):
        place.fail("expected each member of etcd once")
    if not 0 < len(found) <= MAX_MEMBERS and not place.problems.errors:
        place.fail(f"expected 1 to {MAX_MEMBERS} addresses of etcd's members")
    return tuple(found)


def _url(value: object) -> SplitResult | None:
    """The parts of an address without a path, None if it is none."""
    try:
        parts = urlsplit(value) if isinstance(value, str) else urlsplit("")
        parts.port  # noqa: B018 - raises if it is none
    except ValueError:
        return None
    return parts if parts.hostname and not parts.path.strip("/") and not parts.query else None


def _name(place: Place) -> str:
    if not isinstance(place.value, str) or not _NAME.fullmatch(place.value):
        place.expected("a name of 1 to 32 letters, digits, dots, hyphens and underscores")
        return ""
    return place.value


def _rest(place: Place) -> str:
    parts = _url(place.value)
    if parts is None or parts.scheme not in ("http", "https"):
        place.expected("http://HOST:PORT or https://HOST:PORT")
        return ""
    return str(place.value).rstrip("/")


def _peer(place: Place) -> Endpoint:
    text = place.value if isinstance(place.value, str) else ""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536):
        place.expected("HOST:PORT")
        return Endpoint("127.0.0.1", DEFAULT_PEER_PORT)
    return Endpoint(host, int(port))


def _token(section: Section, base: Path) -> str | None:
    if section.values.get("peer_token") is not None:
        return token_of(section["peer_token"])
    name = path_of(section, "peer_token_file", base)
    return (
        None if name is None else token_of(Place(read_text(name).strip(), section.place.problems, "ha.peer_token_file"))
    )


def _timings(section: Section) -> HaTimings:
    if section.values.get("timings") is None:
        return HaTimings()
    part, plain = section["timings"].section(("lease_s", "heartbeat_ms", "silence_ms", "etcd_timeout_s")), HaTimings()
    timings = HaTimings(
        integer_of(part, "lease_s", plain.lease_s, 1, 60),
        integer_of(part, "heartbeat_ms", plain.heartbeat_ms, 10, 1000),
        integer_of(part, "silence_ms", plain.silence_ms, 50, 10_000),
        number_of(part, "etcd_timeout_s", plain.etcd_timeout_s, 0.1, 30),
    )
    if timings.silence_ms < 3 * timings.heartbeat_ms:
        part.place.key("silence_ms", None).fail("expected at least three times heartbeat_ms")
    return timings
