"""The settings of the REST API: tokens with roles, and how much may be asked; and whose certificates are a slicer's."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from hyroads.controller.core.checking import Place, Section, integer_of, interface_mac, number_of, path_of
from hyroads.rest.contract import COUNTED, OPERATOR, PLUGIN, QUOTAS, RESERVED_AIRTIME, RESERVED_MBPS

APPLICATION = "application"
ROLES = ("admin", "slice-owner", APPLICATION, "viewer")
MIN_TOKEN_LENGTH = 16
MOST_OF_A_KIND = 1_000_000
_OF_APPLICATIONS = ("clients", "access_rules", "quotas", "may_change")
MOST_ACCESS_RULES = 64
"""Of each application, unless its token says otherwise."""


@dataclass(frozen=True, slots=True)
class ApiToken:
    """A bearer token of the REST API; what its role may do: ``rest.access``."""

    name: str
    token: str = field(repr=False)
    role: str
    clients: frozenset[str] = frozenset()
    """Of an application: hosts (node id or MAC address) for whose frames it may make access rules."""
    access_rules: int = MOST_ACCESS_RULES
    """Of an application: how many access rules it may have."""
    quotas: tuple[tuple[str, float], ...] = ()
    """By name: how much it may have."""
    may_change: frozenset[str] = frozenset()
    """Of an application: names of the tokens whose things it may change, too."""


@dataclass(frozen=True, slots=True)
class ApiLimits:
    """For each token; all who need none share one."""

    requests_per_s: float = 500.0
    burst: float = 1000.0
    listeners: int = 64
    """How many may listen to events, in all."""


DEFAULT_LIMITS = ApiLimits()


@dataclass(frozen=True, slots=True)
class SlicerPlace:
    """Where the slicer before the controller answers REST, and by which certificates it is checked."""

    url: str
    ca: str | None = None


def token_of(place: Place) -> str | None:
    """A token that is hard to guess."""
    value = place.value
    if isinstance(value, str) and MIN_TOKEN_LENGTH <= len(value) <= 512 and value.isascii() and value.isprintable():
        return value
    # The value itself stays out of the message: it may be a real secret with a typing error.
    place.fail(f"expected a token of {MIN_TOKEN_LENGTH} to 512 printable characters")
    return None


def api_tokens(place: Place, roles: Collection[str] = ROLES) -> tuple[ApiToken, ...]:
    """``name: {token, role, clients, access_rules, quotas, may_change}``; the last four are of applications."""
    keys = ("token", "role", *(_OF_APPLICATIONS if APPLICATION in roles else ()))
    tokens: list[ApiToken] = []
    for name, entry in place.entries():
        section = entry.section(keys, ("token",))
        token = token_of(section["token"]) if "token" in section else None
        role = section["role"].choice(roles, "viewer") if "role" in section else "admin"
        if token is not None and any(token == other.token for other in tokens):
            section["token"].fail("expected a token that no other name has")
        elif token is not None:
            rules = integer_of(section, "access_rules", MOST_ACCESS_RULES, 0, 1024)
            _check_name(entry, name, role)
            more = (_clients(section), rules, _quotas(section), may_change(section, "admin"))
            tokens.append(ApiToken(name, token, role, *more))
    return tuple(tokens)


def _check_name(place: Place, name: str, role: str) -> None:
    """What the operator or a plugin owns is no token's."""
    if (name == OPERATOR and role != "admin") or name.startswith(PLUGIN):
        place.fail("expected another name: this one is that of other owners")


def _quotas(section: Section) -> tuple[tuple[str, float], ...]:
    if section.values.get("quotas") is None:
        return ()
    part = section["quotas"].section(QUOTAS)
    counts = [(kind, part[kind].integer(0, 0, MOST_OF_A_KIND)) for kind in COUNTED if kind in part]
    most = ((RESERVED_MBPS, 1e6), (RESERVED_AIRTIME, 1.0))
    return (*counts, *((name, part[name].number(0.0, 0.0, high)) for name, high in most if name in part))


def may_change(section: Section, usual_role: str) -> frozenset[str]:
    """Names of the owners whose things an application may change, beside its own; ``usual_role`` is that without a
    ``role``.
    """
    place = section.optional("may_change")
    names = frozenset(one.identifier() for one in place.items()) if place is not None else frozenset()
    if names and section.values.get("role", usual_role) != APPLICATION:
        section["may_change"].fail("only of role application; admins may change everything, and viewers nothing")
    return names


def _clients(section: Section) -> frozenset[str]:
    """Hosts by node id or MAC address; addresses in lower case."""
    place = section.optional("clients")
    names = [(one, one.identifier()) for one in place.items()] if place is not None else []
    if names and section.values.get("role", "admin") != APPLICATION:
        section["clients"].fail("only of role application; others need none")
    return frozenset(interface_mac(name) or name for _, name in names)


def api_limits(place: Place) -> ApiLimits:
    """Bounds of the API."""
    section, default = place.section(("requests_per_s", "burst", "listeners")), DEFAULT_LIMITS
    return ApiLimits(
        number_of(section, "requests_per_s", default.requests_per_s, 0.1, 1e6),
        number_of(section, "burst", default.burst, 1, 1e6),
        integer_of(section, "listeners", default.listeners, 0, 512),
    )


def any_switch(place: Place | None) -> frozenset[str]:
    """Names of certificates that may speak for every switch."""
    return frozenset(one.identifier() for one in place.items()) if place is not None and place.value else frozenset()


def slicer_place(place: Place, base: Path) -> SlicerPlace | None:
    """``{url, ca}``; principals' tokens are handed on, so beyond this machine only over TLS."""
    section = place.section(("url", "ca"), ("url",))
    if "url" not in section:
        return None
    url = section["url"].value
    parts = urlsplit(url) if isinstance(url, str) else urlsplit("")
    secure = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1"))
    if not secure or not parts.hostname or parts.path.strip("/") or parts.query:
        section["url"].expected("https://HOST:PORT, or http://127.0.0.1:PORT on this machine")
        return None
    return SlicerPlace(url, path_of(section, "ca", base))
