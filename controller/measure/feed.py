"""The controller's end of the collector: starts the process, and hands over its events in a green thread.

Everything slow (SNMP, cryptography, differences) happens in the other process; here a line of JSON is parsed, some
tens of microseconds each.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable

from hyroads.controller import ryu_shim as shim
from hyroads.controller.measure.samples import MAX_LINE_BYTES, Event, SampleError, from_line
from hyroads.controller.measure.targets import CollectorConfig, document

LOG = logging.getLogger("hyroads.measure")
RESTART_AFTER_S = 1.0
READ_BYTES = 1 << 16
COMMAND = (sys.executable, "-m", "hyroads.controller.measure.collector")

Listener = Callable[[Event], None]


class CollectorFeed:
    """Runs the collector and starts it again a second after it ended; ``listener`` gets every event."""

    def __init__(self, config: CollectorConfig, listener: Listener) -> None:
        self._config = config
        self._listener = listener
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self.restarts = 0

    @property
    def pid(self) -> int | None:
        """The collector's process."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Starts the process and the green thread that reads it."""
        shim.spawn(self._run)

    def stop(self) -> None:
        """Ends the process."""
        self._stopped = True
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()

    def _run(self) -> None:
        while not self._stopped:
            self._run_once()
            if not self._stopped:
                self.restarts += 1
                LOG.warning("the SNMP collector ended; starting it again")
                shim.sleep(RESTART_AFTER_S)

    def _run_once(self) -> None:
        configuration = self._configuration()
        try:
            self._process = subprocess.Popen(COMMAND, stdin=configuration, stdout=subprocess.PIPE)
        finally:
            os.close(configuration)
        output = self._process.stdout
        if output is not None:
            with output:
                self._read(output.fileno())
        self._process.kill()
        self._process.wait()

    def _configuration(self) -> int:
        """A file in memory: secrets reach neither a disk nor a command line, and nobody waits for a reader."""
        descriptor = os.memfd_create("hyroads-collector")
        os.write(descriptor, document(self._config).encode())
        os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor

    def _read(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        buffer = b""
        while len(buffer) <= MAX_LINE_BYTES:
            shim.wait_readable(descriptor)
            chunk = os.read(descriptor, READ_BYTES)
            if not chunk:
                return
            *whole, buffer = (buffer + chunk).split(b"\n")
            for line in whole:
                self._hand_over(line)
                # Each line takes tens of microseconds; OpenFlow may go first.
                shim.sleep(0)

    def _hand_over(self, line: bytes) -> None:
        try:
            event = from_line(line)
        except SampleError as error:
            LOG.warning("%s", error)
            return
        self._listener(event)
