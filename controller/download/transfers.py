"""Files on their way, servers' copies of them, and whether an answer is the part of the file that was asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from .http1 import Answer, Headers, Url
from .interfaces import DownloadError, Interface

_MOST_REFUSALS = 5
_MOST_PAUSE_S = 10.0
_ELSEWHERE = frozenset({301, 302, 303, 307, 308, 401, 403, 404, 410})


class Sink(Protocol):
    """Where the bytes of a file go."""

    def write(self, offset: int, data: memoryview) -> None:
        """Take bytes; the buffer is used again afterwards."""


@dataclass(eq=False)
class Source:
    """A server's copy of a file; ``validator`` names the version that all pieces must be of (None: nothing does)."""

    url: Url
    validator: bytes | None
    headers: Headers = ()
    paused_until_s: float = 0.0
    refusals: int = 0
    renew: Callable[[Interface], Url] | None = None
    """Asks the original address again where the file is, when this one no longer answers."""


@dataclass(eq=False)
class Transfer:
    """A file on its way."""

    name: str
    length: int
    sources: Sequence[Source]
    sink: Sink
    number: int = -1
    error: DownloadError | None = None
    over: bool = False
    moved_s: float = 0.0
    last_problem: str = ""
    bytes_by_interface: dict[str, int] = field(default_factory=dict)


def check_piece(answer: Answer, begin: int, end: int, transfer: Transfer, source: Source) -> None:
    """Check that an answer of status 206 has bytes from ``begin`` on, none behind ``end``, of the same version.

    Raises DownloadError if not: what such a server sends can't be believed.
    """
    name, was = source.url.short, source.validator or b""
    what = "ETag" if was.startswith(b'"') else "Last-Modified"
    now = answer.header(what.lower().encode())
    if was and now is not None and was != now:
        raise changed(name, what, was, now)
    found = answer.content_range
    if found is None:
        kind = answer.text(b"content-type") or "nothing"
        raise DownloadError(f"{name}: the answer to a range names no range that can be read ({kind[:60]!a})")
    if found[2] != transfer.length:
        raise changed(name, "length", b"%d" % transfer.length, b"%d" % found[2])
    if found[0] != begin or found[1] > end or answer.length != found[1] - found[0]:
        asked, got = f"bytes {begin}-{end - 1}", f"bytes {found[0]}-{found[1] - 1}"
        size = "unknown length" if answer.length is None else f"{answer.length} bytes"
        raise DownloadError(f"{name}: asked for {asked}, got {got} in a body of {size}")
    source.refusals = 0


def must_move(answer: Answer, transfer: Transfer, source: Source, interfaces: int) -> bool:
    """Whether a source is to be looked for again, after an answer of another status than 206; it rests for a while.

    Raises DownloadError if the file is another one now, or if all servers have refused too often over so many
    ``interfaces``.
    """
    name = source.url.short
    if answer.status == 200:
        now = answer.validator
        if source.validator is not None and now != source.validator:
            raise changed(name, "version", source.validator, now or b"unknown")
        raise DownloadError(f"{name}: the server took ranges at first, and now sends the whole file")
    if answer.status == 416:
        raise DownloadError(f"{name}: the server said {transfer.length} bytes, and now that there are fewer")
    transfer.last_problem = f"{name}: status {answer.status}"
    source.refusals += 1
    much = source.refusals > _MOST_REFUSALS * interfaces
    if much and all(each.refusals > _MOST_REFUSALS for each in transfer.sources):
        raise DownloadError(f"{name}: status {answer.status} for a part of a file whose beginning it sent")
    source.paused_until_s = time.monotonic() + _pause_s(answer, source.refusals)
    return answer.status in _ELSEWHERE


def certificate_problem(error: BaseException) -> str | None:
    """What is wrong with a server's certificate, if that is what the error says."""
    return getattr(error, "verify_message", None)


def changed(name: str, what: str, was: bytes, now: bytes) -> DownloadError:
    """The file is not the one that the download began with."""
    texts = [value[:80].decode("latin-1") for value in (was, now)]
    return DownloadError(f"{name}: changed while it was fetched: its {what} was {texts[0]} and is now {texts[1]}")


def _pause_s(answer: Answer, refusals: int) -> float:
    """How long to leave a server alone."""
    told = answer.text(b"retry-after") or ""
    if told.isdecimal() and len(told) < 6:
        return min(_MOST_PAUSE_S, float(told))
    return min(_MOST_PAUSE_S, 0.05 * float(2**refusals))
