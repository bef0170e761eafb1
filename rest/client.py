"""A small client of the REST API.

    with Client("http://127.0.0.1:8080", token) as network:
        flow = network.declare_flow("f1", "a", "c", match={"udp_dst": 5000})
        for event in network.events("flow", "link"):
            ...

Answers are the API's documents (docs/reference/rest.md). Refusals raise :class:`ApiError` with the problem document;
what may be tried again is: lost connections, 429 and 503. Requests to create carry an idempotency key, so that
nothing is done twice. One client is for one thread, unless it is told to keep no connection.
"""

from __future__ import annotations

import json
import socket
import ssl
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from hyroads.controller.core import strict_json
from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.strict_json import JsonError

Document = dict[str, Any]
PREFIX = "/api/v1"
MAX_ANSWER_BYTES = 256 << 20
MAX_LINE = 1 << 20
DEFAULT_URL = "http://127.0.0.1:8080"
UNIX = "unix:"


class ClientError(HyroadsError):
    """No usable answer: nobody there, or no controller."""


class ApiError(ClientError):
    """The controller refused; ``status`` and its problem document."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.problem = problem
        super().__init__(f"{problem.get('detail') or problem.get('title') or 'refused'} ({status})")

    @property
    def errors(self) -> Mapping[str, list[str]]:
        """Place in the request -> what was expected there."""
        errors: Mapping[str, list[str]] = self.problem.get("errors", {})
        return errors


class NotConfirmedError(ClientError):
    """Accepted, but not confirmed in time, or it failed; ``operation`` tells."""

    def __init__(self, operation: Document) -> None:
        self.operation = operation
        waiting = ", ".join(operation["pending"])
        super().__init__(f"{operation['what']}: {operation['reason'] or f'not confirmed by {waiting}'}")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened."""

    id: int
    kind: str
    document: Document


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    document: Any
    headers: Mapping[str, str]


def address(*words: str) -> str:
    """Ids may hold any character."""
    return "".join(f"/{quote(word, safe='')}" for word in words)


