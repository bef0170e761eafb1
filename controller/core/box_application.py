"""What a box says of itself when it applies, checked: the controller takes it from strangers. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .checking import Place, Problems
from .errors import ConfigError

TOKEN_ROLES = ("agent", "radio")
KINDS = ("ethernet", "wifi")
MOST_INTERFACES, MOST_REQUEST, MOST_SYSTEM = 32, 4096, 80
HOST = "host"
"""Among the names of a node's ports: where its hosts are."""
BOX_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
INTERFACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,14}")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_HASH = re.compile(r"[0-9a-f]{64}")
_PEM = re.compile(r"[A-Za-z0-9+/=\n -]+")


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface of a box."""

    name: str
    kind: str
    """``ethernet`` or ``wifi``."""
    mtu: int
    address: str
    """MAC address."""
    uplink: bool = False
    """Whether the box reaches the controller by it."""
    up: bool = False


@dataclass(frozen=True)
class Application:
    """``key`` is the SHA-256 of the box's public key, ``claim`` that of its secret, ``tokens`` have those of its agent
    and radio by role. ``request`` is a certificate request (PEM), ``system`` the name of the operating system.
    """

    id: str
    key: str
    claim: str
    tokens: Mapping[str, str]
    request: str
    system: str
    interfaces: Sequence[Interface]

    def document(self) -> dict[str, Any]:
        """What :func:`application_of` reads."""
        return {**asdict(self), "tokens": dict(self.tokens), "interfaces": [asdict(each) for each in self.interfaces]}


def box_id(address: str) -> str:
    """The usual id of a box with this first factory address, such as ``b827eb-41c0a1``."""
    digits = address.replace(":", "").lower()
    return f"{digits[:6]}-{digits[6:]}"


def application_of(document: object, name: str) -> Application:
    """Read what a box says; ConfigError that names ``name`` and the first wrong place."""
    problems = Problems(name)
    keys = ("id", "key", "claim", "tokens", "request", "system", "interfaces")
    section = Place(document, problems).section(keys, keys)
    problems.raise_if_any()
    tokens = section["tokens"].section(TOKEN_ROLES, TOKEN_ROLES)
    problems.raise_if_any()
    found = Application(
        text_of(section["id"], BOX_ID.fullmatch, "letters, digits, dots, dashes, 64 at most"),
        text_of(section["key"], _HASH.fullmatch, "64 hex digits"),
        text_of(section["claim"], _HASH.fullmatch, "64 hex digits"),
        {role: text_of(tokens[role], _HASH.fullmatch, "64 hex digits") for role in TOKEN_ROLES},
        text_of(section["request"], _is_pem, f"a PEM certificate request of {MOST_REQUEST} characters at most"),
        text_of(section["system"], _is_system, f"1 to {MOST_SYSTEM} printable characters"),
        _interfaces(section["interfaces"]),
    )
    problems.raise_if_any()
    if len({found.claim, *found.tokens.values()}) < 1 + len(TOKEN_ROLES):
        raise ConfigError(name, "tokens", "expected hashes that differ")
    return found


def text_of(place: Place, fits: Callable[[str], object], expected: str) -> str:
    """A text that fits; else the problem is noted and it is empty."""
    if isinstance(place.value, str) and fits(place.value):
        return place.value
    place.expected(expected)
    return ""


def _is_pem(text: str) -> bool:
    return len(text) <= MOST_REQUEST and _PEM.fullmatch(text) is not None


def _is_system(text: str) -> bool:
    return 0 < len(text) <= MOST_SYSTEM and text.isprintable()


def _interfaces(place: Place) -> tuple[Interface, ...]:
    if not isinstance(place.value, list) or len(place.value) > MOST_INTERFACES:
        place.expected(f"a list of {MOST_INTERFACES} interfaces at most")
        return ()
    found = []
    for entry in place.items():
        keys = ("name", "kind", "mtu", "address", "uplink", "up")
        section = entry.section(keys, keys[:4])
        if not section.valid or any(key not in section for key in keys[:4]):
            return ()
        found.append(
            Interface(
                text_of(section["name"], INTERFACE.fullmatch, "the name of an interface"),
                section["kind"].choice(KINDS, KINDS[0]),
                section["mtu"].integer(1500, 68, 65536),
                text_of(section["address"], _MAC.fullmatch, "a MAC address"),
                "uplink" in section and section["uplink"].boolean(False),
                "up" in section and section["up"].boolean(False),
            )
        )
    if len({each.name for each in found}) < len(found):
        place.expected("interfaces of different names")
    return tuple(found)


def chosen_ports(
    given: Mapping[str, str], wanted: Mapping[str, str], interfaces: Sequence[Interface], document: str = "ports"
) -> dict[str, str]:
    """The interface for each port of a node; ConfigError if one is missing, unknown, used twice, or the uplink.

    ``wanted`` has the controller's name of the interface by port: each technology, and ``host``. A port that is not
    ``given`` is the interface of that name, else the only free one of the kind that is named as the technology. The
    access port may stay without one; without a word it is the only free Ethernet interface.
    """
    known = {each.name: each for each in interfaces}
    names = ", ".join(known) or "none"
    for port, name in given.items():
        if port not in wanted:
            raise ConfigError(document, port, f"expected one of {', '.join(wanted)}")
        if name not in known:
            raise ConfigError(document, port, f"expected an interface of the box: {names}")
    chosen = {port: given.get(port, wanted[port]) for port in wanted if port in given or wanted[port] in known}
    for port in [each for each in wanted if each not in chosen]:
        kind = "ethernet" if port == HOST else port
        free = [
            each.name
            for each in interfaces
            if each.kind == kind and each.name not in chosen.values() and not each.uplink
        ]
        # An interface that another port still waits for is not free for hosts.
        if len(free) == 1 and (port != HOST or set(wanted) - {HOST} <= set(chosen)):
            chosen[port] = free[0]
        elif port != HOST:
            raise ConfigError(document, port, f"expected which interface of the box it is: {names}")
    for port, name in chosen.items():
        if list(chosen.values()).count(name) > 1:
            raise ConfigError(document, port, f"expected an interface that no other port is: {name}")
        if known[name].uplink:
            raise ConfigError(document, port, f"{name} is the interface by which the box reaches the controller")
    return chosen
