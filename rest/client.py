"""A small client of the REST API.

    with Client("http://127.0.0.1:8080", token) as network:
        flow = network.declare_flow("f1", "a", "c", match={"udp_dst": 5000})
        for event in network.events("flow", "link"):
            ...

Answers are the API's documents (docs/reference/rest.md). Refusals raise :class:`ApiError` with the problem document;
what may be tried again is: lost connections, 429 and 503. Requests to create carry an idempotency key, so that
nothing is done twice. One client is for one thread, unless it is told to keep no connection.

Controllers that stand by for each other are given together. One that is down is passed over, and a request that only
the leader may answer goes to it:

    Client("https://a:8080,https://b:8080,https://c:8080", token)
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse
from itertools import chain
from typing import Any
from urllib.parse import quote, urlencode

from hyroads.controller.core import strict_json
from hyroads.controller.core.errors import HyroadsError

from .endpoint import Answer, Endpoints, document_of, exchange, reason_of

Document = dict[str, Any]
PREFIX = "/api/v1"
MAX_LINE = 1 << 20
DEFAULT_URL = "http://127.0.0.1:8080"
# How often and how long one is asked, or one of several, of which another can be asked meanwhile.
TRIES, TRIES_OF_SEVERAL = 4, 9
TIMEOUT_S, TIMEOUT_OF_SEVERAL_S = 20.0, 5.0
LONGEST_PAUSE_S = 2.0
# Three signs of life of a stream of events.
EVENTS_TIMEOUT_S = 30.0
TEMPORARY_REDIRECT = 307


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


def address(*words: str) -> str:
    """Ids may hold any character."""
    return "".join(f"/{quote(word, safe='')}" for word in words)


class Client:
    """Requests to one controller over one connection that is kept open; ``unix:PATH`` is a socket in the file system.

    ``url`` may name several controllers of one network, separated by commas or as a sequence. Then each request goes
    to the one that answered last; one that can't be reached is passed over; and where it answers that another one
    leads (307), that one is asked, if it is among the given. The token is sent to nobody else. Without a token, also
    another port of a given host is followed.

    ``ca`` names a file of certificates by which a server is checked, instead of the system's. Without
    ``keep_alive`` each request has a connection of its own, and several threads may use the client. Of several
    controllers each is asked ``tries`` times before the client gives up.
    """

    def __init__(
        self,
        url: str | Sequence[str] = DEFAULT_URL,
        token: str | None = None,
        *,
        timeout_s: float | None = None,
        tries: int | None = None,
        confirm_s: float = 30.0,
        ca: str | None = None,
        keep_alive: bool = True,
    ) -> None:
        try:
            self._endpoints = Endpoints(url)
        except ValueError as error:
            raise ClientError(str(error)) from error
        several = len(self._endpoints) > 1
        self._given: dict[str, Any] = {"timeout_s": timeout_s, "tries": tries}
        self._ca = ca
        self._keep_alive = keep_alive
        self._token = token
        self._timeout_s = timeout_s or (TIMEOUT_OF_SEVERAL_S if several else TIMEOUT_S)
        self._tries = tries or (TRIES_OF_SEVERAL if several else TRIES)
        self._confirm_s = confirm_s
        self._connection: HTTPConnection | None = None

    @property
    def url(self) -> str:
        """The controller that is asked next."""
        return self._endpoints.current.url

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; the next request opens another."""
        if self._connection is not None:
            self._end(self._connection)

    def _end(self, connection: HTTPConnection) -> None:
        connection.close()
        if connection is self._connection:
            self._connection = None

    @property
    def is_one(self) -> bool:
        """Whether only one controller was given."""
        return len(self._endpoints) == 1

    def only(self, url: str) -> Client:
        """A client for that one of the given controllers alone; ClientError if it is not among them."""
        found = self._endpoints.allowed(url, trusting=self._token is None)
        if found is None:
            raise ClientError(f"{url[:200]!r} is not among the addresses given (several are separated by commas)")
        more = {**self._given, "confirm_s": self._confirm_s, "ca": self._ca, "keep_alive": self._keep_alive}
        return Client(found.url, self._token, **more)

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
        key = uuid.uuid4().hex
        query = {} if wait else {"wait": "false"}
        answer = self.request(method, path, body, query=query, key=key)
        if answer.status != 202 or not wait or "state" not in (answer.document or {}):
            return answer.document
        try:
            operation = self.confirmed(answer.document)
        except ApiError as error:
            if error.status not in (404, 410) or len(self._endpoints) == 1:
                raise
            # The leader that began it has gone. The next one knows the key, or does it now.
            answer = self.request(method, path, body, query=query, key=key, again=True)
            if answer.status != 202:
                return answer.document
            if answer.headers.get("idempotent-replayed"):
                return self._in_force(answer.document)
            operation = self.confirmed(answer.document)
        return self._ask("GET", operation["resource"], None, {}).document if operation["resource"] else None

    def _in_force(self, operation: Document) -> Any:
        """What an operation is about that another controller began, once nobody is waited for; NotConfirmedError."""
        if operation["resource"] is None:
            return None

        def ask() -> Document:
            found: Document = self._ask("GET", operation["resource"], None, {}).document
            return found

        found = self._settled(ask(), lambda document: not document.get("pending"), ask)
        if found.get("pending"):
            raise NotConfirmedError({**operation, "pending": found["pending"]})
        return found

    def confirmed(self, operation: Document) -> Document:
        """Wait for the end of an operation; NotConfirmedError."""
        path = address("operations", operation["id"])
        ended = self._settled(operation, lambda document: document["state"] != "pending", lambda: self.get(path))
        if ended["state"] != "confirmed":
            raise NotConfirmedError(ended)
        return ended

    def _settled(
        self, document: Document, is_settled: Callable[[Document], bool], ask: Callable[[], Document]
    ) -> Document:
        """A document, asked for again and again until it is settled, or there was time enough for that."""
        until_s, pause_s = time.monotonic() + self._confirm_s, 0.02
        while not is_settled(document) and time.monotonic() < until_s:
            time.sleep(pause_s)
            pause_s = min(0.5, 1.5 * pause_s)
            document = ask()
        return document

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        key: str | None = None,
        again: bool = False,
    ) -> Answer:
        """Any request; ApiError if it is refused. ``again``: it may have been done already."""
        headers = {}
        if method == "POST":
            headers["Idempotency-Key"] = key or uuid.uuid4().hex
        text = None if body is None else json.dumps(body)
        if text is not None or method in ("POST", "PUT", "PATCH"):
            headers["Content-Type"] = "application/json"
        return self._ask(method, PREFIX + path + _query(query or {}), text, headers, again=again)

    def _ask(
        self, method: str, target: str, text: str | None, headers: Mapping[str, str], *, again: bool = False
    ) -> Answer:
        """Ask until somebody answers, or all have been asked ``tries`` times; ``again``: it may have been done."""
        asked = 0
        while True:
            asked += 1
            try:
                connection = self._connected()
                try:
                    answer, closes = exchange(connection, method, target, text, {**headers, **self._identity()})
                except (OSError, HTTPException):
                    again = True
                    self._end(connection)
                    raise
                if closes or not self._keep_alive:
                    self._end(connection)
            except (OSError, HTTPException) as error:
                self._pass_over(asked, f"{self.url}: {reason_of(error)}", error)
                continue
            if answer.status == TEMPORARY_REDIRECT:
                self._redirected(asked, answer.headers.get("location", ""))
            elif answer.status == 404 and method == "DELETE" and again:
                # The answer to an earlier try was lost; it did what it should.
                return Answer(204, None, {})
            elif answer.status >= 400:
                # One that is busy is asked again itself: the others are not less so.
                asked += len(self._endpoints) - 1
                if not _is_busy(answer) or asked >= self._most:
                    raise ApiError(answer.status, answer.document if isinstance(answer.document, dict) else {})
                time.sleep(min(5.0, float(answer.headers.get("retry-after", "1"))))
                again = True
            else:
                return answer

    @property
    def _most(self) -> int:
        """How many requests are made for one."""
        return self._tries * len(self._endpoints)

    def _pass_over(self, asked: int, problem: str, cause: Exception | None = None) -> None:
        """The next one is asked, after a pause if all have been; ClientError if they have been often enough."""
        if asked >= self._most:
            self.close()
            raise ClientError(problem) from cause
        self.close()
        self._endpoints.turn()
        self._pause(asked)

    def _pause(self, asked: int) -> None:
        rounds, rest = divmod(asked, len(self._endpoints))
        if rest == 0:
            time.sleep(min(LONGEST_PAUSE_S, 0.05 * 2**rounds))

    def _redirected(self, asked: int, location: str) -> None:
        """Turn to where another one leads; to any other given one if that place may not be asked."""
        self.close()
        followed = self._endpoints.follow(location, trusting=self._token is None)
        if followed and asked < self._most:
            # Those that disagree on who leads come to agree.
            self._pause(asked)
            return
        problem = f"{self.url}: another controller leads, at {location[:200]!r}"
        if not followed:
            problem += ", which is not among the addresses given (several are separated by commas)"
            if len(self._endpoints) == 1:
                raise ClientError(problem)
        self._pass_over(asked, problem)

    def _connected(self) -> HTTPConnection:
        if self._connection is not None:
            return self._connection
        connection = self._endpoints.current.connect(self._timeout_s, self._ca)
        if self._keep_alive:
            self._connection = connection
        return connection

    def _identity(self) -> dict[str, str]:
        return {} if self._token is None else {"Authorization": f"Bearer {self._token}"}

    # -- events

    def events(self, *kinds: str, last: int | None = None, follow: bool = True) -> Iterator[Event]:
        """What happens from now on (or after the event ``last``), for ever; lost connections are made again.

        "Now" is when this returns: what happens afterwards is told, even if the connection is lost before anything is.
        ``follow=False``: what the controller has kept. An event of kind ``missed`` says that some are lost.
        """
        told = self._told(kinds, last, follow=follow)
        # The first block says from which place on the controller listens.
        begun = [next(told, None)] if follow else []
        return (event for event in chain(begun, told) if event is not None and event.kind not in ("dropped", ""))

    def _told(self, kinds: tuple[str, ...], last: int | None, *, follow: bool) -> Iterator[Event | None]:
        """Blocks of one stream after another, each from the place on that the one before has come to."""
        failures = 0
        while True:
            try:
                for event in self._stream(kinds, last, follow=follow):
                    failures, last = 0, last if event is None else event.id
                    yield event
                if not follow:
                    return
            except (OSError, HTTPException) as error:
                failures += 1
                if failures >= self._most:
                    raise ClientError(f"{self.url}: {reason_of(error)}") from error
                self._endpoints.turn()
            time.sleep(min(LONGEST_PAUSE_S, 0.1 * 2**failures))

    def _stream(self, kinds: tuple[str, ...], last: int | None, *, follow: bool) -> Iterator[Event | None]:
        """One connection's events; one without kind for a sign of life, which has a place in the log, too; None for
        one that has none.
        """
        connection = self._endpoints.current.connect(max(self._timeout_s, EVENTS_TIMEOUT_S), self._ca)
        try:
            query = {"kinds": ",".join(kinds)} if kinds else {}
            headers = {"Accept": "text/event-stream", **self._identity()}
            if last is not None:
                headers["Last-Event-ID"] = str(last)
            target = f"{PREFIX}/events" + _query(query if follow else {**query, "follow": "false"})
            connection.request("GET", target, None, headers)
            response = connection.getresponse()
            if response.status != 200:
                document = document_of(response, response.read(MAX_LINE))
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
        """Declare a flow; ``more``: policy, match, weight, utility, paths, traffic; of a private flow also n_cons,
        cost_share, padding and n_chp.
        """
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


def _is_busy(answer: Answer) -> bool:
    """Whether the same request may be answered later."""
    return answer.status in (429, 503) or (answer.status == 409 and "retry-after" in answer.headers)


def _query(query: Mapping[str, Any]) -> str:
    given = {key: str(value).lower() if isinstance(value, bool) else value for key, value in query.items()}
    return f"?{urlencode(given)}" if given else ""


def _events(response: HTTPResponse) -> Iterator[Event | None]:
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
        elif block:
            yield None
        block = {}
