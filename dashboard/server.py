"""The process: reader, pages and access around one web server."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partialmethod
from pathlib import Path
from typing import Any

from hyroads.controller.core.admission import Limits
from hyroads.controller.core.checking import TlsFiles
from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.files.tls import server_side
from hyroads.controller.framework.admitted import AdmittedListener

from .access import Guard, Session, Sessions, check_listen
from .reader import Reader, Source, identity
from .worker import Worker

WATCH_S = 15.0
LIMITS = Limits(strangers=512, known=256, within_s=15.0, each=64)
"""A browser opens about ten connections for a page."""
STOP_S = 3
"""How long requests may take that are under way when the dashboard is told to end."""


@dataclass(frozen=True)
class DashboardOptions:
    """Where the controller is, where pages are served, and with which files; ``links`` are shown to other programs."""

    source: Source
    host: str
    port: int
    certificate: str | None = None
    key: str | None = None
    links: Mapping[str, str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """What to type into a browser."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.certificate is None else 'https'}://{host}:{self.port}/"


class Members:
    """Who may look: everybody on this machine with the dashboard's own token, or who has logged in.

    What a token may do is asked of the controller again and again: one that it no longer takes ends its session.
    """

    def __init__(self, source: Source, *, login: bool) -> None:
        self.source, self.login = source, login
        self.sessions = Sessions()
        # Until the controller has said who we are nobody may change anything.
        self.own = Session("", "", "viewer", source.token, 0.0, 0.0)

    async def identify(self, token: str) -> Mapping[str, Any]:
        """Name and role of a token."""
        return await asyncio.to_thread(identity, self.source, token)

    async def watch(self) -> None:
        """Ask for ever."""
        while True:
            known = False
            for session in self.sessions.all() if self.login else [self.own]:
                known = await self._check(session)
            await asyncio.sleep(WATCH_S if self.login or known else 1.0)

    async def _check(self, session: Session) -> bool:
        try:
            who = await asyncio.to_thread(identity, self.source, session.token)
        except HyroadsError as error:
            # A controller that is away takes nobody's rights; one that says no does.
            if getattr(error, "status", None) in (401, 403):
                session.role = "viewer"
                self.sessions.end(session.id)
            return False
        session.role = str(who["role"])
        if not self.login:
            session.name = str(who["name"] or "")
        elif not who["name"]:
            self.sessions.end(session.id)
        return True


def serve(options: DashboardOptions) -> int:
    """Run until told to end; returns the exit status. HyroadsError if it can't begin."""
    # Says what is wrong with the address.
    options.source.client(None)
    check_listen(options.host, options.certificate, options.key, options.source.token, options.source.url)
    if options.certificate is not None and options.key is not None:
        server_side(TlsFiles(certificate=options.certificate, key=options.key, ca=None), "--cert, --key")
    if options.source.ca is not None:
        _check_ca(options.source.ca)
    listener = _listen(options.host, options.port)
    # NiceGUI would make a folder where we are as soon as it has something to keep.
    with tempfile.TemporaryDirectory(prefix="hyroads-dashboard-") as folder:
        os.environ["NICEGUI_STORAGE_PATH"] = folder
        _run(options, listener)
    return 0


def _run(options: DashboardOptions, listener: AdmittedListener) -> None:
    try:
        from nicegui import app, ui
        from nicegui.server import Server
    except ImportError as error:
        raise HyroadsError(f"{error.name}: not installed: pip install 'hyroads[dashboard]'") from error
    from .pages import pages
    from .pages.frame import register

    members = Members(options.source, login=options.certificate is not None)
    reader, worker = Reader(options.source), Worker()
    menu = pages()
    for page in menu:
        register(page, menu, reader, worker, options.links)
    tasks: list[asyncio.Task[None]] = []

    def begin() -> None:
        tasks.extend(
            asyncio.create_task(work)
            for work in (reader.run(), members.watch(), _announce(options), listener.sweep_for_ever())
        )

    async def end() -> None:
        worker.stop()
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    app.on_startup(begin)
    app.on_shutdown(end)
    app.add_middleware(
        Guard,
        sessions=members.sessions,
        clock=time.monotonic,
        local=None if members.login else lambda: members.own,
        identify=members.identify,
        admitted=listener.authenticated,
    )
    # NiceGUI gives its web server no socket by itself.
    Server.run = partialmethod(Server.run, sockets=[listener])  # type: ignore[assignment,method-assign]
    ui.run(
        host=options.host,
        port=options.port,
        title="HyRoads",
        language="en-US",
        dark=False,
        reload=False,
        show=False,
        show_welcome_message=False,
        tailwind=False,
        message_history_length=100,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
        timeout_graceful_shutdown=STOP_S,
        # Another event loop would accept connections past the listener, and headers name other peers than it knows.
        loop="asyncio",
        proxy_headers=False,
        server_header=False,
    )


async def _announce(options: DashboardOptions) -> None:
    """Say the address once it answers: pages begin before the socket listens."""
    while True:
        with suppress(OSError):
            _, writer = await asyncio.open_connection(options.host, options.port)
            writer.close()
            break
        await asyncio.sleep(0.02)
    print(f"hyroads dashboard: {options.address}", file=sys.stderr, flush=True)


def _listen(host: str, port: int) -> AdmittedListener:
    """An address that is in use is said in one line, before anything is loaded."""
    try:
        return AdmittedListener(host, port, LIMITS, lambda peer, why: None)
    except OSError as error:
        raise HyroadsError(f"--listen {host} --port {port}: {error.strerror or error}") from error


def _check_ca(file: str) -> None:
    try:
        Path(file).read_bytes()
        ssl.create_default_context(cafile=file)
    except (OSError, ssl.SSLError) as error:
        raise HyroadsError(f"--ca {file}: expected PEM certificates: {error.strerror or error}") from error
