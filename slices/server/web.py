"""The slicer's REST API: the controller's frame (``rest.api``) on the slicer, for the control socket and for TCP."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
import stat
import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from hyroads.controller import version
from hyroads.controller.core.admission import Limits
from hyroads.controller.core.checking import Endpoint
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.token_bucket import Limit, LimitedReports, TokenBucket
from hyroads.controller.files.tls import certificate_ends, server_side
from hyroads.controller.framework.admitted import BACKLOG, AdmittedListener
from hyroads.rest import events
from hyroads.rest.api import create_app
from hyroads.rest.contract import IDENTITY, Token
from hyroads.rest.metrics import Exposition, RequestTimes, certificates
from hyroads.rest.owners import principal
from hyroads.rest.slices import blueprints

from .http import MOST_HEAD, MOST_STREAMS, REQUEST_WITHIN_S, HttpServer
from .service import SlicerService
from .settings import SlicerSettings
from .slicer import Outcome, Slicer

LOG = logging.getLogger("hyroads.slicer")

OPERATOR = Token("operator", "", "admin")
"""Whoever may open the control socket."""
MOST_BODY, MOST_BODY_OF_OTHERS = 1 << 23, 1 << 21
TLS_WITHIN_S = 5.0
REST_LIMITS = Limits(strangers=512, known=128, within_s=TLS_WITHIN_S + REQUEST_WITHIN_S, each=64)
_TOLD_PER_S, _TOLD_AT_ONCE = 2.0, 40


def _tell_ended(peer: str, why: str) -> None:
    LOG.warning("REST: %s: %s", peer, why)


class Web:
    """The application and its listeners."""

    def __init__(
        self,
        slicer: Slicer,
        settings: SlicerSettings,
        document: str,
        reload: Callable[[], Coroutine[Any, Any, Outcome]],
    ) -> None:
        self._settings = settings
        self._document = document
        self._slicer = slicer
        self._listeners: list[tuple[asyncio.Server, HttpServer]] = []
        """Each with threads of its own: however many ask over TCP, the operator is answered."""
        service = SlicerService(slicer, asyncio.get_running_loop(), reload, settings.owner_controllers)
        limits = settings.api_limits
        listeners = min(limits.listeners, MOST_STREAMS)
        requests = RequestTimes()
        of_settings = {name: getattr(settings, name) for name in ("tls", "controllers_tls", "rest_tls")}
        ends = partial(certificates, certificate_ends(of_settings))
        exposition = Exposition("slicer", version(), [lambda: service.metrics(principal()), ends], requests)
        self._application = create_app(
            None,
            [Token(each.name, each.token, each.role) for each in settings.api_tokens],
            title="HyRoads slicer",
            resources=[
                *blueprints(service),
                events.blueprint(
                    slicer.events, max_listeners=listeners, visible=lambda: service.visible_to(principal())
                ),
            ],
            find=service.find,
            exclusive=threading.Lock(),
            limit=Limit(limits.requests_per_s, limits.burst),
            max_body=MOST_BODY,
            version=version(),
            metrics=exposition.render,
            requests=requests,
            on_defect=lambda where, error: LOG.error("an error of the slicer's own in %s", where, exc_info=error),
        )

    async def listen(self) -> None:
        """Listen wherever the settings say."""
        if self._settings.control_socket is not None:
            await self._listen_at_socket(self._settings.control_socket)
        if self._settings.rest is not None:
            await self._listen_at_port(self._settings.rest)

    async def _listen_at_socket(self, path: str) -> None:
        """Who may open the control socket is the operator, so nobody but the owner of the process may."""
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(Path(path).lstat().st_mode):
                Path(path).unlink()
        serve = HttpServer(self._application, MOST_BODY, {IDENTITY: OPERATOR})
        before = os.umask(0o177)
        try:
            self._listeners.append((await asyncio.start_unix_server(serve, path, limit=MOST_HEAD), serve))
        except OSError as error:
            raise ConfigError(self._document, "listen.control", f"can't listen at {path}: {error.strerror}") from error
        finally:
            os.umask(before)

    async def _listen_at_port(self, place: Endpoint) -> None:
        files = self._settings.rest_tls
        context: ssl.SSLContext | None = None if files is None else server_side(files, self._document, "rest_tls")
        within_s = None if context is None else TLS_WITHIN_S
        told = LimitedReports(_tell_ended, time.monotonic, TokenBucket(_TOLD_PER_S, _TOLD_AT_ONCE))
        try:
            admitted = AdmittedListener(place.host, place.port, REST_LIMITS, told)
        except OSError as error:
            at = f"{place.host}:{place.port}"
            raise ConfigError(self._document, "listen.rest", f"can't listen at {at}: {error.strerror}") from error
        serve = HttpServer(self._application, MOST_BODY_OF_OTHERS, {}, admitted)
        listener = await asyncio.start_server(
            serve, sock=admitted, limit=MOST_HEAD, ssl=context, ssl_handshake_timeout=within_s, backlog=BACKLOG
        )
        self._slicer.start(admitted.sweep_for_ever())
        self._listeners.append((listener, serve))
        LOG.info("REST at %s:%d%s", place.host, place.port, "" if context is None else " (TLS)")

    def close(self) -> None:
        """Nobody new, and nobody waits for events any more."""
        for listener, server in self._listeners:
            listener.close()
            server.close()
        self._slicer.events.close()

    async def ended(self) -> None:
        """After ``close``: until nobody is served any more."""
        await asyncio.gather(*(server.ended() for _, server in self._listeners))
