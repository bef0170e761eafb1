"""Heads of requests to the proxy: read strictly, since what two programs read differently is how requests are smuggled.

h11 parses; what it lets pass for the sake of old programs, and what a proxy may not pass on, is refused here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import h11

from .http1 import Headers, Origin, Url, parse_url
from .interfaces import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_BYTES = 32 * 1024
_BARE = re.compile(rb"(?<!\r)\n|\r(?!\n)|\0")
_FOLDED = re.compile(rb"\r\n[ \t]")
_AUTHORITY = re.compile(rb"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253}):([0-9]{1,5})")
_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    b"upgrade content-length host expect".split()
)


class RefusedError(Exception):
    """A request that is answered with an error; the text says why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


@dataclass(frozen=True, slots=True)
class Head:
    """A request. ``url`` is None for CONNECT, where only ``origin`` counts. ``headers`` are those to pass on: no
    hop-by-hop ones, no Host. ``length`` is that of the body (0: none), None if it is chunked.
    """

    method: bytes
    origin: Origin
    url: Url | None
    headers: Headers
    length: int | None
    stays: bool
    waits: bool
    credentials: bytes | None

    @property
    def has_body(self) -> bool:
        """Whether a body follows."""
        return self.length != 0

    def has(self, name: bytes) -> bool:
        """Whether a header is given."""
        return any(key == name for key, _ in self.headers)


def end_of_head(data: bytes | bytearray) -> int:
    """Where the head ends, the empty line included; 0 if it is not all there. Raises :class:`RefusedError`."""
    end = data.find(b"\r\n\r\n") + 4
    head = data[: end if end > 3 else len(data)]
    bare = _BARE.search(head)
    # A CR that is the last byte so far may yet be followed by its LF.
    if bare is not None and not (end == 3 and bare.start() == len(data) - 1 and bare[0] == b"\r"):
        raise RefusedError(400, "a line of the head ends without CR LF, or holds a NUL")
    if len(head) > MOST_BYTES:
        raise RefusedError(431, f"the head is longer than {MOST_BYTES} bytes")
    return end if end > 3 else 0


def parse_head(head: bytes, machine: h11.Connection, via: bytes) -> Head:
    """What a complete head asks for, whatever follows it; ``machine`` then expects the body and the response.

    ``via`` is how this proxy calls itself in Via. Raises :class:`RefusedError`.
    """
    if _FOLDED.search(head, 0, end_of_head(head)):
        raise RefusedError(400, "a header is folded over two lines")
    try:
        machine.receive_data(head)
        event = machine.next_event()
    except h11.RemoteProtocolError as error:
        raise RefusedError(error.error_status_hint, str(error)) from error
    if not isinstance(event, h11.Request):
        raise RefusedError(400, "no request")
    given = [(bytes(name), bytes(value)) for name, value in event.headers]
    values: Callable[[bytes], list[bytes]] = lambda name: [value for key, value in given if key == name]  # noqa: E731
    length = _body_length(values)
    if any(via in value for value in values(b"via")):
        raise RefusedError(508, "the request has come through this proxy before")
    named = {word.strip().lower() for value in values(b"connection") for word in value.split(b",")}
    headers = [(name, value) for name, value in given if name not in _HOP and name not in named]
    stays = event.http_version == b"1.1" and not named & {b"close"} and b"close" not in values(b"proxy-connection")
    credentials = next(iter(values(b"proxy-authorization")), None)
    waits = any(value.lower() == b"100-continue" for value in values(b"expect"))
    origin, url = _target(bytes(event.method), bytes(event.target))
    return Head(bytes(event.method), origin, url, headers, length, stays, waits, credentials)


def _body_length(values: Callable[[bytes], list[bytes]]) -> int | None:
    lengths, codings = values(b"content-length"), values(b"transfer-encoding")
    if lengths and codings:
        raise RefusedError(400, "both Content-Length and Transfer-Encoding")
    if len(lengths) > 1 or len(codings) > 1:
        raise RefusedError(400, "Content-Length or Transfer-Encoding twice")
    return None if codings else int(lengths[0]) if lengths else 0


def _target(method: bytes, target: bytes) -> tuple[Origin, Url | None]:
    if method == b"CONNECT":
        match = _AUTHORITY.fullmatch(target)
        port = int(match[2]) if match is not None else 0
        if match is None or not 0 < port < 65536:
            raise RefusedError(400, "CONNECT: expected HOST:PORT")
        return Origin("https", match[1].decode().strip("[]"), port), None
    if method == b"TRACE":
        raise RefusedError(405, "TRACE is not passed on")
    if not target.lower().startswith(b"http://"):
        if target.lower().startswith(b"https://"):
            raise RefusedError(501, "https is passed on by CONNECT only")
        raise RefusedError(400, "this is a proxy: it answers requests for http://HOST/... and CONNECT only")
    try:
        url = parse_url(target.split(b"#")[0].decode("ascii"))
    except (InputError, UnicodeDecodeError) as error:
        raise RefusedError(400, str(error)) from error
    return url.origin, url


def response_headers(headers: Headers, via: bytes) -> list[tuple[bytes, bytes]]:
    """The headers of a response to pass on; the length of its body is the caller's to add."""
    named = {word.strip().lower() for key, value in headers if key == b"connection" for word in value.split(b",")}
    passed = [(name, value) for name, value in headers if name not in _HOP and name not in named]
    return [*passed, (b"Via", b"1.1 " + via)]
