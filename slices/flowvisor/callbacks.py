"""Events of a FlowVisor: it posts JSON-RPC over plain HTTP to an address that it is told of.

Anyone who reaches that address could pretend to be FlowVisor, so it is on loopback unless the caller says otherwise,
and every registration has a random cookie that each event must carry.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from secrets import token_hex
from typing import Any

from hyroads.controller.core import strict_json
from hyroads.controller.core.strict_json import JsonError
from hyroads.slices.flowvisor.apply import Connection
from hyroads.slices.flowvisor.entries import FlowVisorError

MAX_BODY = 64 * 1024
TIMEOUT_S = 5.0
METHOD = "hyroads-event"
KINDS = ("GENERAL", "DEVICE_CONNECTED", "SLICE_CONNECTED", "SLICE_DISCONNECTED")


@dataclass(frozen=True)
class Event:
    """Something happened; ``about`` is what FlowVisor says of it."""

    kind: str
    about: Any


@dataclass
class Events:
    """Receives events in the thread that calls :meth:`serve`; ``on_event`` is called for each."""

    on_event: Callable[[Event], None]
    host: str = "127.0.0.1"
    port: int = 0
    _cookies: dict[str, str] = field(default_factory=lambda: {token_hex(16): kind for kind in KINDS})

    def __post_init__(self) -> None:
        try:
            self._server = HTTPServer((self.host, self.port), self._handler())
        except OSError as error:
            raise FlowVisorError(f"events: can't listen on {self.host}:{self.port}: {error.strerror}") from error
        self.url = f"http://{self.host}:{self._server.server_address[1]}/"

    def register(self, connection: Connection) -> None:
        """Tell a FlowVisor where to post."""
        for cookie, kind in self._cookies.items():
            connection.call("register-event-callback", self._registration(cookie, kind))

    def unregister(self, connection: Connection) -> None:
        """Tell it to stop."""
        for cookie, kind in self._cookies.items():
            connection.call("unregister-event-callback", self._registration(cookie, kind))

    def serve(self) -> None:
        """Receives until :meth:`close`."""
        self._server.serve_forever(poll_interval=0.1)

    def close(self) -> None:
        """Ends :meth:`serve`, from another thread, and closes the socket."""
        self._server.shutdown()
        self._server.server_close()

    def _registration(self, cookie: str, kind: str) -> dict[str, str]:
        return {"url": self.url, "method": METHOD, "event-type": kind, "cookie": cookie}

    def take(self, body: bytes) -> bool:
        """One posted body; False if it is none of ours."""
        try:
            document = strict_json.parse(body)
        except JsonError:
            return False
        parameters = document.get("params") if isinstance(document, dict) else None
        if not isinstance(parameters, dict) or document.get("method") != METHOD:
            return False
        given = str(parameters.get("cookie", "")).encode()
        kinds = [kind for cookie, kind in self._cookies.items() if hmac.compare_digest(cookie.encode(), given)]
        if not kinds:
            return False
        self.on_event(Event(kinds[0], {key: value for key, value in parameters.items() if key != "cookie"}))
        return True

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        events = self

        class Handler(BaseHTTPRequestHandler):
            timeout = TIMEOUT_S

            def do_POST(self) -> None:
                """One event."""
                length = self.headers.get("Content-Length", "")
                if not (length.isascii() and length.isdigit()) or len(length) > 9 or int(length) > MAX_BODY:
                    self.send_error(413)
                    return
                taken = events.take(self.rfile.read(int(length)))
                self.send_response(200 if taken else 403)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: Any) -> None:
                """Events are told by ``on_event``."""

        return Handler
