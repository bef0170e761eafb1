"""The finished tasks of a study in a file of its folder, so that the same command goes on where it was interrupted.

The first line says what the outcomes depend on: study, settings, code, libraries. Each further line is a checksum and
what one task gave. A file of other settings or code is begun anew; a last line that is not whole is dropped.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import platform
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import hyroads.controller
from hyroads.controller import native
from hyroads.controller.core.joined import joined

from .framework import Settings, StudyError
from .outcomes import Classes, OutcomeError, classes_of, decode, encode

NAME = "tasks.jsonl"
_FORMAT = "hyroads kept tasks 1"
_PARTS = ("control", "core", "measure", "model", "native", "study")
"""The folders of the controller that outcomes depend on."""
_NOT_COUNTED = {"drawing.py", "report.py"}
_LIBRARIES = ("numpy", "scipy", "scikit-learn")


@functools.cache
def code_digest() -> str:
    """Of the code, compiled library and versions of libraries that outcomes depend on."""
    digest = hashlib.sha256(joined([str(sys.version_info[:3]), platform.machine()]))
    for library in _LIBRARIES:
        try:
            digest.update(joined([library, metadata.version(library)]))
        except metadata.PackageNotFoundError:
            continue
    root = Path(next(iter(hyroads.controller.__path__)))
    paths = {path for part in _PARTS for path in (root / part).rglob("*.py") if path.name not in _NOT_COUNTED}
    # Of the compiled library the first is meant, as when it is loaded.
    for path in [*sorted(paths), *[path for path in native.candidates() if path.is_file()][:1]]:
        body = path.read_bytes()
        digest.update(joined([path.name, str(len(body))]) + body)
    return digest.hexdigest()


def _traces_digest(folder: Path | None) -> str | None:
    """Of the names, sizes and times of the files there."""
    if folder is None:
        return None
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        at = path.stat()
        # A name may hold bytes that are no text.
        name = os.fsencode(path.relative_to(folder)).hex()
        digest.update(joined([name, str(at.st_size), str(at.st_mtime_ns)]))
    return digest.hexdigest()


class TaskStore:
    """A ``Store`` of the framework: the file ``tasks.jsonl`` of a folder, for one study with certain settings.

    ``StudyError`` if the file is none of ours, or another command writes to it. ``found`` is how many outcomes of an
    earlier run were taken so far, ``refused`` why some can't be kept.
    """

    def __init__(self, folder: Path, name: str, settings: Settings, fresh: bool = False) -> None:
        self.path = folder / NAME
        self.found = 0
        self.count = 0
        self.refused: str | None = None
        self._call = -1
        self._work = ""
        self._count = 0
        self._classes: Classes = {}
        about = {
            "format": _FORMAT,
            "study": name,
            "settings": {
                "runs": settings.runs,
                "seed": settings.seed,
                "quick": settings.quick,
                "traces": _traces_digest(settings.traces),
            },
            "code": code_digest(),
        }
        self._header = json.dumps(about).encode() + b"\n"
        self._rows: dict[tuple[int, str, int, int], str] = {}
        try:
            self._file = self._opened()
            self._take_up(fresh)
        except OSError as error:
            raise StudyError(f"{self.path}: {error.strerror}") from error

    def __enter__(self) -> TaskStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """The file stays, for the next run."""
        self._file.close()

    def _opened(self) -> BinaryIO:
        if self.path.exists() and not self.path.is_file():
            raise StudyError(f"{self.path}: expected a file of kept tasks")
        file = self.path.open("a+b")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise StudyError(f"{self.path}: another study writes to this folder; choose another --out") from None
        return file

    def _take_up(self, fresh: bool) -> None:
        """Read what fits, and cut off what does not."""
        self._file.seek(0)
        first = self._file.readline(1 << 16)
        if first and not self._header.startswith(first) and not _is_header(first):
            self._file.close()
            raise StudyError(f"{self.path}: not a file of kept tasks of HyRoads; remove it or choose another --out")
        good = len(first)
        if fresh or first != self._header:
            self._file.truncate(0)
            self._file.write(self._header)
            self._file.flush()
            return
        for line in self._file:
            row = _read_row(line)
            if row is None:
                break
            self._rows[row[0]] = row[1]
            good += len(line)
        self._file.truncate(good)
        self._file.seek(0, os.SEEK_END)

    def begin(self, work: Callable[[Any], Any], count: int) -> dict[int, Any]:
        """The outcomes that an earlier run has left of the next ``count`` tasks, by the number of the task."""
        self._call += 1
        self._work = f"{work.__module__}.{getattr(work, '__qualname__', type(work).__qualname__)}"
        self._count = count
        self._classes = classes_of(work)
        outcomes = {}
        for number in range(count):
            text = self._rows.pop((self._call, self._work, count, number), None)
            if text is None:
                continue
            try:
                outcomes[number] = decode(text, self._classes)
            except OutcomeError:
                continue
        self.found += len(outcomes)
        self.count += len(outcomes)
        return outcomes

    def add(self, number: int, outcome: Any) -> None:
        """Keep the outcome of one of the tasks of the last ``begin``; ``refused`` says if that can't be done."""
        try:
            text = encode(outcome, self._classes)
        except OutcomeError as error:
            self.refused = f"outcomes of {self._work} can't be kept: {error}"
            return
        body = json.dumps([self._call, self._work, self._count, number, text]).encode()
        try:
            self._file.write(_checksum(body) + b" " + body + b"\n")
            self._file.flush()
        except OSError as error:
            raise StudyError(f"{self.path}: {error.strerror}") from error
        self.count += 1


def forget(folder: Path) -> None:
    """Remove the kept tasks of a folder: its study is complete."""
    (folder / NAME).unlink(missing_ok=True)


def _is_header(line: bytes) -> bool:
    try:
        document = json.loads(line)
    except ValueError:
        return False
    return isinstance(document, dict) and document.get("format") == _FORMAT


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest()[:16].encode()


def _read_row(line: bytes) -> tuple[tuple[int, str, int, int], str] | None:
    """Call, work, number of tasks and of the task, with the outcome as text; None if the line is not whole."""
    checksum, _, body = line.rstrip(b"\n").partition(b" ")
    if not line.endswith(b"\n") or checksum != _checksum(body):
        return None
    try:
        call, work, count, number, text = json.loads(body)
        return (int(call), str(work), int(count), int(number)), str(text)
    except (ValueError, TypeError, RecursionError):
        return None
