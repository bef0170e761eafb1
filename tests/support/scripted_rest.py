"""Servers that answer each request with the next of some acts, and remember what they were asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Act = Callable[[BaseHTTPRequestHandler], None]


class Server:
    """Answers with the next of some acts; remembers what it was asked."""

    def __init__(self, *acts: Act) -> None:
        self.acts = list(acts)
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}"


@contextmanager
def serving(*acts: Act) -> Iterator[Server]:
    server = Server(*acts)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            server.asked.append((self.command, self.path, dict(self.headers), body))
            server.acts.pop(0)(self)

        do_GET = do_POST = do_DELETE = do_PATCH = _any

        def log_message(self, *_: object) -> None:
            pass

    server.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.http.serve_forever, args=(0.01,), daemon=True)  # type: ignore[attr-defined]
    thread.start()
    try:
        yield server
    finally:
        server.http.shutdown()  # type: ignore[attr-defined]
        server.http.server_close()  # type: ignore[attr-defined]


def says(status: int, document: Any = None, kind: str = "application/json", **headers: str) -> Act:
    def act(handler: BaseHTTPRequestHandler) -> None:
        text = b"" if document is None else json.dumps(document).encode() if kind.endswith("json") else document
        handler.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(text)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(text)

    return act


def hangs_up(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True
    handler.connection.close()


def problem(status: int, **more: Any) -> Act:
    return says(status, {"detail": "no", "status": status, **more}, "application/problem+json")
