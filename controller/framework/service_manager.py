"""What a service manager is told, by systemd's ``sd_notify`` protocol (``Type=notify``): ready, reloading, ending,
and that the event loop still turns. Without a service manager nothing is sent.

A message is one datagram of ``NAME=value`` lines to the Unix socket that ``NOTIFY_SOCKET`` names.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import MutableMapping


class ServiceManager:
    """``environment`` is the process's own: what concerns this process alone is taken out of it, so that children do
    not speak for it.
    """

    def __init__(self, environment: MutableMapping[str, str] | None = None) -> None:
        given = os.environ if environment is None else environment
        self._address = _address(given.pop("NOTIFY_SOCKET", ""))
        period, pid = given.pop("WATCHDOG_USEC", ""), given.pop("WATCHDOG_PID", "")
        is_ours = not pid or pid == str(os.getpid())
        self.watchdog_s = int(period) / 1e6 if is_ours and period.isascii() and period.isdigit() else 0.0
        """The process is taken for hung after so much silence, seconds; 0: it is not watched."""
        self._due_s = 0.0

    def ready(self, status: str = "") -> bool:
        """Everything is there that others wait for. Also ends :meth:`reloading`."""
        return self._tell("READY=1", *([f"STATUS={status}"] if status else []))

    def reloading(self) -> bool:
        """Settings are being read again, until :meth:`ready`."""
        return self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> bool:
        """The end has begun."""
        return self._tell("STOPPING=1")

    def alive(self) -> bool:
        """Not hung."""
        return self._tell("WATCHDOG=1")

    def turned(self) -> None:
        """A program's own loop has turned: says that it lives, if it has not just been said."""
        now_s = time.monotonic()
        if self.watchdog_s and now_s >= self._due_s:
            self._due_s = now_s + self.watchdog_s / 3
            self.alive()

    async def watch(self) -> None:
        """Says that the process lives, as long as the event loop of asyncio turns that this runs in."""
        from asyncio import sleep

        while self.watchdog_s:
            self.alive()
            await sleep(self.watchdog_s / 3)

    def _tell(self, *lines: str) -> bool:
        """Whether it was sent. A manager that can't be reached, or does not read, holds nobody up."""
        if self._address is None:
            return False
        text = "\n".join(line.replace("\n", " ") for line in lines)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.setblocking(False)
                channel.sendto(text.encode(), self._address)
        except OSError:
            return False
        return True


def _address(name: str) -> str | None:
    """A path, or a name in the abstract name space, which the environment writes with an @."""
    if name.startswith("@") and len(name) > 1:
        return "\0" + name[1:]
    return name if name.startswith("/") else None
