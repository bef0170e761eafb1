"""The beginning of a download: the first answer of a server, over the interface that has it first."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from .http1 import Answer, Connection, Headers, TlsClient, Url
from .interfaces import DownloadError, Interface, reaching
from .ranges import FIRST_BYTES
from .transfers import certificate_problem

_OPEN_S = 10.0
# The next interface is tried after this time without an answer.
_NEXT_S = 0.3
_MOST_REDIRECTS = 10
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
SECRET_HEADERS = frozenset({b"authorization", b"cookie"})


@dataclass(frozen=True)
class Opened:
    """The first answer of a server, with what is on its way behind it."""

    url: Url
    answer: Answer
    connection: Connection
    interface: Interface

    @property
    def length(self) -> int | None:
        """Length of the whole file; None if the server doesn't say."""
        found = self.answer.content_range
        return found[2] if self.answer.status == 206 and found is not None else self.answer.length

    @property
    def is_whole(self) -> bool:
        """Whether the body is the whole file."""
        found = self.answer.content_range
        if self.answer.status == 206 and self.answer.length is not None:
            return found is not None and found[:2] == (0, found[2])
        return self.answer.status == 200


class Opener:
    """Asks servers over interfaces until ``stop`` is set."""

    def __init__(self, interfaces: Sequence[Interface], tls: TlsClient, stop: threading.Event) -> None:
        self._interfaces, self._tls, self._stop = interfaces, tls, stop

    def open(self, url: Url, headers: Headers, *, ranged: bool = True) -> Opened:
        """The first answer of a server, over the interface that has it first."""
        answers: queue.SimpleQueue[Opened | Exception] = queue.SimpleQueue()
        waiting, problems = self.reaching(url), list[Exception]()
        running, over_s = 0, time.monotonic() + _OPEN_S + _NEXT_S * len(waiting)
        won = threading.Lock()

        def work(interface: Interface) -> None:
            try:
                opened = self.follow(url, headers, interface, ranged=ranged)
            except (OSError, DownloadError) as error:
                answers.put(error)
                return
            if won.acquire(blocking=False):
                answers.put(opened)
            else:
                opened.connection.close()

        while not self._stop.is_set() and (running or waiting) and time.monotonic() < over_s:
            if waiting:
                running += 1
                threading.Thread(target=work, args=(waiting.pop(0),), daemon=True).start()
            try:
                result = answers.get(timeout=_NEXT_S)
            except queue.Empty:
                continue
            if isinstance(result, Opened):
                return result
            running -= 1
            problems.append(result)
            if isinstance(result, DownloadError):
                break
        problem = problems[-1] if problems else TimeoutError(f"no answer within {_OPEN_S:g} s")
        if isinstance(problem, DownloadError):
            raise problem
        text = certificate_problem(problem) or getattr(problem, "strerror", None) or str(problem)
        raise DownloadError(f"{url.short}: {url.origin.authority}: {text}") from problem

    def reaching(self, url: Url) -> list[Interface]:
        """The interfaces that may lead to a server."""
        return reaching(self._interfaces, url.origin.host, url.origin.port)

    def follow(self, url: Url, headers: Headers, interface: Interface, *, ranged: bool = True) -> Opened:
        """Ask for the first bytes (all of them if not ``ranged``), and follow redirects."""
        over_s = time.monotonic() + _OPEN_S
        first, sent = url, common_headers(headers)
        sent += [(b"Range", b"bytes=0-%d" % (FIRST_BYTES - 1))] if ranged else []
        for _ in range(_MOST_REDIRECTS + 1):
            connection = Connection.open(url.origin, interface, self._tls, _OPEN_S)
            connection.tick = lambda: self.tick(over_s)
            try:
                same = url.origin == first.origin
                fit = [(name, value) for name, value in sent if same or name.lower() not in SECRET_HEADERS]
                answer = connection.ask("GET", url.target, [(b"Host", url.origin.authority.encode()), *fit])
                location = answer.text(b"location")
                if answer.status not in _REDIRECTS or location is None:
                    _check_first(url, answer)
                    return Opened(url, answer, connection, interface)
                url = url.joined(location)
            except BaseException:
                connection.close()
                raise
            connection.close()
        raise DownloadError(f"{first.short}: more than {_MOST_REDIRECTS} redirects")

    def tick(self, over_s: float) -> None:
        """End a wait that is over, or of no use any more."""
        if self._stop.is_set() or time.monotonic() > over_s:
            raise TimeoutError(f"no answer within {_OPEN_S:g} s")


@contextmanager
def closing(opened: Opened) -> Iterator[None]:
    """A first connection does not outlive its use: an engine that reads on from it closes it, too."""
    try:
        yield
    except BaseException:
        opened.connection.close()
        raise


def common_headers(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Those of every request, unless a user gave others."""
    given = {name.lower() for name, _ in headers}
    usual = [(b"User-Agent", b"hyroads-fetch"), (b"Accept", b"*/*"), (b"Accept-Encoding", b"identity")]
    return [*(each for each in usual if each[0].lower() not in given), *headers]


def _check_first(url: Url, answer: Answer) -> None:
    """Whether the answer to the first request is one that a download can begin with."""
    if answer.status == 416 and (answer.header(b"content-range") or b"").replace(b" ", b"") == b"bytes*/0":
        return
    if answer.status not in {200, 206}:
        reason = answer.reason[:60].decode("latin-1")
        raise DownloadError(f"{url.short}: status {answer.status} {reason}".rstrip())
    if answer.status == 206:
        found = answer.content_range
        if found is None or found[0] != 0 or answer.length not in {None, found[1]}:
            text = (answer.header(b"content-range") or b"nothing")[:80].decode("latin-1")
            raise DownloadError(f"{url.short}: asked for the first bytes, got {text!a}")
