"""The parts ``access``, ``querier``, ``clients`` and ``identities`` of the settings: hosts at access ports, who asks
which groups they want, which multi-homed clients may connect, and by which tokens agents and radios are known.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hyroads.controller.core.checking import (
    Place,
    Problems,
    Section,
    boolean_of,
    integer_of,
    is_user_name,
    number_of,
    path_of,
)
from hyroads.controller.core.document import load_document
from hyroads.controller.core.identity import DEVICE_ROLES
from hyroads.controller.core.network import WIRED
from hyroads.controller.core.network import Place as At
from hyroads.controller.core.services.client_tables import Limits
from hyroads.controller.core.services.membership import MAX_ROBUSTNESS, QueryTimes
from hyroads.controller.files.text import read_private

from .rest import token_of


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """``guard``: only frames of hosts that were learned pass, and no host takes the place of another."""

    guard: bool = True
    dhcp_servers: tuple[str, ...] | None = None
    """Nodes at whose access port DHCP servers may be; None: gateways."""
    routers: tuple[str, ...] | None = None
    """Nodes at whose access port IPv6 routers may be; None: gateways."""
    closed: Mapping[At, frozenset[str] | None] = field(default_factory=dict)
    """Places under 802.1X, and which users alone may be there (None: whomever the RADIUS server accepts)."""
    limits: Limits = field(default_factory=Limits)


def parse_access(top: Section) -> AccessSettings:
    """The section of the settings, if there is one."""
    if top.values.get("access") is None:
        return AccessSettings()
    section = top["access"].section(("guard", "quiet_s", "forget_s", "interfaces", "dhcp_servers", "routers", "dot1x"))
    default = Limits()
    limits = Limits(
        interfaces=integer_of(section, "interfaces", default.interfaces, 1, 100_000),
        quiet_s=number_of(section, "quiet_s", default.quiet_s, 0.1, 3600),
        forget_s=number_of(section, "forget_s", default.forget_s, 1, 86_400),
    )
    servers, routers = (
        None if (place := section.optional(name)) is None else _nodes(place) for name in ("dhcp_servers", "routers")
    )
    closed = _closed(section["dot1x"]) if "dot1x" in section else {}
    return AccessSettings(boolean_of(section, "guard", True), servers, routers, closed, limits)


def _closed(place: Place) -> Mapping[At, frozenset[str] | None]:
    """``{NODE | NODE/TECHNOLOGY: {users: [NAME, ...]}}``."""
    found: dict[At, frozenset[str] | None] = {}
    for name, entry in place.entries():
        section = entry.section(("users",))
        users = _users(section["users"]) if "users" in section else None
        node, _, technology = name.partition("/")
        at = At(node, technology or WIRED)
        if at in found:
            entry.fail("expected each place once")
        found[at] = users
    return found


def _users(place: Place) -> frozenset[str]:
    if not isinstance(place.value, list) or not place.value or not all(map(is_user_name, place.value)):
        place.expected("a list of user names, as the RADIUS server says them")
        return frozenset()
    return frozenset(place.value)


def _nodes(place: Place) -> tuple[str, ...]:
    if not isinstance(place.value, list) or not all(isinstance(node, str) for node in place.value):
        place.expected("a list of nodes")
        return ()
    return tuple(place.value)


@dataclass(frozen=True, slots=True)
class QuerierSettings:
    """``address`` is where IGMP queries come from; 0.0.0.0 gives way to every other querier."""

    address: str = "0.0.0.0"  # noqa: S104 - nothing listens there: it is the address of a querier without one
    times: QueryTimes = field(default_factory=QueryTimes)


def parse_querier(place: Place | None) -> QuerierSettings:
    """The section of the settings, if there is one."""
    plain = QuerierSettings()
    if place is None or place.value is None:
        return plain
    section, default = place.section(("address", "interval_s", "response_s", "robustness")), plain.times
    address = plain.address
    if "address" in section:
        try:
            address = str(ipaddress.IPv4Address(section.values["address"]))
        except ValueError:
            section["address"].expected("an IPv4 address that no host has")
    times = QueryTimes(
        number_of(section, "interval_s", default.interval_s, 1, 1000),
        number_of(section, "response_s", default.response_s, 0.1, 600),
        integer_of(section, "robustness", default.robustness, 1, MAX_ROBUSTNESS),
    )
    if times.response_s >= times.interval_s:
        section.place.key("response_s", None).fail("expected less than interval_s")
    return QuerierSettings(address, times)


MAX_CLIENTS = 4096


def parse_clients(place: Place | None, base: Path) -> Mapping[str, str]:
    """``{ID: {token} | {token_file}}``, which multi-homed clients may connect: their tokens by id."""
    if place is None or place.value is None:
        return {}
    tokens: dict[str, str] = {}
    for name, entry in place.entries():
        if not isinstance(entry.value, Mapping):
            # The value itself stays out of the message: it may be the token.
            entry.fail("expected a mapping with token or token_file")
            continue
        token = _client_token(entry.section(("token", "token_file")), base)
        if token is not None and token in tokens.values():
            entry.fail("expected a token that no other client has")
        elif token is not None:
            tokens[name] = token
    if len(tokens) > MAX_CLIENTS:
        place.fail(f"expected at most {MAX_CLIENTS} clients, got {len(tokens)}")
    return tokens


def _client_token(section: Section, base: Path) -> str | None:
    if section.valid and ("token" in section) == ("token_file" in section):
        section.place.fail("expected a token or a token_file")
        return None
    if "token" in section:
        return token_of(section["token"])
    name = path_of(section, "token_file", base)
    if name is None:
        return None
    return token_of(Place(read_private(name).strip(), section.place.problems, section["token_file"].path))


_HASH = re.compile(r"[0-9a-f]{64}")


def parse_identities(name: str) -> Mapping[tuple[str, str], str]:
    """The file ``{agent: {NODE: SHA-256 of its token}, radio: {...}}``: hashes by (role, node). Nobody but its owner
    may read or write it: whoever writes it decides who may be which node.
    """
    problems = Problems(name)
    document = load_document(read_private(name), name)
    section = Place({} if document is None else document, problems).section(DEVICE_ROLES)
    found: dict[tuple[str, str], str] = {}
    for role in DEVICE_ROLES:
        for node, entry in section[role].entries() if role in section else ():
            if not isinstance(entry.value, str) or not _HASH.fullmatch(entry.value):
                # It may be the token itself, so it is not shown.
                entry.fail("expected the SHA-256 of a token, 64 hex digits, as hyroads identity writes it")
            elif entry.value in found.values():
                entry.fail("expected a token that nobody else has")
            else:
                found[role, node] = entry.value
    problems.raise_if_any()
    return found
