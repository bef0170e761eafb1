"""The kinds of plugins: how each is found and what it must have."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


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
