"""Reads the controller, once for all browsers: its stream of events, and documents beside it that pages want.

Everything here runs in one asyncio loop. Pages subscribe to changes, and show them in tasks
of their own: one that fails or is slow disturbs no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
import httpx_sse

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.strict_json import JsonError, parse
from hyroads.rest.client import PREFIX, Client

from .feed import KINDS, Feed, Phase
from .state import Changes, FeedError, NetworkState

DOCUMENT_EVERY_S = 2.0
SELDOM_S = 30.0
SELDOM = ("/interference-domains",)
"""Long to make, and seldom another."""
TOPOLOGY = "/topology"
TIMEOUT_S = 10.0


class Subscription:
    """What changed since one page last looked: one that is slow gets less often, and more at a time.

    ``wanted`` are paths below ``/api/v1`` whose documents are read now and then while the page is open.
    """

    def __init__(self, *wanted: str) -> None:
        self.wanted = set(wanted)
        self._changes = Changes()
        self._is_new = asyncio.Event()

    def add(self, changes: Changes) -> None:
        """Something changed."""
        self._changes = self._changes.and_then(changes)
        self._is_new.set()

    async def next(self, within_s: float) -> Changes:
        """What changed, as soon as something has; nothing after ``within_s``."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_new.wait(), within_s)
        found, self._changes = self._changes, Changes()
        self._is_new.clear()
        return found


@dataclass(frozen=True, slots=True)
class Source:
    """A controller, and the token that the dashboard itself reads with; ``ca`` is a file of certificates."""

    url: str
    token: str | None = None
    ca: str | None = None

    def client(self, token: str | None) -> Client:
        """A client with somebody's token, for one request at a time."""
        return Client(self.url, token, ca=self.ca, tries=1, timeout_s=TIMEOUT_S)


