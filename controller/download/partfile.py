"""The file that a download goes to: ``FILE.part`` with a journal beside it until all bytes are there and checked.

The journal names the resource, its length and version, and which bytes are in the part file. After ``kill -9`` these
bytes are in the kernel's memory, so all of them count; after a loss of power only those that were forced to the disk
before the journal said so. The journal tells both, and in which run of the machine it was written.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import stat
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

from .interfaces import DownloadError, InputError
from .intervals import Intervals

_MOST_NAME_BYTES = 200
_MOST_JOURNAL_BYTES = 1 << 22
_VERSION = 1
_BLOCK = 1 << 20


def name_of(target: str) -> str:
    """A file name for a URL's path: its last part, decoded, without anything that could lead elsewhere."""
    last = unquote_to_bytes(target.partition("?")[0].rsplit("/", 1)[-1]).decode("utf-8", "replace")
    clean = "".join(letter if letter.isprintable() and letter not in "/\\" else "_" for letter in last).strip()
    clean = re.sub(r"^[.-]+", lambda match: "_" * len(match[0]), clean)
    while len(clean.encode()) > _MOST_NAME_BYTES:
        clean = clean[1:]
    return clean or "download"


@dataclass(frozen=True, slots=True)
class Version:
    """Which file it is: the URL asked for, its length, and what tells its version (None: nothing does)."""

    url: str
    length: int
    validator: bytes | None

    def document(self) -> dict[str, Any]:
        """As the journal holds it."""
        validator = None if self.validator is None else self.validator.decode("latin-1")
        return {"url": self.url, "length": self.length, "validator": validator}


