"""The parts ``plugins``, ``policies`` and ``sfnet`` of the settings: what runs beside the controller. Pure."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hyroads.controller.core.checking import Place, Section, integer_of, number_of
from hyroads.controller.core.network import ClientMode
from hyroads.plugins.kinds import NAME, ROLES, WHAT_A_NAME_IS, Bounds, Kind
from hyroads.plugins.policies.placement import POLICY as PLACEMENT
from hyroads.plugins.policies.placement import Placement
from hyroads.plugins.sfnet.messages import PORT

from .rest import may_change

MAX_PLUGINS = 64
BUILT_IN_POLICIES = ("signal", "load", "placement")
_PLACEMENT_KEYS = ("mode", "gain", "hold_s", "stay_s")
_KEYS = ("name", "kind", "path", "role", "may_change", "settings", "memory_mb", "deadline_s", "user")


@dataclass(frozen=True)
class PluginSetting:
    """One foreign plugin that shall run: a file, or (without ``path``) an installed one of that name."""

    name: str
    kind: Kind | None = None
    path: str | None = None
    role: str = "application"
    settings: Mapping[str, Any] = field(default_factory=dict)
    bounds: Bounds = field(default_factory=Bounds)
    may_change: frozenset[str] = frozenset()
    """Owners whose things it may change over REST, beside its own."""


def parse_plugins(place: Place | None, base: Path) -> tuple[PluginSetting, ...]:
    """The list of plugins; relative paths are taken from ``base``."""
    if place is None or place.value is None:
        return ()
    found: dict[str, PluginSetting] = {}
    for item in place.items():
        if len(found) >= MAX_PLUGINS:
            place.fail(f"expected at most {MAX_PLUGINS} plugins")
            break
        section = item.section(_KEYS, ("name",))
        name = _name(section)
        if name in found:
            section["name"].fail(f"there is a plugin {name!r} already")
        elif name:
            found[name] = _plugin(section, name, base)
    return tuple(found.values())


def parse_policies(place: Place | None) -> tuple[str, ...]:
    """The built-in policies that are on."""
    if place is None or place.value is None:
        return ()
    return tuple(dict.fromkeys(item.choice(BUILT_IN_POLICIES, BUILT_IN_POLICIES[0]) for item in place.items()))


def parse_placement(place: Place | None) -> Placement:
    """Settings of the policy ``placement``."""
    if place is None or place.value is None:
        return PLACEMENT
    section, usual = place.section(_PLACEMENT_KEYS), PLACEMENT
    return Placement(
        mode=section["mode"].choice([mode.value for mode in ClientMode], usual.mode)
        if "mode" in section
        else usual.mode,
        gain=number_of(section, "gain", usual.gain, 0.0, 10.0),
        hold_s=number_of(section, "hold_s", usual.hold_s, 0.0, 3600.0),
        stay_s=number_of(section, "stay_s", usual.stay_s, 0.0, 86400.0),
    )


def _name(section: Section) -> str:
    if "name" not in section:
        return ""
    name = section.values["name"]
    if not isinstance(name, str) or not NAME.fullmatch(name):
        section["name"].expected(WHAT_A_NAME_IS)
        return ""
    return name


def _plugin(section: Section, name: str, base: Path) -> PluginSetting:
    path, kind = _text(section, "path", "a file name"), None
    if "kind" in section:
        kind = Kind(section["kind"].choice(tuple(Kind), Kind.APP.value))
    elif path is not None:
        kind = Kind.APP
    bounds = Bounds(
        integer_of(section, "memory_mb", Bounds().memory_mb, 64, 65536),
        number_of(section, "deadline_s", Bounds().deadline_s, 0.05, 60.0),
        _text(section, "user", "the name of a user"),
    )
    settings = section.values.get("settings") or {}
    if not isinstance(settings, Mapping) or not _is_json(settings):
        section["settings"].fail("expected a mapping of text, numbers, lists and mappings")
        settings = {}
    return PluginSetting(
        name,
        kind,
        None if path is None else str(base / path),
        section["role"].choice(ROLES, "viewer") if "role" in section else "application",
        settings,
        bounds,
        may_change(section, "application"),
    )


def _is_json(value: object) -> bool:
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (ValueError, TypeError, RecursionError):
        return False


def _text(section: Section, key: str, what: str) -> str | None:
    if section.values.get(key) is None:
        return None
    value = section.values[key]
    if isinstance(value, str) and value and "\0" not in value:
        return value
    section[key].expected(what)
    return None


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
    return SfnetSettings(host, integer_of(section, "port", plain.port, 1, 65535), interfaces)