class Reader:
    """The one reader; ``feed`` and ``state`` are what it knows."""

    def __init__(self, source: Source, clock: Callable[[], float] = time.monotonic) -> None:
        self.source, self.clock = source, clock
        self.state = NetworkState()
        self.feed = Feed(self.state, clock())
        self._subscriptions: set[Subscription] = set()
        self._etag: str | None = None
        self._topology_is_stale = True
        self._read_s: dict[str, float] = {}
        """When each document was read last."""

    # -- for pages

    @contextmanager
    def subscribe(self, *wanted: str) -> Iterator[Subscription]:
        """Changes from now on, and of these documents."""
        found = Subscription(*wanted)
        self._subscriptions.add(found)
        try:
            yield found
        finally:
            self._subscriptions.discard(found)

    def read_again(self, paths: Iterable[str]) -> None:
        """Read these documents as soon as possible, as far as a page wants them: something was changed."""
        for path in paths:
            self._read_s.pop(path, None)

    def now_unix_s(self, at_s: float) -> float:
        """Unix time of a time of our clock."""
        return time.time() - (self.clock() - at_s)

    # -- the tasks

    async def run(self) -> None:
        """Read for ever."""
        async with self._http() as http:
            await asyncio.gather(self._follow(http), self._documents(http))

    def _http(self) -> httpx.AsyncClient:
        headers = {} if self.source.token is None else {"Authorization": f"Bearer {self.source.token}"}
        verify: Any = True
        if self.source.ca is not None:
            import ssl

            verify = ssl.create_default_context(cafile=self.source.ca)
        return httpx.AsyncClient(
            base_url=self.source.url + PREFIX, headers=headers, verify=verify, timeout=TIMEOUT_S, trust_env=False
        )

    async def _follow(self, http: httpx.AsyncClient) -> None:
        while True:
            reason = await self._attempt(lambda: self._stream(http))
            self._tell(self.feed.lost(reason or "the controller ended the stream", self.clock()))
            await asyncio.sleep(max(0.0, self.feed.next_attempt_s - self.clock()))

    async def _attempt(self, do: Callable[[], Awaitable[None]]) -> str:
        """Why it did not work."""
        try:
            await do()
        except httpx.HTTPStatusError as error:
            return _refusal(error.response.status_code)
        except (httpx.HTTPError, httpx_sse.SSEError, OSError) as error:
            return f"{self.source.url}: {_words(error)}"
        except FeedError as error:
            return f"{self.source.url}: no answer of a controller: {error}"
        return ""

    async def _stream(self, http: httpx.AsyncClient) -> None:
        headers = {} if self.feed.last_event is None else {"Last-Event-ID": str(self.feed.last_event)}
        query = {"kinds": ",".join(KINDS)}
        # The live document comes each second; whoever says nothing for five is taken for gone.
        timeout = httpx.Timeout(TIMEOUT_S, read=5.0)
        async with httpx_sse.aconnect_sse(
            http, "GET", "/events", params=query, headers=headers, timeout=timeout
        ) as stream:
            if stream.response.status_code != httpx.codes.OK:
                stream.response.raise_for_status()
                raise FeedError(f"status {stream.response.status_code}")
            self.feed.connected(self.clock())
            self._topology_is_stale = True
            async for event in stream.aiter_sse():
                self._tell(self.feed.take(event.id, event.event, event.data, self.clock()))

    async def _documents(self, http: httpx.AsyncClient) -> None:
        while True:
            topology, wanted = self.state.topology, self.state.wanted_topology
            if topology is None or topology.version != wanted:
                self._topology_is_stale = True
            paths = set[str]().union(*(each.wanted for each in self._subscriptions))
            if self._topology_is_stale:
                paths.add(TOPOLOGY)
            for path in sorted(paths) if self.feed.connection.phase is not Phase.LOST else ():
                every_s = SELDOM_S if path in SELDOM else DOCUMENT_EVERY_S
                if self.clock() - self._read_s.get(path, -every_s) >= every_s:
                    self._read_s[path] = self.clock()
                    await self._attempt(partial(self._read, http, path))
            await asyncio.sleep(0.1)

    async def _read(self, http: httpx.AsyncClient, path: str) -> None:
        if path == TOPOLOGY:
            self._topology_is_stale = False
            headers = {} if self._etag is None else {"If-None-Match": self._etag}
            answer = await http.get(path, headers=headers)
            if answer.status_code == httpx.codes.NOT_MODIFIED:
                return
            answer.raise_for_status()
            changes = self.state.take_topology(_document(answer))
            self._etag = answer.headers.get("ETag")
            self._tell(changes)
            return
        answer = await http.get(path)
        if answer.status_code == httpx.codes.NOT_FOUND:
            self._tell(self.state.take_refusal(path, _reason(_document(answer))))
            return
        self._tell(self.state.take_document(path, _document(answer.raise_for_status())))

    def _tell(self, changes: Changes) -> None:
        if changes != Changes():
            for each in self._subscriptions:
                each.add(changes)


def ask(source: Source, token: str | None, what: Callable[[Client], Any]) -> Any:
    """One request with somebody's token; HyroadsError. Blocks: call it in a thread."""
    with source.client(token) as client:
        return what(client)


def identity(source: Source, token: str | None) -> Mapping[str, Any]:
    """Who a token belongs to: ``name``, ``role``, and whether the controller has tokens at all; HyroadsError."""
    found = ask(source, token, lambda client: client.get("/identity"))
    if not isinstance(found, dict) or not isinstance(found.get("role"), str):
        raise HyroadsError(f"{source.url}: no answer of a controller")
    return found


def _document(answer: httpx.Response) -> object:
    try:
        return parse(answer.content)
    except JsonError as error:
        raise FeedError(str(error)) from error


def _reason(problem: object) -> str:
    """The reason in a problem document of the controller."""
    found = problem if isinstance(problem, dict) else {}
    return str(found.get("detail") or found.get("title") or "the controller does not have it")


def _refusal(status: int) -> str:
    if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        return f"the controller refuses the dashboard's token ({status}): see --token-file"
    return f"the controller answers with status {status}"


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
