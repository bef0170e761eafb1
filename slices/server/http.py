"""HTTP/1.1 for a WSGI application beside the event loop: one request a connection, everything bounded.

A request is read whole, with a limit for its size and its time, before a thread answers it. An answer without a known
length is a stream, whose pieces another thread makes. Threads know nothing of sockets: whoever sends or reads slowly
costs no thread, but for streams, of which the application allows a few.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from io import BytesIO
from typing import Any
from urllib.parse import unquote_to_bytes

from hyroads.controller.core.errors import HyroadsError

LOG = logging.getLogger("hyroads.slicer")

MOST_CONNECTIONS, MOST_OF_A_PEER = 96, 48
REQUEST_WITHIN_S, WRITE_WITHIN_S, END_WITHIN_S = 10.0, 10.0, 1.0
MOST_HEAD, MOST_TARGET = 1 << 14, 1 << 13
MOST_LINES = 100
WORKERS, MOST_STREAMS = 16, 32
_PROBLEM = "application/problem+json"
_END = object()

Environment = dict[str, Any]
Application = Callable[[Environment, Callable[..., Any]], Iterable[bytes]]


class HttpError(HyroadsError):
    """A request that no application sees."""

    def __init__(self, status: HTTPStatus, detail: str) -> None:
        self.status = status
        self.detail = detail
        super().__init__(detail)

    def __reduce__(self) -> tuple[type[HttpError], tuple[HTTPStatus, str]]:
        """Pickle by the arguments of the constructor."""
        return type(self), (self.status, self.detail)


class HttpServer:
    """Serves connections, with threads of its own; ``more`` is added to the environment of each request."""

    def __init__(self, application: Application, most_body: int, more: Mapping[str, Any] | None = None) -> None:
        self._application = application
        self._answers = ThreadPoolExecutor(WORKERS, "answer")
        self._streams = ThreadPoolExecutor(MOST_STREAMS, "stream")
        self._closed = False
        self._most_body = most_body
        self._more = dict(more or {})
        self._connections: Counter[str] = Counter()
        self._serving: set[asyncio.Task[Any]] = set()

    def close(self) -> None:
        """No more requests, and streams end with their next piece."""
        self._closed = True
        for each in (self._answers, self._streams):
            each.shutdown(wait=False, cancel_futures=True)

    async def ended(self) -> None:
        """After ``close``: until every connection is served to its end, or does not end in time and is cut."""
        if self._serving:
            await asyncio.wait(self._serving, timeout=END_WITHIN_S)
        for task in self._serving:
            task.cancel()
        if self._serving:
            await asyncio.wait(self._serving)

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, until it ends or is cut (``ended``)."""
        task = asyncio.current_task()
        if task is not None:
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
        address = writer.get_extra_info("peername")
        peer = address[0] if isinstance(address, tuple) else ""
        self._connections[peer] += 1
        try:
            if self._connections.total() <= MOST_CONNECTIONS and self._connections[peer] <= MOST_OF_A_PEER:
                await self._serve(reader, writer, peer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError):
            # Also cut: asyncio's own streams report a task that ends as cancelled with a traceback.
            pass
        finally:
            self._connections[peer] -= 1
            if not self._connections[peer]:
                del self._connections[peer]
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: str) -> None:
        try:
            environment = await asyncio.wait_for(_read(reader, self._most_body), REQUEST_WITHIN_S)
        except HttpError as error:
            await _write(writer, _refusal(error))
            return
        tls = writer.get_extra_info("ssl_object") is not None
        environment |= {"REMOTE_ADDR": peer, "wsgi.url_scheme": "https" if tls else "http"} | self._more
        loop = asyncio.get_running_loop()
        answer = _Answer(self._application, environment)
        try:
            if not self._closed:
                await _write(writer, await loop.run_in_executor(self._answers, answer.begin))
            while answer.streams and not self._closed:
                piece = await loop.run_in_executor(self._streams, answer.next)
                if piece is _END:
                    break
                await _write(writer, piece)
        finally:
            # When the process ends a thread may be busy with it.
            with contextlib.suppress(ValueError):
                answer.close()


