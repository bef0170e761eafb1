"""The kinds of plugins, what is known of a plugin before it runs, and which plugin serves a request. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """What a plugin is."""

    APP = "app"
    POLICY = "policy"
    MOBILITY = "mobility"


GROUPS: Mapping[Kind, str] = {
    Kind.APP: "hyroads.apps",
    Kind.POLICY: "hyroads.policies",
    Kind.MOBILITY: "hyroads.mobility",
}
"""Entry points."""

ATTRIBUTES: Mapping[Kind, str] = {Kind.APP: "APP", Kind.POLICY: "POLICY", Kind.MOBILITY: "MANAGER"}
"""What a plugin's object is called in its module, where nobody says otherwise."""

PARTS: Mapping[Kind, frozenset[str]] = {
    Kind.APP: frozenset({"name", "start", "on_event", "tick", "events", "every_s"}),
    Kind.POLICY: frozenset({"name", "fresh", "decide"}),
    Kind.MOBILITY: frozenset({"name", "start", "on", "tick", "due_s", "wanted"}),
}


NAME = re.compile(r"[a-z][a-z0-9-]{0,40}")
WHAT_A_NAME_IS = "a name of small letters, digits and hyphens, 41 at most"
ROLES = ("viewer", "application", "admin")


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a plugin's process may use. ``deadline_s`` bounds a call, without the time that its own requests take."""

    memory_mb: int = 512
    deadline_s: float = 5.0
    user: str | None = None
    """Whom it runs as; None: as the controller."""


@dataclass(frozen=True)
class DiscoveredPlugin:
    """A foreign plugin: a file, or an attribute of an importable module. ``starts``: with the controller."""

    name: str
    kind: Kind
    origin: str
    module: str | None = None
    path: str | None = None
    attribute: str | None = None
    role: str = "viewer"
    may_change: frozenset[str] = frozenset()
    """Owners whose things it may change over REST, beside its own."""
    starts: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    bounds: Bounds = Bounds()

    def load_document(self) -> dict[str, Any]:
        """What its process is told first."""
        return {
            "kind": self.kind.value,
            "module": self.module,
            "path": self.path,
            "attribute": self.attribute,
            "settings": dict(self.settings),
            "memory_mb": self.bounds.memory_mb,
            "user": self.bounds.user,
        }


@dataclass(frozen=True)
class Selection:
    """Names of plugins. Who asks for none gets what is set for the flow, else for the client, else the default."""

    default: str
    by_client: Mapping[str, str] = field(default_factory=dict)
    by_flow: Mapping[str, str] = field(default_factory=dict)

    def name(self, *, asked: str | None = None, client: str | None = None, flow: str | None = None) -> str:
        """The name that counts."""
        by_flow = self.by_flow.get(flow) if flow is not None else None
        by_client = self.by_client.get(client) if client is not None else None
        return asked or by_flow or by_client or self.default
