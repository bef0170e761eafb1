"""Which mobility manager serves a handover: the built-in ones, and those that plugins bring. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.services.mobility import MobilityManager
from hyroads.plugins.mobility import bicast, hard, hoolock, vertical
from hyroads.plugins.registry import Selection

BUILT_IN: Mapping[str, MobilityManager] = {
    manager.name: manager
    for manager in (hard.MANAGER, hoolock.MANAGER, bicast.MANAGER, vertical.MANAGER, vertical.BICAST)
}
HARD = hard.MANAGER.name
DEFAULT = hoolock.MANAGER.name

Foreign = Callable[[], Mapping[str, MobilityManager]]


@dataclass(frozen=True)
class Managers:
    """``foreign`` gives the plugins' managers that can be used now, already held to the rules
    (``plugins.host.GuardedManager``); ``selection`` says who serves whom if nobody is asked for.
    """

    foreign: Foreign = dict
    selection: Selection = field(default_factory=lambda: Selection(DEFAULT))

    def named(self, asked: str | None, client: str, flow: str | None = None) -> MobilityManager:
        """The manager of a handover; :class:`ConfigError` if there is none of that name."""
        name = self.selection.name(asked=asked, client=client, flow=flow)
        known = {**self.foreign(), **BUILT_IN}
        if name not in known:
            raise ConfigError("request", "manager", f"expected one of {', '.join(sorted(known))}; got {name[:40]!r}")
        return known[name]