class _Answer:
    """What the application answers to one request; its methods are called by one thread at a time."""

    def __init__(self, application: Application, environment: Environment) -> None:
        self._application = application
        self._environment = environment
        self._head = b""
        self._body: Iterable[bytes] = ()
        self._pieces: Iterator[bytes] = iter(())
        self.streams = False

    def begin(self) -> bytes:
        """The head, and the body if its length is known."""
        self._body = self._application(self._environment, self._start)
        if self.streams:
            self._pieces = iter(self._body)
            return self._head
        return self._head + b"".join(self._body)

    def next(self) -> Any:
        """The next piece of a stream, or its end."""
        return next(self._pieces, _END)

    def close(self) -> None:
        """Whatever the application keeps for the answer is let go."""
        close = getattr(self._body, "close", None)
        if close is not None:
            close()

    def _start(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> None:
        self.streams = not any(name.lower() == "content-length" for name, _ in headers)
        if status[:3] in {"204", "304"}:
            self.streams = False
        lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers), "Connection: close", "", ""]
        self._head = "\r\n".join(lines).encode("latin-1")


async def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await asyncio.wait_for(writer.drain(), WRITE_WITHIN_S)


def _refusal(error: HttpError) -> bytes:
    status = error.status
    document = {"type": "about:blank", "title": status.phrase, "status": int(status), "detail": error.detail}
    body = json.dumps(document).encode() + b"\n"
    head = f"HTTP/1.1 {int(status)} {status.phrase}\r\nContent-Type: {_PROBLEM}\r\nContent-Length: {len(body)}\r\n"
    return (head + "Connection: close\r\n\r\n").encode() + body


# -- requests ---------------------------------------------------------------------------------------------------------


async def _read(reader: asyncio.StreamReader, most_body: int) -> Environment:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.LimitOverrunError:
        if b"\r\n" in await reader.read(MOST_TARGET):
            raise HttpError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"expected at most {MOST_HEAD} bytes") from None
        raise HttpError(HTTPStatus.REQUEST_URI_TOO_LONG, f"expected at most {MOST_TARGET} bytes") from None
    first, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
    environment = _target(first)
    headers = _headers(lines)
    length = headers.get("CONTENT_LENGTH", "0")
    if "TRANSFER_ENCODING" in headers or not length.isascii() or not length.isdigit():
        raise HttpError(HTTPStatus.LENGTH_REQUIRED, "expected a Content-Length")
    if len(length) > len(str(most_body)) or int(length) > most_body:
        raise HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"expected at most {most_body} bytes")
    body = await reader.readexactly(int(length))
    plain: Environment = {name: headers.pop(name) for name in ("CONTENT_LENGTH", "CONTENT_TYPE") if name in headers}
    host, _, port = headers.get("HOST", "localhost").rpartition(":")
    return {
        **environment,
        **plain,
        **{f"HTTP_{name}": value for name, value in headers.items()},
        "SERVER_NAME": host or "localhost",
        "SERVER_PORT": port if port.isascii() and port.isdigit() else "80",
        "wsgi.version": (1, 0),
        "wsgi.input": BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }


def _target(line: str) -> Environment:
    words = line.split(" ")
    if len(words) != 3 or not words[1].startswith("/") or not words[2].startswith("HTTP/1.") or not words[0].isalpha():
        raise HttpError(HTTPStatus.BAD_REQUEST, "expected a request line like GET /api/v1/slices HTTP/1.1")
    if len(words[1]) > MOST_TARGET:
        raise HttpError(HTTPStatus.REQUEST_URI_TOO_LONG, f"expected at most {MOST_TARGET} bytes")
    path, _, query = words[1].partition("?")
    return {
        "REQUEST_METHOD": words[0],
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(path.encode("latin-1")).decode("latin-1"),
        "QUERY_STRING": query,
        "REQUEST_URI": words[1],
        "SERVER_PROTOCOL": words[2],
    }


def _headers(lines: list[str]) -> dict[str, str]:
    """By their names in the environment; a name with an underscore could pretend to be another and is left out."""
    if len(lines) > MOST_LINES:
        raise HttpError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"expected at most {MOST_LINES} header lines")
    found: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise HttpError(HTTPStatus.BAD_REQUEST, "expected header lines like Name: value")
        key = name.upper().replace("-", "_")
        if "_" in name:
            continue
        if key in found and key in {"CONTENT_LENGTH", "HOST", "AUTHORIZATION"}:
            raise HttpError(HTTPStatus.BAD_REQUEST, f"expected one {name}")
        found[key] = f"{found[key]},{value.strip()}" if key in found else value.strip()
    return found