class Client:
    """Requests to one controller over one connection that is kept open; ``unix:PATH`` is a socket in the file system.

    ``ca`` names a file of certificates by which a server is checked, instead of the system's. Without
    ``keep_alive`` each request has a connection of its own, and several threads may use the client.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        token: str | None = None,
        *,
        timeout_s: float = 20.0,
        tries: int = 4,
        confirm_s: float = 30.0,
        ca: str | None = None,
        keep_alive: bool = True,
    ) -> None:
        self._socket = url.removeprefix(UNIX) if url.startswith(UNIX) else None
        parts = urlsplit("http://localhost" if self._socket is not None else url)
        try:
            self._port = parts.port
        except ValueError as error:
            raise ClientError(f"{url[:80]!r}: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
            raise ClientError(f"{url[:80]!r}: expected http://HOST:PORT or https://HOST:PORT")
        self._secure, self._host = parts.scheme == "https", parts.hostname
        self._ca = ca
        self._keep_alive = keep_alive
        self._url = url
        self._token = token
        self._timeout_s = timeout_s
        self._tries = tries
        self._confirm_s = confirm_s
        self._connection: HTTPConnection | None = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- requests

    def get(self, path: str, **query: Any) -> Document:
        """The document at a path below ``/api/v1``."""
        found: Document = self.request("GET", path, query=query).document
        return found

    def listed(self, path: str, name: str, **query: Any) -> Iterator[Document]:
        """The documents of a list, page after page."""
        following: str | None = PREFIX + path + _query(query)
        while following is not None:
            page = self._ask("GET", following, None, {}).document
            yield from page[name]
            following = page.get("next")

    def change(self, method: str, path: str, body: Mapping[str, Any] | None = None, *, wait: bool = True) -> Any:
        """Create, change or remove something, and what the controller then says of it, once that is confirmed.

        Without ``wait`` the operation.
        """
        answer = self.request(method, path, body, query={} if wait else {"wait": "false"})
        if answer.status != 202 or not wait or "state" not in (answer.document or {}):
            return answer.document
        operation = self.confirmed(answer.document)
        return self._ask("GET", operation["resource"], None, {}).document if operation["resource"] else None

    def confirmed(self, operation: Document) -> Document:
        """Wait for the end of an operation; NotConfirmedError."""
        until_s = time.monotonic() + self._confirm_s
        pause_s = 0.02
        while operation["state"] == "pending" and time.monotonic() < until_s:
            time.sleep(pause_s)
            pause_s = min(0.5, 1.5 * pause_s)
            operation = self.get(address("operations", operation["id"]))
        if operation["state"] != "confirmed":
            raise NotConfirmedError(operation)
        return operation

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> Answer:
        """Any request; ApiError if it is refused."""
        headers = {}
        if method == "POST":
            headers["Idempotency-Key"] = key or uuid.uuid4().hex
        text = None if body is None else json.dumps(body)
        if text is not None or method in ("POST", "PUT", "PATCH"):
            headers["Content-Type"] = "application/json"
        return self._ask(method, PREFIX + path + _query(query or {}), text, headers)

    def _ask(self, method: str, target: str, text: str | None, headers: dict[str, str]) -> Answer:
        for attempt in range(1, self._tries + 1):
            last = attempt == self._tries
            try:
                answer = self._exchange(method, target, text, headers)
            except (OSError, HTTPException) as error:
                self.close()
                if last:
                    raise ClientError(f"{self._url}: {_reason(error)}") from error
                time.sleep(0.05 * 2**attempt)
                continue
            again = answer.status in (429, 503) or (answer.status == 409 and "retry-after" in answer.headers)
            if again and not last:
                time.sleep(min(5.0, float(answer.headers.get("retry-after", "1"))))
            elif answer.status == 404 and method == "DELETE" and attempt > 1:
                # The answer to the first try was lost; it did what it should.
                return Answer(204, None, {})
            elif answer.status >= 400:
                raise ApiError(answer.status, answer.document if isinstance(answer.document, dict) else {})
            else:
                return answer
        raise AssertionError("the last try returns or raises")

    def _exchange(self, method: str, target: str, text: str | None, headers: Mapping[str, str]) -> Answer:
        connection = self._connection or self._connect(self._timeout_s)
        if self._keep_alive:
            self._connection = connection
        try:
            connection.request(method, target, text, {**headers, **self._identity()})
            response = connection.getresponse()
            data = response.read(MAX_ANSWER_BYTES)
        finally:
            if not self._keep_alive:
                connection.close()
        if response.will_close:
            self.close()
        received = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, _document(response, data), received)

    def _connect(self, timeout_s: float) -> HTTPConnection:
        if self._socket is not None:
            return _at_socket(self._socket, timeout_s)
        connection: HTTPConnection
        if self._secure:
            context = ssl.create_default_context(cafile=self._ca)
            connection = HTTPSConnection(self._host, self._port, timeout=timeout_s, context=context)
        else:
            connection = HTTPConnection(self._host, self._port, timeout=timeout_s)
        connection.connect()
        # Small requests go out at once.
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _identity(self) -> dict[str, str]:
        return {} if self._token is None else {"Authorization": f"Bearer {self._token}"}

    # -- events

    def events(self, *kinds: str, last: int | None = None, follow: bool = True) -> Iterator[Event]:
        """What happens from now on (or after the event ``last``), for ever; lost connections are made again.

        ``follow=False``: what the controller has kept. An event of kind ``missed`` says that some are lost.
        """
        failures = 0
        while True:
            try:
                for event in self._stream(kinds, last, follow=follow):
                    failures, last = 0, event.id
                    if event.kind not in ("dropped", ""):
                        yield event
                if not follow:
                    return
            except (OSError, HTTPException) as error:
                failures += 1
                if failures >= self._tries:
                    raise ClientError(f"{self._url}: {_reason(error)}") from error
            time.sleep(min(2.0, 0.1 * 2**failures))

    def _stream(self, kinds: tuple[str, ...], last: int | None, *, follow: bool) -> Iterator[Event]:
        """One connection's events; one without kind for a sign of life, which has a place in the log, too."""
        connection = self._connect(max(self._timeout_s, 30.0))
        try:
            query = {"kinds": ",".join(kinds)} if kinds else {}
            headers = {"Accept": "text/event-stream", **self._identity()}
            if last is not None:
                headers["Last-Event-ID"] = str(last)
            target = f"{PREFIX}/events" + _query(query if follow else {**query, "follow": "false"})
            connection.request("GET", target, None, headers)
            response = connection.getresponse()
            if response.status != 200:
                document = _document(response, response.read(MAX_LINE))
                raise ApiError(response.status, document if isinstance(document, dict) else {})
            yield from _events(response)
        finally:
            connection.close()

    # -- what there is

    def topology(self) -> Document:
        """Nodes and links."""
        return self.get("/topology")

    def live(self, since: int | None = None) -> Document:
        """Everything that moves, measured beside planned; or what changed since the ``version`` of an answer."""
        return self.get("/live", **({} if since is None else {"since": since}))

    def health(self) -> Document:
        """What is connected, in sync, wrong."""
        return self.get("/health")

    def metrics(self) -> dict[str, float]:
        """The metrics in Prometheus' format: name with labels -> value."""
        text: str = self._ask("GET", "/metrics", None, {}).document or ""
        rows = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in rows}

    def measurements(self) -> Document:
        """Latest reports of the agents."""
        return self.get("/measurements")

    def paths(self, source: str, target: str, **options: int) -> Document:
        """What the planner finds between two nodes."""
        return self.get("/paths", **{"from": source, "to": target}, **options)

    def flows(self) -> Iterator[Document]:
        """All flows."""
        return self.listed("/flows", "flows")

    def flow(self, flow: str) -> Document:
        """One flow."""
        return self.get(address("flows", flow))

    def declare_flow(self, flow: str, source: str, target: str, *, wait: bool = True, **more: Any) -> Document:
        """Declare a flow; ``more``: policy, match, weight, utility, paths, traffic."""
        body = {"id": flow, "from": source, "to": target, **more}
        document: Document = self.change("POST", "/flows", body, wait=wait)
        return document

    def remove_flow(self, flow: str, *, wait: bool = True) -> None:
        """Remove a flow."""
        self.change("DELETE", address("flows", flow), wait=wait)

    def reload(self) -> Document:
        """The controller takes its settings and network file again, as a whole or not at all; what differed. ApiError
        with status 409 says what is wrong (``errors``), or what only a restart can take (``restart``).
        """
        document: Document = self.change("POST", "/reload")
        return document

    def handover(
        self, client: str, to: tuple[str, str] | None, *, manager: str | None = None, wait: bool = True, **more: Any
    ) -> Document:
        """Move a client to (node, technology); None: its flows use all its places again."""
        place = None if to is None else {"node": to[0], "technology": to[1]}
        body = {"client": client, "to": place, **({} if manager is None else {"manager": manager}), **more}
        document: Document = self.change("POST", "/handovers", body, wait=wait)
        return document


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


def _query(query: Mapping[str, Any]) -> str:
    given = {key: str(value).lower() if isinstance(value, bool) else value for key, value in query.items()}
    return f"?{urlencode(given)}" if given else ""


def _document(response: HTTPResponse, data: bytes) -> Any:
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


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def _events(response: HTTPResponse) -> Iterator[Event]:
    """Blocks of a stream of server-sent events."""
    block: dict[str, str] = {}
    while line := response.readline(MAX_LINE):
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if text:
            name, _, value = text.partition(":")
            block[name] = value.removeprefix(" ")
            continue
        if block.get("id", "").isdigit():
            data = strict_json.parse(block["data"]) if "data" in block else {}
            yield Event(int(block["id"]), block.get("event", ""), data)
        block = {}
