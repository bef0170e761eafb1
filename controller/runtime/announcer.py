"""Names the controller by multicast DNS, where the settings say so: runs ``framework.multicast_dns`` while it leads."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import subprocess
import sys
from collections.abc import Callable

from hyroads.controller.core.errors import ConfigError
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.settings.controller import Settings

LOG = logging.getLogger("hyroads.controller")
LOOK_EVERY_S = 0.5
RESTART_AFTER_S = 5.0
COMMAND = (sys.executable, "-m", "hyroads.controller.framework.multicast_dns")


class Announcer:
    """``leads`` says whether this controller is the one that boxes join. ConfigError if ``zeroconf`` is missing."""

    def __init__(self, settings: Settings, document: str, leads: Callable[[], bool]) -> None:
        self._addresses = settings.boxes.announce if settings.boxes is not None else ()
        self._port = settings.rest.port
        self._leads = leads
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        if self._addresses and importlib.util.find_spec("zeroconf") is None:
            raise ConfigError(document, "boxes.announce", "needs zeroconf: pip install 'hyroads[announce]'")

    def start(self) -> None:
        """Starts the green thread that starts and ends the process; without addresses nothing is started."""
        if self._addresses:
            shim.spawn(self._run)

    def stop(self) -> None:
        """Withdraws the name."""
        self._stopped = True
        self._end()

    def _run(self) -> None:
        while not self._stopped:
            shim.sleep(self.look())

    def look(self) -> float:
        """Start or end the process as it is due; returns after how many seconds to look again."""
        if self._process is not None and self._process.poll() is not None:
            LOG.warning("multicast DNS: the process that names the controller ended with status %s", self._end())
            return RESTART_AFTER_S
        if self._process is None and self._leads():
            self._begin()
        elif self._process is not None and not self._leads():
            self._end()
        return LOOK_EVERY_S

    def _begin(self) -> None:
        # What it prints goes where the controller's own errors go.
        self._process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=sys.stderr.fileno())
        wanted = json.dumps({"addresses": self._addresses, "port": self._port})
        # If it has ended already, the next look says so.
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.write(wanted.encode() + b"\n")
                self._process.stdin.flush()
        LOG.info("multicast DNS: names this controller on the networks of %s", ", ".join(self._addresses))

    def _end(self) -> int | None:
        """Its exit status; None if it does not run."""
        process, self._process = self._process, None
        if process is None:
            return None
        with contextlib.suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        try:
            # It says goodbye on the network first.
            return process.wait(2.0)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()
