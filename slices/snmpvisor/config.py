"""Settings of the SNMP proxy: devices with their interfaces, slices with their access, who decides about radios.

The whole document is checked before anything starts; an error names the place and what was expected.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hyroads.controller.core.checking import Endpoint, Place, Problems, Section
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.files.documents import read_settings
from hyroads.controller.files.text import read_private

from .pdu import SnmpError
from .usm import DIGEST_BYTES, User

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9.-]{1,253}):([0-9]{1,5})")
LOOPBACK = ("127.0.0.1", "::1", "localhost")
MOST_DEVICES, MOST_SLICES, MOST_INTERFACES = 1000, 1000, 4096
RULES = ("owner", "majority")
_KEYS = ("listen", "traps", "metrics", "devices", "slices", "shared_radios", "audit_file", "state_file")
_DEVICE_KEYS = ("address", "community", "community_file", "user", "context", "interfaces", "switch", "radios")
MOST_BSS = 32


@dataclass(frozen=True, slots=True)
class Access:
    """How to get in: a community of SNMPv2c, or a user of SNMPv3."""

    community: bytes | None = field(repr=False)
    user: User | None


@dataclass(frozen=True, slots=True)
class Interface:
    """An interface of a device: its owner's (None: nobody's), and who else shares it (a radio)."""

    owner: str | None = None
    shared: frozenset[str] = frozenset()
    radio: str | None = None
    """Of a virtual interface: the interface of the radio that it is on."""


@dataclass(frozen=True)
class Device:
    """An access point's agent."""

    name: str
    address: Endpoint
    access: Access
    interfaces: Mapping[str, Interface]
    switch: int | None = None
    """The datapath id of its switch; this and ``radios`` are for the networks of slices (``slices.ssids``)."""
    radios: Mapping[str, int] = field(default_factory=dict)
    """How many networks each of its radios, by interface, has room for."""
    context: bytes = b""
    """Its name at another visor, through which it is reached; empty: it is reached itself."""


@dataclass(frozen=True)
class SliceAccess:
    """A slice: how its owner gets in, at which devices, and where its traps go."""

    name: str
    accesses: tuple[Access, ...]
    traps: Endpoint | None = None


@dataclass(frozen=True)
class Settings:
    """Everything of the file."""

    listen: Endpoint
    traps: Endpoint | None
    devices: Mapping[str, Device]
    slices: Mapping[str, SliceAccess]
    rule: str
    audit_file: Path | None
    state_file: Path | None
    metrics: Endpoint | None = None
    """Where Prometheus may read, on loopback."""


def load(path: str) -> Settings:
    """Read a file; errors are :class:`ConfigError`."""
    return parse(read_settings(path), path)


def parse(document: object, document_name: str) -> Settings:
    """Validate a document; files that it names are relative to it."""
    problems = Problems(document_name)
    top = Place(document, problems).section(_KEYS, ("devices", "slices"))
    reader = _Reader(Path(document_name).parent)
    slices = {name: reader.slice(name, place) for name, place in _entries(top, "slices", MOST_SLICES)}
    devices = {name: reader.device(name, place, slices) for name, place in _entries(top, "devices", MOST_DEVICES)}
    listen = reader.endpoint(top["listen"]) if "listen" in top else Endpoint("127.0.0.1", 1161)
    in_the_clear = any(each.community is not None for one in slices.values() for each in one.accesses)
    if listen.host not in LOOPBACK and in_the_clear:
        top["listen"].fail("expected loopback, for communities travel in the clear: give all slices users (SNMPv3)")
    settings = Settings(
        listen,
        reader.endpoint(top["traps"]) if "traps" in top else None,
        devices,
        slices,
        top["shared_radios"].choice(RULES, RULES[0]) if "shared_radios" in top else RULES[0],
        reader.path(top, "audit_file"),
        reader.path(top, "state_file"),
        reader.endpoint(top["metrics"]) if "metrics" in top else None,
    )
    if settings.metrics is not None and settings.metrics.host not in LOOPBACK:
        top["metrics"].fail("expected loopback, for whoever reads there needs no token")
    _check_unique(top, slices)
    problems.raise_if_any()
    return settings


def devices_of(document: object, document_name: str) -> dict[str, Device]:
    """The devices of a document alone, without who owns what there; errors are :class:`ConfigError`."""
    problems = Problems(document_name)
    top = Place(document, problems).section(_KEYS, ("devices",))
    reader = _Reader(Path(document_name).parent)
    devices = {name: reader.device(name, place, None) for name, place in _entries(top, "devices", MOST_DEVICES)}
    problems.raise_if_any()
    return devices


def _entries(top: Section, key: str, most: int) -> list[tuple[str, Place]]:
    found = list(top[key].entries()) if key in top else []
    if len(found) > most:
        top[key].fail(f"expected at most {most}")
    for name, place in found:
        if not _NAME.fullmatch(name):
            place.fail("expected a name of letters, digits and . _ -, at most 32")
    return found[:most]