class PartFile:
    """The part file, open and locked. Several threads may write; each byte is written by whoever has it first."""

    def __init__(self, path: Path, *, force: bool = False) -> None:
        """Open ``path``.part, made if it is not there; an existing ``path`` is an error without ``force``."""
        self.path = path
        self.part = path.with_name(path.name + ".part")
        self.journal = path.with_name(path.name + ".part.json")
        self.force = force
        if not force and os.path.lexists(path):
            raise InputError(f"{path}: exists already (--force overwrites it)")
        if self.part.exists() and not self.journal.exists() and self.part.stat().st_size and not force:
            raise InputError(f"{self.part}: exists and was not written by hyroads fetch (--force overwrites it)")
        self._fd = _open(self.part)
        self._lock = threading.Condition()
        self._writers = 0
        self._synced: list[tuple[int, int]] = []

    def resume(self, version: Version) -> tuple[list[tuple[int, int]], str]:
        """The bytes that an earlier run left, and why none of them count although there are some (else empty)."""
        document = self._read_journal()
        if document is None:
            return [], ""
        if version.validator is None:
            return [], "the server names no version of the file: it can't be told whether what is here is of this one"
        now = version.document()
        for name, what in (("length", "length"), ("validator", "version (ETag or date)")):
            if document.get(name) != now[name]:
                return [], f"{what} was {str(document.get(name))[:80]} and is now {str(now[name])[:80]}"
        pairs = document.get("done" if document.get("boot") == _boot_id() else "synced")
        size = os.fstat(self._fd).st_size
        done = Intervals((begin, end) for begin, end in _pairs(pairs) if end <= min(size, version.length))
        self._synced = [(begin, end) for begin, end in _pairs(document.get("synced")) if end <= size]
        return list(done), ""

    def _read_journal(self) -> dict[str, Any] | None:
        try:
            with self.journal.open("rb") as file:
                document = json.loads(file.read(_MOST_JOURNAL_BYTES))
        except (OSError, ValueError, RecursionError):
            return None
        return document if isinstance(document, dict) and document.get("version") == _VERSION else None

    def allocate(self, length: int) -> None:
        """Room for all of it, at once: a disk that is too small is known before anything is fetched."""
        try:
            os.ftruncate(self._fd, length)
            if length:
                os.posix_fallocate(self._fd, 0, length)
        except OSError as error:
            if error.errno not in {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}:
                os.ftruncate(self._fd, 0)
                raise DownloadError(f"{self.part}: no room for {length:,} bytes ({error.strerror})") from error

    def empty(self) -> None:
        """Begin again."""
        os.ftruncate(self._fd, 0)
        self._synced = []
        self.journal.unlink(missing_ok=True)

    def write(self, offset: int, data: memoryview) -> None:
        """Put bytes at their place; none once the file is closed."""
        with self._lock:
            if self._fd < 0:
                return
            self._writers += 1
        try:
            while data:
                count = os.pwrite(self._fd, data, offset)
                data, offset = data[count:], offset + count
        except OSError as error:
            raise DownloadError(f"{self.part}: {error.strerror}") from error
        finally:
            with self._lock:
                self._writers -= 1
                self._lock.notify_all()

    def note(self, version: Version, done: Intervals, *, sync: bool = False) -> None:
        """Write the journal; with ``sync`` the bytes are forced to the disk first."""
        pairs = list(done)
        if sync:
            os.fdatasync(self._fd)
            self._synced = pairs
        document = {"version": _VERSION, "boot": _boot_id(), **version.document(), "done": pairs}
        text = json.dumps({**document, "synced": self._synced})
        new = self.journal.with_name(self.journal.name + ".new")
        try:
            # Never through a link that somebody else put there.
            new.unlink(missing_ok=True)
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(text)
                if sync:
                    file.flush()
                    os.fsync(descriptor)
            new.replace(self.journal)
        except OSError as error:
            raise DownloadError(f"{self.journal}: {error.strerror}") from error

    def digest(self, algorithm: str) -> str:
        """The checksum of what is in the file."""
        found = hashlib.new(algorithm)
        buffer, offset = memoryview(bytearray(_BLOCK)), 0
        while count := os.preadv(self._fd, [buffer], offset):
            found.update(buffer[:count])
            offset += count
        return found.hexdigest()

    def finish(self, length: int) -> None:
        """All is there: from now on it has its name. Whoever made a file of that name meanwhile keeps it."""
        try:
            os.ftruncate(self._fd, length)
            if self.force:
                self.part.replace(self.path)
            else:
                self._rename()
        except FileExistsError as error:
            raise DownloadError(f"{self.path}: was made meanwhile; all bytes are in {self.part}") from error
        except OSError as error:
            raise DownloadError(f"{self.path}: {error.strerror}") from error
        self.journal.unlink(missing_ok=True)

    def _rename(self) -> None:
        try:
            os.link(self.part, self.path, follow_symlinks=False)
        except PermissionError:
            # A file system without links.
            if os.path.lexists(self.path):
                raise FileExistsError(errno.EEXIST, "exists") from None
            self.part.replace(self.path)
        else:
            self.part.unlink()

    def close(self, *, discard: bool = False) -> None:
        """No more writes; those that are under way end first. ``discard`` removes what is there."""
        with self._lock:
            while self._writers:
                self._lock.wait()
            if self._fd < 0:
                return
            descriptor, self._fd = self._fd, -1
        if discard:
            self.journal.unlink(missing_ok=True)
            self.part.unlink(missing_ok=True)
        os.close(descriptor)


def _open(part: Path) -> int:
    try:
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise InputError(f"{part}: {error.strerror}") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InputError(f"{part}: is no regular file")
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise InputError(f"{part}: another hyroads fetch is writing it") from error
    except InputError:
        os.close(descriptor)
        raise
    return descriptor


def _boot_id() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def _pairs(value: object) -> list[tuple[int, int]]:
    """Intervals of a journal; none if anything about them is wrong."""
    if not isinstance(value, list):
        return []
    for item in value:
        pair = isinstance(item, list) and len(item) == 2 and all(type(number) is int for number in item)
        if not pair or not 0 <= item[0] < item[1]:
            return []
    return [(begin, end) for begin, end in value]
