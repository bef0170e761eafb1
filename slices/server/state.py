"""What survives a restart, in one JSON file of mode 0600: numbers, tables, slices changed while running, a secret.

Written whole to a temporary file beside it and moved over it, so that a crash leaves the old or the new one.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hyroads.controller.core.errors import ConfigError
from hyroads.controller.netfile_io import read_private
from hyroads.slices.allocation import NOTHING, Allocation, Block

VERSION = 1
Ids = Mapping[int, Mapping[str, Mapping[str, Mapping[int, int]]]]
"""The switch's numbers of groups and meters by switch, slice, kind and the guest's number."""


@dataclass(frozen=True)
class Saved:
    """The content of the file."""

    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    """Authenticates discovery frames."""
    allocation: Allocation = NOTHING
    ids: Ids = field(default_factory=dict)
    file_hash: str = ""
    """Of the slices as the settings gave them, when ``slices`` was saved."""
    slices: Any = None
    """The document of the slices, if they were changed while running."""


def read(path: str | None) -> Saved:
    """The content of the file, or of none; :class:`ConfigError` if it is damaged."""
    if path is None or not Path(path).exists():
        return Saved()
    try:
        return _decode(json.loads(read_private(path)))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            path, "", f"expected a state file of version {VERSION} (move it away to begin anew)"
        ) from error


def _decode(document: Any) -> Saved:
    if document["version"] != VERSION:
        raise ValueError("version")
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
    return Saved(bytes.fromhex(document["key"]), allocation, ids, str(document["file_hash"]), document["slices"])


def encode(saved: Saved) -> str:
    """The text of the file."""
    return json.dumps(
        {
            "version": VERSION,
            "key": saved.key.hex(),
            "numbers": dict(saved.allocation.numbers),
            "blocks": {
                f"{dpid:#x}": {name: (block.first, block.count) for name, block in mine.items()}
                for dpid, mine in saved.allocation.blocks.items()
            },
            "ids": {f"{dpid:#x}": mine for dpid, mine in saved.ids.items() if mine},
            "file_hash": saved.file_hash,
            "slices": saved.slices,
        }
    )


def write(path: str, text: str) -> None:
    """Replace the file; :class:`OSError` if that is not possible."""
    temporary = Path(f"{path}.{os.getpid()}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
