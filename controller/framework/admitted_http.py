"""A small HTTP server with a thread a connection, whose connections have places (``admitted``)."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from hyroads.controller.core.admission import Limits

from .admitted import AdmittedListener


class AdmittedHttpServer(ThreadingHTTPServer):
    """Listens at ``host`` and ``port``; a connection ends after ``limits.within_s`` seconds. OSError."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, host: str, port: int, handler: type[BaseHTTPRequestHandler], limits: Limits) -> None:
        super().__init__((host, port), handler, bind_and_activate=False)
        self.socket.close()
        self.socket = self._admitted = AdmittedListener(host, port, limits, lambda peer, why: None)
        self.server_address = self.socket.getsockname()
        self.server_port = self.server_address[1]

    def service_actions(self) -> None:
        """Now and then: end connections whose time is over."""
        self._admitted.places.sweep()

    def handle_error(self, _request: Any, _client_address: Any) -> None:
        """A connection that breaks is the other side's business."""
