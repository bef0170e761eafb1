"""HTTP/1.1 for a WSGI application beside the event loop: one request a connection, everything bounded.

h11 judges the heads of requests and frames the answers; the limits are ours. A request is read whole, within a size and
a time, before a thread answers it. An answer without a known length is a stream, whose pieces other threads make.
Threads know nothing of sockets: whoever sends or reads slowly costs no thread, but for streams, of which the
application allows a few.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from io import BytesIO
from typing import Any, cast
from urllib.parse import unquote_to_bytes

import h11

from hyroads.controller.framework.admitted import AdmittedListener
from hyroads.rest.contract import PLACE

MOST_CONNECTIONS = 96
"""At the Unix socket; at a port the admission of its listener decides."""
REQUEST_WITHIN_S, WRITE_WITHIN_S, END_WITHIN_S = 10.0, 10.0, 1.0
MOST_HEAD, MOST_TARGET, MOST_LINES = 1 << 14, 1 << 13, 100
WORKERS, MOST_STREAMS = 16, 32
_PROBLEM = "application/problem+json"
_UNCLEAR = re.compile(rb"(?is)(?<!\r)\n|\n[ \t]|\ncontent-length:(?:(?![ \t]*\d+[ \t]*\r)|.*\ncontent-length:)")
"""What two programs may read differently: line feeds alone, folded lines, a Content-Length that is not one number."""

Environment = dict[str, Any]
Application = Callable[[Environment, Callable[..., Any]], Iterable[bytes]]


class HttpServer:
    """Serves connections, with threads of its own; ``more`` is added to the environment of each request. ``listener``
    gives connections their places; None: a Unix socket.
    """

    def __init__(
        self,
        application: Application,
        most_body: int,
        more: Mapping[str, Any],
        listener: AdmittedListener | None = None,
    ) -> None:
        self._listener = listener
        self._application = application
        self._answers = ThreadPoolExecutor(WORKERS, "answer")
        self._streams = ThreadPoolExecutor(MOST_STREAMS, "stream")
        self._closed = False
        self._most_body = most_body
        self._more = more
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
        for task in list(self._serving):
            task.cancel()
        if self._serving:
            await asyncio.wait(self._serving)

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, until it ends or is cut (``ended``)."""
        task = cast(asyncio.Task[Any], asyncio.current_task())
        self._serving.add(task)
        # Whatever is written is waited for to its last byte: nothing is left to be sent after the time for it.
        writer.transport.set_write_buffer_limits(0)
        try:
            if self._listener is not None or len(self._serving) <= MOST_CONNECTIONS:
                await self._serve(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError):
            # Also cut: asyncio's own streams report a task that ends as cancelled with a traceback.
            writer.transport.abort()
        finally:
            self._serving.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h11.Connection(h11.SERVER, MOST_HEAD)
        try:
            environment = await asyncio.wait_for(_read(reader, connection, self._most_body), REQUEST_WITHIN_S)
        except h11.RemoteProtocolError as error:
            await _write(writer, h11.Connection(h11.SERVER), *_refusal(error))
            return
        if self._closed:
            return
        tls = writer.get_extra_info("ssl_object") is not None
        environment |= {**self._of_peer(writer), "wsgi.url_scheme": "https" if tls else "http", **self._more}
        loop = asyncio.get_running_loop()
        head, body = await loop.run_in_executor(self._answers, _ask, self._application, environment)
        if isinstance(body, bytes):
            await _write(writer, connection, head, h11.Data(data=body), h11.EndOfMessage())
            return
        pieces = iter(body)
        try:
            await _write(writer, connection, head)
            while not self._closed:
                piece = await loop.run_in_executor(self._streams, next, pieces, None)
                if piece is None:
                    await _write(writer, connection, h11.EndOfMessage())
                    break
                await _write(writer, connection, h11.Data(data=piece))
        finally:
            # When the process ends a thread may be busy with it.
            with contextlib.suppress(ValueError):
                _let_go(body)

    def _of_peer(self, writer: asyncio.StreamWriter) -> Environment:
        """The facts of the other end: its address, and its place, which becomes that of a token."""
        address = writer.get_extra_info("peername")
        place = self._listener.place_of(address) if self._listener is not None else None
        found = {"REMOTE_ADDR": address[0] if isinstance(address, tuple) else ""}
        return found if place is None else {**found, PLACE: place}


