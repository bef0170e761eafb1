"""A server of agents whose listeners do not mind what happens, and that remembers lines instead of working on them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hyroads.controller.agents.clients import ClientAccess
from hyroads.controller.agents.listeners import Radios
from hyroads.controller.agents.server import AgentServer
from hyroads.controller.agents.sessions import Session
from hyroads.controller.core.identity import DeviceTokens
from hyroads.controller.settings.controller import Timings


class Listener:
    """Anything that happens is fine; ``is_starting`` is the test's."""

    is_starting = False

    def __getattr__(self, _name: str) -> Any:
        return lambda *_: None


class Server(AgentServer):
    """Remembers lines instead of working on them."""

    def __init__(self, clock: Any, **more: Any) -> None:
        self.listener = listener = Listener()
        radios = Radios(listener, listener, frozenset("a"), 100)
        clients = ClientAccess(listener, {})  # type: ignore[arg-type]
        markers: Any = SimpleNamespace(paths_passed=None)
        super().__init__(
            listener,
            frozenset("a"),
            Timings(),
            DeviceTokens(),
            clock,
            radios=radios,
            markers=markers,
            clients=clients,
            **more,
        )  # type: ignore[arg-type]
        self.taken: list[bytes] = []

    def _take(self, session: Session, line: bytes) -> None:
        self.taken.append(line)
