"""Which plugins there are and which one serves a request, the pure part: loading is somebody else's.

A plugin comes in under the name that it gives itself; names of built-in plugins can't be taken. Who asks for none gets
what is set for the flow, else for the client, else the default. A plugin that is disabled gives way to the built-in one
that ``fallback`` names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from hyroads.controller.core.errors import HyroadsError
from hyroads.plugins.host import Fault, Health, Limits

Plugin = TypeVar("Plugin")
MAX_PLUGINS = 256
_NAME = re.compile(r"[a-z][a-z0-9-]{0,40}")


class PluginError(HyroadsError):
    """A plugin can't be taken in, or there is none of that name."""


@dataclass(frozen=True)
class Selection:
    """Names of plugins: by flow, by client, and for all others."""

    default: str
    by_client: Mapping[str, str] = field(default_factory=dict)
    by_flow: Mapping[str, str] = field(default_factory=dict)

    def name(self, *, asked: str | None = None, client: str | None = None, flow: str | None = None) -> str:
        """The name that counts."""
        by_flow = self.by_flow.get(flow) if flow is not None else None
        by_client = self.by_client.get(client) if client is not None else None
        return asked or by_flow or by_client or self.default


@dataclass(frozen=True)
class Registry(Generic[Plugin]):
    """Plugins of one kind by name, and their health. ``fallback`` is built in and always usable."""

    built_in: Mapping[str, Plugin]
    fallback: str
    foreign: Mapping[str, Plugin] = field(default_factory=dict)
    health: Mapping[str, Health] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.fallback not in self.built_in:
            raise PluginError(f"the fallback {self.fallback!r} is not a built-in plugin")

    def with_plugin(self, name: object, plugin: Plugin, parts: frozenset[str]) -> Registry[Plugin]:
        """With one more, which must have ``parts``; raises :class:`PluginError` if it can't be taken."""
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise PluginError(f"plugin {str(name)[:40]!r}: expected a name of small letters, digits and hyphens")
        if name in self.built_in or name in self.foreign:
            raise PluginError(f"plugin {name!r}: there is one of that name")
        if len(self.foreign) >= MAX_PLUGINS:
            raise PluginError(f"plugin {name!r}: expected at most {MAX_PLUGINS} plugins")
        missing = sorted(part for part in parts if not hasattr(plugin, part))
        if missing:
            raise PluginError(f"plugin {name!r}: expected {', '.join(missing)}")
        return replace(self, foreign={**self.foreign, name: plugin})

    def chosen(self, name: str, now_s: float) -> tuple[str, Plugin]:
        """The plugin of that name, or the fallback while it is disabled; :class:`PluginError` if there is none."""
        plugin = self.built_in.get(name, self.foreign.get(name))
        if plugin is None:
            known = ", ".join(sorted({*self.built_in, *self.foreign}))
            raise PluginError(f"no plugin {name[:40]!r}; there are {known}")
        if name in self.foreign and not self.health.get(name, Health()).usable(now_s):
            return self.fallback, self.built_in[self.fallback]
        return name, plugin

    def after(self, name: str, fault: Fault) -> Registry[Plugin]:
        """With a fault of a plugin counted."""
        health = self.health.get(name, Health()).after(fault, self.limits)
        return replace(self, health={**self.health, name: health})

    def enabled(self, name: str) -> Registry[Plugin]:
        """With a plugin enabled by hand."""
        return replace(self, health={**self.health, name: self.health.get(name, Health()).enabled()})
