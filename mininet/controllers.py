"""Controllers in Mininet's terms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mininet.node import Controller

import hyroads.mininet.loggers  # noqa: F401

from .programs import HYROADS, Program
from .run_directory import find_network


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

    def stop(self, *arguments: Any, **options: Any) -> None:
        """Ends it."""
        self.program.stop()
        super().stop(*arguments, **options)
