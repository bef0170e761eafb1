"""What is declared of a multicast session, and its text in requests and in the state file. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hyroads.controller.core.checking import id_problem
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.services.group_address import GroupAddress, GroupAddressError, group_address

MAX_PARTICIPANTS = 64
MAX_RATE_MBPS = 1e6
_MAX_NAME = 64
_KEYS = frozenset({"id", "group", "participants", "sources", "rate_mbps", "membership"})


@dataclass(frozen=True, slots=True)
class Participant:
    """A host: by the id of a node, its MAC or its IP address, as it was declared."""

    name: str
    is_source: bool = True


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """Who sends to whom. ``rate_mbps`` is what every source is counted with (None: what it is measured to send);
    ``membership``: hosts join and leave by IGMP and MLD as well.
    """

    id: str
    group: GroupAddress
    participants: tuple[Participant, ...]
    rate_mbps: float | None = None
    membership: bool = False

    def find(self, name: str) -> Participant | None:
        """The participant that was declared by this name."""
        return next((one for one in self.participants if one.name == name), None)

    def with_participant(self, new: Participant) -> SessionSpec:
        """With one more, or one that sends (or does not) from now on; ``ConfigError`` if there are too many."""
        others = tuple(one for one in self.participants if one.name != new.name)
        if len(others) >= MAX_PARTICIPANTS:
            raise ConfigError("request", "participants", f"expected at most {MAX_PARTICIPANTS}")
        return replace(self, participants=(*others, new))

    def without(self, name: str) -> SessionSpec:
        """Without a participant."""
        return replace(self, participants=tuple(one for one in self.participants if one.name != name))


def session_spec(document: Mapping[str, Any], name: str) -> SessionSpec:
    """The session that a document declares; ``ConfigError`` names the place of what is wrong."""
    unknown = sorted(map(str, document.keys() - _KEYS))
    if unknown:
        raise ConfigError(name, unknown[0][:_MAX_NAME], "unknown field")
    what = id_problem(document.get("id"))
    if what:
        raise ConfigError(name, "id", f"expected {what}")
    try:
        group = group_address(str(document.get("group", "")))
    except GroupAddressError as error:
        raise ConfigError(name, "group", str(error)) from error
    membership = document.get("membership", False)
    if not isinstance(membership, bool):
        raise ConfigError(name, "membership", "expected true or false")
    names = _names(document.get("participants", []), name, "participants")
    given = document.get("sources")
    sources = names if given is None else _names(given, name, "sources")
    for place, one in enumerate(sources):
        if one not in names:
            raise ConfigError(name, f"sources[{place}]", "expected a participant")
    participants = tuple(Participant(one, one in sources) for one in names)
    return SessionSpec(str(document["id"]), group, participants, rate(document.get("rate_mbps"), name), membership)


def session_document(spec: SessionSpec) -> dict[str, Any]:
    """The document that :func:`session_spec` reads."""
    return {
        "id": spec.id,
        "group": spec.group.text,
        "participants": [one.name for one in spec.participants],
        "sources": [one.name for one in spec.participants if one.is_source],
        "rate_mbps": spec.rate_mbps,
        "membership": spec.membership,
    }


def rate(value: object, name: str) -> float | None:
    """A rate, or None for none."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigError(name, "rate_mbps", "expected a number or null")
    if not 0 < value <= MAX_RATE_MBPS:
        raise ConfigError(name, "rate_mbps", f"expected a rate above 0 and up to {MAX_RATE_MBPS:g}")
    return float(value)


def _names(value: object, name: str, place: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) and 0 < len(one) <= _MAX_NAME for one in value):
        raise ConfigError(name, place, f"expected a list of nodes, MAC or IP addresses of up to {_MAX_NAME} characters")
    if len(value) > MAX_PARTICIPANTS:
        raise ConfigError(name, place, f"expected at most {MAX_PARTICIPANTS}, got {len(value)}")
    if len(set(value)) < len(value):
        raise ConfigError(name, place, "expected each one once")
    return list(value)
