"""What the daemons of a client and of a waypoint have in common: one thread, signals, one process at a time, an
orderly end.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import shutil
import signal
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.framework.service_manager import ServiceManager

_CAP_NET_ADMIN = 12
TOOLS = {"ip": "iproute2", "nft": "nftables"}


def check_prerequisites(command: str, tools: Mapping[str, str] = TOOLS, *, tun: bool = True) -> None:
    """One error that names what is missing: the right to change the network, a system tool (``tools`` says of each what
    package it comes with), the TUN device.
    """
    if not _may_change_networks():
        raise HyroadsError(f"{command} needs root (try: sudo hyroads ...)")
    os.environ["PATH"] = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    missing = sorted(package for tool, package in tools.items() if shutil.which(tool) is None)
    if missing:
        raise HyroadsError(f"missing system packages: {' '.join(missing)} (apt-get install {' '.join(missing)})")
    if tun and not Path("/dev/net/tun").exists():
        raise HyroadsError("/dev/net/tun does not exist: the kernel has no TUN/TAP support")


def _may_change_networks() -> bool:
    """Whether this process has CAP_NET_ADMIN, as root does, and as a service manager may give it to another user."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return os.geteuid() == 0
    rights = next((line.split()[1] for line in lines if line.startswith("CapEff:")), "0")
    return bool(int(rights, 16) >> _CAP_NET_ADMIN & 1)


class Process:
    """A daemon called ``name``, whose sockets and locks are in a folder of /run."""

    def __init__(self, run_directory: Path, name: str, log: logging.Logger) -> None:
        self._folder, self._name, self._log = run_directory, name, log
        self.control_socket = run_directory / f"{name}.sock"
        self.data_socket = run_directory / f"{name}-data.sock"
        self._ended = asyncio.Event()
        self._failure: HyroadsError | None = None
        self._spawned: set[asyncio.Task[None]] = set()
        # Now, so that what is started does not speak for this process.
        self.manager = ServiceManager()

    async def run(self) -> None:
        """Runs ``main`` until SIGTERM or SIGINT; SIGHUP calls ``reload``. :class:`HyroadsError` if it can't go on."""
        lock = self._lock()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._ended.set)
        loop.add_signal_handler(signal.SIGHUP, self.reload)
        watch = asyncio.create_task(self.manager.watch())
        try:
            await self.main()
        except OSError as error:
            raise HyroadsError(str(error)) from error
        finally:
            watch.cancel()
            lock.close()
        if self._failure is not None:
            raise self._failure

    async def main(self) -> None:
        """What to do; ends after ``until_ended``."""
        raise NotImplementedError

    def reload(self) -> None:
        """Read again what can be changed."""
        raise NotImplementedError

    def fail(self, error: HyroadsError) -> None:
        """End in order, and say why."""
        self._failure = error
        self._ended.set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside; errors that users may see are said."""
        task = asyncio.create_task(self._said(work))
        self._spawned.add(task)
        task.add_done_callback(self._spawned.discard)

    async def until_ended(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Until the process is told to end, or one of the tasks ends, which none should."""
        waiting = asyncio.create_task(self._ended.wait())
        done, _ = await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        self.manager.stopping()
        for task in done - {waiting}:
            task.result()

    async def _said(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except HyroadsError as error:
            self._log.error("%s", error)

    def _lock(self) -> IO[str]:
        path = self._folder / f"{self._name}.lock"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = path.open("a", encoding="ascii")
        except OSError as error:
            raise HyroadsError(f"{path}: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            with contextlib.suppress(OSError):
                lock.close()
            raise HyroadsError(f"{path}: another one is running") from error
        return lock
