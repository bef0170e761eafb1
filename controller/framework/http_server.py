"""The WSGI server of the REST API: eventlet's, with our own rules of who gets a place and which requests are taken."""

from __future__ import annotations

import json
import logging
import ssl
from collections.abc import Callable
from http import HTTPStatus
from importlib import import_module
from typing import Any

from hyroads.rest.contract import PLACE

from .connections import Connections
from .places import Place
from .request_framing import refusal
from .tls_socket import TlsSocket

_wsgi = import_module("eventlet.wsgi")
_HttpBase: Any = _wsgi.HttpProtocol
SILENT_S = 10


class _Remembering:
    """The lines that are read, as they are."""

    def __init__(self, file: Any, lines: list[bytes]) -> None:
        self._file = file
        self._lines = lines

    def readline(self, size: int = -1) -> bytes:
        """The next line."""
        line: bytes = self._file.readline(size)
        self._lines.append(line)
        return line


class _HttpProtocol(_HttpBase):  # type: ignore[misc]
    """Refuses with a problem document, and ends the connection: what follows may be anything."""

    rfile: Any
    server: Any
    conn_state: Any

    def parse_request(self) -> bool:
        lines: list[bytes] = []
        self.rfile = _Remembering(self.rfile, lines)
        if not super().parse_request():
            return False
        refused = refusal(self.raw_requestline, lines)
        if refused is not None:
            self.send_error(*refused)
        return refused is None

    def get_environ(self) -> dict[str, Any]:
        """That of the request, with the place of its connection."""
        environ: dict[str, Any] = super().get_environ()
        return {**environ, PLACE: self.conn_state[3]}

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        status = HTTPStatus(code)
        told = {"type": "about:blank", "title": status.phrase, "status": int(status), "detail": message or ""}
        body = json.dumps(told).encode() + b"\n"
        head = f"HTTP/1.1 {int(status)} {status.phrase}\r\nContent-Type: application/problem+json\r\n"
        self.wfile.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        self.close_connection = 1

    def log_message(self, *_: object) -> None:
        """Strangers can't fill the disk with what they send."""


def serve_wsgi(
    listener: Any,
    application: Callable[..., Any],
    log: logging.Logger,
    connections: Connections,
    context: ssl.SSLContext | None = None,
) -> None:
    """Serve a WSGI application for ever in the calling green thread, over TLS with a ``context``. Whoever may go on
    after the head of a request has to be told to the connection's place (:data:`PLACE`): others end when their time is
    over.
    """
    # What an application gives goes out at once: events must not wait for 16 KiB of them.
    server = _wsgi.Server(
        listener,
        listener.getsockname(),
        application,
        log=log,
        log_output=False,
        debug=False,
        protocol=_HttpProtocol,
        socket_timeout=SILENT_S,
        minimum_chunk_size=1,
        max_http_version="HTTP/1.1",
    )

    def serve(connection: Any, place: Place) -> None:
        connection.settimeout(SILENT_S)
        address, _, port = place.peer.rpartition(":")
        try:
            if context is not None:
                connection = TlsSocket(connection, context)
                connection.handshake(SILENT_S)
            server.process_request([(address, int(port)), connection, _wsgi.STATE_IDLE, place])
        except OSError as error:
            log.debug("%s: %s", place.peer, error)

    connections.serve(listener, serve)
