"""What the live benchmarks share: an emulated network for as long as a measurement lasts.

Importing this makes ``tests/support`` importable, too. Run by itself it does nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hyroads.controller.core.network import Network
from hyroads.controller.files.documents import read_file
from hyroads.mininet.emulation import Emulation, EmulationOptions
from hyroads.mininet.run_directory import find_network
from hyroads.mininet.runner import RunOptions, run_network

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))


def shipped(name: str) -> Network:
    """The network of a file, or of that name among those that come with HyRoads."""
    return read_file(find_network(name))


def on_network(
    network: Network | str,
    name: str,
    body: Callable[[Emulation], int],
    say: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> int:
    """Run ``body`` on a network (or the shipped one of that name) that is emulated under ``name``; return its status.

    ``options`` are those of ``EmulationOptions``. Switches, agents and controller are ready when ``body`` begins, in a
    process of its own, with which the network ends. REST is not published on the host.
    """
    found = shipped(network) if isinstance(network, str) else network
    return run_network(found, name, body, RunOptions(publish=0, emulation=EmulationOptions(**options)), say)


def slots_of(emulation: Emulation) -> dict[str, Any]:
    """The controller's own figures of its slots."""
    found: dict[str, Any] = emulation.rest.health()["slots"]
    return found