def _ask(application: Application, environment: Environment) -> tuple[h11.Response, bytes | Iterable[bytes]]:
    """In a thread: the head of the answer, and its body: whole if its length is known, or the pieces of a stream."""
    begun: list[h11.Response] = []

    def start(status: str, headers: list[tuple[str, str]], _error: Any = None) -> None:
        fields = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        fields.append((b"Connection", b"close"))
        begun.append(h11.Response(status_code=int(status[:3]), reason=status[4:], headers=fields))

    body = application(environment, start)
    head = begun[-1]
    if head.status_code not in {204, 304} and not any(name == b"content-length" for name, _ in head.headers):
        return head, body
    try:
        return head, b"".join(body)
    finally:
        _let_go(body)


def _let_go(body: Iterable[bytes]) -> None:
    """Tell the application that nobody needs the rest of its answer."""
    close = getattr(body, "close", None)
    if close is not None:
        close()


async def _write(writer: asyncio.StreamWriter, connection: h11.Connection, *events: h11.Event) -> None:
    writer.write(b"".join(connection.send(event) or b"" for event in events))
    await asyncio.wait_for(writer.drain(), WRITE_WITHIN_S)


# -- requests ---------------------------------------------------------------------------------------------------------


def _refused(status: HTTPStatus, detail: str) -> h11.RemoteProtocolError:
    return h11.RemoteProtocolError(detail, error_status_hint=status)


def _refusal(error: h11.RemoteProtocolError) -> tuple[h11.Event, ...]:
    """A problem document for a request that no application sees."""
    status = HTTPStatus(error.error_status_hint)
    document = {"type": "about:blank", "title": status.phrase, "status": int(status), "detail": str(error)}
    body = json.dumps(document).encode() + b"\n"
    headers = [("Content-Type", _PROBLEM), ("Content-Length", str(len(body))), ("Connection", "close")]
    head = h11.Response(status_code=status, reason=status.phrase, headers=headers)
    return head, h11.Data(data=body), h11.EndOfMessage()


async def _read(reader: asyncio.StreamReader, connection: h11.Connection, most_body: int) -> Environment:
    """The WSGI environment of the connection's one request. Raises :class:`h11.RemoteProtocolError`."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        if b"\r\n" in await reader.read(MOST_TARGET):
            raise _refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"expected at most {MOST_HEAD} bytes") from None
        raise _refused(HTTPStatus.REQUEST_URI_TOO_LONG, f"expected at most {MOST_TARGET} bytes") from None
    if _UNCLEAR.search(head):
        raise _refused(HTTPStatus.BAD_REQUEST, "expected unfolded header lines that end with CR LF, one Content-Length")
    connection.receive_data(head)
    request = connection.next_event()
    if not isinstance(request, h11.Request) or request.target[:1] != b"/" or request.http_version[:2] != b"1.":
        raise _refused(HTTPStatus.BAD_REQUEST, "expected a request line like GET /api/v1/slices HTTP/1.1")
    length = _body_length(request, most_body)
    return _environment(request, await reader.readexactly(length))


def _body_length(request: h11.Request, most_body: int) -> int:
    """How many bytes follow the head of a request; raises if it is not one that is answered."""
    if len(request.target) > MOST_TARGET:
        raise _refused(HTTPStatus.REQUEST_URI_TOO_LONG, f"expected at most {MOST_TARGET} bytes")
    names = [name for name, _ in request.headers]
    if len(names) > MOST_LINES:
        raise _refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"expected at most {MOST_LINES} header lines")
    if names.count(b"authorization") > 1:
        raise _refused(HTTPStatus.BAD_REQUEST, "expected one Authorization")
    if b"transfer-encoding" in names:
        # With both, two readers may not agree where the request ends.
        status = HTTPStatus.BAD_REQUEST if b"content-length" in names else HTTPStatus.LENGTH_REQUIRED
        raise _refused(status, "expected a Content-Length")
    length = int(dict(request.headers).get(b"content-length", b"0"))
    if length > most_body:
        raise _refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"expected at most {most_body} bytes")
    return length


def _environment(request: h11.Request, body: bytes) -> Environment:
    """What WSGI (PEP 3333) says of a request. A name with an underscore could pretend to be another and is left out."""
    fields: dict[str, str] = {}
    for name, value in request.headers:
        if b"_" not in name:
            key = name.decode("ascii").upper().replace("-", "_")
            key = key if key in {"CONTENT_LENGTH", "CONTENT_TYPE"} else f"HTTP_{key}"
            text = value.decode("latin-1")
            fields[key] = f"{fields[key]},{text}" if key in fields else text
    path, _, query = request.target.partition(b"?")
    return {
        **fields,
        "REQUEST_METHOD": request.method.decode("ascii"),
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
        "QUERY_STRING": query.decode("latin-1"),
        "REQUEST_URI": request.target.decode("latin-1"),
        "SERVER_PROTOCOL": f"HTTP/{request.http_version.decode('ascii')}",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "wsgi.version": (1, 0),
        "wsgi.input": BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
