"""The process of the SNMP proxy: sockets, clock and files around :class:`~hyroads.slices.snmpvisor.proxy.Proxy`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hyroads.controller.core.checking import Endpoint
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.files.state import Document, Format, Origin, StateFile
from hyroads.controller.framework.service_manager import ServiceManager

from .config import Settings, load
from .frontend import Frontend
from .proxy import Audited, Out, Proxy, ToDevice, ToManager, described

LOG = logging.getLogger("hyroads.snmpvisor")
TICK_S = 0.1
ENTERPRISE = 8072
"""net-snmp's number, under which also our own module is (mibs/HYROADS-MIB.txt)."""
MAX_BOOTS = 2**31 - 1


class _Socket(asyncio.DatagramProtocol):
    """Hands datagrams on; a peer that is not there is no error of ours."""

    def __init__(self, received: Callable[[bytes, Any], None]) -> None:
        self._received = received
        self.transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is there."""
        self.transport = transport  # type: ignore[assignment]

    def datagram_received(self, data: bytes, addr: Any) -> None:
        """A datagram."""
        self._received(data, addr)

    def error_received(self, exc: Exception) -> None:
        """The other end is not there: it is asked again, or given up, as any that does not answer."""

    def send(self, data: bytes, to: Any = None) -> None:
        """Sends a datagram, to where the socket is connected if nothing is said."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.sendto(data, to)


class Server:
    """Sockets to managers and to each device."""

    def __init__(self, settings: Settings, proxy: Proxy) -> None:
        self.settings, self.proxy = settings, proxy
        self._managers = _Socket(lambda data, peer: self._send(proxy.from_manager(data, peer, time.monotonic())))
        self._traps = _Socket(lambda data, peer: self._send(proxy.from_trap(data, peer[0], time.monotonic())))
        self._devices = {name: _Socket(partial(self._from, name)) for name in settings.devices}

    def _from(self, device: str, data: bytes, peer: Any) -> None:
        self._send(self.proxy.from_device(device, data, time.monotonic()))

    def _send(self, out: list[Out]) -> None:
        for each in out:
            if isinstance(each, ToDevice):
                self._devices[each.device].send(each.data)
            elif isinstance(each, ToManager):
                peer = (each.peer.host, each.peer.port) if isinstance(each.peer, Endpoint) else each.peer
                self._managers.send(each.data, peer)

    async def run(self, until: asyncio.Event, manager: ServiceManager) -> None:
        """Serves until the event is set; the service manager hears of it."""
        loop = asyncio.get_running_loop()
        await _bind(loop, self._managers, self.settings.listen, "listen")
        if self.settings.traps is not None:
            await _bind(loop, self._traps, self.settings.traps, "traps")
        for name, device in self.settings.devices.items():
            address = (device.address.host, device.address.port)
            await loop.create_datagram_endpoint(lambda name=name: self._devices[name], remote_addr=address)  # type: ignore[misc]
        LOG.info(
            "SNMPVisor on %s:%d: %d devices, %d slices",
            self.settings.listen.host, self.settings.listen.port, len(self.settings.devices), len(self.settings.slices),
        )  # fmt: skip
        shown = await self._show()
        manager.ready()
        try:
            while not until.is_set():
                manager.turned()
                self._send(self.proxy.tick(time.monotonic()))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(until.wait(), TICK_S)
        finally:
            manager.stopping()
            if shown is not None:
                shown.close()
            for each in (self._managers, self._traps, *self._devices.values()):
                if each.transport is not None:
                    each.transport.close()

    async def _show(self) -> asyncio.Server | None:
        """The metrics, if they are wanted; what they need is not loaded otherwise."""
        if self.settings.metrics is None:
            return None
        from .metrics import exposition, listen

        return await listen(self.settings.metrics, exposition(self.proxy).render)


async def _bind(loop: asyncio.AbstractEventLoop, socket: _Socket, where: Endpoint, key: str) -> None:
    try:
        await loop.create_datagram_endpoint(lambda: socket, local_addr=(where.host, where.port))
    except OSError as error:
        raise ConfigError("settings", key, f"can't listen on {where.host}:{where.port}: {error.strerror}") from error


def serve(path: str) -> int:
    """Runs in the foreground until SIGINT or SIGTERM; the exit status."""
    settings = load(path)
    engine, boots = _engine(settings.state_file)
    audit = _Audit(settings.audit_file)
    proxy = Proxy(Frontend(settings, engine, boots, time.monotonic()), audit.write)

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        loop.add_signal_handler(signal.SIGHUP, LOG.warning, "SIGHUP is ignored: settings are read at the start only")
        await Server(settings, proxy).run(stop, ServiceManager())

    try:
        asyncio.run(main())
    finally:
        audit.close()
    return 0


def _engine(path: Path | None) -> tuple[bytes, int]:
    """Our engine id and how often it has started (RFC 3414, 2.2.2). Without a file, or with one that can't be read, it
    is a new one: how often the old one has started is not known.
    """
    fresh = (0x80000000 | ENTERPRISE).to_bytes(4, "big") + b"\x05" + secrets.token_bytes(8)
    if path is None:
        return fresh, 1
    file = StateFile(path, FORMAT)
    content = file.load()
    for broken in content.broken:
        LOG.warning("state file: %s", broken)
    engine, boots = fresh, 0
    # The older copy would count a start twice.
    if content.document is not None and content.origin is Origin.FILE:
        engine, boots = _engine_of(content.document)
    try:
        file.save({"engine": engine.hex(), "boots": boots + 1})
    except OSError as error:
        raise ConfigError("settings", "state_file", f"{path}: {error.strerror or error}") from error
    return engine, boots + 1


def _engine_of(document: Document) -> tuple[bytes, int]:
    engine, boots = bytes.fromhex(document["engine"]), document["boots"]
    if not 5 <= len(engine) <= 32 or not 0 <= boots < MAX_BOOTS:
        raise ValueError("expected an engine id and how often it has started")
    return engine, boots


FORMAT = Format(2, {"engine": str, "boots": int}, {1: dict}, checked_from=2, first=1, whole=_engine_of)


class _Audit:
    """One JSON document a line, with the time of day, in the file and in the log."""

    def __init__(self, path: Path | None) -> None:
        try:
            self._file = path.open("a", encoding="utf-8", buffering=1) if path is not None else None
        except OSError as error:
            raise ConfigError("settings", "audit_file", f"{path}: {error.strerror}") from error

    def write(self, audited: Audited) -> None:
        """Notes a SET."""
        line = json.dumps({"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **described(audited)})
        LOG.info("%s", line)
        if self._file is not None:
            self._file.write(line + "\n")

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
