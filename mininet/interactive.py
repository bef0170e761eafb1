"""A running emulated network in the hands of its user: Mininet's prompt, or until Ctrl-C."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from hyroads.mininet.emulation import REST_PORT, Emulation
from hyroads.mininet.errors import EmulationError

WATCH_INTERVAL_S = 0.2


def keep_running(emulation: Emulation, *, cli: bool, script: str | None) -> int:
    """Keeps the network running until the user ends it; raises EmulationError when the network breaks."""
    if script is not None and not Path(script).is_file():
        raise EmulationError(f"--script {script}: no such file")
    if not cli and script is None:
        _introduce(emulation)
        while True:
            _watch_once(emulation)
            time.sleep(WATCH_INTERVAL_S)
    stop = threading.Event()
    watcher = threading.Thread(target=_watch, args=(emulation, stop), daemon=True)
    watcher.start()
    from hyroads.mininet.prompt import HybridPrompt

    HybridPrompt(emulation, script=script)
    stop.set()
    watcher.join()
    return 0


def _watch(emulation: Emulation, stop: threading.Event) -> None:
    while not stop.wait(WATCH_INTERVAL_S):
        try:
            _watch_once(emulation)
        except EmulationError as error:
            # The prompt stays, so that the user can look at what is left.
            _tell(str(error))
            return


def _watch_once(emulation: Emulation) -> None:
    emulation.check()
    emulation.restart_dead(_tell)


def _tell(message: str) -> None:
    print(f"hyroads: {message}", file=sys.stderr, flush=True)


def _introduce(emulation: Emulation) -> None:
    first, *_, last = emulation.network.nodes
    address = emulation.addressing.host_ip[last]
    print(f"Network {emulation.name} runs; Ctrl-C ends it. Its nodes are network namespaces of this machine:")
    print(f"  ip netns exec {emulation.namespace(first)} ping {address}")
    print(
        f"Inside, the controller answers REST on 127.0.0.1:{REST_PORT}; logs are in {emulation.directory}.", flush=True
    )
