"""Just enough HTTP/1.1 for the control socket: one request a connection, everything bounded."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote, urlsplit

from hyroads.controller.core.errors import ConfigError, HyroadsError
from hyroads.slices.errors import ConflictError

LOG = logging.getLogger("hyroads.slicer")

MOST_CONNECTIONS = 32
REQUEST_WITHIN_S, ANSWER_WITHIN_S = 10.0, 60.0
MOST_HEAD, _BODY = 1 << 14, 1 << 23


@dataclass(frozen=True, slots=True)
class Request:
    """Method, path in parts, and the document of the body (None if there is none)."""

    method: str
    path: tuple[str, ...]
    document: Any


class HttpError(HyroadsError):
    """An answer other than success."""

    def __init__(self, status: HTTPStatus, detail: str, place: str = "") -> None:
        self.status = status
        self.detail = detail
        self.place = place
        super().__init__(detail)

    def __reduce__(self) -> tuple[type[HttpError], tuple[HTTPStatus, str, str]]:
        """Pickle by the arguments of the constructor."""
        return type(self), (self.status, self.detail, self.place)


Handle = Callable[[Request], Awaitable[Any]]


class HttpServer:
    """``handle`` gives the document of the answer, or raises; None is 204."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._connections = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self._connections += 1
        try:
            if self._connections <= MOST_CONNECTIONS:
                status, document = await self._answer(reader)
                writer.write(_response(status, document))
                await asyncio.wait_for(writer.drain(), REQUEST_WITHIN_S)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass
        finally:
            self._connections -= 1
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[HTTPStatus, Any]:
        try:
            request = await asyncio.wait_for(_read(reader), REQUEST_WITHIN_S)
            document = await asyncio.wait_for(self._handle(request), ANSWER_WITHIN_S)
        except HyroadsError as error:
            return _problem(error)
        except TimeoutError:
            return _problem(HttpError(HTTPStatus.REQUEST_TIMEOUT, "not in time"))
        except Exception:
            LOG.exception("an error of the slicer's own")
            return _problem(HttpError(HTTPStatus.INTERNAL_SERVER_ERROR, "an error of the slicer's own: see its log"))
        return (HTTPStatus.NO_CONTENT if document is None else HTTPStatus.OK), document


def _problem(error: HyroadsError) -> tuple[HTTPStatus, Any]:
    """As in RFC 9457, with the place in the document that is wrong."""
    status, place, detail = HTTPStatus.UNPROCESSABLE_ENTITY, "", str(error)
    if isinstance(error, HttpError):
        status, place = error.status, error.place
    elif isinstance(error, ConfigError):
        place, detail = error.place, error.problem
    elif isinstance(error, ConflictError):
        status = HTTPStatus.CONFLICT
    document = {"title": status.phrase, "status": int(status), "detail": detail}
    return status, {**document, "place": place} if place else document


def _response(status: HTTPStatus, document: Any) -> bytes:
    body = b"" if document is None else json.dumps(document).encode() + b"\n"
    kind = "application/problem+json" if status >= HTTPStatus.BAD_REQUEST else "application/json"
    head = f"HTTP/1.1 {int(status)} {status.phrase}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return (head + "Connection: close\r\n\r\n").encode() + body


async def _read(reader: asyncio.StreamReader) -> Request:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.LimitOverrunError:
        raise HttpError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"expected at most {MOST_HEAD} bytes") from None
    first, *lines = head.split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[1].startswith("/"):
        raise HttpError(HTTPStatus.BAD_REQUEST, "expected a request line like GET /slices HTTP/1.1")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = headers.get("content-length", "0")
    if "transfer-encoding" in headers or not length.isascii() or not length.isdigit():
        raise HttpError(HTTPStatus.LENGTH_REQUIRED, "expected a Content-Length")
    if len(length) > len(str(_BODY)) or int(length) > _BODY:
        raise HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"expected at most {_BODY} bytes")
    body = await reader.readexactly(int(length))
    path = tuple(unquote(part) for part in urlsplit(words[1]).path.split("/") if part)
    return Request(words[0], path, _document(body))


def _document(body: bytes) -> Any:
    if not body:
        return None
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise HttpError(HTTPStatus.BAD_REQUEST, f"expected JSON: {error}") from error
