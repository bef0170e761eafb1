"""Addresses of controllers, connections to them, and what comes back over one."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from hyroads.controller.core import strict_json
from hyroads.controller.core.strict_json import JsonError

UNIX = "unix:"
PORTS = {"http": 80, "https": 443}
MAX_ANSWER_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one controller is: ``http``, ``https`` with host and port, or ``unix`` with a path in the file system."""

    scheme: str
    host: str
    port: int

    @property
    def url(self) -> str:
        """The address as it is given, with its port."""
        if self.scheme == "unix":
            return f"{UNIX}{self.host}"
        return f"{self.scheme}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def connect(self, timeout_s: float, ca: str | None = None) -> HTTPConnection:
        """A connection; OSError. ``ca`` names a file of certificates by which a server is checked, instead of the
        system's.
        """
        if self.scheme == "unix":
            return _at_socket(self.host, timeout_s)
        connection: HTTPConnection
        if self.scheme == "https":
            context = ssl.create_default_context(cafile=ca)
            connection = HTTPSConnection(self.host, self.port, timeout=timeout_s, context=context)
        else:
            connection = HTTPConnection(self.host, self.port, timeout=timeout_s)
        connection.connect()
        # Small requests go out at once.
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


class Endpoints:
    """The controllers that a client may ask, and the one that it asks now.

    ``url`` names one, several with commas, or a sequence of them; ValueError if one is no address.
    """

    def __init__(self, url: str | Sequence[str]) -> None:
        one = isinstance(url, str) and url.startswith(UNIX)
        words = [str(url)] if one else url.split(",") if isinstance(url, str) else url
        self._all = tuple(dict.fromkeys(_endpoint(word.strip()) for word in words))
        self._at = 0
        if not self._all:
            raise ValueError("no address of a controller")

    def __len__(self) -> int:
        return len(self._all)

    @property
    def current(self) -> Endpoint:
        """The one that is asked now."""
        return self._all[self._at]

    def turn(self) -> None:
        """The next one is asked, after the last the first."""
        self._at = (self._at + 1) % len(self._all)

    def follow(self, location: str, *, trusting: bool) -> bool:
        """Turn to where a redirection leads, if that is among the given; False: it is not.

        ``trusting``: also to another port of the host that is asked now, by the same scheme.
        """
        there = self.allowed(location, trusting=trusting)
        if there is None:
            return False
        if there not in self._all:
            self._all = (*self._all, there)
        self._at = self._all.index(there)
        return True

    def allowed(self, location: str, *, trusting: bool) -> Endpoint | None:
        """Where an address leads, if it is among the given; ``trusting``: or is another port of the current host."""
        try:
            there = _endpoint(_origin(location))
        except ValueError:
            return None
        same_host = (there.scheme, there.host) == (self.current.scheme, self.current.host)
        return there if there in self._all or (trusting and same_host) else None


def _endpoint(url: str) -> Endpoint:
    """ValueError if it is no address."""
    if url.startswith(UNIX):
        return Endpoint("unix", url.removeprefix(UNIX), 0)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{url[:80]!r}: {error}") from error
    wanted = parts.scheme in PORTS and parts.hostname
    if not wanted or parts.path.strip("/") or parts.query or parts.username is not None:
        raise ValueError(f"{url[:80]!r}: expected http://HOST:PORT or https://HOST:PORT")
    return Endpoint(parts.scheme, str(parts.hostname), port or PORTS[parts.scheme])


def _origin(location: str) -> str:
    """Scheme, host and port of an address, as they are written."""
    scheme, slashes, rest = location.partition("://")
    return f"{scheme}{slashes}{rest.split('/', 1)[0].split('?', 1)[0]}"


def _at_socket(path: str, timeout_s: float) -> HTTPConnection:
    connection = HTTPConnection("localhost", timeout=timeout_s)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(timeout_s)
    try:
        connection.sock.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    document: Any
    headers: Mapping[str, str]


def exchange(
    connection: HTTPConnection, method: str, target: str, text: str | None, headers: Mapping[str, str]
) -> tuple[Answer, bool]:
    """One request and its answer, and whether the connection ends with it; OSError, HTTPException."""
    connection.request(method, target, text, dict(headers))
    response = connection.getresponse()
    data = response.read(MAX_ANSWER_BYTES)
    received = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, document_of(response, data), received), response.will_close


def document_of(response: HTTPResponse, data: bytes) -> Any:
    """Parsed JSON, or text; None for anything else."""
    kind = response.headers.get_content_type()
    if kind == "text/plain":
        return data.decode("utf-8", "replace")
    if not data or not kind.endswith("json"):
        return None
    try:
        return strict_json.parse(data)
    except JsonError as error:
        raise HTTPException(f"no JSON: {error}") from error


def reason_of(error: Exception) -> str:
    """Why a request got no answer, in a few words."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
