"""A JSON file that outlives its process, whatever happens to the disk or to the file.

The first line holds a checksum of all that follows it. A new file is written beside the old one and put in its place;
the old one stays as the older copy (``NAME.1``), which is read when the file itself is broken or gone. A broken file is
put aside under a name of its own and never written over; so is one of a later version than this program knows. Files
of earlier versions are migrated, one version at a time.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from hyroads.controller.core.document import load_json
from hyroads.controller.core.errors import ConfigError

from .private import put_in_place, sync_folder, write_beside

Document = Mapping[str, Any]
WRONG = (TypeError, ValueError, KeyError, AttributeError)
"""What values of wrong types raise."""
MAX_BYTES = 64 * 1024 * 1024
MOST_ASIDE = 8
"""Files put aside of each kind; the oldest go."""
_HEAD, _HEX, _END = '{"checksum": "', 64, '",\n'
_KINDS: Mapping[type, str] = {dict: "mapping", list: "list", str: "text"}
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS}


class JsonText(tuple[str, ...]):
    """The JSON of a value, as it goes into the file, in parts that follow each other: to put a large one together again
    and again takes longer than to write it.
    """

    __slots__ = ()


@dataclass(frozen=True)
class Format:
    """``sections`` are the members of a document of this version and their types (``object``: any); ``migrations`` make
    a document of a version one of the next.
    """

    version: int
    sections: Mapping[str, type]
    migrations: Mapping[int, Callable[[Document], Document]]
    checked_from: int
    """Files of earlier versions have no checksum."""
    first: int | None = None
    """The version of a file that names none."""
    whole: Callable[[Document], object] | None = None
    """Where a part of a document is of no use: raises what a wrong value raises."""


@dataclass(frozen=True)
class Parsed:
    """What a text says. With a ``problem`` the document is what is left of it, if anything."""

    document: Document | None
    problem: str | None = None
    newer: int | None = None
    """Its version, if this program knows only earlier ones."""


class Origin(StrEnum):
    """Where the content came from."""

    NOTHING = "nothing"
    FILE = "file"
    OLDER = "older copy"


@dataclass(frozen=True)
class Broken:
    """A file that is not what it should be; ``aside`` is its name now, None if it could not be moved."""

    file: str
    problem: str
    aside: str | None

    def __str__(self) -> str:
        where = f"put aside as {self.aside}" if self.aside else "left where it is"
        return f"{self.file} is broken: {self.problem}; {where}"


@dataclass(frozen=True)
class Content:
    """What a process starts with, and what was wrong on the way to it."""

    document: Document | None = None
    origin: Origin = Origin.NOTHING
    broken: tuple[Broken, ...] = ()


def text_of(form: Format, sections: Document) -> str:
    """The text of a file, one line a section; a section may be given as a :class:`JsonText`."""
    body = _body(form, sections)
    return f"{_head(hashlib.sha256(body).hexdigest())}{body.decode()}"


def _head(digest: str) -> str:
    return f"{_HEAD}{digest}{_END}"


def _body(form: Format, sections: Document) -> bytes:
    """What the checksum is of."""
    parts: list[str] = []
    for name, value in {"version": form.version, **sections}.items():
        text = value if isinstance(value, JsonText) else (json.dumps(value),)
        parts += (",\n" if parts else "", json.dumps(name), ": ", *text)
    return "".join([*parts, "\n}\n"]).encode()


def parse(text: str, name: str, form: Format) -> Parsed:
    """What the text of a file says; never an error."""
    try:
        document = load_json(text, name)
    except ConfigError as error:
        return Parsed(None, f"{error.place}: {error.problem}" if error.place else error.problem)
    version = document.get("version", form.first) if isinstance(document, dict) else None
    if type(version) is not int or version < 1:
        return Parsed(None, f"expected a state file of version {form.version}")
    if version > form.version:
        return Parsed(None, f"it is of version {version}, later than {form.version}, which is known here", version)
    damage = None
    if version >= form.checked_from and not _is_whole(text):
        damage = "its checksum is wrong"
    try:
        for number in range(version, form.version):
            document = form.migrations[number](document)
    except WRONG as error:
        return Parsed(None, f"can't be migrated from version {version}: {error}")
    wrong = [
        section
        for section, kind in form.sections.items()
        if section not in document or not isinstance(document[section], kind)
    ]
    if wrong:
        damage = damage or f"{wrong[0]}: expected a {_KINDS.get(form.sections[wrong[0]], 'value')}"
    sound = {name: document[name] for name in form.sections if name not in wrong}
    if form.whole is None:
        return Parsed(sound, damage)
    try:
        if damage is None:
            form.whole(sound)
    except WRONG as error:
        damage = f"{type(error).__name__}: {error}"
    return Parsed(None if damage else sound, damage)


def _is_whole(text: str) -> bool:
    body = len(_HEAD) + _HEX + len(_END)
    digest = hashlib.sha256(text[body:].encode("utf-8", "surrogatepass")).hexdigest()
    return text[:body] == _head(digest)


class StateFile:
    """One file and its older copy. Only one process has it."""

    def __init__(self, path: Path, form: Format) -> None:
        self.path = path
        self.older = path.with_name(path.name + ".1")
        self._form = form
        self._written: str | None = None
        """The checksum of what was last written."""
        self._in_the_way: dict[Path, str] = {}

    @property
    def is_open_to_others(self) -> bool:
        """Whether somebody else than its owner may read the file."""
        try:
            return bool(self.path.stat().st_mode & 0o077) and self.path.is_file()
        except OSError:
            return False

    def load(self) -> Content:
        """The file if it is sound, else the older copy if that is, else what is left of either. Never an error."""
        broken: list[Broken] = []
        remains: tuple[Document, Origin] | None = None
        for path, origin in ((self.path, Origin.FILE), (self.older, Origin.OLDER)):
            parsed = self._parsed(path)
            if parsed is None:
                continue
            if parsed.problem is None:
                if origin is Origin.OLDER and not broken:
                    broken.append(Broken(str(self.path), "it is missing", None))
                return Content(parsed.document, origin, tuple(broken))
            kind = "broken" if parsed.newer is None else f"version-{parsed.newer}"
            broken.append(Broken(str(path), parsed.problem, self._put_aside(path, kind)))
            if remains is None and parsed.document is not None:
                remains = parsed.document, origin
        document, origin = remains or (None, Origin.NOTHING)
        return Content(document, origin, tuple(broken))

    def _parsed(self, path: Path) -> Parsed | None:
        """None: there is no such file."""
        try:
            text = _read(path)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            return Parsed(None, f"can't be read: {getattr(error, 'strerror', None) or error}")
        return parse(text, str(path), self._form)

    def save(self, sections: Document) -> None:
        """Write what differs from what was last written; OSError if that is not possible, and all is as before."""
        body = _body(self._form, sections)
        digest = hashlib.sha256(body).hexdigest()
        if digest == self._written and self.path.exists():
            return
        # After a failure the next try has to find out whether it can be written.
        self._written = None
        if len(body) > MAX_BYTES:
            raise OSError(errno.EFBIG, f"more than {MAX_BYTES} bytes are to be saved")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._clear_the_way()
        new = write_beside(self.path, _head(digest).encode(), body)
        try:
            self._turn_over()
            put_in_place(new, self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)
            raise
        self._written = digest

    def _turn_over(self) -> None:
        """What is there becomes the older copy; it is also there under its name until the new one is."""
        if not self.path.exists():
            return
        link = self.older.with_name(self.older.name + ".new")
        link.unlink(missing_ok=True)
        try:
            os.link(self.path, link)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            self.path.replace(self.older)
        else:
            link.replace(self.older)

    def _clear_the_way(self) -> None:
        """What could not be put aside at the start, or came since and is no file, is put aside before it is lost."""
        for path in (self.path, self.older):
            kind = self._in_the_way.get(path, "broken")
            if path in self._in_the_way or (os.path.lexists(path) and not path.is_file()):
                path.rename(self._aside_name(kind))
                self._in_the_way.pop(path, None)

    def copy_aside(self) -> str | None:
        """Keeps what was read, since the next save will leave some of it out; the copy's name, None if it failed."""
        name = self._aside_name("replaced")
        try:
            os.link(self.path, name)
            sync_folder(self.path.parent)
        except OSError:
            return None
        self._prune("replaced")
        return name.name

    def _put_aside(self, path: Path, kind: str) -> str | None:
        name = self._aside_name(kind)
        try:
            path.rename(name)
        except OSError:
            self._in_the_way[path] = kind
            return None
        self._prune(kind)
        return name.name

    def _aside_name(self, kind: str) -> Path:
        stem = f"{self.path.name}.{kind}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
        names = (self.path.with_name(f"{stem}-{number}" if number else stem) for number in range(1 << 16))
        return next(name for name in names if not os.path.lexists(name))

    def _prune(self, kind: str) -> None:
        found = sorted(self._asides(kind), key=lambda path: path.lstat().st_ctime_ns)
        for path in found[:-MOST_ASIDE]:
            with contextlib.suppress(OSError):
                path.unlink()

    def _asides(self, kind: str) -> Iterator[Path]:
        prefix = f"{self.path.name}.{kind}-"
        return (path for path in self.path.parent.iterdir() if path.name.startswith(prefix) and not path.is_dir())


def _read(path: Path) -> str:
    """The text of a file, which others may not read any more; OSError, ValueError. A pipe, say, is not waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("expected a file")
        if status.st_mode & 0o077:
            with contextlib.suppress(OSError):
                os.fchmod(descriptor, 0o600)
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"expected at most {MAX_BYTES} bytes")
    return data.decode("utf-8")
