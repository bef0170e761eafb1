"""FlowVisor's management API: JSON-RPC 2.0 over HTTPS, and its events. Nothing else of this backend opens connections.

Its TLS is of 2013: it breaks connections that are kept alive under TLS 1.3, so 1.2 is the highest here; and with its
default DSA key it needs ciphers and key sizes that are refused today, which must be asked for by ``legacy_tls``.

Events it posts over plain HTTP to an address that it is told of. Anyone who reaches that address could pretend to be
FlowVisor, so it is on loopback unless the caller says otherwise, and every registration has a random cookie that each
event must carry.
"""

from __future__ import annotations

import hmac
import json
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import count
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter

from hyroads.controller.core import strict_json
from hyroads.controller.core.strict_json import JsonError

from .entries import FlowVisorError
from .reconcile import Connection

TIMEOUT_S = 10.0
MAX_ANSWER_BYTES = 32 * 1024 * 1024
LEGACY_CIPHERS = "ALL:@SECLEVEL=0"


@dataclass(frozen=True)
class Access:
    """Where a FlowVisor is and how to get in. ``ca_file`` None: the system's authorities; ``verify`` False: anyone."""

    url: str
    user: str
    password: str = field(repr=False)
    ca_file: str | None = None
    verify: bool = True
    legacy_tls: bool = False

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme != "https" or not parts.hostname:
            raise FlowVisorError(f"url: expected https://HOST:PORT/, got {self.url[:80]!r}")

    def context(self) -> ssl.SSLContext:
        """How TLS is spoken; :class:`FlowVisorError` if the file of authorities can't be read."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise FlowVisorError(f"ca: {self.ca_file}: {error}") from error
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        if self.legacy_tls:
            context.minimum_version = ssl.TLSVersion.TLSv1
            context.set_ciphers(LEGACY_CIPHERS)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


class _Adapter(HTTPAdapter):
    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        super().__init__(max_retries=0)

    def init_poolmanager(self, *arguments: Any, **keywords: Any) -> None:
        """Connections of this session use our context."""
        super().init_poolmanager(*arguments, **keywords, ssl_context=self._context)


class Client:
    """One session. Requests are not repeated by themselves: a lost answer may have been carried out."""

    def __init__(self, access: Access) -> None:
        self._url = access.url
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.auth = (access.user, access.password)
        self._session.verify = access.verify if access.ca_file is None else access.ca_file
        self._session.mount("https://", _Adapter(access.context()))
        self._ids = count(1)

    def close(self) -> None:
        """Closes the connections."""
        self._session.close()

    def call(self, method: str, parameters: Any = None) -> Any:
        """The result of a method; :class:`FlowVisorError` says what is wrong and with what."""
        request: dict[str, Any] = {"jsonrpc": "2.0", "id": next(self._ids), "method": method}
        if parameters is not None:
            request["params"] = parameters
        try:
            answer = self._session.post(
                self._url, data=json.dumps(request), timeout=TIMEOUT_S, stream=True, allow_redirects=False
            )
            status, body = answer.status_code, answer.raw.read(MAX_ANSWER_BYTES + 1, decode_content=True)
        except (requests.RequestException, OSError) as error:
            raise FlowVisorError(f"{method}: no answer from {self._url}: {_reason(error)}") from error
        return _result(method, status, body)


def _result(method: str, status: int, body: bytes) -> Any:
    if status == requests.codes.unauthorized:
        raise FlowVisorError(f"{method}: user name or password is wrong")
    if len(body) > MAX_ANSWER_BYTES:
        raise FlowVisorError(f"{method}: the answer is longer than {MAX_ANSWER_BYTES} bytes")
    if not body:
        raise FlowVisorError(f"{method}: FlowVisor failed inside (HTTP {status} without a word); its log says why")
    try:
        document = strict_json.parse(body)
    except JsonError as error:
        raise FlowVisorError(f"{method}: HTTP {status}, and the answer is not JSON") from error
    if not isinstance(document, dict):
        raise FlowVisorError(f"{method}: the answer is no JSON object")
    problem = document.get("error")
    if problem is not None:
        known = isinstance(problem, dict)
        message = problem.get("message") if known else problem
        code = problem.get("code") if known else None
        raise FlowVisorError(f"{method}: {str(message)[:300]}", code if isinstance(code, int) else None)
    if "result" not in document:
        raise FlowVisorError(f"{method}: HTTP {status}, and the answer has no result")
    return document["result"]


def _reason(error: BaseException) -> str:
    """The innermost cause, which is what the user needs to know."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return str(error)[:200] or type(error).__name__


MAX_BODY = 64 * 1024
CALLBACK_TIMEOUT_S = 5.0
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
            timeout = CALLBACK_TIMEOUT_S

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
