"""FlowVisor's events: it posts them over plain HTTP to an address that it is told of.

Anyone who reaches that address could pretend to be FlowVisor, so it is on loopback unless the caller says otherwise.
What is registered as a cookie never comes back, but the URL and the name of the method are used as they were given: so
the path of the URL is a secret, and the method is the kind of event. Most kinds come as JSON-RPC with their parameters
in a list; ``GENERAL`` comes as XML-RPC, and only says that something about switches or links is other than before.

FlowVisor sends events only while its topology control runs, and without it answers a registration with ``false``.
"""

from __future__ import annotations

import hmac
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from ipaddress import ip_address
from secrets import token_hex
from typing import Any
from xml.parsers.expat import ExpatError
from xmlrpc import client as xmlrpc

from hyroads.controller.core import strict_json
from hyroads.controller.core.admission import Limits
from hyroads.controller.core.strict_json import JsonError
from hyroads.controller.framework.admitted_http import AdmittedHttpServer

from .entries import FailedInsideError, FlowVisorError
from .reconcile import Connection

MAX_BODY = 64 * 1024
POSTED_WITHIN_S = 5.0
LIMITS = Limits(strangers=32, known=32, within_s=POSTED_WITHIN_S, each=32)
GENERAL = "GENERAL"
KINDS = (GENERAL, "DEVICE_CONNECTED", "SLICE_CONNECTED", "SLICE_DISCONNECTED")
NO_EVENTS = (
    "FlowVisor sends no events while its topology control is off: "
    "switch it on (fvctl set-config --enable-topo-ctrl) and restart FlowVisor"
)


@dataclass(frozen=True)
class Event:
    """Something happened; ``about`` is what FlowVisor says of it, None if it says nothing more."""

    kind: str
    about: Any = None


@dataclass
class Events:
    """Receives events while :meth:`serve` runs; ``on_event`` is called for each, for one at a time."""

    on_event: Callable[[Event], None]
    host: str = "127.0.0.1"
    port: int = 0
    _secret: str = field(default_factory=lambda: token_hex(16), repr=False)
    _one: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        try:
            if ip_address(self.host).is_unspecified:
                raise FlowVisorError(f"events: expected an address that FlowVisor reaches, got {self.host}")
        except ValueError:
            pass  # A name.
        try:
            self._server = AdmittedHttpServer(self.host, self.port, self._handler(), LIMITS)
        except OSError as error:
            raise FlowVisorError(f"events: can't listen on {self.host}:{self.port}: {error.strerror}") from error
        self.address = f"{self.host}:{self._server.server_address[1]}"

    def register(self, connection: Connection) -> None:
        """Tell a FlowVisor where to post; :class:`FlowVisorError` says what to switch on if it sends no events."""
        for kind in KINDS:
            if connection.call("register-event-callback", self._registration(kind)) is not True:
                raise FlowVisorError(NO_EVENTS)

    def unregister(self, connection: Connection) -> None:
        """Tell it to stop. FlowVisor 1.4 fails inside each time and goes on posting until it is restarted."""
        for kind in KINDS:
            try:
                connection.call("unregister-event-callback", self._registration(kind))
            except FailedInsideError:
                continue

    def serve(self) -> None:
        """Receives until :meth:`close`."""
        self._server.serve_forever(poll_interval=0.1)

    def close(self) -> None:
        """Ends :meth:`serve`, from another thread, and closes the socket."""
        self._server.shutdown()
        self._server.server_close()

    def _registration(self, kind: str) -> dict[str, str]:
        # A cookie must be given, but only unregistering looks at it.
        return {"url": f"http://{self.address}/{self._secret}", "method": kind, "event-type": kind, "cookie": kind}

    def knows(self, path: str) -> bool:
        """Whether a path is the secret one; takes the same time for every wrong one."""
        return hmac.compare_digest(path.encode(), f"/{self._secret}".encode())

    def take(self, body: bytes) -> bytes | None:
        """What to answer to a posted event, None if it is none."""
        event = _of_xml(body) if body.lstrip().startswith(b"<") else _of_json(body)
        if event is None:
            return None
        with self._one:
            self.on_event(event)
        return xmlrpc.dumps((True,), methodresponse=True).encode() if event.kind == GENERAL else b""

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        events = self

        class Handler(BaseHTTPRequestHandler):
            timeout = POSTED_WITHIN_S

            def do_POST(self) -> None:
                """One event."""
                length = self.headers.get("Content-Length", "")
                if not events.knows(self.path):
                    self.send_error(403)
                elif not (length.isascii() and length.isdigit()) or len(length) > 9 or int(length) > MAX_BODY:
                    self.send_error(413)
                else:
                    self._answer(events.take(self.rfile.read(int(length))))

            def _answer(self, body: bytes | None) -> None:
                self.send_response(400 if body is None else 200)
                self.send_header("Content-Type", "text/xml" if body else "text/plain")
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, format: str, *arguments: Any) -> None:
                """Events are told by ``on_event``."""

        return Handler


def _of_json(body: bytes) -> Event | None:
    try:
        document = strict_json.parse(body)
    except JsonError:
        return None
    if not isinstance(document, dict) or document.get("method") not in KINDS:
        return None
    about = document.get("params")
    if not isinstance(about, list):
        return None
    return Event(document["method"], about[0] if len(about) == 1 else about or None)


def _of_xml(body: bytes) -> Event | None:
    """An event of XML-RPC. A document with declarations of its own is none: entities can grow without end."""
    try:
        text = body.decode("utf-8")
        if "<!" in text:
            return None
        about, kind = xmlrpc.loads(text, use_builtin_types=True)
    except (xmlrpc.Error, ExpatError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None
    if kind not in KINDS:
        return None
    return Event(kind, next((each for each in about if each is not None), None))
