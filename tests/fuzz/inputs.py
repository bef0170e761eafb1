"""Corpora of the fuzzers, and inputs that are a sequence of steps.

A corpus is a file of TOML, ``corpus/NAME.toml``: a table ``[[seed]]`` for each input, with ``what`` it is, and ``hex``
(blanks and line ends do not count) or ``text``, or a list ``parts`` of both, in order: numbers that a target reads in
front of its input, and the input. So each input can be read, explained and changed by hand.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).parent / "corpus"


@dataclass(frozen=True, slots=True)
class Seed:
    """An input and what it is."""

    what: str
    data: bytes


def seeds(name: str, folder: Path = CORPUS) -> list[Seed]:
    """The corpus of a target; empty if there is none."""
    path = folder / f"{name}.toml"
    if not path.exists():
        return []
    return [Seed(each["what"], _data(each)) for each in tomllib.loads(path.read_text(encoding="utf-8"))["seed"]]


def _data(each: dict[str, Any]) -> bytes:
    if "parts" in each:
        return b"".join(_data(part) for part in each["parts"])
    (key,) = each.keys() & {"hex", "text"}
    return bytes.fromhex("".join(each[key].split())) if key == "hex" else each[key].encode("utf-8", "surrogatepass")


class Script:
    """Reads an input from its beginning; at the end everything is 0 or empty. As ``dataplane/fuzz/lib.rs``."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def part(self, length: int) -> bytes:
        """So many bytes, or what is left."""
        part, self.data = self.data[:length], self.data[length:]
        return part

    def byte(self) -> int:
        """One byte."""
        return int.from_bytes(self.part(1), "big")

    def number(self) -> int:
        """Two bytes, the high one first."""
        return self.byte() << 8 | self.byte()

    def bytes(self) -> bytes:
        """Bytes in front of which two bytes say how many they are."""
        return self.part(self.number())

    def pieces(self) -> Iterator[bytes]:
        """What is left, in pieces of as many bytes as the first one says."""
        size = max(1, self.byte())
        while self.data:
            yield self.part(size)
