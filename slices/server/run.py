"""Starts and ends the slicer."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import signal
import ssl
import stat
import sys
from dataclasses import replace
from pathlib import Path

from hyroads.controller.core.errors import ConfigError, HyroadsError
from hyroads.slices.change import ModelChange
from hyroads.slices.model import SliceModel
from hyroads.slices.server import state, tls
from hyroads.slices.server.control import Control
from hyroads.slices.server.http import MOST_HEAD, HttpServer
from hyroads.slices.server.settings import SlicerSettings, load
from hyroads.slices.server.slicer import Slicer
from hyroads.slices.server.switch_link import SwitchLink
from hyroads.slices.slicefile import document_of, parse

LOG = logging.getLogger("hyroads.slicer")

SAVE_AFTER_S = 0.05
SPARE_CONNECTIONS = 32
TLS_WITHIN_S = 5.0


def run(config: str, *, verbose: bool = False) -> int:
    """Serve until SIGINT or SIGTERM; errors of the settings are :class:`ConfigError`."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.DEBUG if verbose else logging.INFO, format="%(asctime)s %(message)s"
    )
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    settings = load(config)
    asyncio.run(Server(config, settings).serve())
    return 0


def _hash(model: SliceModel) -> str:
    return hashlib.sha256(json.dumps(document_of(model), sort_keys=True).encode()).hexdigest()


class Server:
    """The sockets, signals and the state file around one :class:`Slicer`."""

    def __init__(self, config: str, settings: SlicerSettings) -> None:
        self.config = config
        self.settings = settings
        self.saved = state.read(settings.state_file)
        self.changed_slices = False
        """Whether the slices are others than those of the file."""
        model = settings.model
        if self.saved.slices is not None and self.saved.file_hash == _hash(model):
            model = parse(self.saved.slices, settings.state_file or "")
            self.changed_slices = True
        elif self.saved.slices is not None:
            LOG.warning("the slices' file has changed: what was changed while running is dropped")
        self.slicer = Slicer(settings, model, self.saved, config)

    async def serve(self) -> None:
        """Until a signal."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ended.set)
        loop.add_signal_handler(signal.SIGHUP, lambda: self.slicer.start(self.reload()))
        context = None if self.settings.tls is None else tls.switch_side(self.settings.tls, self.config)
        tls.controller_side(self.settings.controllers_tls, self.config)
        listener = await self._listen(context)
        control = await self.open_control()
        saving = self.slicer.start(self._save_for_ever())
        self.slicer.start(self.slicer.count_for_ever())
        LOG.info(
            "slices: %s; switches at %s:%d", ", ".join(self.slicer.model.slices), self.settings.host, self.settings.port
        )
        await ended.wait()
        for each in (listener, control):
            if each is not None:
                each.close()
        self.slicer.close()
        with contextlib.suppress(asyncio.CancelledError):
            await saving
        self.save()

    async def _listen(self, context: ssl.SSLContext | None) -> asyncio.Server:
        within_s = None if context is None else TLS_WITHIN_S
        try:
            return await asyncio.get_running_loop().create_server(
                self._accept, self.settings.host, self.settings.port, ssl=context, ssl_handshake_timeout=within_s
            )
        except OSError as error:
            place = f"{self.settings.host}:{self.settings.port}"
            raise ConfigError(self.config, "listen.openflow", f"can't listen at {place}: {error.strerror}") from error

    async def open_control(self) -> asyncio.Server | None:
        """Listen on the control socket: who may open it is the operator, so nobody but the owner of the process may."""
        path = self.settings.control_socket
        if path is None:
            return None
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(Path(path).lstat().st_mode):
                Path(path).unlink()
        before = os.umask(0o177)
        try:
            return await asyncio.start_unix_server(HttpServer(Control(self)), path, limit=MOST_HEAD)
        except OSError as error:
            raise ConfigError(self.config, "listen.control", f"can't listen at {path}: {error.strerror}") from error
        finally:
            os.umask(before)

    def _accept(self) -> SwitchLink:
        self.slicer.connections += 1
        link = self.slicer.new_link()
        link.welcome = self.slicer.connections <= self.settings.most_switches + SPARE_CONNECTIONS
        return link

    # -- changes ------------------------------------------------------------------------------------------------------

    async def reload(self) -> None:
        """Read the slices of the settings again; a wrong file changes nothing."""
        try:
            change = await self.read_again()
        except HyroadsError as error:
            LOG.warning("reload: nothing changed: %s", error)
        else:
            LOG.info("reload: %s", ", ".join(sorted(change.names)) or "nothing changed")

    async def read_again(self) -> ModelChange:
        """The slices of the file, whatever was changed while running."""
        settings = load(self.config)
        change = await self.slicer.become(settings.model)
        self.settings = replace(self.settings, model=settings.model)
        self.changed_slices = False
        self.slicer.dirty.set()
        return change

    # -- the state file -----------------------------------------------------------------------------------------------

    async def _save_for_ever(self) -> None:
        while True:
            await self.slicer.dirty.wait()
            await asyncio.sleep(SAVE_AFTER_S)
            self.slicer.dirty.clear()
            text = self._text()
            await asyncio.to_thread(self._write, text)

    def save(self) -> None:
        """Write the state file now."""
        self._write(self._text())

    def _text(self) -> str:
        slices = document_of(self.slicer.model) if self.changed_slices else None
        saved = state.Saved(
            self.slicer.key, self.slicer.allocation, self.slicer.ids(), _hash(self.settings.model), slices
        )
        return state.encode(saved)

    def _write(self, text: str) -> None:
        if self.settings.state_file is None:
            return
        try:
            state.write(self.settings.state_file, text)
        except OSError as error:
            LOG.warning("%s: can't be written: %s", self.settings.state_file, error.strerror)
