"""What is known of a plugin before it runs: where it is, what it may do and use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hyroads.plugins.kinds import Kind

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
class Found:
    """A foreign plugin: a file, or an attribute of an importable module. ``starts``: with the controller."""

    name: str
    kind: Kind
    origin: str
    module: str | None = None
    path: str | None = None
    attribute: str | None = None
    role: str = "viewer"
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
