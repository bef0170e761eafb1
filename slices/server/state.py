"""What survives a restart, in one JSON file of mode 0600 (numbers, tables, slices changed while running, a secret), and
the log of events, told by the event loop and heard by threads.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hyroads.controller.core.errors import ConfigError
from hyroads.controller.files.state import Broken, Document, Format, StateFile
from hyroads.controller.model.events import EventLog
from hyroads.slices.core.allocation import NOTHING, Allocation, Block
from hyroads.slices.core.opt_in import read_documents

Pairs = Mapping[str, Mapping[str, Mapping[int, int]]]
"""A switch's numbers of groups and meters by slice, kind and the guest's number."""


@dataclass(frozen=True)
class Saved:
    """The content of the file."""

    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    """Authenticates discovery frames."""
    allocation: Allocation = NOTHING
    ids: Mapping[int, Pairs] = field(default_factory=dict)
    file_hash: str = ""
    """Of the slices as the settings gave them, when ``slices`` was saved."""
    slices: Any = None
    """The document of the slices, if they were changed while running."""
    opt_ins: tuple[Document, ...] = ()
    """The documents of who has joined which slice (``opt_in``)."""


def _decode(document: Any) -> Saved:
    numbers = {str(name): int(number) for name, number in document["numbers"].items()}
    blocks = {
        int(dpid, 16): MappingProxyType(
            {str(name): Block(numbers[name], int(first), int(count)) for name, (first, count) in mine.items()}
        )
        for dpid, mine in document["blocks"].items()
    }
    ids = {
        int(dpid, 16): {
            str(name): {str(kind): {int(g): int(real) for g, real in pairs.items()} for kind, pairs in kinds.items()}
            for name, kinds in mine.items()
        }
        for dpid, mine in document["ids"].items()
    }
    allocation = Allocation(MappingProxyType(numbers), MappingProxyType(blocks))
    try:
        read_documents(document["opt_ins"], "opt_ins")
    except ConfigError as error:
        raise ValueError(str(error)) from error
    key, hashed = bytes.fromhex(document["key"]), str(document["file_hash"])
    return Saved(key, allocation, ids, hashed, document["slices"], tuple(document["opt_ins"]))


def _without_users(document: Document) -> Document:
    return {**document, "opt_ins": []}


FORMAT = Format(
    version=3,
    sections={
        "key": str,
        "numbers": dict,
        "blocks": dict,
        "ids": dict,
        "file_hash": str,
        "slices": object,
        "opt_ins": list,
    },
    # Files of version 1 had no checksum, those of version 2 no users.
    migrations={1: dict, 2: _without_users},
    checked_from=2,
    whole=_decode,
)


def read(path: str) -> tuple[StateFile, Saved, tuple[Broken, ...]]:
    """The file, its content (or that of its older copy, or of none), and what was wrong with either; ConfigError if
    others could read the secret in it.
    """
    file = StateFile(Path(path), FORMAT)
    if file.is_open_to_others:
        raise ConfigError(path, "", "expected mode 0600: the file holds secrets")
    content = file.load()
    return file, Saved() if content.document is None else _decode(content.document), content.broken


def encode(saved: Saved) -> Document:
    """The sections of the file."""
    return {
        "key": saved.key.hex(),
        "numbers": dict(saved.allocation.numbers),
        "blocks": {
            f"{dpid:#x}": {name: (block.first, block.count) for name, block in mine.items()}
            for dpid, mine in saved.allocation.blocks.items()
        },
        "ids": {f"{dpid:#x}": mine for dpid, mine in saved.ids.items() if mine},
        "file_hash": saved.file_hash,
        "slices": saved.slices,
        "opt_ins": saved.opt_ins,
    }


class _Bell:
    def __init__(self) -> None:
        self.changed = threading.Condition()

    def notify(self) -> None:
        """Wake all who wait now."""
        with self.changed:
            self.changed.notify_all()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the next :meth:`notify`."""
        with self.changed:
            return self.changed.wait(timeout_s)


class ThreadEvents(EventLog):
    """A log whose readers wait in threads. Once it is closed, nobody waits any more."""

    def __init__(self) -> None:
        self._threads = _Bell()
        self._closed = False
        super().__init__(time.time, self._threads)

    def wait(self, last: int, timeout_s: float) -> bool:
        """Wait for an event after ``last``; False after the time is over."""
        changed = self._threads.changed
        with changed:
            changed.wait_for(lambda: last < self.last or self._closed, timeout_s)
        return last < self.last

    def close(self) -> None:
        """Let everybody go."""
        self._closed = True
        self._threads.notify()
