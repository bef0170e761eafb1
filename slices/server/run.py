"""Starts and ends the slicer."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import signal
import ssl
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from hyroads.controller.core.errors import ConfigError, HyroadsError
from hyroads.controller.files.state import Document, StateFile
from hyroads.controller.files.tls import client_side, server_side
from hyroads.controller.framework.service_manager import ServiceManager
from hyroads.slices.core.change import difference_of
from hyroads.slices.core.model import SliceModel
from hyroads.slices.core.opt_in import Dropped, documents, read_documents, requests_of, seated
from hyroads.slices.core.slicefile import document_of, parse
from hyroads.slices.native.relay import Relay, load_relay

from . import state
from .settings import SlicerSettings, load
from .slicer import Outcome, Slicer
from .switch_port import SwitchPort

LOG = logging.getLogger("hyroads.slicer")

SAVE_AFTER_S = 0.05
RETRY_FIRST_S, RETRY_MOST_S = 0.5, 30.0


def run(config: str, *, verbose: bool = False) -> int:
    """Serve until SIGINT or SIGTERM; errors of the settings are :class:`ConfigError`."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.DEBUG if verbose else logging.INFO, format="%(asctime)s %(message)s"
    )
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    settings = load(config)
    relay = load_relay()
    with asyncio.Runner(loop_factory=partial(_loop, relay)) as runner:
        runner.run(_until_signal(Server(config, settings, relay)))
    return 0


def _loop(relay: Relay | None) -> asyncio.AbstractEventLoop:
    """A loop that waits in the fast path, if there is one."""
    loop = asyncio.SelectorEventLoop(relay)
    if relay is not None:
        relay.soon = loop.call_soon
    return loop


async def _until_signal(server: Server) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    loop.add_signal_handler(signal.SIGHUP, lambda: server.slicer.start(server.reload()))
    manager = ServiceManager()
    server.slicer.start(manager.watch())
    await server.serve(ended, lambda: manager.ready(f"slices: {', '.join(server.slicer.model.slices)}"[:200]))
    manager.stopping()


def _hash(model: SliceModel) -> str:
    return hashlib.sha256(json.dumps(document_of(model), sort_keys=True).encode()).hexdigest()


def _tell(dropped: Iterable[Dropped]) -> None:
    for each in dropped:
        LOG.warning("slice %s: user %s is taken out: %s", each.slice, each.user, each.reason)


class Server:
    """The sockets, signals and the state file around one :class:`Slicer`."""

    def __init__(self, config: str, settings: SlicerSettings, relay: Relay | None = None) -> None:
        self.config = config
        self.settings = settings
        self._file: StateFile | None = None
        self._failure: str | None = None
        self.saved = state.Saved()
        if settings.state_file is not None:
            self._file, self.saved, broken = state.read(settings.state_file)
            for each in broken:
                LOG.warning("state file: %s", each)
        model = settings.model
        if self.saved.slices is not None and self.saved.file_hash == _hash(model):
            model = parse(self.saved.slices, settings.state_file or "")
        elif self.saved.slices is not None:
            LOG.warning("the slices' file has changed: what was changed while running is dropped")
        opt_ins = read_documents(self.saved.opt_ins, settings.state_file or "")
        model, dropped = seated(model, opt_ins, settings.users)
        _tell(dropped)
        self.slicer = Slicer(settings, model, self.saved, config, relay)

    async def serve(self, ended: asyncio.Event, ready: Callable[[], object] = lambda: None) -> None:
        """Until it is over; ``ready`` is called when it listens everywhere."""
        context = None if self.settings.tls is None else server_side(self.settings.tls, self.config)
        client_side(self.settings.controllers_tls, self.config, "controllers_tls")
        web: Web | None = None
        if self.settings.control_socket or self.settings.rest:
            # Only then is Flask needed.
            from .web import Web

            web = Web(self.slicer, self.settings, self.config, self.read_again)
        listener = self._listen(context)
        if web is not None:
            await web.listen()
        saving = self.slicer.start(self._save_for_ever())
        self.slicer.start(self.slicer.count_for_ever())
        self.slicer.start(self.slicer.tell_refusals_for_ever())
        place = self.settings.openflow
        LOG.info("slices: %s; switches at %s:%d", ", ".join(self.slicer.model.slices), place.host, place.port)
        ready()
        await ended.wait()
        listener.close()
        if web is not None:
            web.close()
        self.slicer.close()
        if web is not None:
            await web.ended()
        with contextlib.suppress(asyncio.CancelledError):
            await saving
        self._write(self._sections())

    def _listen(self, context: ssl.SSLContext | None) -> SwitchPort:
        at, port = self.settings.openflow, SwitchPort(self.slicer, context)
        try:
            port.listen(at)
        except OSError as error:
            place = f"{at.host}:{at.port}"
            raise ConfigError(self.config, "listen.openflow", f"can't listen at {place}: {error.strerror}") from error
        return port

    # -- changes ------------------------------------------------------------------------------------------------------

    async def reload(self) -> None:
        """Read the slices of the settings again; a wrong file changes nothing."""
        try:
            outcome = await self.read_again()
        except HyroadsError as error:
            LOG.warning("reload: nothing changed: %s", error)
        else:
            late = f"; not confirmed by {', '.join(outcome.pending)}" if outcome.pending else ""
            LOG.info("reload: %s%s", ", ".join(sorted(outcome.change.names)) or "nothing changed", late)

    async def read_again(self) -> Outcome:
        """The slices and users of the files, whatever was changed while running; who still may stays in a slice."""
        settings, now = load(self.config), self.slicer.model
        model, dropped = seated(settings.model, requests_of(now), settings.users, now)
        outcome = await self.slicer.become(model, users=settings.users)
        _tell(dropped)
        self.settings = replace(self.settings, model=settings.model, users=settings.users)
        self.slicer.use_revoked(settings.revoked)
        self.slicer.dirty.set()
        return outcome

    # -- the state file -----------------------------------------------------------------------------------------------

    async def _save_for_ever(self) -> None:
        pause_s = SAVE_AFTER_S
        while True:
            await self.slicer.dirty.wait()
            await asyncio.sleep(pause_s)
            self.slicer.dirty.clear()
            if await asyncio.to_thread(self._write, self._sections()):
                pause_s = SAVE_AFTER_S
            else:
                self.slicer.dirty.set()
                pause_s = min(max(2 * pause_s, RETRY_FIRST_S), RETRY_MOST_S)

    def _sections(self) -> Document:
        model = self.slicer.model
        slices = document_of(model) if difference_of(self.settings.model, model.declared) else None
        saved = state.Saved(
            self.slicer.key,
            self.slicer.allocation,
            self.slicer.ids(),
            _hash(self.settings.model),
            slices,
            tuple(documents(model)),
        )
        return state.encode(saved)

    def _write(self, sections: Document) -> bool:
        """Whether the file is written; once is said that it can't be, and that it can again."""
        if self._file is None:
            return True
        try:
            self._file.save(sections)
        except OSError as error:
            if self._failure != error.strerror:
                self._failure = error.strerror
                LOG.warning("%s: can't be written, it is tried again: %s", self.settings.state_file, error.strerror)
            return False
        if self._failure is not None:
            self._failure = None
            LOG.info("%s: is written again", self.settings.state_file)
        return True
