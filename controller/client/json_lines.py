"""JSON objects as lines: reading them within bounds, a server for the daemons' own Unix sockets, and what asks it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from hyroads.controller.core import strict_json
from hyroads.controller.core.errors import HyroadsError

Document = dict[str, Any]
MAX_LINE = 4 << 20
"""Of our own programs: a status of thousands of flows."""
MAX_CONNECTIONS = 16
ASK_WITHIN_S = 10.0


class LineError(HyroadsError):
    """What came is not a line with a JSON object, or is an error that the other side tells."""


def encode(document: Mapping[str, Any]) -> bytes:
    """One line."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def decode(line: bytes) -> Document:
    """The object of a line; :class:`LineError`."""
    try:
        message = strict_json.parse(line)
    except strict_json.JsonError as error:
        raise LineError(str(error)) from error
    if not isinstance(message, dict):
        raise LineError("expected a JSON object in a line")
    return message


async def read(reader: asyncio.StreamReader) -> Document | None:
    """The next object, None at the end; :class:`LineError` also if a line is longer than the reader's limit."""
    try:
        line = await reader.readline()
    except ValueError as error:
        raise LineError("a line is too long") from error
    if not line.endswith(b"\n"):
        return None
    return decode(line)


Answer = Callable[[Document], Awaitable[Document]]


class ControlServer:
    """A Unix socket that only its owner may use: a request a line, an answer a line. What ``answer`` raises as
    :class:`HyroadsError` is told as ``{"type": "error", "message": ...}``.
    """

    def __init__(self, path: Path, answer: Answer) -> None:
        self._path, self._answer = path, answer
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen; a socket that a killed process left is replaced."""
        self._path.unlink(missing_ok=True)
        old = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(self._accept, self._path, limit=1 << 16)
        finally:
            os.umask(old)

    def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)
        for task in self._open:
            task.cancel()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= MAX_CONNECTIONS:
            writer.close()
            return
        task = asyncio.create_task(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await self._request(reader, writer)) is not None:
                try:
                    answer = await self._answer(request)
                except HyroadsError as error:
                    answer = {"type": "error", "message": str(error)}
                writer.write(encode(answer))
                await writer.drain()
        except OSError:
            return
        finally:
            writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Document | None:
        try:
            return await read(reader)
        except LineError as error:
            writer.write(encode({"type": "error", "message": str(error)}))
            return None


def ask(path: Path, request: Mapping[str, Any], what: str) -> Document:
    """The answer of the daemon behind a socket; :class:`LineError` if it refuses, or if there is none: ``what`` is the
    command that would start it.
    """
    answer = bytearray()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ASK_WITHIN_S)
        try:
            connection.connect(str(path))
            connection.sendall(encode(request))
            while not answer.endswith(b"\n") and len(answer) <= MAX_LINE and (chunk := connection.recv(1 << 16)):
                answer += chunk
        except TimeoutError as error:
            raise LineError(f"{path}: no answer within {ASK_WITHIN_S:g} s") from error
        except OSError as error:
            raise LineError(f"{path}: {error.strerror} (is '{what}' running?)") from error
    if not answer.endswith(b"\n"):
        raise LineError(f"{path}: the daemon ended without an answer")
    message = decode(bytes(answer))
    if message.get("type") == "error":
        raise LineError(str(message.get("message")))
    return message


async def close(writer: asyncio.StreamWriter) -> None:
    """Close a connection and wait for its end, however it ends."""
    writer.close()
    with contextlib.suppress(OSError, asyncio.TimeoutError):
        await asyncio.wait_for(writer.wait_closed(), 1.0)
