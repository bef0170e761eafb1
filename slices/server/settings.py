"""The slicer's settings (docs/reference/slicer.md): document -> validated :class:`SlicerSettings`."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hyroads.controller.core.checking import (
    Endpoint,
    Place,
    Problems,
    Section,
    TlsFiles,
    endpoint_of,
    integer_of,
    path_of,
    tls_files,
)
from hyroads.controller.files.authority import revoked_in
from hyroads.controller.files.documents import read_settings
from hyroads.controller.files.text import read_text
from hyroads.controller.settings.rest import DEFAULT_LIMITS, ApiLimits, ApiToken, any_switch, api_limits, api_tokens
from hyroads.slices.core.allocation import NUMBER_BITS, OPEN_VSWITCH, Layout
from hyroads.slices.core.delegation import Network
from hyroads.slices.core.model import SliceModel
from hyroads.slices.core.slicefile import load_text, parse
from hyroads.slices.core.users import NOBODY, User, load_users, users_of

OPENFLOW_PORT = 6633
"""Not 6653: there the controller of production listens, often on the same machine."""
REST_PORT = 8081
"""Not 8080: there the controller of production answers."""

_TOP = (
    "slices", "users", "state_file", "listen", "tls", "controllers_tls", "rest_tls", "api_tokens", "api_limits",
    "owner_controllers", "tables", "metadata_bits", "most_switches", "patience_s", "any_switch",
    "revoked",
)  # fmt: skip
_ROLES = ("admin", "viewer")
"""Owners of slices have the tokens whose hashes the slices hold."""


@dataclass(frozen=True)
class SlicerSettings:
    """Everything the slicer is told, and the slices of the file."""

    model: SliceModel
    users: Mapping[str, User] = field(default_factory=dict)
    """Who may join slices that are open for users."""
    openflow: Endpoint = field(default=Endpoint("127.0.0.1", OPENFLOW_PORT))
    tls: TlsFiles | None = None
    """Towards switches; with ``ca`` each must have a certificate that names its datapath id."""
    any_switch: frozenset[str] = frozenset()
    """Names of certificates that may speak for every switch, such as another slicer's; ``*``: all of the authority."""
    revoked: frozenset[str] = frozenset()
    """Ids of certificates that are not taken."""
    controllers_tls: TlsFiles | None = None
    """Towards controllers; without it those of ``tls:`` are checked by the system's authorities."""
    rest: Endpoint | None = None
    rest_tls: TlsFiles | None = None
    api_tokens: tuple[ApiToken, ...] = ()
    """The operator's."""
    api_limits: ApiLimits = DEFAULT_LIMITS
    owner_controllers: tuple[Network, ...] = ()
    """Where the controllers may be that owners choose."""
    state_file: str | None = None
    control_socket: str | None = None
    layout: Layout = OPEN_VSWITCH
    most_switches: int = 256
    patience_s: float = 20.0
    """How long a switch or controller may be silent, asked for a sign after 5 s."""


def load(path: str) -> SlicerSettings:
    """The settings of a file and of the file of slices that it names; errors are :class:`ConfigError`."""
    return parse_settings(read_settings(path), path)


def parse_settings(document: object, name: str) -> SlicerSettings:
    """Validate; relative paths are taken from the folder of the document ``name``."""
    problems = Problems(name)
    top = Place({} if document is None else document, problems).section(_TOP, ("slices",))
    base = Path(name).parent
    listen = top["listen"].section(("openflow", "control", "rest")) if "listen" in top else None
    openflow, plaintext = endpoint_of(listen, "openflow", OPENFLOW_PORT, may_be_plain=True)
    rest = endpoint_of(listen, "rest", REST_PORT)[0] if listen is not None and "rest" in listen else None
    values: dict[str, Any] = {
        "openflow": openflow,
        "tls": tls_files(top, "tls", base),
        "any_switch": any_switch(top.optional("any_switch")),
        "revoked": _revoked(top, base),
        "controllers_tls": tls_files(top, "controllers_tls", base),
        "rest": rest,
        "rest_tls": tls_files(top, "rest_tls", base),
        "api_tokens": api_tokens(top["api_tokens"], _ROLES) if top.values.get("api_tokens") is not None else (),
        "api_limits": api_limits(top["api_limits"]) if "api_limits" in top else DEFAULT_LIMITS,
        "owner_controllers": _networks(top["owner_controllers"]) if "owner_controllers" in top else (),
        "state_file": path_of(top, "state_file", base),
        "control_socket": None if listen is None else path_of(listen, "control", base),
        "layout": Layout(integer_of(top, "tables", 254, 2, 254), integer_of(top, "metadata_bits", 64, NUMBER_BITS, 64)),
        "most_switches": integer_of(top, "most_switches", 256, 1, 4096),
        "patience_s": top["patience_s"].number(20.0, 10.0, 3600.0) if "patience_s" in top else 20.0,
    }
    values["users"] = _users(top, base)
    _check_exposure(values, plaintext, Place(None, problems, "listen"))
    problems.raise_if_any()
    return SlicerSettings(_slices(top, name, base), **values)


def _check_exposure(values: dict[str, Any], plaintext: bool, listen: Place) -> None:
    """What others can reach must ask who they are, and not in the clear."""
    if not values["openflow"].is_loopback and values["tls"] is None and not plaintext:
        listen.key("openflow", None).fail("beyond loopback needs tls, or allow_plaintext: true on a trusted network")
    rest = values["rest"]
    if rest is not None and not rest.is_loopback and not (values["api_tokens"] and values["rest_tls"]):
        listen.key("rest", None).fail("beyond loopback needs api_tokens and rest_tls")


def _revoked(top: Section, base: Path) -> frozenset[str]:
    name = path_of(top, "revoked", base)
    return frozenset() if name is None else revoked_in(name)


def _slices(top: Section, name: str, base: Path) -> SliceModel:
    """The slices themselves, or the name of the file that has them."""
    value = top.values["slices"]
    if isinstance(value, str) and value:
        path = str(base / value)
        return load_text(read_text(path), path)
    return parse({"slices": [] if value is None else value}, name)


def _users(top: Section, base: Path) -> Mapping[str, User]:
    """The users themselves, or the name of the file that has them."""
    value = top.values.get("users")
    if isinstance(value, str) and value:
        path = str(base / value)
        return load_users(read_text(path), path)
    return NOBODY if value is None else users_of(top["users"])


def _networks(place: Place) -> tuple[Network, ...]:
    found = []
    for item in place.items():
        try:
            found.append(ipaddress.ip_network(item.value if isinstance(item.value, str) else ""))
        except ValueError:
            item.expected("a network like 192.0.2.0/24")
    return tuple(found)
