"""``hyroads fetch``: files over all interfaces, whole and of one version, or not at all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .engine import Engine
from .http1 import Headers, ProtocolError, Url, parse_url
from .interfaces import DownloadError, InputError, Interface, is_this_machine
from .names import is_name_of_here, resolve
from .opening import SECRET_HEADERS, Opened, Opener, closing, common_headers
from .partfile import PartFile, Version, name_of
from .ranges import FIRST_BYTES
from .transfers import Source, Transfer, changed

_JOURNAL_S = 1.0
_SYNC_S = 15.0
_PLAIN_TRIES = 3
_BUFFER_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Request:
    """A file to fetch: its address and mirrors, where it goes (None: the name in the URL), its weight among several,
    and a checksum, ``(algorithm, hexadecimal digits)``.
    """

    url: str
    output: Path | None = None
    mirrors: tuple[str, ...] = ()
    weight: float = 1.0
    checksum: tuple[str, str] | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()
    force: bool = False
    no_resume: bool = False


@dataclass(eq=False)
class Download:
    """A file on its way, as progress bars and reports show it. ``split``: over several interfaces."""

    request: Request
    url: Url
    path: Path
    length: int | None = None
    split: bool = False
    resumed_bytes: int = 0
    received_bytes: int = 0
    began_s: float = field(default_factory=time.monotonic)
    ended_s: float = 0.0
    bytes_by_interface: dict[str, int] = field(default_factory=dict)
    error: DownloadError | None = None
    transfer: Transfer | None = None

    @property
    def seconds(self) -> float:
        """How long it took, or has taken so far."""
        return max(1e-6, (self.ended_s or time.monotonic()) - self.began_s)

    @property
    def rate_mbps(self) -> float:
        """What was received, over that time."""
        return self.received_bytes * 8e-6 / self.seconds


def paths_of(requests: Sequence[Request]) -> list[Path]:
    """Where the files go; raises InputError if two have the same place."""
    paths = [request.output or Path(name_of(parse_url(request.url).target)) for request in requests]
    for number, path in enumerate(paths):
        if path in paths[:number]:
            raise InputError(f"{path}: two of the URLs would be written there (fetch them one after the other with -o)")
        if not path.absolute().parent.is_dir():
            raise InputError(f"{path}: no such folder")
        if path.is_dir():
            raise InputError(f"{path}: is a folder")
    return paths


def is_local(url: Url) -> bool:
    """Whether a server is this machine itself, which is reached by ``lo`` alone."""
    if not is_name_of_here(url.origin.host):
        return False
    try:
        return is_this_machine(resolve(url.origin.host, url.origin.port)[0])
    except OSError:
        return False


class Fetcher:
    """Fetches files side by side with one engine."""

    def __init__(self, engine: Engine, say: Callable[[str], None]) -> None:
        self._engine, self._say = engine, say
        self._stop = threading.Event()
        self._opener = Opener(engine.interfaces, engine.tls, self._stop)

    def run(self, requests: Sequence[Request], watch: Callable[[Sequence[Download]], None]) -> list[Download]:
        """Fetch all; ``watch`` is called ten times a second. KeyboardInterrupt ends it, with journals written."""
        paths = paths_of(requests)
        parts = _parts(requests, paths)
        downloads = [
            Download(request, parse_url(request.url), path) for request, path in zip(requests, paths, strict=True)
        ]
        threads = [
            threading.Thread(target=self._fetch, args=(download, part), daemon=True)
            for download, part in zip(downloads, parts, strict=True)
        ]
        self._engine.start()
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.1)
                    watch(downloads)
        finally:
            self._stop.set()
            for download in downloads:
                if download.transfer is not None:
                    self._engine.end(download.transfer)
            for thread in threads:
                thread.join(10.0)
            self._engine.close()
        return downloads

    def _fetch(self, download: Download, part: PartFile) -> None:
        keep = False
        try:
            keep = self._fetched(download, part)
        except DownloadError as error:
            download.error = error
        except OSError as error:
            download.error = DownloadError(f"{download.url.short}: {error.strerror or error}")
        finally:
            download.ended_s = download.ended_s or time.monotonic()
            if not keep and download.error is None:
                download.error = DownloadError(f"{download.url.short}: ended early")
            part.close(discard=not keep and not part.journal.exists())

    def _fetched(self, download: Download, part: PartFile) -> bool:
        """Fetch one file; whether anything of it is to be kept."""
        opened = self._opener.open(download.url, download.request.headers)
        with closing(opened):
            sources = self._sources(download, opened)
            download.length = opened.length
            validated = opened.answer.validator is not None or download.request.checksum is not None
            validated &= opened.answer.length is not None
            if opened.answer.status == 206 and validated and not (opened.is_whole and not part.journal.exists()):
                return self._in_parts(download, part, opened, sources)
            if (opened.length or 0) > FIRST_BYTES or opened.length is None:
                self._say(f"{download.url.short}: {_why_plain(opened)}; one connection, over {opened.interface.name}")
        return self._plain(download, part, opened)

    # -- servers -------------------------------------------------------------------------------------------------------

    def _sources(self, download: Download, opened: Opened) -> list[Source]:
        """The server and its mirrors, which must have the same file."""
        request = download.request
        found = [self._source(opened, download.url, request.headers)]
        for text in request.mirrors:
            url = parse_url(text)
            # What is secret is the first server's.
            headers = [(n, v) for n, v in request.headers if n.lower() not in SECRET_HEADERS]
            mirror = self._opener.open(url, headers)
            mirror.connection.close()
            for what, here, there in (
                ("length", opened.length, mirror.length),
                ("version (ETag or date)", opened.answer.validator, mirror.answer.validator),
            ):
                if here != there and not (what != "length" and request.checksum):
                    hint = "" if what == "length" else " (with --checksum only lengths must agree)"
                    found_there = f"{what} {_shown(there)}, not {_shown(here)}{hint}"
                    raise DownloadError(f"{url.short}: not the file of {download.url.short}: {found_there}")
            if mirror.answer.status == 206:
                found.append(self._source(mirror, url, headers))
            else:
                self._say(f"{url.short}: takes no ranges, so it is not used")
        return found

    def _source(self, opened: Opened, asked: Url, headers: Headers) -> Source:
        def renew(interface: Interface) -> Url:
            again = self._opener.follow(asked, headers, interface)
            again.connection.close()
            if again.answer.validator != opened.answer.validator or again.length != opened.length:
                was, now = opened.answer.validator or b"", again.answer.validator or b""
                raise changed(asked.short, "version", was, now)
            source.url = again.url
            return again.url

        url = opened.url
        same = url.origin == asked.origin
        fit = [(name, value) for name, value in common_headers(headers) if same or name.lower() not in SECRET_HEADERS]
        source = Source(url, opened.answer.validator, [(b"Host", url.origin.authority.encode()), *fit])
        source.renew = renew if url != asked else None
        return source

    # -- in parts, over all interfaces ---------------------------------------------------------------------------------

    def _in_parts(self, download: Download, part: PartFile, opened: Opened, sources: Sequence[Source]) -> bool:
        # The answer was checked when it came: it holds the first bytes.
        _, first_end, length = opened.answer.content_range or (0, 0, 0)
        version = Version(str(download.url), length, opened.answer.validator)
        done, why = part.resume(version) if not download.request.no_resume else ([], "")
        if why:
            self._say(f"{download.path}: begins again: {why}")
        if not done:
            part.empty()
        part.allocate(version.length)
        download.split = True
        download.resumed_bytes = sum(end - begin for begin, end in done)
        transfer = Transfer(download.url.short, version.length, sources, part)
        transfer.bytes_by_interface = download.bytes_by_interface
        download.transfer = transfer
        fresh = not any(begin < first_end for begin, _ in done)
        stream = (opened.connection, opened.interface, first_end) if fresh else None
        accepts = {each.number for source in sources for each in self._opener.reaching(source.url)}
        self._engine.add(transfer, download.request.weight, accepts, done=done, stream=stream)
        try:
            whole = self._journal(download, transfer, part, version)
        finally:
            self._engine.remove(transfer)
        if transfer.error is not None:
            raise transfer.error
        if whole:
            self._checked(download, part, version.length)
        return True

    def _journal(self, download: Download, transfer: Transfer, part: PartFile, version: Version) -> bool:
        """Wait for the end of a transfer, and write down what is there meanwhile; whether all is."""
        engine = self._engine
        noted_s = synced_s = time.monotonic()
        while True:
            with engine.changed:
                if not transfer.over:
                    engine.changed.wait(0.1)
                over = transfer.over or self._stop.is_set()
                done = engine.scheduler.done(transfer.number)
                copy = type(done)(done)
                whole = engine.scheduler.complete(transfer.number)
            download.received_bytes = copy.total - download.resumed_bytes
            now_s = time.monotonic()
            if whole:
                download.ended_s = now_s
                return True
            if over or now_s - noted_s >= _JOURNAL_S:
                sync = over or now_s - synced_s >= _SYNC_S
                part.note(version, copy, sync=sync)
                noted_s, synced_s = now_s, now_s if sync else synced_s
            if over:
                return False

    def _checked(self, download: Download, part: PartFile, length: int) -> None:
        """The whole file gets its name, if its checksum is right."""
        if download.request.checksum is not None:
            algorithm, wanted = download.request.checksum
            found = part.digest(algorithm)
            if found != wanted:
                part.empty()
                raise DownloadError(f"{download.url.short}: {algorithm} is {found}, not {wanted}; nothing was kept")
        part.finish(length)

    # -- in one piece --------------------------------------------------------------------------------------------------

    def _plain(self, download: Download, part: PartFile, opened: Opened) -> bool:
        """The whole file over one connection; begun again if that breaks, as it can't be gone on with."""
        for attempt in range(_PLAIN_TRIES):
            part.empty()
            download.received_bytes = 0
            try:
                if attempt or not opened.is_whole:
                    opened.connection.close()
                    opened = self._opener.open(download.url, download.request.headers, ranged=False)
                with closing(opened):
                    if not opened.is_whole:
                        raise DownloadError(f"{download.url.short}: status {opened.answer.status} for the whole file")
                    self._drain(download, part, opened)
                opened.connection.close()
                break
            except OSError as error:
                if self._stop.is_set():
                    return False
                if attempt == _PLAIN_TRIES - 1:
                    raise DownloadError(f"{download.url.short}: {error.strerror or error}") from error
                self._say(f"{download.url.short}: {error.strerror or error}; begins again")
        download.ended_s = time.monotonic()
        self._checked(download, part, download.received_bytes)
        return True

    def _drain(self, download: Download, part: PartFile, opened: Opened) -> None:
        connection, buffer = opened.connection, memoryview(bytearray(_BUFFER_BYTES))
        moved_s = time.monotonic()
        connection.tick = lambda: self._opener.tick(moved_s + 30.0)
        if opened.answer.length is not None:
            part.allocate(opened.answer.length)
        while True:
            if opened.answer.chunked:
                data = memoryview(connection.read_chunk())
            else:
                data = buffer[: connection.read_into(buffer[: self._engine.limiter.most_bytes])]
            if not data:
                break
            part.write(download.received_bytes, data)
            moved_s = time.monotonic()
            download.received_bytes += len(data)
            name = opened.interface.name
            download.bytes_by_interface[name] = download.bytes_by_interface.get(name, 0) + len(data)
            opened.interface.received_bytes += len(data)
            self._engine.limiter.took(len(data))
            if self._stop.is_set():
                raise ProtocolError("interrupted")


def _parts(requests: Sequence[Request], paths: Sequence[Path]) -> list[PartFile]:
    """All part files, open; none if one can't be."""
    parts = list[PartFile]()
    try:
        for request, path in zip(requests, paths, strict=True):
            parts.append(PartFile(path, force=request.force))
    except DownloadError:
        for part in parts:
            part.close(discard=not part.journal.exists())
        raise
    return parts


def _why_plain(opened: Opened) -> str:
    if opened.answer.status == 200:
        return "the server takes no ranges"
    if opened.answer.status == 416:
        return "an empty file"
    if opened.answer.length is None:
        return "the server sends parts without their length"
    return "the server names no version of the file (strong ETag or old enough date; --checksum would do)"


def _shown(value: bytes | int | None) -> str:
    return "unknown" if value is None else value[:80].decode("latin-1") if isinstance(value, bytes) else f"{value:,}"
