"""Requests of plugins and of SFNet's clients: the REST API's own, handed to its WSGI application inside the process.

One place decides who may do what, checks what is asked and says what is wrong: the REST API. Nobody outside can set the
identity that goes with such a request, because no header becomes a key of that name.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote_to_bytes

from hyroads.rest.contract import IDENTITY, PREFIX, Token

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
MAX_ANSWER = 16 * 1024 * 1024
NULL = b"null"

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Requests:
    """Sends requests to the REST API. ``use`` is called once it is there."""

    def __init__(self) -> None:
        self._application: Wsgi | None = None

    def use(self, application: Wsgi) -> None:
        """From now on requests are answered."""
        self._application = application

    def ask(
        self, who: Token, method: object, path: object, body: object = None, *, key: str | None = None
    ) -> tuple[int, bytes]:
        """Status and JSON (one line) of the answer to a request; ``path`` is what follows ``/api/v1``, ``key`` an
        idempotency key.
        """
        if self._application is None:
            return _problem(503, "the controller is starting")
        if method not in METHODS or not isinstance(path, str) or not path.startswith("/") or not path.isascii():
            return _problem(400, f"expected a method ({', '.join(METHODS)}) and a path that starts with /")
        if path.partition("?")[0].rstrip("/") == "/events":
            return _problem(400, "events come by themselves to those who subscribe")
        status = 500

        def started(line: str, _headers: object, _error: object = None) -> None:
            nonlocal status
            status = int(line.split(" ", 1)[0])

        given = _environment(who, str(method), path, b"" if body is None else json.dumps(body).encode())
        if key is not None:
            given["HTTP_IDEMPOTENCY_KEY"] = key
        chunks = self._application(given, started)
        try:
            text = _bounded(chunks)
        finally:
            close = getattr(chunks, "close", None)
            if close is not None:
                close()
        if text is None:
            return _problem(500, f"the answer has more than {MAX_ANSWER} bytes")
        # Line ends are white space in JSON, never part of its strings.
        return status, text.replace(b"\n", b" ").replace(b"\r", b" ").strip() or NULL


def _bounded(chunks: Iterable[bytes]) -> bytes | None:
    text = bytearray()
    for chunk in chunks:
        text += chunk
        if len(text) > MAX_ANSWER:
            return None
    return bytes(text)


def _problem(status: int, detail: str) -> tuple[int, bytes]:
    title = HTTPStatus(status).phrase
    return status, json.dumps({"type": "about:blank", "title": title, "status": status, "detail": detail}).encode()


def _environment(who: Token, method: str, path: str, body: bytes) -> dict[str, Any]:
    path, _, query = path.partition("?")
    return {
        IDENTITY: who,
        "REQUEST_METHOD": method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(PREFIX + path).decode("latin-1"),
        "RAW_URI": PREFIX + path,
        "QUERY_STRING": query,
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "0",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": "localhost",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": False,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }


def refusal(text: bytes) -> Mapping[str, Any]:
    """The problem document of an answer that is none."""
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    return document if isinstance(document, dict) else {}