def _check_unique(top: Section, slices: Mapping[str, SliceAccess]) -> None:
    """Who gets in by what must not be two slices."""
    seen: dict[object, str] = {}
    for each in slices.values():
        for access in each.accesses:
            key = access.community if access.community is not None else access.user and access.user.name
            other = seen.setdefault(key, each.name)
            if other != each.name:
                top["slices"].key(each.name, None).fail(f"has the same community or user as slice {other}")


@dataclass(frozen=True)
class _Reader:
    folder: Path

    def device(self, name: str, place: Place, slices: Mapping[str, SliceAccess] | None) -> Device:
        section = place.section(_DEVICE_KEYS, ("address",))
        accesses = self._accesses(section)
        if len(accesses) != 1:
            place.fail("expected one of community, community_file, user")
        interfaces = list(section["interfaces"].entries()) if "interfaces" in section else []
        if len(interfaces) > MOST_INTERFACES:
            section["interfaces"].fail(f"expected at most {MOST_INTERFACES}")
        return Device(
            name,
            self.endpoint(section["address"]) if "address" in section else Endpoint("", 0),
            accesses[0] if accesses else Access(b"", None),
            {key: _interface(each, slices) for key, each in interfaces[:MOST_INTERFACES]},
            section["switch"].integer(1, 0, 2**64 - 1) if "switch" in section else None,
            {key: each.integer(1, 1, MOST_BSS) for key, each in section["radios"].entries()}
            if "radios" in section
            else {},
            self._context(section["context"]) if "context" in section else b"",
        )

    @staticmethod
    def _context(place: Place) -> bytes:
        name = place.identifier()
        if name and not _NAME.fullmatch(name):
            place.fail("expected the device's name at the other visor, of letters, digits and . _ -, at most 32")
        return name.encode()

    def slice(self, name: str, place: Place) -> SliceAccess:
        section = place.section(("community", "community_file", "user", "traps"))
        accesses = self._accesses(section)
        if not accesses:
            place.fail("expected a community, a community_file or a user")
        return SliceAccess(name, accesses, self.endpoint(section["traps"]) if "traps" in section else None)

    def _accesses(self, section: Section) -> tuple[Access, ...]:
        found = []
        community = self._secret(section, "community")
        if community is not None:
            if "@" in community:
                section.place.fail(
                    "community: expected no @; what follows one is a device's name (of a device: context)"
                )
            found.append(Access(community.encode(), None))
        if "user" in section:
            user = self._user(section["user"])
            if user is not None:
                found.append(Access(None, user))
        return tuple(found)

    def _user(self, place: Place) -> User | None:
        keys = ("name", "authentication", "password", "password_file", "privacy_password", "privacy_password_file")
        section = place.section(keys, ("name",))
        name = section["name"].identifier() if "name" in section else ""
        password, privacy = self._secret(section, "password"), self._secret(section, "privacy_password")
        if password is None:
            place.fail("expected password or password_file")
            return None
        kind = (
            section["authentication"].choice(tuple(DIGEST_BYTES), "sha256") if "authentication" in section else "sha256"
        )
        try:
            return User(name, kind, password, privacy)
        except SnmpError as error:
            place.fail(str(error))
            return None

    def _secret(self, section: Section, key: str) -> str | None:
        """Given here, or the first line of a file."""
        if key in section:
            return section[key].identifier() or None
        if f"{key}_file" not in section:
            return None
        place = section[f"{key}_file"]
        name = place.identifier()
        if not name:
            return None
        try:
            text = read_private(self.folder / name).split("\n", 1)[0]
        except ConfigError as error:
            place.fail(str(error))
            return None
        if not text:
            place.fail("expected a secret on the first line")
        return text or None

    def endpoint(self, place: Place) -> Endpoint:
        found = _ADDRESS.fullmatch(place.value) if isinstance(place.value, str) else None
        if found is None or not 0 < int(found[2]) < 65536:
            place.expected("an address like 127.0.0.1:161")
            return Endpoint("127.0.0.1", 0)
        return Endpoint(found[1].strip("[]"), int(found[2]))

    def path(self, section: Section, key: str) -> Path | None:
        return self.folder / section[key].identifier() if key in section else None


def _interface(place: Place, slices: Mapping[str, SliceAccess] | None) -> Interface:
    section = place.section(("owner", "shared", "radio"))
    if slices is None:
        return Interface()
    owner = section["owner"].reference(slices, "slice") if "owner" in section else None
    shared = [each.reference(slices, "slice") for each in section["shared"].items()] if "shared" in section else []
    radio = section["radio"].identifier() if "radio" in section else None
    return Interface(owner or None, frozenset(name for name in shared if name), radio or None)
