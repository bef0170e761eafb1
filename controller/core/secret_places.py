"""Which keys of our files of settings are secrets, and which name files with secrets. Pure.

By their names, whatever file they are in: ``token`` is a secret, ``token_file`` the name of a file with one. So a file
of settings can be judged before it is parsed, and one list serves all programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

SECRETS = frozenset(
    "token agent_token peer_token community password privacy_password auth_password priv_password".split()  # noqa: SIM905
)
"""Keys whose values are secrets."""
FILES = frozenset(f"{name}_file" for name in SECRETS)
"""Keys whose values are names of files with secrets."""
AUTHORITY = "boxes.authority"
"""Names the folder with the key that certificates of boxes are signed with."""
_WRITTEN_BY_US = frozenset(("state_file", "identities"))


@dataclass(frozen=True, slots=True)
class SecretFile:
    """A file that is named at ``place`` of some settings, relative to them."""

    place: str
    name: str


def secrets_in(document: object) -> Iterator[tuple[str, str]]:
    """Places of the secrets that a document has itself, and their values."""
    for place, key, value, _ in _values(document):
        if key in SECRETS and isinstance(value, str) and value:
            yield place, value


def files_in(document: object) -> Iterator[SecretFile]:
    """The files with secrets that a document names: tokens, passwords, TLS keys, states, targets of SNMP."""
    for place, key, value, beside in _values(document):
        is_key = key == "key" and "certificate" in beside
        if isinstance(value, str) and value and (key in FILES or key in _WRITTEN_BY_US or is_key or place == "snmp"):
            yield SecretFile(place, value)
        elif place == AUTHORITY and isinstance(value, str) and value:
            yield SecretFile(place, f"{value}/ca.key")


def _values(value: object, place: str = "") -> Iterator[tuple[str, str, Any, Mapping[Any, Any]]]:
    """All values below mappings: place, key, value, and the mapping."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            here = f"{place}.{key}" if place else str(key)
            yield here, str(key), inner, value
            yield from _values(inner, here)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _values(inner, f"{place}[{index}]")
