"""An application's end of SFNet: finds the controller, asks for things, hears what happens
(docs/reference/sfnet.md)."""

from __future__ import annotations

import secrets
import socket
import struct
import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from hyroads.controller.core import strict_json
from hyroads.plugins.api import Event, RequestError, Requests

from .messages import GROUP, MAX_NONCE, PORT, VERSION, discovered, discovery_request, line_of

AGAIN_S = 0.5
MAX_ANSWER = 32 * 1024 * 1024


def discover(interface: str = "lo", within_s: float = 3.0) -> tuple[str, int]:
    """Address and port of the controller that is found by an interface; ``TimeoutError`` if none answers."""
    nonce = secrets.token_hex(MAX_NONCE // 2)
    until_s = time.monotonic() + within_s
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        index = struct.pack("=4s4si", bytes(4), bytes(4), socket.if_nametoindex(interface))
        asking.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, index)
        while (left_s := until_s - time.monotonic()) > 0:
            asking.sendto(discovery_request(nonce), (GROUP, PORT))
            asking.settimeout(min(left_s, AGAIN_S))
            try:
                found = discovered(asking.recv(2048), nonce)
            except TimeoutError:
                continue
            if found is not None:
                return found
    raise TimeoutError(f"no controller answers at {interface}")


class Controller(Requests):
    """A connection to the controller. For one thread; use two connections to wait for events and to ask."""

    def __init__(self, address: str, port: int = PORT, *, token: str | None = None, timeout_s: float = 20.0) -> None:
        self._socket = socket.create_connection((address, port), timeout_s)
        self._timeout_s = timeout_s
        self._buffer = bytearray()
        self._asked = 0
        self._events: deque[Event] = deque()
        self._missed = 0
        self._socket.sendall(line_of({"type": "hello", "version": VERSION, "token": token}))
        welcome = self._message()
        if welcome.get("type") != "welcome":
            self.close()
            raise RequestError(int(welcome.get("status", 500)), str(welcome.get("detail")))
        self.role = str(welcome["role"])

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def __enter__(self) -> Controller:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """See :class:`Requests`."""
        return self._ask({"method": method, "path": path, "body": None if body is None else dict(body)})

    def subscribe(self, *kinds: str, after: int | None = None) -> None:
        """Hear of events of these kinds (``link`` stands for ``link.up`` as well), or of all."""
        self._ask({"subscribe": list(kinds), "after": after})

    def events(self, within_s: float) -> Iterator[Event]:
        """Events as they come, until none came for so long."""
        while True:
            while self._events:
                yield self._events.popleft()
            try:
                self._take(self._message(within_s))
            except TimeoutError:
                return

    def _ask(self, what: Mapping[str, object]) -> Any:
        self._asked += 1
        self._socket.sendall(line_of({"id": self._asked, **what}))
        while True:
            message = self._message()
            if message.get("id") == self._asked:
                break
            self._take(message)
        body, status = message.get("body"), int(message["status"])
        if status >= 400:
            problem = body if isinstance(body, dict) else {}
            raise RequestError(status, str(problem.get("detail")), problem)
        return body

    def _message(self, within_s: float | None = None) -> dict[str, Any]:
        self._socket.settimeout(self._timeout_s if within_s is None else within_s)
        start = 0
        while (end := self._buffer.find(b"\n", start)) < 0:
            start = len(self._buffer)
            data = self._socket.recv(65536)
            if not data or start > MAX_ANSWER:
                raise ConnectionError("the controller ended the connection")
            self._buffer += data
        message = strict_json.parse(self._buffer[:end])
        del self._buffer[: end + 1]
        return message if isinstance(message, dict) else {}

    def _take(self, message: Mapping[str, Any]) -> None:
        if "missed" in message:
            self._missed += int(message["missed"])
        elif "event" in message:
            event = message["event"]
            self._events.append(Event(event["id"], event["kind"], event["document"], self._missed))
            self._missed = 0
