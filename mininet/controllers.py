"""Controllers in Mininet's terms."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from mininet.node import Controller

import hyroads.mininet.loggers  # noqa: F401
from hyroads.rest.client import Client, ClientError

from .programs import HYROADS, EmulationError, Program, wait_until
from .run_directory import find_network

READY_S = 30.0


class ListeningController(Controller):  # type: ignore[misc]  # Mininet has no types
    """A controller that somebody else runs; never probed: Mininet's probe is a telnet session, which kills some."""

    def checkListening(self) -> None:  # Mininet's name
        """No probe: the switches dial until it answers."""

    def start(self) -> None:
        """Nothing to start."""

    def stop(self, *arguments: Any, **options: Any) -> None:
        """Nothing to stop but our shell."""
        super(Controller, self).stop(*arguments, **options)


class HyroadsController(ListeningController):
    """Our controller on a network file: ``mn --controller hyroads,triangle.yaml``."""

    def __init__(self, name: str, network: str = "triangle", **params: Any) -> None:
        super().__init__(name, **params)
        command = [*HYROADS, "controller", "--network", str(find_network(network).resolve())]
        self.program = Program("controller", command, Path(f"/tmp/{name}.log"), bound_to_parent=True)  # noqa: S108

    def start(self) -> None:
        """Starts it; its log is /tmp/<name>.log, where Mininet's controllers log too."""
        self.program.start()

    def wait_ready(self, timeout_s: float = READY_S) -> None:
        """Waits until it says that nothing is missing; raises EmulationError after ``timeout_s`` or if it ends."""

        def ready() -> bool:
            if not self.program.alive:
                raise EmulationError(self.program.failure())
            with suppress(ClientError):
                return bool(Client(tries=1, keep_alive=False).health()["ok"])
            return False

        wait_until("controller", ready, timeout_s, interval_s=0.1)

    def stop(self, *arguments: Any, **options: Any) -> None:
        """Ends it."""
        self.program.stop()
        super().stop(*arguments, **options)
