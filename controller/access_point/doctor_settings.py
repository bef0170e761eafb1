"""The settings of a box that its agents are started with: /etc/default/hyroads-ap, or OpenWrt's /etc/config/hyroads."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from hyroads.controller.core.errors import ConfigError

from .config import InterfaceConfig, parse

DEFAULT_SETTINGS = Path("/etc/default/hyroads-ap")
DEFAULT_CONFIG = Path("/etc/hyroads/ap.json")
OPENWRT_SETTINGS = Path("/etc/config/hyroads")
_ASSIGNMENT = re.compile(r"\s*([A-Z_]+)=(.*)")
_OPTION = re.compile(r"\s*option\s+(\w+)\s+(?:'([^']*)'|\"([^\"]*)\"|(\S+))")
_SECTION = re.compile(r"\s*config\s+(\w+)")
_MOST_BYTES = 1 << 20
_MOST_SECRET = 4096


@dataclass(frozen=True, slots=True)
class Secret:
    """A token: where it is (``path``), or the token itself where the settings hold it."""

    place: str
    path: str
    role: str
    token: str | None = None

    def read(self) -> str:
        """The token; empty if it cannot be read."""
        if self.token is not None:
            return self.token
        try:
            with Path(self.path).open("rb") as handle:
                return handle.read(_MOST_SECRET).decode().strip()
        except (OSError, ValueError):
            return ""


@dataclass(frozen=True)
class BoxSettings:
    """``controllers`` are HOST:PORT. ``problems`` are pairs of a file and what is wrong with it."""

    node: str = ""
    controllers: tuple[str, ...] = ()
    secrets: tuple[Secret, ...] = ()
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    interfaces: tuple[InterfaceConfig, ...] = ()
    folders: tuple[Path, ...] = ()
    """Where the settings are."""
    problems: tuple[tuple[str, str], ...] = ()


def read_settings(settings: Path | None, config: Path | None) -> BoxSettings:
    """Those of two files; of this system's usual places if they are None."""
    if settings is None and not DEFAULT_SETTINGS.exists() and OPENWRT_SETTINGS.exists():
        return _openwrt(OPENWRT_SETTINGS)
    return _debian(settings or DEFAULT_SETTINGS, config or DEFAULT_CONFIG)


def _debian(settings: Path, config: Path) -> BoxSettings:
    problems = []
    values: Mapping[str, str] = {}
    node, interfaces = "", tuple[InterfaceConfig, ...]()
    try:
        values = environment(_text(settings))
    except (OSError, ValueError) as error:
        problems.append((str(settings), _why(error)))
    try:
        agent = parse(_text(config), str(config))
        node, interfaces = agent.node, agent.interfaces
    except ConfigError as error:
        problems.append((str(config), str(error)))
    except (OSError, ValueError) as error:
        problems.append((str(config), _why(error)))
    edge, radio = (_words(values.get(name, "")) for name in ("EDGE_OPTIONS", "AP_OPTIONS"))
    token = values.get("TOKEN_FILE", "/etc/hyroads/agent.token")
    secrets = (
        Secret("agent's token", edge.get("--token-file", token), "agent"),
        Secret("radios' token", radio.get("--token-file", token), "radio"),
    )
    return BoxSettings(
        node,
        _listed(values.get("CONTROLLER", "")),
        () if problems else secrets[: 2 if interfaces else 1],
        edge.get("--ca"),
        edge.get("--cert"),
        edge.get("--key"),
        interfaces,
        tuple(dict.fromkeys((settings.parent, config.parent))),
        tuple(problems),
    )


def _openwrt(settings: Path) -> BoxSettings:
    try:
        sections = uci_sections(_text(settings))
    except (OSError, ValueError) as error:
        return BoxSettings(problems=((str(settings), _why(error)),), folders=(settings.parent,))
    main = next((options for kind, options in sections if kind == "hyroads"), {})
    interfaces = tuple(
        InterfaceConfig(
            options.get("name", ""),
            options.get("technology", ""),
            options.get("medium", options.get("technology", "")),
            options.get("backend", "linux-wifi"),
        )
        for kind, options in sections
        if kind == "interface"
    )
    token = main.get("token", "")
    radio_token = main.get("radio_token", token)
    roles = [("token", "agent", token), *([("radio_token", "radio", radio_token)] if interfaces else [])]
    secrets = [Secret(f"option {name}", str(settings), role, value) for name, role, value in roles if value]
    return BoxSettings(
        main.get("node", ""),
        _listed(main.get("controller", "")),
        tuple(secrets),
        main.get("ca"),
        main.get("cert"),
        main.get("key"),
        interfaces,
        (settings.parent,),
    )


def environment(text: str) -> dict[str, str]:
    """Assignments of a systemd EnvironmentFile; ValueError for a quote that is not closed."""
    found = {}
    for line in text.splitlines():
        match = _ASSIGNMENT.fullmatch(line)
        if match:
            found[match[1]] = " ".join(shlex.split(match[2], comments=False))
    return found


def uci_sections(text: str) -> list[tuple[str, dict[str, str]]]:
    """Kind and options of each section of an OpenWrt configuration file, in their order."""
    found: list[tuple[str, dict[str, str]]] = []
    for line in text.splitlines():
        if match := _SECTION.match(line):
            found.append((match[1], {}))
        elif found and (match := _OPTION.match(line)):
            found[-1][1][match[1]] = next(group for group in match.groups()[1:] if group is not None)
    return found


def _words(options: str) -> dict[str, str]:
    """Options with their values, of a line of options."""
    return {word: value for word, value in pairwise(options.split()) if word.startswith("--")}


def _listed(text: str) -> tuple[str, ...]:
    return tuple(word for each in text.split(",") if (word := each.strip()))


def _text(path: Path) -> str:
    with path.open("rb") as handle:
        return handle.read(_MOST_BYTES).decode()


def _why(error: OSError | ValueError) -> str:
    return str(getattr(error, "strerror", None) or error)
